/* What must hold of every product whatever the kernels: the oracle on random
   chains, linearity, the adjoint across the dot product, layouts and batches that
   agree, merged neighbours. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/chains.h"
#include "support/device.h"

#include <math.h>
#include <string.h>

/* A random chain of 1 to 10 factors and a random description. */
static random_chain random_case(rng *r, danaus_dtype dtype, danaus_ks_desc *desc)
{
    danaus_pattern p[10];
    int longest = dtype == DANAUS_F16 ? 4 : 10; /* f16 ends at 65504 */
    int count = (int)rng_int(r, 1, rng_next(r) % 2 ? 3 : longest);
    random_patterns(r, count, rng_next(r) % 8 ? 40 : 200, p);
    *desc = (danaus_ks_desc){ .dtype = dtype };
    desc->layout = rng_next(r) % 2 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
    desc->adjoint = (int)(rng_next(r) % 2);
    desc->keep_factors = (int)(rng_next(r) % 2);
    desc->fresh_weights = (int)(rng_next(r) % 2);
    desc->batch = rng_int(r, 0, 3) * 100;
    return chain_random(r, p, count, dtype, (int)(rng_next(r) % 2));
}

static int64_t random_batch(rng *r)
{
    return rng_next(r) % 8 ? rng_int(r, 0, 70) : rng_int(r, 300, 1200);
}

static void random_chains_match_the_oracle(void **state)
{
    for (int t = 0; t < TEST_DTYPES; t++)
        for (int round = 0; round < rounds_of(200); round++) {
            rng r = { (uint64_t)round };
            danaus_ks_desc desc;
            random_chain c = random_case(&r, test_dtypes[t], &desc);
            desc.activation = random_activation(&r, desc.dtype);
            desc.residual = (int)(rng_next(&r) % 2);
            desc.scale = rng_next(&r) % 2 ? 2 * rng_unit(&r) - 1 : 0;
            check_product(&r, *state, &c, &desc, random_batch(&r));
            chain_free(&c);
        }
}

/* Weights of another type than x and y: both real, or both complex. */
static void chains_of_other_types_are_converted(void **state)
{
    for (int from = 0; from < TEST_DTYPES; from++)
        for (int to = 0; to < TEST_DTYPES; to++) {
            danaus_dtype given = test_dtypes[from], wanted = test_dtypes[to];
            if (precision_of(given).complex != precision_of(wanted).complex)
                continue;
            for (int round = 0; round < rounds_of(10); round++) {
                rng r = { (uint64_t)round };
                danaus_ks_desc desc;
                random_chain c = random_case(&r, given, &desc);
                desc.dtype = wanted;
                desc.activation = random_activation(&r, wanted);
                check_product(&r, *state, &c, &desc, rng_int(&r, 0, 40));
                chain_free(&c);
            }
        }
}

static value dot(const array *x, const array *y)
{
    value sum = { 0, 0 };
    for (int64_t i = 0; i < x->count; i++) {
        value u = element_get(x->dtype, x->data, i);
        value v = element_get(y->dtype, y->data, i);
        sum.re += u.re * v.re + u.im * v.im;
        sum.im += u.re * v.im - u.im * v.re;
    }
    return sum;
}

/* What <u, v> errs by when v errs by the bounds of `exact`. */
static double dot_bound(const array *u, danaus_layout layout, const signal *exact)
{
    signal us = signal_read(u, layout, exact->size, exact->batch);
    double bound = 0;
    for (int64_t i = 0; i < u->count; i++)
        bound += 2 * us.m[i] * (exact->e[i] + 0x1p-50 * (double)u->count * exact->m[i]);
    signal_free(&us);
    return bound;
}

/* <u, W v> = <W^H u, v>: forward and adjoint kernels, packing and layouts at once. */
static void adjoint_moves_across_the_dot_product(void **state)
{
    for (int t = 0; t < TEST_DTYPES; t++)
        for (int round = 0; round < rounds_of(30); round++) {
            rng r = { (uint64_t)round };
            danaus_ks_desc desc;
            random_chain c = random_case(&r, test_dtypes[t], &desc);
            array_free(&c.bias);
            assert_ok(danaus_chain_set_bias(c.chain, NULL));
            int64_t n = rng_int(&r, 1, 50);
            array v = array_random(&r, c.dtype, c.cols * n);
            array u = array_random(&r, c.dtype, c.rows * n);
            desc.adjoint = 0;
            array wv = multiply(*state, &c, &desc, n, &v);
            signal wv_exact = multiply_exactly(&c, &desc, n, &v);
            desc.adjoint = 1;
            array wu = multiply(*state, &c, &desc, n, &u);
            signal wu_exact = multiply_exactly(&c, &desc, n, &u);
            double bound = dot_bound(&u, desc.layout, &wv_exact) +
                           dot_bound(&v, desc.layout, &wu_exact);
            value left = dot(&u, &wv), right = dot(&wu, &v);
            assert_true(hypot(left.re - right.re, left.im - right.im) <= bound);
            signal_free(&wv_exact);
            signal_free(&wu_exact);
            array *all[] = { &u, &v, &wv, &wu };
            for (int i = 0; i < 4; i++)
                array_free(all[i]);
            chain_free(&c);
        }
}

/* Libraries add up in another order for another batch. */
static int is_by_a_library(
    danaus_device *device, const random_chain *c, const danaus_ks_desc *desc)
{
    danaus_ks_plan *plan;
    char text[4096];
    assert_ok(danaus_ks_plan_create(device, c->p, c->count, desc, &plan));
    danaus_ks_plan_describe(plan, text, sizeof text);
    danaus_ks_plan_destroy(plan);
    return strstr(text, "ks.blas.") || strstr(text, "ks.dense.");
}

/* Column s of a product is its product of column s: any batch gives its bits. */
static void columns_do_not_know_of_each_other(void **state)
{
    danaus_device *device = *state;
    for (int t = 0; t < TEST_DTYPES; t++)
        for (int round = 0; round < rounds_of(20); round++) {
            rng r = { (uint64_t)round };
            danaus_ks_desc desc;
            random_chain c = random_case(&r, test_dtypes[t], &desc);
            desc.layout = DANAUS_BATCH_FIRST;
            int64_t n = rng_int(&r, 2, 400), cut = rng_int(&r, 1, n - 1);
            int64_t in = inputs_of(&c, desc.adjoint),
                    out = outputs_of(&c, desc.adjoint);
            array x = array_random(&r, c.dtype, in * n);
            array y = multiply(device, &c, &desc, n, &x);
            array left = x, right = x;
            left.count = in * cut;
            right.count = in * (n - cut);
            size_t size = danaus_dtype_size(c.dtype);
            right.data = (char *)x.data + (size_t)(in * cut) * size;
            array y0 = multiply(device, &c, &desc, cut, &left);
            array y1 = multiply(device, &c, &desc, n - cut, &right);
            size_t head = (size_t)(out * cut) * size,
                   rest = (size_t)(out * (n - cut)) * size;
            if (!is_by_a_library(device, &c, &desc)) {
                assert_memory_equal(y.data, y0.data, head);
                assert_memory_equal((char *)y.data + head, y1.data, rest);
            }
            array *all[] = { &x, &y, &y0, &y1 };
            for (int i = 0; i < 4; i++)
                array_free(all[i]);
            chain_free(&c);
        }
}

/* W (2 x) = 2 W x bit for bit; powers of two scale every rounding. */
static void doubling_x_doubles_y(void **state)
{
    for (int t = 0; t < TEST_DTYPES; t++) {
        if (test_dtypes[t] == DANAUS_F16) /* subnormal numbers round otherwise */
            continue;
        for (int round = 0; round < rounds_of(20); round++) {
            rng r = { (uint64_t)round };
            danaus_ks_desc desc;
            random_chain c = random_case(&r, test_dtypes[t], &desc);
            array_free(&c.bias);
            assert_ok(danaus_chain_set_bias(c.chain, NULL));
            int64_t n = rng_int(&r, 1, 60);
            array x = array_random(&r, c.dtype, inputs_of(&c, desc.adjoint) * n);
            array y = multiply(*state, &c, &desc, n, &x);
            for (int64_t i = 0; i < x.count; i++) {
                value v = element_get(c.dtype, x.data, i);
                element_put(c.dtype, x.data, i, (value){ 2 * v.re, 2 * v.im });
            }
            array z = multiply(*state, &c, &desc, n, &x);
            for (int64_t i = 0; i < y.count; i++) {
                value v = element_get(c.dtype, y.data, i);
                value w = element_get(c.dtype, z.data, i);
                assert_true(w.re == 2 * v.re && w.im == 2 * v.im);
            }
            array_free(&x);
            array_free(&y);
            array_free(&z);
            chain_free(&c);
        }
    }
}

/* Chains that planners like to merge or fuse, with and without leave to do so. */
static void merged_factors_are_the_product(void **state)
{
    static const char *const chains[] = {
        "1,192,48,2 2,48,192,1",
        "1,2,2,8 2,2,2,4 4,2,2,2 8,2,2,1",
        "1,4,1,1 1,1,4,1",
        "16,1,1,4 1,64,64,1",
        "1,32,4,8 8,4,32,1",
        "1,3,3,9 3,3,3,3 9,3,3,1",
        "1,1,1,64 64,1,1,1 1,1,1,64",
    };
    int step = share_of_cases() > 1 ? 7 : 1; /* every type, and every form */
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
        for (int form = 0; form < 8 * TEST_DTYPES; form += step) {
            rng r = { i * 100 + (uint64_t)form };
            danaus_pattern p[8];
            int count = 0;
            assert_ok(danaus_patterns_parse(chains[i], p, 8, &count));
            danaus_dtype dtype = test_dtypes[form / 8];
            danaus_ks_desc desc = { .dtype = dtype,
                                    .layout = (danaus_layout)(form % 2),
                                    .adjoint = form / 2 % 2,
                                    .keep_factors = form / 4 % 2 };
            random_chain c = chain_random(&r, p, count, dtype, form % 2);
            check_product(&r, *state, &c, &desc, rng_int(&r, 1, 30));
            chain_free(&c);
        }
}

/* A measured choice is as right as an estimated one. */
static void measured_plans_match_the_oracle(void **state)
{
    for (int t = 0; t < TEST_DTYPES; t++)
        for (int round = t; round < t + rounds_of(4); round++) {
            rng r = { (uint64_t)round };
            danaus_ks_desc desc;
            danaus_pattern p[3];
            random_patterns(&r, 1 + round % 3, 30, p);
            random_chain c = chain_random(&r, p, 1 + round % 3, test_dtypes[t], 1);
            desc = (danaus_ks_desc){ .dtype = c.dtype,
                                     .effort = DANAUS_MEASURE,
                                     .layout = (danaus_layout)(round % 2),
                                     .batch = 20 };
            check_product(&r, *state, &c, &desc, 33);
            chain_free(&c);
        }
}

/* danaus_ks_apply: everything in one call. */
static void apply_is_a_whole_product(void **state)
{
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        danaus_ks_desc desc;
        random_chain c = random_case(&r, test_dtypes[round % TEST_DTYPES], &desc);
        desc.adjoint = 0;
        int64_t n = rng_int(&r, 0, 20);
        array x = array_random(&r, c.dtype, c.cols * n);
        array y = array_make(c.dtype, c.rows * n);
        assert_ok(danaus_ks_apply(*state, c.chain, desc.layout, n, x.data, y.data));
        signal expected = multiply_exactly(&c, &desc, n, &x);
        expect_signal(&y, desc.layout, &expected, name_of_case(&c, &desc, n));
        signal_free(&expected);
        array_free(&x);
        array_free(&y);
        chain_free(&c);
    }
}

/* to_dense against the product with the identity. */
static void the_dense_form_is_the_product_with_the_identity(void **state)
{
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        danaus_ks_desc desc;
        random_chain c = random_case(&r, test_dtypes[round % TEST_DTYPES], &desc);
        desc = (danaus_ks_desc){ .dtype = c.dtype, .layout = DANAUS_BATCH_LAST };
        array one = array_make(c.dtype, c.cols * c.cols);
        for (int64_t i = 0; i < one.count; i++)
            element_put(c.dtype, one.data, i, (value){ i % (c.cols + 1) == 0, 0 });
        array dense = array_make(c.dtype, c.rows * c.cols);
        assert_ok(danaus_chain_to_dense(c.chain, dense.data));
        array_free(&c.bias);
        signal w = multiply_exactly(&c, &desc, c.cols, &one);
        expect_signal(&dense, DANAUS_BATCH_LAST, &w, name_of_case(&c, &desc, c.cols));
        signal_free(&w);
        array_free(&one);
        array_free(&dense);
        chain_free(&c);
    }
    (void)state;
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(random_chains_match_the_oracle, device),
        cmocka_unit_test_prestate(chains_of_other_types_are_converted, device),
        cmocka_unit_test_prestate(adjoint_moves_across_the_dot_product, device),
        cmocka_unit_test_prestate(columns_do_not_know_of_each_other, device),
        cmocka_unit_test_prestate(doubling_x_doubles_y, device),
        cmocka_unit_test_prestate(merged_factors_are_the_product, device),
        cmocka_unit_test_prestate(measured_plans_match_the_oracle, device),
        cmocka_unit_test_prestate(apply_is_a_whole_product, device),
        cmocka_unit_test_prestate(
            the_dense_form_is_the_product_with_the_identity, device),
    };
    int failed = cmocka_run_group_tests_name("algebra", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
