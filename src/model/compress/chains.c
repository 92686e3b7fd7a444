/* Layers as Kronecker-sparse chains, or sums of two, by danaus_compress().

   The rows of a chain's first factor cannot be mixed without leaving its support, but scaled. So
   S of the layer's problem (fit.h) counts by the diagonal of S S^T. */
// SPDX-License-Identifier: Apache-2.0
#include "model/compress/fit.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "danaus/factorize.h"
#include "math/lapack.h"

#include <math.h>
#include <string.h>

/* W and the sums of two rows of mean zero, whose targets are scaled; the ridge is in them. */
typedef struct scaled_problem {
    double *scale, *weight, *gram, *cross; /* in one block */
    danaus_calibration sums;
} scaled_problem;

/* Roots of the diagonal of S S^T, none below a millionth of the largest. */
static void fill_scale(const fit_problem *p, double *scale)
{
    double largest = 0;
    for (int64_t i = 0; i < p->rows; i++) {
        double square = p->side ? 0 : 1;
        for (int64_t j = 0; j <= i && p->side; j++)
            square += p->side[i * p->rows + j] * p->side[i * p->rows + j];
        scale[i] = sqrt(square);
        largest = MAX(largest, scale[i]);
    }
    for (int64_t i = 0; i < p->rows; i++)
        scale[i] = MAX(scale[i], MAX(1e-6 * largest, 1e-150));
}

/* A little more than the targets' least energy, that of C L^-T. `half` goes. */
static double least_energy(const fit_problem *p, double *half)
{
    double energy = 0;
    dn_triangle_solve(
        0, 1, p->rows, p->cols, (dn_matrix){ half, p->cols },
        (dn_matrix){ p->root, p->cols });
    for (int64_t i = 0; i < p->rows * p->cols; i++)
        energy += half[i] * half[i];
    return energy * (1 + 1e-9);
}

static danaus_status scale_problem(const fit_problem *p, scaled_problem *s)
{
    int64_t rows = p->rows, cols = p->cols, numbers = rows * cols;
    int64_t all = 2 * rows + cols + 3 * numbers + cols * cols;
    double *at = dn_calloc((size_t)all, sizeof *at);
    if (!at)
        return dn_fail_memory((size_t)all * sizeof *at, "sums of a layer");
    *s = (scaled_problem){ .scale = dn_take(&at, rows) };
    s->weight = dn_take(&at, numbers);
    s->cross = dn_take(&at, numbers);
    s->gram = dn_take(&at, cols * cols);
    double *half = dn_take(&at, numbers);
    fill_scale(p, s->scale);
    for (int64_t i = 0; i < numbers; i++) {
        double scale = s->scale[i / cols];
        s->weight[i] = scale * p->weight[i];
        half[i] = scale * p->cross[i];
        s->cross[i] = 2 * half[i];
    }
    for (int64_t i = 0; i < cols * cols; i++)
        s->gram[i] = 2 * p->gram[i];
    s->sums = (danaus_calibration){ .samples = 2, .gram = s->gram, .cross = s->cross };
    s->sums.energy = 2 * least_energy(p, half);
    s->sums.input_sum = dn_take(&at, cols);
    s->sums.target_sum = dn_take(&at, rows);
    return DANAUS_OK;
}

/* Row i of the first factor is divided by scale[i]. */
static void unscale(const double *scale, danaus_chain *chain)
{
    danaus_pattern q = danaus_chain_pattern(chain, 0);
    double *w = danaus_chain_weights(chain, 0);
    for (int64_t n = 0; n < q.a * q.b * q.c * q.d; n++) {
        int64_t row = n / (q.c * q.d), lane = n % q.d;
        w[n] /= scale[row * q.d + lane];
    }
}

/* DANAUS_ERR_ARGUMENT: no candidate has so few weights. */
static danaus_status fit_chains(
    const fit_problem *p, int64_t parameters, uint32_t candidates, fit *f)
{
    scaled_problem s;
    TRY(scale_problem(p, &s));
    const danaus_factorize_desc how = { .calibration = &s.sums };
    const danaus_compress_desc desc = { .parameters = parameters,
                                        .candidates = candidates,
                                        .fit = &how };
    danaus_status status = dn_fit_make(p->rows, p->cols, 0, f);
    if (status == DANAUS_OK)
        status = danaus_compress(
            s.weight, DANAUS_F64, p->rows, p->cols, &desc, f->chain, NULL, NULL, 0,
            NULL);
    for (int n = 0; n < 2 && status == DANAUS_OK && f->chain[n]; n++)
        unscale(s.scale, f->chain[n]);
    dn_free(s.scale);
    f->rank = MIN(p->rows, p->cols);
    if (status == DANAUS_OK)
        status = dn_fit_rate(p, f);
    if (status != DANAUS_OK)
        dn_fit_free(f);
    return status;
}

danaus_status dn_problem_best(
    const fit_problem *p, int64_t rank, uint32_t candidates, fit *f)
{
    fit other;
    TRY(dn_problem_fit(p, rank, f));
    if (!rank || !candidates)
        return DANAUS_OK;
    danaus_status status =
        fit_chains(p, dn_fit_parameters(p->rows, p->cols, rank), candidates, &other);
    if (status == DANAUS_ERR_ARGUMENT)
        return DANAUS_OK;
    if (status == DANAUS_OK && other.loss < f->loss) {
        fit worse = *f;
        *f = other;
        other = worse;
    }
    if (status == DANAUS_OK)
        dn_fit_free(&other);
    else
        dn_fit_free(f);
    return status;
}
