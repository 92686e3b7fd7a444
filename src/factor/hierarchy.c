/* Hierarchical factorization: the interval of all factors is split until single
   factors remain, each split being the best one for its part (docs/ks.md, section 4).

   Before a part is split, all parts left of it get orthonormal columns and all parts
   right of it orthonormal rows, block by block, so that an error made in the part is
   an error of the same norm in the product. The singular values go to the side where
   the next split is; sweeps therefore need no orthonormalisation at all. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/hierarchy.h"

#include "product/patterns.h"
#include "base/mem.h"
#include "base/status.h"

#include <math.h>

/* Factors lo .. hi-1 as one. */
typedef struct hierarchy_part {
    int lo, hi;
    danaus_pattern p;
    double *w; /* NULL: the matrix itself */
    enum { NEITHER, LEFT, RIGHT } orthonormal;
} hierarchy_part;

typedef struct hierarchy {
    ks_run *run;
    const ks_view *matrix;
    const danaus_pattern *patterns;
    int complex, count;
    hierarchy_part parts[DANAUS_MAX_FACTORS];
} hierarchy;

static int part_with(const hierarchy *h, int split)
{
    int m = 0;
    while (split <= h->parts[m].lo || split >= h->parts[m].hi)
        m++;
    return m;
}

static danaus_status orthonormalise_around(hierarchy *h, int m)
{
    for (int i = 0; i < m; i++) {
        hierarchy_part *x = &h->parts[i], *y = x + 1;
        if (x->orthonormal == LEFT)
            continue;
        ks_pair pair = dn_pair(x->p, y->p);
        TRY(dn_orthonormalise_left(h->run, &pair, h->complex, x->w, y->w));
        x->orthonormal = LEFT;
        y->orthonormal = NEITHER;
    }
    for (int i = h->count - 1; i > m; i--) {
        hierarchy_part *y = &h->parts[i], *x = y - 1;
        if (y->orthonormal == RIGHT)
            continue;
        ks_pair pair = dn_pair(x->p, y->p);
        TRY(dn_orthonormalise_right(h->run, &pair, h->complex, x->w, y->w));
        y->orthonormal = RIGHT;
        x->orthonormal = NEITHER;
    }
    return DANAUS_OK;
}

/* Part m becomes two parts. */
static danaus_status split_part(
    hierarchy *h, int m, int split, ks_split_how how, double *delta)
{
    hierarchy_part *old = &h->parts[m];
    hierarchy_part left = { .lo = old->lo, .hi = split },
                   right = { .lo = split, .hi = old->hi };
    left.p = dn_patterns_product(h->patterns + left.lo, left.hi - left.lo);
    right.p = dn_patterns_product(h->patterns + right.lo, right.hi - right.lo);
    left.orthonormal = how.sigma == DN_SIGMA_RIGHT ? LEFT : NEITHER;
    right.orthonormal = how.sigma == DN_SIGMA_LEFT ? RIGHT : NEITHER;
    left.w = dn_work_alloc(h->complex, left.p);
    right.w = dn_work_alloc(h->complex, right.p);
    danaus_status status = DANAUS_OK;
    if (!left.w || !right.w)
        status = dn_fail(DANAUS_ERR_MEMORY, "no memory for the factors");
    ks_pair pair = dn_pair(left.p, right.p);
    ks_view t = old->w ? dn_view_work(h->complex, pair.p, old->w) : *h->matrix;
    double dropped = 0;
    if (status == DANAUS_OK)
        status = dn_split(h->run, &pair, &t, how, left.w, right.w, &dropped);
    if (status != DANAUS_OK) {
        dn_free(left.w);
        dn_free(right.w);
        return status;
    }
    *delta = sqrt(dropped);
    dn_free(old->w);
    for (int i = h->count; i > m + 1; i--)
        h->parts[i] = h->parts[i - 1];
    h->parts[m] = left;
    h->parts[m + 1] = right;
    h->count++;
    return DANAUS_OK;
}

/* Where the singular values of split n of the order go: towards the next split. */
static dn_sigma sigma_of_split(const int *order, int n, int splits, ks_how how)
{
    if (how.square_roots)
        return DN_SIGMA_BOTH;
    int last = n + 1 == splits;
    return last || order[n + 1] > order[n] ? DN_SIGMA_RIGHT : DN_SIGMA_LEFT;
}

static danaus_status split_all(
    hierarchy *h, const int *order, int splits, ks_how how, double *delta)
{
    for (int n = 0; n < splits; n++) {
        int m = part_with(h, order[n]);
        if (!how.square_roots)
            TRY(orthonormalise_around(h, m));
        ks_split_how split = { sigma_of_split(order, n, splits, how), how.fast };
        TRY(split_part(h, m, order[n], split, &delta[order[n] - 1]));
    }
    return DANAUS_OK;
}

danaus_status dn_hierarchy(
    ks_run *run, const ks_view *w, const danaus_pattern *patterns, int count,
    const int *order, ks_how how, ks_factors *factors, double *delta)
{
    hierarchy h = { .run = run,
                    .matrix = w,
                    .patterns = patterns,
                    .complex = dn_view_complex(w),
                    .count = 1 };
    h.parts[0] = (hierarchy_part){ .hi = count, .p = w->p };
    danaus_status status = DANAUS_OK;
    if (count > 1)
        status = split_all(&h, order, count - 1, how, delta);
    else if (!(h.parts[0].w = dn_work_alloc(h.complex, w->p)))
        status = dn_fail(DANAUS_ERR_MEMORY, "no memory for the factor");
    else
        dn_view_read(w, h.parts[0].w);
    factors->complex = h.complex;
    factors->count = h.count;
    for (int l = 0; l < h.count; l++) {
        factors->p[l] = h.parts[l].p;
        factors->w[l] = h.parts[l].w;
    }
    if (status != DANAUS_OK)
        dn_factors_free(factors);
    return status;
}

/* ---- orders ---- */

/* Appends the splits of factors lo .. hi-1, the middle one first. */
static int *append_balanced(int *splits, int lo, int hi)
{
    if (hi - lo < 2)
        return splits;
    int middle = (lo + hi) / 2;
    *splits++ = middle;
    splits = append_balanced(splits, lo, middle);
    return append_balanced(splits, middle, hi);
}

static void sweep(int count, int backwards, int *splits)
{
    for (int s = 1; s < count; s++)
        splits[s - 1] = backwards ? count - s : s;
}

void dn_order_splits(
    danaus_order order, const danaus_pattern *patterns, int count, int *splits)
{
    if (order == DANAUS_ORDER_BALANCED) {
        append_balanced(splits, 0, count);
        return;
    }
    sweep(count, order == DANAUS_ORDER_RIGHT_TO_LEFT, splits);
    if (order != DANAUS_ORDER_AUTO)
        return;
    double forward = dn_order_work(patterns, count, splits);
    sweep(count, 1, splits);
    if (dn_order_work(patterns, count, splits) >= forward)
        sweep(count, 0, splits);
}

double dn_order_work(const danaus_pattern *patterns, int count, const int *splits)
{
    int is_end[DANAUS_MAX_FACTORS + 1] = { 0 };
    double work = 0;
    is_end[0] = is_end[count] = 1;
    for (int n = 0; n + 1 < count; n++) {
        int lo = splits[n], hi = splits[n];
        do
            lo--;
        while (!is_end[lo]);
        do
            hi++;
        while (!is_end[hi]);
        ks_pair pair = dn_pair(
            dn_patterns_product(patterns + lo, splits[n] - lo),
            dn_patterns_product(patterns + splits[n], hi - splits[n]));
        work += dn_pair_work(&pair);
        is_end[splits[n]] = 1;
    }
    return work;
}

/* e(node) = sqrt(delta^2 + e(first child)^2) + e(second child). */
static double tree_bound(const double *delta, int lo, int hi)
{
    if (hi - lo < 2)
        return 0;
    int middle = (lo + hi) / 2;
    return hypot(delta[middle - 1], tree_bound(delta, lo, middle)) +
           tree_bound(delta, middle, hi);
}

double dn_order_bound(danaus_order order, int count, const double *delta)
{
    if (order == DANAUS_ORDER_BALANCED)
        return tree_bound(delta, 0, count);
    double sum = 0;
    for (int s = 1; s < count; s++)
        sum = hypot(sum, delta[s - 1]);
    return sum;
}
