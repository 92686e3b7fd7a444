/* danaus_factorize() as callers see it: types, orders, directions, what it reports,
   what it refuses, threads, progress, memory that runs out. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "product/patterns.h"
#include "support/device.h"
#include "support/factors.h"
#include "support/failing.h"
#include "support/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_C64, DANAUS_C128 };

static int is_complex(danaus_dtype dtype)
{
    return dtype == DANAUS_C64 || dtype == DANAUS_C128;
}

typedef struct outcome {
    danaus_chain *chain;
    danaus_factorize_result result;
    double error; /* true one, relative */
} outcome;

static outcome run(
    matrix w, danaus_dtype dtype, const danaus_pattern *p, int count,
    const danaus_factorize_desc *desc)
{
    outcome o = { 0 };
    void *packed = matrix_pack(w, dtype);
    matrix exact = matrix_unpack(dtype, packed, w.rows, w.cols);
    assert_ok(danaus_factorize(packed, dtype, p, count, desc, &o.chain, &o.result));
    matrix made = chain_matrix(o.chain);
    double norm = matrix_norm(exact);
    o.error = matrix_distance(made, exact) / (norm > 0 ? norm : 1);
    matrix_free(&made);
    matrix_free(&exact);
    free(packed);
    return o;
}

static void check_report(const outcome *o, danaus_dtype dtype)
{
    double slack = dtype == DANAUS_F32 || dtype == DANAUS_C64 ? 1e-7 : 1e-12;
    if (fabs(o->error - o->result.error) > slack)
        fail_msg("reported %g, true %g", o->result.error, o->error);
    assert_true(o->result.lower_bound <= o->error + slack);
    assert_true(o->result.upper_bound >= o->result.error);
    assert_true(o->result.off_support <= o->error + slack);
    assert_true(o->result.dense_error == o->result.error);
    assert_true(o->result.seconds > 0);
    assert_int_equal(o->result.parameters, danaus_chain_parameters(o->chain));
}

static void every_type_order_and_direction_reports_its_true_error(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(60); round++) {
        rng r = { round };
        danaus_pattern p[5], back[5];
        int count = (int)rng_int(&r, 1, 5);
        danaus_dtype dtype = types[round % 4];
        random_chainable(&r, count, 3, 3, 1, p);
        danaus_pattern whole = dn_patterns_product(p, count);
        matrix w = matrix_gauss(
            &r, whole.a * whole.b * whole.d, whole.a * whole.c * whole.d,
            is_complex(dtype));
        matrix t = matrix_transposed(w);
        dn_patterns_transpose(p, count, back);
        for (int order = 0; order <= DANAUS_ORDER_BALANCED; order++)
            for (int fast = 0; fast < 2; fast++) {
                danaus_factorize_desc desc = { .order = (danaus_order)order,
                                               .fast = fast,
                                               .threads = 1 + (int)(round % 2),
                                               .refine = round % 5 == 4 };
                outcome o = run(w, dtype, p, count, &desc);
                outcome q = run(t, dtype, back, count, &desc);
                check_report(&o, dtype);
                check_report(&q, dtype);
                assert_true(fast == (o.result.lower_bound < 0));
                assert_int_equal(danaus_chain_dtype(o.chain), dtype);
                danaus_chain_destroy(o.chain);
                danaus_chain_destroy(q.chain);
            }
        matrix_free(&w);
        matrix_free(&t);
    }
}

/* T2.8, T2.9 */
static void decreasing_chains_are_recovered_through_the_transpose(void **state)
{
    (void)state;
    danaus_pattern p[] = {
        { 8, 2, 2, 1 }, { 4, 2, 2, 2 }, { 2, 2, 2, 4 }, { 1, 2, 2, 8 }
    };
    for (int x = 0; x < 4; x++) {
        rng r = { (uint64_t)x };
        matrix w = product_random(&r, p, 4, is_complex(types[x]));
        outcome o = run(w, types[x], p, 4, NULL);
        assert_true(o.error < (x % 2 ? 1e-12 : 1e-5));
        danaus_pattern first = danaus_chain_pattern(o.chain, 0);
        assert_memory_equal(&first, p, sizeof first);
        danaus_chain_destroy(o.chain);
        matrix_free(&w);
    }
}

/* T4.4 */
static void entries_off_the_support_add_in_quadrature(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 2, 2, 2, 4 }, { 4, 2, 2, 2 }, { 8, 2, 2, 1 } };
    danaus_pattern whole = dn_patterns_product(p, 3);
    rng r = { 44 };
    matrix w = matrix_gauss(&r, 16, 16, 0);
    double off = 0, delta[3];
    for (int64_t x = 0; x < 256; x++)
        if (!in_support(whole, x / 16, x % 16))
            off = hypot(off, __real__ w.at[x]);
    ks_factors f = swept(w, 0, p, 3, delta);
    outcome o = run(w, DANAUS_F64, p, 3, NULL);
    double norm = matrix_norm(w);
    assert_true(fabs(o.result.off_support - off / norm) < 1e-12);
    assert_true(fabs(o.error - hypot(off, hypot(delta[0], delta[1])) / norm) < 1e-10);
    assert_true(o.result.lower_bound >= o.result.off_support);
    dn_factors_free(&f);
    danaus_chain_destroy(o.chain);
    matrix_free(&w);
}

/* T11.9 */
static void small_errors_are_reported_exactly(void **state)
{
    (void)state;
    danaus_chain_desc desc = { .kind = DANAUS_CHAIN_DYADIC, .rows = 64, .cols = 64 };
    danaus_pattern p[6];
    int count;
    assert_ok(danaus_patterns_make(&desc, p, 6, &count));
    rng r = { 119 };
    matrix w = product_random(&r, p, 6, 0), noise = matrix_gauss(&r, 64, 64, 0);
    matrix_add(&w, 1e-9 / 64 * matrix_norm(w), noise);
    for (int order = 0; order <= DANAUS_ORDER_BALANCED; order++) {
        danaus_factorize_desc how = { .order = (danaus_order)order };
        outcome o = run(w, DANAUS_F64, p, 6, &how);
        assert_true(fabs(o.result.error / o.error - 1) < 1e-4);
        assert_true(o.error < 2e-9);
        danaus_chain_destroy(o.chain);
    }
    matrix_free(&w);
    matrix_free(&noise);
}

/* T11.5, T11.6 */
static void zeros_and_ones_are_harmless(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 1, 2, 4, 6 }, { 2, 6, 2, 2 }, { 4, 2, 3, 1 } };
    for (int kind = 0; kind < 3; kind++)
        for (int order = 0; order <= DANAUS_ORDER_BALANCED; order++)
            for (int fast = 0; fast < 2; fast++) {
                rng r = { 115 };
                matrix w = matrix_gauss(&r, 12, 12, 0);
                for (int x = 0; x < 144; x++)
                    w.at[x] = kind == 0 ? (x / 12 % 2 == 0 && x % 12 >= 4) || x % 12 < 3
                                              ? 0
                                              : w.at[x]
                                        : kind - 1;
                danaus_factorize_desc how = { .order = (danaus_order)order,
                                              .fast = fast };
                outcome o = run(w, DANAUS_F64, p, 3, &how);
                assert_true(isfinite(o.error));
                assert_true(o.error <= o.result.upper_bound + 1e-12);
                matrix made = chain_matrix(o.chain);
                assert_true(kind != 1 || matrix_norm(made) == 0);
                matrix_free(&made);
                matrix_free(&w);
                danaus_chain_destroy(o.chain);
            }
}

static void the_scale_of_a_matrix_does_not_matter(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 1, 2, 2, 4 }, { 2, 2, 2, 2 }, { 4, 2, 2, 1 } };
    rng r = { 7 };
    matrix w = matrix_gauss(&r, 8, 8, 1);
    outcome plain = run(w, DANAUS_C128, p, 3, NULL);
    for (int exponent = -1000; exponent <= 1000; exponent += 250) {
        matrix scaled = matrix_copy(w);
        for (int x = 0; x < 64; x++)
            scaled.at[x] *= ldexp(1, exponent);
        danaus_chain *chain;
        danaus_factorize_result result;
        assert_ok(
            danaus_factorize(scaled.at, DANAUS_C128, p, 3, NULL, &chain, &result));
        assert_true(fabs(result.error - plain.result.error) < 1e-13);
        matrix made = chain_matrix(chain);
        for (int x = 0; x < 64; x++) {
            made.at[x] *= ldexp(1, -exponent / 2);
            made.at[x] *= ldexp(1, exponent / 2 - exponent);
        }
        assert_true(fabs(relative_distance(made, w) - plain.error) < 1e-12);
        matrix_free(&made);
        matrix_free(&scaled);
        danaus_chain_destroy(chain);
    }
    danaus_chain_destroy(plain.chain);
    matrix_free(&w);
}

static void fast_stays_near_the_optimum(void **state)
{
    (void)state;
    const char *chains[] = { "1,32,32,16 32,16,16,1", "1,40,80,4 40,8,40,1" };
    for (int x = 0; x < 2; x++)
        for (int complex = 0; complex < 2; complex++) {
            danaus_pattern p[2];
            int count;
            assert_ok(danaus_patterns_parse(chains[x], p, 2, &count));
            danaus_pattern whole = dn_patterns_product(p, 2);
            rng r = { (uint64_t)x };
            matrix w = matrix_gauss(&r, whole.b, whole.c, complex);
            danaus_dtype dtype = complex ? DANAUS_C128 : DANAUS_F64;
            danaus_factorize_desc fast = { .fast = 1 };
            outcome o = run(w, dtype, p, 2, NULL), q = run(w, dtype, p, 2, &fast);
            assert_true(q.error >= o.error * (1 - 1e-12) && q.error <= 1.01 * o.error);
            assert_true(q.result.lower_bound == -1);
            danaus_chain_destroy(o.chain);
            danaus_chain_destroy(q.chain);
            matrix_free(&w);
        }
}

/* ---- threads, progress, memory ---- */

static void the_number_of_threads_changes_no_bit(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 1, 8, 16, 16 }, { 8, 16, 8, 2 }, { 32, 4, 4, 1 } };
    int threads[] = { 1, 2, 7 };
    for (int x = 0; x < 4; x++)
        for (int variant = 0; variant < 3; variant++) {
            rng r = { (uint64_t)x };
            matrix w = matrix_gauss(&r, 128, 128, is_complex(types[x]));
            danaus_chain *first = NULL;
            for (int n = 0; n < 3; n++) {
                danaus_factorize_desc desc = { .threads = threads[n],
                                               .fast = variant == 1,
                                               .refine = variant == 2,
                                               .order = variant ? DANAUS_ORDER_BALANCED
                                                                : DANAUS_ORDER_AUTO };
                outcome o = run(w, types[x], p, 3, &desc);
                for (int l = 0; first && l < 3; l++)
                    assert_memory_equal(
                        danaus_chain_weights(first, l),
                        danaus_chain_weights(o.chain, l),
                        (size_t)(p[l].a * p[l].b * p[l].c * p[l].d) *
                            danaus_dtype_size(types[x]));
                if (first)
                    danaus_chain_destroy(o.chain);
                else
                    first = o.chain;
            }
            danaus_chain_destroy(first);
            matrix_free(&w);
        }
}

typedef struct watcher {
    int calls, give_up_at;
    double last;
} watcher;

static int watch(void *user, double done)
{
    watcher *w = user;
    assert_true(done >= w->last && done <= 1);
    w->last = done;
    return ++w->calls == w->give_up_at;
}

static void progress_grows_to_one_and_can_give_up(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 1, 8, 8, 8 }, { 8, 8, 8, 1 } };
    rng r = { 9 };
    matrix w = matrix_gauss(&r, 64, 64, 0);
    void *packed = matrix_pack(w, DANAUS_F64);
    watcher seen = { 0 };
    danaus_factorize_desc desc = { .progress = watch, .user = &seen, .refine = 2 };
    danaus_chain *chain;
    assert_ok(danaus_factorize(packed, DANAUS_F64, p, 2, &desc, &chain, NULL));
    danaus_chain_destroy(chain);
    assert_true(seen.last == 1 && seen.calls > 8);
    for (int n = 1; n <= seen.calls; n++) {
        watcher impatient = { .give_up_at = n };
        desc.user = &impatient;
        chain = NULL;
        danaus_factorize_result result = { .error = -5 };
        assert_status(
            danaus_factorize(packed, DANAUS_F64, p, 2, &desc, &chain, &result),
            DANAUS_ERR_CANCELLED);
        assert_null(chain);
        assert_true(result.error == -5);
    }
    free(packed);
    matrix_free(&w);
}

static void missing_memory_is_reported_wherever_it_is_missing(void **state)
{
    (void)state;
    danaus_pattern p[] = {
        { 1, 2, 4, 8 }, { 2, 4, 4, 4 }, { 4, 4, 4, 2 }, { 8, 4, 2, 1 }
    };
    for (int variant = 0; variant < 4; variant++) {
        rng r = { 3 };
        matrix w = matrix_gauss(&r, 16, 16, 0), x = matrix_gauss(&r, 40, 16, 0);
        void *packed = matrix_pack(w, DANAUS_F32), *inputs = matrix_pack(x, DANAUS_F32);
        danaus_factorize_desc desc = { .threads = 1 + variant % 2,
                                       .order = DANAUS_ORDER_BALANCED,
                                       .refine = variant / 2,
                                       .samples = 40,
                                       .inputs = variant == 3 ? inputs : NULL };
        danaus_status status = DANAUS_ERR_MEMORY;
        danaus_chain *chain = NULL;
        for (long n = 1; status != DANAUS_OK; n += case_step()) {
            assert_null(chain);
            dn_alloc_fail_at(n);
            status = danaus_factorize(packed, DANAUS_F32, p, 4, &desc, &chain, NULL);
            dn_alloc_fail_at(0);
            assert_true(status == DANAUS_OK || status == DANAUS_ERR_MEMORY);
            assert_true(n < 5000);
        }
        danaus_chain_destroy(chain);
        free(packed);
        free(inputs);
        matrix_free(&w);
        matrix_free(&x);
    }
}

/* ---- refusals ---- */

static void bad_numbers_are_named(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 1, 2, 2, 4 }, { 2, 2, 2, 2 }, { 4, 2, 2, 1 } };
    double bad[] = { NAN, INFINITY, -INFINITY };
    const char *words[] = { "is NaN", "is infinite", "is infinite" };
    for (int t = 0; t < 4; t++)
        for (int x = 0; x < 3; x++) {
            rng r = { 1 };
            matrix w = matrix_gauss(&r, 8, 8, is_complex(types[t]));
            w.at[3 * 8 + 5] = bad[x];
            w.at[6 * 8 + 1] = NAN;
            void *packed = matrix_pack(w, types[t]);
            danaus_chain *chain = NULL;
            assert_status(
                danaus_factorize(packed, types[t], p, 3, NULL, &chain, NULL),
                DANAUS_ERR_ARGUMENT);
            assert_non_null(strstr(danaus_error_detail(), "W[3][5]"));
            assert_non_null(strstr(danaus_error_detail(), words[x]));
            assert_null(chain);
            free(packed);
            matrix_free(&w);
        }
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    double w[64] = { 1 };
    danaus_pattern p[] = { { 1, 2, 2, 4 }, { 2, 2, 2, 2 }, { 4, 2, 2, 1 } };
    danaus_pattern broken[] = { { 1, 2, 2, 4 }, { 4, 2, 2, 1 }, { 2, 2, 2, 2 } };
    danaus_pattern apart[] = { { 1, 2, 2, 4 }, { 2, 3, 2, 2 } };
    danaus_chain *chain = NULL;
    danaus_factorize_desc descs[] = {
        { .order = (danaus_order)9 },
        { .refine = -1 },
        { .threads = -1 },
        { .reserved = { 1 } },
        { .inputs = w, .samples = 0 },
    };
    for (size_t x = 0; x < sizeof descs / sizeof *descs; x++)
        assert_status(
            danaus_factorize(w, DANAUS_F64, p, 3, &descs[x], &chain, NULL),
            DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_factorize(NULL, DANAUS_F64, p, 3, NULL, &chain, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_factorize(w, DANAUS_F64, p, 3, NULL, NULL, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_factorize(w, DANAUS_F64, NULL, 3, NULL, &chain, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_factorize(w, DANAUS_F16, p, 3, NULL, &chain, NULL),
        DANAUS_ERR_UNSUPPORTED);
    assert_status(
        danaus_factorize(w, DANAUS_F64, broken, 3, NULL, &chain, NULL),
        DANAUS_ERR_SHAPE);
    assert_status(
        danaus_factorize(w, DANAUS_F64, apart, 2, NULL, &chain, NULL),
        DANAUS_ERR_SHAPE);
    danaus_pattern wide = { 1, 1, INT64_C(1) << 33, 1 };
    assert_status(
        danaus_factorize(w, DANAUS_F64, &wide, 1, NULL, &chain, NULL),
        DANAUS_ERR_UNSUPPORTED);
    /* As an int 2^32 + 8 is 8, which are there. */
    danaus_factorize_desc many = { .inputs = w, .samples = (INT64_C(1) << 32) + 8 };
    assert_status(
        danaus_factorize(w, DANAUS_F64, p, 3, &many, &chain, NULL),
        DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "4294967304 samples"));
    assert_null(chain);
}

/* The error that is reported is that of the chain as it is stored, for the matrix as it was
   given; or the type of the chain is refused. Distances are taken of numbers near 1. */
static void certificates_hold_for_the_matrix_that_was_given(void **state)
{
    (void)state;
    const danaus_pattern p[] = { { 1, 2, 2, 4 }, { 2, 4, 4, 1 } };
    static const int exponents[] = { -1060, -320, -200, -149, -130, -126, -60,
                                     0,     60,   126,  128,  500,  990 };
    for (int e = 0; e < 13; e++)
        for (int n = 0; n < 4; n++) {
            rng r = { (uint64_t)(4 * e + n) };
            danaus_factorize_desc desc = { 0 };
            danaus_factorize_result result;
            danaus_chain *chain = NULL;
            double w[64], k[64], distance = 0, norm = 0;
            desc.chain_dtype = n % 2 ? DANAUS_F32 : DANAUS_F64;
            for (int x = 0; x < 64; x++)
                w[x] = ldexp(rng_unit(&r) - (n < 2 ? 0 : 0.5), exponents[e]);
            danaus_status status =
                danaus_factorize(w, DANAUS_F64, p, 2, &desc, &chain, &result);
            int held = n % 2 == 0 || (exponents[e] > -126 && exponents[e] <= 126);
            if (!held && status != DANAUS_OK) {
                assert_status(status, DANAUS_ERR_ARGUMENT);
                assert_non_null(strstr(danaus_error_detail(), "for f32"));
                continue;
            }
            assert_ok(status);
            assert_int_equal(danaus_chain_dtype(chain), desc.chain_dtype);
            danaus_chain *exact;
            assert_ok(danaus_chain_convert(chain, DANAUS_F64, &exact));
            assert_ok(danaus_chain_to_dense(exact, k));
            int half = -exponents[e] / 2, rest = -exponents[e] - half;
            for (int x = 0; x < 64; x++) {
                double a = ldexp(ldexp(w[x], half), rest),
                       b = ldexp(ldexp(k[x], half), rest);
                distance += (a - b) * (a - b);
                norm += a * a;
            }
            double error = sqrt(distance / norm);
            /* to_dense() rounds numbers below the normal ones again. */
            double slack = exponents[e] < -1000 ? 0.1 : 1e-7;
            if (!(fabs(error - result.error) <= slack &&
                  result.lower_bound <= error + slack &&
                  error <= result.upper_bound + slack))
                fail_msg(
                    "2^%d: %g, said to be %g, in %g .. %g", exponents[e], error,
                    result.error, result.lower_bound, result.upper_bound);
            danaus_chain_destroy(exact);
            danaus_chain_destroy(chain);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_order_and_direction_reports_its_true_error),
        cmocka_unit_test(decreasing_chains_are_recovered_through_the_transpose),
        cmocka_unit_test(entries_off_the_support_add_in_quadrature),
        cmocka_unit_test(small_errors_are_reported_exactly),
        cmocka_unit_test(zeros_and_ones_are_harmless),
        cmocka_unit_test(the_scale_of_a_matrix_does_not_matter),
        cmocka_unit_test(fast_stays_near_the_optimum),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(progress_grows_to_one_and_can_give_up),
        cmocka_unit_test(missing_memory_is_reported_wherever_it_is_missing),
        cmocka_unit_test(certificates_hold_for_the_matrix_that_was_given),
        cmocka_unit_test(bad_numbers_are_named),
        cmocka_unit_test(bad_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
