/* Alternating minimisation of ||W - K_1 .. K_L||.

   With orthonormal factors left of factor l and right of factor l+1, the problem in
   that pair is one of equal size for the projection
       Z = (K_1 .. K_{l-1})^H W (K_{l+2} .. K_L)^H,   on the support of pi_l * pi_{l+1},
   whose best split is exact (docs/ks.md, equation 17). A forward pass moves l to the
   right and leaves orthonormal columns behind; the backward pass mirrors it. Left
   projections accumulate in T; right ones are made anew, from the last factor on,
   for sizes that shrink geometrically. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/refine.h"

#include "product/patterns.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"

/* A projection of W: the matrix itself while `owned` is NULL. */
typedef struct projection {
    ks_view view;
    double *owned;
} projection;

typedef struct refinement {
    ks_run *run;
    const ks_view *matrix;
    ks_factors *f;
    sweep_step step;
    double work;     /* of a step */
    double *history; /* next entry, or NULL */
} refinement;

static danaus_pattern product_of(const refinement *s, int lo, int hi)
{
    return dn_patterns_product(s->f->p + lo, hi - lo);
}

/* z becomes z K_j^H (left = 0) or K_j^H z; z spans factors lo .. hi-1 before and K_j
   is its last, or first, one. The memory of `keep` is not freed. */
static danaus_status project(
    refinement *s, projection *z, int lo, int hi, int left, const double *keep)
{
    ks_pair pair = left ? dn_pair(s->f->p[lo], product_of(s, lo + 1, hi))
                        : dn_pair(product_of(s, lo, hi - 1), s->f->p[hi - 1]);
    danaus_pattern p = left ? pair.p2 : pair.p1;
    double *made = dn_work_alloc(s->f->complex, p);
    if (!made)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory to refine the factors");
    danaus_status status =
        left ? dn_project_left(s->run, &pair, &z->view, s->f->w[lo], made)
             : dn_project_right(s->run, &pair, &z->view, s->f->w[hi - 1], made);
    if (z->owned != keep)
        dn_free(z->owned);
    *z = (projection){ dn_view_work(s->f->complex, p, made), made };
    return status;
}

/* The pair l, l+1 from z; singular values (or the factor that was solved for) stay
   on the side that the pass moves to. */
static danaus_status update_pair(refinement *s, const projection *z, int l, int forward)
{
    double **w = s->f->w;
    ks_pair pair = dn_pair(s->f->p[l], s->f->p[l + 1]);
    int complex = s->f->complex;
    if (s->step == KS_STEP_PAIR) {
        ks_split_how how = { .sigma = forward ? DN_SIGMA_RIGHT : DN_SIGMA_LEFT };
        double dropped;
        TRY(dn_split(s->run, &pair, &z->view, how, w[l], w[l + 1], &dropped));
    } else if (forward) {
        TRY(dn_project_right(s->run, &pair, &z->view, w[l + 1], w[l]));
        TRY(dn_orthonormalise_left(s->run, &pair, complex, w[l], w[l + 1]));
    } else {
        TRY(dn_project_left(s->run, &pair, &z->view, w[l], w[l + 1]));
        TRY(dn_orthonormalise_right(s->run, &pair, complex, w[l], w[l + 1]));
    }
    int centre = forward ? l + 1 : l;
    dn_matrix all = { w[centre], 0 };
    if (s->history)
        *s->history++ = dn_energy(complex, 1, dn_pattern_weights(s->f->p[centre]), all);
    return dn_run_progress(s->run, s->work);
}

/* One step: z from t by projecting on the factors beyond the pair, the update, and t
   moved past the factor that is now final. */
static danaus_status step(refinement *s, projection *t, int l, int forward)
{
    int count = s->f->count;
    projection z = *t;
    danaus_status status = DANAUS_OK;
    if (forward)
        for (int hi = count; hi > l + 2 && status == DANAUS_OK; hi--)
            status = project(s, &z, l, hi, 0, t->owned);
    else
        for (int lo = 0; lo < l && status == DANAUS_OK; lo++)
            status = project(s, &z, lo, l + 2, 1, t->owned);
    if (status == DANAUS_OK)
        status = update_pair(s, &z, l, forward);
    if (z.owned != t->owned)
        dn_free(z.owned);
    if (status != DANAUS_OK)
        return status;
    if (forward && l + 2 < count)
        return project(s, t, l, count, 1, NULL);
    if (!forward && l > 0)
        return project(s, t, 0, l + 2, 0, NULL);
    return DANAUS_OK;
}

static danaus_status pass(refinement *s, int forward)
{
    projection t = { *s->matrix, NULL };
    int steps = s->f->count - 1;
    danaus_status status = DANAUS_OK;
    for (int n = 0; n < steps && status == DANAUS_OK; n++)
        status = step(s, &t, forward ? n : steps - 1 - n, forward);
    dn_free(t.owned);
    return status;
}

danaus_status dn_refine(
    ks_run *run, const ks_view *w, int sweeps, sweep_step step_kind, double work,
    ks_factors *factors, double *history)
{
    if (factors->count < 2 || sweeps < 1)
        return DANAUS_OK;
    refinement s = {
        .run = run, .matrix = w, .f = factors, .step = step_kind, .history = history
    };
    s.work = work / (2.0 * sweeps * (factors->count - 1));
    for (int l = factors->count - 1; l > 0; l--) {
        ks_pair pair = dn_pair(factors->p[l - 1], factors->p[l]);
        TRY(dn_orthonormalise_right(
            run, &pair, factors->complex, factors->w[l - 1], factors->w[l]));
    }
    for (int sweep = 0; sweep < sweeps; sweep++) {
        TRY(pass(&s, 1));
        TRY(pass(&s, 0));
    }
    return DANAUS_OK;
}
