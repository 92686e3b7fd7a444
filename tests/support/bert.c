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

/* ---- making ---- */

static void add_norm(rng *r, small_bert *m, const char *place)
{
    char name[128];
    snprintf(name, sizeof name, "%s.LayerNorm.weight", place);
    named_add_random(r, &m->arrays, 1, &m->width, 1, 0.5, name);
    snprintf(name, sizeof name, "%s.LayerNorm.bias", place);
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
    rng *r, small_bert *m, const char *place, int64_t rows, int64_t cols)
{
    char name[96];
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
    named_add_random(r, &m->arrays, 1, &rows, 0, 0.5, name);
}

static void add_block(rng *r, small_bert *m, int64_t number)
{
    static const char *const square[] = { "attention.self.query", "attention.self.key",
                                          "attention.self.value",
                                          "attention.output.dense" };
    char place[96];
    for (int i = 0; i < 4; i++) {
        snprintf(place, sizeof place, "encoder.layer.%d.%s", (int)number, square[i]);
        add_linear(r, m, place, m->width, m->width);
    }
    snprintf(place, sizeof place, "encoder.layer.%d.attention.output", (int)number);
    add_norm(r, m, place);
    snprintf(place, sizeof place, "encoder.layer.%d.intermediate.dense", (int)number);
    add_linear(r, m, place, m->inner, m->width);
    snprintf(place, sizeof place, "encoder.layer.%d.output.dense", (int)number);
    add_linear(r, m, place, m->width, m->inner);
    snprintf(place, sizeof place, "encoder.layer.%d.output", (int)number);
    add_norm(r, m, place);
}

static small_bert make(rng *r, int dense)
{
    small_bert m = { .heads = rng_int(r, 1, 4), .dense = dense };
    m.width = m.heads * rng_int(r, 1, 20);
    m.inner = rng_int(r, 1, 70);
    m.layers = rng_int(r, 1, 3);
    m.vocabulary = rng_int(r, 1, 50);
    m.positions = rng_int(r, 1, 90);
    m.activation = (danaus_activation)rng_int(r, DANAUS_RELU, DANAUS_GELU_TANH);
    m.modules = (int)rng_int(r, 0, 1);
    m.first = m.modules && rng_int(r, 0, 1);
    m.normalize = !m.modules || rng_int(r, 0, 1);
    m.arrays.prefix = rng_int(r, 0, 1) ? "bert." : "";
    int64_t types = rng_int(r, 1, 2);
    const struct {
        const char *name;
        int64_t rows;
    } tables[] = { { "embeddings.word_embeddings.weight", m.vocabulary },
                   { "embeddings.position_embeddings.weight", m.positions },
                   { "embeddings.token_type_embeddings.weight", types } };
    for (int i = 0; i < 3; i++)
        named_add_random(
            r, &m.arrays, 2, (const int64_t[]){ tables[i].rows, m.width }, 0, 1,
            tables[i].name);
    add_norm(r, &m, "embeddings");
    for (int64_t i = 0; i < m.layers; i++)
        add_block(r, &m, i);
    if (rng_int(r, 0, 1))
        named_add_random(
            r, &m.arrays, 2, (const int64_t[]){ m.width, m.width }, 0, 1,
            "pooler.dense.weight");
    return m;
}

small_bert bert_random(rng *r) { return make(r, 0); }
small_bert bert_random_dense(rng *r) { return make(r, 1); }

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

void bert_config(const small_bert *m, char *config, size_t size)
{
    snprintf(
        config, size,
        "{\"model_type\": \"bert\", \"hidden_size\": %" PRId64
        ", \"num_attention_heads\": %" PRId64 ", \"intermediate_size\": %" PRId64
        ", \"num_hidden_layers\": %" PRId64 ", \"vocab_size\": %" PRId64
        ", \"max_position_embeddings\": %" PRId64 ", \"type_vocab_size\": %" PRId64
        ", \"layer_norm_eps\": 1e-12, \"hidden_act\": \"%s\"}",
        m->width, m->heads, m->inner, m->layers, m->vocabulary, m->positions,
        named_find(&m->arrays, "embeddings.token_type_embeddings.weight")->shape[0],
        activation_name(m->activation));
}

void bert_write(const small_bert *m)
{
    char config[800];
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
    static const char *const names[] = {
        "saved/pool/config.json",  "saved/modules.json", "saved/config.json",
        "saved/model.safetensors", "saved/pool",         "saved"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        remove(scratch_path(names[i]));
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
    const small_bert *m, const char *place, int64_t rows, const double *x, double *y,
    rng *noise)
{
    char name[96];
    double between[512];
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
        y[i] += named_at(bias, i);
        y[i] = noisy(y[i], fabs(y[i]), 1, noise);
    }
}

static void apply_norm(const small_bert *m, const char *place, double *x, rng *noise)
{
    char name[96];
    snprintf(name, sizeof name, "%s.LayerNorm.weight", place);
    const danaus_tensor *scale = named_find(&m->arrays, name);
    snprintf(name, sizeof name, "%s.LayerNorm.bias", place);
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
        double y = (x[i] - mean) / sqrt(square + 1e-12) * named_at(scale, i) +
                   named_at(shift, i);
        x[i] = noisy(y, fabs(y) + fabs(named_at(shift, i)), 6, noise);
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

static void attend(const small_bert *m, const rows *s, int64_t head, rng *noise)
{
    int64_t n = m->width, d = n / m->heads, from = head * d;
    double *p = calloc((size_t)s->length, sizeof *p);
    for (int64_t t = 0; t < s->length; t++) {
        double total = 0, most = -INFINITY;
        for (int64_t o = 0; o < s->length; o++) {
            double size = 0;
            p[o] = 0;
            for (int64_t i = from; i < from + d; i++) {
                double v = s->q[t * n + i] * s->k[o * n + i] / sqrt((double)d);
                p[o] += v;
                size += fabs(v);
            }
            p[o] = noisy(p[o], size, (double)d + 2, noise);
            most = fmax(most, p[o]);
        }
        for (int64_t o = 0; o < s->length; o++) {
            p[o] = exp(noisy(p[o] - most, fabs(p[o]) + 1, 1, noise));
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

static void run_block(const small_bert *m, int64_t number, const rows *s, rng *noise)
{
    int64_t n = m->width;
    char place[96];
    double y[512];
    assert_true(n <= 512 && m->inner <= 512);
    const struct {
        const char *name;
        double *to;
    } three[] = { { "query", s->q }, { "key", s->k }, { "value", s->v } };
    for (int i = 0; i < 3; i++) {
        snprintf(
            place, sizeof place, "encoder.layer.%d.attention.self.%s", (int)number,
            three[i].name);
        for (int64_t t = 0; t < s->length; t++)
            apply_linear(m, place, n, s->h + t * n, three[i].to + t * n, noise);
    }
    for (int64_t head = 0; head < m->heads; head++)
        attend(m, s, head, noise);
    for (int64_t t = 0; t < s->length; t++) {
        double *h = s->h + t * n, inner[512];
        snprintf(
            place, sizeof place, "encoder.layer.%d.attention.output.dense",
            (int)number);
        apply_linear(m, place, n, s->mixed + t * n, y, noise);
        for (int64_t i = 0; i < n; i++)
            h[i] += y[i];
        snprintf(place, sizeof place, "encoder.layer.%d.attention.output", (int)number);
        apply_norm(m, place, h, noise);
        snprintf(
            place, sizeof place, "encoder.layer.%d.intermediate.dense", (int)number);
        apply_linear(m, place, m->inner, h, inner, noise);
        for (int64_t i = 0; i < m->inner; i++) {
            double v = activate(m->activation, inner[i]);
            inner[i] = noisy(v, fabs(inner[i]), 4, noise);
        }
        snprintf(place, sizeof place, "encoder.layer.%d.output.dense", (int)number);
        apply_linear(m, place, n, inner, y, noise);
        for (int64_t i = 0; i < n; i++)
            h[i] += y[i];
        snprintf(place, sizeof place, "encoder.layer.%d.output", (int)number);
        apply_norm(m, place, h, noise);
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
    const danaus_tensor *word =
        named_find(&m->arrays, "embeddings.word_embeddings.weight");
    const danaus_tensor *place =
        named_find(&m->arrays, "embeddings.position_embeddings.weight");
    const danaus_tensor *type =
        named_find(&m->arrays, "embeddings.token_type_embeddings.weight");
    for (int64_t t = 0; t < length; t++) {
        for (int64_t i = 0; i < n; i++) {
            double w = named_at(word, ids[t] * n + i), p = named_at(place, t * n + i);
            s.h[t * n + i] =
                noisy(w + p + named_at(type, i), fabs(w) + fabs(p) + 1, 2, noise);
        }
        apply_norm(m, "embeddings", s.h + t * n, noise);
    }
    for (int64_t i = 0; i < m->layers; i++)
        run_block(m, i, &s, noise);
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
