/* The best of many chains, chains with as few numbers as they have freedom, and sums. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"
#include "support/progress.h"

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

static const danaus_dtype types[] = { DANAUS_F64, DANAUS_C128, DANAUS_F32, DANAUS_C64 };

/* ---- reduced chains ---- */

static danaus_chain *random_chain(
    rng *r, const danaus_pattern *p, int count, danaus_dtype dtype, int complex)
{
    danaus_chain *chain;
    assert_ok(danaus_chain_create(p, count, dtype, &chain));
    for (int l = 0; l < count; l++) {
        int64_t size = p[l].a * p[l].b * p[l].c * p[l].d;
        matrix w = matrix_gauss(r, 1, size, complex);
        void *packed = matrix_pack(w, dtype);
        memcpy(
            danaus_chain_weights(chain, l), packed,
            (size_t)size * danaus_dtype_size(dtype));
        free(packed);
        matrix_free(&w);
    }
    return chain;
}

/* Entries that are exactly 0 or 1, as random numbers are not. */
static int64_t fixed_numbers(danaus_chain *chain, danaus_dtype dtype)
{
    int64_t fixed = 0;
    for (int l = 0; l < danaus_chain_count(chain); l++) {
        danaus_pattern p = danaus_chain_pattern(chain, l);
        int64_t size = p.a * p.b * p.c * p.d;
        matrix w = matrix_unpack(dtype, danaus_chain_weights(chain, l), 1, size);
        for (int64_t at = 0; at < size; at++)
            fixed += w.at[at] == 0 || w.at[at] == 1;
        matrix_free(&w);
    }
    return fixed;
}

static void reduced_chains_are_equal_and_have_as_many_numbers_as_freedom(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(120); round++) {
        rng r = { round };
        danaus_pattern p[5];
        int count = (int)rng_int(&r, 1, 4), complex = (int)(round % 2);
        danaus_dtype dtype = types[round % 4];
        random_chainable(&r, count, 4, 3, 1, p);
        if (round % 3 == 0) {
            danaus_pattern back[5];
            dn_patterns_transpose(p, count, back);
            memcpy(p, back, sizeof back);
        }
        danaus_chain *chain = random_chain(&r, p, count, dtype, complex);
        matrix before = chain_matrix(chain);
        int64_t numbers, all = danaus_chain_parameters(chain);
        assert_ok(danaus_patterns_freedom(p, count, &numbers));
        assert_ok(danaus_chain_reduce(chain));
        matrix after = chain_matrix(chain);
        double slack = dtype == DANAUS_F64 || dtype == DANAUS_C128 ? 1e-10 : 1e-3;
        assert_true(relative_distance(after, before) < slack);
        assert_int_equal(fixed_numbers(chain, dtype), all - numbers);
        danaus_chain_destroy(chain);
        matrix_free(&before);
        matrix_free(&after);
    }
}

static void freedom_is_what_the_book_says(void **state)
{
    (void)state;
    danaus_pattern low[] = { { 1, 30, 7, 1 }, { 1, 7, 20, 1 } };
    danaus_pattern groups[] = { { 1, 30, 12, 1 }, { 4, 3, 5, 1 } };
    danaus_pattern full[] = { { 1, 30, 20, 1 }, { 1, 20, 20, 1 } };
    int64_t numbers;
    assert_ok(danaus_patterns_freedom(low, 2, &numbers));
    assert_int_equal(numbers, 7 * (30 + 20 - 7));
    assert_ok(danaus_patterns_freedom(groups, 2, &numbers));
    assert_int_equal(numbers, 4 * 3 * (30 + 5 - 3));
    assert_ok(danaus_patterns_freedom(full, 2, &numbers));
    assert_int_equal(numbers, 30 * 20);
    assert_status(danaus_patterns_freedom(low, 2, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_patterns_freedom(NULL, 2, &numbers), DANAUS_ERR_ARGUMENT);
}

static void deficient_chains_reduce_too(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 1, 12, 5, 1 }, { 1, 5, 9, 1 } };
    for (int rank = 0; rank < 5; rank++) {
        rng r = { (uint64_t)rank };
        danaus_chain *chain = random_chain(&r, p, 2, DANAUS_F64, 0);
        double *v = danaus_chain_weights(chain, 1);
        for (int t = rank; t < 5; t++)
            for (int k = 0; k < 9; k++)
                v[t * 9 + k] = rank ? 2 * v[(t - rank) * 9 + k] : 0;
        matrix before = chain_matrix(chain);
        assert_ok(danaus_chain_reduce(chain));
        matrix after = chain_matrix(chain);
        assert_true(matrix_distance(after, before) < 1e-12);
        danaus_chain_destroy(chain);
        matrix_free(&before);
        matrix_free(&after);
    }
}

static void chains_that_cannot_be_reduced_say_why(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 2, 2, 2, 1 }, { 1, 2, 2, 2 }, { 2, 2, 2, 1 } };
    danaus_chain *chain;
    assert_ok(danaus_chain_create(p, 3, DANAUS_F32, &chain));
    assert_status(danaus_chain_reduce(chain), DANAUS_ERR_SHAPE);
    danaus_chain_destroy(chain);
    assert_ok(danaus_chain_create(p, 1, DANAUS_BF16, &chain));
    assert_status(danaus_chain_reduce(chain), DANAUS_ERR_UNSUPPORTED);
    danaus_chain_destroy(chain);
    assert_status(danaus_chain_reduce(NULL), DANAUS_ERR_ARGUMENT);
}

/* ---- sums ---- */

static void batches_add_up(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        int complex = t % 2;
        rng r = { (uint64_t)t };
        matrix x = matrix_gauss(&r, 700, 6, complex);
        matrix y = matrix_gauss(&r, 700, 4, complex);
        void *px = matrix_pack(x, types[t]), *py = matrix_pack(y, types[t]);
        number gram[36] = { 0 }, cross[24] = { 0 }, sx[6] = { 0 }, sy[4] = { 0 };
        double real[70] = { 0 };
        danaus_calibration sums = {
            .gram = gram, .cross = cross, .input_sum = sx, .target_sum = sy
        };
        if (!complex)
            sums = (danaus_calibration){ .gram = real,
                                         .cross = real + 36,
                                         .input_sum = real + 60,
                                         .target_sum = real + 66 };
        size_t size = danaus_dtype_size(types[t]);
        assert_ok(danaus_calibration_add(&sums, types[t], 4, 6, 100, px, py));
        assert_ok(danaus_calibration_add(
            &sums, types[t], 4, 6, 600, (char *)px + 600 * size,
            (char *)py + 400 * size));
        assert_int_equal(sums.samples, 700);
        double energy = 0;
        for (int k = 0; k < 10; k++) {
            const matrix *a = k < 6 ? &x : &y;
            int at = k < 6 ? k : k - 6;
            number plain = 0;
            for (int64_t s = 0; s < 700; s++) {
                plain += a->at[s * a->cols + at];
                energy += k < 6 ? 0 : pow(cabs(a->at[s * 4 + at]), 2);
            }
            number found = complex ? (k < 6 ? sx[k] : sy[k - 6]) : real[60 + k];
            assert_true(cabs(found - plain) < 1e-4);
            for (int l = 0; l < 6; l++) {
                number sum = 0;
                for (int64_t s = 0; s < 700; s++)
                    sum += a->at[s * a->cols + at] * conj(x.at[s * 6 + l]);
                int place = k * 6 + l;
                number is =
                    complex ? (k < 6 ? gram[place] : cross[place - 36]) : real[place];
                assert_true(cabs(is - sum) < 1e-4);
            }
        }
        assert_true(fabs(sums.energy - energy) < 1e-3);
        matrix_free(&x);
        matrix_free(&y);
        free(px);
        free(py);
    }
}

static void bad_samples_are_refused(void **state)
{
    (void)state;
    double x[6] = { 1, NAN }, y[4] = { 1 }, gram[9] = { 0 }, cross[6] = { 0 };
    danaus_calibration sums = { .gram = gram, .cross = cross };
    danaus_calibration none = { 0 }, later = { .gram = gram, .reserved = { 1 } };
    const danaus_status bad = DANAUS_ERR_ARGUMENT;
    assert_status(danaus_calibration_add(&sums, DANAUS_F64, 2, 3, 2, x, y), bad);
    assert_non_null(strstr(danaus_error_detail(), "X[0][1] is NaN"));
    assert_true(gram[0] == 0 && sums.samples == 0);
    x[1] = 0;
    assert_status(danaus_calibration_add(&sums, DANAUS_F64, 2, 3, 2, x, NULL), bad);
    assert_status(danaus_calibration_add(&sums, DANAUS_F64, 2, 3, 2, NULL, y), bad);
    assert_status(danaus_calibration_add(&none, DANAUS_F64, 2, 3, 2, x, y), bad);
    assert_status(danaus_calibration_add(NULL, DANAUS_F64, 2, 3, 2, x, y), bad);
    assert_status(danaus_calibration_add(&later, DANAUS_F64, 2, 3, 2, x, y), bad);
    assert_status(danaus_calibration_add(&sums, DANAUS_F64, 0, 3, 2, x, y), bad);
    assert_status(danaus_calibration_add(&sums, DANAUS_F64, 2, 3, -1, x, y), bad);
    assert_status(
        danaus_calibration_add(&sums, DANAUS_F16, 2, 3, 2, x, y),
        DANAUS_ERR_UNSUPPORTED);
    assert_ok(danaus_calibration_add(&sums, DANAUS_F64, 2, 3, 2, x, y));
}

/* ---- the best chain ---- */

typedef struct problem {
    matrix w, x, y;
    danaus_dtype dtype;
} problem;

/* Targets of a low-rank matrix for each group of columns, and noise. */
static problem problem_make(uint64_t round, double noise)
{
    rng r = { round };
    problem q = { .dtype = types[round % 4] };
    int complex = (int)(round % 2);
    danaus_pattern p[] = { { 1, 24, 8, 1 }, { 4, 2, 6, 1 } };
    q.w = product_random(&r, p, 2, complex);
    q.x = matrix_gauss(&r, 150, 24, complex);
    matrix wt = matrix_transposed(q.w), more = matrix_gauss(&r, 150, 24, complex);
    q.y = matrix_times(q.x, wt);
    matrix_add(&q.y, noise, more);
    matrix_free(&wt);
    matrix_free(&more);
    return q;
}

static void problem_free(problem *q)
{
    matrix_free(&q->w);
    matrix_free(&q->x);
    matrix_free(&q->y);
}

typedef struct outcome {
    danaus_chain *chain, *second;
    danaus_factorize_result result;
    danaus_candidate report[40];
    int count;
} outcome;

static void solve(const problem *q, danaus_compress_desc desc, int bias, outcome *o)
{
    void *w = matrix_pack(q->w, q->dtype), *x = matrix_pack(q->x, q->dtype);
    void *y = matrix_pack(q->y, q->dtype);
    danaus_factorize_desc fit = {
        .inputs = x, .targets = y, .samples = q->x.rows, .threads = 1, .bias = bias
    };
    desc.fit = &fit;
    danaus_chain *chains[2];
    assert_ok(danaus_compress(
        w, q->dtype, q->w.rows, q->w.cols, &desc, chains, &o->result, o->report, 40,
        &o->count));
    o->chain = chains[0];
    o->second = chains[1];
    free(w);
    free(x);
    free(y);
}

static void the_best_candidate_is_taken_within_the_budget(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(8); round++)
        for (int reduced = 0; reduced < 2; reduced++)
            for (int64_t budget = 60; budget < 700; budget *= 2) {
                problem q = problem_make(round, 0.1);
                outcome o;
                solve(
                    &q,
                    (danaus_compress_desc){ .parameters = budget, .reduced = reduced },
                    0, &o);
                double least = INFINITY, taken = INFINITY;
                int kinds = 0, marks = 0;
                for (int n = 0; n < o.count; n++) {
                    const danaus_candidate *k = &o.report[n];
                    assert_true(k->parameters > 0 && k->parameters <= budget);
                    assert_true(k->passes > 0 && k->error >= 0 && k->seconds >= 0);
                    least = fmin(least, k->error);
                    taken = k->taken ? k->error : taken;
                    marks += k->taken;
                    kinds |= (int)k->kind;
                }
                assert_true(marks == 1 && taken <= least + 1e-9);
                assert_true((kinds & 1) == (budget >= 576));
                assert_true(kinds & DANAUS_TRY_LOW_RANK);
                assert_true(
                    fabs(chain_fit_error(o.chain, q.x, q.y) - o.result.error) < 1e-4);
                assert_true(fabs(taken - o.result.error) < 1e-12);
                danaus_chain_destroy(o.chain);
                problem_free(&q);
            }
}

/* The structure that is there is found, and with it the targets. */
static void groups_of_columns_are_found(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 4; round++) {
        problem q = problem_make(round, 0);
        outcome o;
        solve(&q, (danaus_compress_desc){ .parameters = 24 * 8 + 48 }, 0, &o);
        assert_true(o.result.error < 1e-3);
        assert_int_equal(danaus_chain_pattern(o.chain, 1).a, 4);
        danaus_chain_destroy(o.chain);
        problem_free(&q);
    }
}

/* The sum of a matrix of rank 2 and blocks on the diagonal needs two chains; neither part
   alone comes near. */
static void a_sum_is_found_and_never_worse_than_its_parts(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 8; round++) {
        rng r = { round };
        int complex = (int)(round % 2);
        danaus_pattern low[] = { { 1, 24, 2, 1 }, { 1, 2, 24, 1 } };
        danaus_pattern blocks[] = { { 4, 6, 6, 1 } };
        problem q = { .dtype = types[round % 4] };
        matrix b = product_random(&r, blocks, 1, complex);
        q.w = product_random(&r, low, 2, complex);
        matrix_add(&q.w, 1, b);
        q.x = matrix_gauss(&r, 200, 24, complex);
        matrix wt = matrix_transposed(q.w);
        q.y = matrix_times(q.x, wt);
        for (int64_t at = 0; at < q.y.rows * q.y.cols; at++)
            q.y.at[at] += 3;
        outcome o;
        danaus_compress_desc desc = { .parameters = 4 * 24 + 4 * 36,
                                      .candidates =
                                          DANAUS_TRY_SUM | DANAUS_TRY_LOW_RANK,
                                      .reduced = round >= 4 };
        solve(&q, desc, 1, &o);
        assert_non_null(o.second);
        assert_true(o.result.error < 0.03);
        assert_true(danaus_chain_bias(o.chain) && !danaus_chain_bias(o.second));
        matrix more = chain_matrix(o.second), mt = matrix_transposed(more);
        matrix part = matrix_times(q.x, mt);
        matrix_add(&q.y, -1, part);
        double scale = matrix_norm(q.y);
        double error = chain_fit_error(o.chain, q.x, q.y) * scale;
        matrix_add(&q.y, 1, part);
        assert_true(fabs(error / matrix_norm(q.y) - o.result.error) < 1e-4);
        for (int n = 0; n < o.count; n++)
            assert_true(o.report[n].error >= o.result.error - 1e-12);
        danaus_chain_destroy(o.chain);
        danaus_chain_destroy(o.second);
        matrix *all[] = { &b, &wt, &more, &mt, &part };
        for (int n = 0; n < 5; n++)
            matrix_free(all[n]);
        problem_free(&q);
    }
}

static void a_kind_that_is_not_asked_for_is_not_tried(void **state)
{
    (void)state;
    problem q = problem_make(0, 0.2);
    for (uint32_t kind = DANAUS_TRY_LOW_RANK; kind <= DANAUS_TRY_SUM; kind *= 2) {
        outcome o;
        solve(
            &q, (danaus_compress_desc){ .parameters = 300, .candidates = kind }, 0, &o);
        for (int n = 0; n < o.count; n++)
            assert_int_equal(o.report[n].kind, kind);
        assert_true(!o.second == (kind != DANAUS_TRY_SUM));
        danaus_chain_destroy(o.chain);
        danaus_chain_destroy(o.second);
    }
    problem_free(&q);
}

/* Without samples the error is that of the matrix. */
static void matrices_are_compressed_without_samples(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 4; round++) {
        problem q = problem_make(round, 0);
        void *w = matrix_pack(q.w, q.dtype);
        danaus_compress_desc desc = { .parameters = 250 };
        danaus_chain *chains[2] = { NULL, NULL };
        danaus_factorize_result result;
        assert_ok(
            danaus_compress(w, q.dtype, 24, 24, &desc, chains, &result, NULL, 0, NULL));
        matrix k = chain_matrix(chains[0]);
        assert_true(fabs(relative_distance(k, q.w) - result.error) < 1e-4);
        assert_true(result.error < 1e-3);
        danaus_chain_destroy(chains[0]);
        matrix_free(&k);
        free(w);
        problem_free(&q);
    }
}

/* ---- refusals ---- */

static void progress_grows_and_can_give_up(void **state)
{
    (void)state;
    problem q = problem_make(0, 0.1);
    void *w = matrix_pack(q.w, q.dtype);
    watcher patient = { 0 };
    danaus_factorize_desc fit = { .progress = watch, .user = &patient };
    danaus_compress_desc desc = { .parameters = 300, .fit = &fit };
    danaus_chain *chains[2] = { NULL, NULL };
    assert_ok(danaus_compress(w, q.dtype, 24, 24, &desc, chains, NULL, NULL, 0, NULL));
    danaus_chain_destroy(chains[0]);
    assert_true(patient.last > 0.7 && patient.calls > 5);
    chains[0] = NULL;
    for (int n = 1; n < patient.calls; n += 7) {
        watcher impatient = { .give_up_at = n };
        fit.user = &impatient;
        assert_status(
            danaus_compress(w, q.dtype, 24, 24, &desc, chains, NULL, NULL, 0, NULL),
            DANAUS_ERR_CANCELLED);
        assert_null(chains[0]);
    }
    free(w);
    problem_free(&q);
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    double w[16] = { 1, 2, 3 };
    danaus_factorize_desc bias = { .bias = 1 }, wrong = { .targets = w };
    danaus_factorize_desc minus = { .refine = -1 };
    danaus_compress_desc descs[] = {
        { .parameters = 3 },
        { .parameters = 8, .candidates = 128 },
        { .parameters = 8, .reserved = { 1 } },
        { .parameters = 8, .fit = &bias },
        { .parameters = 8, .fit = &wrong },
        { .parameters = 8, .fit = &minus },
    };
    danaus_chain *chains[2] = { NULL, NULL };
    int count = -7;
    const danaus_status bad = DANAUS_ERR_ARGUMENT;
    for (size_t n = 0; n < sizeof descs / sizeof *descs; n++)
        assert_status(
            danaus_compress(
                w, DANAUS_F64, 4, 4, &descs[n], chains, NULL, NULL, 0, &count),
            bad);
    danaus_compress_desc good = { .parameters = 8 };
    danaus_candidate report;
    assert_status(
        danaus_compress(NULL, DANAUS_F64, 4, 4, &good, chains, NULL, NULL, 0, NULL),
        bad);
    assert_status(
        danaus_compress(w, DANAUS_F64, 4, 4, NULL, chains, NULL, NULL, 0, NULL), bad);
    assert_status(
        danaus_compress(w, DANAUS_F64, 4, 4, &good, NULL, NULL, NULL, 0, NULL), bad);
    assert_status(
        danaus_compress(w, DANAUS_F64, 4, 4, &good, chains, NULL, &report, -1, NULL),
        bad);
    assert_status(
        danaus_compress(w, DANAUS_F64, 0, 4, &good, chains, NULL, NULL, 0, NULL),
        DANAUS_ERR_SHAPE);
    assert_status(
        danaus_compress(
            w, DANAUS_F64, 4, INT64_C(1) << 31, &good, chains, NULL, NULL, 0, NULL),
        DANAUS_ERR_UNSUPPORTED);
    assert_status(
        danaus_compress(w, DANAUS_F16, 4, 4, &good, chains, NULL, NULL, 0, NULL),
        DANAUS_ERR_UNSUPPORTED);
    w[7] = NAN;
    assert_status(
        danaus_compress(w, DANAUS_F64, 4, 4, &good, chains, NULL, NULL, 0, NULL), bad);
    assert_null(chains[0]);
    assert_int_equal(count, -7);
}

static void missing_memory_is_reported(void **state)
{
    (void)state;
    problem q = problem_make(0, 0.1);
    void *w = matrix_pack(q.w, q.dtype), *x = matrix_pack(q.x, q.dtype);
    void *y = matrix_pack(q.y, q.dtype);
    danaus_factorize_desc fit = {
        .inputs = x, .targets = y, .samples = 20, .threads = 1
    };
    danaus_compress_desc desc = { .parameters = 200,
                                  .reduced = 1,
                                  .candidates =
                                      DANAUS_TRY_COLUMN_GROUPS | DANAUS_TRY_SUM,
                                  .fit = &fit };
    danaus_status status = DANAUS_ERR_MEMORY;
    danaus_chain *chains[2] = { NULL, NULL };
    for (long n = 1; status != DANAUS_OK; n += case_step()) {
        assert_null(chains[0]);
        dn_alloc_fail_at(n);
        status =
            danaus_compress(w, q.dtype, 24, 24, &desc, chains, NULL, NULL, 0, NULL);
        dn_alloc_fail_at(0);
        assert_true(status == DANAUS_OK || status == DANAUS_ERR_MEMORY);
        assert_true(n < 5000);
    }
    danaus_chain_destroy(chains[0]);
    danaus_chain_destroy(chains[1]);
    free(w);
    free(x);
    free(y);
    problem_free(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reduced_chains_are_equal_and_have_as_many_numbers_as_freedom),
        cmocka_unit_test(freedom_is_what_the_book_says),
        cmocka_unit_test(deficient_chains_reduce_too),
        cmocka_unit_test(chains_that_cannot_be_reduced_say_why),
        cmocka_unit_test(batches_add_up),
        cmocka_unit_test(bad_samples_are_refused),
        cmocka_unit_test(the_best_candidate_is_taken_within_the_budget),
        cmocka_unit_test(groups_of_columns_are_found),
        cmocka_unit_test(a_sum_is_found_and_never_worse_than_its_parts),
        cmocka_unit_test(a_kind_that_is_not_asked_for_is_not_tried),
        cmocka_unit_test(matrices_are_compressed_without_samples),
        cmocka_unit_test(progress_grows_and_can_give_up),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(missing_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
