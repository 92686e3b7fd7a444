/* Sums of chains: what is claimed of them is so, whatever the terms. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"
#include "support/progress.h"

#include "base/mem.h"
#include "danaus/algebra.h"
#include "product/patterns.h"
#include "support/device.h"
#include "support/factors.h"
#include "support/failing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 24, COLS = 36, TERMS = 4, LONGEST = 4 };

static const danaus_dtype types[] = { DANAUS_F64, DANAUS_C128, DANAUS_F32, DANAUS_C64 };

static int is_wide(danaus_dtype dtype)
{
    return dtype == DANAUS_F64 || dtype == DANAUS_C128;
}

/* ---- terms ---- */

typedef struct terms {
    danaus_pattern p[TERMS * LONGEST];
    int counts[TERMS], count, factors;
} terms;

static void terms_add(terms *t, const danaus_pattern *p, int count)
{
    memcpy(t->p + t->factors, p, (size_t)count * sizeof *p);
    t->counts[t->count++] = count;
    t->factors += count;
}

static const danaus_pattern *term(const terms *t, int n)
{
    const danaus_pattern *p = t->p;
    for (int m = 0; m < n; m++)
        p += t->counts[m];
    return p;
}

/* The two factors of W, or of its transpose, that can be factorised as they stand. */
static void nearest_form(
    int64_t p, int64_t q, int64_t rank, int turned, danaus_pattern made[2])
{
    int64_t m = turned ? COLS : ROWS, n = turned ? ROWS : COLS;
    made[0] = (danaus_pattern){ 1, m / q, p * rank, q };
    made[1] = (danaus_pattern){ p, q * rank, n / p, 1 };
}

/* Two factors of `p` groups of columns and `q` of rows; turned: of the transpose. */
static void groups(
    int64_t p, int64_t q, int64_t rank, int turned, danaus_pattern made[2])
{
    danaus_pattern plain[2];
    nearest_form(p, q, rank, turned, plain);
    if (turned)
        dn_patterns_transpose(plain, 2, made);
    else
        memcpy(made, plain, sizeof plain);
}

/* Low rank, Monarch and its transpose's patterns, three factors or one; with `ends` also
   such as do not reach all of W. */
static void term_random(rng *r, int ends, terms *t)
{
    static const int64_t sizes[] = { 1, 2, 3, 4, 6 };
    static const int64_t radices[][6] = { { 2, 3, 4, 3, 4, 3 }, { 2, 2, 6, 3, 3, 4 } };
    danaus_pattern p[3] = { { 1, ROWS, COLS, 1 } };
    const int64_t *radix = radices[rng_int(r, 0, 1)];
    int64_t a = sizes[rng_int(r, 0, 4)], b = sizes[rng_int(r, 0, 4)];
    switch (rng_int(r, 0, ends ? 5 : 3)) {
    case 0:
        groups(1, 1, rng_int(r, 1, 3), 0, p);
        terms_add(t, p, 2);
        break;
    case 1:
        groups(a, b, rng_int(r, 1, 2), 0, p);
        terms_add(t, p, 2);
        break;
    case 2:
        groups(a, b, 1, 1, p);
        terms_add(t, p, 2);
        break;
    case 3:
        assert_ok(dn_patterns_lattice(3, radix, radix + 3, NULL, 1, p));
        terms_add(t, p, 3);
        break;
    case 4: terms_add(t, &(danaus_pattern){ 4, 6, 9, 1 }, 1); break;
    default: terms_add(t, &(danaus_pattern){ 1, 8, 12, 3 }, 1);
    }
}

/* ---- fits ---- */

typedef struct outcome {
    danaus_chain *chain[TERMS];
    int count;
    danaus_factorize_result result, step[TERMS];
} outcome;

static outcome fit(matrix w, danaus_dtype dtype, const terms *t, danaus_sum_desc desc)
{
    outcome o = { .count = t->count };
    void *packed = matrix_pack(w, dtype);
    assert_ok(danaus_factorize_sum(
        packed, dtype, t->p, t->counts, t->count, &desc, o.chain, &o.result, o.step));
    free(packed);
    return o;
}

static matrix sum_of(const outcome *o)
{
    matrix sum = chain_matrix(o->chain[0]);
    for (int n = 1; n < o->count; n++) {
        matrix more = chain_matrix(o->chain[n]);
        matrix_add(&sum, 1, more);
        matrix_free(&more);
    }
    return sum;
}

static void outcome_free(outcome *o)
{
    for (int n = 0; n < o->count; n++)
        danaus_chain_destroy(o->chain[n]);
}

/* As danaus_factorize() reads a matrix of this type. */
static matrix as_stored(matrix w, danaus_dtype dtype)
{
    void *packed = matrix_pack(w, dtype);
    matrix made = matrix_unpack(dtype, packed, w.rows, w.cols);
    free(packed);
    return made;
}

static void check_outcome(
    const outcome *o, const terms *t, matrix w, danaus_dtype dtype)
{
    matrix stored = as_stored(w, dtype), sum = sum_of(o);
    double slack = is_wide(dtype) ? 1e-12 : 1e-6;
    assert_true(fabs(relative_distance(sum, stored) - o->result.error) < slack);
    assert_true(o->result.error == o->result.dense_error);
    assert_true(o->result.error <= o->step[t->count - 1].error + slack);
    assert_true(o->result.error <= o->result.upper_bound);
    assert_true(o->result.lower_bound <= o->result.error);
    assert_true(o->result.off_support <= o->result.error + slack);
    int64_t parameters = 0;
    for (int n = 0; n < t->count; n++) {
        const danaus_pattern *p = term(t, n);
        int shared = 0;
        for (int m = 0; m < n; m++)
            shared |= !memcmp(&o->step[m], &o->step[n], sizeof o->step[n]);
        assert_true(!n || shared || o->step[n].error <= o->step[n - 1].error + 1e-12);
        assert_true(o->step[n].error <= o->step[n].upper_bound + slack);
        assert_true(o->step[n].lower_bound <= o->step[n].error + slack);
        assert_int_equal(danaus_chain_count(o->chain[n]), t->counts[n]);
        assert_int_equal(danaus_chain_dtype(o->chain[n]), dtype);
        for (int l = 0; l < t->counts[n]; l++) {
            danaus_pattern q = danaus_chain_pattern(o->chain[n], l);
            assert_memory_equal(&q, &p[l], sizeof q);
        }
        parameters += danaus_chain_parameters(o->chain[n]);
    }
    assert_int_equal(parameters, o->result.parameters);
    matrix_free(&stored);
    matrix_free(&sum);
}

static void errors_are_those_of_the_sum_and_never_rise(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(80); round++) {
        rng r = { round };
        terms t = { .count = 0 };
        danaus_dtype dtype = types[round % 4];
        matrix w = matrix_gauss(&r, ROWS, COLS, (int)(round % 2));
        for (int n = (int)rng_int(&r, 1, TERMS); n > 0; n--)
            term_random(&r, 1, &t);
        double before = INFINITY;
        for (int rounds = -1; rounds < 3; rounds += 1 + (rounds < 0)) {
            danaus_sum_desc desc = { .rounds = rounds, .lower_bound = round % 3 == 0 };
            outcome o = fit(w, dtype, &t, desc);
            check_outcome(&o, &t, w, dtype);
            assert_true(o.result.error <= before + 1e-7);
            before = o.result.error;
            outcome_free(&o);
        }
        matrix_free(&w);
    }
}

/* ---- terms that are one ---- */

/* Block ranks add up: the sum is the nearest two factors of the summed rank. */
static void terms_of_one_pattern_meet_the_optimum(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 1, 2, 3, 4, 6 };
    for (uint64_t round = 0; round < (uint64_t)rounds_of(40); round++) {
        rng r = { round };
        int turned = (int)(round / 4 % 2), complex = (int)(round % 2);
        int64_t p = sizes[rng_int(&r, 0, 4)], q = sizes[rng_int(&r, 0, 4)], rank = 0;
        matrix w = matrix_gauss(&r, ROWS, COLS, complex);
        danaus_pattern made[2];
        terms t = { .count = 0 };
        for (int n = 0; n < 3; n++) {
            int64_t more = rng_int(&r, 1, 2);
            groups(p, q, more, turned, made);
            terms_add(&t, made, 2);
            rank += more;
        }
        nearest_form(p, q, rank, turned, made);
        matrix wt = matrix_transposed(w);
        double nearest = split_error(turned ? wt : w, made, 2, 1) / matrix_norm(w);
        danaus_dtype dtype = types[round % 4];
        double slack = is_wide(dtype) ? 1e-11 : 1e-5;
        outcome o = fit(w, dtype, &t, (danaus_sum_desc){ 0 });
        check_outcome(&o, &t, w, dtype);
        assert_true(fabs(o.result.error - nearest) < slack);
        assert_true(fabs(o.result.lower_bound - nearest) < slack);
        danaus_chain *whole;
        assert_ok(danaus_chain_combine(
            DANAUS_SUM, (const danaus_chain *const *)o.chain, 3, &whole));
        assert_int_equal(danaus_chain_parameters(whole), o.result.parameters);
        matrix sum = sum_of(&o), combined = chain_matrix(whole);
        assert_true(matrix_distance(sum, combined) < slack * matrix_norm(w));
        danaus_chain_destroy(whole);
        outcome_free(&o);
        matrix *all[] = { &w, &wt, &sum, &combined };
        for (int n = 0; n < 4; n++)
            matrix_free(all[n]);
    }
}

/* ---- what is certain ---- */

/* W is a sum of such terms and noise, so no bound is larger than the noise. */
static void lower_bounds_hold(void **state)
{
    (void)state;
    int useful = 0, rounds = rounds_of(100);
    for (int round = 0; round < rounds; round++) {
        rng r = { (uint64_t)round };
        terms t = { .count = 0 };
        matrix w = matrix_gauss(&r, ROWS, COLS, 0);
        double noise = matrix_norm(w);
        for (int n = (int)rng_int(&r, 2, 3); n > 0; n--) {
            term_random(&r, 0, &t);
            matrix k =
                product_random(&r, term(&t, t.count - 1), t.counts[t.count - 1], 0);
            matrix_add(&w, 2, k);
            matrix_free(&k);
        }
        danaus_sum_desc desc = { .rounds = -1, .lower_bound = 1 };
        outcome o = fit(w, DANAUS_F64, &t, desc);
        assert_true(o.result.lower_bound >= 0);
        assert_true(o.result.lower_bound <= noise / matrix_norm(w) + 1e-12);
        useful += o.result.lower_bound > 0.05;
        outcome_free(&o);
        matrix_free(&w);
    }
    assert_true(useful >= rounds / 10);
}

/* Blocks on the diagonal and entries elsewhere: each term finds its own part. */
static void parts_that_do_not_meet_are_recovered(void **state)
{
    (void)state;
    danaus_pattern blocks = { 4, 6, 9, 1 },
                   low[2] = { { 1, 24, 2, 1 }, { 1, 2, 36, 1 } };
    for (int kind = 0; kind < 4; kind++) {
        rng r = { (uint64_t)kind };
        terms t = { .count = 0 };
        matrix w = product_random(&r, low, 2, kind % 2), more;
        terms_add(&t, low, 2);
        terms_add(&t, kind < 2 ? low : &blocks, kind < 2 ? 2 : 1);
        if (kind < 2) {
            more = product_random(&r, low, 2, kind % 2);
            matrix_add(&w, 1, more);
            matrix_free(&more);
        }
        outcome o = fit(w, types[kind % 2], &t, (danaus_sum_desc){ 0 });
        assert_true(o.result.error < 1e-12);
        outcome_free(&o);
        matrix_free(&w);
    }
}

static void the_scale_of_a_matrix_does_not_matter(void **state)
{
    (void)state;
    rng r = { 7 };
    terms t = { .count = 0 };
    for (int n = 0; n < 3; n++)
        term_random(&r, 0, &t);
    matrix w = matrix_gauss(&r, ROWS, COLS, 0), zero = matrix_make(ROWS, COLS);
    outcome plain = fit(w, DANAUS_F64, &t, (danaus_sum_desc){ .rounds = 2 });
    for (int sign = -1; sign < 2; sign += 2) {
        matrix scaled = matrix_copy(w);
        for (int64_t at = 0; at < w.rows * w.cols; at++)
            scaled.at[at] = ldexp(creal(w.at[at]), 700 * sign);
        outcome o = fit(scaled, DANAUS_F64, &t, (danaus_sum_desc){ .rounds = 2 });
        assert_true(o.result.error == plain.result.error);
        outcome_free(&o);
        matrix_free(&scaled);
    }
    outcome o = fit(zero, DANAUS_F64, &t, (danaus_sum_desc){ 0 });
    assert_true(o.result.error == 0 && o.result.upper_bound == 0);
    outcome_free(&o);
    outcome_free(&plain);
    matrix_free(&w);
    matrix_free(&zero);
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    rng r = { 3 };
    matrix w = matrix_gauss(&r, ROWS, COLS, 1);
    terms t = { .count = 0 };
    for (int n = 0; n < 3; n++)
        term_random(&r, 1, &t);
    outcome found[2];
    for (int x = 0; x < 2; x++) {
        danaus_factorize_desc of = { .threads = 1 + 3 * x };
        found[x] = fit(w, DANAUS_C64, &t, (danaus_sum_desc){ .rounds = 3, .fit = &of });
    }
    for (int n = 0; n < t.count; n++)
        for (int l = 0; l < t.counts[n]; l++) {
            danaus_pattern p = danaus_chain_pattern(found[0].chain[n], l);
            assert_memory_equal(
                danaus_chain_weights(found[0].chain[n], l),
                danaus_chain_weights(found[1].chain[n], l),
                (size_t)(p.a * p.b * p.c * p.d) * 8);
        }
    outcome_free(&found[0]);
    outcome_free(&found[1]);
    matrix_free(&w);
}

/* ---- calibrated ---- */

static void calibrated_sums_fit_their_targets(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(16); round++) {
        rng r = { round };
        terms t = { .count = 0 };
        danaus_dtype dtype = types[round % 4];
        int complex = (int)(round % 2), bias = round % 8 < 4, targets = round < 8;
        for (int n = 0; n < 2 + (int)(round % 2); n++)
            term_random(&r, 1, &t);
        matrix w = matrix_gauss(&r, ROWS, COLS, complex);
        matrix x = matrix_gauss(&r, 90, COLS, complex), wt = matrix_transposed(w);
        matrix y = matrix_times(x, wt), more = matrix_gauss(&r, 90, ROWS, complex);
        for (int64_t at = 0; targets && at < y.rows * y.cols; at++)
            y.at[at] += 2 + 0.5 * more.at[at];
        void *px = matrix_pack(x, dtype), *py = matrix_pack(y, dtype);
        danaus_factorize_desc of = { .inputs = px, .samples = 90, .bias = bias };
        of.targets = targets ? py : NULL;
        outcome o = fit(w, dtype, &t, (danaus_sum_desc){ .rounds = 2, .fit = &of });
        for (int n = 0; n < t.count; n++)
            assert_true(o.result.error <= o.step[n].error + 1e-5);
        assert_true(o.result.lower_bound == -1);
        assert_true(!danaus_chain_bias(o.chain[0]) == !bias);
        double scale = matrix_norm(y);
        for (int n = 1; n < t.count; n++) {
            matrix k = chain_matrix(o.chain[n]), kt = matrix_transposed(k);
            matrix part = matrix_times(x, kt);
            matrix_add(&y, -1, part);
            matrix_free(&k);
            matrix_free(&kt);
            matrix_free(&part);
        }
        double error = chain_fit_error(o.chain[0], x, y) * matrix_norm(y) / scale;
        assert_true(fabs(error - o.result.error) < 2e-5);
        outcome_free(&o);
        free(px);
        free(py);
        matrix *all[] = { &w, &x, &wt, &y, &more };
        for (int n = 0; n < 5; n++)
            matrix_free(all[n]);
    }
}

/* ---- the best of a budget ---- */

static void the_best_sum_of_a_budget_is_taken(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(4); round++) {
        rng r = { round };
        danaus_dtype dtype = types[round % 4];
        danaus_pattern made[4] = { { 1, 8, 4, 4 }, { 4, 4, 8, 1 } };
        dn_patterns_transpose(made, 2, made + 2);
        matrix w = product_random(&r, made, 2, round % 2);
        matrix more = product_random(&r, made + 2, 2, round % 2);
        matrix_add(&w, 1, more);
        void *packed = matrix_pack(w, dtype);
        for (int most = 1; most <= DANAUS_CANDIDATE_TERMS; most++) {
            danaus_factorize_desc of = { .refine = 40 };
            int64_t budget = most < 3 ? 512 : 800;
            danaus_compress_desc desc = { .parameters = 512,
                                          .reduced = round > 1,
                                          .fit = &of };
            danaus_candidate report[64];
            outcome o = { .count = 0 };
            int tried, taken = -1;
            assert_ok(danaus_compress_sum(
                packed, dtype, 32, 32, &desc, o.chain, most, &o.count, &o.result,
                report, 64, &tried));
            for (int n = 0; n < tried; n++) {
                int factors = 0, chains = 0;
                for (int m = 0; m < DANAUS_CANDIDATE_TERMS; m++) {
                    factors += report[n].counts[m];
                    chains += report[n].counts[m] > 0;
                }
                assert_int_equal(factors, report[n].count);
                assert_true(chains <= most && report[n].parameters <= budget);
                assert_true(!report[n].taken || chains == o.count);
                assert_true(report[n].error >= o.result.error - 1e-6);
                taken = report[n].taken ? n : taken;
            }
            assert_true(taken >= 0);
            matrix sum = sum_of(&o), stored = as_stored(w, dtype);
            double error = relative_distance(sum, stored);
            assert_true(fabs(error - o.result.error) < 2e-5);
            assert_true(most == 1 || error < 0.05);
            matrix_free(&sum);
            matrix_free(&stored);
            outcome_free(&o);
        }
        free(packed);
        matrix_free(&w);
        matrix_free(&more);
    }
}

/* ---- refusals ---- */

static void progress_grows_to_the_end_and_can_give_up(void **state)
{
    (void)state;
    rng r = { 1 };
    terms t = { .count = 0 };
    for (int n = 0; n < 3; n++)
        term_random(&r, 1, &t);
    matrix w = matrix_gauss(&r, ROWS, COLS, 0);
    void *packed = matrix_pack(w, DANAUS_F64);
    watcher patient = { 0 };
    danaus_factorize_desc of = { .progress = watch, .user = &patient };
    danaus_sum_desc desc = { .rounds = 3, .fit = &of };
    outcome o = fit(w, DANAUS_F64, &t, desc);
    outcome_free(&o);
    assert_true(patient.last == 1);
    for (int n = 0; n < 8; n++) {
        watcher impatient = { .give_up_at = patient.calls - n * patient.calls / 8 };
        of.user = &impatient;
        danaus_chain *chains[TERMS] = { NULL };
        assert_status(
            danaus_factorize_sum(
                packed, DANAUS_F64, t.p, t.counts, t.count, &desc, chains, NULL, NULL),
            DANAUS_ERR_CANCELLED);
        assert_null(chains[0]);
    }
    free(packed);
    matrix_free(&w);
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    double w[16] = { 1, 2, 3 };
    danaus_pattern p[] = { { 1, 4, 2, 1 }, { 1, 2, 4, 1 }, { 1, 2, 4, 1 } };
    int counts[] = { 2, 1 };
    danaus_factorize_desc bias = { .bias = 1 }, minus = { .threads = -1 };
    danaus_sum_desc descs[] = { { .rounds = -2 },
                                { .rounds = 2000000 },
                                { .reserved = { 1 } },
                                { .fit = &bias },
                                { .fit = &minus } };
    danaus_chain *chains[3] = { NULL };
    const danaus_status bad = DANAUS_ERR_ARGUMENT;
    const danaus_dtype f64 = DANAUS_F64;
    for (size_t n = 0; n < sizeof descs / sizeof *descs; n++)
        assert_status(
            danaus_factorize_sum(w, f64, p, counts, 1, &descs[n], chains, NULL, NULL),
            bad);
    static const int lengths[] = { -1, 0, DANAUS_MAX_TERMS + 1 };
    for (int n = 0; n < 3; n++)
        assert_status(
            danaus_factorize_sum(
                w, f64, p, counts, lengths[n], NULL, chains, NULL, NULL),
            bad);
    assert_status(
        danaus_factorize_sum(NULL, f64, p, counts, 1, NULL, chains, NULL, NULL), bad);
    assert_status(
        danaus_factorize_sum(w, f64, NULL, counts, 1, NULL, chains, NULL, NULL), bad);
    assert_status(
        danaus_factorize_sum(w, f64, p, NULL, 1, NULL, chains, NULL, NULL), bad);
    assert_status(
        danaus_factorize_sum(w, f64, p, counts, 1, NULL, NULL, NULL, NULL), bad);
    assert_status(
        danaus_factorize_sum(w, f64, p, counts, 2, NULL, chains, NULL, NULL),
        DANAUS_ERR_SHAPE);
    assert_non_null(strstr(danaus_error_detail(), "term 1 is 2 x 4"));
    assert_status(
        danaus_factorize_sum(w, DANAUS_BF16, p, counts, 1, NULL, chains, NULL, NULL),
        DANAUS_ERR_UNSUPPORTED);
    w[7] = NAN;
    assert_status(
        danaus_factorize_sum(w, f64, p, counts, 1, NULL, chains, NULL, NULL), bad);
    assert_non_null(strstr(danaus_error_detail(), "W[1][3] is NaN"));
    danaus_compress_desc good = { .parameters = 16 };
    int found = -5;
    for (int most = 0; most < 9; most += 4)
        assert_status(
            danaus_compress_sum(
                w, f64, 4, 4, &good, chains, most, &found, NULL, NULL, 0, NULL),
            bad);
    assert_status(
        danaus_compress_sum(w, f64, 4, 4, &good, chains, 2, NULL, NULL, NULL, 0, NULL),
        bad);
    assert_true(!chains[0] && !chains[1] && found == -5);
}

static void missing_memory_is_reported(void **state)
{
    (void)state;
    rng r = { 5 };
    matrix w = matrix_gauss(&r, ROWS, COLS, 0), x = matrix_gauss(&r, 8, COLS, 0);
    void *packed = matrix_pack(w, DANAUS_F32), *inputs = matrix_pack(x, DANAUS_F32);
    terms t = { .count = 0 };
    danaus_pattern p[3];
    for (int n = 0; n < 2; n++) {
        groups(2, 2, 1, 0, p);
        terms_add(&t, p, 2);
    }
    static const int64_t radices[] = { 2, 3, 4, 3, 4, 3 };
    assert_ok(dn_patterns_lattice(3, radices, radices + 3, NULL, 1, p));
    terms_add(&t, p, 3);
    for (int calibrated = 0; calibrated < 2; calibrated++) {
        danaus_factorize_desc of = { .threads = 1, .refine = 1 };
        if (calibrated) {
            of.inputs = inputs;
            of.samples = 8;
            of.bias = 1;
        }
        danaus_sum_desc desc = { .rounds = 1, .lower_bound = 1, .fit = &of };
        danaus_chain *chains[TERMS] = { NULL };
        danaus_status status = DANAUS_ERR_MEMORY;
        for (long n = 1; status != DANAUS_OK; n += case_step()) {
            assert_null(chains[0]);
            dn_alloc_fail_at(n);
            status = danaus_factorize_sum(
                packed, DANAUS_F32, t.p, t.counts, t.count, &desc, chains, NULL, NULL);
            dn_alloc_fail_at(0);
            assert_true(status == DANAUS_OK || status == DANAUS_ERR_MEMORY);
            assert_true(n < 5000);
        }
        for (int n = 0; n < t.count; n++)
            danaus_chain_destroy(chains[n]);
    }
    free(packed);
    free(inputs);
    matrix_free(&w);
    matrix_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_those_of_the_sum_and_never_rise),
        cmocka_unit_test(terms_of_one_pattern_meet_the_optimum),
        cmocka_unit_test(lower_bounds_hold),
        cmocka_unit_test(parts_that_do_not_meet_are_recovered),
        cmocka_unit_test(the_scale_of_a_matrix_does_not_matter),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(calibrated_sums_fit_their_targets),
        cmocka_unit_test(the_best_sum_of_a_budget_is_taken),
        cmocka_unit_test(progress_grows_to_the_end_and_can_give_up),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(missing_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
