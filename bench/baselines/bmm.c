/* Batched matrix products: permute, multiply block by block with BLAS, permute
   back (Algorithm 1 of arXiv 2405.15013).

   Batch-first: xt[a][d][n][c] is x[n][a][c][d] permuted, yt[i][j] = xt[i][j] W[i][j]'
   for every block, and y[n][a][b][d] is yt[a][d][n][b] permuted back. With d = 1, in
   batch-last layout, and for one vector, BLAS reaches the blocks where they are
   and nothing is permuted. Of the ways to use the threads the fastest is kept. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/baseline.h"
#include "bench/baselines/blas.h"
#include "bench/baselines/parts.h"
#include "bench/memory.h"

#include <stdlib.h>
#include <string.h>

typedef enum variant {
    BLOCKS_SHARED,  /* threads take blocks or parts of them, BLAS uses one thread */
    BLOCKS_IN_TURN, /* one block after the other, BLAS uses all threads */
    SLABS,          /* threads take parts of the batch and do all three steps */
    VARIANTS
} variant;

typedef struct bmm {
    bench_factor f;
    int permutes;
    variant best, best_whole; /* of all; of the first two */
    void *w;                  /* [a][d][b][c] */
    void *x, *y;              /* permuted, or NULL */
    char *scratch;            /* permuted slabs, one of each for each thread */
    int64_t slab;             /* batch columns of a slab */
    double permuting;         /* seconds of the last run outside BLAS */
} bmm;

/* The products of all blocks, on arrays that are permuted if self->permutes. */
typedef struct product {
    const bmm *self;
    const char *x;
    char *y;
    int64_t batch;         /* columns that x and y hold */
    int64_t chunk, chunks; /* the batch in parts */
} product;

static void destroy(void *any)
{
    bmm *self = any;
    if (self) {
        free(self->w);
        free(self->x);
        free(self->y);
        free(self->scratch);
    }
    free(self);
}

/* Multiplies block `block` of columns s0 .. s0 + n. */
static void multiply_block(const product *o, int64_t block, int64_t s0, int64_t n)
{
    const bench_factor *f = &o->self->f;
    danaus_pattern p = f->pattern;
    size_t size = danaus_dtype_size(f->dtype);
    const char *w = (const char *)o->self->w + (size_t)(block * p.b * p.c) * size;
    int64_t i = block / p.d, j = block % p.d;
    int64_t x0 = i * p.c * p.d + j, y0 = i * p.b * p.d + j; /* first row of the block */
    if (f->batch == 1) {
        blas_vector(
            f->dtype, p.b, p.c, w, o->x + (size_t)x0 * size, p.d,
            o->y + (size_t)y0 * size, p.d);
    } else if (f->layout == DANAUS_BATCH_LAST) {
        const char *x = o->x + (size_t)(x0 * o->batch + s0) * size;
        char *y = o->y + (size_t)(y0 * o->batch + s0) * size;
        int64_t ld = p.d * o->batch;
        blas_multiply(f->dtype, 0, p.b, n, p.c, w, p.c, x, ld, y, ld);
    } else {
        int own = o->self->permutes; /* the block is an array of its own */
        int64_t ldx = own ? p.c : p.a * p.c, ldy = own ? p.b : p.a * p.b;
        int64_t x1 = own ? block * o->batch * p.c : x0;
        int64_t y1 = own ? block * o->batch * p.b : y0;
        const char *x = o->x + (size_t)(x1 + s0 * ldx) * size;
        char *y = o->y + (size_t)(y1 + s0 * ldy) * size;
        blas_multiply(f->dtype, 1, n, p.b, p.c, x, ldx, w, p.c, y, ldy);
    }
}

static void multiply_task(void *arg, long i, int thread)
{
    (void)thread;
    const product *o = arg;
    int64_t s0 = i % o->chunks * o->chunk, n = o->batch - s0;
    multiply_block(o, i / o->chunks, s0, n < o->chunk ? n : o->chunk);
}

/* x[n][a][c][d] to xt[a][d][n][c] for columns s0 .. s1 of a slab of `batch`. */
static void permute_in(
    const bench_factor *f, const char *x, char *xt, int64_t batch, int64_t s0,
    int64_t s1)
{
    danaus_pattern p = f->pattern;
    size_t size = danaus_dtype_size(f->dtype);
    for (int64_t s = s0; s < s1; s++)
        for (int64_t i = 0; i < p.a; i++)
            f->loops->transpose(
                x + (size_t)((s * p.a + i) * p.c * p.d) * size, p.d,
                xt + (size_t)((i * p.d * batch + s) * p.c) * size, batch * p.c, p.c,
                p.d);
}

/* yt[a][d][n][b] to y[n][a][b][d] */
static void permute_out(
    const bench_factor *f, const char *yt, char *y, int64_t batch, int64_t s0,
    int64_t s1)
{
    danaus_pattern p = f->pattern;
    size_t size = danaus_dtype_size(f->dtype);
    for (int64_t s = s0; s < s1; s++)
        for (int64_t i = 0; i < p.a; i++)
            f->loops->transpose(
                yt + (size_t)((i * p.d * batch + s) * p.b) * size, batch * p.b,
                y + (size_t)((s * p.a + i) * p.b * p.d) * size, p.d, p.d, p.b);
}

static void in_part(const loop_part *part, void *scratch)
{
    (void)scratch;
    permute_in(part->w, part->x, part->y, part->batch, part->s0, part->s1);
}

static void out_part(const loop_part *part, void *scratch)
{
    (void)scratch;
    permute_out(part->w, part->x, part->y, part->batch, part->s0, part->s1);
}

static double permute(const bmm *self, loop_fn fn, const void *from, void *to)
{
    double start = bench_seconds();
    loop_part whole = { .batch = self->f.batch, .q1 = 1, .s1 = self->f.batch };
    whole.w = &self->f;
    whole.x = from;
    whole.y = to;
    run_parts(self->f.team, &whole, 1, fn, NULL, 0);
    return bench_seconds() - start;
}

static void run_whole(bmm *self, variant v, const void *x, void *y)
{
    const bench_factor *f = &self->f;
    int64_t blocks = f->pattern.a * f->pattern.d, threads = team_threads(f->team);
    product o = { self,
                  self->permutes ? self->x : x,
                  self->permutes ? self->y : y,
                  f->batch,
                  f->batch,
                  1 };
    self->permuting = self->permutes ? permute(self, in_part, x, self->x) : 0;
    if (v == BLOCKS_IN_TURN) {
        blas_set_threads((int)threads);
        for (int64_t block = 0; block < blocks; block++)
            multiply_block(&o, block, 0, f->batch);
    } else {
        blas_set_threads(1);
        while (blocks * o.chunks < 4 * threads && o.chunk > 64) {
            o.chunk = (o.chunk + 1) / 2;
            o.chunks = (f->batch + o.chunk - 1) / o.chunk;
        }
        team_run(f->team, (long)(blocks * o.chunks), multiply_task, &o);
    }
    if (self->permutes)
        self->permuting += permute(self, out_part, self->y, y);
}

typedef struct slabs {
    const bmm *self;
    const char *x;
    char *y;
} slabs;

static void slab_task(void *arg, long i, int thread)
{
    const slabs *l = arg;
    const bmm *self = l->self;
    const bench_factor *f = &self->f;
    int64_t s0 = i * self->slab, n = f->batch - s0, rows = factor_rows(f);
    int64_t cols = factor_cols(f), blocks = f->pattern.a * f->pattern.d;
    size_t size = danaus_dtype_size(f->dtype);
    n = n < self->slab ? n : self->slab;
    char *xt = self->scratch + (size_t)(thread * self->slab * (rows + cols)) * size;
    char *yt = xt + (size_t)(self->slab * cols) * size;
    product o = { self, xt, yt, n, n, 1 };
    permute_in(f, l->x + (size_t)(s0 * cols) * size, xt, n, 0, n);
    for (int64_t block = 0; block < blocks; block++)
        multiply_block(&o, block, 0, n);
    permute_out(f, yt, l->y + (size_t)(s0 * rows) * size, n, 0, n);
}

static void run_variant(bmm *self, variant v, const void *x, void *y)
{
    if (v != SLABS) {
        run_whole(self, v, x, y);
        return;
    }
    slabs l = { self, x, y };
    blas_set_threads(1);
    team_run(
        self->f.team, (long)((self->f.batch + self->slab - 1) / self->slab), slab_task,
        &l);
}

/* The least of a few times: one is enough for a long product. */
static double time_variant(bmm *self, variant v, const void *x, void *y)
{
    double best = 1e300, total = 0;
    for (int i = 0; i < 20 && total < 0.1; i++) {
        double start = bench_seconds();
        run_variant(self, v, x, y);
        double seconds = bench_seconds() - start;
        best = seconds < best ? seconds : best;
        total += seconds;
    }
    return best;
}

static void choose_variant(bmm *self, const void *x, void *y)
{
    double best = 1e300;
    for (variant v = BLOCKS_SHARED; v < (self->permutes ? VARIANTS : SLABS); v++) {
        double seconds = time_variant(self, v, x, y);
        if (seconds >= best)
            continue;
        best = seconds;
        self->best = v;
        if (v != SLABS)
            self->best_whole = v;
    }
}

static void *create(const bench_factor *f, const void *x, void *y)
{
    bmm *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    size_t size = danaus_dtype_size(f->dtype), scratch = 0;
    int64_t rows = factor_rows(f), cols = factor_cols(f);
    self->f = *f;
    self->permutes =
        f->pattern.d > 1 && f->layout == DANAUS_BATCH_FIRST && f->batch > 1;
    self->w = repack_weights(f, 1);
    int ok = self->w != NULL;
    if (self->permutes) { /* a slab is a megabyte: x and y stay in the second cache */
        int64_t slab = ((int64_t)1 << 20) / ((rows + cols) * (int64_t)size);
        int64_t fair = (f->batch + team_threads(f->team) - 1) / team_threads(f->team);
        slab = slab < 16 ? 16 : slab;
        self->slab = slab < fair ? slab : fair;
        self->x = bench_alloc(f->batch * cols, size);
        self->y = bench_alloc(f->batch * rows, size);
        scratch = (size_t)(team_threads(f->team) * self->slab * (rows + cols)) * size;
        self->scratch = bench_alloc((int64_t)scratch, 1);
        ok = ok && self->x && self->y && self->scratch;
    }
    if (!ok) {
        destroy(self);
        return NULL;
    }
    if (self->permutes) { /* so that no variant pays for fresh pages */
        memset(self->x, 0, (size_t)(f->batch * cols) * size);
        memset(self->y, 0, (size_t)(f->batch * rows) * size);
        memset(self->scratch, 0, scratch);
    }
    choose_variant(self, x, y);
    return self;
}

static void run(void *any, const void *x, void *y)
{
    bmm *self = any;
    run_variant(self, self->best, x, y);
}

/* Of Algorithm 1 itself: whole passes, and the fastest of a few runs. */
static double permutations(void *any, const void *x, void *y)
{
    bmm *self = any;
    double best = 1e300, share = 0, total = 0;
    for (int i = 0; i < 20 && total < 0.1 && self->permutes; i++) {
        double start = bench_seconds();
        run_whole(self, self->best_whole, x, y);
        double seconds = bench_seconds() - start;
        total += seconds;
        if (seconds < best) {
            best = seconds;
            share = self->permuting / seconds;
        }
    }
    return share;
}

const baseline baseline_bmm = { .name = "bmm",
                                .create = create,
                                .run = run,
                                .destroy = destroy,
                                .permutations = permutations };
