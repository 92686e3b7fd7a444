/* Random small encoders: embeddings are those of plain loops, whatever sequences are embedded
   together, with any number of threads; and what does not fit is refused. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/bert.h"
#include "support/device.h"
#include "support/files.h"
#include "support/head.h"
#include "support/scenes.h"

#include "base/text.h"
#include "device/backend.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static danaus_device *device;

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
    for (int round = 0; round < rounds_of(120); round++) {
        rng r = { (uint64_t)round };
        small_bert m = bert_random_kind(&r, (bert_kind)(round % BERT_KINDS));
        danaus_model *model = bert_load(&m, device);
        texts t = texts_random(&r, rng_int(&r, 1, 6), m.positions, m.vocabulary);
        float *found = texts_embed(model, device, &t, m.width);
        expect_embeddings(&m, &t, found);
        free(found);
        texts_free(&t);
        danaus_model_destroy(model);
        bert_free(&m);
    }
}

/* More tokens than go through a model together: those of a sequence do not depend on its
   neighbours but for the order of sums. */
static void many_sequences_are_as_one(void **state)
{
    (void)state;
    for (int kind = 0; kind < BERT_KINDS; kind++) {
        rng r = { 5 };
        small_bert m = bert_random_kind(&r, (bert_kind)kind);
        danaus_model *model = bert_load(&m, device);
        texts t = texts_random(&r, rng_int(&r, 1, 6), m.positions, m.vocabulary);
        while (t.offsets[t.count] < 3000) {
            texts_free(&t);
            t = texts_random(&r, rng_int(&r, 1, 200), m.positions, m.vocabulary);
        }
        float *found = texts_embed(model, device, &t, m.width);
        expect_embeddings(&m, &t, found);
        free(found);
        texts_free(&t);
        danaus_model_destroy(model);
        bert_free(&m);
    }
}

static void threads_do_not_change_embeddings(void **state)
{
    (void)state;
    need_threads(device);
    for (int kind = 0; kind < BERT_KINDS; kind++) {
        rng r = { 11 };
        small_bert m = bert_random_kind(&r, (bert_kind)kind);
        danaus_model *model = bert_load(&m, device);
        texts t = texts_random(&r, 30, m.positions, m.vocabulary);
        expect_threads_to_agree(model, device, &t, m.width);
        texts_free(&t);
        danaus_model_destroy(model);
        bert_free(&m);
    }
}

static void outlines_say_what_models_do(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        rng r = { (uint64_t)round };
        small_bert m = bert_random_kind(&r, (bert_kind)(round % BERT_KINDS));
        danaus_model *model = bert_load(&m, device);
        expect_outline(model, device);
        danaus_model_destroy(model);
        bert_free(&m);
    }
}

/* Rows of f16 and bf16: stored numbers are rounded to these, sums are not. */
static void rows_may_have_sixteen_bits(void **state)
{
    (void)state;
    need_sixteen_bits(device);
    for (int round = 0; round < rounds_of(30); round++) {
        rng r = { 900 + (uint64_t)round };
        small_bert m = bert_random_kind(&r, (bert_kind)(round % BERT_KINDS));
        bert_write(&m);
        danaus_model *model = sixteen_bits_load(device, round);
        texts t = texts_random(&r, 3, m.positions, m.vocabulary);
        float *found = texts_embed(model, device, &t, m.width);
        expect_embeddings(&m, &t, found);
        expect_outline(model, device);
        free(found);
        texts_free(&t);
        sixteen_bits_close(model);
        bert_free(&m);
    }
}

static void write_config(const char *config)
{
    file_write(scratch_path("config.json"), config, strlen(config));
}

/* ---- more than there is ---- */

/* Zeros that take no room on the disk: [rows][cols], or [rows] where cols is 0. */
typedef struct hole {
    const char *name;
    int64_t rows, cols;
} hole;

static void write_holes(const hole *all, size_t count)
{
    char header[8192];
    int64_t at = 0;
    text t = { header, sizeof header, 0 };
    dn_text(&t, "{");
    for (size_t i = 0; i < count; i++) {
        int64_t size = 2 * all[i].rows * (all[i].cols ? all[i].cols : 1);
        dn_text(
            &t, "%s\"%s\": {\"dtype\": \"F16\", \"shape\": [%" PRId64, i ? ", " : "",
            all[i].name, all[i].rows);
        if (all[i].cols)
            dn_text(&t, ", %" PRId64, all[i].cols);
        dn_text(&t, "], \"data_offsets\": [%" PRId64 ", %" PRId64 "]}", at, at + size);
        at += size;
    }
    dn_text(&t, "}");
    uint64_t length = t.length;
    assert_true(length < sizeof header);
    FILE *file = fopen(scratch_path("model.safetensors"), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&length, sizeof length, 1, file), 1);
    assert_int_equal(fwrite(header, 1, length, file), length);
    assert_int_equal(fflush(file), 0);
    if (ftruncate(fileno(file), (off_t)(8 + (int64_t)length + at))) {
        fclose(file);
        print_message("files with holes are not to be had here\n");
        skip();
    }
    assert_int_equal(fclose(file), 0);
}

enum { HUGE_WIDTH = 1024, HUGE_VOCABULARY = 1 << 27 };

/* Half a terabyte of words, in a file of a few bytes. */
static void write_huge_model(void)
{
    enum { W = HUGE_WIDTH };
    static const hole all[] = {
        { "embeddings.word_embeddings.weight", HUGE_VOCABULARY, W },
        { "embeddings.position_embeddings.weight", 1, W },
        { "embeddings.token_type_embeddings.weight", 1, W },
        { "embeddings.LayerNorm.weight", W, 0 },
        { "embeddings.LayerNorm.bias", W, 0 },
        { "encoder.layer.0.attention.self.query.weight", W, W },
        { "encoder.layer.0.attention.self.query.bias", W, 0 },
        { "encoder.layer.0.attention.self.key.weight", W, W },
        { "encoder.layer.0.attention.self.key.bias", W, 0 },
        { "encoder.layer.0.attention.self.value.weight", W, W },
        { "encoder.layer.0.attention.self.value.bias", W, 0 },
        { "encoder.layer.0.attention.output.dense.weight", W, W },
        { "encoder.layer.0.attention.output.dense.bias", W, 0 },
        { "encoder.layer.0.attention.output.LayerNorm.weight", W, 0 },
        { "encoder.layer.0.attention.output.LayerNorm.bias", W, 0 },
        { "encoder.layer.0.intermediate.dense.weight", W, W },
        { "encoder.layer.0.intermediate.dense.bias", W, 0 },
        { "encoder.layer.0.output.dense.weight", W, W },
        { "encoder.layer.0.output.dense.bias", W, 0 },
        { "encoder.layer.0.output.LayerNorm.weight", W, 0 },
        { "encoder.layer.0.output.LayerNorm.bias", W, 0 },
    };
    write_config("{\"model_type\": \"bert\", \"hidden_size\": 1024, "
                 "\"num_attention_heads\": 4, \"intermediate_size\": 1024, "
                 "\"num_hidden_layers\": 1, \"vocab_size\": 134217728, "
                 "\"max_position_embeddings\": 1, \"type_vocab_size\": 1}");
    remove(scratch_path("modules.json"));
    write_holes(all, sizeof all / sizeof *all);
}

static void memory_is_stated_before_it_is_taken(void **state)
{
    (void)state;
    const danaus_model_desc how = { .outline = 1 };
    danaus_model *outline;
    danaus_model_info info;
    write_huge_model();
    assert_ok(danaus_model_load_as(device, scratch_directory(), &how, &outline));
    assert_ok(danaus_model_describe(outline, &info));
    int64_t words = (int64_t)HUGE_VOCABULARY * HUGE_WIDTH * (int64_t)sizeof(float);
    assert_in_range(info.memory, words, words + ((int64_t)1 << 26));
    danaus_model_destroy(outline);
    expect_refusal(device, DANAUS_ERR_MEMORY, "the weights would take 549.8 GB");
    remove(scratch_path("model.safetensors"));
}

static void other_types_are_refused(void **state)
{
    (void)state;
    rng r = { 4 };
    danaus_model *model = NULL;
    small_bert m = bert_random(&r);
    danaus_model_desc how = { .dtype = DANAUS_F64 };
    bert_write(&m);
    assert_status(
        danaus_model_load_as(device, scratch_directory(), &how, &model),
        DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "f64"));
    how.dtype = DANAUS_BF16;
    if (device->backend->on_host) {
        assert_status(
            danaus_model_load_as(device, scratch_directory(), &how, &model),
            DANAUS_ERR_UNSUPPORTED);
        assert_non_null(strstr(danaus_error_detail(), "run in f32 on cpu"));
    }
    how = (danaus_model_desc){ .reserved = { 1 } };
    assert_status(
        danaus_model_load_as(device, scratch_directory(), &how, &model),
        DANAUS_ERR_ARGUMENT);
    assert_null(model);
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
            texts t = texts_random(&r, 1, m.positions, m.vocabulary);
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
            texts_free(&t);
            danaus_model_destroy(model);
            checked++;
        }
        bert_free(&m);
    }
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
    expect_refusal(device, DANAUS_ERR_FORMAT, "3 tensors do not fit");
    expect_refusal(device, DANAUS_ERR_FORMAT, "embeddings.LayerNorm.bias is missing");
    expect_refusal(
        device, DANAUS_ERR_FORMAT, "0.output.dense.bias is missing, of shape [");
    expect_refusal(device, DANAUS_ERR_FORMAT, "encoder.layer.77.more has no place");
    bert_free(&m);
}

static void configurations_are_checked(void **state)
{
    (void)state;
    rng r = { 4 };
    small_bert m = bert_random(&r);
    bert_write(&m);
    bytes good = file_bytes(scratch_path("config.json"));
    write_config("{");
    expect_refusal(device, DANAUS_ERR_FORMAT, "config.json: no proper JSON");
    write_config("[]");
    expect_refusal(device, DANAUS_ERR_FORMAT, "config.json: this is not an object");
    write_config("{\"model_type\": \"llama\"}");
    expect_refusal(device, DANAUS_ERR_UNSUPPORTED, "\"llama\"");
    write_config("{\"model_type\": \"bert\"}");
    expect_refusal(device, DANAUS_ERR_FORMAT, "\"hidden_size\" is missing");
    write_config("{\"model_type\": \"bert\", \"hidden_size\": 1.5}");
    expect_refusal(device, DANAUS_ERR_FORMAT, "\"hidden_size\" is not an integer");
    write_config("{\"model_type\": \"bert\", \"hidden_size\": -3}");
    expect_refusal(
        device, DANAUS_ERR_FORMAT, "\"hidden_size\" is not an integer, 0 or more");
    file_write(scratch_path("config.json"), good.data, good.size);
    remove(scratch_path("model.safetensors"));
    expect_refusal(device, DANAUS_ERR_IO, "model.safetensors");
    remove(scratch_path("config.json"));
    expect_refusal(device, DANAUS_ERR_IO, "config.json");
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
        cmocka_unit_test(outlines_say_what_models_do),
        cmocka_unit_test(rows_may_have_sixteen_bits),
        cmocka_unit_test(memory_is_stated_before_it_is_taken),
        cmocka_unit_test(other_types_are_refused),
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
