/* Square blocks: taken out of a factor, eliminated by LAPACK, on all threads. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/algebra/square.h"

#include "product/chain.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/lapack.h"
#include "math/lapack_library.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>

double dn_square_norm(int complex, int64_t n, const double *a)
{
    double largest = 0;
    for (int64_t k = 0; k < n; k++) {
        double sum = 0;
        for (int64_t r = 0; r < n; r++) {
            const double *z = a + (r * n + k) * (complex ? 2 : 1);
            sum += complex ? hypot(z[0], z[1]) : fabs(z[0]);
        }
        if (!(sum <= largest))
            largest = sum;
        if (!isfinite(sum))
            break;
    }
    return largest;
}

void dn_square_condition(const square_block *b, double inverse_norm, square_facts *f)
{
    double condition = b->norm * inverse_norm;
    f->norm = fmax(f->norm, b->norm);
    f->inverse_norm = fmax(f->inverse_norm, inverse_norm);
    if (condition > f->condition) {
        f->condition = condition;
        f->worst = b->number;
    }
}

/* ---- one block ---- */

static void load_block(const square_job *job, int64_t block, double *a)
{
    int64_t parts = job->complex ? 2 : 1;
    for (int64_t r = 0; r < job->p.b; r++)
        for (int64_t k = 0; k < job->p.b; k++, a += parts)
            dn_square_copy(
                job->complex, job->w + dn_square_at(job, block, r, k) * parts, a);
}

/* Doubles for one run's block, its pivots and the body. */
static int64_t room_size(const square_job *job)
{
    return job->most * job->most * (job->complex ? 2 : 1) + job->most + job->scratch;
}

static void do_block(const square_job *job, square_block *b, square_facts *f)
{
    load_block(job, b->number, b->a);
    b->norm = dn_square_norm(job->complex, job->p.b, b->a);
    if (isfinite(b->norm)) {
        b->singular = dn_lu(job->complex, job->p.b, b->a, b->pivots);
        if (!b->singular || job->takes_singular) {
            job->body(job, b, f);
            return;
        }
    }
    f->why = isfinite(b->norm) ? "is singular" : "has numbers that are not finite";
    f->broken = b->number;
}

static void do_run(void *arg, int run)
{
    square_job *job = arg;
    square_facts *f = &job->facts[run];
    int64_t blocks = job->p.a * job->p.d, parts = job->complex ? 2 : 1;
    double *room = job->rooms + run * room_size(job);
    square_block b = { .a = dn_take(&room, job->most * job->most * parts),
                       .pivots = (int *)dn_take(&room, job->most),
                       .scratch = room };
    *f = (square_facts){ .phase = { 1, 0 } };
    for (b.number = blocks * run / job->runs;
         b.number < blocks * (run + 1) / job->runs && !f->why; b.number++)
        do_block(job, &b, f);
}

/* ---- factors ---- */

static danaus_status check(const danaus_chain *chain)
{
    for (int l = 0; l < chain->count; l++) {
        danaus_pattern p = chain->patterns[l];
        if (p.b != p.c)
            return dn_fail(
                DANAUS_ERR_SHAPE,
                "factor %d is " PATTERN ": its blocks of %" PRId64 " x %" PRId64
                " have no inverse",
                l, ENTRIES_OF(p), p.b, p.c);
        if (p.b > INT_MAX / DN_LU_WORK)
            return dn_fail(
                DANAUS_ERR_UNSUPPORTED, "factor %d is too large for LAPACK", l);
    }
    return DANAUS_OK;
}

danaus_status dn_square_begin(
    square_job *job, const danaus_chain *chain, int threads, square_body *body)
{
    if (threads < 0)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d threads", threads);
    TRY(check(chain));
    *job = (square_job){ .chain = chain,
                         .threads = threads ? threads : dn_thread_count(),
                         .complex = dn_is_complex(chain->dtype),
                         .body = body };
    for (int l = 0; l < chain->count; l++)
        job->most = MAX(job->most, chain->patterns[l].b);
    TRY(dn_lapack_begin(job->threads));
    danaus_status status = dn_pool_create(job->threads, &job->pool);
    if (status != DANAUS_OK)
        dn_lapack_end(job->threads);
    return status;
}

void dn_square_end(square_job *job)
{
    dn_pool_destroy(job->pool);
    dn_lapack_end(job->threads);
    dn_free(job->w);
    dn_free(job->rooms);
}

/* The factor in f64 or c128, and rooms for its runs. */
static danaus_status load_factor(square_job *job, int factor)
{
    danaus_pattern p = job->p = job->chain->patterns[factor];
    job->factor = factor;
    job->runs = (int)MIN(p.a * p.d, SQUARE_RUNS);
    size_t count = (size_t)dn_pattern_weights(p);
    size_t rooms = (size_t)room_size(job) * (size_t)job->runs;
    dn_free(job->w);
    dn_free(job->rooms);
    job->w = dn_calloc(count, (job->complex ? 2 : 1) * sizeof(double));
    job->rooms = dn_calloc(rooms, sizeof(double));
    if (!job->w || !job->rooms)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for the blocks of a factor");
    dn_convert(
        job->chain->dtype, job->chain->weights[factor],
        job->complex ? DANAUS_C128 : DANAUS_F64, job->w, (int64_t)count);
    return DANAUS_OK;
}

static danaus_status find_broken(const square_job *job)
{
    for (int run = 0; run < job->runs; run++) {
        const square_facts *f = &job->facts[run];
        if (f->why)
            return dn_fail(
                DANAUS_ERR_ARGUMENT, "block (%" PRId64 ", %" PRId64 ") of factor %d %s",
                f->broken / job->p.d, f->broken % job->p.d, job->factor, f->why);
    }
    return DANAUS_OK;
}

static void add_condition(const square_job *job, danaus_condition *c)
{
    double norm = 0, inverse_norm = 0;
    for (int run = 0; run < job->runs; run++) {
        const square_facts *f = &job->facts[run];
        norm = fmax(norm, f->norm);
        inverse_norm = fmax(inverse_norm, f->inverse_norm);
        if (f->condition > c->largest) {
            c->largest = f->condition;
            c->factor = job->factor;
            c->i = f->worst / job->p.d;
            c->j = f->worst % job->p.d;
        }
    }
    c->bound *= norm * inverse_norm;
}

/* A single block leaves LAPACK its threads. */
danaus_status dn_square_run(square_job *job, int factor, danaus_condition *condition)
{
    TRY(load_factor(job, factor));
    if (job->runs > 1)
        dn_lapack_alone();
    dn_pool_run(job->pool, job->runs, do_run, job);
    if (job->runs > 1)
        dn_lapack_as_before();
    TRY(find_broken(job));
    if (condition)
        add_condition(job, condition);
    return DANAUS_OK;
}
