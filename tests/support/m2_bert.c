/* Small Monarch Mixer BERTs: making, writing, and plain loops. */
// SPDX-License-Identifier: Apache-2.0
#include "support/m2_bert.h"
#include "support/files.h"
#include "support/head.h"
#include "support/loops.h"
#include "support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

/* Puts numbers into a model: random ones, or those of the test vectors. */
typedef struct maker {
    rng *random; /* NULL: the vectors' */
    small_m2 *m;
} maker;

static double vector_number(const char *name, int64_t i)
{
    int sum = 0;
    for (const char *c = name; *c; c++)
        sum += *c;
    return 0.8 * sin(0.37 * (double)i + 0.11 * (sum % 97 + 1));
}

static void put(
    const maker *to, int ndim, const int64_t *shape, double middle, double size,
    const char *name)
{
    named_arrays *arrays = &to->m->arrays;
    if (to->random) {
        named_add_random(to->random, arrays, ndim, shape, middle, size, name);
        return;
    }
    int64_t count = 1;
    double *data = named_add_f64(arrays, ndim, shape, name);
    for (int i = 0; i < ndim; i++)
        count *= shape[i];
    for (int64_t i = 0; i < count; i++)
        data[i] = middle + vector_number(arrays->name[arrays->count - 1], i);
}

#define PUT(to, middle, size, name, ...)                                               \
    put(to, (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)),               \
        (const int64_t[]){ __VA_ARGS__ }, middle, size, name)

static void put_pair(
    const maker *to, const char *place, int64_t rows, int64_t cols, double middle)
{
    char name[NAMED_LENGTH];
    named_path(name, "%s.weight", place);
    if (cols)
        PUT(to, middle, 1 / sqrt((double)cols), name, rows, cols);
    else
        PUT(to, middle, 0.5, name, rows);
    named_path(name, "%s.bias", place);
    PUT(to, 0, 0.5, name, rows);
}

static void put_norm(const maker *to, const char *place)
{
    put_pair(to, place, to->m->width, 0, 1);
}

static void put_mlp(const maker *to, const char *place)
{
    char name[NAMED_LENGTH];
    const small_m2 *m = to->m;
    int64_t g = m->blocks, up = m->inner * (m->gated ? 2 : 1);
    named_path(name, "%s.gated_layers.weight", place);
    PUT(to, 0, 1, name, g, up / g, m->width / g);
    named_path(name, "%s.wo.weight", place);
    PUT(to, 0, 1, name, g, m->width / g, m->inner / g);
    named_path(name, "%s.wo.bias", place);
    PUT(to, 0, 0.5, name, m->width);
    named_path(name, "%s.layernorm", place);
    put_norm(to, name);
}

/* A filter of the test vectors. */
static void put_filter(const maker *to, const char *place)
{
    static const char *const networks[] = { "implicit_filter", "implicit_filter_rev" };
    char name[NAMED_LENGTH];
    const small_filter *f = &to->m->filter;
    named_path(name, "%s.bias", place);
    PUT(to, 0, 1, name, f->channels);
    named_path(name, "%s.pos_emb.z", place);
    filter_encode(
        f,
        named_add_f64(
            &to->m->arrays, 3, (const int64_t[]){ 1, f->length, f->features }, name));
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < f->layers; i++) {
            named_path(name, "%s.%s.%d", place, networks[way], 2 * i);
            if (i + 1 < f->layers) {
                put_pair(to, name, f->order, i ? f->order : f->features, 0);
                named_path(name, "%s.%s.%d.freq", place, networks[way], 2 * i + 1);
                double *sines = named_add_f64(
                    &to->m->arrays, 2, (const int64_t[]){ 1, f->order }, name);
                for (int64_t o = 0; o < f->order; o++)
                    sines[o] = 1.5;
            } else {
                named_path(name, "%s.%s.%d.weight", place, networks[way], 2 * i);
                PUT(to, 0, 1, name, f->channels, f->order);
            }
        }
}

static void put_block(const maker *to, int64_t number)
{
    char place[NAMED_LENGTH];
    const small_m2 *m = to->m;
    int64_t n = m->width;
    const char *block = "encoder.layer";
    if (m->normed) {
        named_path(place, "%s.%d.attention.layernorm", block, (int)number);
        put_norm(to, place);
    }
    named_path(place, "%s.%d.attention.in_linear", block, (int)number);
    put_pair(to, place, 3 * n, n, 0);
    named_path(place, "%s.%d.attention.out_linear", block, (int)number);
    put_pair(to, place, n, n, 0);
    named_path(place, "%s.%d.attention.short_filter.weight", block, (int)number);
    PUT(to, 0, 0.6, place, 3 * n, 1, 3);
    named_path(place, "%s.%d.attention.short_filter.bias", block, (int)number);
    PUT(to, 0, 0.6, place, 3 * n);
    for (int f = 0; f <= m->residual; f++) {
        named_path(
            place, "%s.%d.attention.filter_fn%s", block, (int)number, f ? "2" : "");
        if (to->random)
            filter_add_random(
                to->random, &to->m->arrays, place, &m->filter, m->bidirectional, 0);
        else
            put_filter(to, place);
    }
    named_path(place, "%s.%d.mlp", block, (int)number);
    put_mlp(to, place);
}

static void put_all(const maker *to)
{
    small_m2 *m = to->m;
    int64_t n = m->width;
    PUT(to, 0, 1, "embeddings.word_embeddings.weight", m->vocabulary, n);
    PUT(to, 0, 1, "embeddings.position_embeddings.weight", m->length, n);
    PUT(to, 0, 1, "embeddings.token_type_embeddings.weight", 2, n);
    put_norm(to, "embeddings.LayerNorm");
    for (int64_t i = 0; i < m->layers; i++)
        put_block(to, i);
    if (m->pooler)
        put_pair(to, "pooler.dense", n, n, 0);
    const char *prefix = m->arrays.prefix;
    m->arrays.prefix = NULL;
    if (m->head && to->random)
        head_add_random(to->random, &m->arrays, n, m->vocabulary);
    else if (m->head) {
        put_pair(to, "cls.predictions.transform.dense", n, n, 0);
        put_norm(to, "cls.predictions.transform.LayerNorm");
        PUT(to, 0, 0.5, "cls.predictions.decoder.bias", m->vocabulary);
    }
    m->arrays.prefix = prefix;
}

small_m2 m2_random(rng *r)
{
    small_m2 m = { .blocks = rng_int(r, 1, 4) };
    m.width = m.blocks * rng_int(r, 1, 12);
    m.inner = m.blocks * rng_int(r, 1, 20);
    m.layers = rng_int(r, 1, 2);
    m.vocabulary = rng_int(r, 1, 40);
    m.length = rng_int(r, 1, 110);
    m.normed = (int)rng_int(r, 0, 1);
    m.gated = rng_int(r, 0, 3) > 0;
    m.residual = rng_int(r, 0, 3) > 0;
    m.bidirectional = rng_int(r, 0, 3) > 0;
    m.pooler = (int)rng_int(r, 0, 1);
    m.all = m.pooler && rng_int(r, 0, 1);
    m.head = (int)rng_int(r, 0, 1);
    m.arrays.prefix = m.head || rng_int(r, 0, 1) ? "bert." : "";
    m.filter = (small_filter){ .length = m.length,
                               .channels = m.width,
                               .features = 1 + 2 * rng_int(r, 1, 3),
                               .order = rng_int(r, 1, 24),
                               .layers = 4,
                               .factor = 1 };
    put_all(&(maker){ r, &m });
    return m;
}

static small_m2 narrow(int64_t layers, int64_t length, int normed)
{
    small_m2 m = { .width = 8,
                   .inner = 16,
                   .blocks = 4,
                   .layers = layers,
                   .vocabulary = 16,
                   .length = length,
                   .normed = normed,
                   .gated = 1,
                   .residual = 1,
                   .bidirectional = 1,
                   .pooler = 1,
                   .head = 1 };
    m.arrays.prefix = "bert.";
    m.filter = (small_filter){ .length = length,
                               .channels = 8,
                               .features = 5,
                               .order = 4,
                               .layers = 4,
                               .factor = 1 };
    return m;
}

small_m2 m2_of_vectors(int normed)
{
    small_m2 m = narrow(2, 12, normed);
    put_all(&(maker){ NULL, &m });
    return m;
}

small_m2 m2_long(rng *r, int64_t length)
{
    small_m2 m = narrow(1, length, 1);
    m.all = 1;
    put_all(&(maker){ r, &m });
    return m;
}

void m2_free(small_m2 *m) { named_free(&m->arrays); }

void m2_config(const small_m2 *m, char *config, size_t size)
{
    snprintf(
        config, size,
        "{\"model_type\": \"%s\", \"hidden_size\": %" PRId64
        ", \"intermediate_size\": %" PRId64 ", \"num_hidden_layers\": %" PRId64
        ", \"vocab_size\": %" PRId64 ", \"max_position_embeddings\": %" PRId64
        ", \"long_conv_l_max\": %" PRId64 ", \"use_glu_mlp\": %s, \"pool_all\": %s}",
        m->layers > 1 ? "bert" : "m2_bert", m->width, m->inner, m->layers,
        m->vocabulary, m->length, m->length, m->gated ? "true" : "false",
        m->all ? "true" : "false");
}

void m2_write(const small_m2 *m)
{
    char config[1000];
    m2_config(m, config, sizeof config);
    file_write(scratch_path("config.json"), config, strlen(config));
    named_write(&m->arrays, scratch_path("model.safetensors"));
}

danaus_model *m2_load(const small_m2 *m, danaus_device *device)
{
    danaus_model *model = NULL;
    m2_write(m);
    assert_ok(danaus_model_load(device, scratch_directory(), &model));
    return model;
}

/* ---- plain loops ---- */

static const danaus_tensor *find(const small_m2 *m, const char *place, const char *part)
{
    char name[NAMED_LENGTH];
    named_path(name, "%s.%s", place, part);
    return named_find(&m->arrays, name);
}

static double gelu(double v) { return v / 2 * erfc(-v / sqrt(2)); }

/* a becomes norm(a + mlp(a)). */
static void run_mlp(const small_m2 *m, const char *place, double *a, rng *noise)
{
    char name[NAMED_LENGTH];
    double q[256], y[M2_MOST_WIDTH];
    assert_true(m->inner <= 128 && m->width <= M2_MOST_WIDTH);
    named_path(name, "%s.gated_layers", place);
    loops_linear(
        &m->arrays, name, m->inner * (m->gated ? 2 : 1), m->width, a, q, noise);
    for (int64_t i = 0; i < m->inner; i++) {
        double v = gelu(q[i]) * (m->gated ? q[m->inner + i] : 1);
        q[i] = noisy(v, fabs(v), 5, noise);
    }
    named_path(name, "%s.wo", place);
    loops_linear(&m->arrays, name, m->width, m->inner, q, y, noise);
    for (int64_t i = 0; i < m->width; i++)
        a[i] = noisy(a[i] + y[i], fabs(a[i] + y[i]), 1, noise);
    named_path(name, "%s.layernorm", place);
    loops_norm(&m->arrays, name, m->width, 1e-12, a, a, noise);
}

static void begin(
    const small_m2 *m, const int32_t *ids, int64_t length, double *h, rng *noise)
{
    int64_t n = m->width;
    const danaus_tensor *word = find(m, "embeddings.word_embeddings", "weight");
    const danaus_tensor *place = find(m, "embeddings.position_embeddings", "weight");
    const danaus_tensor *type = find(m, "embeddings.token_type_embeddings", "weight");
    for (int64_t t = 0; t < length; t++) {
        for (int64_t i = 0; i < n; i++) {
            double w = named_at(word, ids[t] * n + i), p = named_at(place, t * n + i);
            h[t * n + i] = noisy(w + p + named_at(type, i), 3, 2, noise);
        }
        loops_norm(
            &m->arrays, "embeddings.LayerNorm", n, 1e-12, h + t * n, h + t * n, noise);
    }
}

void m2_rows(
    const small_m2 *m, const int32_t *ids, int64_t length, double *h, rng *noise)
{
    const loops_m2 mixer = { m->width, m->residual, m->bidirectional, &m->filter };
    char place[NAMED_LENGTH];
    begin(m, ids, length, h, noise);
    for (int64_t i = 0; i < m->layers; i++) {
        named_path(place, "encoder.layer.%d.attention.layernorm", (int)i);
        for (int64_t t = 0; t < length && m->normed; t++)
            loops_norm(
                &m->arrays, place, m->width, 1e-5, h + t * m->width, h + t * m->width,
                noise);
        named_path(place, "encoder.layer.%d.attention", (int)i);
        loops_m2_mix(&m->arrays, place, &mixer, length, h, noise);
        named_path(place, "encoder.layer.%d.mlp", (int)i);
        for (int64_t t = 0; t < length; t++)
            run_mlp(m, place, h + t * m->width, noise);
    }
}

void m2_pool(const small_m2 *m, const double *h, int64_t length, double *y, rng *noise)
{
    int64_t n = m->width, rows = m->pooler && !m->all ? 1 : length;
    double pooled[M2_MOST_WIDTH] = { 0 }, square = 0;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, size = 0;
        for (int64_t t = 0; t < rows; t++) {
            sum += h[t * n + i] / (double)rows;
            size += fabs(h[t * n + i]) / (double)rows;
        }
        pooled[i] = noisy(sum, size, (double)rows, noise);
        square += pooled[i] * pooled[i];
    }
    if (m->pooler) {
        loops_linear(&m->arrays, "pooler.dense", n, n, pooled, y, noise);
        for (int64_t i = 0; i < n; i++)
            y[i] = noisy(tanh(y[i]), 1, 1, noise);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        y[i] = pooled[i] / fmax(sqrt(square), 1e-12);
        y[i] = noisy(y[i], fabs(y[i]), (double)n, noise);
    }
}

void m2_scores(const small_m2 *m, const double *row, double *scores, rng *noise)
{
    const danaus_tensor *word = find(m, "embeddings.word_embeddings", "weight");
    head_scores(&m->arrays, word, DANAUS_GELU, row, scores, noise);
}
