/* Plans, weights and chains as a caller meets them: what is refused, what they say
   of themselves, what executing allocates, tuning files. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "device/backend.h"
#include "device/tuning.h"
#include "product/ks_plan.h"
#include "product/ks_plan.h"
#include "support/chains.h"
#include "support/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const danaus_pattern pair[2] = { { 1, 12, 4, 2 }, { 2, 4, 12, 1 } };

/* A plan, its weights and its chain for `pair`: 24 x 24. */
typedef struct fixture {
    danaus_device *device;
    random_chain c;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
} fixture;

static fixture fixture_make(danaus_device *device, const danaus_ks_desc *desc)
{
    rng r = { 1 };
    fixture f = { .device = device };
    f.c = chain_random(&r, pair, 2, desc && desc->dtype ? desc->dtype : DANAUS_F32, 1);
    assert_ok(danaus_ks_plan_create(device, pair, 2, desc, &f.plan));
    assert_ok(danaus_ks_weights_create(f.plan, device, f.c.chain, &f.weights));
    return f;
}

static void fixture_free(fixture *f)
{
    danaus_ks_weights_destroy(f->weights);
    danaus_ks_plan_destroy(f->plan);
    chain_free(&f->c);
}

static void wrong_plans_are_refused(void **state)
{
    danaus_device *device = *state;
    danaus_pattern odd[2] = { { 1, 2, 3, 1 }, { 1, 2, 3, 1 } }, none = { 0, 1, 1, 1 };
    danaus_pattern huge = { 1, INT64_MAX / 2, 4, 1 };
    danaus_ks_plan *plan = NULL;
    assert_status(
        danaus_ks_plan_create(NULL, pair, 2, NULL, &plan), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_plan_create(device, NULL, 2, NULL, &plan), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_plan_create(device, pair, 0, NULL, &plan), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_plan_create(device, pair, DANAUS_MAX_FACTORS + 1, NULL, &plan),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_plan_create(device, pair, 2, NULL, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_ks_plan_create(device, odd, 2, NULL, &plan), DANAUS_ERR_SHAPE);
    assert_status(
        danaus_ks_plan_create(device, &none, 1, NULL, &plan), DANAUS_ERR_SHAPE);
    assert_status(
        danaus_ks_plan_create(device, &huge, 1, NULL, &plan), DANAUS_ERR_SHAPE);
    assert_null(plan);
}

static void wrong_descriptions_are_refused(void **state)
{
    danaus_ks_desc wrong[10] = { 0 };
    wrong[0].layout = (danaus_layout)2;
    wrong[1].dtype = (danaus_dtype)99;
    wrong[2].math = (danaus_math)7;
    wrong[3].effort = (danaus_effort)9;
    wrong[4].batch = -1;
    wrong[5].reserved[0] = 1;
    wrong[6].reserved[7] = 1;
    wrong[7].activation = (danaus_activation)5;
    wrong[8].activation = (danaus_activation)-1;
    wrong[9].scale = (double)NAN;
    for (int i = 0; i < 10; i++) {
        danaus_ks_plan *plan = NULL;
        assert_status(
            danaus_ks_plan_create(*state, pair, 2, &wrong[i], &plan),
            DANAUS_ERR_ARGUMENT);
        assert_null(plan);
    }
}

static void activations_are_for_real_products(void **state)
{
    danaus_ks_desc complex = { .dtype = DANAUS_C64, .activation = DANAUS_GELU };
    danaus_ks_desc trained = { .activation = DANAUS_SILU, .gradients = 1 };
    danaus_ks_desc right = { .activation = DANAUS_GELU_TANH, .keep_factors = 1 };
    danaus_ks_plan *plan = NULL;
    char text[1000];
    assert_status(
        danaus_ks_plan_create(*state, pair, 2, &complex, &plan),
        DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "GELU is for real numbers"));
    assert_status(
        danaus_ks_plan_create(*state, pair, 2, &trained, &plan),
        DANAUS_ERR_UNSUPPORTED);
    assert_null(plan);
    assert_ok(danaus_ks_plan_create(*state, pair, 2, &right, &plan));
    danaus_ks_plan_describe(plan, text, sizeof text);
    const char *said = strstr(text, ", then GELU by tanh\n");
    assert_non_null(said);
    assert_string_equal(strchr(said, '\n'), "\n");
    danaus_ks_plan_destroy(plan);
}

static void scales_are_for_products_without_gradients(void **state)
{
    danaus_ks_desc trained = { .scale = 0.5, .gradients = 1 };
    danaus_ks_desc plain = { .scale = 1, .gradients = 1 };
    danaus_ks_plan *plan = NULL;
    assert_status(
        danaus_ks_plan_create(*state, pair, 2, &trained, &plan),
        DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "scale the weights"));
    assert_null(plan);
    assert_ok(danaus_ks_plan_create(*state, pair, 2, &plain, &plan));
    danaus_ks_plan_destroy(plan);
}

/* y is untouched where a residual is missing, not expected, or overlaps it. */
static void wrong_residuals_are_refused(void **state)
{
    danaus_device *device = *state;
    danaus_ks_desc with = { .residual = 1, .keep_factors = 1 };
    danaus_chain *chain = NULL;
    danaus_ks_plan *plan[2] = { NULL, NULL };
    danaus_ks_weights *weights[2] = { NULL, NULL };
    char text[1000];
    float x[64] = { 1 }, y[128];
    memset(y, 0, sizeof y);
    assert_ok(danaus_chain_create(pair, 2, DANAUS_F32, &chain));
    assert_in_range(danaus_chain_rows(chain), 1, 64);
    assert_in_range(danaus_chain_cols(chain), 1, 64);
    for (int i = 0; i < 2; i++) {
        assert_ok(danaus_ks_plan_create(device, pair, 2, i ? &with : NULL, &plan[i]));
        assert_ok(danaus_ks_weights_create(plan[i], device, chain, &weights[i]));
    }
    danaus_ks_plan_describe(plan[1], text, sizeof text);
    assert_non_null(strstr(text, ", added to a residual\n"));
    assert_null(strstr(text, "residual\nstep")); /* of the last step alone */
    assert_status(
        danaus_ks_execute(plan[1], device, weights[1], 1, x, y), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_execute_residual(plan[0], device, weights[0], 1, x, y, y),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_execute_residual(plan[1], device, weights[1], 1, x, NULL, y),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_execute_residual(plan[1], device, weights[1], 1, x, y + 1, y),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_execute_residual(plan[1], device, weights[1], 1, x, y, y + 1),
        DANAUS_ERR_ARGUMENT);
    for (int n = 0; n < 128; n++)
        assert_true(y[n] == 0);
    assert_ok(
        danaus_ks_execute_residual(plan[1], device, weights[1], 0, NULL, NULL, NULL));
    y[0] = 3;
    assert_ok(danaus_ks_execute_residual(plan[1], device, weights[1], 1, x, y, y));
    assert_true(y[0] == 3); /* weights are zero */
    for (int i = 0; i < 2; i++) {
        danaus_ks_weights_destroy(weights[i]);
        danaus_ks_plan_destroy(plan[i]);
    }
    danaus_chain_destroy(chain);
}

static void without_a_table_row_table_only_is_unsupported(void **state)
{
    danaus_ks_desc desc = { .effort = DANAUS_TABLE_ONLY };
    danaus_ks_plan *plan = NULL;
    assert_status(
        danaus_ks_plan_create(*state, pair, 2, &desc, &plan), DANAUS_ERR_UNSUPPORTED);
    assert_null(plan);
}

static void wrong_chains_are_refused(void **state)
{
    (void)state;
    danaus_chain *chain = NULL;
    danaus_pattern odd[2] = { { 1, 2, 3, 1 }, { 1, 2, 3, 1 } };
    danaus_pattern huge = { 1, (int64_t)1 << 30, (int64_t)1 << 28, 1 };
    assert_status(
        danaus_chain_create(NULL, 1, DANAUS_F32, &chain), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_chain_create(pair, 2, DANAUS_F32, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_chain_create(pair, 2, (danaus_dtype)0, &chain), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_chain_create(odd, 2, DANAUS_F32, &chain), DANAUS_ERR_SHAPE);
    assert_status(danaus_chain_create(&huge, 1, DANAUS_F32, &chain), DANAUS_ERR_MEMORY);
    assert_null(chain);
    danaus_chain_destroy(NULL);
}

static void a_chain_tells_what_it_is(void **state)
{
    (void)state;
    danaus_chain *chain = NULL;
    assert_ok(danaus_chain_create(pair, 2, DANAUS_C64, &chain));
    assert_int_equal(danaus_chain_count(chain), 2);
    assert_int_equal(danaus_chain_dtype(chain), DANAUS_C64);
    assert_int_equal(danaus_chain_rows(chain), 24);
    assert_int_equal(danaus_chain_cols(chain), 24);
    assert_int_equal(danaus_chain_parameters(chain), 192);
    danaus_pattern p = danaus_chain_pattern(chain, 1);
    assert_memory_equal(&p, &pair[1], sizeof p);
    assert_null(danaus_chain_weights(chain, 2));
    assert_null(danaus_chain_weights(chain, -1));
    assert_null(danaus_chain_weights_const(chain, 2));
    for (int l = 0; l < 2; l++)
        assert_ptr_equal(
            danaus_chain_weights_const(chain, l), danaus_chain_weights(chain, l));
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < 192; i++)
            assert_true(((float *)danaus_chain_weights(chain, l))[i] == 0);
    assert_null(danaus_chain_bias(chain));
    float bias[48] = { 1, 2 };
    assert_ok(danaus_chain_set_bias(chain, bias));
    assert_memory_equal(danaus_chain_bias(chain), bias, sizeof bias);
    bias[0] = 3;
    assert_ok(danaus_chain_set_bias(chain, bias));
    assert_memory_equal(danaus_chain_bias(chain), bias, sizeof bias);
    assert_ok(danaus_chain_set_bias(chain, NULL));
    assert_null(danaus_chain_bias(chain));
    danaus_chain_destroy(chain);
}

static void weights_must_fit_their_plan(void **state)
{
    danaus_device *device = *state;
    fixture f = fixture_make(device, NULL);
    danaus_pattern other[2] = { { 1, 12, 4, 2 }, { 1, 8, 24, 1 } };
    danaus_chain *shorter = NULL, *different = NULL, *complex = NULL;
    assert_ok(danaus_chain_create(pair, 1, DANAUS_F32, &shorter));
    assert_ok(danaus_chain_create(other, 2, DANAUS_F32, &different));
    assert_ok(danaus_chain_create(pair, 2, DANAUS_C64, &complex));
    danaus_ks_weights *weights = NULL;
    danaus_chain *wrong[] = { shorter, different };
    for (int i = 0; i < 2; i++) {
        assert_status(
            danaus_ks_weights_create(f.plan, device, wrong[i], &weights),
            DANAUS_ERR_SHAPE);
        assert_status(
            danaus_ks_weights_update(f.weights, device, wrong[i]), DANAUS_ERR_SHAPE);
    }
    assert_true(
        danaus_ks_weights_create(f.plan, device, complex, &weights) != DANAUS_OK);
    assert_status(
        danaus_ks_weights_create(NULL, device, f.c.chain, &weights),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_weights_create(f.plan, NULL, f.c.chain, &weights),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_weights_create(f.plan, device, f.c.chain, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_weights_update(NULL, device, f.c.chain), DANAUS_ERR_ARGUMENT);
    assert_null(weights);
    danaus_ks_weights_destroy(NULL);
    danaus_chain_destroy(shorter);
    danaus_chain_destroy(different);
    danaus_chain_destroy(complex);
    fixture_free(&f);
}

/* A plan's kernels are those of its device, and so is the order of its weights. */
static void weights_are_packed_on_their_plans_device(void **state)
{
    danaus_device *other;
    danaus_ks_weights *weights = NULL;
    fixture f = fixture_make(*state, NULL);
    assert_ok(danaus_device_open("cpu:scalar", &other));
    assert_string_not_equal(other->name, f.device->name);
    assert_status(
        danaus_ks_weights_create(f.plan, other, f.c.chain, &weights),
        DANAUS_ERR_ARGUMENT);
    assert_null(weights);
    assert_status(
        danaus_ks_weights_update(f.weights, other, f.c.chain), DANAUS_ERR_ARGUMENT);
    danaus_device_close(other);
    fixture_free(&f);
}

/* Bytes that weights are allocated, through a backend that counts them. */
static backend counting;
static size_t counted;
static danaus_status (*count_nothing)(danaus_device *, size_t, void **);

static danaus_status count_bytes(danaus_device *device, size_t bytes, void **memory)
{
    counted += bytes;
    return count_nothing(device, bytes, memory);
}

static size_t bytes_of_weights(danaus_device *device, const danaus_ks_desc *desc)
{
    const backend *plain = device->backend;
    counting = *plain;
    count_nothing = plain->alloc;
    counting.alloc = count_bytes;
    counted = 0;
    device->backend = &counting;
    fixture f = fixture_make(device, desc);
    fixture_free(&f);
    device->backend = plain;
    return counted;
}

/* Every form begins where memory of a device does. */
static size_t aligned(size_t bytes)
{
    return (bytes + DANAUS_SCRATCH_ALIGN - 1) / DANAUS_SCRATCH_ALIGN *
           DANAUS_SCRATCH_ALIGN;
}

/* f32 weights of `pair` in the type of sums are 2 times 96, and a bias of 24; kernels may
   fill up their last vectors. Gradients need the adjoint factors too, and those that are
   applied before the last one: a product that is merged, (1,24,24,1), has none of them. */
static void weights_are_packed_once(void **state)
{
    danaus_device *device = *state;
    danaus_ks_desc desc = { .keep_factors = 1 };
    size_t product = bytes_of_weights(device, &desc);
    assert_in_range(product, (2 * 96 + 24) * 4, 2 * (2 * 96 + 24) * 4);
    desc.gradients = 1;
    assert_in_range(
        bytes_of_weights(device, &desc), (4 * 96 + 24) * 4, product + 2 * 2 * 96 * 4);
    danaus_ks_desc merged = { .gradients = 1, .effort = DANAUS_TABLE_ONLY };
    danaus_device *other;
    assert_ok(danaus_device_open(device->name, &other));
    static const danaus_pattern known[] = { { 1, 24, 24, 1 },
                                            { 1, 12, 4, 2 },
                                            { 1, 4, 12, 2 },
                                            { 2, 4, 12, 1 },
                                            { 2, 12, 4, 1 } };
    size_t forms = aligned(24 * 4);
    for (int i = 0; i < 5; i++) {
        problem p = { .pattern = known[i], .dtype = DANAUS_F32, .batch = 4096 };
        const kernel *k = other->kernels;
        while (k->dtype != DANAUS_F32 || !dn_fits(k, &p))
            k++;
        dn_tuning_add(other->tuning, &p, k, i ? 1 : 1e-9);
        /* (1,12,4,2) is applied last. */
        forms += i == 1 ? 0 : aligned(dn_packed_bytes(k, &p));
    }
    assert_int_equal(bytes_of_weights(other, &merged), forms);
    danaus_device_close(other);
}

/* Packing that takes a second a byte decides between kernels, and merges nothing. */
static double slow_packing(const danaus_device *dev, const kernel *k, const problem *p)
{
    (void)dev;
    return (double)dn_packed_bytes(k, p);
}

static void fresh_weights_are_packed_in_few_bytes_and_not_merged(void **state)
{
    danaus_device *device = *state;
    const backend *plain = device->backend;
    /* Merged they are 1 weight instead of 8; lanes fill up vectors of 3 rows. */
    static const char *const chains[] = { "1,1,4,1 1,4,1,1", "5,3,7,1" };
    for (int n = 0; n < 2; n++)
        for (int fresh = 0; fresh < 2; fresh++) {
            danaus_pattern p[2];
            int count = 0;
            danaus_ks_plan *plan = NULL;
            danaus_ks_desc desc = { .fresh_weights = fresh, .batch = 1 };
            assert_ok(danaus_patterns_parse(chains[n], p, 2, &count));
            counting = *plain;
            counting.packing = slow_packing;
            device->backend = &counting;
            assert_ok(danaus_ks_plan_create(device, p, count, &desc, &plan));
            device->backend = plain;
            const ks_step *step = &plan->run.step[0];
            size_t least = SIZE_MAX;
            for (const kernel *k = device->kernels; k->name; k++)
                if (dn_fits(k, &step->p) && dn_packed_bytes(k, &step->p) < least)
                    least = dn_packed_bytes(k, &step->p);
            assert_int_equal(plan->run.count, n == 0 && fresh ? 2 : 1);
            if (fresh)
                assert_int_equal(dn_packed_bytes(step->kernel, &step->p), least);
            else if (n == 1)
                assert_true(dn_packed_bytes(step->kernel, &step->p) > least);
            danaus_ks_plan_destroy(plan);
        }
}

static void wrong_runs_are_refused(void **state)
{
    fixture f = fixture_make(*state, NULL), g = fixture_make(*state, NULL);
    float x[24] = { 0 }, y[24] = { 7 };
    assert_status(
        danaus_ks_execute(NULL, f.device, f.weights, 1, x, y), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_execute(f.plan, NULL, f.weights, 1, x, y), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_execute(f.plan, f.device, NULL, 1, x, y), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_execute(f.plan, f.device, f.weights, -1, x, y), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_execute(f.plan, f.device, f.weights, 1, NULL, y),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_execute(f.plan, f.device, f.weights, 1, x, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_true(
        danaus_ks_execute(f.plan, f.device, f.weights, INT64_MAX / 2, x, y) !=
        DANAUS_OK);
    assert_true(y[0] == 7);
    assert_ok(danaus_ks_execute(f.plan, f.device, f.weights, 0, NULL, NULL));
    float both[48] = { 1, [24] = 2 }; /* two columns, or one and one behind it */
    assert_status(
        danaus_ks_execute(f.plan, f.device, f.weights, 1, both, both),
        DANAUS_ERR_ARGUMENT);
    assert_string_equal(danaus_error_detail(), "y overlaps x");
    assert_status(
        danaus_ks_execute(f.plan, f.device, f.weights, 1, both, both + 23),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_execute(f.plan, f.device, f.weights, 2, both, both + 24),
        DANAUS_ERR_ARGUMENT);
    assert_true(both[0] == 1 && both[24] == 2);
    assert_ok(danaus_ks_execute(f.plan, f.device, f.weights, 1, both, both + 24));
    fixture_free(&f);
    fixture_free(&g);
}

static void gradients_need_a_plan_made_for_them(void **state)
{
    fixture f = fixture_make(*state, NULL);
    danaus_ks_desc adjoint = { .gradients = 1, .adjoint = 1 },
                   plain = { .gradients = 1 };
    fixture g = fixture_make(*state, &adjoint), h = fixture_make(*state, &plain);
    float x[24] = { 0 }, dy[24] = { 0 }, out[24] = { 7 };
    danaus_ks_gradients dx = { .dx = out }, dbias = { .dbias = out };
    danaus_ks_gradients odd = { .reserved = { out } };
    assert_status(
        danaus_ks_gradient(f.plan, f.device, f.weights, 1, x, dy, &dx),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_gradient(g.plan, g.device, g.weights, 1, x, dy, &dbias),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_gradient(h.plan, h.device, h.weights, 1, x, dy, &odd),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_gradient(h.plan, h.device, h.weights, 1, x, dy, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_gradient(h.plan, h.device, h.weights, -1, x, dy, &dx),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_gradient(h.plan, h.device, h.weights, 1, x, NULL, &dx),
        DANAUS_ERR_ARGUMENT);
    float dw[2][96];
    danaus_ks_gradients over[] = {
        { .dx = x },
        { .dx = dy },
        { .dx = out, .dbias = out + 23 },
        { .dx = out, .dw = (void *[]){ dw[0], out } },
        { .dw = (void *[]){ dw[0], dw[0] + 95 } },
    };
    for (size_t i = 0; i < sizeof over / sizeof *over; i++)
        assert_status(
            danaus_ks_gradient(h.plan, h.device, h.weights, 1, x, dy, &over[i]),
            DANAUS_ERR_ARGUMENT);
    assert_true(out[0] == 7);
    danaus_ks_gradients apart = { .dx = out, .dw = (void *[]){ dw[0], dw[1] } };
    assert_ok(danaus_ks_gradient(h.plan, h.device, h.weights, 1, x, dy, &apart));
    fixture_free(&f);
    fixture_free(&g);
    fixture_free(&h);
}

/* A plan's text names a kernel on every line and is cut like snprintf's. */
/* What is at an end of the chain comes from memory, or goes there: dy into the step that
   is the first one back, dx out of the last; all else was made just before. */
static void hints_of_gradients_say_what_is_cached(void **state)
{
    danaus_device *device = *state;
    const danaus_pattern p[] = { { 1, 2, 2, 4 }, { 2, 2, 2, 2 }, { 4, 2, 2, 1 } };
    for (int adjoint = 0; adjoint < 2; adjoint++) {
        danaus_ks_desc desc = { .adjoint = adjoint, .gradients = 1 };
        danaus_ks_plan *plan;
        assert_ok(danaus_ks_plan_create(device, p, 3, &desc, &plan));
        for (int i = 0; i < 3; i++) {
            const problem *forward = &plan->forward.step[i].p;
            const problem *back = &plan->back.step[i].p;
            assert_int_equal(forward->x_cached, i > 0);
            assert_int_equal(forward->y_cached, i < 2);
            assert_int_equal(back->x_cached, i < 2);
            assert_int_equal(back->y_cached, i > 0);
        }
        danaus_ks_plan_destroy(plan);
    }
}

static void a_plan_describes_its_steps(void **state)
{
    danaus_ks_desc desc = { .keep_factors = 1 };
    fixture f = fixture_make(*state, &desc);
    char text[1000], cut[10];
    size_t length = danaus_ks_plan_describe(f.plan, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, "ks."));
    assert_non_null(strstr(text, "(1,12,4,2)"));
    assert_non_null(strstr(text, "(2,4,12,1)"));
    assert_int_equal(danaus_ks_plan_describe(f.plan, cut, sizeof cut), length);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    assert_memory_equal(cut, text, sizeof cut - 1);
    assert_int_equal(danaus_ks_plan_describe(f.plan, NULL, 0), length);
    fixture_free(&f);
}

/* The table knows one kernel for the factors, one after the other or multiplied out. */
static void a_plan_tells_the_seconds_that_it_was_chosen_by(void **state)
{
    danaus_device *device = *state, *other;
    static const danaus_pattern known[] = { { 1, 12, 4, 2 },
                                            { 2, 4, 12, 1 },
                                            { 1, 24, 24, 1 } };
    assert_ok(danaus_device_open(device->name, &other));
    for (int i = 0; i < 3; i++) {
        problem p = { .pattern = known[i], .dtype = DANAUS_F32, .batch = 64 };
        const kernel *k = other->kernels;
        while (k->dtype != DANAUS_F32 || !dn_fits(k, &p))
            k++;
        dn_tuning_add(other->tuning, &p, k, i == 2 ? 0.5 : 0.375);
    }
    for (int keep = 0; keep <= 1; keep++) {
        danaus_ks_plan *plan;
        const danaus_ks_desc desc = { .effort = DANAUS_TABLE_ONLY,
                                      .batch = 64,
                                      .keep_factors = keep };
        assert_ok(danaus_ks_plan_create(other, known, 2, &desc, &plan));
        assert_true(danaus_ks_plan_seconds(plan) == (keep ? 0.75 : 0.5));
        danaus_ks_plan_destroy(plan);
    }
    danaus_device_close(other);
}

static void the_second_run_allocates_nothing(void **state)
{
    danaus_device *device = *state;
    for (int form = 0; form < 4; form++) {
        danaus_ks_desc desc = { .layout = (danaus_layout)(form % 2), .gradients = 1 };
        fixture f = fixture_make(device, &desc);
        int64_t batch = form / 2 ? 3000 : 5;
        rng r = { 2 };
        array x = array_random(&r, DANAUS_F32, 24 * batch);
        array y = array_make(DANAUS_F32, 24 * batch);
        float dw0[96], dw1[96], dbias[24];
        danaus_ks_gradients g = { .dw = (void *[]){ dw0, dw1 }, .dbias = dbias };
        for (int run = 0; run < 3; run++) {
            dn_alloc_fail_at(0);
            assert_ok(
                danaus_ks_execute(f.plan, device, f.weights, batch, x.data, y.data));
            long during_execute = dn_alloc_fail_at(0);
            assert_ok(danaus_ks_gradient(
                f.plan, device, f.weights, batch, x.data, y.data, &g));
            long during_gradient = dn_alloc_fail_at(0);
            if (run) {
                assert_int_equal(during_execute, 0);
                assert_int_equal(during_gradient, 0);
            }
        }
        array_free(&x);
        array_free(&y);
        fixture_free(&f);
    }
}

static void updated_weights_are_used(void **state)
{
    fixture f = fixture_make(*state, NULL);
    rng r = { 9 };
    array x = array_random(&r, DANAUS_F32, 24 * 5), y = array_make(DANAUS_F32, 24 * 5);
    for (int l = 0; l < 2; l++) {
        array_free(&f.c.w[l]);
        f.c.w[l] = array_random(&r, DANAUS_F32, 96);
        memcpy(danaus_chain_weights(f.c.chain, l), f.c.w[l].data, 96 * sizeof(float));
    }
    array_free(&f.c.bias);
    f.c.bias = array_random(&r, DANAUS_F32, 24);
    assert_ok(danaus_chain_set_bias(f.c.chain, f.c.bias.data));
    assert_ok(danaus_ks_weights_update(f.weights, f.device, f.c.chain));
    danaus_ks_desc desc = { 0 };
    for (int bias = 1; bias >= 0; bias--) {
        assert_ok(danaus_ks_execute(f.plan, f.device, f.weights, 5, x.data, y.data));
        signal expected = multiply_exactly(&f.c, &desc, 5, &x);
        expect_signal(&y, DANAUS_BATCH_FIRST, &expected, "after an update");
        signal_free(&expected);
        array_free(&f.c.bias); /* and once more without one */
        assert_ok(danaus_chain_set_bias(f.c.chain, NULL));
        assert_ok(danaus_ks_weights_update(f.weights, f.device, f.c.chain));
    }
    array_free(&x);
    array_free(&y);
    fixture_free(&f);
}

static void lent_scratch_is_used_or_too_small(void **state)
{
    danaus_ks_desc desc = { .keep_factors = 1 };
    fixture f = fixture_make(*state, &desc);
    rng r = { 4 };
    array x = array_random(&r, DANAUS_F32, 24 * 100);
    array y = array_make(DANAUS_F32, 24 * 100);
    _Alignas(256) static char small[64], large[1 << 24];
    assert_ok(danaus_device_set_threads(f.device, 1));
    assert_status(
        danaus_device_set_scratch(f.device, small + 64, 63), DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_device_set_scratch(f.device, small, sizeof small));
    assert_status(
        danaus_ks_execute(f.plan, f.device, f.weights, 100, x.data, y.data),
        DANAUS_ERR_MEMORY);
    assert_true(array_untouched(&y));
    assert_ok(danaus_device_set_scratch(f.device, large, sizeof large));
    dn_alloc_fail_at(0);
    assert_ok(danaus_ks_execute(f.plan, f.device, f.weights, 100, x.data, y.data));
    assert_int_equal(dn_alloc_fail_at(0), 0);
    signal expected = multiply_exactly(&f.c, &desc, 100, &x);
    expect_signal(&y, DANAUS_BATCH_FIRST, &expected, "lent scratch");
    signal_free(&expected);
    assert_ok(danaus_device_set_scratch(f.device, NULL, 0));
    assert_ok(danaus_device_set_threads(f.device, 0));
    array_free(&x);
    array_free(&y);
    fixture_free(&f);
}

static void wrong_applications_are_refused(void **state)
{
    fixture f = fixture_make(*state, NULL);
    float x[24] = { 0 }, y[24] = { 7 };
    assert_status(
        danaus_ks_apply(NULL, f.c.chain, DANAUS_BATCH_LAST, 1, x, y),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_apply(f.device, NULL, DANAUS_BATCH_LAST, 1, x, y),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_apply(f.device, f.c.chain, (danaus_layout)9, 1, x, y),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_apply(f.device, f.c.chain, DANAUS_BATCH_LAST, -1, x, y),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_apply(f.device, f.c.chain, DANAUS_BATCH_LAST, 1, NULL, y),
        DANAUS_ERR_ARGUMENT);
    assert_true(y[0] == 7);
    fixture_free(&f);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(wrong_plans_are_refused, device),
        cmocka_unit_test_prestate(wrong_descriptions_are_refused, device),
        cmocka_unit_test_prestate(activations_are_for_real_products, device),
        cmocka_unit_test_prestate(scales_are_for_products_without_gradients, device),
        cmocka_unit_test_prestate(wrong_residuals_are_refused, device),
        cmocka_unit_test_prestate(
            without_a_table_row_table_only_is_unsupported, device),
        cmocka_unit_test_prestate(wrong_chains_are_refused, device),
        cmocka_unit_test_prestate(a_chain_tells_what_it_is, device),
        cmocka_unit_test_prestate(weights_must_fit_their_plan, device),
        cmocka_unit_test_prestate(weights_are_packed_on_their_plans_device, device),
        cmocka_unit_test_prestate(weights_are_packed_once, device),
        cmocka_unit_test_prestate(
            fresh_weights_are_packed_in_few_bytes_and_not_merged, device),
        cmocka_unit_test_prestate(wrong_runs_are_refused, device),
        cmocka_unit_test_prestate(gradients_need_a_plan_made_for_them, device),
        cmocka_unit_test_prestate(hints_of_gradients_say_what_is_cached, device),
        cmocka_unit_test_prestate(a_plan_describes_its_steps, device),
        cmocka_unit_test_prestate(
            a_plan_tells_the_seconds_that_it_was_chosen_by, device),
        cmocka_unit_test_prestate(the_second_run_allocates_nothing, device),
        cmocka_unit_test_prestate(updated_weights_are_used, device),
        cmocka_unit_test_prestate(lent_scratch_is_used_or_too_small, device),
        cmocka_unit_test_prestate(wrong_applications_are_refused, device),
    };
    int failed = cmocka_run_group_tests_name("plan", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
