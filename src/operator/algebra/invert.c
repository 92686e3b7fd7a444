/* Inverses and determinants of chains of square blocks. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/algebra/square.h"

#include "product/chain.h"
#include "base/dtype.h"
#include "base/holds.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/lapack.h"
#include "math/pattern.h"

#include <math.h>
#include <stdio.h>

/* ---- inverses ---- */

/* arg: the inverse of the factor, in f64 or c128. */
static void invert_block(const square_job *job, const square_block *b, square_facts *f)
{
    int64_t n = job->p.b, parts = job->complex ? 2 : 1;
    double *to = job->arg;
    const double *a = b->a;
    dn_lu_invert(job->complex, n, b->a, b->pivots, b->scratch);
    double norm = dn_square_norm(job->complex, n, a);
    if (!isfinite(norm)) {
        f->why = "has an inverse whose numbers are not finite";
        f->broken = b->number;
        return;
    }
    dn_square_condition(b, norm, f);
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < n; k++, a += parts)
            dn_square_copy(
                job->complex, a, to + dn_square_at(job, b->number, r, k) * parts);
}

static danaus_status invert_factor(
    square_job *job, int factor, danaus_chain *inverse, danaus_condition *condition)
{
    int64_t count = dn_pattern_weights(job->chain->patterns[factor]);
    job->arg = dn_calloc((size_t)count, (job->complex ? 2 : 1) * sizeof(double));
    if (!job->arg)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for the inverse of a factor");
    danaus_status status = dn_square_run(job, factor, condition);
    char name[40];
    snprintf(name, sizeof name, "the inverse of factor %d", factor);
    if (status == DANAUS_OK)
        status = dn_check_stored(
            inverse->dtype, job->arg, count, DN_STORED_INFINITE + DN_STORED_ZERO, name);
    if (status == DANAUS_OK)
        dn_convert(
            job->complex ? DANAUS_C128 : DANAUS_F64, job->arg, inverse->dtype,
            inverse->weights[inverse->count - 1 - factor], count);
    dn_free(job->arg);
    return status;
}

static danaus_status invert(
    square_job *job, danaus_chain **inverse, danaus_condition *condition)
{
    const danaus_chain *chain = job->chain;
    danaus_pattern p[DANAUS_MAX_FACTORS];
    for (int l = 0; l < chain->count; l++)
        p[chain->count - 1 - l] = chain->patterns[l];
    danaus_chain *made;
    TRY(danaus_chain_create(p, chain->count, chain->dtype, &made));
    danaus_status status = DANAUS_OK;
    for (int l = 0; l < chain->count && status == DANAUS_OK; l++)
        status = invert_factor(job, l, made, condition);
    if (status != DANAUS_OK)
        danaus_chain_destroy(made);
    else
        *inverse = made;
    return status;
}

danaus_status danaus_chain_invert(
    const danaus_chain *chain, int threads, danaus_chain **inverse,
    danaus_condition *condition)
{
    if (!chain || !inverse)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a chain and a place for its inverse are needed");
    square_job job;
    danaus_condition c = { .bound = 1 };
    TRY(dn_square_begin(&job, chain, threads, invert_block));
    job.scratch = job.most * DN_LU_WORK * (job.complex ? 2 : 1);
    danaus_status status = invert(&job, inverse, &c);
    if (status == DANAUS_OK && condition)
        *condition = c;
    dn_square_end(&job);
    return status;
}

/* ---- determinants ---- */

/* z *= x, of modulus 1, or 0. */
static void turn(double z[2], const double x[2])
{
    double re = z[0] * x[0] - z[1] * x[1], im = z[0] * x[1] + z[1] * x[0];
    double modulus = hypot(re, im);
    z[0] = modulus > 0 ? re / modulus : 0;
    z[1] = modulus > 0 ? im / modulus : 0;
}

static void find_determinant(
    const square_job *job, const square_block *b, square_facts *f)
{
    int64_t n = job->p.b, parts = job->complex ? 2 : 1;
    for (int64_t k = 0; k < n; k++) {
        const double *u = b->a + k * (n + 1) * parts;
        double modulus = job->complex ? hypot(u[0], u[1]) : fabs(u[0]);
        double sign = b->pivots[k] == k + 1 ? 1 : -1;
        double phase[2] = { modulus > 0 ? sign * u[0] / modulus : 0,
                            job->complex && modulus > 0 ? sign * u[1] / modulus : 0 };
        f->log_modulus += log(modulus);
        turn(f->phase, phase);
    }
}

danaus_status danaus_chain_determinant(
    const danaus_chain *chain, int threads, double *log_modulus, double phase[2])
{
    if (!chain || !log_modulus || !phase)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a chain and places for its determinant are needed");
    square_job job;
    TRY(dn_square_begin(&job, chain, threads, find_determinant));
    job.takes_singular = 1;
    double sum = 0, product[2] = { 1, 0 };
    danaus_status status = DANAUS_OK;
    for (int l = 0; l < chain->count && status == DANAUS_OK; l++) {
        status = dn_square_run(&job, l, NULL);
        for (int run = 0; status == DANAUS_OK && run < job.runs; run++) {
            sum += job.facts[run].log_modulus;
            turn(product, job.facts[run].phase);
        }
    }
    dn_square_end(&job);
    if (status != DANAUS_OK)
        return status;
    *log_modulus = sum;
    phase[0] = product[0];
    phase[1] = product[1];
    return DANAUS_OK;
}
