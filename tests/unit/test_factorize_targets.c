/* Factors fitted to inputs and targets, or to sums over them. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "product/patterns.h"
#include "base/mem.h"
#include "support/device.h"
#include "support/factors.h"
#include "support/failing.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct problem {
    danaus_pattern p[5];
    int count, complex;
    danaus_dtype dtype;
    matrix w, x, y; /* x: samples x cols, y: samples x rows */
} problem;

static void shuffle_energies(rng *r, matrix x)
{
    for (int64_t k = 0; k < x.cols; k++) {
        double strength = exp(rng_gauss(r));
        number mean = rng_gauss(r);
        for (int64_t s = 0; s < x.rows; s++)
            x.at[s * x.cols + k] = strength * (x.at[s * x.cols + k] + mean);
    }
}

/* Targets are those of another matrix, with an offset and noise. */
static problem problem_make(uint64_t round)
{
    rng r = { round };
    danaus_dtype types[] = { DANAUS_F64, DANAUS_C128, DANAUS_F32, DANAUS_C64 };
    problem q = { .count = (int)rng_int(&r, 1, 4),
                  .complex = (int)(round % 2),
                  .dtype = types[round % 4] };
    random_chainable(&r, q.count, 4, 2, 1, q.p);
    if (round % 3 == 0) {
        danaus_pattern back[5];
        dn_patterns_transpose(q.p, q.count, back);
        memcpy(q.p, back, sizeof back);
    }
    int64_t rows, cols;
    rows = q.p[0].a * q.p[0].b * q.p[0].d;
    cols = q.p[q.count - 1].a * q.p[q.count - 1].c * q.p[q.count - 1].d;
    int64_t samples = rng_int(&r, 1, 3 * cols);
    q.w = matrix_gauss(&r, rows, cols, q.complex);
    q.x = matrix_gauss(&r, samples, cols, q.complex);
    shuffle_energies(&r, q.x);
    matrix other = matrix_gauss(&r, rows, cols, q.complex);
    matrix_add(&other, 1, q.w);
    matrix t = matrix_transposed(other), noise;
    q.y = matrix_times(q.x, t);
    noise = matrix_gauss(&r, samples, rows, q.complex);
    shuffle_energies(&r, noise);
    matrix_add(&q.y, 0.3, noise);
    matrix_free(&other);
    matrix_free(&t);
    matrix_free(&noise);
    return q;
}

static void problem_free(problem *q)
{
    matrix_free(&q->w);
    matrix_free(&q->x);
    matrix_free(&q->y);
}

/* ||W - K|| / ||W|| */
static double distance_of(const problem *q, danaus_chain *chain)
{
    matrix k = chain_matrix(chain);
    double distance = relative_distance(k, q->w);
    matrix_free(&k);
    return distance;
}

typedef struct sums {
    danaus_calibration c;
    void *owned[4];
} sums;

static matrix column_sums(matrix a)
{
    matrix sum = matrix_make(1, a.cols);
    for (int64_t at = 0; at < a.rows * a.cols; at++)
        sum.at[at % a.cols] += a.at[at];
    return sum;
}

static matrix conjugate(matrix a)
{
    matrix to = matrix_copy(a);
    for (int64_t at = 0; at < a.rows * a.cols; at++)
        to.at[at] = conj(a.at[at]);
    return to;
}

static sums sums_make(const problem *q, int targets)
{
    danaus_dtype dtype = q->complex ? DANAUS_C128 : DANAUS_F64;
    matrix xt = matrix_transposed(q->x), yt = matrix_transposed(q->y);
    matrix xc = conjugate(q->x), gram = matrix_times(xt, xc),
           cross = matrix_times(yt, xc);
    matrix sx = column_sums(q->x), sy = column_sums(q->y);
    sums s = { .owned = { matrix_pack(gram, dtype), matrix_pack(cross, dtype),
                          matrix_pack(sx, dtype), matrix_pack(sy, dtype) } };
    s.c = (danaus_calibration){ .samples = q->x.rows,
                                .gram = s.owned[0],
                                .cross = targets ? s.owned[1] : NULL,
                                .energy = pow(matrix_norm(q->y), 2),
                                .input_sum = s.owned[2],
                                .target_sum = s.owned[3] };
    matrix *all[] = { &xt, &yt, &xc, &gram, &cross, &sx, &sy };
    for (int n = 0; n < 7; n++)
        matrix_free(all[n]);
    return s;
}

static void sums_free(sums *s)
{
    for (int n = 0; n < 4; n++)
        free(s->owned[n]);
}

/* From samples, or from sums if they are given. */
static danaus_chain *solve_with(
    const problem *q, danaus_factorize_desc desc, const sums *s,
    danaus_factorize_result *result)
{
    void *w = matrix_pack(q->w, q->dtype), *x = matrix_pack(q->x, q->dtype);
    void *y = matrix_pack(q->y, q->dtype);
    if (s) {
        desc.calibration = &s->c;
    } else {
        desc.inputs = x;
        desc.targets = y;
        desc.samples = q->x.rows;
    }
    danaus_chain *chain = NULL;
    assert_ok(danaus_factorize(w, q->dtype, q->p, q->count, &desc, &chain, result));
    free(w);
    free(x);
    free(y);
    return chain;
}

static int is_single(const problem *q)
{
    return q->dtype == DANAUS_F32 || q->dtype == DANAUS_C64;
}

static void the_error_is_the_true_one_and_never_grows(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(80); round++) {
        problem q = problem_make(round);
        double slack = is_single(&q) ? 1e-5 : 1e-9;
        for (int bias = 0; bias < 2; bias++) {
            double last = 1e30;
            for (int sweeps = 1; sweeps < 30; sweeps *= 4) {
                danaus_factorize_desc desc = { .refine = sweeps,
                                               .bias = bias,
                                               .threads = 1 };
                danaus_factorize_result result;
                danaus_chain *chain = solve_with(&q, desc, NULL, &result);
                double error = chain_fit_error(chain, q.x, q.y);
                assert_true(fabs(error - result.error) < slack);
                assert_true(error <= result.upper_bound + slack);
                assert_true(error <= last + 1e-5);
                assert_true(!danaus_chain_bias(chain) == !bias);
                assert_true(result.lower_bound == -1);
                last = error;
                danaus_chain_destroy(chain);
            }
        }
        problem_free(&q);
    }
}

static void sums_serve_as_well_as_samples(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(60); round++) {
        problem q = problem_make(round);
        for (int bias = 0; bias < 2; bias++) {
            sums s = sums_make(&q, 1);
            danaus_factorize_desc desc = { .bias = bias, .threads = 1, .ridge = 1e-3 };
            danaus_factorize_result samples, summed;
            danaus_chain *one = solve_with(&q, desc, NULL, &samples);
            danaus_chain *other = solve_with(&q, desc, &s, &summed);
            assert_true(fabs(summed.error - chain_fit_error(other, q.x, q.y)) < 1e-5);
            assert_true(fabs(summed.dense_error - distance_of(&q, other)) < 1e-5);
            assert_true(fabs(samples.error - summed.error) < 1e-5);
            danaus_chain_destroy(one);
            danaus_chain_destroy(other);
            sums_free(&s);
        }
        problem_free(&q);
    }
}

static void sums_over_inputs_alone_aim_at_the_matrix(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(30); round++) {
        problem q = problem_make(round);
        matrix wt = matrix_transposed(q.w);
        matrix_free(&q.y);
        q.y = matrix_times(q.x, wt);
        sums s = sums_make(&q, 0);
        danaus_factorize_desc desc = { .bias = (int)(round % 2), .threads = 1 };
        danaus_factorize_result result;
        danaus_chain *chain = solve_with(&q, desc, &s, &result);
        assert_true(fabs(result.error - chain_fit_error(chain, q.x, q.y)) < 1e-5);
        danaus_chain_destroy(chain);
        matrix_free(&wt);
        sums_free(&s);
        problem_free(&q);
    }
}

/* Orthonormal columns that span those of x, by Gram and Schmidt, twice. */
static matrix span_of(matrix x)
{
    matrix q = matrix_copy(x);
    for (int64_t k = 0; k < x.cols; k++)
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t l = 0; l < k; l++) {
                number dot = 0;
                for (int64_t s = 0; s < x.rows; s++)
                    dot += conj(q.at[s * x.cols + l]) * q.at[s * x.cols + k];
                for (int64_t s = 0; s < x.rows; s++)
                    q.at[s * x.cols + k] -= dot * q.at[s * x.cols + l];
            }
            double norm = 0;
            for (int64_t s = 0; s < x.rows; s++)
                norm += pow(cabs(q.at[s * x.cols + k]), 2);
            for (int64_t s = 0; s < x.rows; s++)
                q.at[s * x.cols + k] /= sqrt(norm);
        }
    return q;
}

/* Dense and low-rank chains: the part of Y that X spans, less its singular values. */
static void dense_and_low_rank_chains_reach_the_known_optimum(void **state)
{
    (void)state;
    for (int n = 0; n < 8; n++) {
        problem q = problem_make((uint64_t)(4 * (n % 2) + n % 2));
        rng r = { (uint64_t)n };
        problem_free(&q);
        int dense = n < 2;
        q.dtype = q.complex ? DANAUS_C128 : DANAUS_F64;
        q.count = dense ? 1 : 2;
        q.p[0] = (danaus_pattern){ 1, 18, dense ? 14 : 1 + n, 1 };
        q.p[1] = (danaus_pattern){ 1, 1 + n, 14, 1 };
        q.w = matrix_gauss(&r, 18, 14, q.complex);
        q.x = matrix_gauss(&r, 70, 14, q.complex);
        q.y = matrix_gauss(&r, 70, 18, q.complex);
        shuffle_energies(&r, q.x);
        matrix span = span_of(q.x), back = conjugate(span),
               bt = matrix_transposed(back);
        matrix part = matrix_times(bt, q.y); /* 14 x 18 */
        double s[18], best = pow(matrix_norm(q.y), 2);
        matrix_singular_values(part, s);
        for (int k = 0; k < (dense ? 14 : 1 + n); k++)
            best -= s[k] * s[k];
        best = sqrt(best) / matrix_norm(q.y);
        danaus_factorize_result result;
        danaus_factorize_desc desc = { .ridge = 1e-13 };
        danaus_chain_destroy(solve_with(&q, desc, NULL, &result));
        assert_true(fabs(result.error - best) < 1e-8);
        matrix *all[] = { &span, &back, &bt, &part };
        for (int k = 0; k < 4; k++)
            matrix_free(all[k]);
        problem_free(&q);
    }
}

/* Targets of a chain and a bias are met, whatever W is. */
static void targets_of_a_chain_are_met(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 1, 8, 8, 4 }, { 4, 8, 8, 1 } };
    for (int complex = 0; complex < 2; complex++) {
        rng r = { 17 };
        problem q = { .count = 2,
                      .complex = complex,
                      .dtype = complex ? DANAUS_C128 : DANAUS_F64 };
        memcpy(q.p, p, sizeof p);
        q.w = matrix_gauss(&r, 32, 32, complex);
        q.x = matrix_gauss(&r, 200, 32, complex);
        shuffle_energies(&r, q.x);
        matrix k = product_random(&r, p, 2, complex), kt = matrix_transposed(k);
        matrix bias = matrix_gauss(&r, 1, 32, complex);
        q.y = matrix_times(q.x, kt);
        for (int64_t at = 0; at < 200 * 32; at++)
            q.y.at[at] += bias.at[at % 32];
        danaus_factorize_desc desc = { .bias = 1, .ridge = 1e-13 };
        danaus_factorize_result result;
        danaus_chain *chain = solve_with(&q, desc, NULL, &result);
        matrix found = matrix_unpack(q.dtype, danaus_chain_bias(chain), 1, 32);
        assert_true(result.error < 1e-6);
        assert_true(relative_distance(found, bias) < 1e-5);
        danaus_chain_destroy(chain);
        matrix *all[] = { &k, &kt, &bias, &found };
        for (int n = 0; n < 4; n++)
            matrix_free(all[n]);
        problem_free(&q);
    }
}

/* One sample of 32 numbers: what it does not see is left as W has it. */
static void what_inputs_do_not_see_stays(void **state)
{
    (void)state;
    rng r = { 23 };
    problem q = { .count = 1, .dtype = DANAUS_F64, .p = { { 1, 8, 32, 1 } } };
    q.w = matrix_gauss(&r, 8, 32, 0);
    q.x = matrix_make(1, 32);
    q.x.at[5] = 3;
    q.y = matrix_gauss(&r, 1, 8, 0);
    danaus_factorize_result result;
    danaus_chain *chain = solve_with(&q, (danaus_factorize_desc){ 0 }, NULL, &result);
    matrix k = chain_matrix(chain);
    for (int m = 0; m < 8; m++)
        for (int n = 0; n < 32; n++) {
            number want = n == 5 ? q.y.at[m] / 3 : q.w.at[m * 32 + n];
            assert_true(cabs(k.at[m * 32 + n] - want) < 1e-5);
        }
    assert_true(result.error < 1e-5);
    danaus_chain_destroy(chain);
    matrix_free(&k);
    problem_free(&q);
}

static void scale(matrix *a, double by)
{
    for (int64_t at = 0; at < a->rows * a->cols; at++)
        a->at[at] *= by;
}

static void magnitudes_do_not_matter(void **state)
{
    (void)state;
    double x_scales[] = { 1, 0x1p-600, 0x1p500, 0x1p-100 };
    double y_scales[] = { 1, 0x1p-500, 0x1p600, 0x1p200 };
    double first = 0;
    for (int n = 0; n < 4; n++) {
        problem q = problem_make(8);
        scale(&q.x, x_scales[n]);
        scale(&q.y, y_scales[n]);
        scale(&q.w, y_scales[n] / x_scales[n]);
        danaus_factorize_desc desc = { .bias = 1 };
        danaus_factorize_result result;
        danaus_chain_destroy(solve_with(&q, desc, NULL, &result));
        if (n == 0)
            first = result.error;
        assert_true(isfinite(result.error) && fabs(result.error - first) < 1e-12);
        problem_free(&q);
    }
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    rng r = { 31 };
    problem q = { .count = 2,
                  .dtype = DANAUS_F32,
                  .p = { { 1, 128, 96, 2 }, { 2, 96, 128, 1 } } };
    q.w = matrix_gauss(&r, 256, 256, 0);
    q.x = matrix_gauss(&r, 700, 256, 0);
    q.y = matrix_gauss(&r, 700, 256, 0);
    danaus_chain *chains[2];
    danaus_factorize_result results[2];
    for (int n = 0; n < 2; n++) {
        danaus_factorize_desc desc = { .threads = n ? 3 : 1, .bias = 1, .refine = 1 };
        chains[n] = solve_with(&q, desc, NULL, &results[n]);
    }
    assert_true(results[0].error == results[1].error);
    for (int l = 0; l < 2; l++)
        assert_memory_equal(
            danaus_chain_weights(chains[0], l), danaus_chain_weights(chains[1], l),
            128 * 96 * 2 * sizeof(float));
    assert_memory_equal(
        danaus_chain_bias(chains[0]), danaus_chain_bias(chains[1]),
        256 * sizeof(float));
    danaus_chain_destroy(chains[0]);
    danaus_chain_destroy(chains[1]);
    problem_free(&q);
}

/* ---- refusals ---- */

static void refuse(const danaus_factorize_desc *desc, const char *word)
{
    double w[16] = { 1, 2, 3 };
    danaus_pattern p[] = { { 1, 2, 2, 2 }, { 2, 2, 2, 1 } };
    danaus_chain *chain = NULL;
    assert_status(
        danaus_factorize(w, DANAUS_F64, p, 2, desc, &chain, NULL), DANAUS_ERR_ARGUMENT);
    if (!strstr(danaus_error_detail(), word))
        fail_msg("\"%s\" lacks \"%s\"", danaus_error_detail(), word);
    assert_null(chain);
}

static void bad_requests_are_refused_with_a_reason(void **state)
{
    (void)state;
    double x[8] = { 1, 2, 3, 4, 5, 6, 7, 9 }, y[8] = { 1 }, one[16] = { 0 };
    for (int k = 0; k < 4; k++)
        one[5 * k] = 1;
    danaus_calibration good = { .samples = 4, .gram = one };
    danaus_calibration none = { .samples = 4 }, empty = { .gram = one };
    danaus_calibration later = { .samples = 4, .gram = one, .reserved = { 1 } };
    danaus_calibration small = {
        .samples = 4, .gram = one, .cross = one, .energy = 0.5
    };
    danaus_calibration wild = {
        .samples = 4, .gram = one, .cross = one, .energy = NAN
    };
    struct {
        danaus_factorize_desc desc;
        const char *word;
    } cases[] = {
        { { .targets = y }, "targets cannot be fitted without inputs" },
        { { .bias = 1 }, "a bias cannot be fitted without inputs" },
        { { .calibration = &good, .targets = y }, "targets" },
        { { .inputs = x, .samples = 2, .calibration = &good }, "not both" },
        { { .inputs = x, .samples = 2, .ridge = -1 }, "ridge" },
        { { .inputs = x, .samples = 2, .ridge = NAN }, "ridge" },
        { { .inputs = x, .samples = 2, .ridge = INFINITY }, "ridge" },
        { { .inputs = x, .samples = 2, .ridge = 1e16 },
          "a ridge is a number from 0 to 1e+06, not 1e+16" },
        { { .calibration = &none }, "Gram matrix [4][4]" },
        { { .calibration = &empty }, "number of samples" },
        { { .calibration = &later }, "reserved" },
        { { .calibration = &good, .bias = 1 }, "sums of the 4 inputs" },
        { { .calibration = &small }, "too small" },
        { { .calibration = &wild }, "energy" },
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        refuse(&cases[n].desc, cases[n].word);
    y[5] = NAN;
    refuse(
        &(danaus_factorize_desc){ .inputs = x, .targets = y, .samples = 2 },
        "Y[1][1] is NaN");
    one[5] = -1;
    refuse(&(danaus_factorize_desc){ .calibration = &good }, "gram[1][1]");
    one[5] = 1;
    one[4] = 9;
    refuse(&(danaus_factorize_desc){ .calibration = &good }, "not positive");
    one[4] = INFINITY;
    refuse(&(danaus_factorize_desc){ .calibration = &good }, "gram[1][0] is infinite");
}

static void missing_memory_is_reported(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        problem q = problem_make(variant < 2 ? 9 : 8);
        sums s = sums_make(&q, 1);
        void *w = matrix_pack(q.w, q.dtype), *x = matrix_pack(q.x, q.dtype);
        void *y = matrix_pack(q.y, q.dtype);
        danaus_factorize_desc desc = { .bias = 1, .threads = 1 };
        if (variant % 2)
            desc.calibration = &s.c;
        else
            desc.inputs = x, desc.targets = y, desc.samples = q.x.rows;
        danaus_status status = DANAUS_ERR_MEMORY;
        danaus_chain *chain = NULL;
        for (long n = 1; status != DANAUS_OK; n += case_step()) {
            assert_null(chain);
            dn_alloc_fail_at(n);
            status = danaus_factorize(w, q.dtype, q.p, q.count, &desc, &chain, NULL);
            dn_alloc_fail_at(0);
            assert_true(status == DANAUS_OK || status == DANAUS_ERR_MEMORY);
            assert_true(n < 5000);
        }
        danaus_chain_destroy(chain);
        free(w);
        free(x);
        free(y);
        sums_free(&s);
        problem_free(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_error_is_the_true_one_and_never_grows),
        cmocka_unit_test(sums_serve_as_well_as_samples),
        cmocka_unit_test(sums_over_inputs_alone_aim_at_the_matrix),
        cmocka_unit_test(dense_and_low_rank_chains_reach_the_known_optimum),
        cmocka_unit_test(targets_of_a_chain_are_met),
        cmocka_unit_test(what_inputs_do_not_see_stays),
        cmocka_unit_test(magnitudes_do_not_matter),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(bad_requests_are_refused_with_a_reason),
        cmocka_unit_test(missing_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
