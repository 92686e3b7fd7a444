/* Factors that fit given inputs: minimise ||T - K_1 .. K_L D||, where D is triangular
   (calibration.h).

   One factor at a time. With A = K_1 .. K_{l-1} and Z = K_{l+1} .. K_L D the error is
   ||R - A P Z|| for a change P of K_l and the present residual R: linear least squares
   in P. In every block, Z = L Q with orthonormal rows of Q, and conjugate gradients
   run for P L, so that the first factor (A = I), whose rows are independent problems,
   is solved exactly by one step. A step is kept only if the error, computed anew, is
   not larger: it never grows (docs/ks.md, equation 18). */
// SPDX-License-Identifier: Apache-2.0
#include "factor/calibrated/weighted.h"

#include "product/patterns.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/pattern.h"

#include <math.h>
#include <string.h>

enum { STEPS = 10, SWEEPS = 4 };

typedef struct calibration {
    ks_run *run;
    ks_factors *f;
    int orthonormalise;                        /* the chain is chainable as it stands */
    ks_columns d, target, residual, forward;   /* d: N rows; the others: M */
    ks_columns z, image, u, v;                 /* the largest size inside, or less */
    double *l, *change, *gradient, *direction; /* as large as a factor needs */
    double error;                              /* ||residual||^2 */
} calibration;

/* ---- the parts of a least-squares problem ---- */

/* to = K_from .. K_{end-1} x */
static void apply_factors(
    calibration *c, int from, int end, const ks_columns *x, ks_columns *to)
{
    dn_factors_times(c->run->pool, c->f, from, end, x, to, &c->v, &c->u);
}

/* to = (K_0 .. K_{end-1})^H x */
static void apply_adjoint(calibration *c, int end, const ks_columns *x, ks_columns *to)
{
    for (int l = 0; l < end; l++) {
        ks_columns *y = l == end - 1 ? to : l % 2 ? &c->v : &c->u;
        dn_columns_adjoint_times(c->run->pool, c->f->p[l], c->f->w[l], x, y);
        x = y;
    }
    if (end == 0)
        dn_columns_copy(x, to);
}

/* residual = target - K_1 .. K_L d; returns its energy. */
static double find_residual(calibration *c)
{
    apply_factors(c, 0, c->f->count, &c->d, &c->residual);
    dn_columns_subtract(&c->target, &c->residual);
    return dn_columns_energy(&c->residual);
}

static int64_t parts_of(const calibration *c, int l)
{
    return dn_pattern_weights(c->f->p[l]) * (c->f->complex ? 2 : 1);
}

static double energy_of(const double *x, int64_t count)
{
    return dn_energy(0, 1, count, (dn_matrix){ (double *)x, 0 });
}

/* gradient = mask(A^H residual Z^H); returns its energy. */
static double find_gradient(calibration *c, int l)
{
    apply_adjoint(c, l, &c->residual, &c->image);
    dn_columns_gradient(c->run->pool, c->f->p[l], &c->image, &c->z, c->gradient);
    return energy_of(c->gradient, parts_of(c, l));
}

/* change = the solution for factor l by conjugate gradients; residual follows. */
static void solve(calibration *c, int l)
{
    int64_t parts = parts_of(c, l);
    memset(c->change, 0, (size_t)parts * sizeof *c->change);
    double energy = find_gradient(c, l), first = energy;
    memcpy(c->direction, c->gradient, (size_t)parts * sizeof *c->direction);
    for (int step = 0; step < STEPS && energy > 1e-24 * first; step++) {
        dn_columns_times(c->run->pool, c->f->p[l], c->direction, &c->z, &c->image);
        apply_factors(c, 0, l, &c->image, &c->forward);
        double curvature = dn_columns_energy(&c->forward);
        if (!(curvature > 0))
            return;
        double length = energy / curvature, before = energy;
        for (int64_t x = 0; x < parts; x++)
            c->change[x] += length * c->direction[x];
        dn_columns_add(-length, &c->forward, &c->residual);
        energy = find_gradient(c, l);
        for (int64_t x = 0; x < parts; x++)
            c->direction[x] = c->gradient[x] + energy / before * c->direction[x];
    }
}

/* Adds change L^-1 to the factor, block by block. Directions in which L is deficient
   have no influence on the error and are left alone. */
static void add_change(calibration *c, int l)
{
    danaus_pattern p = c->f->p[l];
    int complex = c->f->complex;
    int64_t width = complex ? 2 : 1;
    for (int64_t block = 0; block < p.a * p.d; block++) {
        double *change = c->change + block * p.b * p.c * width;
        dn_matrix lower = { c->l + block * p.c * p.c * width, p.c };
        dn_solve_lower(complex, p.b, p.c, (dn_matrix){ change, p.c }, lower);
    }
    for (int64_t x = 0; x < parts_of(c, l); x++)
        c->f->w[l][x] += c->change[x];
}

/* Improves factor l, or leaves it as it is. */
static danaus_status improve(calibration *c, int l)
{
    danaus_pattern p = c->f->p[l];
    size_t bytes = (size_t)parts_of(c, l) * sizeof(double);
    double *old = dn_alloc(bytes);
    if (!old)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory to calibrate a factor");
    memcpy(old, c->f->w[l], bytes);
    apply_factors(c, l + 1, c->f->count, &c->d, &c->z);
    danaus_status status = dn_columns_lq(c->run->pool, p, &c->z, c->l);
    if (status == DANAUS_OK) {
        solve(c, l);
        add_change(c, l);
        double error = find_residual(c);
        if (error < c->error) {
            c->error = error;
        } else {
            memcpy(c->f->w[l], old, bytes);
            find_residual(c);
        }
    }
    dn_free(old);
    return status;
}

static danaus_status sweep(calibration *c, double work)
{
    for (int l = 0; l < c->f->count; l++) {
        TRY(improve(c, l));
        TRY(dn_run_progress(c->run, work / c->f->count));
        if (!c->orthonormalise || l + 1 == c->f->count)
            continue;
        ks_pair pair = dn_pair(c->f->p[l], c->f->p[l + 1]);
        TRY(dn_orthonormalise_left(
            c->run, &pair, c->f->complex, c->f->w[l], c->f->w[l + 1]));
    }
    return DANAUS_OK;
}

/* ---- the call ---- */

static void calibration_free(calibration *c)
{
    ks_columns *all[] = { &c->residual, &c->forward, &c->z, &c->image, &c->u, &c->v };
    for (size_t x = 0; x < sizeof all / sizeof *all; x++)
        dn_free(all[x]->at);
    dn_free(c->l);
    dn_free(c->change);
    dn_free(c->gradient);
    dn_free(c->direction);
}

static danaus_status allocate(calibration *c)
{
    int64_t wide = dn_factors_widest(c->f), largest = 1, lower = 1;
    for (int l = 0; l < c->f->count; l++) {
        danaus_pattern p = c->f->p[l];
        largest = MAX(largest, dn_pattern_weights(p));
        lower = MAX(lower, p.a * p.d * p.c * p.c);
    }
    ks_columns *all[] = { &c->residual, &c->forward, &c->z, &c->image, &c->u, &c->v };
    int complex = c->f->complex, made = 1;
    for (int x = 0; x < 6; x++) {
        danaus_pattern size = { 1, x < 2 ? c->target.rows : wide, c->d.count, 1 };
        *all[x] = (ks_columns){ complex, size.b, size.c, dn_work_alloc(complex, size) };
        made &= all[x]->at != NULL;
    }
    double **arrays[] = { &c->l, &c->change, &c->gradient, &c->direction };
    for (int x = 0; x < 4; x++) {
        danaus_pattern size = { 1, 1, x ? largest : lower, 1 };
        *arrays[x] = dn_work_alloc(complex, size);
        made &= *arrays[x] != NULL;
    }
    return made ? DANAUS_OK : dn_fail(DANAUS_ERR_MEMORY, "no memory for calibration");
}

static danaus_status make_passes(calibration *c, int most, double work, double floor)
{
    TRY(allocate(c));
    c->error = find_residual(c);
    for (int n = 0; n < most; n++) {
        double before = c->error;
        TRY(sweep(c, work / most));
        if (!(c->error + floor < (before + floor) * (1 - 1e-6)))
            break;
    }
    return DANAUS_OK;
}

danaus_status dn_weighted_refine(
    ks_run *run, const ks_calibration *k, int chainable, int sweeps, double work,
    ks_factors *factors)
{
    int64_t m = k->w->rows, n = k->w->cols;
    calibration c = { .run = run,
                      .f = factors,
                      .orthonormalise = chainable,
                      .d = { k->complex, n, n, k->lower },
                      .target = { k->complex, m, n, k->target } };
    danaus_status status = make_passes(&c, sweeps ? sweeps : SWEEPS, work, k->floor);
    calibration_free(&c);
    return status;
}

danaus_status dn_calibration_measure(
    thread_pool *pool, const ks_calibration *c, const ks_factors *f, double distance,
    double *error)
{
    if (c->desc->inputs)
        return dn_samples_measure(pool, c, f, error);
    TRY(dn_weighted_error(pool, c, f, error));
    *error = fmax(0, *error - c->lambda * distance);
    return DANAUS_OK;
}
