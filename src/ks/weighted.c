/* Factors that are good for given inputs: minimise ||(W - K_1 .. K_L) D||, where the
   columns of D are sample inputs, or fewer columns with the same D D^H.

   One factor at a time. With A = K_1 .. K_{l-1} and Z = K_{l+1} .. K_L D the error is
   ||R - A P Z|| for a change P of K_l and the present residual R: linear least squares
   in P. In every block, Z = L Q with orthonormal rows of Q, and conjugate gradients
   run for P L, so that the first factor (A = I), whose rows are independent problems,
   is solved exactly by one step. A step is kept only if the error, computed anew, is
   not larger: it never grows (docs/ks.md, equation 18). */
// SPDX-License-Identifier: Apache-2.0
#include "ks/weighted.h"

#include "ks/columns.h"
#include "ks/patterns.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/lapack.h"
#include "math/pattern.h"

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

/* to = K_from .. K_{end-1} x; u and v take turns on the way. */
static void apply_factors(
    calibration *c, int from, int end, const ks_columns *x, ks_columns *to)
{
    for (int l = end - 1; l >= from; l--) {
        ks_columns *y = l == from ? to : (end - 1 - l) % 2 ? &c->v : &c->u;
        dn_columns_times(c->run->pool, c->f->p[l], c->f->w[l], x, y);
        x = y;
    }
    if (from >= end)
        dn_columns_copy(x, to);
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

/* ---- memory and inputs ---- */

static void calibration_free(calibration *c)
{
    ks_columns *all[] = { &c->d, &c->target, &c->residual, &c->forward,
                          &c->z, &c->image,  &c->u,        &c->v };
    for (size_t x = 0; x < sizeof all / sizeof *all; x++)
        dn_free(all[x]->at);
    dn_free(c->l);
    dn_free(c->change);
    dn_free(c->gradient);
    dn_free(c->direction);
}

/* d = X^T, or for more samples than columns the factor L of X^T = L Q, for which
   ||E X^T|| = ||E L|| whatever E is. */
static danaus_status read_inputs(
    thread_pool *pool, const ks_dense *inputs, ks_columns *d)
{
    double scale, energy;
    int64_t work;
    TRY(dn_lq_plan(
        dn_is_complex(inputs->dtype), inputs->cols, inputs->rows, inputs->rows, &work));
    TRY(dn_survey(pool, inputs, "X", &scale, &energy));
    int complex = dn_is_complex(inputs->dtype);
    int64_t n = inputs->cols, s = inputs->rows;
    danaus_pattern all = { 1, n, s, 1 };
    ks_view view = dn_view_dense(inputs->data, inputs->dtype, n, all, 1, scale);
    *d = (ks_columns){ complex, n, s, dn_work_alloc(complex, all) };
    if (!d->at)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for the inputs");
    dn_view_read(&view, d->at);
    if (s <= n)
        return DANAUS_OK;
    ks_columns l = { complex, n, n,
                     dn_work_alloc(complex, (danaus_pattern){ 1, n, n, 1 }) };
    double *scratch = dn_alloc((size_t)work * sizeof *scratch);
    danaus_status status = DANAUS_OK;
    if (l.at && scratch)
        dn_lq(complex, n, s, (dn_matrix){ d->at, s }, (dn_matrix){ l.at, n }, scratch);
    else
        status = dn_fail(DANAUS_ERR_MEMORY, "no memory for the inputs");
    dn_free(scratch);
    dn_free(d->at);
    *d = l;
    return status;
}

static danaus_status read_target(calibration *c, const ks_dense *w, double scale)
{
    danaus_pattern all = { 1, w->rows, w->cols, 1 };
    ks_view view = dn_view_dense(w->data, w->dtype, w->cols, all, 0, scale);
    double *values = dn_work_alloc(c->f->complex, all);
    if (!values)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for the matrix");
    dn_view_read(&view, values);
    dn_columns_times(c->run->pool, all, values, &c->d, &c->target);
    dn_free(values);
    return DANAUS_OK;
}

static danaus_status allocate(calibration *c, int64_t rows)
{
    int64_t wide = 1, largest = 1, lower = 1;
    for (int l = 0; l < c->f->count; l++) {
        danaus_pattern p = c->f->p[l];
        wide = dn_pattern_cols(p) > wide ? dn_pattern_cols(p) : wide;
        wide = dn_pattern_rows(p) > wide ? dn_pattern_rows(p) : wide;
        largest = dn_pattern_weights(p) > largest ? dn_pattern_weights(p) : largest;
        lower = p.a * p.d * p.c * p.c > lower ? p.a * p.d * p.c * p.c : lower;
    }
    ks_columns *all[] = { &c->target, &c->residual, &c->forward, &c->z,
                          &c->image,  &c->u,        &c->v };
    int complex = c->f->complex, made = 1;
    for (int x = 0; x < 7; x++) {
        danaus_pattern size = { 1, x < 3 ? rows : wide, c->d.count, 1 };
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

/* K_l <-> K_{L+1-l}^T: the factors of the transposed matrix. */
static danaus_status transpose_factors(ks_factors *f)
{
    for (int l = 0; l < f->count; l++) {
        danaus_pattern p = f->p[l];
        double *w = dn_work_alloc(f->complex, p);
        if (!w)
            return dn_fail(DANAUS_ERR_MEMORY, "no memory for a factor");
        int64_t width = f->complex ? 2 : 1, size = p.b * p.c * width;
        for (int64_t block = 0; block < p.a * p.d; block++)
            for (int64_t r = 0; r < p.b; r++)
                for (int64_t k = 0; k < p.c; k++)
                    memcpy(
                        w + block * size + (k * p.b + r) * width,
                        f->w[l] + block * size + (r * p.c + k) * width,
                        (size_t)width * sizeof *w);
        dn_free(f->w[l]);
        f->w[l] = w;
        f->p[l] = dn_pattern_adjoint(p);
    }
    for (int l = 0, m = f->count - 1; l < m; l++, m--) {
        double *w = f->w[l];
        danaus_pattern p = f->p[l];
        f->w[l] = f->w[m];
        f->p[l] = f->p[m];
        f->w[m] = w;
        f->p[m] = p;
    }
    return DANAUS_OK;
}

static danaus_status calibrate(
    calibration *c, const ks_dense *w, double scale, int sweeps, double work,
    ks_weighted *result)
{
    TRY(allocate(c, w->rows));
    TRY(read_target(c, w, scale));
    result->energy = dn_columns_energy(&c->target);
    result->before = c->error = find_residual(c);
    for (int n = 0; n < sweeps; n++) {
        double before = c->error;
        TRY(sweep(c, work / sweeps));
        if (!(c->error < before * (1 - 1e-6)))
            break;
    }
    result->after = c->error;
    return DANAUS_OK;
}

danaus_status dn_weighted_refine(
    ks_run *run, const ks_dense *w, double scale, const ks_dense *inputs,
    int transposed, int sweeps, double work, ks_factors *factors, ks_weighted *result)
{
    calibration c = { .run = run, .f = factors, .orthonormalise = !transposed };
    if (transposed)
        TRY(transpose_factors(factors));
    danaus_status status = read_inputs(run->pool, inputs, &c.d);
    if (status == DANAUS_OK)
        status = calibrate(&c, w, scale, sweeps ? sweeps : SWEEPS, work, result);
    calibration_free(&c);
    if (transposed && status == DANAUS_OK)
        status = transpose_factors(factors);
    return status;
}
