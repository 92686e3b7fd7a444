/* The n-th allocation fails while a causal model is loaded, scores or generates, for every n:
   the call says MEMORY, or does without, and works afterwards. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "support/files.h"
#include "support/hyena.h"

#include <string.h>

#define TOKENS           40
#define MOST_ALLOCATIONS 20000

typedef struct scene {
    danaus_device *device;
    danaus_model *model;
    int32_t ids[TOKENS];
    float scores[TOKENS];
    int64_t written;
} scene;

static danaus_status load_once(scene *s)
{
    danaus_model *model = NULL;
    danaus_status status = danaus_model_load(s->device, scratch_directory(), &model);
    assert_int_equal(model == NULL, status != DANAUS_OK);
    danaus_model_destroy(model);
    return status;
}

/* Scores by a model that has no spectra yet. */
static danaus_status score_once(scene *s)
{
    const int64_t offsets[] = { 0, 3, TOKENS };
    float scores[TOKENS];
    danaus_status status =
        danaus_model_score(s->model, s->device, 2, offsets, s->ids, NULL, NULL, scores);
    if (status == DANAUS_OK)
        assert_memory_equal(scores, s->scores, sizeof scores);
    return status;
}

static int count_token(void *user, int32_t token)
{
    scene *s = user;
    assert_in_range(token, 0, 1000);
    s->written++;
    return 0;
}

static danaus_status generate_once(scene *s)
{
    const danaus_sampling how = { .max_tokens = 5, .temperature = 1, .top_k = 3 };
    s->written = 0;
    danaus_status status =
        danaus_model_generate(s->model, s->device, s->ids, 20, &how, count_token, s);
    assert_true(status != DANAUS_OK || s->written == 5);
    return status;
}

/* Tries a call until it gets through without reaching the n-th allocation. */
static void fail_each(scene *s, danaus_status (*try)(scene *s))
{
    for (long n = 1;; n++) {
        danaus_model_destroy(s->model);
        assert_ok(danaus_model_load(s->device, scratch_directory(), &s->model));
        dn_alloc_fail_at(n);
        danaus_status status = try(s);
        long made = dn_alloc_fail_at(0);
        assert_in_range(n, 1, MOST_ALLOCATIONS);
        if (status == DANAUS_OK && made < n) {
            assert_in_range(n, 10, MOST_ALLOCATIONS);
            return;
        }
        if (status == DANAUS_OK)
            continue; /* it did without */
        assert_int_equal(status, DANAUS_ERR_MEMORY);
        assert_non_null(strstr(danaus_error_detail(), "memory"));
        assert_ok(try(s));
    }
}

static void causal_models_live_without_memory(void **state)
{
    (void)state;
    scene s = { 0 };
    rng r = { 3 };
    small_hyena m = hyena_random(&r, TOKENS);
    while (m.head == 1 || m.layers != 2) {
        hyena_free(&m);
        m = hyena_random(&r, TOKENS);
    }
    for (int i = 0; i < TOKENS; i++)
        s.ids[i] = (int32_t)rng_int(&r, 0, m.vocabulary - 1);
    assert_ok(danaus_device_open("cpu", &s.device));
    assert_ok(danaus_device_set_threads(s.device, 1));
    s.model = hyena_load(&m, s.device);
    const int64_t offsets[] = { 0, 3, TOKENS };
    assert_ok(
        danaus_model_score(s.model, s.device, 2, offsets, s.ids, NULL, NULL, s.scores));
    fail_each(&s, load_once);
    fail_each(&s, score_once);
    fail_each(&s, generate_once);
    danaus_model_destroy(s.model);
    danaus_device_close(s.device);
    hyena_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal_models_live_without_memory),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
