/* The n-th allocation fails while a model is loaded, embeds, is compressed or saved, for
   every n: the call says MEMORY, or does without, and the model is as it was. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "danaus/factorize.h"
#include "support/bert.h"
#include "support/device.h"
#include "support/failing.h"
#include "support/files.h"
#include "support/m2_bert.h"
#include "support/mixer_vit.h"
#include "support/vit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ALLOCATIONS 20000
#define SEQUENCES        12

/* A small model, loaded, and what it embeds. */
typedef struct scene {
    danaus_device *device;
    danaus_model *model;
    small_bert m;
    int64_t offsets[SEQUENCES + 1];
    int32_t ids[SEQUENCES * 3];
    float before[SEQUENCES * 80];
    char folder[160];
    const char *layers; /* that are compressed */
} scene;

static danaus_status embed(scene *s, float *y)
{
    return danaus_model_embed(s->model, s->device, SEQUENCES, s->offsets, s->ids, y);
}

static void number_tokens(scene *s, rng *r, int64_t vocabulary)
{
    for (int i = 0; i < SEQUENCES; i++) {
        s->offsets[i + 1] = s->offsets[i] + 1 + i % 3;
        for (int64_t t = s->offsets[i]; t < s->offsets[i + 1]; t++)
            s->ids[t] = (int32_t)rng_int(r, 0, vocabulary - 1);
    }
}

static void open_scene(scene *s)
{
    rng r = { 12 };
    memset(s, 0, sizeof *s);
    do {
        bert_free(&s->m);
        s->m = bert_random_dense(&r);
    } while (s->m.width < 6 || s->m.layers > 1 || s->m.positions < 3);
    number_tokens(s, &r, s->m.vocabulary);
    assert_ok(danaus_device_open("cpu", &s->device));
    assert_ok(danaus_device_set_threads(s->device, 1));
    s->model = bert_load(&s->m, s->device);
    assert_ok(embed(s, s->before));
    snprintf(s->folder, sizeof s->folder, "%s", scratch_path("saved"));
}

static void close_scene(scene *s)
{
    danaus_model_destroy(s->model);
    danaus_device_close(s->device);
    bert_free(&s->m);
}

static void expect_same_model(scene *s)
{
    float now[SEQUENCES * 80];
    assert_ok(embed(s, now));
    assert_memory_equal(now, s->before, (size_t)(SEQUENCES * s->m.width) * sizeof *now);
}

/* Tries a call until it gets through without reaching the n-th allocation. */
static void fail_each(scene *s, danaus_status (*try)(scene *s))
{
    for (long n = 1;; n += case_step()) {
        dn_alloc_fail_at(n);
        danaus_status status = try(s);
        long made = dn_alloc_fail_at(0);
        assert_in_range(n, 1, MOST_ALLOCATIONS);
        if (status == DANAUS_OK && made < n) {
            assert_in_range(n, 3, MOST_ALLOCATIONS);
            return;
        }
        if (status == DANAUS_OK)
            continue; /* it did without */
        assert_int_equal(status, DANAUS_ERR_MEMORY);
        assert_non_null(strstr(danaus_error_detail(), "memory"));
        if (s->m.width)
            expect_same_model(s);
    }
}

static danaus_status load_once(scene *s)
{
    danaus_model *model = NULL;
    danaus_status status = danaus_model_load(s->device, scratch_directory(), &model);
    assert_int_equal(model == NULL, status != DANAUS_OK);
    danaus_model_destroy(model);
    return status;
}

static danaus_status embed_once(scene *s)
{
    float y[SEQUENCES * 80];
    return embed(s, y);
}

/* Where a call got through, another model for the next round. */
static danaus_status renew(scene *s, danaus_status status)
{
    if (status != DANAUS_OK)
        return status;
    dn_alloc_fail_at(0);
    danaus_model_destroy(s->model);
    assert_ok(danaus_model_load(s->device, scratch_directory(), &s->model));
    return status;
}

static danaus_status compress_once(scene *s)
{
    const danaus_model_compression how = { .share = 0.5 };
    danaus_status status =
        danaus_model_compress(s->model, s->device, SEQUENCES, s->offsets, s->ids, &how);
    return renew(s, status);
}

static danaus_status compress_to_chains_once(scene *s)
{
    const danaus_model_compression how = { .share = 0.6,
                                           .layers = "query|output",
                                           .candidates =
                                               DANAUS_TRY_MONARCH | DANAUS_TRY_SUM };
    danaus_status status =
        danaus_model_compress(s->model, s->device, SEQUENCES, s->offsets, s->ids, &how);
    return renew(s, status);
}

static void models_live_without_memory(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    fail_each(&s, load_once);
    fail_each(&s, embed_once);
    fail_each(&s, compress_once);
    fail_each(&s, compress_to_chains_once);
    close_scene(&s);
}

static danaus_status save_once(scene *s)
{
    return danaus_model_save(s->model, s->folder);
}

static void models_are_saved_without_memory(void **state)
{
    (void)state;
    scene s;
    open_scene(&s);
    const danaus_model_compression how = { .share = 0.5, .candidates = DANAUS_TRY_SUM };
    assert_ok(
        danaus_model_compress(s.model, s.device, SEQUENCES, s.offsets, s.ids, &how));
    assert_ok(embed(&s, s.before));
    fail_each(&s, save_once);
    danaus_model *saved;
    assert_ok(danaus_model_load(s.device, s.folder, &saved));
    danaus_model_destroy(saved);
    close_scene(&s);
}

/* Spectra are made by the first call for a length: a new model for each. */
static danaus_status load_embed_and_fill(scene *s)
{
    danaus_model *model = NULL;
    float y[SEQUENCES * 80];
    const int64_t place = 1;
    danaus_status status = danaus_model_load(s->device, scratch_directory(), &model);
    if (status == DANAUS_OK)
        status = danaus_model_embed(model, s->device, SEQUENCES, s->offsets, s->ids, y);
    if (status == DANAUS_OK)
        status = danaus_model_fill(model, s->device, 3, s->ids + 3, 1, &place, y);
    danaus_model_destroy(model);
    return status;
}

static void models_with_filters_live_without_memory(void **state)
{
    (void)state;
    scene s;
    memset(&s, 0, sizeof s);
    small_m2 m = m2_of_vectors(1);
    s.m.width = m.width;
    number_tokens(&s, &(rng){ 3 }, m.vocabulary);
    assert_ok(danaus_device_open("cpu", &s.device));
    assert_ok(danaus_device_set_threads(s.device, 1));
    s.model = m2_load(&m, s.device);
    assert_ok(embed(&s, s.before));
    fail_each(&s, load_embed_and_fill);
    fail_each(&s, compress_once);
    close_scene(&s);
    m2_free(&m);
}

static danaus_status load_and_look(scene *s)
{
    danaus_model *model = NULL;
    danaus_model_info info;
    static float x[3000] = { 1 }, y[3 * MIXER_VIT_MOST];
    danaus_status status = danaus_model_load(s->device, scratch_directory(), &model);
    if (status == DANAUS_OK)
        status = danaus_model_describe(model, &info);
    if (status == DANAUS_OK) {
        assert_true(
            3 * info.image_channels * info.image_size * info.image_size <= 3000);
        status = danaus_model_classify(model, s->device, 3, x, y);
    }
    danaus_model_destroy(model);
    return status;
}

static danaus_status compress_by_weights(scene *s)
{
    const danaus_model_compression how = { .share = 0.5, .layers = s->layers };
    return renew(s, danaus_model_compress_images(s->model, s->device, 0, NULL, &how));
}

/* There is nothing to compare: calls leave no trace in such a model. */
static void models_of_images_live_without_memory(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        rng r = { 8 };
        scene s;
        memset(&s, 0, sizeof s);
        assert_ok(danaus_device_open("cpu", &s.device));
        assert_ok(danaus_device_set_threads(s.device, 1));
        if (kind < 2) {
            small_mixer_vit m = mixer_vit_of(&r, kind, 3);
            while (m.width < 4) { /* fewer weights than half are none */
                mixer_vit_free(&m);
                m = mixer_vit_of(&r, kind, 3);
            }
            s.model = mixer_vit_load(&m, s.device);
            mixer_vit_free(&m);
        } else {
            s.model = vit_load(&r, s.device);
        }
        s.layers = kind < 2 ? "mixer.out_" : "output.dense";
        fail_each(&s, load_and_look);
        fail_each(&s, compress_by_weights);
        close_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_live_without_memory),
        cmocka_unit_test(models_with_filters_live_without_memory),
        cmocka_unit_test(models_of_images_live_without_memory),
        cmocka_unit_test(models_are_saved_without_memory),
    };
    return cmocka_run_group_tests(tests, scratch_setup, bert_teardown);
}
