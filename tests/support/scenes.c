/* Scenes of models. */
// SPDX-License-Identifier: Apache-2.0
#include "support/scenes.h"
#include "support/files.h"
#include "support/named.h"
#include "support/test.h"

#include "device/backend.h"

#include <stdlib.h>
#include <string.h>

texts texts_random(rng *r, int64_t count, int64_t longest, int64_t vocabulary)
{
    texts t = { .count = count };
    int64_t *lengths = calloc((size_t)count + 1, sizeof *lengths);
    t.offsets = calloc((size_t)count + 1, sizeof *t.offsets);
    assert_true(lengths && t.offsets);
    for (int64_t i = 0; i < count; i++)
        lengths[i] = rng_int(r, 1, longest);
    texts_fill(r, &t, lengths, vocabulary);
    free(lengths);
    return t;
}

void texts_fill(rng *r, texts *t, const int64_t *lengths, int64_t vocabulary)
{
    for (int64_t i = 0; i < t->count; i++)
        t->offsets[i + 1] = t->offsets[i] + lengths[i];
    free(t->ids);
    t->ids = calloc((size_t)t->offsets[t->count] + 1, sizeof *t->ids);
    assert_non_null(t->ids);
    for (int64_t i = 0; i < t->offsets[t->count]; i++)
        t->ids[i] = (int32_t)rng_int(r, 0, vocabulary - 1);
}

void texts_free(texts *t)
{
    free(t->offsets);
    free(t->ids);
}

float *texts_embed(
    danaus_model *model, danaus_device *device, const texts *t, int64_t width)
{
    float *found = calloc((size_t)(t->count * width) + 1, sizeof *found);
    found[t->count * width] = 17;
    assert_ok(danaus_model_embed(model, device, t->count, t->offsets, t->ids, found));
    assert_true(found[t->count * width] == 17);
    return found;
}

void need_threads(const danaus_device *device)
{
    if (device->backend->on_host)
        return;
    print_message("a GPU's threads are not counted\n");
    skip();
}

void expect_threads_to_agree(
    danaus_model *model, danaus_device *device, const texts *t, int64_t width)
{
    float *one = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        assert_ok(danaus_device_set_threads(device, threads));
        float *found = texts_embed(model, device, t, width);
        one = one ? one : found;
        assert_memory_equal(found, one, (size_t)(t->count * width) * sizeof *found);
        if (found != one)
            free(found);
    }
    assert_ok(danaus_device_set_threads(device, 0));
    free(one);
}

void expect_refusal(danaus_device *device, danaus_status status, const char *words)
{
    danaus_model *model = NULL;
    assert_status(danaus_model_load(device, scratch_directory(), &model), status);
    assert_null(model);
    if (!strstr(danaus_error_detail(), words))
        fail_msg("\"%s\" does not say \"%s\"", danaus_error_detail(), words);
}

void need_sixteen_bits(const danaus_device *device)
{
    if (!device->backend->on_host)
        return;
    print_message("16 bits are for GPUs\n");
    skip();
}

danaus_model *sixteen_bits_load(danaus_device *device, int round)
{
    const danaus_model_desc how = { .dtype = round % 2 ? DANAUS_BF16 : DANAUS_F16 };
    danaus_model *model;
    assert_ok(danaus_model_load_as(device, scratch_directory(), &how, &model));
    named_stored = round % 2 ? 0x1p-8 : 0x1p-11;
    return model;
}

void sixteen_bits_close(danaus_model *model)
{
    named_stored = 0;
    danaus_model_destroy(model);
}

static void expect_same_layers(const danaus_model *a, const danaus_model *b)
{
    danaus_model_layer x, y;
    int i = 0;
    for (; !danaus_model_layer_at(a, i, &x); i++) {
        assert_ok(danaus_model_layer_at(b, i, &y));
        assert_string_equal(x.name, y.name);
        assert_int_equal(x.parameters, y.parameters);
        assert_int_equal(x.factors, y.factors);
        assert_memory_equal(
            x.patterns, y.patterns, (size_t)x.factors * sizeof *x.patterns);
    }
    assert_status(danaus_model_layer_at(b, i, &y), DANAUS_ERR_ARGUMENT);
}

/* Whatever a model takes, an outline does not. */
static void expect_rest(danaus_model *outline, danaus_device *device)
{
    const int64_t offsets[] = { 0, 1 };
    const int32_t id = 0;
    float numbers[2000] = { 0 };
    danaus_model_info info;
    assert_ok(danaus_model_describe(outline, &info));
    danaus_status status =
        info.image_size
            ? danaus_model_embed_images(outline, device, 1, numbers, numbers)
            : danaus_model_embed(outline, device, 1, offsets, &id, numbers);
    assert_int_equal(status, DANAUS_ERR_ARGUMENT);
    assert_non_null(strstr(danaus_error_detail(), "an outline"));
}

void expect_outline(danaus_model *model, danaus_device *device)
{
    danaus_model_info wanted, found;
    danaus_model_cost costs, cost;
    danaus_model *outline;
    assert_ok(danaus_model_describe(model, &wanted));
    const danaus_model_desc how = { .outline = 1, .dtype = wanted.dtype };
    assert_ok(danaus_model_load_as(device, scratch_directory(), &how, &outline));
    assert_ok(danaus_model_describe(outline, &found));
    assert_memory_equal(&found, &wanted, sizeof found);
    int64_t length = wanted.image_size ? 1 : wanted.max_length;
    assert_ok(danaus_model_estimate(model, device, 3, length, &costs));
    assert_ok(danaus_model_estimate(outline, device, 3, length, &cost));
    assert_memory_equal(&cost, &costs, sizeof cost);
    expect_same_layers(model, outline);
    expect_rest(outline, device);
    danaus_model_destroy(outline);
}
