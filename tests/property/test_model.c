/* Random small encoders: embeddings are those of plain loops, whatever sequences are embedded
   together, with any number of threads; and what does not fit is refused. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/bert.h"
#include "support/device.h"
#include "support/files.h"
#include "support/head.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static danaus_device *device;

/* Random sequences of a model. */
typedef struct texts {
    int64_t count, *offsets;
    int32_t *ids;
} texts;

static texts random_texts(rng *r, const small_bert *m, int64_t most)
{
    texts t = { .count = rng_int(r, 1, most) };
    t.offsets = calloc((size_t)t.count + 1, sizeof *t.offsets);
    for (int64_t i = 0; i < t.count; i++)
        t.offsets[i + 1] = t.offsets[i] + rng_int(r, 1, m->positions);
    t.ids = calloc((size_t)t.offsets[t.count], sizeof *t.ids);
    for (int64_t i = 0; i < t.offsets[t.count]; i++)
        t.ids[i] = (int32_t)rng_int(r, 0, m->vocabulary - 1);
    return t;
}

static void free_texts(texts *t)
{
    free(t->offsets);
    free(t->ids);
}

static float *embed_all(danaus_model *model, const texts *t, int64_t width)
{
    float *found = calloc((size_t)(t->count * width) + 1, sizeof *found);
    found[t->count * width] = 17;
    assert_ok(danaus_model_embed(model, device, t->count, t->offsets, t->ids, found));
    assert_true(found[t->count * width] == 17);
    return found;
}

static void expect_embeddings(const small_bert *m, const texts *t, const float *found)
{
    double wanted[512], moved;
    for (int64_t i = 0; i < t->count; i++) {
        const int64_t *at = t->offsets + i;
        bert_embed(m, t->ids + at[0], at[1] - at[0], wanted, &moved);
        for (int64_t n = 0; n < m->width; n++) {
            double is = found[i * m->width + n];
            if (!(fabs(is - wanted[n]) <= BERT_BOUND * moved + 1e-30))
                fail_msg(
                    "width %d, %d heads, %d layers, %d tokens: number %d of sequence "
                    "%d is %.9g, not %.9g; %g is allowed",
                    (int)m->width, (int)m->heads, (int)m->layers, (int)(at[1] - at[0]),
                    (int)n, (int)i, is, wanted[n], BERT_BOUND * moved);
        }
    }
}

static void embeddings_are_those_of_plain_loops(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        small_bert m = bert_random(&r);
        danaus_model *model = bert_load(&m, device);
        texts t = random_texts(&r, &m, 6);
        float *found = embed_all(model, &t, m.width);
        expect_embeddings(&m, &t, found);
        free(found);
        free_texts(&t);
        danaus_model_destroy(model);
        bert_free(&m);
    }
}

/* More tokens than go through a model together: those of a sequence do not depend on its
   neighbours but for the order of sums. */
static void many_sequences_are_as_one(void **state)
{
    (void)state;
    rng r = { 5 };
    small_bert m = bert_random(&r);
    danaus_model *model = bert_load(&m, device);
    texts t = random_texts(&r, &m, 6);
    while (t.offsets[t.count] < 3000) {
        free_texts(&t);
        t = random_texts(&r, &m, 200);
    }
    float *found = embed_all(model, &t, m.width);
    expect_embeddings(&m, &t, found);
    free(found);
    free_texts(&t);
    danaus_model_destroy(model);
    bert_free(&m);
}

static void threads_do_not_change_embeddings(void **state)
{
    (void)state;
    if (danaus_device_set_threads(device, 1))
        skip(); /* a GPU's are not counted */
    rng r = { 11 };
    small_bert m = bert_random(&r);
    danaus_model *model = bert_load(&m, device);
    texts t = random_texts(&r, &m, 30);
    float *one = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        assert_ok(danaus_device_set_threads(device, threads));
        float *found = embed_all(model, &t, m.width);
        one = one ? one : found;
        assert_memory_equal(found, one, (size_t)(t.count * m.width) * sizeof *found);
        if (found != one)
            free(found);
    }
    assert_ok(danaus_device_set_threads(device, 0));
    free(one);
    free_texts(&t);
    danaus_model_destroy(model);
    bert_free(&m);
}

/* Scores at the first token are the head's of its row, which is the embedding where pooling
   takes the first one as it is. */
static void words_are_scored(void **state)
{
    (void)state;
    for (int round = 0, checked = 0; checked < rounds_of(12); round++) {
        rng r = { (uint64_t)round };
        double row[512], wanted[64], other[64], moved, moves = 0;
        small_bert m = bert_random(&r);
        if (m.first && !m.normalize) {
            const char *prefix = m.arrays.prefix;
            m.arrays.prefix = NULL;
            head_add_random(&r, &m.arrays, m.width, m.vocabulary);
            m.arrays.prefix = prefix;
            danaus_model *model = bert_load(&m, device);
            texts t = random_texts(&r, &m, 1);
            const danaus_tensor *word =
                named_find(&m.arrays, "embeddings.word_embeddings.weight");
            const int64_t place = 0;
            float found[64];
            bert_embed(&m, t.ids, t.offsets[1], row, &moved);
            head_scores(&m.arrays, word, m.activation, row, wanted, NULL);
            for (uint64_t run = 0; run < 4; run++) {
                rng noise = { run };
                double near[512];
                for (int64_t i = 0; i < m.width; i++)
                    near[i] = row[i] + moved * rng_sign(&noise);
                head_scores(&m.arrays, word, m.activation, near, other, &noise);
                for (int64_t v = 0; v < m.vocabulary; v++)
                    moves = fmax(moves, fabs(other[v] - wanted[v]));
            }
            assert_ok(danaus_model_fill(
                model, device, t.offsets[1], t.ids, 1, &place, found));
            for (int64_t v = 0; v < m.vocabulary; v++)
                if (!(fabs(found[v] - wanted[v]) <= BERT_BOUND * moves + 1e-30))
                    fail_msg(
                        "width %d, word %d: %.9g, not %.9g; %g is allowed",
                        (int)m.width, (int)v, found[v], wanted[v], BERT_BOUND * moves);
            free_texts(&t);
            danaus_model_destroy(model);
            checked++;
        }
        bert_free(&m);
    }
}

static void expect_refusal(danaus_status status, const char *words)
{
    danaus_model *model = NULL;
    assert_status(danaus_model_load(device, scratch_directory(), &model), status);
    assert_null(model);
    if (!strstr(danaus_error_detail(), words))
        fail_msg("\"%s\" does not say \"%s\"", danaus_error_detail(), words);
}

static void what_does_not_fit_is_named_at_once(void **state)
{
    (void)state;
    rng r = { 3 };
    small_bert m = bert_random(&r);
    named_drop(&m.arrays, "embeddings.LayerNorm.bias");
    named_drop(&m.arrays, "encoder.layer.0.output.dense.bias");
    named_add(&m.arrays, 0, NULL, "encoder.layer.77.more");
    bert_write(&m);
    expect_refusal(DANAUS_ERR_FORMAT, "3 tensors do not fit");
    expect_refusal(DANAUS_ERR_FORMAT, "embeddings.LayerNorm.bias is missing");
    expect_refusal(DANAUS_ERR_FORMAT, "encoder.layer.0.output.dense.bias[");
    expect_refusal(DANAUS_ERR_FORMAT, "encoder.layer.77.more has no place");
    bert_free(&m);
}

static void write_config(const char *text)
{
    file_write(scratch_path("config.json"), text, strlen(text));
}

static void configurations_are_checked(void **state)
{
    (void)state;
    rng r = { 4 };
    small_bert m = bert_random(&r);
    bert_write(&m);
    bytes good = file_bytes(scratch_path("config.json"));
    write_config("{");
    expect_refusal(DANAUS_ERR_FORMAT, "config.json: no proper JSON");
    write_config("[]");
    expect_refusal(DANAUS_ERR_UNSUPPORTED, "model_type");
    write_config("{\"model_type\": \"llama\"}");
    expect_refusal(DANAUS_ERR_UNSUPPORTED, "\"llama\"");
    write_config("{\"model_type\": \"bert\"}");
    expect_refusal(DANAUS_ERR_FORMAT, "\"hidden_size\" is missing");
    write_config("{\"model_type\": \"bert\", \"hidden_size\": 1.5}");
    expect_refusal(DANAUS_ERR_FORMAT, "\"hidden_size\" is not an integer");
    write_config("{\"model_type\": \"bert\", \"hidden_size\": -3}");
    expect_refusal(DANAUS_ERR_FORMAT, "\"hidden_size\" is not an integer, 0 or more");
    file_write(scratch_path("config.json"), good.data, good.size);
    remove(scratch_path("model.safetensors"));
    expect_refusal(DANAUS_ERR_IO, "model.safetensors");
    remove(scratch_path("config.json"));
    expect_refusal(DANAUS_ERR_IO, "config.json");
    bytes_free(&good);
    bert_free(&m);
}

static void tokens_are_checked(void **state)
{
    (void)state;
    rng r = { 6 };
    small_bert m = bert_random(&r);
    danaus_model *model = bert_load(&m, device);
    float y[512] = { 0 };
    int32_t ids[100] = { 0 };
    int64_t offsets[] = { 0, 1 };
    ids[0] = (int32_t)m.vocabulary;
    assert_status(
        danaus_model_embed(model, device, 1, offsets, ids, y), DANAUS_ERR_ARGUMENT);
    ids[0] = -1;
    assert_status(
        danaus_model_embed(model, device, 1, offsets, ids, y), DANAUS_ERR_ARGUMENT);
    ids[0] = 0;
    offsets[1] = m.positions + 1;
    assert_status(
        danaus_model_embed(model, device, 1, offsets, ids, y), DANAUS_ERR_SHAPE);
    offsets[1] = 0;
    assert_status(
        danaus_model_embed(model, device, 1, offsets, ids, y), DANAUS_ERR_SHAPE);
    offsets[0] = INT64_MIN, offsets[1] = INT64_MAX;
    assert_status(
        danaus_model_embed(model, device, 1, offsets, ids, y), DANAUS_ERR_ARGUMENT);
    for (int i = 0; i < 512; i++)
        assert_true(y[i] == 0);
    offsets[0] = 0;
    assert_ok(danaus_model_embed(model, device, 0, offsets, NULL, NULL));
    const int64_t place = 0;
    assert_status(
        danaus_model_fill(model, device, 1, ids, 1, &place, y), DANAUS_ERR_UNSUPPORTED);
    danaus_model_destroy(model);
    bert_free(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_are_those_of_plain_loops),
        cmocka_unit_test(many_sequences_are_as_one),
        cmocka_unit_test(threads_do_not_change_embeddings),
        cmocka_unit_test(words_are_scored),
        cmocka_unit_test(what_does_not_fit_is_named_at_once),
        cmocka_unit_test(configurations_are_checked),
        cmocka_unit_test(tokens_are_checked),
    };
    device = device_from_arguments(argc, argv);
    int failed = cmocka_run_group_tests(tests, scratch_setup, bert_teardown);
    danaus_device_close(device);
    return failed;
}
