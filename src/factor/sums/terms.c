/* danaus_factorize_sum(): finds terms that are one chain, fits, splits and bounds.

   The sum of terms of two factors that differ only in block ranks is one chain whose ranks are
   the sums (docs/algebra.md, section 2). It is fitted, to its optimum, and split. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/factorize.h"

#include "factor/calibrated/calibration.h"
#include "product/chain.h"
#include "factor/sums/cuts.h"
#include "product/patterns.h"
#include "factor/sums/sum.h"
#include "base/clock.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { ROUNDS = 4, MOST_ROUNDS = 1000000 };

typedef struct whole {
    ks_dense w;
    danaus_factorize_desc fit;
    ks_sample_sums sums;
    ks_terms given, fitted;                   /* fitted: some pairs became one term */
    int place[DANAUS_MAX_TERMS];              /* of a given term among those */
    danaus_pattern pair[DANAUS_MAX_TERMS][2]; /* of fitted terms of two factors */
    danaus_chain *chain[DANAUS_MAX_TERMS], *part[DANAUS_MAX_TERMS];
    danaus_factorize_result result, step[DANAUS_MAX_TERMS];
} whole;

/* ---- terms that are one ---- */

/* True if two pairs that can be factorised differ only in their block ranks. */
static int agree(const danaus_pattern *p, const danaus_pattern *q)
{
    int across, across_too;
    return p[0].a == q[0].a && p[0].b == q[0].b && p[0].d == q[0].d &&
           p[1].a == q[1].a && p[1].c == q[1].c && p[1].d == q[1].d &&
           dn_patterns_direction(p, 2, &across) == DANAUS_OK &&
           dn_patterns_direction(q, 2, &across_too) == DANAUS_OK &&
           across == across_too;
}

static int place_of(const whole *s, const danaus_pattern *p, int count)
{
    int m = 0;
    while (m < s->fitted.count &&
           !(count == 2 && s->fitted.count_of[m] == 2 && agree(s->pair[m], p)))
        m++;
    return m;
}

static void join(whole *s)
{
    ks_terms *to = &s->fitted;
    for (int n = 0; n < s->given.count; n++) {
        const danaus_pattern *p = s->given.patterns[n];
        int count = s->given.count_of[n], m = s->place[n] = place_of(s, p, count);
        if (m < to->count) {
            s->pair[m][0].c += p[0].c;
            s->pair[m][1].b += p[1].b;
            continue;
        }
        to->count++;
        to->count_of[m] = count;
        to->patterns[m] = p;
        if (count == 2) {
            memcpy(s->pair[m], p, sizeof s->pair[m]);
            to->patterns[m] = s->pair[m];
        }
    }
}

/* The part of a factor that is a term's: in dimension c of the first one and b of the
   second there are `groups` runs of numbers, each with the terms' in turn, and `before` of
   earlier terms. */
static void copy_part(
    danaus_pattern from, danaus_pattern to, int first, int64_t groups, int64_t before,
    size_t size, const char *x, char *y)
{
    int64_t inner = first ? to.d : to.c * to.d, all = first ? from.c : from.b;
    int64_t run = (first ? to.c : to.b) / groups * inner, step = all / groups * inner;
    int64_t runs = (first ? to.a * to.b : to.a) * groups;
    for (int64_t n = 0; n < runs; n++)
        memcpy(
            y + (size_t)(n * run) * size,
            x + (size_t)(n * step + before * inner) * size, (size_t)run * size);
}

/* Splits term n off the chain that was fitted for it and others. */
static danaus_status split(whole *s, int n)
{
    const danaus_pattern *p = s->given.patterns[n];
    const danaus_chain *from = s->chain[s->place[n]];
    int64_t widest = MAX(p[0].a, p[1].a);
    TRY(danaus_chain_create(p, 2, from->dtype, &s->part[n]));
    for (int l = 0; l < 2; l++) {
        int64_t groups = widest / p[l].a, before = 0;
        for (int m = 0; m < n; m++) {
            const danaus_pattern *q = s->given.patterns[m];
            if (s->place[m] == s->place[n])
                before += (l ? q[1].b : q[0].c) / groups;
        }
        copy_part(
            from->patterns[l], p[l], l == 0, groups, before,
            danaus_dtype_size(from->dtype), from->weights[l], s->part[n]->weights[l]);
    }
    return DANAUS_OK;
}

/* The chains that were asked for. */
static danaus_status take_parts(whole *s)
{
    for (int n = 0; n < s->given.count; n++) {
        danaus_chain **from = &s->chain[s->place[n]];
        if (s->given.count_of[n] == 2) {
            TRY(split(s, n));
            continue;
        }
        s->part[n] = *from;
        *from = NULL;
    }
    const void *bias = danaus_chain_bias(s->chain[0]);
    return bias ? danaus_chain_set_bias(s->part[0], bias) : DANAUS_OK;
}

/* ---- lower bounds ---- */

static danaus_status certify(whole *s, const danaus_sum_desc *desc)
{
    danaus_factorize_result *r = &s->result;
    const danaus_factorize_result *last = &s->step[s->fitted.count - 1];
    r->upper_bound = fmax(r->error, last->upper_bound);
    r->off_support = dn_terms_unreached(&s->w, &s->fitted);
    if (s->fit.calibration)
        return DANAUS_OK;
    if (s->fitted.count == 1)
        r->lower_bound = fmin(r->error, last->lower_bound);
    else if (desc->lower_bound)
        TRY(dn_terms_bound(&s->w, &s->fitted, s->fit.threads, &r->lower_bound));
    r->lower_bound = fmin(r->lower_bound, r->error);
    return DANAUS_OK;
}

/* ---- the call ---- */

static danaus_status check_places(
    const danaus_pattern *patterns, const int *counts, int terms,
    const danaus_sum_desc *desc, danaus_chain **chains)
{
    if (!patterns || !counts || !chains)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "patterns, their number for each term and places for chains are needed");
    if (terms < 1 || terms > DANAUS_MAX_TERMS)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a sum has 1 to %d terms, not %d", DANAUS_MAX_TERMS,
            terms);
    TRY(dn_check_reserved(desc->reserved, sizeof desc->reserved));
    if (desc->rounds < -1 || desc->rounds > MOST_ROUNDS)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%d is no number of rounds; -1 to %d are",
            desc->rounds, MOST_ROUNDS);
    return DANAUS_OK;
}

/* Reads the terms, which must all be of the first one's size. */
static danaus_status read_terms(
    whole *s, const danaus_pattern *patterns, const int *counts, int terms)
{
    for (int n = 0; n < terms; n++) {
        int across;
        TRY(dn_patterns_direction(patterns, counts[n], &across));
        int64_t rows = dn_pattern_rows(patterns[0]);
        int64_t cols = dn_pattern_cols(patterns[counts[n] - 1]);
        if (n == 0)
            s->w = (ks_dense){ s->w.data, s->w.dtype, rows, cols };
        else if (rows != s->w.rows || cols != s->w.cols)
            return dn_fail(
                DANAUS_ERR_SHAPE,
                "term %d is %" PRId64 " x %" PRId64 ", but term 0 is %" PRId64
                " x %" PRId64,
                n, rows, cols, s->w.rows, s->w.cols);
        s->given.patterns[n] = patterns;
        s->given.count_of[n] = counts[n];
        s->given.count = n + 1;
        patterns += counts[n];
    }
    return DANAUS_OK;
}

static danaus_status run(whole *s, const danaus_sum_desc *desc)
{
    int rounds = desc->rounds ? MAX(desc->rounds, 0) : ROUNDS;
    if (s->fitted.count == 1 && s->fitted.count_of[0] <= 2)
        rounds = 0;
    TRY(dn_sample_sums(&s->w, &s->fit, &s->sums));
    TRY(dn_sum_fit(&s->w, &s->fitted, rounds, &s->fit, s->chain, &s->result, s->step));
    TRY(take_parts(s));
    return certify(s, desc);
}

danaus_status danaus_factorize_sum(
    const void *dense, danaus_dtype dtype, const danaus_pattern *patterns,
    const int *counts, int terms, const danaus_sum_desc *desc, danaus_chain **chains,
    danaus_factorize_result *result, danaus_factorize_result *steps)
{
    double start = dn_seconds();
    danaus_sum_desc plain = { 0 };
    desc = desc ? desc : &plain;
    TRY(check_places(patterns, counts, terms, desc, chains));
    whole s = { .w = { dense, dtype, 0, 0 } };
    if (desc->fit)
        s.fit = *desc->fit;
    TRY(read_terms(&s, patterns, counts, terms));
    TRY(dn_factorize_check(&s.w, &s.fit));
    join(&s);
    danaus_status status = run(&s, desc);
    if (status == DANAUS_OK) {
        s.result.seconds = dn_seconds() - start;
        memcpy(chains, s.part, (size_t)terms * sizeof *chains);
        memset(s.part, 0, sizeof s.part);
        if (result)
            *result = s.result;
        for (int n = 0; steps && n < terms; n++)
            steps[n] = s.step[s.place[n]];
    }
    for (int n = 0; n < terms; n++) {
        danaus_chain_destroy(s.chain[n]);
        danaus_chain_destroy(s.part[n]);
    }
    dn_sample_sums_free(&s.sums);
    return status;
}
