/* Small HyenaViTs and M2-ViTs: embeddings and scores are those of plain loops, however many
   images run together; and inputs that do not fit are refused. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/files.h"
#include "support/mixer_vit.h"
#include "support/scenes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BOUND 8
/* Runs of the plain loops with noise. */
#define RUNS 4

static danaus_device *device;

static float *random_images(rng *r, const small_mixer_vit *m, int64_t images)
{
    int64_t count = images * mixer_vit_image(m);
    float *pixels = calloc((size_t)count, sizeof *pixels);
    assert_non_null(pixels);
    for (int64_t i = 0; i < count; i++)
        pixels[i] = (float)rng_sign(r);
    return pixels;
}

/* What plain loops say of an image, and how far noise moves it. */
typedef struct plain {
    double embedding[MIXER_VIT_MOST], scores[MIXER_VIT_MOST];
    double embedding_moves, scores_move;
} plain;

static void run_plain(
    const small_mixer_vit *m, const float *pixels, plain *p, rng *noise)
{
    mixer_vit_embed(m, pixels, p->embedding, noise);
    if (m->classes)
        mixer_vit_scores(m, p->embedding, p->scores, noise);
}

static double farthest(const double *x, const double *y, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i] - y[i]));
    return most;
}

static plain plain_of(const small_mixer_vit *m, const float *pixels)
{
    plain p = { .embedding_moves = 0 }, near;
    run_plain(m, pixels, &p, NULL);
    for (uint64_t run = 0; run < RUNS; run++) {
        rng noise = { run };
        run_plain(m, pixels, &near, &noise);
        p.embedding_moves =
            fmax(p.embedding_moves, farthest(p.embedding, near.embedding, m->width));
        p.scores_move =
            fmax(p.scores_move, farthest(p.scores, near.scores, m->classes));
    }
    return p;
}

static void expect_close(
    const char *what, int64_t n, const float *is, const double *wanted, double moved)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(is[i] - wanted[i]) <= BOUND * moved + 1e-30))
            fail_msg(
                "%s %d is %.9g, not %.9g; %g is allowed", what, (int)i, is[i],
                wanted[i], BOUND * moved);
}

/* Images through a model: nothing is written behind what is found. */
static void expect_images(
    danaus_model *model, const small_mixer_vit *m, int64_t images, const float *pixels)
{
    int64_t n = images * m->width, k = images * m->classes;
    float *embeddings = calloc((size_t)(n + k + 2), sizeof *embeddings);
    float *scores = embeddings + n + 1;
    assert_non_null(embeddings);
    embeddings[n] = scores[k] = 17;
    assert_ok(danaus_model_embed_images(model, device, images, pixels, embeddings));
    if (m->classes)
        assert_ok(danaus_model_classify(model, device, images, pixels, scores));
    assert_true(embeddings[n] == 17 && scores[k] == 17);
    for (int64_t i = 0; i < images; i++) {
        plain p = plain_of(m, pixels + i * mixer_vit_image(m));
        expect_close(
            "number", m->width, embeddings + i * m->width, p.embedding,
            p.embedding_moves);
        expect_close(
            "score", m->classes, scores + i * m->classes, p.scores, p.scores_move);
    }
    free(embeddings);
}

static void scores_are_those_of_plain_loops(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        small_mixer_vit m = mixer_vit_random(&r, round % 2);
        int64_t images = rng_int(&r, 1, 5);
        danaus_model *model = mixer_vit_load(&m, device);
        float *pixels = random_images(&r, &m, images);
        expect_images(model, &m, images, pixels);
        danaus_model_destroy(model);
        mixer_vit_free(&m);
        free(pixels);
    }
}

/* More than go through together. */
static void many_images_are_as_few(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        rng r = { 200 + (uint64_t)round };
        int64_t across = round < 2 ? 6 : 4, images = 2 * 1024 / (across * across) + 3;
        small_mixer_vit m = mixer_vit_of(&r, round % 2, across);
        danaus_model *model = mixer_vit_load(&m, device);
        float *pixels = random_images(&r, &m, images);
        expect_images(model, &m, images, pixels);
        danaus_model_destroy(model);
        mixer_vit_free(&m);
        free(pixels);
    }
}

/* An image of more patches than go through linear layers together. */
static void large_images_are_as_small_ones(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        rng r = { 300 + (uint64_t)round };
        small_mixer_vit m = mixer_vit_of(&r, round % 2, round < 2 ? 17 : 33);
        danaus_model *model = mixer_vit_load(&m, device);
        float *pixels = random_images(&r, &m, 2);
        expect_images(model, &m, 2, pixels);
        danaus_model_destroy(model);
        mixer_vit_free(&m);
        free(pixels);
    }
}

static void threads_do_not_change_scores(void **state)
{
    (void)state;
    need_threads(device);
    for (int round = 0; round < 4; round++) {
        rng r = { 400 + (uint64_t)round };
        small_mixer_vit m = mixer_vit_of(&r, round % 2, 12);
        danaus_model *model = mixer_vit_load(&m, device);
        float *pixels = random_images(&r, &m, 9), found[3][9 * MIXER_VIT_MOST];
        for (int threads = 1; threads <= 3; threads++) {
            float *to = found[threads - 1];
            assert_ok(danaus_device_set_threads(device, threads));
            assert_ok(danaus_model_embed_images(model, device, 9, pixels, to));
            assert_memory_equal(to, found[0], (size_t)(9 * m.width) * sizeof *to);
        }
        assert_ok(danaus_device_set_threads(device, 0));
        danaus_model_destroy(model);
        mixer_vit_free(&m);
        free(pixels);
    }
}

static void outlines_say_what_models_do(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        rng r = { (uint64_t)round };
        small_mixer_vit m = mixer_vit_random(&r, round % 2);
        danaus_model *model = mixer_vit_load(&m, device);
        expect_outline(model, device);
        danaus_model_destroy(model);
        mixer_vit_free(&m);
    }
}

static void rows_may_have_sixteen_bits(void **state)
{
    (void)state;
    need_sixteen_bits(device);
    for (int round = 0; round < rounds_of(20); round++) {
        rng r = { 900 + (uint64_t)round };
        small_mixer_vit m = mixer_vit_random(&r, round / 2 % 2);
        mixer_vit_write(&m);
        danaus_model *model = sixteen_bits_load(device, round);
        float *pixels = random_images(&r, &m, 3);
        expect_images(model, &m, 3, pixels);
        expect_outline(model, device);
        free(pixels);
        sixteen_bits_close(model);
        mixer_vit_free(&m);
    }
}

/* ---- what it says of itself, and what it refuses ---- */

static void costs_are_counted(void **state)
{
    (void)state;
    rng r = { 5 };
    small_mixer_vit m = mixer_vit_of(&r, 1, 2);
    danaus_model *model = mixer_vit_load(&m, device);
    danaus_model_info info;
    danaus_model_cost cost;
    int64_t numbers = 0, n = m.width, f = m.filter.order;
    for (int i = 0; i < m.arrays.count; i++) {
        const danaus_tensor *t = &m.arrays.tensor[i];
        int64_t count = 1;
        for (int d = 0; d < t->ndim; d++)
            count *= t->shape[d];
        if (strstr(m.arrays.name[i], "pos_emb.t") ||
            strstr(m.arrays.name[i], "deltas") ||
            (strstr(m.arrays.name[i], "freq") &&
             !strstr(m.arrays.name[i], "implicit_filter.1.freq")))
            continue;
        numbers += count;
    }
    assert_ok(danaus_model_describe(model, &info));
    assert_string_equal(info.architecture, "m2-vit");
    assert_int_equal(info.parameters, numbers);
    assert_int_equal(info.layers, m.layers);
    assert_int_equal(info.image_size, m.size);
    assert_int_equal(info.classes, m.classes);
    assert_ok(danaus_model_estimate(model, device, 5, 0, &cost));
    /* The mixers' layers, and MLPs whose layers have m.mlp_blocks blocks or are dense. */
    int64_t g = m.mlp_blocks ? m.mlp_blocks : 1;
    int64_t mlp = n * m.inner * (m.gated ? 3 : 2) / g;
    double rows = 5 * (double)m.patches,
           square = (double)(m.channels * m.patch * m.patch);
    assert_true(
        cost.linear == 2 * (rows * (double)m.layers * (double)(4 * n * n + mlp) +
                            rows * square * (double)n + 5 * (double)(n * m.classes)));
    int64_t network = m.filter.features * f + 2 * f * f + f * n;
    assert_true(
        cost.filters == 2 * (double)(network * m.patches * m.layers) *
                            (m.bidirectional ? 2 : 1) * (m.residual ? 2 : 1));
    assert_true(cost.memory > 0 && cost.kept > 0 && cost.mixing > 0);
    danaus_model_destroy(model);
    mixer_vit_free(&m);
}

static void what_does_not_fit_is_named_at_once(void **state)
{
    (void)state;
    rng r = { 6 };
    small_mixer_vit m = mixer_vit_of(&r, 1, 3);
    int64_t wide[] = { m.width + 1, m.channels, m.patch, m.patch };
    named_drop(&m.arrays, "blocks.0.mixer.filter_fn.pos_emb.z");
    named_drop(&m.arrays, "blocks.0.norm2.bias");
    named_drop(&m.arrays, "patch_embed.proj.weight");
    named_add(&m.arrays, 4, wide, "patch_embed.proj.weight");
    named_add(&m.arrays, 0, NULL, "pos_embed");
    mixer_vit_write(&m);
    expect_refusal(device, DANAUS_ERR_FORMAT, "4 tensors do not fit");
    expect_refusal(device, DANAUS_ERR_FORMAT, "filter_fn.pos_emb.z is missing");
    expect_refusal(device, DANAUS_ERR_FORMAT, "blocks.0.norm2.bias is missing");
    expect_refusal(device, DANAUS_ERR_FORMAT, "patch_embed.proj.weight is [");
    expect_refusal(device, DANAUS_ERR_FORMAT, "pos_embed has no place");
    mixer_vit_free(&m);
}

/* Filters are for so many patches, and for no others. */
static void images_have_the_size_of_the_filters(void **state)
{
    (void)state;
    for (int m2 = 0; m2 < 2; m2++) {
        rng r = { 7 };
        small_mixer_vit m = mixer_vit_of(&r, m2, 3);
        m.size += m.patch;
        mixer_vit_write(&m);
        expect_refusal(device, DANAUS_ERR_FORMAT, "filter_fn.pos_emb.z is [1, 9, ");
        expect_refusal(device, DANAUS_ERR_FORMAT, "not [1, 16, ");
        m.size = m.patch - 1;
        mixer_vit_write(&m);
        expect_refusal(device, DANAUS_ERR_FORMAT, "\"patch_size\" is");
        m.size = (int64_t)1 << 19;
        m.patch = 1;
        mixer_vit_write(&m);
        expect_refusal(device, DANAUS_ERR_FORMAT, "are too many");
        mixer_vit_free(&m);
    }
}

static void configurations_have_to_be_the_weights(void **state)
{
    (void)state;
    rng r = { 8 };
    small_mixer_vit m = mixer_vit_of(&r, 1, 3);
    m.residual = !m.residual;
    m.gated = !m.gated;
    mixer_vit_write(&m);
    expect_refusal(device, DANAUS_ERR_FORMAT, "says that residual_long_conv is");
    expect_refusal(device, DANAUS_ERR_FORMAT, "says that use_glu_mlp is");
    mixer_vit_free(&m);
    m = mixer_vit_of(&r, 0, 3);
    m.order = 1;
    mixer_vit_write(&m);
    expect_refusal(device, DANAUS_ERR_FORMAT, "\"hyena_order\" is 1");
    m.order = 2;
    m.filter.features = 4;
    mixer_vit_write(&m);
    expect_refusal(device, DANAUS_ERR_FORMAT, "\"emb_dim\" is 4");
    mixer_vit_free(&m);
}

/* Only images, and classes only with a head. */
static void other_calls_are_refused(void **state)
{
    (void)state;
    for (int m2 = 0; m2 < 2; m2++) {
        rng r = { 9 };
        small_mixer_vit m = mixer_vit_of(&r, m2, 2);
        named_drop(&m.arrays, "head.weight");
        named_drop(&m.arrays, "head.bias");
        danaus_model *model = mixer_vit_load(&m, device);
        float *pixels = random_images(&r, &m, 1), y = 3;
        const int64_t offsets[] = { 0, 1 };
        const int32_t id = 0;
        assert_status(
            danaus_model_classify(model, device, 1, pixels, &y),
            DANAUS_ERR_UNSUPPORTED);
        assert_status(
            danaus_model_embed(model, device, 1, offsets, &id, &y),
            DANAUS_ERR_UNSUPPORTED);
        assert_status(
            danaus_model_score(model, device, 1, offsets, &id, NULL, NULL, &y),
            DANAUS_ERR_UNSUPPORTED);
        assert_status(
            danaus_model_embed_images(model, device, -1, pixels, &y),
            DANAUS_ERR_ARGUMENT);
        assert_ok(danaus_model_embed_images(model, device, 0, NULL, NULL));
        assert_true(y == 3);
        danaus_model_destroy(model);
        mixer_vit_free(&m);
        free(pixels);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_of_plain_loops),
        cmocka_unit_test(many_images_are_as_few),
        cmocka_unit_test(large_images_are_as_small_ones),
        cmocka_unit_test(threads_do_not_change_scores),
        cmocka_unit_test(outlines_say_what_models_do),
        cmocka_unit_test(rows_may_have_sixteen_bits),
        cmocka_unit_test(costs_are_counted),
        cmocka_unit_test(what_does_not_fit_is_named_at_once),
        cmocka_unit_test(images_have_the_size_of_the_filters),
        cmocka_unit_test(configurations_have_to_be_the_weights),
        cmocka_unit_test(other_calls_are_refused),
    };
    device = device_from_arguments(argc, argv);
    int failed = cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
    danaus_device_close(device);
    return failed;
}
