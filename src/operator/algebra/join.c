/* Sums, stacks and block diagonals as one chain (docs/algebra.md).

   Between two factors one vector holds those of all terms: place (q, rest) of term s, q < P, is
   at (q, s, rest). With the same P on both of its sides a factor becomes

       BLOCKS   (a + a' + .., b, c, d)   the same b, c and d;  P divides every a

   At the left end of sums and horizontal stacks no index s is left on the rows, and at the
   right end of sums and vertical stacks none on the columns:

       COLUMNS  (a, b, c + c' + .., d)   the same a, b and d;  P = a x, x divides every c
       ROWS     (a, b + b' + .., c, d)   the same a, c and d;  P = a x, x divides every b

   so P = 1 needs a = 1. Otherwise that end gets a factor of ones, which gathers, (1, 1, n, M), or
   spreads, (1, n, 1, N), and becomes BLOCKS. In memory all three are interleaved: runs of each
   term in turn. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/algebra/combine.h"

#include "product/chain.h"
#include "base/dtype.h"
#include "base/holds.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef enum join { BLOCKS, COLUMNS, ROWS } join;

typedef struct joined {
    const terms *t;
    int sums_rows, sums_cols; /* terms share their rows, their columns */
    int count;                /* of factors of a term */
    int64_t place;            /* P */
    join how[DANAUS_MAX_FACTORS];
} joined;

static danaus_pattern pattern(const joined *j, int term, int l)
{
    return j->t->chain[term]->patterns[l];
}

/* 0 where it does not fit. */
static int64_t lcm(int64_t x, int64_t y)
{
    int64_t a = x, b = y, multiple;
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return dn_mul_overflows(x / a, y, &multiple) ? 0 : multiple;
}

/* ---- what fits ---- */

static danaus_status check_sizes(const joined *j)
{
    for (int s = 1; s < j->t->count; s++) {
        const danaus_chain *first = j->t->chain[0], *other = j->t->chain[s];
        int64_t rows = danaus_chain_rows(first), cols = danaus_chain_cols(first);
        if ((j->sums_rows && danaus_chain_rows(other) != rows) ||
            (j->sums_cols && danaus_chain_cols(other) != cols))
            return dn_fail(
                DANAUS_ERR_SHAPE,
                "chain %d is %" PRId64 " x %" PRId64 " and chain 0 is %" PRId64
                " x %" PRId64,
                s, danaus_chain_rows(other), danaus_chain_cols(other), rows, cols);
        if (other->count != first->count)
            return dn_fail(
                DANAUS_ERR_SHAPE,
                "chain %d has %d factors and chain 0 has %d: one chain needs as many",
                s, other->count, first->count);
    }
    return DANAUS_OK;
}

/* True if factor l of the term can be joined to factor l of term 0 so, with P = place. */
static int fits(const joined *j, join how, int term, int l, int64_t place)
{
    danaus_pattern p = pattern(j, term, l), q = pattern(j, 0, l);
    if (p.d != q.d || (how != COLUMNS && p.c != q.c) || (how != ROWS && p.b != q.b))
        return 0;
    if (how == BLOCKS)
        return p.a % place == 0;
    return p.a == q.a && place % p.a == 0 &&
           (how == COLUMNS ? p.c : p.b) % (place / p.a) == 0;
}

/* The first term that does not fit, or -1. */
static int misfit(const joined *j, join how, int l, int64_t place)
{
    for (int s = 0; s < j->t->count; s++)
        if (!fits(j, how, s, l, place))
            return s;
    return -1;
}

/* Ends without factors of ones. */
static int ends_fit(const joined *j, int64_t place)
{
    int last = j->count - 1;
    for (int l = 1; l < last; l++)
        if (misfit(j, BLOCKS, l, place) >= 0)
            return 0;
    return misfit(j, COLUMNS, 0, place) < 0 && misfit(j, ROWS, last, place) < 0;
}

static danaus_status choose(joined *j)
{
    int last = j->count - 1;
    int64_t place = lcm(pattern(j, 0, 0).a, pattern(j, 0, last).a);
    int both = j->sums_rows && j->sums_cols && last > 0;
    j->place = both && place && ends_fit(j, place) ? place : 1;
    for (int l = 0; l <= last; l++) {
        j->how[l] = BLOCKS;
        if (l == 0 && j->sums_rows && misfit(j, COLUMNS, l, j->place) < 0)
            j->how[l] = COLUMNS;
        else if (l == last && j->sums_cols && misfit(j, ROWS, l, j->place) < 0)
            j->how[l] = ROWS;
        int s = misfit(j, j->how[l], l, j->place);
        if (s >= 0)
            return dn_fail(
                DANAUS_ERR_SHAPE,
                "factor %d is " PATTERN " in chain %d and " PATTERN
                " in chain 0: one chain needs the same b, c and d",
                l, ENTRIES_OF(pattern(j, s, l)), s, ENTRIES_OF(pattern(j, 0, l)));
    }
    return DANAUS_OK;
}

/* ---- the joined factors ---- */

static danaus_status add_sizes(const joined *j, int l, danaus_pattern *sum)
{
    danaus_pattern p = *sum = pattern(j, 0, l);
    int64_t *size = j->how[l] == BLOCKS ? &sum->a
                    : j->how[l] == ROWS ? &sum->b
                                        : &sum->c;
    for (int s = 1; s < j->t->count; s++) {
        p = pattern(j, s, l);
        int64_t more = j->how[l] == BLOCKS ? p.a : j->how[l] == ROWS ? p.b : p.c;
        if (__builtin_add_overflow(*size, more, size))
            return dn_fail(DANAUS_ERR_SHAPE, "the sizes of factor %d overflow", l);
    }
    return DANAUS_OK;
}

/* Runs of each term in turn, so many of each. */
static void interleave(const joined *j, int l, int64_t runs, char *to)
{
    size_t element = danaus_dtype_size(j->t->dtype);
    for (int64_t n = 0; n < runs; n++)
        for (int s = 0; s < j->t->count; s++) {
            size_t run =
                (size_t)(dn_pattern_weights(pattern(j, s, l)) / runs) * element;
            const char *from = j->t->chain[s]->weights[l];
            memcpy(to, from + (size_t)n * run, run);
            to += run;
        }
}

static void fill_ones(danaus_dtype dtype, void *w, int64_t count)
{
    for (int64_t n = 0; n < count; n++)
        dn_store(dtype, w, n, (double[2]){ 1, 0 });
}

static danaus_status make(const joined *j, danaus_chain **made)
{
    int64_t terms_count = j->t->count;
    danaus_pattern p[DANAUS_MAX_FACTORS + 2];
    int last = j->count - 1, gathers = j->sums_rows && j->how[0] != COLUMNS;
    int spreads = j->sums_cols && j->how[last] != ROWS, count = gathers;
    p[0] = (danaus_pattern){ 1, 1, terms_count, danaus_chain_rows(j->t->chain[0]) };
    for (int l = 0; l <= last; l++)
        TRY(add_sizes(j, l, &p[count++]));
    if (spreads)
        p[count++] =
            (danaus_pattern){ 1, terms_count, 1, danaus_chain_cols(j->t->chain[0]) };
    danaus_chain *chain;
    TRY(danaus_chain_create(p, count, j->t->dtype, &chain));
    for (int l = 0; l <= last; l++) {
        int64_t b = j->how[l] == COLUMNS ? pattern(j, 0, l).b : 1;
        interleave(j, l, b * j->place, chain->weights[l + gathers]);
    }
    if (gathers)
        fill_ones(chain->dtype, chain->weights[0], dn_pattern_weights(p[0]));
    if (spreads)
        fill_ones(
            chain->dtype, chain->weights[count - 1], dn_pattern_weights(p[count - 1]));
    *made = chain;
    return DANAUS_OK;
}

/* ---- sums of single factors ---- */

static int are_alike(const joined *j)
{
    for (int s = 0; s < j->t->count; s++)
        if (j->count > 1 || !dn_pattern_equal(pattern(j, s, 0), pattern(j, 0, 0)))
            return 0;
    return 1;
}

static danaus_status add_entries(const joined *j, danaus_chain **sum)
{
    danaus_pattern p = pattern(j, 0, 0);
    danaus_chain *made;
    TRY(danaus_chain_create(&p, 1, j->t->dtype, &made));
    int64_t lost = 0;
    for (int64_t n = 0; n < dn_pattern_weights(p); n++) {
        double total[2] = { 0, 0 }, value[2];
        int finite = 1;
        for (int s = 0; s < j->t->count; s++) {
            dn_load(made->dtype, j->t->chain[s]->weights[0], n, value);
            total[0] += value[0];
            total[1] += value[1];
            finite &= isfinite(value[0]) && isfinite(value[1]);
        }
        dn_store(made->dtype, made->weights[0], n, total);
        dn_load(made->dtype, made->weights[0], n, value);
        lost += finite && !(isfinite(value[0]) && isfinite(value[1]));
    }
    if (lost) {
        danaus_chain_destroy(made);
        return dn_fail_too_large(lost, "the sum", j->t->dtype);
    }
    *sum = made;
    return DANAUS_OK;
}

danaus_status dn_join(danaus_combination how, const terms *t, danaus_chain **made)
{
    int many = t->count > 1;
    joined j = { .t = t,
                 .sums_rows = many && (how == DANAUS_SUM || how == DANAUS_HSTACK),
                 .sums_cols = many && (how == DANAUS_SUM || how == DANAUS_VSTACK),
                 .count = t->chain[0]->count };
    TRY(check_sizes(&j));
    if (how == DANAUS_SUM && are_alike(&j))
        return add_entries(&j, made);
    TRY(choose(&j));
    return make(&j, made);
}
