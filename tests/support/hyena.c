/* Small causal models of Hyena's kind: making, writing, and plain loops. */
// SPDX-License-Identifier: Apache-2.0
#include "support/hyena.h"
#include "support/files.h"
#include "support/loops.h"
#include "support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

static void place_of(
    const small_hyena *m, int64_t layer, const char *part, char path[NAMED_LENGTH])
{
    int is_norm = !strncmp(part, "norm", 4);
    const char *dot = strchr(part, '.');
    if (!m->wrapped || is_norm)
        named_path(path, "backbone.layers.%d.%s", (int)layer, part);
    else
        named_path(
            path, "backbone.layers.%d.%.*s.layer%s", (int)layer, (int)(dot - part),
            part, dot);
}

static void add_pair(
    rng *r, small_hyena *m, const char *place, int ndim, const int64_t *shape,
    double middle, double size)
{
    char path[NAMED_LENGTH];
    named_path(path, "%s.weight", place);
    named_add_random(r, &m->arrays, ndim, shape, middle, size, path);
    named_path(path, "%s.bias", place);
    named_add_random(r, &m->arrays, 1, shape, 0, 0.3, path);
}

static void add_linear(
    rng *r, small_hyena *m, int64_t layer, const char *part, int64_t rows, int64_t cols)
{
    char place[NAMED_LENGTH];
    place_of(m, layer, part, place);
    double size = 1.5 / sqrt((double)cols);
    add_pair(r, m, place, 2, (const int64_t[]){ rows, cols }, 0, size);
}

static void add_block(rng *r, small_hyena *m, int64_t layer)
{
    char place[NAMED_LENGTH];
    int64_t planes = (m->order + 1) * m->width;
    place_of(m, layer, "norm1", place);
    add_pair(r, m, place, 1, &m->width, 1, 0.5);
    add_linear(r, m, layer, "mixer.in_proj", planes, m->width);
    add_linear(r, m, layer, "mixer.out_proj", m->width, m->width);
    place_of(m, layer, "mixer.short_filter", place);
    add_pair(r, m, place, 3, (const int64_t[]){ planes, 1, m->taps }, 0, 0.7);
    place_of(m, layer, "mixer.filter_fn", place);
    filter_add_random(r, &m->arrays, place, &m->filter, 0, 0);
    if (!m->inner)
        return;
    place_of(m, layer, "norm2", place);
    add_pair(r, m, place, 1, &m->width, 1, 0.5);
    add_linear(r, m, layer, "mlp.fc1", m->inner, m->width);
    add_linear(r, m, layer, "mlp.fc2", m->width, m->inner);
}

static void add_all(rng *r, small_hyena *m)
{
    const int64_t table[] = { m->rows, m->width };
    m->filter.channels = (m->order - 1) * m->width / m->head;
    named_add_random(
        r, &m->arrays, 2, table, 0, 1, "backbone.embeddings.word_embeddings.weight");
    for (int64_t i = 0; i < m->layers; i++)
        add_block(r, m, i);
    add_pair(r, m, "backbone.ln_f", 1, &m->width, 1, 0.5);
    if (!m->own_table)
        return;
    const char *prefix = m->arrays.prefix;
    m->arrays.prefix = NULL;
    named_add_random(r, &m->arrays, 2, table, 0, 1, "lm_head.weight");
    m->arrays.prefix = prefix;
}

small_hyena hyena_random(rng *r, int64_t length)
{
    static const char *const prefixes[] = { NULL, "hyena.", "model." };
    small_hyena m = { .layers = rng_int(r, 1, 3), .order = 2, .head = 1 };
    m.dna = (int)rng_int(r, 0, 1);
    m.head = m.dna ? 1 : rng_int(r, 1, 4);
    m.order = m.head == 1 ? rng_int(r, 2, 4) : 2;
    m.width = m.head * rng_int(r, 1, 20 / m.head);
    m.inner = m.dna || rng_int(r, 0, 1) ? rng_int(r, 1, 40) : 0;
    m.taps = rng_int(r, 1, 4);
    m.vocabulary = rng_int(r, 12, 40);
    m.rows = (m.vocabulary + 7) / 8 * 8;
    m.wrapped = (int)rng_int(r, 0, 1);
    m.own_table = (int)rng_int(r, 0, 1);
    m.filter = (small_filter){ .length = length,
                               .features = 1 + 2 * rng_int(r, 1, 3),
                               .order = rng_int(r, 1, 16),
                               .layers = (int)rng_int(r, 2, 4),
                               .factor = 1,
                               .shift = m.dna ? 0.05 : 0 };
    m.arrays.prefix = prefixes[rng_int(r, 0, 2)];
    add_all(r, &m);
    return m;
}

/* The numbers of the vectors: 0.8 sin(0.37 n + 0.11 (s + 1)) for number n of an array, where
   s is the sum of its name's bytes modulo 97. */
static void put_known(const char *name, danaus_tensor *t)
{
    float *data = (float *)(uintptr_t)t->data;
    int64_t count = 1, sum = 0;
    if (strstr(name, "pos_emb") || strstr(name, "deltas"))
        return;
    for (int i = 0; i < t->ndim; i++)
        count *= t->shape[i];
    for (const char *c = name; *c; c++)
        sum += *c;
    const char *end = strrchr(name, '.');
    int is_scale =
        !strcmp(end, ".weight") && (strstr(name, ".norm") || strstr(name, ".ln_f"));
    for (int64_t n = 0; n < count; n++) {
        double value = sin(0.37 * (double)n + 0.11 * (double)(sum % 97 + 1));
        data[n] = (float)(0.8 * value + (is_scale ? 1 : 0));
        if (!strcmp(end, ".freq"))
            data[n] = 1.5f;
    }
}

small_hyena hyena_known(int64_t order)
{
    rng r = { 0 };
    small_hyena m = { .layers = 2,
                      .width = 8,
                      .inner = 16,
                      .order = order,
                      .head = 1,
                      .taps = 3,
                      .vocabulary = 12,
                      .rows = 16,
                      .dna = 1 };
    m.filter = (small_filter){
        .length = 14, .features = 5, .order = 4, .layers = 4, .factor = 1, .shift = 0.05
    };
    add_all(&r, &m);
    for (int i = 0; i < m.arrays.count; i++)
        put_known(m.arrays.name[i], &m.arrays.tensor[i]);
    return m;
}

void hyena_free(small_hyena *m) { named_free(&m->arrays); }

/* ---- writing ---- */

static void write_text(const char *name, const char *text)
{
    file_write(scratch_path(name), text, strlen(text));
}

void hyena_write(const small_hyena *m)
{
    char config[800], inner[40] = "", taps[40] = "";
    if (m->inner)
        snprintf(inner, sizeof inner, "\"d_inner\": %" PRId64 ", ", m->inner);
    if (m->filter.taps)
        snprintf(taps, sizeof taps, "\"filter_taps\": %" PRId64 ", ", m->filter.taps);
    snprintf(
        config, sizeof config,
        "{\"model_type\": \"%s\", \"d_model\": %" PRId64 ", \"n_layer\": %" PRId64
        ", %s\"vocab_size\": %" PRId64 ", \"pad_vocab_size_multiple\": 8, "
        "\"max_seq_len\": %" PRId64 ", %s\"emb_dim\": %" PRId64
        ", \"filter_order\": %" PRId64 ", \"num_inner_mlps\": %d, \"hyena_order\": "
        "%" PRId64 ", \"short_filter_order\": %" PRId64 ", \"head_dim\": %" PRId64
        ", \"layer_norm_epsilon\": 1e-05, \"activation_freq\": 10}",
        m->dna ? "hyenadna" : "hyena", m->width, m->layers, inner, m->vocabulary,
        m->filter.length, taps, m->filter.features, m->filter.order,
        m->filter.layers - 2, m->order, m->taps, m->head);
    write_text("config.json", config);
    write_text("tokenizer_config.json", "{\"tokenizer_class\": \"HyenaDNATokenizer\"}");
    named_write(&m->arrays, scratch_path("model.safetensors"));
}

danaus_model *hyena_load(const small_hyena *m, danaus_device *device)
{
    danaus_model *model = NULL;
    hyena_write(m);
    assert_ok(danaus_model_load(device, scratch_directory(), &model));
    return model;
}

/* ---- plain loops ---- */

static void apply_linear(
    const small_hyena *m, int64_t layer, const char *part, int64_t rows, int64_t cols,
    const double *x, double *y, rng *noise)
{
    char place[NAMED_LENGTH];
    place_of(m, layer, part, place);
    loops_linear(&m->arrays, place, rows, cols, x, y, noise);
}

static void apply_norm(
    const small_hyena *m, const char *place, const double *x, double *y, rng *noise)
{
    loops_norm(&m->arrays, place, m->width, 1e-5, x, y, noise);
}

static void mix_heads(
    const small_hyena *m, const loops_filters *f, int64_t length, double *planes,
    rng *noise)
{
    int64_t plane = m->width * length, d = m->head;
    double *u = calloc((size_t)(2 * length), sizeof *u), *w = u + length;
    double *y = calloc((size_t)plane, sizeof *y);
    for (int64_t i = 0; i < m->width; i++)
        for (int64_t j = 0; j < d; j++) {
            int64_t head = i / d, to = head * d + j;
            const double *x1 = planes + plane + i * length, *x0 = planes + i * length;
            const double *v = planes + 2 * plane + to * length;
            for (int64_t t = 0; t < length; t++)
                u[t] = noisy(x1[t] * v[t], fabs(x1[t] * v[t]), 1, noise);
            loops_convolve(
                length, f->length, f->k + head * f->length, NULL,
                named_at(f->skips, head), u, w, noise);
            for (int64_t t = 0; t < length; t++)
                y[to * length + t] += noisy(x0[t] * w[t], fabs(x0[t] * w[t]), 2, noise);
        }
    memcpy(planes + 2 * plane, y, (size_t)plane * sizeof *y);
    free(u);
    free(y);
}

static double gelu(double v)
{
    return v / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
}

static void run_second_half(
    const small_hyena *m, int64_t layer, int64_t length, double *r, rng *noise)
{
    char place[NAMED_LENGTH];
    double u[64], inner[64];
    for (int64_t t = 0; m->inner && t < length; t++) {
        place_of(m, layer, "norm2", place);
        apply_norm(m, place, r + t * m->width, u, noise);
        apply_linear(m, layer, "mlp.fc1", m->inner, m->width, u, inner, noise);
        for (int64_t i = 0; i < m->inner; i++)
            inner[i] = noisy(gelu(inner[i]), fabs(inner[i]), 4, noise);
        apply_linear(m, layer, "mlp.fc2", m->width, m->inner, inner, u, noise);
        loops_add(m->width, r + t * m->width, u, noise);
    }
}

static void run_block(
    const small_hyena *m, int64_t layer, int64_t length, double *r, rng *noise)
{
    char place[NAMED_LENGTH], path[NAMED_LENGTH];
    int64_t planes = (m->order + 1) * m->width;
    double u[64];
    double *p = calloc((size_t)(2 * planes * length), sizeof *p);
    double *c = p + planes * length;
    double *k = calloc((size_t)(m->filter.channels * m->filter.length), sizeof *k);
    assert_true(p && k && m->width <= 64 && m->inner <= 64);
    place_of(m, layer, "norm1", place);
    for (int64_t t = 0; t < length; t++) {
        apply_norm(m, place, r + t * m->width, u, noise);
        apply_linear(
            m, layer, "mixer.in_proj", planes, m->width, u, p + t * planes, noise);
    }
    place_of(m, layer, "mixer.short_filter", place);
    loops_taps(&m->arrays, place, planes, m->taps, length, p, c, noise);
    place_of(m, layer, "mixer.filter_fn", place);
    filter_values(&m->arrays, place, &m->filter, 0, k, noise);
    named_path(path, "%s.bias", place);
    const loops_filters f = { m->filter.length, k, named_find(&m->arrays, path) };
    if (m->head > 1)
        mix_heads(m, &f, length, c, noise);
    else
        loops_gates(m->width, m->order, &f, length, c, noise);
    for (int64_t t = 0; t < length; t++) {
        double mixed[64];
        for (int64_t i = 0; i < m->width; i++)
            mixed[i] = c[(m->order * m->width + i) * length + t];
        apply_linear(m, layer, "mixer.out_proj", m->width, m->width, mixed, u, noise);
        loops_add(m->width, r + t * m->width, u, noise);
    }
    free(p);
    free(k);
    run_second_half(m, layer, length, r, noise);
}

void hyena_states(
    const small_hyena *m, const int32_t *ids, int64_t length, double *h, rng *noise)
{
    const danaus_tensor *word =
        named_find(&m->arrays, "backbone.embeddings.word_embeddings.weight");
    for (int64_t t = 0; t < length; t++)
        for (int64_t i = 0; i < m->width; i++)
            h[t * m->width + i] = named_at(word, ids[t] * m->width + i);
    for (int64_t i = 0; i < m->layers; i++)
        run_block(m, i, length, h, noise);
    for (int64_t t = 0; t < length; t++)
        apply_norm(m, "backbone.ln_f", h + t * m->width, h + t * m->width, noise);
}

void hyena_logits(const small_hyena *m, const double *h, double *logits, rng *noise)
{
    const danaus_tensor *table =
        named_find(&m->arrays, "backbone.embeddings.word_embeddings.weight");
    for (int i = 0; i < m->arrays.count; i++)
        if (!strcmp(m->arrays.name[i], "lm_head.weight"))
            table = &m->arrays.tensor[i];
    for (int64_t v = 0; v < m->rows; v++) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < m->width; i++) {
            double term = named_at(table, v * m->width + i) * h[i];
            sum += term;
            size += fabs(term);
        }
        logits[v] = noisy(sum, size, (double)m->width, noise);
    }
}

void hyena_scores(
    const small_hyena *m, const int32_t *ids, int64_t length, const double *h,
    double *scores, rng *noise)
{
    double logits[64];
    assert_true(m->rows <= 64);
    scores[0] = 0;
    for (int64_t t = 0; t + 1 < length; t++) {
        double sum = 0;
        hyena_logits(m, h + t * m->width, logits, noise);
        for (int64_t v = 0; v < m->rows; v++)
            sum += exp(logits[v]);
        double is = logits[ids[t + 1]], all = log(sum);
        scores[t + 1] = noisy(is - all, fabs(is) + fabs(all) + 1, 4, noise);
    }
}
