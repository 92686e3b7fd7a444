/* The best of many chains for a matrix, a budget and a layer's inputs.

   Families of two factors have p groups of columns and q groups of rows, and the largest block
   rank that the budget allows. All candidates are fitted to the same sums over samples, first
   with one pass over the factors. Those within SLACK of the best, at most FINALISTS, then get
   the requested passes. */
// SPDX-License-Identifier: Apache-2.0
#include "danaus/factorize.h"

#include "factor/calibrated/calibration.h"
#include "factor/factorize.h"
#include "product/patterns.h"
#include "factor/sums/sum.h"
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

enum { FINALISTS = 2, MOST = 64, PASSES = 4 };

typedef struct compression {
    const danaus_compress_desc *desc;
    uint32_t kinds; /* that are tried */
    int terms;      /* of a sum, at most */
    ks_dense w;
    danaus_factorize_desc fit; /* with sums instead of samples */
    ks_sample_sums sums;
    danaus_candidate candidate[MOST];
    int count, best, done, steps; /* fits that were made, and that may be */
    danaus_chain *chain[DANAUS_CANDIDATE_TERMS]; /* of the best; more for sums only */
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
    return (c->kinds & kind) != 0;
}

/* A candidate of one chain or a sum, counts[n] patterns each. */
static void add_sum(
    compression *c, danaus_candidates kind, const danaus_pattern *p, const int *counts,
    int terms)
{
    danaus_candidate made = { .kind = kind, .first = counts[0] };
    if (!wanted(c, kind) || c->count == MOST || terms > c->terms)
        return;
    for (int n = 0; n < terms; n++) {
        if (made.count + counts[n] > DANAUS_CANDIDATE_FACTORS)
            return;
        made.parameters += cost_of(c, p + made.count, counts[n]);
        made.counts[n] = counts[n];
        made.count += counts[n];
    }
    memcpy(made.patterns, p, (size_t)made.count * sizeof *p);
    if (made.parameters > c->desc->parameters)
        return;
    for (int n = 0; n < c->count; n++)
        if (!memcmp(c->candidate[n].counts, made.counts, sizeof made.counts) &&
            !memcmp(c->candidate[n].patterns, p, (size_t)made.count * sizeof *p))
            return;
    c->candidate[c->count++] = made;
}

static void add(
    compression *c, danaus_candidates kind, const danaus_pattern *p, int count)
{
    add_sum(c, kind, p, &count, 1);
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

/* The groups of the transposed matrix, transposed: rows side by side, columns mod p. */
static int largest_turned(
    const compression *c, int64_t p, int64_t q, int64_t budget, danaus_pattern made[2])
{
    compression turned = *c;
    danaus_pattern of[2];
    turned.w.rows = c->w.cols;
    turned.w.cols = c->w.rows;
    int found = largest_groups(&turned, q, p, budget, of);
    dn_patterns_transpose(of, 2, made);
    return found;
}

/* k blocks on the diagonal, or a Monarch matrix of half the budget, and low rank with the rest
   of the budget. */
static void add_low_rank_sums(compression *c, int64_t k)
{
    static const int blocks[] = { 2, 1 }, monarch[] = { 2, 2 };
    int64_t m = c->w.rows, n = c->w.cols, budget = c->desc->parameters;
    danaus_pattern made[4], *second = made + 2;
    if (m % k == 0 && n % k == 0) {
        made[2] = (danaus_pattern){ k, m / k, n / k, 1 };
        if (largest_groups(c, 1, 1, budget - cost_of(c, second, 1), made))
            add_sum(c, DANAUS_TRY_SUM, made, blocks, 2);
    }
    if (largest_groups(c, k, k, budget / 2, second) &&
        largest_groups(c, 1, 1, budget - cost_of(c, second, 2), made))
        add_sum(c, DANAUS_TRY_SUM, made, monarch, 2);
}

/* Monarch of k groups together with Monarch of twice as many, with its transpose's patterns, and
   with that and low rank. Parts of the budget are equal, and the last term gets the rest. */
static void add_monarch_sums(compression *c, int64_t k)
{
    static const int twos[] = { 2, 2, 2 };
    int64_t budget = c->desc->parameters;
    danaus_pattern made[6], *second = made + 2, *third = made + 4;
    if (wanted(c, DANAUS_TRY_SUMS))
        add_groups(c, DANAUS_TRY_MONARCH, k, k);
    if (!largest_groups(c, k, k, budget / 2, made))
        return;
    int64_t rest = budget - cost_of(c, made, 2);
    if (largest_groups(c, 2 * k, 2 * k, rest, second))
        add_sum(c, DANAUS_TRY_SUMS, made, twos, 2);
    if (largest_turned(c, k, k, rest, second))
        add_sum(c, DANAUS_TRY_SUMS, made, twos, 2);
    if (largest_groups(c, k, k, budget / 3, made) &&
        largest_turned(c, k, k, budget / 3, second) &&
        largest_groups(
            c, 1, 1, budget - cost_of(c, made, 2) - cost_of(c, second, 2), third))
        add_sum(c, DANAUS_TRY_SUMS, made, twos, 3);
}

/* The chain that is expected to be best for a share of the budget, `terms` times. */
static void add_fitted(compression *c, danaus_candidates kind, int terms)
{
    danaus_pattern made[DANAUS_CANDIDATE_TERMS * DANAUS_MAX_FACTORS];
    int counts[DANAUS_CANDIDATE_TERMS], count;
    if (danaus_patterns_fit(
            c->w.rows, c->w.cols, c->desc->parameters / terms, made, DANAUS_MAX_FACTORS,
            &count) != DANAUS_OK)
        return;
    for (int n = 0; n < terms; n++) {
        memmove(made + n * count, made, (size_t)count * sizeof *made);
        counts[n] = count;
    }
    if (terms == 1 || count > 2)
        add_sum(c, kind, made, counts, terms);
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
    add_fitted(c, DANAUS_TRY_FITTED, 1);
    for (int64_t k = 4; k <= 16; k *= 2)
        add_low_rank_sums(c, k);
    for (int64_t k = 4; k <= 32; k *= 2)
        add_monarch_sums(c, k);
    for (int terms = 2; terms <= DANAUS_CANDIDATE_TERMS; terms++)
        add_fitted(c, DANAUS_TRY_SUMS, terms);
}

/* ---- fits ---- */

static int forward_progress(void *user, double done)
{
    const compression *c = user;
    const danaus_factorize_desc *fit = c->desc->fit;
    return fit->progress(fit->user, (c->done + done) / c->steps);
}

static void forget(danaus_chain **chains)
{
    for (int n = 0; n < DANAUS_CANDIDATE_TERMS; n++)
        danaus_chain_destroy(chains[n]);
}

static int terms_of(const danaus_candidate *of)
{
    int terms = 0;
    while (terms < DANAUS_CANDIDATE_TERMS && of->counts[terms])
        terms++;
    return terms;
}

/* A candidate of several chains. */
static danaus_status fit_sum(
    compression *c, const danaus_candidate *of, const danaus_factorize_desc *given,
    danaus_chain **chains, danaus_factorize_result *result)
{
    danaus_factorize_result steps[DANAUS_CANDIDATE_TERMS];
    danaus_factorize_desc fit = *given;
    ks_terms terms = { .count = terms_of(of) };
    const danaus_pattern *p = of->patterns;
    for (int n = 0; n < terms.count; n++) {
        terms.patterns[n] = p;
        terms.count_of[n] = of->counts[n];
        p += of->counts[n];
    }
    fit.refine = fit.calibration ? 1 : 0;
    return dn_sum_fit(&c->w, &terms, of->passes, &fit, chains, result, steps);
}

/* Fits candidate n, and keeps its chain if none was better: more passes are never worse. */
static danaus_status try_candidate(compression *c, int n, int passes)
{
    danaus_candidate *of = &c->candidate[n];
    danaus_factorize_desc fit = c->fit;
    danaus_factorize_result result;
    danaus_chain *chains[DANAUS_CANDIDATE_TERMS] = { NULL };
    int is_first = of->passes == 0;
    fit.refine = of->passes = passes;
    if (of->first == of->count)
        TRY(danaus_factorize(
            c->w.data, c->w.dtype, of->patterns, of->count, &fit, &chains[0], &result));
    else
        TRY(fit_sum(c, of, &fit, chains, &result));
    int is_best = !c->chain[0] || result.error < c->candidate[c->best].error;
    if (is_first || result.error < of->error)
        of->error = result.error;
    of->seconds += result.seconds;
    c->done++;
    if (!is_best) {
        forget(chains);
        return DANAUS_OK;
    }
    forget(c->chain);
    memcpy(c->chain, chains, sizeof chains);
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
    for (int n = 0; n < terms_of(&c->candidate[c->best]) && c->desc->reduced; n++)
        TRY(danaus_chain_reduce(c->chain[n]));
    return DANAUS_OK;
}

/* ---- the call ---- */

static danaus_status check(
    const void *dense, danaus_dtype dtype, int64_t rows, int64_t cols,
    const danaus_compress_desc *desc, danaus_chain **chains, uint32_t kinds,
    const danaus_candidate *report, int capacity)
{
    danaus_pattern all = { 1, rows, cols, 1 };
    if (!dense || !desc || !chains)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a matrix, a budget and places for chains are needed");
    TRY(dn_check_reserved(desc->reserved, sizeof desc->reserved));
    TRY(danaus_patterns_check(&all, 1));
    if (rows > INT_MAX || cols > INT_MAX)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a matrix of %" PRId64 " x %" PRId64 " is too large for LAPACK", rows,
            cols);
    if (desc->candidates & ~kinds)
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
    const ks_dense w = { dense, dtype, rows, cols };
    return desc->fit ? dn_factorize_check(&w, desc->fit) : DANAUS_OK;
}

static void compression_free(compression *c)
{
    dn_sample_sums_free(&c->sums);
    forget(c->chain);
}

/* Finds the best of the compression's kinds, and delivers its chains, *terms of them. */
static danaus_status compress(
    compression *c, danaus_chain **chains, int *terms, danaus_factorize_result *result,
    danaus_candidate *report, int capacity, int *count)
{
    double start = dn_seconds();
    if (c->desc->fit)
        c->fit = *c->desc->fit;
    if (c->fit.progress) {
        c->fit.progress = forward_progress;
        c->fit.user = c;
    }
    TRY(dn_sample_sums(&c->w, &c->fit, &c->sums));
    TRY(choose(c));
    *terms = terms_of(&c->candidate[c->best]);
    memcpy(chains, c->chain, (size_t)*terms * sizeof *chains);
    memset(c->chain, 0, sizeof c->chain);
    c->result.seconds = dn_seconds() - start;
    if (result)
        *result = c->result;
    for (int n = 0; report && n < MIN(c->count, capacity); n++)
        report[n] = c->candidate[n];
    if (count)
        *count = c->count;
    return DANAUS_OK;
}

danaus_status danaus_compress(
    const void *dense, danaus_dtype dtype, int64_t rows, int64_t cols,
    const danaus_compress_desc *desc, danaus_chain *chains[2],
    danaus_factorize_result *result, danaus_candidate *report, int capacity, int *count)
{
    const uint32_t kinds = DANAUS_TRY_SUMS - 1, usual = DANAUS_TRY_SUM - 1;
    int terms;
    TRY(check(dense, dtype, rows, cols, desc, chains, kinds, report, capacity));
    compression c = { .desc = desc,
                      .kinds = desc->candidates ? desc->candidates : usual,
                      .terms = 2,
                      .w = { dense, dtype, rows, cols } };
    danaus_status status =
        compress(&c, chains, &terms, result, report, capacity, count);
    if (status == DANAUS_OK && terms == 1)
        chains[1] = NULL;
    compression_free(&c);
    return status;
}

danaus_status danaus_compress_sum(
    const void *dense, danaus_dtype dtype, int64_t rows, int64_t cols,
    const danaus_compress_desc *desc, danaus_chain **chains, int most, int *terms,
    danaus_factorize_result *result, danaus_candidate *report, int capacity, int *count)
{
    const uint32_t kinds = 2 * DANAUS_TRY_SUMS - 1;
    if (!terms)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a place for the number of chains is needed");
    if (most < 1 || most > DANAUS_CANDIDATE_TERMS)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "sums of %d chains are not tried, 1 to %d are", most,
            DANAUS_CANDIDATE_TERMS);
    TRY(check(dense, dtype, rows, cols, desc, chains, kinds, report, capacity));
    compression c = { .desc = desc,
                      .kinds = desc->candidates ? desc->candidates : kinds,
                      .terms = most,
                      .w = { dense, dtype, rows, cols } };
    danaus_status status = compress(&c, chains, terms, result, report, capacity, count);
    compression_free(&c);
    return status;
}
