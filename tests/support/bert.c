/* Small random encoders: making, writing, and plain loops. */
// SPDX-License-Identifier: Apache-2.0
#include "support/bert.h"
#include "support/files.h"
#include "support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- names in the file ---- */

enum { QUERY, KEY, VALUE, OUTPUT, UP, DOWN, FACTOR, LINEARS };

typedef struct kind_names {
    const char *prefix, *block;
    const char *word, *position, *type, *norm; /* position, type: or NULL */
    const char *linear[LINEARS]; /* NULL: QUERY, KEY if VALUE is all three; FACTOR */
    const char *middle, *outer;  /* norms before the mlp, and of the block */
} kind_names;

#define TABLES                                                                         \
    "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
#define BERT_REST                                                                      \
    TABLES, "embeddings.token_type_embeddings.weight", "embeddings.LayerNorm",         \
        { "attention.self.query",   "attention.self.key", "attention.self.value",      \
          "attention.output.dense", "intermediate.dense", "output.dense" },            \
        "attention.output.LayerNorm", "output.LayerNorm"

static const kind_names names[BERT_KINDS] = {
    [BERT] = { "bert.", "encoder.layer", BERT_REST },
    [ROBERTA] = { "roberta.", "encoder.layer", BERT_REST },
    [DISTILBERT] = { "distilbert.",
                     "transformer.layer",
                     TABLES,
                     NULL,
                     "embeddings.LayerNorm",
                     { "attention.q_lin", "attention.k_lin", "attention.v_lin",
                       "attention.out_lin", "ffn.lin1", "ffn.lin2" },
                     "sa_layer_norm",
                     "output_layer_norm" },
    [MPNET] = { "mpnet.",
                "encoder.layer",
                TABLES,
                NULL,
                "embeddings.LayerNorm",
                { "attention.attn.q", "attention.attn.k", "attention.attn.v",
                  "attention.attn.o", "intermediate.dense", "output.dense" },
                "attention.LayerNorm",
                "output.LayerNorm" },
    [MODERN_BERT] = { "model.",
                      "layers",
                      "embeddings.tok_embeddings.weight",
                      NULL,
                      NULL,
                      "embeddings.norm",
                      { NULL, NULL, "attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo" },
                      "mlp_norm",
                      "attn_norm" },
    [NOMIC_BERT] = { "nomic_bert.",
                     "encoder.layers",
                     "embeddings.word_embeddings.weight",
                     NULL,
                     "embeddings.token_type_embeddings.weight",
                     "emb_ln",
                     { NULL, NULL, "attn.Wqkv", "attn.out_proj", "mlp.fc12", "mlp.fc2",
                       "mlp.fc11" },
                     "norm1",
                     "norm2" },
};

static int is_joint(const small_bert *m) { return !names[m->kind].linear[QUERY]; }

#define BUCKETS "encoder.relative_attention_bias.weight" /* of MPNet */

static void name_part(char *to, const small_bert *m, int64_t block, const char *part)
{
    snprintf(to, NAMED_LENGTH, "%s.%d.%s", names[m->kind].block, (int)block, part);
}

/* ---- making ---- */

static void add_norm(rng *r, small_bert *m, const char *place)
{
    char name[NAMED_LENGTH + 8];
    snprintf(name, sizeof name, "%s.weight", place);
    named_add_random(r, &m->arrays, 1, &m->width, 1, 0.5, name);
    snprintf(name, sizeof name, "%s.bias", place);
    if (m->norm_bias)
        named_add_random(r, &m->arrays, 1, &m->width, 0, 0.5, name);
}

static int64_t divisor(rng *r, int64_t n)
{
    int64_t d = rng_int(r, 1, n);
    while (n % d)
        d--;
    return d;
}

/* A dense layer, or one of two factors (1, rows / p, q, p) (p, q, cols / p, 1). */
static void add_linear(
    rng *r, small_bert *m, const char *place, int64_t rows, int64_t cols, int bias)
{
    char name[NAMED_LENGTH + 16];
    double size = 1.5 / sqrt((double)cols);
    snprintf(name, sizeof name, "%s.weight", place);
    if (rng_int(r, 0, 1) || m->dense) {
        named_add_random(
            r, &m->arrays, 2, (const int64_t[]){ rows, cols }, 0, size, name);
    } else {
        int64_t p = divisor(r, cols), q = rng_int(r, 1, 5);
        while (rows % p)
            p = divisor(r, p);
        snprintf(name, sizeof name, "%s.weights.0", place);
        named_add_random(
            r, &m->arrays, 4, (const int64_t[]){ 1, rows / p, q, p }, 0, 1, name);
        snprintf(name, sizeof name, "%s.weights.1", place);
        named_add_random(
            r, &m->arrays, 4, (const int64_t[]){ p, q, cols / p, 1 }, 0, size, name);
    }
    snprintf(name, sizeof name, "%s.bias", place);
    if (bias)
        named_add_random(r, &m->arrays, 1, &rows, 0, 0.5, name);
}

static void add_block(rng *r, small_bert *m, int64_t number)
{
    const kind_names *of = &names[m->kind];
    int modern = m->kind == MODERN_BERT;
    const int64_t sizes[LINEARS][2] = {
        [QUERY] = { m->width, m->width },
        [KEY] = { m->width, m->width },
        [VALUE] = { m->width * (is_joint(m) ? 3 : 1), m->width },
        [OUTPUT] = { m->width, m->width },
        [UP] = { m->inner * (modern ? 2 : 1), m->width },
        [DOWN] = { m->width, m->inner },
        [FACTOR] = { m->inner, m->width },
    };
    char place[NAMED_LENGTH];
    for (int i = 0; i < LINEARS; i++) {
        if (!of->linear[i])
            continue;
        name_part(place, m, number, of->linear[i]);
        add_linear(
            r, m, place, sizes[i][0], sizes[i][1],
            i < UP ? m->attention_bias : m->mlp_bias);
    }
    name_part(place, m, number, of->middle);
    add_norm(r, m, place);
    name_part(place, m, number, of->outer);
    if (!modern || number)
        add_norm(r, m, place);
}

static void add_table(rng *r, small_bert *m, int64_t rows, const char *name)
{
    if (name)
        named_add_random(
            r, &m->arrays, 2, (const int64_t[]){ rows, m->width }, 0, 1, name);
}

/* What those with rotary positions may have. */
static void choose_rotary(rng *r, small_bert *m)
{
    m->width = m->heads * 2 * rng_int(r, 1, 10);
    m->layers = rng_int(r, 1, 4);
    m->local = rng_int(r, 1, 60);
    m->every = rng_int(r, 1, 3);
    for (int i = 0; i < 2; i++)
        m->theta[i] = (double)rng_int(r, 2, 100000);
    m->norm_bias = m->kind == NOMIC_BERT || rng_int(r, 0, 1);
    m->attention_bias = (int)rng_int(r, 0, 1);
    m->mlp_bias = (int)rng_int(r, 0, 1);
}

static small_bert make(rng *r, bert_kind kind, int dense)
{
    const kind_names *of = &names[kind];
    small_bert m = { .kind = kind, .heads = rng_int(r, 1, 4), .dense = dense };
    m.norm_bias = m.attention_bias = m.mlp_bias = 1;
    m.width = m.heads * rng_int(r, 1, 20);
    m.inner = rng_int(r, 1, 70);
    m.layers = rng_int(r, 1, 3);
    m.vocabulary = rng_int(r, 1, 50);
    m.positions = rng_int(r, 1, kind == MPNET ? 170 : 90);
    m.activation = (danaus_activation)rng_int(r, DANAUS_RELU, DANAUS_GELU_TANH);
    m.modules = (int)rng_int(r, 0, 1);
    m.first = m.modules && rng_int(r, 0, 1);
    m.normalize = !m.modules || rng_int(r, 0, 1);
    m.arrays.prefix = rng_int(r, 0, 1) ? of->prefix : "";
    int64_t types = rng_int(r, 1, 2);
    m.padding = kind == ROBERTA ? rng_int(r, 0, 3) : kind == MPNET ? 1 : -1;
    if (kind == MPNET)
        named_add_random(
            r, &m.arrays, 2, (const int64_t[]){ 32, m.heads }, 0, 2, BUCKETS);
    if (is_joint(&m))
        choose_rotary(r, &m);
    add_table(r, &m, m.vocabulary, of->word);
    add_table(r, &m, m.padding + 1 + m.positions, of->position);
    add_table(r, &m, types, of->type);
    add_norm(r, &m, of->norm);
    for (int64_t i = 0; i < m.layers; i++)
        add_block(r, &m, i);
    if (kind == MODERN_BERT)
        add_norm(r, &m, "final_norm");
    else if (kind != DISTILBERT && rng_int(r, 0, 1))
        add_table(r, &m, m.width, "pooler.dense.weight");
    return m;
}

small_bert bert_random(rng *r) { return make(r, BERT, 0); }
small_bert bert_random_dense(rng *r) { return make(r, BERT, 1); }
small_bert bert_random_kind(rng *r, bert_kind kind) { return make(r, kind, 0); }

void bert_free(small_bert *m) { named_free(&m->arrays); }

static void write_text(const char *name, const char *text)
{
    file_write(scratch_path(name), text, strlen(text));
}

static const char *activation_name(danaus_activation a)
{
    return a == DANAUS_RELU   ? "relu"
           : a == DANAUS_GELU ? "gelu"
           : a == DANAUS_SILU ? "silu"
                              : "gelu_new";
}

/* What config.json has of one kind alone. */
static void own_config(const small_bert *m, char *to, size_t size)
{
    const danaus_tensor *types =
        named_find(&m->arrays, "embeddings.token_type_embeddings.weight");
    if (m->kind == MODERN_BERT)
        snprintf(
            to, size,
            "\"norm_eps\": 1e-12, \"local_attention\": %d, "
            "\"global_attn_every_n_layers\": %d, \"global_rope_theta\": %g, "
            "\"local_rope_theta\": %g, \"norm_bias\": %s, \"attention_bias\": %s, "
            "\"mlp_bias\": %s",
            (int)m->local, (int)m->every, m->theta[0], m->theta[1],
            m->norm_bias ? "true" : "false", m->attention_bias ? "true" : "false",
            m->mlp_bias ? "true" : "false");
    else if (m->kind == NOMIC_BERT)
        snprintf(
            to, size,
            "\"layer_norm_eps\": 1e-12, \"type_vocab_size\": %d, \"rope_parameters\": "
            "{\"rope_theta\": %g, \"rope_type\": \"default\"}",
            (int)types->shape[0], m->theta[0]);
    else if (m->kind == MPNET)
        snprintf(to, size, "\"layer_norm_eps\": 1e-12");
    else if (m->kind == DISTILBERT)
        snprintf(to, size, "\"sinusoidal_pos_embds\": false");
    else
        snprintf(
            to, size,
            "\"layer_norm_eps\": 1e-12, \"type_vocab_size\": %d, \"pad_token_id\": %d",
            (int)types->shape[0], (int)(m->padding < 0 ? 0 : m->padding));
}

void bert_config(const small_bert *m, char *config, size_t size)
{
    static const char *const fields[BERT_KINDS][6] = {
#define SIZES                                                                          \
    "hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers"
        [BERT] = { "bert", SIZES, "hidden_act" },
        [ROBERTA] = { "xlm-roberta", SIZES, "hidden_act" },
        [DISTILBERT] = { "distilbert", "dim", "n_heads", "hidden_dim", "n_layers",
                         "activation" },
        [MPNET] = { "mpnet", SIZES, "hidden_act" },
        [MODERN_BERT] = { "modernbert", SIZES, "hidden_activation" },
        [NOMIC_BERT] = { "nomic_bert", SIZES, "hidden_act" },
    };
    const char *const *f = fields[m->kind];
    char own[400];
    own_config(m, own, sizeof own);
    snprintf(
        config, size,
        "{\"model_type\": \"%s\", \"%s\": %d, \"%s\": %d, \"%s\": %d, \"%s\": %d, "
        "\"%s\": \"%s\", \"vocab_size\": %d, \"max_position_embeddings\": %d, %s}",
        f[0], f[1], (int)m->width, f[2], (int)m->heads, f[3], (int)m->inner, f[4],
        (int)m->layers, f[5], activation_name(m->activation), (int)m->vocabulary,
        (int)(m->padding + 1 + m->positions), own);
}

void bert_write(const small_bert *m)
{
    char config[1200];
    bert_config(m, config, sizeof config);
    write_text("config.json", config);
    remove(scratch_path("modules.json"));
    if (m->modules) {
        mkdir(scratch_path("pool"), 0755);
        write_text(
            "modules.json",
            m->normalize ? "[{\"type\": \"s.models.Transformer\", \"path\": \"\"},"
                           "{\"type\": \"s.models.Pooling\", \"path\": \"pool\"},"
                           "{\"type\": \"s.models.Normalize\", \"path\": \"n\"}]"
                         : "[{\"type\": \"s.models.Transformer\", \"path\": \"\"},"
                           "{\"type\": \"s.models.Pooling\", \"path\": \"pool\"}]");
        write_text(
            "pool/config.json", m->first ? "{\"pooling_mode_cls_token\": true}"
                                         : "{\"pooling_mode_mean_tokens\": true}");
    }
    named_write(&m->arrays, scratch_path("model.safetensors"));
}

danaus_model *bert_load(const small_bert *m, danaus_device *device)
{
    danaus_model *model = NULL;
    bert_write(m);
    assert_ok(danaus_model_load(device, scratch_directory(), &model));
    return model;
}

void bert_remove_saved(void)
{
    static const char *const saved[] = {
        "saved/pool/config.json",  "saved/modules.json", "saved/config.json",
        "saved/model.safetensors", "saved/pool",         "saved"
    };
    for (size_t i = 0; i < sizeof saved / sizeof *saved; i++)
        remove(scratch_path(saved[i]));
}

int bert_teardown(void **state)
{
    bert_remove_saved();
    remove(scratch_path("pool/config.json"));
    remove(scratch_path("pool"));
    return scratch_teardown(state);
}

/* ---- plain loops; `noise` is NULL or gives what rounding may add ---- */

/* y[rows] += K x for one factor w[a][b][c][d]; sizes are sums of magnitudes. */
static void apply_factor(
    const danaus_tensor *t, const int64_t p[4], const double *x, double *y, rng *noise)
{
    for (int64_t i = 0; i < p[0]; i++)
        for (int64_t r = 0; r < p[1]; r++)
            for (int64_t j = 0; j < p[3]; j++) {
                double sum = 0, size = 0;
                for (int64_t k = 0; k < p[2]; k++) {
                    double v = named_at(t, ((i * p[1] + r) * p[2] + k) * p[3] + j) *
                               x[(i * p[2] + k) * p[3] + j];
                    sum += v;
                    size += fabs(v);
                }
                y[(i * p[1] + r) * p[3] + j] =
                    noisy(sum, size, (double)p[2] + 1, noise);
            }
}

static void apply_linear(
    const small_bert *m, int64_t block, int layer, int64_t rows, const double *x,
    double *y, rng *noise)
{
    char place[NAMED_LENGTH], name[NAMED_LENGTH + 16];
    double between[512];
    name_part(place, m, block, names[m->kind].linear[layer]);
    snprintf(name, sizeof name, "%s.weight", place);
    const danaus_tensor *dense = named_find(&m->arrays, name);
    if (dense) {
        int64_t p[4] = { 1, dense->shape[0], dense->shape[1], 1 };
        apply_factor(dense, p, x, y, noise);
    } else {
        snprintf(name, sizeof name, "%s.weights.1", place);
        const danaus_tensor *right = named_find(&m->arrays, name);
        snprintf(name, sizeof name, "%s.weights.0", place);
        const danaus_tensor *left = named_find(&m->arrays, name);
        assert_true(right->shape[0] * right->shape[1] <= 512);
        apply_factor(right, right->shape, x, between, noise);
        apply_factor(left, left->shape, between, y, noise);
    }
    snprintf(name, sizeof name, "%s.bias", place);
    const danaus_tensor *bias = named_find(&m->arrays, name);
    for (int64_t i = 0; i < rows; i++) {
        y[i] += bias ? named_at(bias, i) : 0;
        y[i] = noisy(y[i], fabs(y[i]), 1, noise);
    }
}

static void apply_norm(const small_bert *m, const char *place, double *x, rng *noise)
{
    char name[NAMED_LENGTH + 16];
    snprintf(name, sizeof name, "%s.weight", place);
    const danaus_tensor *scale = named_find(&m->arrays, name);
    snprintf(name, sizeof name, "%s.bias", place);
    const danaus_tensor *shift = named_find(&m->arrays, name);
    int64_t n = m->width;
    double mean = 0, square = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = noisy(x[i], fabs(x[i]), 1, noise);
        mean += x[i] / (double)n;
        size += fabs(x[i]) / (double)n;
    }
    mean = noisy(mean, size, (double)n, noise);
    for (int64_t i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean) / (double)n;
    square = noisy(square, square, (double)n, noise);
    for (int64_t i = 0; i < n; i++) {
        double b = shift ? named_at(shift, i) : 0;
        double y = (x[i] - mean) / sqrt(square + 1e-12) * named_at(scale, i) + b;
        x[i] = noisy(y, fabs(y) + fabs(b), 6, noise);
    }
}

static double activate(danaus_activation a, double v)
{
    switch (a) {
    case DANAUS_RELU: return v < 0 ? 0 : v;
    case DANAUS_GELU: return v / 2 * erfc(-v / sqrt(2));
    case DANAUS_SILU: return v / (1 + exp(-v));
    default: return v / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
    }
}

/* Rows of a sequence. */
typedef struct rows {
    int64_t length;
    double *h, *q, *k, *v, *mixed;
} rows;

static int is_global(const small_bert *m, int64_t block)
{
    return m->kind != MODERN_BERT || block % m->every == 0;
}

static int sees(const small_bert *m, int64_t block, int64_t t, int64_t o)
{
    return is_global(m, block) || llabs(t - o) <= m->local / 2;
}

/* MPNet's bias of key o for query t: 8 buckets of one distance each, then 8 that grow by the same
   factor up to 128, before the query and behind it. */
static double bias_of(const small_bert *m, int64_t head, int64_t t, int64_t o)
{
    if (m->kind != MPNET)
        return 0;
    double n = fabs((double)(o - t)), bucket = n;
    if (n >= 8)
        bucket = fmin(15, 8 + floor(8 * log2(n / 8) / 4 + 1e-9));
    int64_t row = (int64_t)bucket + (o > t ? 16 : 0);
    return named_at(named_find(&m->arrays, BUCKETS), row * m->heads + head);
}

static void attend(
    const small_bert *m, int64_t block, const rows *s, int64_t head, rng *noise)
{
    int64_t n = m->width, d = n / m->heads, from = head * d;
    double *p = calloc((size_t)s->length, sizeof *p);
    for (int64_t t = 0; t < s->length; t++) {
        double total = 0, most = -INFINITY;
        for (int64_t o = 0; o < s->length; o++) {
            double size = 0;
            p[o] = -INFINITY;
            if (!sees(m, block, t, o))
                continue;
            p[o] = bias_of(m, head, t, o);
            size += fabs(p[o]);
            for (int64_t i = from; i < from + d; i++) {
                double v = s->q[t * n + i] * s->k[o * n + i] / sqrt((double)d);
                p[o] += v;
                size += fabs(v);
            }
            p[o] = noisy(p[o], size, (double)d + 3, noise);
            most = fmax(most, p[o]);
        }
        for (int64_t o = 0; o < s->length; o++) {
            if (sees(m, block, t, o))
                p[o] = noisy(p[o] - most, fabs(p[o]) + 1, 1, noise);
            p[o] = exp(p[o]);
            total += p[o];
        }
        for (int64_t i = from; i < from + d; i++) {
            double y = 0, size = 0;
            for (int64_t o = 0; o < s->length; o++) {
                y += p[o] / total * s->v[o * n + i];
                size += p[o] / total * fabs(s->v[o * n + i]);
            }
            s->mixed[t * n + i] = noisy(y, size, 2 * (double)s->length + 2, noise);
        }
    }
    free(p);
}

/* Turns pairs of numbers of a head, of token t. */
static void turn(const small_bert *m, int64_t block, int64_t t, double *x, rng *noise)
{
    int64_t d = m->width / m->heads;
    double theta = m->theta[!is_global(m, block)];
    for (int64_t i = 0; i < d / 2; i++) {
        double angle = (double)t * pow(theta, -2 * (double)i / (double)d);
        double a = x[i], b = x[i + d / 2], c = cos(angle), s = sin(angle);
        x[i] = noisy(a * c - b * s, fabs(a * c) + fabs(b * s), 3, noise);
        x[i + d / 2] = noisy(b * c + a * s, fabs(b * c) + fabs(a * s), 3, noise);
    }
}

/* q, k and v of token t from x. */
static void project(
    const small_bert *m, int64_t block, const rows *s, int64_t t, const double *x,
    rng *noise)
{
    int64_t n = m->width, d = n / m->heads;
    double *to[] = { s->q + t * n, s->k + t * n, s->v + t * n }, all[512];
    if (!is_joint(m)) {
        for (int i = QUERY; i <= VALUE; i++)
            apply_linear(m, block, i, n, x, to[i], noise);
        return;
    }
    apply_linear(m, block, VALUE, 3 * n, x, all, noise);
    for (int i = QUERY; i <= VALUE; i++)
        memcpy(to[i], all + i * n, (size_t)n * sizeof *all);
    for (int64_t at = 0; at < n; at += d) {
        turn(m, block, t, to[QUERY] + at, noise);
        turn(m, block, t, to[KEY] + at, noise);
    }
}

static void run_mlp(
    const small_bert *m, int64_t block, const double *x, double *y, rng *noise)
{
    int joint = m->kind == MODERN_BERT, gated = is_joint(m);
    double inner[512];
    apply_linear(m, block, UP, m->inner * (1 + joint), x, inner, noise);
    if (gated && !joint)
        apply_linear(m, block, FACTOR, m->inner, x, inner + m->inner, noise);
    for (int64_t i = 0; i < m->inner; i++) {
        double factor = gated ? inner[m->inner + i] : 1;
        double v = activate(m->activation, inner[i]) * factor;
        inner[i] = noisy(v, fabs(inner[i] * factor), 4 + gated, noise);
    }
    apply_linear(m, block, DOWN, m->width, inner, y, noise);
}

/* to = norm(x), of a block, or x itself in the first of ModernBERT. */
static void norm_of(
    const small_bert *m, int64_t block, const char *name, const double *x, double *to,
    rng *noise)
{
    char place[NAMED_LENGTH];
    name_part(place, m, block, name);
    memmove(to, x, (size_t)m->width * sizeof *x);
    if (block || m->kind != MODERN_BERT || strcmp(name, names[m->kind].outer))
        apply_norm(m, place, to, noise);
}

/* h + y, rounded if it stays as it is. */
static void add_to(const small_bert *m, double *h, const double *y, rng *noise)
{
    for (int64_t i = 0; i < m->width; i++) {
        h[i] += y[i];
        if (m->kind == MODERN_BERT)
            h[i] = noisy(h[i], fabs(h[i]), 1, noise);
    }
}

static void run_block(const small_bert *m, int64_t block, const rows *s, rng *noise)
{
    const kind_names *of = &names[m->kind];
    int before = m->kind == MODERN_BERT;
    int64_t n = m->width;
    double y[512], x[512];
    assert_true(3 * n <= 512 && 2 * m->inner <= 512);
    for (int64_t t = 0; t < s->length; t++) {
        if (before)
            norm_of(m, block, of->outer, s->h + t * n, x, noise);
        project(m, block, s, t, before ? x : s->h + t * n, noise);
    }
    for (int64_t head = 0; head < m->heads; head++)
        attend(m, block, s, head, noise);
    for (int64_t t = 0; t < s->length; t++) {
        double *h = s->h + t * n;
        apply_linear(m, block, OUTPUT, n, s->mixed + t * n, y, noise);
        add_to(m, h, y, noise);
        norm_of(m, block, of->middle, h, before ? x : h, noise);
        run_mlp(m, block, before ? x : h, y, noise);
        add_to(m, h, y, noise);
        if (!before)
            norm_of(m, block, of->outer, h, h, noise);
    }
}

static void pool(const small_bert *m, const rows *s, double *y, rng *noise)
{
    int64_t n = m->width, count = m->first ? 1 : s->length;
    double square = 0;
    for (int64_t i = 0; i < n; i++) {
        double size = 0;
        y[i] = 0;
        for (int64_t t = 0; t < count; t++) {
            y[i] += s->h[t * n + i] / (double)count;
            size += fabs(s->h[t * n + i]) / (double)count;
        }
        y[i] = noisy(y[i], size, (double)count, noise);
        square += y[i] * y[i];
    }
    double length = fmax(sqrt(square), 1e-12);
    for (int64_t i = 0; i < n; i++)
        if (m->normalize)
            y[i] = noisy(y[i] / length, fabs(y[i] / length), (double)n, noise);
}

/* The row of token t before all blocks. */
static void place_word(
    const small_bert *m, int32_t id, int64_t t, double *h, rng *noise)
{
    const kind_names *of = &names[m->kind];
    const danaus_tensor *word = named_find(&m->arrays, of->word);
    const danaus_tensor *place =
        of->position ? named_find(&m->arrays, of->position) : NULL;
    const danaus_tensor *type = of->type ? named_find(&m->arrays, of->type) : NULL;
    int64_t n = m->width;
    for (int64_t i = 0; i < n; i++) {
        double w = named_at(word, id * n + i);
        double p = place ? named_at(place, (m->padding + 1 + t) * n + i) : 0;
        double v = w + p + (type ? named_at(type, i) : 0);
        h[i] = noisy(v, fabs(w) + fabs(p) + 1, 2, noise);
    }
    apply_norm(m, of->norm, h, noise);
}

static void embed(
    const small_bert *m, const int32_t *ids, int64_t length, double *y, rng *noise)
{
    int64_t n = m->width;
    double *memory = calloc((size_t)(5 * length * n), sizeof *memory);
    assert_non_null(memory);
    rows s = { length,
               memory,
               memory + length * n,
               memory + 2 * length * n,
               memory + 3 * length * n,
               memory + 4 * length * n };
    for (int64_t t = 0; t < length; t++)
        place_word(m, ids[t], t, s.h + t * n, noise);
    for (int64_t i = 0; i < m->layers; i++)
        run_block(m, i, &s, noise);
    for (int64_t t = 0; t < length && m->kind == MODERN_BERT; t++)
        apply_norm(m, "final_norm", s.h + t * n, noise);
    pool(m, &s, y, noise);
    free(memory);
}

void bert_embed(
    const small_bert *m, const int32_t *ids, int64_t length, double *embedding,
    double *moved)
{
    double other[512];
    embed(m, ids, length, embedding, NULL);
    *moved = 0;
    for (uint64_t run = 0; run < 4; run++) {
        rng noise = { run };
        embed(m, ids, length, other, &noise);
        for (int64_t i = 0; i < m->width; i++)
            *moved = fmax(*moved, fabs(other[i] - embedding[i]));
    }
}
