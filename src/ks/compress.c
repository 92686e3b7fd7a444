/* The best chain of many for a matrix, a budget and what the layer sees.

   Families of two factors have p groups of columns and q of rows, and the largest block
   rank that the budget allows. All candidates are fitted to the same sums over samples,
   first with one pass over the factors; those within SLACK of the best, FINALISTS at
   most, then get the passes that were asked for. */
// SPDX-License-Identifier: Apache-2.0
#include "danaus/factorize.h"

#include "ks/calibration.h"
#include "ks/patterns.h"
#include "ks/sum.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#define SLACK 1.1

enum { FINALISTS = 2, MOST = 32, PASSES = 4 };

typedef struct compression {
    const danaus_compress_desc *desc;
    ks_dense w;
    danaus_factorize_desc fit; /* with sums instead of samples */
    danaus_calibration sums;
    void *owned[4]; /* arrays of sums that were made here */
    danaus_candidate candidate[MOST];
    int count, best, done, steps; /* fits that were made, and that may be */
    danaus_chain *chain[2];       /* of the best; the second of sums only */
    danaus_factorize_result result;
} compression;

/* ---- candidates ---- */

static int64_t cost_of(const compression *c, const danaus_pattern *p, int count)
{
    int64_t sum = 0;
    if (c->desc->reduced)
        return dn_patterns_freedom(p, count);
    for (int l = 0; l < count; l++)
        sum += dn_pattern_weights(p[l]);
    return sum;
}

static int wanted(const compression *c, danaus_candidates kind)
{
    uint32_t kinds = c->desc->candidates ? c->desc->candidates : DANAUS_TRY_SUM - 1;
    return (kinds & kind) != 0;
}

/* A candidate of `first` patterns, and for sums those of the second chain. */
static void add_sum(
    compression *c, danaus_candidates kind, const danaus_pattern *p, int first,
    int count)
{
    if (!wanted(c, kind) || c->count == MOST || count > DANAUS_CANDIDATE_FACTORS)
        return;
    int64_t cost = cost_of(c, p, first);
    cost += first < count ? cost_of(c, p + first, count - first) : 0;
    if (cost > c->desc->parameters)
        return;
    for (int n = 0; n < c->count; n++)
        if (c->candidate[n].count == count && c->candidate[n].first == first &&
            !memcmp(c->candidate[n].patterns, p, (size_t)count * sizeof *p))
            return;
    danaus_candidate *to = &c->candidate[c->count++];
    *to = (danaus_candidate){
        .kind = kind, .count = count, .first = first, .parameters = cost
    };
    memcpy(to->patterns, p, (size_t)count * sizeof *p);
}

static void add(
    compression *c, danaus_candidates kind, const danaus_pattern *p, int count)
{
    add_sum(c, kind, p, count, count);
}

/* (1, M/q, p r, q) (p, q r, N/p, 1) with the largest r that a budget allows; 0 if there is
   none, or the pair would be redundant. */
static int largest_groups(
    const compression *c, int64_t p, int64_t q, int64_t budget, danaus_pattern made[2])
{
    int64_t m = c->w.rows, n = c->w.cols, low = 0, high = MIN(m / q, n / p);
    if (m % q || n % p)
        return 0;
    while (high - low > 1) {
        int64_t r = low + (high - low) / 2;
        made[0] = (danaus_pattern){ 1, m / q, p * r, q };
        made[1] = (danaus_pattern){ p, q * r, n / p, 1 };
        *(cost_of(c, made, 2) <= budget ? &low : &high) = r;
    }
    made[0] = (danaus_pattern){ 1, m / q, p * low, q };
    made[1] = (danaus_pattern){ p, q * low, n / p, 1 };
    return low > 0;
}

static void add_groups(compression *c, danaus_candidates kind, int64_t p, int64_t q)
{
    danaus_pattern made[2];
    if (largest_groups(c, p, q, c->desc->parameters, made))
        add(c, kind, made, 2);
}

/* Low rank with what is left of the budget, and k blocks on the diagonal, or a Monarch
   matrix of half the budget. */
static void add_sums(compression *c, int64_t k)
{
    int64_t m = c->w.rows, n = c->w.cols, budget = c->desc->parameters;
    danaus_pattern made[4], *second = made + 2;
    if (m % k == 0 && n % k == 0) {
        made[2] = (danaus_pattern){ k, m / k, n / k, 1 };
        if (largest_groups(c, 1, 1, budget - cost_of(c, second, 1), made))
            add_sum(c, DANAUS_TRY_SUM, made, 2, 3);
    }
    if (largest_groups(c, k, k, budget / 2, second) &&
        largest_groups(c, 1, 1, budget - cost_of(c, second, 2), made))
        add_sum(c, DANAUS_TRY_SUM, made, 2, 4);
}

static void add_all(compression *c)
{
    static const int groups[] = { 2, 3, 4, 8 };
    static const struct {
        int p, q;
    } both[] = { { 2, 2 }, { 4, 2 }, { 2, 4 }, { 4, 4 } };
    danaus_pattern dense = { 1, c->w.rows, c->w.cols, 1 };
    add(c, DANAUS_TRY_DENSE, &dense, 1);
    add_groups(c, DANAUS_TRY_LOW_RANK, 1, 1);
    for (size_t x = 0; x < sizeof groups / sizeof *groups; x++)
        add_groups(c, DANAUS_TRY_COLUMN_GROUPS, groups[x], 1);
    for (size_t x = 0; x < sizeof groups / sizeof *groups; x++)
        add_groups(c, DANAUS_TRY_ROW_GROUPS, 1, groups[x]);
    for (size_t x = 0; x < sizeof both / sizeof *both; x++)
        add_groups(c, DANAUS_TRY_MONARCH, both[x].p, both[x].q);
    danaus_pattern fitted[DANAUS_MAX_FACTORS];
    int count;
    if (danaus_patterns_fit(
            c->w.rows, c->w.cols, c->desc->parameters, fitted, DANAUS_MAX_FACTORS,
            &count) == DANAUS_OK)
        add(c, DANAUS_TRY_FITTED, fitted, count);
    for (int64_t k = 4; k <= 16; k *= 2)
        add_sums(c, k);
}

/* ---- sums ---- */

static void *zeros(compression *c, int n, int64_t rows, int64_t cols)
{
    size_t size = dn_is_complex(c->w.dtype) ? 16 : 8;
    return c->owned[n] = dn_calloc((size_t)(rows * cols), size);
}

/* Samples become sums, so that each fit's work is small; without samples inputs are
   taken to be independent. */
static danaus_status find_sums(compression *c)
{
    danaus_factorize_desc *fit = &c->fit;
    int64_t m = c->w.rows, n = c->w.cols;
    if (fit->calibration)
        return DANAUS_OK;
    c->sums.gram = zeros(c, 0, n, n);
    int made = c->sums.gram != NULL;
    if (fit->targets)
        made &= (c->sums.cross = zeros(c, 1, m, n)) != NULL;
    if (fit->bias)
        made &= (c->sums.input_sum = zeros(c, 2, 1, n)) != NULL;
    if (fit->bias && fit->targets)
        made &= (c->sums.target_sum = zeros(c, 3, 1, m)) != NULL;
    if (!made)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for sums over samples");
    if (fit->inputs) {
        thread_pool *pool;
        TRY(dn_pool_create(fit->threads ? fit->threads : dn_thread_count(), &pool));
        danaus_status status = dn_calibration_sum(
            pool, &c->sums, c->w.dtype, m, n, fit->samples, fit->inputs, fit->targets);
        dn_pool_destroy(pool);
        TRY(status);
    } else {
        c->sums.samples = 1;
        for (int64_t k = 0; k < n; k++)
            ((double *)
                 c->sums.gram)[k * (n + 1) * (dn_is_complex(c->w.dtype) ? 2 : 1)] = 1;
    }
    fit->inputs = fit->targets = NULL;
    fit->samples = 0;
    fit->calibration = &c->sums;
    return DANAUS_OK;
}

/* ---- fits ---- */

static int forward_progress(void *user, double done)
{
    const compression *c = user;
    const danaus_factorize_desc *fit = c->desc->fit;
    return fit->progress(fit->user, (c->done + done) / c->steps);
}

static void forget(danaus_chain *chains[2])
{
    danaus_chain_destroy(chains[0]);
    danaus_chain_destroy(chains[1]);
}

/* Fits candidate n, and keeps its chain if none was better. */
static danaus_status try_candidate(compression *c, int n, int passes)
{
    danaus_candidate *of = &c->candidate[n];
    danaus_factorize_desc fit = c->fit;
    danaus_factorize_result result;
    danaus_chain *chains[2] = { NULL, NULL };
    fit.refine = of->passes = passes;
    if (of->first == of->count) {
        TRY(danaus_factorize(
            c->w.data, c->w.dtype, of->patterns, of->count, &fit, &chains[0], &result));
    } else {
        fit.refine = 1;
        fit.progress = NULL;
        TRY(dn_sum_fit(
            &c->w, of->patterns, of->first, of->count, passes + 1, &fit, chains,
            &result));
    }
    of->error = result.error;
    of->seconds += result.seconds;
    c->done++;
    if (c->chain[0] && n != c->best && !(of->error < c->candidate[c->best].error)) {
        forget(chains);
        return DANAUS_OK;
    }
    forget(c->chain);
    c->chain[0] = chains[0];
    c->chain[1] = chains[1];
    c->result = result;
    c->best = n;
    return DANAUS_OK;
}

/* The candidate that deserves more passes most, or -1. */
static int next_finalist(const compression *c, int passes)
{
    int found = -1;
    double limit = SLACK * c->candidate[c->best].error;
    for (int n = 0; n < c->count; n++)
        if (c->candidate[n].passes < passes && c->candidate[n].error <= limit &&
            (found < 0 || c->candidate[n].error < c->candidate[found].error))
            found = n;
    return found;
}

static danaus_status choose(compression *c)
{
    int passes = c->fit.refine ? c->fit.refine : PASSES;
    add_all(c);
    if (!c->count)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "no candidate for %" PRId64 " x %" PRId64 " has at most %" PRId64
            " parameters",
            c->w.rows, c->w.cols, c->desc->parameters);
    c->steps = c->count + FINALISTS;
    for (int n = 0; n < c->count; n++)
        TRY(try_candidate(c, n, 1));
    for (int x = 0; x < FINALISTS; x++) {
        int n = next_finalist(c, passes);
        if (n >= 0)
            TRY(try_candidate(c, n, passes));
    }
    c->candidate[c->best].taken = 1;
    for (int n = 0; n < 2 && c->desc->reduced && c->chain[n]; n++)
        TRY(danaus_chain_reduce(c->chain[n]));
    return DANAUS_OK;
}

/* ---- the call ---- */

static danaus_status check(
    const void *dense, danaus_dtype dtype, int64_t rows, int64_t cols,
    const danaus_compress_desc *desc, danaus_chain *chains[2], danaus_candidate *report,
    int capacity)
{
    danaus_pattern all = { 1, rows, cols, 1 };
    if (!dense || !desc || !chains)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a matrix, a budget and places for two chains are needed");
    TRY(dn_check_reserved(desc->reserved, sizeof desc->reserved));
    TRY(danaus_patterns_check(&all, 1));
    if (rows > INT_MAX || cols > INT_MAX)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a matrix of %" PRId64 " x %" PRId64 " is too large for LAPACK", rows,
            cols);
    if (desc->candidates & ~(uint32_t)(2 * DANAUS_TRY_SUM - 1))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%#x has bits that are no candidates",
            (unsigned)desc->candidates);
    if (report && capacity < 0)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a report of %d candidates", capacity);
    if (desc->fit && desc->fit->refine < 0)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a number of passes is not negative");
    if (desc->fit && desc->fit->bias && !desc->fit->inputs && !desc->fit->calibration)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a bias cannot be fitted without inputs");
    if (dtype != DANAUS_F32 && dtype != DANAUS_F64 && dtype != DANAUS_C64 &&
        dtype != DANAUS_C128)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "matrices of type %s cannot be compressed",
            danaus_dtype_name(dtype));
    return desc->fit ? dn_calibration_check(desc->fit, rows, cols) : DANAUS_OK;
}

static void compression_free(compression *c)
{
    for (int n = 0; n < 4; n++)
        dn_free(c->owned[n]);
    forget(c->chain);
}

danaus_status danaus_compress(
    const void *dense, danaus_dtype dtype, int64_t rows, int64_t cols,
    const danaus_compress_desc *desc, danaus_chain *chains[2],
    danaus_factorize_result *result, danaus_candidate *report, int capacity, int *count)
{
    double start = dn_seconds();
    TRY(check(dense, dtype, rows, cols, desc, chains, report, capacity));
    compression c = { .desc = desc, .w = { dense, dtype, rows, cols } };
    if (desc->fit)
        c.fit = *desc->fit;
    if (c.fit.progress) {
        c.fit.progress = forward_progress;
        c.fit.user = &c;
    }
    danaus_status status = find_sums(&c);
    if (status == DANAUS_OK)
        status = choose(&c);
    if (status == DANAUS_OK) {
        for (int n = 0; n < 2; n++) {
            chains[n] = c.chain[n];
            c.chain[n] = NULL;
        }
        c.result.seconds = dn_seconds() - start;
        if (result)
            *result = c.result;
        for (int n = 0; report && n < MIN(c.count, capacity); n++)
            report[n] = c.candidate[n];
        if (count)
            *count = c.count;
    }
    compression_free(&c);
    return status;
}
