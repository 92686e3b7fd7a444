/* Monarch Mixer BERT: the authors' numbers, and small random models against plain loops: rows of
   any length, together or alone, and what does not fit is refused. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/files.h"
#include "support/m2_bert.h"
#include "support/scenes.h"

#include "device/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Errors against what noise moves in four runs. */
#define BOUND 8

static danaus_device *device;

/* ---- numbers of the authors' code, in f64 ---- */

typedef struct vector {
    int normed;
    int64_t length;
    double row[8], scores[8],
        pooled[8]; /* row 0, row 3's scores; pooled[0] 0: unknown */
} vector;

static const vector vectors[] = {
    { 0,
      12,
      { 1.1296008311, -0.2652007949, -0.0284257490, 0.4572249334, -1.3569438626,
        -0.0853475862, -1.0967773956, -0.3501439762 },
      { 0.0751654358, 1.2834635939, -0.1707669507, 0.6410393235, -0.5571873627,
        -0.1396305717, -0.8099900365, -0.7338607459 },
      { 0.8560331275, -0.9590317227, 0.2027474808, -0.8759776490, -0.5356855543,
        -0.2835743404, -0.7755713404, 0.7775421150 } },
    { 0,
      9,
      { 1.6654146981, -1.0222376567, 0.4186825294, -0.0065373770, -1.2003589954,
        -0.1406467839, -1.0521082172, -0.3417424089 },
      { 0.1270743156, 1.2170763782, -0.0920845675, 0.5526492724, -0.4619963836,
        -0.2384920878, -0.7107090813, -0.8302962489 },
      { 0 } },
    { 1,
      12,
      { -3.0656989991, 2.5645808357, -0.1687228267, 0.9917975780, -0.8069365855,
        -0.2897368447, -0.4642960454, -0.7642792188 },
      { -0.0435599815, 1.1022234480, 0.3044786083, -0.1125830208, 0.4500286142,
        -1.3673175072, 0.5977949136, -2.2754481762 },
      { 0.0953071228, -0.7827770605, -0.3320405188, -0.8197622719, -0.4177483390,
        -0.6611738835, -0.1946565751, -0.1036203223 } },
};

static void vector_ids(int32_t ids[12])
{
    for (int t = 0; t < 12; t++)
        ids[t] = (7 * t + 3) % 16;
}

static void expect_eight(
    const char *what, const double *found, const double *wanted, double bound)
{
    for (int i = 0; i < 8; i++)
        if (!(fabs(found[i] - wanted[i]) <= bound))
            fail_msg("%s: number %d is %.12g, not %.12g", what, i, found[i], wanted[i]);
}

/* Ten digits are given. */
static void plain_loops_are_the_authors(void **state)
{
    (void)state;
    int32_t ids[12];
    double h[12 * 8], scores[16], pooled[8];
    vector_ids(ids);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const vector *v = &vectors[i];
        small_m2 m = m2_of_vectors(v->normed);
        m2_rows(&m, ids, v->length, h, NULL);
        m2_scores(&m, h + 3 * 8, scores, NULL);
        m2_pool(&m, h, v->length, pooled, NULL);
        expect_eight("row 0", h, v->row, 5.1e-11);
        expect_eight("scores", scores, v->scores, 5.1e-11);
        if (v->pooled[0] != 0)
            expect_eight("pooled", pooled, v->pooled, 5.1e-11);
        m2_free(&m);
    }
}

static void widen(const float *from, double *to)
{
    for (int i = 0; i < 8; i++)
        to[i] = from[i];
}

static void expect_vector(danaus_model *model, const vector *v)
{
    const int64_t offsets[] = { 0, v->length }, place = 3;
    int32_t ids[12];
    float y[16];
    double found[8];
    vector_ids(ids);
    assert_ok(danaus_model_fill(model, device, v->length, ids, 1, &place, y));
    widen(y, found);
    expect_eight("scores", found, v->scores, 1e-5);
    assert_ok(danaus_model_embed(model, device, 1, offsets, ids, y));
    widen(y, found);
    if (v->pooled[0] != 0)
        expect_eight("pooled", found, v->pooled, 1e-5);
}

static void models_are_the_authors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        small_m2 m = m2_of_vectors(vectors[i].normed);
        danaus_model *model = m2_load(&m, device);
        expect_vector(model, &vectors[i]);
        danaus_model_destroy(model);
        m2_free(&m);
    }
}

/* ---- random models ---- */

/* What plain loops make of a sequence: embeds it, or scores the words of a row. */
static void run_plain(
    const small_m2 *m, const int32_t *ids, int64_t length, int64_t place, double *y,
    rng *noise)
{
    double *h = calloc((size_t)(length * m->width), sizeof *h);
    m2_rows(m, ids, length, h, noise);
    if (place < 0)
        m2_pool(m, h, length, y, noise);
    else
        m2_scores(m, h + place * m->width, y, noise);
    free(h);
}

static void expect_plain(
    const small_m2 *m, const int32_t *ids, int64_t length, int64_t place,
    const float *found)
{
    double wanted[M2_MOST_WIDTH], other[M2_MOST_WIDTH], moved = 0;
    int64_t count = place < 0 ? m->width : m->vocabulary;
    run_plain(m, ids, length, place, wanted, NULL);
    for (uint64_t run = 0; run < 4; run++) {
        rng noise = { run };
        run_plain(m, ids, length, place, other, &noise);
        for (int64_t i = 0; i < count; i++)
            moved = fmax(moved, fabs(other[i] - wanted[i]));
    }
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(found[i] - wanted[i]) <= BOUND * moved + 1e-30))
            fail_msg(
                "width %d, %d of %d tokens, place %d: number %d is %.9g, not %.9g; %g "
                "is "
                "allowed",
                (int)m->width, (int)length, (int)m->length, (int)place, (int)i,
                found[i], wanted[i], BOUND * moved);
}

static void rows_are_those_of_plain_loops(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(50); round++) {
        rng r = { (uint64_t)round };
        small_m2 m = m2_random(&r);
        danaus_model *model = m2_load(&m, device);
        texts t = texts_random(&r, rng_int(&r, 1, 4), m.length, m.vocabulary);
        float *found = texts_embed(model, device, &t, m.width);
        for (int64_t i = 0; i < t.count; i++)
            expect_plain(
                &m, t.ids + t.offsets[i], t.offsets[i + 1] - t.offsets[i], -1,
                found + i * m.width);
        if (m.head) {
            float scores[M2_MOST_WIDTH];
            int64_t place = rng_int(&r, 0, t.offsets[1] - 1);
            assert_ok(danaus_model_fill(
                model, device, t.offsets[1], t.ids, 1, &place, scores));
            expect_plain(&m, t.ids, t.offsets[1], place, scores);
        }
        free(found);
        texts_free(&t);
        danaus_model_destroy(model);
        m2_free(&m);
    }
}

/* A long one, whose rows go through linear layers in parts, and others beside it. */
static void long_sequences_are_as_short_ones(void **state)
{
    (void)state;
    rng r = { 2 };
    small_m2 m = m2_long(&r, 1500);
    danaus_model *model = m2_load(&m, device);
    int64_t offsets[] = { 0, 700, 2199, 2202, 3300 };
    int32_t *ids = calloc(3300, sizeof *ids);
    for (int i = 0; i < 3300; i++)
        ids[i] = (int32_t)rng_int(&r, 0, m.vocabulary - 1);
    texts t = { 4, offsets, ids };
    float *found = texts_embed(model, device, &t, m.width);
    for (int64_t i = 0; i < t.count; i++)
        expect_plain(
            &m, ids + offsets[i], offsets[i + 1] - offsets[i], -1, found + i * m.width);
    free(found);
    free(ids);
    danaus_model_destroy(model);
    m2_free(&m);
}

static void threads_do_not_change_embeddings(void **state)
{
    (void)state;
    need_threads(device);
    rng r = { 11 };
    small_m2 m = m2_random(&r);
    danaus_model *model = m2_load(&m, device);
    texts t = texts_random(&r, 30, m.length, m.vocabulary);
    expect_threads_to_agree(model, device, &t, m.width);
    texts_free(&t);
    danaus_model_destroy(model);
    m2_free(&m);
}

static void outlines_say_what_models_do(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        rng r = { (uint64_t)round };
        small_m2 m = m2_random(&r);
        danaus_model *model = m2_load(&m, device);
        expect_outline(model, device);
        danaus_model_destroy(model);
        m2_free(&m);
    }
}

/* Rows and channels of f16 and bf16. */
static void rows_may_have_sixteen_bits(void **state)
{
    (void)state;
    need_sixteen_bits(device);
    for (int round = 0; round < rounds_of(20); round++) {
        rng r = { 900 + (uint64_t)round };
        small_m2 m = m2_random(&r);
        m2_write(&m);
        danaus_model *model = sixteen_bits_load(device, round);
        texts t = texts_random(&r, 3, m.length, m.vocabulary);
        float *found = texts_embed(model, device, &t, m.width);
        for (int64_t i = 0; i < t.count; i++)
            expect_plain(
                &m, t.ids + t.offsets[i], t.offsets[i + 1] - t.offsets[i], -1,
                found + i * m.width);
        expect_outline(model, device);
        free(found);
        texts_free(&t);
        sixteen_bits_close(model);
        m2_free(&m);
    }
}

/* ---- what is refused ---- */

static void what_does_not_fit_is_named_at_once(void **state)
{
    (void)state;
    small_m2 m = m2_of_vectors(1);
    named_drop(&m.arrays, "encoder.layer.1.attention.filter_fn2.pos_emb.z");
    named_drop(&m.arrays, "encoder.layer.0.mlp.wo.bias");
    named_drop(&m.arrays, "encoder.layer.1.attention.short_filter.weight");
    named_add(
        &m.arrays, 3, (const int64_t[]){ 24, 1, 4 },
        "encoder.layer.1.attention.short_filter.weight");
    named_add(&m.arrays, 0, NULL, "encoder.layer.0.attention.filter_fn3.bias");
    m2_write(&m);
    expect_refusal(device, DANAUS_ERR_FORMAT, "4 tensors do not fit");
    expect_refusal(device, DANAUS_ERR_FORMAT, "filter_fn2.pos_emb.z is missing");
    expect_refusal(device, DANAUS_ERR_FORMAT, "mlp.wo.bias is missing, of shape [8]");
    expect_refusal(
        device, DANAUS_ERR_FORMAT, "short_filter.weight is [24, 1, 4], not [24, 1, 3]");
    expect_refusal(device, DANAUS_ERR_FORMAT, "filter_fn3.bias has no place");
    m2_free(&m);
}

static void configurations_have_to_be_the_weights(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\": \"m2_bert\", \"hidden_size\": 8, \"intermediate_size\": 16, "
        "\"num_hidden_layers\": 2, \"vocab_size\": 16, \"max_position_embeddings\": "
        "12, "
        "\"bidirectional\": false, \"residual_long_conv\": false}";
    small_m2 m = m2_of_vectors(0);
    m2_write(&m);
    file_write(scratch_path("config.json"), config, strlen(config));
    expect_refusal(device, DANAUS_ERR_FORMAT, "says that bidirectional is false");
    expect_refusal(device, DANAUS_ERR_FORMAT, "says that residual_long_conv is false");
    m2_free(&m);
}

static void tokens_and_places_are_checked(void **state)
{
    (void)state;
    small_m2 m = m2_of_vectors(0);
    danaus_model *model = m2_load(&m, device);
    int32_t ids[13] = { 0 };
    float y[16] = { 0 };
    const int64_t offsets[] = { 0, 13 }, place = 12;
    danaus_model_cost cost = { .kept = 5 };
    assert_status(
        danaus_model_embed(model, device, 1, offsets, ids, y), DANAUS_ERR_SHAPE);
    assert_status(
        danaus_model_fill(model, device, 12, ids, 1, &place, y), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_model_fill(model, device, 0, ids, 0, NULL, NULL), DANAUS_ERR_SHAPE);
    assert_ok(danaus_model_fill(model, device, 12, ids, 0, NULL, NULL));
    ids[3] = 16;
    assert_status(
        danaus_model_fill(model, device, 12, ids, 0, NULL, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_model_estimate(model, device, 1, 13, &cost), DANAUS_ERR_SHAPE);
    assert_int_equal(cost.kept, 5);
    for (int i = 0; i < 16; i++)
        assert_true(y[i] == 0);
    danaus_model_destroy(model);
    m2_free(&m);
}

static void costs_are_counted(void **state)
{
    (void)state;
    small_m2 m = m2_of_vectors(0);
    danaus_model *model = m2_load(&m, device);
    danaus_model_cost cost;
    assert_ok(danaus_model_estimate(model, device, 5, 12, &cost));
    /* Weights of two blocks: in and out 4 x 64, up 4 x 8 x 2, down 4 x 2 x 4. */
    assert_true(cost.linear == 2.0 * 5 * 12 * 2 * (4 * 64 + 64 + 32));
    /* Networks of 5 x 4, 4 x 4 twice and 4 x 8; two blocks, two filters, two ways. */
    assert_true(cost.filters == 2.0 * 12 * (20 + 32 + 32) * 8);
    assert_true(cost.memory > 0 && cost.kept > 0 && cost.mixing > 0);
    danaus_model_destroy(model);
    m2_free(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_loops_are_the_authors),
        cmocka_unit_test(models_are_the_authors),
        cmocka_unit_test(rows_are_those_of_plain_loops),
        cmocka_unit_test(long_sequences_are_as_short_ones),
        cmocka_unit_test(threads_do_not_change_embeddings),
        cmocka_unit_test(outlines_say_what_models_do),
        cmocka_unit_test(rows_may_have_sixteen_bits),
        cmocka_unit_test(what_does_not_fit_is_named_at_once),
        cmocka_unit_test(configurations_have_to_be_the_weights),
        cmocka_unit_test(tokens_and_places_are_checked),
        cmocka_unit_test(costs_are_counted),
    };
    device = device_from_arguments(argc, argv);
    int failed = cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
    danaus_device_close(device);
    return failed;
}
