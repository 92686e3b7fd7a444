/* Encoders whose linear layers multiply 8-bit numbers: they are near those that do not, are the
   same after they were saved, and files that do not fit are refused. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "support/bert.h"
#include "support/device.h"
#include "support/files.h"
#include "support/scenes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUERY "encoder.layer.0.attention.self.query.weights.0"

static danaus_device *device;

static const danaus_model_desc in_8_bits = { .int8 = 1 };

static danaus_model *load(const char *folder, const danaus_model_desc *how)
{
    danaus_model *model = NULL;
    assert_ok(danaus_model_load_as(device, folder, how, &model));
    return model;
}

static void expect_layers(danaus_model *model, int int8)
{
    danaus_model_layer layer;
    int count = 0;
    for (; danaus_model_layer_at(model, count, &layer) == DANAUS_OK; count++)
        assert_int_equal(layer.int8 != 0, int8);
    assert_true(count > 0);
}

/* Layers of both multiply the same numbers. */
static void expect_layers_alike(danaus_model *model, danaus_model *other)
{
    danaus_model_layer a, b;
    for (int i = 0; danaus_model_layer_at(model, i, &a) == DANAUS_OK; i++) {
        assert_ok(danaus_model_layer_at(other, i, &b));
        if (!a.int8 != !b.int8)
            fail_msg("%s: %d bits in one model only", a.name, 8);
    }
}

/* Layers that were fitted, and no others, have 8 bits. */
static void expect_fitted_layers(danaus_model *model)
{
    danaus_model_layer layer;
    for (int i = 0; danaus_model_layer_at(model, i, &layer) == DANAUS_OK; i++)
        assert_int_equal(layer.int8 != 0, layer.speedup > 0);
}

/* The relative distance of two arrays. */
static double distance(const float *x, const float *y, int64_t count)
{
    double moved = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        moved += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        size += (double)x[i] * x[i];
    }
    return sqrt(moved / size);
}

/* The folder that the model is saved into gives the same bits, or numbers that are nearly these,
   and says itself that its layers have 8 bits. */
static void expect_same_when_saved(
    danaus_model *model, const texts *t, int64_t width, const float *found, double near)
{
    char folder[300];
    snprintf(folder, sizeof folder, "%s", scratch_path("saved"));
    assert_ok(danaus_model_save(model, folder));
    danaus_model *saved = load(folder, NULL);
    expect_layers_alike(saved, model);
    float *again = texts_embed(saved, device, t, width);
    assert_true(distance(found, again, t->count * width) <= near);
    const danaus_model_desc sketch = { .outline = 1 };
    danaus_model *outline = load(folder, &sketch);
    danaus_model_info is, said;
    assert_ok(danaus_model_describe(saved, &is));
    assert_ok(danaus_model_describe(outline, &said));
    assert_memory_equal(&is, &said, sizeof is);
    expect_layers_alike(outline, model);
    danaus_model_destroy(outline);
    free(again);
    danaus_model_destroy(saved);
    bert_remove_saved();
}

/* Only processors multiply 8-bit numbers. */
static void need_host(void)
{
    if (!device->backend->on_host)
        skip();
}

static void expect_near_and_the_same_when_saved(bert_kind kind)
{
    double sum = 0;
    int rounds = rounds_of(16);
    for (int round = 0; round < rounds; round++) {
        rng r = { 300 + (uint64_t)round };
        small_bert m = bert_random_kind(&r, kind);
        danaus_model *plain = bert_load(&m, device);
        danaus_model *model = load(scratch_directory(), &in_8_bits);
        texts t = texts_random(&r, 8, m.positions, m.vocabulary);
        float *wanted = texts_embed(plain, device, &t, m.width);
        float *found = texts_embed(model, device, &t, m.width);
        expect_layers(plain, 0);
        expect_layers(model, 1);
        sum += distance(wanted, found, t.count * m.width);
        expect_same_when_saved(model, &t, m.width, found, 0);
        free(wanted);
        free(found);
        texts_free(&t);
        danaus_model_destroy(model);
        danaus_model_destroy(plain);
        bert_free(&m);
    }
    if (!(sum / rounds < 0.05))
        fail_msg("embeddings of kind %d move by %g", (int)kind, sum / rounds);
}

static void rounded_models_are_near_and_stay_so(void **state)
{
    (void)state;
    need_host();
    for (int kind = 0; kind < BERT_KINDS; kind++)
        expect_near_and_the_same_when_saved((bert_kind)kind);
}

/* ---- compressed models ---- */

static void fitted_layers_are_rounded(void **state)
{
    (void)state;
    need_host();
    for (int round = 0; round < rounds_of(8); round++) {
        rng r = { 40 + (uint64_t)round };
        small_bert m = bert_random_dense(&r);
        danaus_model *model = bert_load(&m, device);
        texts t = texts_random(&r, 60, m.positions, m.vocabulary);
        const danaus_model_compression how = { .share = round % 2 ? 1 : 0.7,
                                               .int8 = 1,
                                               .candidates = round % 4 ? 0 : 7 };
        danaus_status status =
            danaus_model_compress(model, device, t.count, t.offsets, t.ids, &how);
        if (status != DANAUS_ERR_ARGUMENT) { /* some are too small */
            assert_int_equal(status, DANAUS_OK);
            expect_fitted_layers(model);
            float *found = texts_embed(model, device, &t, m.width);
            /* Biases are stored in two parts; what differs by their rounding may be rounded to
               another integer. */
            expect_same_when_saved(model, &t, m.width, found, 0.02);
            free(found);
        }
        texts_free(&t);
        danaus_model_destroy(model);
        bert_free(&m);
    }
}

/* Dense layers err by what rounding their weights does: a weight by half of a scale, which is
   its row's magnitude / 127, so that errors of random weights are far below one in 100. */
static void errors_are_of_rounded_weights(void **state)
{
    (void)state;
    need_host();
    rng r = { 41 };
    small_bert m = bert_random_dense(&r);
    while (m.width < 8 || m.inner < 8 || m.vocabulary < 5 || m.positions < 4) {
        bert_free(&m);
        m = bert_random_dense(&r);
    }
    danaus_model *model = bert_load(&m, device);
    texts t = texts_random(&r, 80, m.positions, m.vocabulary);
    const danaus_model_compression how = { .share = 1, .int8 = 1 };
    assert_ok(danaus_model_compress(model, device, t.count, t.offsets, t.ids, &how));
    danaus_model_layer layer;
    for (int i = 0; danaus_model_layer_at(model, i, &layer) == DANAUS_OK; i++)
        assert_true(layer.error > 1e-5 && layer.error < 0.1);
    texts_free(&t);
    danaus_model_destroy(model);
    bert_free(&m);
}

/* ---- files that do not fit ---- */

/* Saves a rounded model, and loads it after a change of its tensors. */
static void expect_saved_refusal(
    void (*change)(danaus_tensor *all, int *count), const char *why)
{
    enum { MOST_TENSORS = 200 };
    rng r = { 3 };
    small_bert m = bert_random_dense(&r);
    bert_write(&m);
    danaus_model *model = load(scratch_directory(), &in_8_bits), *none = NULL;
    char folder[300], path[320];
    snprintf(folder, sizeof folder, "%s", scratch_path("saved"));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_ok(danaus_model_save(model, folder));
    danaus_file *file;
    danaus_tensor all[MOST_TENSORS];
    const char *mark[] = { "danaus", danaus_version() };
    assert_ok(danaus_file_open(path, &file));
    int count = danaus_file_count(file);
    assert_in_range(count, 1, MOST_TENSORS);
    for (int i = 0; i < count; i++)
        assert_ok(danaus_file_tensor(file, i, &all[i]));
    change(all, &count);
    char changed[320];
    snprintf(changed, sizeof changed, "%s/changed", folder);
    assert_ok(danaus_file_write_safetensors(changed, all, count, mark, 1));
    danaus_file_close(file);
    assert_int_equal(rename(changed, path), 0);
    assert_status(danaus_model_load(device, folder, &none), DANAUS_ERR_FORMAT);
    assert_null(none);
    if (!strstr(danaus_error_detail(), why))
        fail_msg("\"%s\" lacks \"%s\"", danaus_error_detail(), why);
    danaus_model_destroy(model);
    bert_remove_saved();
    bert_free(&m);
}

static int scale_of_query(const danaus_tensor *all, int count)
{
    for (int i = 0; i < count; i++)
        if (strstr(all[i].name, QUERY "_scale"))
            return i;
    fail_msg("there is no scale");
    return 0;
}

static void drop_scale(danaus_tensor *all, int *count)
{
    all[scale_of_query(all, *count)] = all[*count - 1];
    --*count;
}

static void cut_scale(danaus_tensor *all, int *count)
{
    danaus_tensor *t = &all[scale_of_query(all, *count)];
    assert_true(t->shape[1] > 2);
    t->shape[1]--;
}

static void flatten_scale(danaus_tensor *all, int *count)
{
    all[scale_of_query(all, *count)].ndim = 1;
}

static void scales_have_to_fit(void **state)
{
    (void)state;
    need_host();
    const char *why = QUERY " has 8 bits, and " QUERY "_scale is no scale for its rows";
    expect_saved_refusal(drop_scale, why);
    expect_saved_refusal(cut_scale, why);
    expect_saved_refusal(flatten_scale, why);
}

static void rounded_models_are_not_compressed(void **state)
{
    (void)state;
    need_host();
    rng r = { 5 };
    small_bert m = bert_random_dense(&r);
    bert_write(&m);
    char folder[300];
    snprintf(folder, sizeof folder, "%s", scratch_path("saved"));
    danaus_model *model = load(scratch_directory(), &in_8_bits);
    assert_ok(danaus_model_save(model, folder));
    danaus_model *saved = load(folder, NULL);
    texts t = texts_random(&r, 8, m.positions, m.vocabulary);
    const danaus_model_compression how = { .share = 0.5 };
    assert_status(
        danaus_model_compress(saved, device, t.count, t.offsets, t.ids, &how),
        DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "is a chain already"));
    texts_free(&t);
    danaus_model_destroy(saved);
    danaus_model_destroy(model);
    bert_remove_saved();
    bert_free(&m);
}

/* ---- other devices ---- */

/* They run a folder of rounded weights, which are multiplied as numbers of their own type. */
static void other_devices_run_the_folder(void **state)
{
    (void)state;
    if (device->backend->on_host)
        skip();
    danaus_device *host;
    danaus_model *none = NULL;
    assert_ok(danaus_device_open("cpu", &host));
    for (int round = 0; round < rounds_of(10); round++) {
        rng r = { 70 + (uint64_t)round };
        small_bert m = bert_random(&r);
        char folder[300];
        snprintf(folder, sizeof folder, "%s", scratch_path("saved"));
        bert_write(&m);
        danaus_model *rounded;
        assert_ok(
            danaus_model_load_as(host, scratch_directory(), &in_8_bits, &rounded));
        assert_ok(danaus_model_save(rounded, folder));
        danaus_model *model = load(folder, NULL);
        expect_layers(model, 0);
        texts t = texts_random(&r, 5, m.positions, m.vocabulary);
        float *wanted = texts_embed(rounded, host, &t, m.width);
        float *found = texts_embed(model, device, &t, m.width);
        assert_true(distance(wanted, found, t.count * m.width) < 0.3);
        assert_status(
            danaus_model_load_as(device, folder, &in_8_bits, &none),
            DANAUS_ERR_UNSUPPORTED);
        free(wanted);
        free(found);
        texts_free(&t);
        danaus_model_destroy(model);
        danaus_model_destroy(rounded);
        bert_remove_saved();
        bert_free(&m);
    }
    danaus_device_close(host);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounded_models_are_near_and_stay_so),
        cmocka_unit_test(fitted_layers_are_rounded),
        cmocka_unit_test(errors_are_of_rounded_weights),
        cmocka_unit_test(scales_have_to_fit),
        cmocka_unit_test(rounded_models_are_not_compressed),
        cmocka_unit_test(other_devices_run_the_folder),
    };
    device = device_from_arguments(argc, argv);
    int failed = cmocka_run_group_tests(tests, scratch_setup, bert_teardown);
    danaus_device_close(device);
    return failed;
}
