/* Chains by name, and which chains the factorization accepts.

   Every chainable chain with a full product pattern is a lattice chain: row radices
   q_l, column radices p_l and block ranks r_l (r_0 = r_L = 1) give
       Q_l = q_{l+1} .. q_L,   P_l = p_1 .. p_l,
       pi_l = (P_{l-1}, r_{l-1} q_l, r_l p_l, Q_l)          (docs/ks.md, equation 5)
   and all names below but the Kaleidoscope are choices of q, p and r. */
// SPDX-License-Identifier: Apache-2.0
#include "product/patterns.h"

#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <string.h>

/* ---- chainability ---- */

int64_t dn_pair_rank(danaus_pattern p, danaus_pattern q) { return p.a * p.c / q.a; }

int dn_pair_redundant(danaus_pattern p, danaus_pattern q)
{
    int64_t rank = dn_pair_rank(p, q);
    return rank >= p.b || rank >= q.c;
}

void dn_patterns_transpose(
    const danaus_pattern *patterns, int count, danaus_pattern *transposed)
{
    for (int l = 0; l < count; l++)
        transposed[count - 1 - l] = dn_pattern_adjoint(patterns[l]);
}

danaus_pattern dn_patterns_product(const danaus_pattern *patterns, int count)
{
    danaus_pattern product = patterns[0];
    for (int l = 1; l < count; l++)
        product = dn_pattern_product(product, patterns[l]);
    return product;
}

/* The first of the three conditions that a composable pair breaks, in words; NULL
   for a chainable pair. */
static const char *broken_condition(danaus_pattern p, danaus_pattern q)
{
    if (q.a % p.a)
        return "a of the left one must divide a of the right one";
    if (p.d % q.d)
        return "d of the right one must divide d of the left one";
    if (p.a * p.c % q.a)
        return "a of the right one must divide a c of the left one";
    return NULL;
}

/* The first pair that is not chainable, as the number of its left factor; -1. */
static int broken_pair(const danaus_pattern *patterns, int count)
{
    for (int l = 0; l + 1 < count; l++)
        if (broken_condition(patterns[l], patterns[l + 1]))
            return l;
    return -1;
}

danaus_status dn_patterns_direction(
    const danaus_pattern *patterns, int count, int *transposed)
{
    TRY(danaus_patterns_check(patterns, count));
    danaus_pattern reverse[DANAUS_MAX_FACTORS];
    dn_patterns_transpose(patterns, count, reverse);
    int pair = broken_pair(patterns, count);
    if (pair < 0 || broken_pair(reverse, count) < 0) {
        *transposed = pair >= 0;
        return DANAUS_OK;
    }
    danaus_pattern p = patterns[pair], q = patterns[pair + 1];
    return dn_fail(
        DANAUS_ERR_SHAPE,
        "factors %d and %d, " PATTERN " and " PATTERN
        ", are not chainable: %s, and the "
        "transposed chain fails too",
        pair, pair + 1, ENTRIES_OF(p), ENTRIES_OF(q), broken_condition(p, q));
}

danaus_status danaus_patterns_check_chainable(const danaus_pattern *patterns, int count)
{
    int transposed;
    return dn_patterns_direction(patterns, count, &transposed);
}

/* ---- lattice chains ---- */

danaus_status dn_patterns_lattice(
    int order, const int64_t *q, const int64_t *p, const int64_t *ranks, int64_t rank,
    danaus_pattern *patterns)
{
    int64_t rows_left = 1, cols_done = 1;
    for (int l = 0; l < order; l++) {
        if (q[l] < 1 || p[l] < 1)
            return dn_fail(DANAUS_ERR_SHAPE, "radix %d of a chain is not positive", l);
        if (dn_mul_overflows(rows_left, q[l], &rows_left))
            return dn_fail(
                DANAUS_ERR_SHAPE, "the product of the row radices overflows");
    }
    for (int l = 0; l < order; l++) {
        int64_t left = l == 0 ? 1 : ranks ? ranks[l - 1] : rank;
        int64_t right = l + 1 == order ? 1 : ranks ? ranks[l] : rank;
        if (left < 1 || right < 1)
            return dn_fail(DANAUS_ERR_SHAPE, "a block rank of a chain is not positive");
        rows_left /= q[l];
        danaus_pattern made = { .a = cols_done, .d = rows_left };
        if (dn_mul_overflows(left, q[l], &made.b) ||
            dn_mul_overflows(right, p[l], &made.c) ||
            dn_mul_overflows(cols_done, p[l], &cols_done))
            return dn_fail(DANAUS_ERR_SHAPE, "the sizes of factor %d overflow", l);
        patterns[l] = made;
    }
    return danaus_patterns_check(patterns, order);
}

static int smallest_prime(int64_t n)
{
    for (int64_t prime = 2; prime * prime <= n && prime <= 1 << 20; prime++)
        if (n % prime == 0)
            return (int)prime;
    return 0; /* n is prime, or has no small factor */
}

/* n as a product of `order` factors as equal as can be, ascending: primes from the
   largest down, each multiplied into the smallest factor so far. The first are 1 if n
   has fewer primes. */
static void equal_radices(int64_t n, int order, int64_t *radix)
{
    int64_t primes[64];
    int count = 0;
    for (int64_t rest = n; rest > 1;) {
        int64_t prime = smallest_prime(rest);
        primes[count] = prime ? prime : rest;
        rest /= primes[count++];
    }
    for (int l = 0; l < order; l++)
        radix[l] = 1;
    while (count) {
        radix[0] *= primes[--count];
        for (int l = 0; l + 1 < order && radix[l] > radix[l + 1]; l++) {
            int64_t larger = radix[l];
            radix[l] = radix[l + 1];
            radix[l + 1] = larger;
        }
    }
}

/* Rows end with radices of 1, where they cost the fewest weights: a prime number of
   rows makes the first factor dense, a prime number of columns the last. */
static void equal_row_radices(int64_t rows, int order, int64_t *radix)
{
    int64_t all[DANAUS_MAX_FACTORS];
    int ones = 0;
    equal_radices(rows, order, all);
    while (ones < order && all[ones] == 1)
        ones++;
    for (int l = 0; l < order; l++)
        radix[l] = all[(l + ones) % order];
}

static danaus_status check_radices(
    const int64_t *radices, int order, int64_t size, const char *what)
{
    int64_t product = 1;
    for (int l = 0; l < order; l++)
        if (radices[l] < 1 || dn_mul_overflows(product, radices[l], &product))
            return dn_fail(
                DANAUS_ERR_SHAPE, "the %s radices are not positive or overflow", what);
    if (product != size)
        return dn_fail(
            DANAUS_ERR_SHAPE, "the %s radices multiply to %" PRId64 ", not to %" PRId64,
            what, product, size);
    return DANAUS_OK;
}

/* ---- names ---- */

typedef struct made_chain {
    danaus_pattern p[DANAUS_MAX_FACTORS];
    int count;
} made_chain;

static danaus_status make_radices(
    const danaus_chain_desc *desc, int order, made_chain *made)
{
    if (order < 1 || order > DANAUS_MAX_FACTORS)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a chain has 1 to %d factors, not %d",
            DANAUS_MAX_FACTORS, order);
    int64_t q[DANAUS_MAX_FACTORS], p[DANAUS_MAX_FACTORS];
    size_t bytes = (size_t)order * sizeof *q;
    if (desc->row_radices)
        memcpy(q, desc->row_radices, bytes);
    else
        equal_row_radices(desc->rows, order, q);
    if (desc->col_radices)
        memcpy(p, desc->col_radices, bytes);
    else
        equal_radices(desc->cols, order, p);
    TRY(check_radices(q, order, desc->rows, "row"));
    TRY(check_radices(p, order, desc->cols, "column"));
    made->count = order;
    return dn_patterns_lattice(
        order, q, p, desc->ranks, desc->rank ? desc->rank : 1, made->p);
}

/* (2^l, 2t, 2t, 2^(L-1-l)), l < L; with `mirrored`, then the transposed chain. */
static danaus_status make_butterfly(
    const danaus_chain_desc *desc, int64_t t, int mirrored, made_chain *made)
{
    int64_t n = desc->rows;
    if (n != desc->cols || n % t || n / t < 2 || (n / t & (n / t - 1)))
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "a butterfly of block size %" PRId64 " needs rows = columns = %" PRId64
            " times a power of two above 1, not %" PRId64 " x %" PRId64,
            t, t, n, desc->cols);
    int order = 0;
    for (int64_t size = n / t; size > 1; size /= 2)
        order++;
    for (int l = 0; l < order; l++)
        made->p[l] = (danaus_pattern){ INT64_C(1) << l, 2 * t, 2 * t,
                                       INT64_C(1) << (order - 1 - l) };
    made->count = order;
    if (mirrored && 2 * order > DANAUS_MAX_FACTORS)
        return dn_fail(
            DANAUS_ERR_SHAPE, "a Kaleidoscope has at most %d factors",
            DANAUS_MAX_FACTORS);
    if (mirrored) {
        dn_patterns_transpose(made->p, order, made->p + order);
        made->count = 2 * order;
    }
    return danaus_patterns_check(made->p, made->count);
}

static danaus_status make_chain(const danaus_chain_desc *desc, made_chain *made)
{
    int64_t rank = desc->rank ? desc->rank : 1;
    switch (desc->kind) {
    case DANAUS_CHAIN_DENSE:
        made->count = 1;
        made->p[0] = (danaus_pattern){ 1, desc->rows, desc->cols, 1 };
        return danaus_patterns_check(made->p, 1);
    case DANAUS_CHAIN_LOW_RANK:
        made->count = 2;
        made->p[0] = (danaus_pattern){ 1, desc->rows, rank, 1 };
        made->p[1] = (danaus_pattern){ 1, rank, desc->cols, 1 };
        return danaus_patterns_check(made->p, 2);
    case DANAUS_CHAIN_DYADIC: return make_butterfly(desc, 1, 0, made);
    case DANAUS_CHAIN_BLOCK_BUTTERFLY: return make_butterfly(desc, rank, 0, made);
    case DANAUS_CHAIN_MONARCH:
        return make_radices(desc, desc->order ? desc->order : 2, made);
    case DANAUS_CHAIN_KALEIDOSCOPE: return make_butterfly(desc, 1, 1, made);
    case DANAUS_CHAIN_RADICES: return make_radices(desc, desc->order, made);
    }
    return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no kind of chain", (int)desc->kind);
}

danaus_status dn_patterns_deliver(
    const danaus_pattern *made, int made_count, danaus_pattern *patterns, int capacity,
    int *count)
{
    if (made_count > capacity)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "the chain has %d factors, more than the %d that fit",
            made_count, capacity);
    memcpy(patterns, made, (size_t)made_count * sizeof *made);
    *count = made_count;
    return DANAUS_OK;
}

danaus_status danaus_patterns_make(
    const danaus_chain_desc *desc, danaus_pattern *patterns, int capacity, int *count)
{
    if (!desc || !patterns || !count)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a chain's description and a place for it are needed");
    TRY(dn_check_reserved(desc->reserved, sizeof desc->reserved));
    if (desc->rows < 1 || desc->cols < 1)
        return dn_fail(
            DANAUS_ERR_SHAPE, "a chain for %" PRId64 " x %" PRId64 " is impossible",
            desc->rows, desc->cols);
    if (desc->rank < 0)
        return dn_fail(DANAUS_ERR_SHAPE, "a block rank is not %" PRId64, desc->rank);
    made_chain made;
    TRY(make_chain(desc, &made));
    return dn_patterns_deliver(made.p, made.count, patterns, capacity, count);
}
