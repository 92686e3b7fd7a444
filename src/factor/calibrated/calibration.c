/* Reads samples, or sums over them, and brings least squares over samples into the form
   of calibration.h.

   X and Y are scaled by powers of two, so that squares stay in range; then K is seen
   times y_scale / x_scale. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/calibrated/calibration.h"

#include "factor/calibrated/wide.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/lapack_library.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_RIDGE 1e-6

/* Beside a larger one the samples vanish, and with them the error that is told of them. */
#define LARGEST_RIDGE 1e6

/* ---- checks ---- */

danaus_status dn_calibration_check(
    const danaus_factorize_desc *desc, int64_t rows, int64_t cols)
{
    const danaus_calibration *sums = desc->calibration;
    if (!(desc->ridge >= 0 && desc->ridge <= LARGEST_RIDGE))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a ridge is a number from 0 to %g, not %g",
            LARGEST_RIDGE, desc->ridge);
    if (desc->inputs && sums)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "give inputs or the sums over them, not both");
    if (!desc->inputs && (desc->targets || (desc->bias && !sums)))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%s cannot be fitted without inputs",
            desc->targets ? "targets" : "a bias");
    if (desc->inputs && desc->samples < 1)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "calibration needs at least one sample, not %" PRId64,
            desc->samples);
    if (desc->inputs && desc->samples > INT_MAX)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "%" PRId64 " samples are too many; give sums over them", desc->samples);
    if (!sums)
        return DANAUS_OK;
    TRY(dn_check_reserved(sums->reserved, sizeof sums->reserved));
    if (!sums->gram || sums->samples < 1)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "sums over samples need a Gram matrix [%" PRId64 "][%" PRId64
            "] and the number of samples",
            cols, cols);
    if (sums->cross && (!(sums->energy >= 0) || isinf(sums->energy)))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "the energy of the targets is a number from 0 on");
    if (desc->bias && (!sums->input_sum || (sums->cross && !sums->target_sum)))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a bias needs the sums of the %" PRId64
            " inputs and, for targets, of the %" PRId64 " outputs",
            cols, rows);
    return DANAUS_OK;
}

/* Powers of two: with more of them between, one vanishes beside the other. */
enum { MOST_APART = 200 };

danaus_status dn_calibration_check_scales(double matrix, double targets)
{
    if (abs(ilogb(matrix) - ilogb(targets)) <= MOST_APART)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_ARGUMENT, "W and the targets are too far apart in magnitude");
}

/* ---- memory ---- */

double *dn_calibration_numbers(const ks_calibration *c, int64_t rows, int64_t cols)
{
    return dn_work_alloc(c->complex, (danaus_pattern){ 1, rows, cols, 1 });
}

static int64_t width(const ks_calibration *c) { return c->complex ? 2 : 1; }

static danaus_status make(ks_calibration *c)
{
    int64_t m = c->w->rows, n = c->w->cols;
    c->matrix = dn_calibration_numbers(c, m, n);
    c->lower = dn_calibration_numbers(c, n, n);
    c->target = dn_calibration_numbers(c, m, n);
    c->mean_x = dn_calibration_numbers(c, 1, n);
    c->mean_y = dn_calibration_numbers(c, 1, m);
    if (!c->matrix || !c->lower || !c->target || !c->mean_x || !c->mean_y)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for the calibration");
    dn_zero(c->complex, n, n, (dn_matrix){ c->lower, n });
    dn_zero(c->complex, m, n, (dn_matrix){ c->target, n });
    dn_zero(c->complex, 1, n, (dn_matrix){ c->mean_x, n });
    dn_zero(c->complex, 1, m, (dn_matrix){ c->mean_y, m });
    return DANAUS_OK;
}

void dn_calibration_free(ks_calibration *c)
{
    double *all[] = { c->matrix, c->lower, c->target, c->mean_x, c->mean_y };
    for (size_t x = 0; x < sizeof all / sizeof *all; x++)
        dn_free(all[x]);
    *c = (ks_calibration){ 0 };
}

/* ---- sums ---- */

static danaus_status read_numbers(
    thread_pool *pool, const ks_calibration *c, const char *name, const void *data,
    int64_t rows, int64_t cols, double scale, double *to)
{
    danaus_dtype dtype = c->complex ? DANAUS_C128 : DANAUS_F64;
    ks_dense dense = { data, dtype, rows, cols };
    double none, energy;
    TRY(dn_survey(pool, &dense, name, &none, &energy));
    ks_view view = dn_view_dense(
        data, dtype, cols, (danaus_pattern){ 1, rows, cols, 1 }, 0, scale);
    dn_view_read(&view, to);
    return DANAUS_OK;
}

static danaus_status largest_input(const ks_calibration *c, double *largest)
{
    const double *gram = c->desc->calibration->gram;
    *largest = 0;
    for (int64_t k = 0; k < c->w->cols; k++) {
        double energy = gram[k * (c->w->cols + 1) * width(c)];
        if (!(energy >= 0) || isinf(energy))
            return dn_fail(
                DANAUS_ERR_ARGUMENT,
                "gram[%" PRId64 "][%" PRId64 "] is the energy of an input, not %g", k,
                k, energy);
        *largest = fmax(*largest, energy);
    }
    return DANAUS_OK;
}

/* A power of two that brings the root of `energy` near 1. */
static double scale_for(double energy)
{
    return energy > 0 ? ldexp(1, -ilogb(sqrt(energy))) : 1;
}

/* a -= samples y x^H: the sums become those of centred samples. */
static void centre(
    const ks_calibration *c, int64_t rows, const double *y, const double *x, double *a)
{
    double samples = (double)c->desc->calibration->samples;
    int64_t n = c->w->cols;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < n; k++) {
            if (!c->complex) {
                *a++ -= samples * y[r] * x[k];
                continue;
            }
            const double *u = y + 2 * r, *v = x + 2 * k;
            *a++ -= samples * (u[0] * v[0] + u[1] * v[1]);
            *a++ -= samples * (u[1] * v[0] - u[0] * v[1]);
        }
}

static danaus_status read_sums(thread_pool *pool, ks_calibration *c)
{
    const danaus_calibration *sums = c->desc->calibration;
    int64_t m = c->w->rows, n = c->w->cols;
    double largest, share = 1 / (double)sums->samples;
    TRY(largest_input(c, &largest));
    double x = c->x_scale = scale_for(largest);
    if (c->fitted)
        c->scale = scale_for(sums->energy) / x;
    double y = c->scale * x;
    TRY(read_numbers(pool, c, "gram", sums->gram, n, n, x * x, c->lower));
    if (c->fitted)
        TRY(read_numbers(pool, c, "cross", sums->cross, m, n, x * y, c->target));
    c->energy = c->fitted ? sums->energy * y * y : 0;
    if (!c->desc->bias)
        return DANAUS_OK;
    TRY(read_numbers(
        pool, c, "input_sum", sums->input_sum, 1, n, x * share, c->mean_x));
    centre(c, n, c->mean_x, c->mean_x, c->lower);
    if (!c->fitted)
        return DANAUS_OK;
    TRY(read_numbers(
        pool, c, "target_sum", sums->target_sum, 1, m, y * share, c->mean_y));
    centre(c, m, c->mean_y, c->mean_x, c->target);
    return DANAUS_OK;
}

/* ---- the triangle and what it is applied to ---- */

static double energy_of(const ks_calibration *c, int64_t rows, int64_t cols, double *at)
{
    return dn_energy(c->complex, rows, cols, (dn_matrix){ at, cols });
}

static int64_t samples_of(const ks_calibration *c)
{
    return c->desc->inputs ? c->desc->samples : c->desc->calibration->samples;
}

/* lower: from the Gram matrix to L, with the ridge. */
static danaus_status find_triangle(ks_calibration *c)
{
    int64_t n = c->w->cols, step = (n + 1) * width(c);
    double trace = 0, ridge = c->desc->ridge > 0 ? c->desc->ridge : DEFAULT_RIDGE;
    for (int64_t k = 0; k < n; k++)
        trace += c->lower[k * step];
    c->lambda = trace > 0 ? ridge * trace / (double)n : ridge;
    for (int64_t k = 0; k < n; k++)
        c->lower[k * step] += c->lambda;
    dn_lapack_alone();
    int failed = dn_cholesky(c->complex, n, (dn_matrix){ c->lower, n });
    dn_lapack_as_before();
    if (failed)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "the sums over inputs are those of no inputs: the Gram matrix, with its "
            "ridge of %g, is not positive; a larger ridge may help",
            ridge);
    for (int64_t k = 0; k + 1 < n; k++)
        dn_zero(
            c->complex, 1, n - k - 1, (dn_matrix){ c->lower + k * step + width(c), n });
    return DANAUS_OK;
}

/* y = W x for x[N][count] */
void dn_calibration_times(
    thread_pool *pool, const ks_calibration *c, dn_matrix x, int64_t count, double *y)
{
    dn_gemm g = { .complex = c->complex, .m = c->w->rows, .n = count, .k = c->w->cols };
    dn_wide_times(pool, &g, (dn_matrix){ c->matrix, g.k }, x, (dn_matrix){ y, count });
}

/* Targets X W^T: T = W L, and the solution is W. */
static void target_of_matrix(thread_pool *pool, ks_calibration *c)
{
    int64_t m = c->w->rows, n = c->w->cols;
    dn_calibration_times(pool, c, (dn_matrix){ c->lower, n }, n, c->target);
    dn_calibration_times(pool, c, (dn_matrix){ c->mean_x, 1 }, 1, c->mean_y);
    double w = energy_of(c, m, n, c->matrix), means = energy_of(c, 1, m, c->mean_y);
    c->centred = fmax(0, energy_of(c, m, n, c->target) - c->lambda * w);
    c->energy = c->centred + (double)samples_of(c) * means;
}

/* Given targets: T = (Y^T conj(X) + lambda W) L^-H, and the solution is T L^-1. */
static danaus_status target_of_sums(thread_pool *pool, ks_calibration *c)
{
    int64_t m = c->w->rows, n = c->w->cols, parts = m * n * width(c);
    dn_matrix lower = { c->lower, n };
    double w = c->lambda * energy_of(c, m, n, c->matrix);
    double means = energy_of(c, 1, m, c->mean_y);
    for (int64_t x = 0; x < parts; x++)
        c->target[x] += c->lambda * c->matrix[x];
    dn_wide_solve(pool, c->complex, 1, m, n, (dn_matrix){ c->target, n }, lower);
    double reached = energy_of(c, m, n, c->target);
    if (!isfinite(w) || !isfinite(reached))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "W and the targets are too far apart in magnitude");
    c->centred = fmax(0, c->energy - (double)samples_of(c) * means);
    c->floor = c->centred + w - reached;
    if (c->floor < -1e-6 * (c->energy + w))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "the energy of the targets, %g, is too small for gram and cross: they are "
            "sums over the same samples",
            c->desc->calibration ? c->desc->calibration->energy : c->energy);
    c->floor = fmax(0, c->floor);
    memcpy(c->matrix, c->target, (size_t)parts * sizeof *c->matrix);
    dn_wide_solve(pool, c->complex, 0, m, n, (dn_matrix){ c->matrix, n }, lower);
    return DANAUS_OK;
}

danaus_status dn_calibration_read(
    thread_pool *pool, const danaus_factorize_desc *desc, const ks_dense *w,
    double scale, ks_calibration *c)
{
    *c = (ks_calibration){
        .desc = desc, .w = w, .complex = dn_is_complex(w->dtype), .scale = scale
    };
    c->fitted = desc->inputs ? desc->targets != NULL : desc->calibration->cross != NULL;
    TRY(make(c));
    TRY(desc->inputs ? dn_samples_read(pool, c) : read_sums(pool, c));
    ks_view view = dn_view_dense(
        w->data, w->dtype, w->cols, (danaus_pattern){ 1, w->rows, w->cols, 1 }, 0,
        c->scale);
    dn_view_read(&view, c->matrix);
    TRY(find_triangle(c));
    if (c->fitted)
        return target_of_sums(pool, c);
    target_of_matrix(pool, c);
    return DANAUS_OK;
}

/* ---- what factors reach ---- */

danaus_status dn_room_make(
    const ks_calibration *c, const ks_factors *f, int64_t count, ks_room *r)
{
    int64_t wide = dn_factors_widest(f);
    *r = (ks_room){
        { c->complex, c->w->rows, count, dn_calibration_numbers(c, c->w->rows, count) },
        { c->complex, wide, count, dn_calibration_numbers(c, wide, count) },
        { c->complex, wide, count, dn_calibration_numbers(c, wide, count) }
    };
    if (!r->y.at || !r->u.at || !r->v.at)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory to measure the error");
    return DANAUS_OK;
}

void dn_room_free(ks_room *r)
{
    dn_free(r->y.at);
    dn_free(r->u.at);
    dn_free(r->v.at);
}

/* ||target - K x||^2 */
double dn_calibration_residual(
    thread_pool *pool, const ks_factors *f, const ks_columns *x,
    const ks_columns *target, ks_room *r)
{
    r->y.count = r->u.count = r->v.count = x->count;
    dn_factors_times(pool, f, 0, f->count, x, &r->y, &r->u, &r->v);
    dn_columns_subtract(target, &r->y);
    return dn_columns_energy(&r->y);
}

danaus_status dn_calibration_bias(
    thread_pool *pool, const ks_calibration *c, const ks_factors *f, double *bias)
{
    ks_columns x = { c->complex, c->w->cols, 1, c->mean_x };
    ks_columns y = { c->complex, c->w->rows, 1, c->mean_y };
    ks_room r;
    danaus_status status = dn_room_make(c, f, 1, &r);
    if (status == DANAUS_OK) {
        dn_calibration_residual(pool, f, &x, &y, &r);
        for (int64_t at = 0; at < c->w->rows * width(c); at++)
            bias[at] = r.y.at[at] / (c->x_scale * c->scale);
    }
    dn_room_free(&r);
    return status;
}
