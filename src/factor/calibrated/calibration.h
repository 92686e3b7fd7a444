/* Calibration of a layer: least squares over samples, written as least squares with a
   triangular matrix.

   For scaled inputs X and targets Y (less their means, if a bias is fitted)
       ||Y - X K^T||^2 + lambda ||W - K||^2 = ||T - K L||^2 + floor                (18)
   with L L^H = X^T conj(X) + lambda, T = (Y^T conj(X) + lambda W) L^-H (docs/ks.md). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_FACTOR_CALIBRATED_CALIBRATION_H
#define DN_FACTOR_CALIBRATED_CALIBRATION_H

#include "factor/columns.h"
#include "factor/hierarchy.h"
#include "factor/survey.h"

typedef struct ks_calibration {
    const danaus_factorize_desc *desc;
    const ks_dense *w;
    int complex, fitted;     /* fitted: targets are given */
    double scale;            /* K and W are seen times this, a power of two */
    double x_scale;          /* and X times this; hence Y times both */
    double *mean_x, *mean_y; /* of what is seen, or NULL */
    double *matrix;          /* W[M][N] as seen; later the solution T L^-1 */
    double *lower, *target;  /* L[N][N], T[M][N] */
    double floor, lambda;    /* floor: 0 for targets X W^T */
    double centred, energy;  /* ||Y||^2 less the mean, and with it */
} ks_calibration;

/* Checks what the caller gave; `rows` and `cols` are those of W. */
danaus_status dn_calibration_check(
    const danaus_factorize_desc *desc, int64_t rows, int64_t cols);

/* Refuses powers of two, by which W and the chains for its targets become about 1, that are so
   far apart that no number is seen well in both scales. */
danaus_status dn_calibration_check_scales(double matrix, double targets);

/* Reads samples or sums. scale: that of W from dn_survey(); another one may be chosen. */
danaus_status dn_calibration_read(
    thread_pool *pool, const danaus_factorize_desc *desc, const ks_dense *w,
    double scale, ks_calibration *c);
void dn_calibration_free(ks_calibration *c);

/* Writes mean(y) - K mean(x), unscaled, M numbers. */
danaus_status dn_calibration_bias(
    thread_pool *pool, const ks_calibration *c, const ks_factors *f, double *bias);

/* Sums over samples for several fits, and the arrays that they own. All zero is empty. */
typedef struct ks_sample_sums {
    danaus_calibration sums;
    void *owned[4];
} ks_sample_sums;

/* Samples of fit, if there are some, become sums, so that each fit's work is small. */
danaus_status dn_sample_sums(
    const ks_dense *w, danaus_factorize_desc *fit, ks_sample_sums *s);
void dn_sample_sums_free(ks_sample_sums *s);

/* ---- for calibration.c, samples.c and weighted.c ---- */

/* An array of rows x cols, not initialised; NULL if there is no memory. */
double *dn_calibration_numbers(const ks_calibration *c, int64_t rows, int64_t cols);

/* y[M][count] = W x for x[N][count] */
void dn_calibration_times(
    thread_pool *pool, const ks_calibration *c, dn_matrix x, int64_t count, double *y);

/* Places for products of factors with at most `count` columns. */
typedef struct ks_room {
    ks_columns y, u, v; /* y: M rows; the others as many as are met inside */
} ks_room;
danaus_status dn_room_make(
    const ks_calibration *c, const ks_factors *f, int64_t count, ks_room *r);
void dn_room_free(ks_room *r);

/* r->y = target - K x; returns its energy. */
double dn_calibration_residual(
    thread_pool *pool, const ks_factors *f, const ks_columns *x,
    const ks_columns *target, ks_room *r);

/* lower = X^T conj(X), target = Y^T conj(X), and means, energy and scales. */
danaus_status dn_samples_read(thread_pool *pool, ks_calibration *c);

/* danaus_calibration_add() */
danaus_status dn_calibration_sum(
    thread_pool *pool, danaus_calibration *sums, danaus_dtype dtype, int64_t rows,
    int64_t cols, int64_t samples, const void *inputs, const void *targets);
danaus_status dn_samples_measure(
    thread_pool *pool, const ks_calibration *c, const ks_factors *f, double *error);

#endif
