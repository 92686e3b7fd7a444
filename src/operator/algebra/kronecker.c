/* Kronecker products. With A = K_1 .. K_L and B = K'_1 .. K'_L', A (x) B is the product of all

       K_l (x) I_n    (a, b, c, d n)    each number n times over
       I_m (x) K'_l   (m a, b, c, d)    all numbers m times over

   in any order that keeps the order of each chain. n is the size of B's vectors at that place,
   m the size of A's. The order with the fewest numbers is a shortest path over how many factors
   of each chain were taken from the left. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/algebra/combine.h"

#include "product/chain.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* (L + 1) (L' + 1) is at most that of L = L' = DANAUS_MAX_FACTORS / 2. */
#define MOST_PLACES ((DANAUS_MAX_FACTORS / 2 + 1) * (DANAUS_MAX_FACTORS / 2 + 1))

typedef struct factor {
    danaus_pattern p; /* of the product */
    int from_left, l; /* which factor, of which chain */
    int64_t times;    /* its numbers are there so often */
} factor;

/* What has been taken: x factors of the left chain and y of the right one. */
typedef struct kronecker_place {
    double numbers; /* so far, at least */
    int from_left;  /* the last one */
} kronecker_place;

/* The size of a chain's vectors behind so many of its factors. */
static int64_t size_behind(const danaus_chain *chain, int factors)
{
    return factors ? dn_pattern_cols(chain->patterns[factors - 1])
                   : danaus_chain_rows(chain);
}

static void try_factor(
    const danaus_chain *taken, int l, int64_t times, double before, int from_left,
    kronecker_place *to)
{
    double numbers =
        before + (double)dn_pattern_weights(taken->patterns[l]) * (double)times;
    if (numbers < to->numbers)
        *to = (kronecker_place){ numbers, from_left };
}

/* The factors in the cheapest order. */
static void order(const danaus_chain *left, const danaus_chain *right, factor *factors)
{
    kronecker_place places[MOST_PLACES];
    int wide = right->count + 1;
    for (int x = 0; x <= left->count; x++)
        for (int y = 0; y <= right->count; y++) {
            kronecker_place *to = &places[x * wide + y];
            *to = (kronecker_place){ x || y ? INFINITY : 0, 0 };
            if (x)
                try_factor(
                    left, x - 1, size_behind(right, y), (to - wide)->numbers, 1, to);
            if (y)
                try_factor(
                    right, y - 1, size_behind(left, x), (to - 1)->numbers, 0, to);
        }
    for (int x = left->count, y = right->count; x + y > 0;) {
        int from_left = places[x * wide + y].from_left, at = x + y - 1;
        x -= from_left;
        y -= !from_left;
        factors[at] = from_left
                          ? (factor){ left->patterns[x], 1, x, size_behind(right, y) }
                          : (factor){ right->patterns[y], 0, y, size_behind(left, x) };
    }
}

/* Numbers of a factor, each `times` over, or all of them. */
static void repeat(const char *from, size_t bytes, size_t unit, int64_t times, char *to)
{
    for (; bytes; bytes -= unit, from += unit)
        for (int64_t n = 0; n < times; n++, to += unit)
            memcpy(to, from, unit);
}

/* The factors of the product of two chains; reads only the chains' patterns. */
static danaus_status plan(
    const danaus_chain *left, const danaus_chain *right, factor *factors,
    danaus_pattern *p)
{
    int count = left->count + right->count;
    order(left, right, factors);
    for (int l = 0; l < count; l++) {
        factor *f = &factors[l];
        if (dn_mul_overflows(
                f->from_left ? f->p.d : f->p.a, f->times,
                f->from_left ? &f->p.d : &f->p.a))
            return dn_fail(
                DANAUS_ERR_SHAPE, "the sizes of a Kronecker product overflow");
        p[l] = f->p;
    }
    return danaus_patterns_check(p, count);
}

/* Plans the products of all terms before any number is made. */
static danaus_status check(const terms *t)
{
    int64_t count = 0;
    for (int s = 0; s < t->count; s++)
        count += t->chain[s]->count;
    if (count > DANAUS_MAX_FACTORS)
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "the Kronecker product would have %" PRId64 " factors, more than %d", count,
            DANAUS_MAX_FACTORS);
    danaus_chain shape = { .count = t->chain[0]->count, .dtype = t->dtype };
    memcpy(shape.patterns, t->chain[0]->patterns, sizeof shape.patterns);
    for (int s = 1; s < t->count; s++) {
        factor factors[DANAUS_MAX_FACTORS];
        danaus_pattern p[DANAUS_MAX_FACTORS];
        TRY(plan(&shape, t->chain[s], factors, p));
        shape.count += t->chain[s]->count;
        memcpy(shape.patterns, p, (size_t)shape.count * sizeof *p);
    }
    return dn_chain_check_room(shape.patterns, shape.count, t->dtype);
}

static danaus_status multiply(
    const danaus_chain *left, const danaus_chain *right, danaus_chain **product)
{
    int count = left->count + right->count;
    factor factors[DANAUS_MAX_FACTORS];
    danaus_pattern p[DANAUS_MAX_FACTORS];
    TRY(plan(left, right, factors, p));
    danaus_chain *made;
    TRY(danaus_chain_create(p, count, left->dtype, &made));
    size_t element = danaus_dtype_size(left->dtype);
    for (int l = 0; l < count; l++) {
        const factor *f = &factors[l];
        const danaus_chain *of = f->from_left ? left : right;
        size_t bytes = (size_t)dn_pattern_weights(of->patterns[f->l]) * element;
        repeat(
            of->weights[f->l], bytes, f->from_left ? element : bytes, f->times,
            made->weights[l]);
    }
    *product = made;
    return DANAUS_OK;
}

danaus_status dn_kronecker(const terms *t, danaus_chain **product)
{
    danaus_chain *made;
    TRY(check(t));
    TRY(danaus_chain_convert(t->chain[0], t->dtype, &made));
    TRY(danaus_chain_set_bias(made, NULL));
    for (int s = 1; s < t->count; s++) {
        danaus_chain *next;
        danaus_status status = multiply(made, t->chain[s], &next);
        danaus_chain_destroy(made);
        TRY(status);
        made = next;
    }
    *product = made;
    return DANAUS_OK;
}
