/* Small HyenaViTs and M2-ViTs: making, writing, and plain loops. */
// SPDX-License-Identifier: Apache-2.0
#include "support/mixer_vit.h"
#include "support/files.h"
#include "support/loops.h"
#include "support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

static void add_pair(
    rng *r, small_mixer_vit *m, const char *place, int ndim, const int64_t *shape,
    double middle, double size)
{
    char path[NAMED_LENGTH];
    named_path(path, "%s.weight", place);
    named_add_random(r, &m->arrays, ndim, shape, middle, size, path);
    named_path(path, "%s.bias", place);
    named_add_random(r, &m->arrays, 1, shape, 0, 0.3, path);
}

static void add_linear(
    rng *r, small_mixer_vit *m, int64_t block, const char *part, int64_t rows,
    int64_t cols)
{
    char place[NAMED_LENGTH];
    named_path(place, "blocks.%d.%s", (int)block, part);
    add_pair(
        r, m, place, 2, (const int64_t[]){ rows, cols }, 0, 1.5 / sqrt((double)cols));
}

static void add_filter(rng *r, small_mixer_vit *m, int64_t block, const char *part)
{
    char place[NAMED_LENGTH];
    named_path(place, "blocks.%d.mixer.%s", (int)block, part);
    filter_add_random(r, &m->arrays, place, &m->filter, m->bidirectional, 0);
}

static void add_taps(
    rng *r, small_mixer_vit *m, int64_t block, int64_t channels, int64_t taps)
{
    char place[NAMED_LENGTH];
    named_path(place, "blocks.%d.mixer.short_filter", (int)block);
    add_pair(r, m, place, 3, (const int64_t[]){ channels, 1, taps }, 0, 0.7);
}

static void add_hyena(rng *r, small_mixer_vit *m, int64_t block)
{
    int64_t planes = (m->order + 1) * m->width;
    add_linear(r, m, block, "mixer.in_proj", planes, m->width);
    add_linear(r, m, block, "mixer.out_proj", m->width, m->width);
    add_taps(r, m, block, planes, m->taps);
    add_filter(r, m, block, "filter_fn");
    add_linear(r, m, block, "mlp.fc1", m->inner, m->width);
    add_linear(r, m, block, "mlp.fc2", m->width, m->inner);
}

/* Weights of g blocks, without a bias. */
static void add_blocks(
    rng *r, small_mixer_vit *m, const char *path, int64_t rows, int64_t cols)
{
    int64_t g = m->mlp_blocks;
    double size = 1.5 / sqrt((double)cols);
    if (g)
        named_add_random(
            r, &m->arrays, 3, (const int64_t[]){ g, rows / g, cols / g }, 0, size,
            path);
    else
        named_add_random(
            r, &m->arrays, 2, (const int64_t[]){ rows, cols }, 0, size, path);
}

static void add_m2(rng *r, small_mixer_vit *m, int64_t block)
{
    char path[NAMED_LENGTH];
    add_linear(r, m, block, "mixer.in_linear", 3 * m->width, m->width);
    add_linear(r, m, block, "mixer.out_linear", m->width, m->width);
    add_taps(r, m, block, 3 * m->width, 3);
    add_filter(r, m, block, "filter_fn");
    if (m->residual)
        add_filter(r, m, block, "filter_fn2");
    named_path(path, "blocks.%d.mlp.gated_layers.weight", (int)block);
    add_blocks(r, m, path, m->inner * (m->gated ? 2 : 1), m->width);
    named_path(path, "blocks.%d.mlp.wo.weight", (int)block);
    add_blocks(r, m, path, m->width, m->inner);
    named_path(path, "blocks.%d.mlp.wo.bias", (int)block);
    named_add_random(r, &m->arrays, 1, &m->width, 0, 0.3, path);
}

static void add_all(rng *r, small_mixer_vit *m)
{
    static const char *const norms[] = { "norm1", "norm2" };
    char place[NAMED_LENGTH];
    add_pair(
        r, m, "patch_embed.proj", 4,
        (const int64_t[]){ m->width, m->channels, m->patch, m->patch }, 0,
        1.5 / sqrt((double)(m->channels * m->patch * m->patch)));
    for (int64_t i = 0; i < m->layers; i++) {
        for (int n = 0; n < 2; n++) {
            named_path(place, "blocks.%d.%s", (int)i, norms[n]);
            add_pair(r, m, place, 1, &m->width, 1, 0.5);
        }
        (m->m2 ? add_m2 : add_hyena)(r, m, i);
    }
    add_pair(r, m, "norm", 1, &m->width, 1, 0.5);
    if (m->classes)
        add_pair(r, m, "head", 2, (const int64_t[]){ m->classes, m->width }, 0, 1);
}

static small_mixer_vit make(
    rng *r, int m2, int64_t layers, int64_t across, int64_t most_width, int64_t classes)
{
    small_mixer_vit m = { .m2 = m2, .layers = layers, .classes = classes };
    m.channels = rng_int(r, 1, 3);
    m.patch = rng_int(r, 1, 4);
    m.size = across * m.patch + rng_int(r, 0, m.patch - 1);
    m.patches = across * across;
    m.mlp_blocks = m2 ? rng_int(r, 0, 3) : 0;
    int64_t g = m.mlp_blocks ? m.mlp_blocks : 1;
    m.width = g * rng_int(r, 1, most_width / g);
    m.inner = g * rng_int(r, 1, 36 / g);
    m.relu = (int)rng_int(r, 0, 1);
    m.order = m2 ? 2 : rng_int(r, 2, 4);
    m.taps = m2 ? 3 : rng_int(r, 1, 5);
    m.residual = m2 && rng_int(r, 0, 1);
    m.bidirectional = m2 && rng_int(r, 0, 1);
    m.gated = m2 && rng_int(r, 0, 1);
    m.epsilon = rng_int(r, 0, 1) ? 1e-6 : 1e-2;
    m.filter = (small_filter){ .length = m.patches,
                               .channels = (m.order - 1) * m.width,
                               .features = 1 + 2 * rng_int(r, 1, 3),
                               .order = rng_int(r, 1, 16),
                               .layers = m2 ? 4 : (int)rng_int(r, 2, 4),
                               .factor = rng_int(r, 0, 1) ? 1 : 0.75,
                               .shift = m2 || rng_int(r, 0, 1) ? 0 : 0.25 };
    if (!m2 && rng_int(r, 0, 1))
        m.filter.taps = rng_int(r, 1, m.patches);
    add_all(r, &m);
    return m;
}

small_mixer_vit mixer_vit_random(rng *r, int m2)
{
    int64_t layers = rng_int(r, 1, 3), across = rng_int(r, 1, 6);
    return make(r, m2, layers, across, 20, rng_int(r, 0, 7));
}

small_mixer_vit mixer_vit_of(rng *r, int m2, int64_t across)
{
    return make(r, m2, 1, across, 6, rng_int(r, 2, 7));
}

void mixer_vit_free(small_mixer_vit *m) { named_free(&m->arrays); }

/* ---- writing ---- */

static void write_filter(const small_mixer_vit *m, char *to, size_t size)
{
    const small_filter *f = &m->filter;
    if (m->m2)
        snprintf(
            to, size,
            "\"hyena_filter_order\": %" PRId64 ", \"hyena_emb_dim\": %" PRId64
            ", \"hyena_w_mod\": %g, \"bidirectional\": %s, \"residual_long_conv\": %s, "
            "\"use_glu_mlp\": %s, \"use_monarch_mlp\": %s, \"monarch_mlp_nblocks\": "
            "%" PRId64,
            f->order, f->features, f->factor, m->bidirectional ? "true" : "false",
            m->residual ? "true" : "false", m->gated ? "true" : "false",
            m->mlp_blocks ? "true" : "false", m->mlp_blocks ? m->mlp_blocks : 4);
    else
        snprintf(
            to, size,
            "\"filter_order\": %" PRId64 ", \"emb_dim\": %" PRId64
            ", \"filter_w_mod\": %g, \"filter_shift\": %g, \"num_inner_mlps\": %d, "
            "\"hyena_order\": %" PRId64 ", \"short_filter_order\": %" PRId64
            ", \"filter_taps\": %" PRId64,
            f->order, f->features, f->factor, f->shift, f->layers - 2, m->order,
            m->taps, f->taps ? f->taps : f->length);
}

void mixer_vit_config(const small_mixer_vit *m, char *config, size_t size)
{
    char filter[500];
    write_filter(m, filter, sizeof filter);
    snprintf(
        config, size,
        "{\"model_type\": \"%s\", \"hidden_size\": %" PRId64 ", \"num_hidden_layers\": "
        "%" PRId64 ", \"intermediate_size\": %" PRId64 ", \"image_size\": %" PRId64
        ", \"patch_size\": %" PRId64 ", \"num_channels\": %" PRId64
        ", \"hidden_act\": \"%s\", \"layer_norm_eps\": %g, %s}",
        m->m2 ? "m2_vit" : "hyena_vit", m->width, m->layers, m->inner, m->size,
        m->patch, m->channels, m->relu ? "relu" : "gelu", m->epsilon, filter);
}

void mixer_vit_write(const small_mixer_vit *m)
{
    char config[1000];
    mixer_vit_config(m, config, sizeof config);
    file_write(scratch_path("config.json"), config, strlen(config));
    named_write(&m->arrays, scratch_path("model.safetensors"));
}

danaus_model *mixer_vit_load(const small_mixer_vit *m, danaus_device *device)
{
    danaus_model *model = NULL;
    mixer_vit_write(m);
    assert_ok(danaus_model_load(device, scratch_directory(), &model));
    return model;
}

/* ---- plain loops ---- */

int64_t mixer_vit_image(const small_mixer_vit *m)
{
    return m->channels * m->size * m->size;
}

/* Row t is W x + bias of patch t, and in M2-ViT its position. */
static void begin(const small_mixer_vit *m, const float *pixels, double *h, rng *noise)
{
    int64_t across = m->size / m->patch, p = m->patch;
    double square[64];
    assert_true(m->channels * p * p <= 64);
    for (int64_t t = 0; t < m->patches; t++) {
        for (int64_t c = 0; c < m->channels; c++)
            for (int64_t i = 0; i < p; i++)
                for (int64_t j = 0; j < p; j++) {
                    int64_t y = t / across * p + i, x = t % across * p + j;
                    square[(c * p + i) * p + j] =
                        pixels[(c * m->size + y) * m->size + x];
                }
        double *row = h + t * m->width;
        loops_linear(
            &m->arrays, "patch_embed.proj", m->width, m->channels * p * p, square, row,
            noise);
        for (int64_t i = 0; m->m2 && i < m->width; i++) {
            double angle =
                (double)t * pow(1e4, -(double)(i / 2 * 2) / (double)m->width);
            double place = i % 2 ? cos(angle) : sin(angle);
            row[i] = noisy(row[i] + place, fabs(row[i]) + fabs(place), 2, noise);
        }
    }
}

static void mix_hyena(const small_mixer_vit *m, int64_t block, double *u, rng *noise)
{
    char place[NAMED_LENGTH], path[NAMED_LENGTH];
    int64_t n = m->width, length = m->patches, planes = (m->order + 1) * n;
    double *p = calloc((size_t)(2 * planes * length), sizeof *p);
    double *c = p + planes * length;
    double *k = calloc((size_t)(m->filter.channels * length), sizeof *k);
    assert_true(p && k);
    named_path(place, "blocks.%d.mixer.in_proj", (int)block);
    for (int64_t t = 0; t < length; t++)
        loops_linear(&m->arrays, place, planes, n, u + t * n, p + t * planes, noise);
    named_path(place, "blocks.%d.mixer.short_filter", (int)block);
    loops_taps(&m->arrays, place, planes, m->taps, length, p, c, noise);
    named_path(place, "blocks.%d.mixer.filter_fn", (int)block);
    filter_values(&m->arrays, place, &m->filter, 0, k, noise);
    named_path(path, "%s.bias", place);
    const loops_filters f = { length, k, named_find(&m->arrays, path) };
    loops_gates(n, m->order, &f, length, c, noise);
    named_path(place, "blocks.%d.mixer.out_proj", (int)block);
    for (int64_t t = 0; t < length; t++) {
        double row[MIXER_VIT_MOST];
        for (int64_t i = 0; i < n; i++)
            row[i] = c[(m->order * n + i) * length + t];
        loops_linear(&m->arrays, place, n, n, row, u + t * n, noise);
    }
    free(p);
    free(k);
}

static void mix(const small_mixer_vit *m, int64_t block, double *u, rng *noise)
{
    const loops_m2 mixer = { m->width, m->residual, m->bidirectional, &m->filter };
    char place[NAMED_LENGTH];
    named_path(place, "blocks.%d.mixer", (int)block);
    if (m->m2)
        loops_m2_mix(&m->arrays, place, &mixer, m->patches, u, noise);
    else
        mix_hyena(m, block, u, noise);
}

/* u becomes mlp(u). */
static void run_mlp(const small_mixer_vit *m, int64_t block, double *u, rng *noise)
{
    char place[NAMED_LENGTH];
    double q[2 * MIXER_VIT_MOST];
    assert_true(m->inner <= MIXER_VIT_MOST && m->width <= MIXER_VIT_MOST);
    named_path(place, "blocks.%d.mlp.%s", (int)block, m->m2 ? "gated_layers" : "fc1");
    loops_linear(
        &m->arrays, place, m->inner * (m->gated ? 2 : 1), m->width, u, q, noise);
    for (int64_t i = 0; i < m->inner; i++) {
        double v = m->relu ? fmax(q[i], 0) : q[i] / 2 * erfc(-q[i] / sqrt(2));
        v *= m->gated ? q[m->inner + i] : 1;
        q[i] = noisy(v, fabs(v), 5, noise);
    }
    named_path(place, "blocks.%d.mlp.%s", (int)block, m->m2 ? "wo" : "fc2");
    loops_linear(&m->arrays, place, m->width, m->inner, q, u, noise);
}

static void run_block(const small_mixer_vit *m, int64_t block, double *h, rng *noise)
{
    char place[NAMED_LENGTH];
    int64_t n = m->width, size = m->patches * n;
    double *u = calloc((size_t)size, sizeof *u), row[MIXER_VIT_MOST];
    assert_non_null(u);
    named_path(place, "blocks.%d.norm1", (int)block);
    for (int64_t t = 0; t < m->patches; t++)
        loops_norm(&m->arrays, place, n, m->epsilon, h + t * n, u + t * n, noise);
    mix(m, block, u, noise);
    loops_add(size, h, u, noise);
    named_path(place, "blocks.%d.norm2", (int)block);
    for (int64_t t = 0; t < m->patches; t++) {
        loops_norm(&m->arrays, place, n, m->epsilon, h + t * n, row, noise);
        run_mlp(m, block, row, noise);
        loops_add(n, h + t * n, row, noise);
    }
    free(u);
}

void mixer_vit_embed(
    const small_mixer_vit *m, const float *pixels, double *embedding, rng *noise)
{
    int64_t n = m->width;
    double *h = calloc((size_t)(m->patches * n), sizeof *h);
    assert_non_null(h);
    begin(m, pixels, h, noise);
    for (int64_t i = 0; i < m->layers; i++)
        run_block(m, i, h, noise);
    for (int64_t t = 0; t < m->patches; t++)
        loops_norm(&m->arrays, "norm", n, m->epsilon, h + t * n, h + t * n, noise);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, size = 0;
        for (int64_t t = 0; t < m->patches; t++) {
            sum += h[t * n + i] / (double)m->patches;
            size += fabs(h[t * n + i]) / (double)m->patches;
        }
        embedding[i] = noisy(sum, size, (double)m->patches, noise);
    }
    free(h);
}

void mixer_vit_scores(
    const small_mixer_vit *m, const double *embedding, double *scores, rng *noise)
{
    loops_linear(&m->arrays, "head", m->classes, m->width, embedding, scores, noise);
}
