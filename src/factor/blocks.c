/* Operations on all blocks of a chainable pair at once.

   Let p1 p2 = (a, b, c, d), G = a2 / a1, H = d1 / d2 and r the block rank. For
   i < a, j < d, g < G, e < H (docs/ks.md, equation 10)

       block(i, g, e, j)[k, m] = T[i, j, k H + e, g c2 + m]          b1 x c2
       X[i, e d + j, k, g r + t] = u[k, t]
       Y[i G + g, j, t H + e, m] = v[t, m]

   No two blocks share an entry of T, X or Y, so they are independent tasks. They are cut into
   at most CHUNKS chunks, whatever the number of threads. Sums run within a chunk and then over
   chunks, so results do not depend on the number of threads. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/blocks.h"

#include "product/patterns.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/lapack.h"
#include "math/lapack_library.h"
#include "math/pattern.h"

#include <string.h>

enum { CHUNKS = 64, REPORTS = 8 };

/* ---- views ---- */

ks_view dn_view_work(int complex, danaus_pattern p, const double *values)
{
    return (ks_view){ .data = values,
                      .dtype = complex ? DANAUS_C128 : DANAUS_F64,
                      .p = p,
                      .stride = { p.d * p.b * p.c, p.b * p.c, p.c, 1 },
                      .scale = 1 };
}

ks_view dn_view_dense(
    const void *dense, danaus_dtype dtype, int64_t cols, danaus_pattern p,
    int transposed, double scale)
{
    int64_t row = transposed ? 1 : cols, col = transposed ? cols : 1;
    return (ks_view){ .data = dense,
                      .dtype = dtype,
                      .p = p,
                      .stride = { p.b * p.d * row + p.c * p.d * col, row + col,
                                  p.d * row, p.d * col },
                      .scale = scale };
}

int dn_view_complex(const ks_view *view) { return dn_is_complex(view->dtype); }

double *dn_work_alloc(int complex, danaus_pattern p)
{
    size_t size = complex ? 2 * sizeof(double) : sizeof(double);
    return dn_alloc((size_t)dn_pattern_weights(p) * size);
}

static int is_work_type(danaus_dtype dtype)
{
    return dtype == DANAUS_F64 || dtype == DANAUS_C128;
}

/* Copies `count` elements, `stride` apart, into f64 or pairs of f64. */
static void gather_row(const ks_view *view, int64_t at, int64_t count, double *to)
{
    int64_t stride = view->stride[3];
    double scale = view->scale;
    const float *f = view->data;
    const double *g = view->data;
    switch (view->dtype) {
    case DANAUS_F32:
        for (int64_t l = 0; l < count; l++)
            to[l] = scale * (double)f[at + l * stride];
        break;
    case DANAUS_F64:
        for (int64_t l = 0; l < count; l++)
            to[l] = scale * g[at + l * stride];
        break;
    case DANAUS_C64:
        for (int64_t l = 0; l < 2 * count; l++)
            to[l] = scale * (double)f[2 * (at + l / 2 * stride) + l % 2];
        break;
    default:
        for (int64_t l = 0; l < 2 * count; l++)
            to[l] = scale * g[2 * (at + l / 2 * stride) + l % 2];
    }
}

void dn_view_read(const ks_view *view, double *w)
{
    danaus_pattern p = view->p;
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t j = 0; j < p.d; j++)
            for (int64_t k = 0; k < p.b; k++) {
                int64_t from =
                    i * view->stride[0] + j * view->stride[1] + k * view->stride[2];
                gather_row(view, from, p.c, w);
                w += dn_view_complex(view) ? 2 * p.c : p.c;
            }
}

/* ---- blocks ---- */

ks_pair dn_pair(danaus_pattern p1, danaus_pattern p2)
{
    return (ks_pair){ .p1 = p1,
                      .p2 = p2,
                      .p = dn_pattern_product(p1, p2),
                      .rank = dn_pair_rank(p1, p2),
                      .groups_of_columns = p2.a / p1.a,
                      .groups_of_rows = p1.d / p2.d };
}

double dn_pair_work(const ks_pair *pair)
{
    return (double)dn_pattern_weights(pair->p) * (double)MIN(pair->p1.b, pair->p2.c);
}

/* Everything that is done to one block; a job says what. */
typedef struct block {
    dn_matrix t, u, v;
} block;

struct block_job;
typedef int block_body(
    const struct block_job *job, block b, double *scratch, double *sum);

typedef struct block_job {
    const ks_pair *pair;
    const ks_view *t; /* NULL: t_out is written */
    double *t_out, *x, *y;
    int complex;
    int64_t scratch; /* doubles for `body` */
    block_body *body;
    dn_svd svd;
    int64_t blocks, chunk, chunks; /* of all; first one of this round; their number */
    double sums[CHUNKS];
    int failed[CHUNKS];
} block_job;

enum { FAILED_MEMORY = 1, FAILED_LAPACK };

/* True if the blocks can be read where they are. */
static int in_place(const ks_view *t)
{
    return is_work_type(t->dtype) && t->stride[3] == 1 && t->scale == 1;
}

/* The entries of block `index` of t where they are, or gathered into `copy`. */
static dn_matrix block_of_view(
    const block_job *job, int64_t i, int64_t j, int64_t e, int64_t g, double *copy)
{
    const ks_pair *s = job->pair;
    const ks_view *t = job->t;
    int64_t at = i * t->stride[0] + j * t->stride[1] + e * t->stride[2] +
                 g * s->p2.c * t->stride[3];
    int64_t ld = s->groups_of_rows * t->stride[2], width = job->complex ? 2 : 1;
    if (in_place(t))
        return (dn_matrix){ (double *)t->data + at * width, ld };
    for (int64_t k = 0; k < s->p1.b; k++)
        gather_row(t, at + k * ld, s->p2.c, copy + k * s->p2.c * width);
    return (dn_matrix){ copy, s->p2.c };
}

static block block_number(const block_job *job, int64_t index, double *copy)
{
    const ks_pair *s = job->pair;
    int64_t width = job->complex ? 2 : 1, h = s->groups_of_rows;
    int64_t g = index % s->groups_of_columns;
    index /= s->groups_of_columns;
    int64_t e = index % h, j = index / h % s->p.d, i = index / h / s->p.d;
    int64_t x = ((i * s->p1.d + e * s->p.d + j) * s->p1.b) * s->p1.c + g * s->rank;
    int64_t y = (((i * s->groups_of_columns + g) * s->p.d + j) * s->p2.b + e) * s->p2.c;
    int64_t t = ((i * s->p.d + j) * s->p.b + e) * s->p.c + g * s->p2.c;
    block b = { { NULL, h * s->p.c }, { NULL, s->p1.c }, { NULL, h * s->p2.c } };
    if (job->x)
        b.u.at = job->x + x * width;
    if (job->y)
        b.v.at = job->y + y * width;
    if (job->t)
        b.t = block_of_view(job, i, j, e, g, copy);
    else if (job->t_out)
        b.t.at = job->t_out + t * width;
    return b;
}

static void do_chunk(void *arg, int number)
{
    block_job *job = arg;
    int64_t chunk = job->chunk + number, width = job->complex ? 2 : 1;
    int64_t copy = job->t && !in_place(job->t) ? job->pair->p1.b * job->pair->p2.c : 0;
    size_t doubles = (size_t)(copy * width + job->scratch);
    double *scratch = doubles ? dn_alloc(doubles * sizeof *scratch) : NULL;
    if (doubles && !scratch) {
        job->failed[chunk] = FAILED_MEMORY;
        return;
    }
    int64_t end = job->blocks * (chunk + 1) / job->chunks;
    for (int64_t n = job->blocks * chunk / job->chunks; n < end; n++) {
        double sum = 0;
        block b = block_number(job, n, scratch);
        double *rest = scratch ? scratch + copy * width : NULL;
        if (job->body(job, b, rest, &sum)) {
            job->failed[chunk] = FAILED_LAPACK;
            break;
        }
        job->sums[chunk] += sum;
    }
    dn_free(scratch);
}

static danaus_status failure(const block_job *job, int first, int count)
{
    for (int chunk = first; chunk < first + count; chunk++) {
        if (job->failed[chunk] == FAILED_MEMORY)
            return dn_fail(DANAUS_ERR_MEMORY, "no memory for the blocks of a factor");
        if (job->failed[chunk])
            return dn_fail(DANAUS_ERR_DEVICE, "LAPACK found no singular values");
    }
    return DANAUS_OK;
}

static danaus_status run_chunks(ks_run *run, block_job *job, double work)
{
    int64_t rounds = work > 0 && run->progress ? MIN(job->chunks, REPORTS) : 1;
    for (int64_t round = 0; round < rounds; round++) {
        job->chunk = job->chunks * round / rounds;
        int count = (int)(job->chunks * (round + 1) / rounds - job->chunk);
        dn_pool_run(run->pool, count, do_chunk, job);
        TRY(failure(job, (int)job->chunk, count));
        TRY(dn_run_progress(run, work / (double)rounds));
    }
    return DANAUS_OK;
}

/* Runs the job's body on all blocks, counting `work`; *sum may be NULL. A single
   block leaves LAPACK its threads, whatever threads there are here. */
static danaus_status run_job(ks_run *run, block_job *job, double work, double *sum)
{
    const ks_pair *s = job->pair;
    job->blocks = s->p.a * s->p.d * s->groups_of_columns * s->groups_of_rows;
    job->chunks = MIN(job->blocks, CHUNKS);
    if (job->blocks > 1)
        dn_lapack_alone();
    danaus_status status = run_chunks(run, job, work);
    if (job->blocks > 1)
        dn_lapack_as_before();
    double total = 0;
    for (int64_t chunk = 0; chunk < job->chunks; chunk++)
        total += job->sums[chunk];
    if (status == DANAUS_OK && sum)
        *sum = total;
    return status;
}

/* x and y are read or written, as the body likes. */
static block_job job_of(
    const ks_pair *pair, int complex, const ks_view *t, const double *x,
    const double *y, block_body *body)
{
    return (block_job){ .pair = pair,
                        .t = t,
                        .x = (double *)x,
                        .y = (double *)y,
                        .complex = complex,
                        .body = body };
}

danaus_status dn_run_progress(ks_run *run, double work)
{
    run->done += work;
    if (!run->progress || work <= 0)
        return DANAUS_OK;
    double share = run->done < run->total ? run->done / run->total : 1;
    if (run->progress(run->user, share))
        return dn_fail(DANAUS_ERR_CANCELLED, "the factorization was given up");
    return DANAUS_OK;
}

/* ---- split ---- */

static int split_block(const block_job *job, block b, double *scratch, double *sum)
{
    const dn_svd *svd = &job->svd;
    int info = dn_svd_run(svd, b.t, b.u, b.v, sum, scratch);
    int64_t width = job->complex ? 2 : 1, k = svd->rank, r = job->pair->rank;
    dn_zero(job->complex, svd->m, r - k, (dn_matrix){ b.u.at + k * width, b.u.ld });
    dn_zero(
        job->complex, r - k, svd->n,
        (dn_matrix){ b.v.at + k * b.v.ld * width, b.v.ld });
    return info;
}

danaus_status dn_split(
    ks_run *run, const ks_pair *pair, const ks_view *t, ks_split_how how, double *x,
    double *y, double *dropped)
{
    int64_t m = pair->p1.b, n = pair->p2.c;
    block_job job = job_of(pair, dn_view_complex(t), t, x, y, split_block);
    job.svd = (dn_svd){ .complex = job.complex,
                        .fast = how.fast,
                        .m = m,
                        .n = n,
                        .rank = MIN(pair->rank, MIN(m, n)),
                        .sigma = how.sigma };
    TRY(dn_svd_plan(&job.svd));
    job.scratch = job.svd.scratch;
    return run_job(run, &job, dn_pair_work(pair), dropped);
}

/* ---- orthonormal blocks ---- */

/* u^H = L Q: u becomes Q^H, v becomes L^H v; both padded with zeros when r > b1. */
static int left_block(const block_job *job, block b, double *scratch, double *sum)
{
    (void)sum;
    int complex = job->complex;
    int64_t m = job->pair->p1.b, n = job->pair->p2.c, r = job->pair->rank;
    int64_t k = MIN(m, r), w = complex ? 2 : 1;
    dn_matrix q = { scratch, m }, l = { q.at + r * m * w, k };
    dn_matrix old = { l.at + r * k * w, n };
    dn_adjoint(complex, m, r, b.u, q);
    dn_copy(complex, r, n, b.v, old);
    dn_lq(complex, r, m, q, l, old.at + r * n * w);
    dn_zero(complex, m, r, b.u);
    dn_adjoint(complex, k, m, q, b.u);
    dn_adjoint_times(complex, k, n, r, l, old, b.v);
    dn_zero(complex, r - k, n, (dn_matrix){ b.v.at + k * b.v.ld * w, b.v.ld });
    return 0;
}

/* v = L Q: v becomes Q, u becomes u L; both padded with zeros when r > c2. */
static int right_block(const block_job *job, block b, double *scratch, double *sum)
{
    (void)sum;
    int complex = job->complex;
    int64_t m = job->pair->p1.b, n = job->pair->p2.c, r = job->pair->rank;
    int64_t k = MIN(n, r), w = complex ? 2 : 1;
    dn_matrix q = { scratch, n }, l = { q.at + r * n * w, k };
    dn_matrix old = { l.at + r * k * w, r };
    dn_copy(complex, r, n, b.v, q);
    dn_copy(complex, m, r, b.u, old);
    dn_lq(complex, r, n, q, l, old.at + m * r * w);
    dn_zero(complex, r, n, b.v);
    dn_copy(complex, k, n, q, b.v);
    dn_zero(complex, m, r, b.u);
    dn_times(complex, m, k, r, old, l, b.u);
    return 0;
}

static danaus_status orthonormalise(
    ks_run *run, const ks_pair *pair, int complex, double *x, double *y, int left)
{
    int64_t m = pair->p1.b, n = pair->p2.c, r = pair->rank, side = left ? m : n, lq;
    block_job job = job_of(pair, complex, NULL, x, y, left ? left_block : right_block);
    TRY(dn_lq_plan(complex, r, side, side, &lq));
    job.scratch = (complex ? 2 : 1) * (r * (m + n) + r * MIN(side, r)) + lq;
    return run_job(run, &job, 0, NULL);
}

danaus_status dn_orthonormalise_left(
    ks_run *run, const ks_pair *pair, int complex, double *x, double *y)
{
    return orthonormalise(run, pair, complex, x, y, 1);
}

danaus_status dn_orthonormalise_right(
    ks_run *run, const ks_pair *pair, int complex, double *x, double *y)
{
    return orthonormalise(run, pair, complex, x, y, 0);
}

/* ---- products ---- */

static int project_left_block(
    const block_job *job, block b, double *scratch, double *sum)
{
    (void)scratch, (void)sum;
    const ks_pair *s = job->pair;
    dn_adjoint_times(job->complex, s->rank, s->p2.c, s->p1.b, b.u, b.t, b.v);
    return 0;
}

static int project_right_block(
    const block_job *job, block b, double *scratch, double *sum)
{
    (void)scratch, (void)sum;
    const ks_pair *s = job->pair;
    dn_times_adjoint(job->complex, s->p1.b, s->rank, s->p2.c, b.t, b.v, b.u);
    return 0;
}

static int fuse_block(const block_job *job, block b, double *scratch, double *sum)
{
    (void)scratch, (void)sum;
    const ks_pair *s = job->pair;
    dn_times(job->complex, s->p1.b, s->p2.c, s->rank, b.u, b.v, b.t);
    return 0;
}

static int residual_block(const block_job *job, block b, double *scratch, double *sum)
{
    const ks_pair *s = job->pair;
    *sum = dn_residual(job->complex, s->p1.b, s->p2.c, s->rank, b.t, b.u, b.v, scratch);
    return 0;
}

danaus_status dn_project_left(
    ks_run *run, const ks_pair *pair, const ks_view *t, const double *x, double *y)
{
    block_job job = job_of(pair, dn_view_complex(t), t, x, y, project_left_block);
    return run_job(run, &job, 0, NULL);
}

danaus_status dn_project_right(
    ks_run *run, const ks_pair *pair, const ks_view *t, const double *y, double *x)
{
    block_job job = job_of(pair, dn_view_complex(t), t, x, y, project_right_block);
    return run_job(run, &job, 0, NULL);
}

danaus_status dn_fuse(
    ks_run *run, const ks_pair *pair, int complex, const double *x, const double *y,
    double *t)
{
    block_job job = job_of(pair, complex, NULL, x, y, fuse_block);
    job.t_out = t;
    return run_job(run, &job, 0, NULL);
}

danaus_status dn_pair_residual(
    ks_run *run, const ks_pair *pair, const ks_view *t, const double *x,
    const double *y, double *energy)
{
    block_job job = job_of(pair, dn_view_complex(t), t, x, y, residual_block);
    job.scratch = (job.complex ? 2 : 1) * pair->p2.c;
    return run_job(run, &job, 0, energy);
}
