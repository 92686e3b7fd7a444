/* Gradients: against the oracle, against finite differences of a loss, and what
   callers may leave out. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/dtype.h"
#include "support/chains.h"
#include "support/device.h"

#include <math.h>
#include <string.h>

static random_chain random_case(rng *r, danaus_dtype dtype, danaus_ks_desc *desc)
{
    danaus_pattern p[6];
    int count = (int)rng_int(r, 1, 6);
    random_patterns(r, count, 40, p);
    *desc = (danaus_ks_desc){ .dtype = dtype, .gradients = 1 };
    desc->layout = rng_next(r) % 2 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
    desc->adjoint = (int)(rng_next(r) % 2);
    return chain_random(r, p, count, dtype, (int)(rng_next(r) % 2));
}

static void gradients_match_the_oracle(void **state)
{
    for (int t = 0; t < TEST_DTYPES; t++)
        for (int round = 0; round < rounds_of(60); round++) {
            rng r = { (uint64_t)round };
            danaus_ks_desc desc;
            random_chain c = random_case(&r, test_dtypes[t], &desc);
            int64_t batch = round % 8 ? rng_int(&r, 0, 50) : rng_int(&r, 500, 1500);
            check_gradients(&r, *state, &c, &desc, batch);
            chain_free(&c);
        }
}

/* Blocks and batches from which on a library of dense products may be at work. */
static void gradients_of_larger_blocks_match_the_oracle(void **state)
{
    for (int t = 0; t < TEST_DTYPES; t++)
        for (int round = 0; round < rounds_of(8) + 3; round++) {
            rng r = { (uint64_t)round };
            danaus_pattern p = { rng_int(&r, 1, 3), rng_int(&r, 16, 30),
                                 rng_int(&r, 16, 30), rng_int(&r, 1, 4) };
            p.d = round ? p.d : 16;
            danaus_ks_desc desc = { .dtype = test_dtypes[t], .gradients = 1 };
            desc.layout = round % 2 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
            desc.adjoint = round / 2 % 2;
            random_chain c = chain_random(&r, &p, 1, desc.dtype, 0);
            check_gradients(&r, *state, &c, &desc, rng_int(&r, 64, 700));
            chain_free(&c);
        }
}

/* The loss L = Re <dy, W x> in f64 from a product. */
static double loss(
    danaus_device *device, const random_chain *c, const danaus_ks_desc *desc,
    int64_t batch, const array *x, const array *dy)
{
    array y = multiply(device, c, desc, batch, x);
    double sum = 0;
    for (int64_t i = 0; i < y.count; i++) {
        value u = element_get(y.dtype, y.data, i),
              v = element_get(dy->dtype, dy->data, i);
        sum += u.re * v.re + u.im * v.im;
    }
    array_free(&y);
    return sum;
}

/* (L(p + h e) - L(p - h e)) / 2 h for one part of one number; L is linear in each
   number, so that only rounding is left. */
static double slope(
    danaus_device *device, const random_chain *c, const danaus_ks_desc *desc,
    int64_t batch, const array *x, const array *dy, double *number)
{
    double kept = *number, h = 0.5;
    *number = kept + h;
    double above = loss(device, c, desc, batch, x, dy);
    *number = kept - h;
    double below = loss(device, c, desc, batch, x, dy);
    *number = kept;
    return (above - below) / (2 * h);
}

/* A few numbers of every factor and of x. */
static void check_slopes(
    rng *r, danaus_device *device, random_chain *c, const danaus_ks_desc *desc,
    int64_t batch)
{
    int parts = precision_of(c->dtype).complex ? 2 : 1;
    array x = array_random(r, c->dtype, inputs_of(c, desc->adjoint) * batch);
    array dy = array_random(r, c->dtype, outputs_of(c, desc->adjoint) * batch);
    gradients g = gradients_make(c, desc, batch);
    gradients_run(device, c, desc, batch, &x, &dy, &g);
    for (int probe = 0; probe < 12; probe++) {
        int l = (int)rng_int(r, -1, c->count - 1);
        double *numbers = l < 0 ? x.data : danaus_chain_weights(c->chain, l);
        double *found = l < 0 ? g.dx.data : g.dw[l].data;
        int64_t count = (l < 0 ? x.count : weights_of(c->p[l])) * parts;
        int64_t at = rng_int(r, 0, count - 1);
        double expected = slope(device, c, desc, batch, &x, &dy, numbers + at);
        assert_true(fabs(found[at] - expected) <= 1e-9 * (1 + fabs(expected)));
    }
    gradients_free(&g);
    array_free(&x);
    array_free(&dy);
}

static void gradients_are_slopes(void **state)
{
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        danaus_ks_desc desc;
        random_chain c = random_case(&r, round % 2 ? DANAUS_C128 : DANAUS_F64, &desc);
        check_slopes(&r, *state, &c, &desc, rng_int(&r, 1, 10));
        chain_free(&c);
    }
}

/* Members that are NULL are skipped; the others get the same bits as before. */
static void what_is_not_asked_for_is_not_made(void **state)
{
    danaus_device *device = *state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        danaus_ks_desc desc;
        random_chain c = random_case(&r, test_dtypes[round % TEST_DTYPES], &desc);
        int64_t batch = rng_int(&r, 0, 30);
        array x = array_random(&r, c.dtype, inputs_of(&c, desc.adjoint) * batch);
        array dy = array_random(&r, c.dtype, outputs_of(&c, desc.adjoint) * batch);
        gradients all = gradients_make(&c, &desc, batch);
        gradients_run(device, &c, &desc, batch, &x, &dy, &all);
        gradients some = gradients_make(&c, &desc, batch), kept = some;
        unsigned wanted = (unsigned)rng_next(&r);
        if (wanted & 1)
            some.dx.data = NULL;
        if (wanted & 2)
            some.dbias.data = NULL;
        for (int l = 0; l < c.count; l++)
            if (wanted & 4u << l)
                some.dw[l].data = NULL;
        gradients_run(device, &c, &desc, batch, &x, &dy, &some);
        assert_true(
            some.dx.data ? array_same(&kept.dx, &all.dx) : array_untouched(&kept.dx));
        if (!desc.adjoint)
            assert_true(
                some.dbias.data ? array_same(&kept.dbias, &all.dbias)
                                : array_untouched(&kept.dbias));
        for (int l = 0; l < c.count; l++)
            assert_true(
                some.dw[l].data ? array_same(&kept.dw[l], &all.dw[l])
                                : array_untouched(&kept.dw[l]));
        gradients_free(&kept);
        gradients_free(&all);
        array_free(&x);
        array_free(&dy);
        chain_free(&c);
    }
}

static void expect_rounded(const array *sums, const array *found)
{
    array expected = array_make(found->dtype, found->count);
    dn_convert(sums->dtype, sums->data, found->dtype, expected.data, found->count);
    assert_true(array_same(&expected, found));
    array_free(&expected);
}

static void use_type(array *a, danaus_dtype dtype)
{
    int64_t count = a->count;
    array_free(a);
    *a = array_make(dtype, count);
}

static void rounded_gradients_are_sums_rounded_once(void **state)
{
    for (int round = 0; round < rounds_of(60) + 4; round++) {
        rng r = { (uint64_t)round };
        danaus_ks_desc desc;
        random_chain c = random_case(&r, test_dtypes[round % TEST_DTYPES], &desc);
        int64_t batch = round % 4 ? rng_int(&r, 0, 50) : rng_int(&r, 300, 900);
        array x = array_random(&r, c.dtype, inputs_of(&c, desc.adjoint) * batch);
        array dy = array_random(&r, c.dtype, outputs_of(&c, desc.adjoint) * batch);
        gradients sums = gradients_make(&c, &desc, batch);
        gradients rounded = gradients_make(&c, &desc, batch);
        rounded.rounded = 1;
        for (int l = 0; l < c.count; l++)
            use_type(&rounded.dw[l], c.dtype);
        if (!desc.adjoint)
            use_type(&rounded.dbias, c.dtype);
        gradients_run(*state, &c, &desc, batch, &x, &dy, &sums);
        gradients_run(*state, &c, &desc, batch, &x, &dy, &rounded);
        assert_true(array_same(&sums.dx, &rounded.dx));
        for (int l = 0; l < c.count; l++)
            expect_rounded(&sums.dw[l], &rounded.dw[l]);
        if (!desc.adjoint)
            expect_rounded(&sums.dbias, &rounded.dbias);
        gradients_free(&sums);
        gradients_free(&rounded);
        array_free(&x);
        array_free(&dy);
        chain_free(&c);
    }
}

/* The whole dw array may be missing, too. */
static void dx_alone_needs_no_dw(void **state)
{
    danaus_device *device = *state;
    rng r = { 3 };
    danaus_pattern p[2] = { { 1, 4, 2, 2 }, { 2, 2, 4, 1 } };
    random_chain c = chain_random(&r, p, 2, DANAUS_F32, 0);
    danaus_ks_desc desc = { .gradients = 1 };
    danaus_ks_plan *plan = NULL;
    danaus_ks_weights *weights = NULL;
    assert_ok(danaus_ks_plan_create(device, p, 2, &desc, &plan));
    assert_ok(danaus_ks_weights_create(plan, device, c.chain, &weights));
    array all[3];
    void *on[3];
    for (int i = 0; i < 3; i++) {
        all[i] = array_random(&r, DANAUS_F32, 8);
        on[i] = to_device(device, &all[i]);
    }
    danaus_ks_gradients only = { .dx = on[2] }, nothing = { 0 };
    assert_ok(danaus_ks_gradient(plan, device, weights, 1, on[0], on[1], &only));
    assert_ok(danaus_ks_gradient(plan, device, weights, 1, on[0], on[1], &nothing));
    for (int i = 0; i < 3; i++) {
        from_device(device, &all[i], on[i]);
        array_free(&all[i]);
    }
    danaus_ks_weights_destroy(weights);
    danaus_ks_plan_destroy(plan);
    chain_free(&c);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(gradients_match_the_oracle, device),
        cmocka_unit_test_prestate(gradients_of_larger_blocks_match_the_oracle, device),
        cmocka_unit_test_prestate(gradients_are_slopes, device),
        cmocka_unit_test_prestate(what_is_not_asked_for_is_not_made, device),
        cmocka_unit_test_prestate(rounded_gradients_are_sums_rounded_once, device),
        cmocka_unit_test_prestate(dx_alone_needs_no_dw, device),
    };
    int failed = cmocka_run_group_tests_name("gradient", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
