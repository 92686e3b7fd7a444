/* Rows whose products a library (cuBLAS) computes: one small dense product for each block
   (i, j), or one product with the whole factor, including its zeros.

   Weights are packed by rows, [i][j][r][k] or [M][N], or by columns, [i][j][k][r]: a library may
   have other kernels for that. It has its own order of sums, which is the same on every run but
   not for every batch. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#define THREADS    256
#define PIECE      16 /* bytes that a thread of ks_after.cu takes at once */
#define MOST_TIMES 64
#define MOST_COUNT 65535
/* The whole factor may have so many times its weights, unless it is small, and so many bytes. */
#define MOST_GROWTH 64
#define SMALL_BYTES ((double)(32 << 20))
#define MOST_BYTES  ((double)(256 << 20))

#define FEW         4   /* columns */
#define SMALL_TILES 256 /* terms of sums of f32 that are made in small tiles */
#define MOST_WAIT   700 /* terms of a sum; those of a single product are cut into parts */

enum { TF32 = 3, COLUMNS };

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    dn_gpu_define_layout(k, p, variant, to);
    dn_text(to, "#define ACTIVATION %d\n", p->activation);
}

static void launch_of(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    (void)k;
    int64_t most = (int64_t)f->units * 2048 / THREADS * 8;
    int64_t bytes = dn_pattern_rows(p->pattern) * call->batch * dn_size_of(p->dtype);
    *launch = dn_gpu_stay(CEIL_DIV(bytes, THREADS * PIECE), most, THREADS, 0);
}

/* cublasLt's epilogues: a bias along its columns, which are those of y batch-first; a GELU
   that is the one by tanh. One column is a product with a vector, which has none. */
int dn_gpu_library_ends(const problem *p, int64_t batch, int has_bias, int activation)
{
    int of_type = p->dtype == DANAUS_F32 || dn_has_16_bits(p->dtype);
    int of_name = activation == DANAUS_ACTIVATION_NONE || activation == DANAUS_RELU ||
                  activation == DANAUS_GELU_TANH;
    return of_type && of_name && batch > 1 &&
           (!has_bias || p->layout == DANAUS_BATCH_FIRST);
}

/* ---- block by block ---- */

/* Batch-first, lanes j lie between the columns k: no matrix for a library. */
/* Products are added to the residual before an activation could come. */
static int may_add(const problem *p) { return !p->residual || !p->activation; }

static int blas_fits(const kernel *k, const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t times = MIN(q.a, q.d), count = MAX(q.a, q.d);
    return dn_gpu_is_for(k, p, dn_gpu_size(k)[TF32]) && may_add(p) &&
           (q.d == 1 || p->layout == DANAUS_BATCH_LAST) && times <= MOST_TIMES &&
           count <= MOST_COUNT;
}

static size_t blas_bytes(const kernel *k, const problem *p)
{
    (void)k;
    return (size_t)dn_pattern_weights(p->pattern) * danaus_dtype_size(p->dtype);
}

/* A row of a block, or a column of it. */
static void pack_line(const gpu_packing *g, int64_t n, char *to)
{
    danaus_pattern q = g->p->pattern;
    const int64_t *s = g->w.s;
    int columns = dn_gpu_size(g->kernel)[COLUMNS], line = columns ? 1 : 2;
    int64_t count = columns ? q.c : q.b, length = columns ? q.b : q.c;
    int64_t i = n / count / q.d, j = n / count % q.d;
    int64_t from = i * s[0] + n % count * s[3 - line] + j * s[3];
    dn_gpu_put(g, (gpu_run){ &g->w, from, s[line], length, to, NULL });
}

static void blas_pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    danaus_pattern q = p->pattern;
    int columns = dn_gpu_size(k)[COLUMNS];
    int64_t length = columns ? q.b : q.c, lines = q.a * q.d * (columns ? q.c : q.b);
    int64_t size = dn_size_of(p->dtype);
    gpu_packing g = { k, p, w, NULL, length * size, pack_line, 0, 0 };
    dn_gpu_pack(&g, lines, packed);
}

/* x or y: vectors of a blocks, `size` each, of d lanes. */
static gpu_lines lines_of(const problem *p, int64_t batch, int64_t size)
{
    danaus_pattern q = p->pattern;
    if (p->layout == DANAUS_BATCH_LAST)
        return (gpu_lines){ q.d * batch, { size * q.d * batch, batch } };
    return (gpu_lines){ q.a * size * q.d, { size, 1 } };
}

static void exchange(int64_t pair[2])
{
    int64_t first = pair[0];
    pair[0] = pair[1];
    pair[1] = first;
}

/* The blocks i at once, for one lane j after another, or the other way round. */
static void blas_products(
    const kernel *k, const problem *p, const gpu_call *call, gpu_products *to)
{
    danaus_pattern q = p->pattern;
    int columns = dn_gpu_size(k)[COLUMNS];
    *to = (gpu_products){
        .rows = q.b,
        .depth = q.c,
        .count = { q.a, q.d },
        .x = lines_of(p, call->batch, q.c),
        .w = { columns ? q.b : q.c, { q.d * q.b * q.c, q.b * q.c } },
        .y = lines_of(p, call->batch, q.b),
        .w_turned = columns,
        .tf32 = dn_gpu_size(k)[TF32],
    };
    if (q.a < q.d) {
        exchange(to->count);
        exchange(to->x.step);
        exchange(to->w.step);
        exchange(to->y.step);
    }
}

/* ---- the whole factor ---- */

static problem as_one_block(const problem *p)
{
    problem whole = *p;
    whole.pattern = (danaus_pattern){ 1, dn_pattern_rows(p->pattern),
                                      dn_pattern_cols(p->pattern), 1 };
    return whole;
}

static int dense_fits(const kernel *k, const problem *p)
{
    danaus_pattern q = p->pattern;
    double bytes = (double)dn_pattern_rows(q) * (double)dn_pattern_cols(q) *
                   (double)danaus_dtype_size(p->dtype);
    double growth = (double)q.a * (double)q.d;
    return dn_gpu_is_for(k, p, dn_gpu_size(k)[TF32]) && may_add(p) && growth > 1 &&
           bytes <= (growth <= MOST_GROWTH ? MOST_BYTES : SMALL_BYTES);
}

static size_t dense_bytes(const kernel *k, const problem *p)
{
    problem whole = as_one_block(p);
    return blas_bytes(k, &whole);
}

static void pack_whole_row(const gpu_packing *g, int64_t n, char *to)
{
    danaus_pattern q = g->p->pattern;
    const int64_t *s = g->w.s;
    size_t size = danaus_dtype_size(g->p->dtype);
    int64_t i = n / q.d / q.b, r = n / q.d % q.b, j = n % q.d;
    for (int64_t c = 0; c < q.c; c++) {
        int64_t from = i * s[0] + r * s[1] + c * s[2] + j * s[3];
        char *at = to + (size_t)((i * q.c + c) * q.d + j) * size;
        dn_gpu_put(g, (gpu_run){ &g->w, from, 0, 1, at, NULL });
    }
}

static void dense_pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    danaus_pattern q = p->pattern;
    int64_t size = dn_size_of(p->dtype);
    gpu_packing g = { k, p, w, NULL, dn_pattern_cols(q) * size, pack_whole_row, 0, 0 };
    dn_gpu_pack(&g, dn_pattern_rows(q), packed);
}

static void dense_products(
    const kernel *k, const problem *p, const gpu_call *call, gpu_products *to)
{
    problem whole = as_one_block(p);
    blas_products(k, &whole, call, to);
}

/* ---- costs: fits to the times of cuBLAS 13 ---- */

/* Seconds are start + latency c + (move^p + multiply^p)^(1/p), with how fast the library
   multiplies, operations a second, how much of moving and multiplying overlaps, and, batch-first
   and batch-last, how many terms more a sum seems to have, and by how much it is slower than
   memory. Rows are padded to tiles. */
typedef struct rate {
    double start, flops, overlap, latency, steps[2], slow[2];
    int tile;
} rate;

/* Rates of the library's products. Many products of f32 in one call start more slowly and
   have larger tiles. */
static rate rate_of(const gpu_facts *f, const kernel *k, danaus_pattern q)
{
    double one = f->flops / f->cores; /* multiply-add in a clock */
    rate r = { 4.7e-6, 0.79 * f->flops, 2.1, 8e-9, { 37, 37 }, { 1.2, 1.2 }, 32 };
    if (dn_has_16_bits(k->dtype)) {
        double tensor = k->dtype == DANAUS_F16 ? f->tensor_f16 : f->tensor_bf16;
        r = (rate){
            5.2e-6, 0.88 * tensor * one, 1.8, 4e-9, { 75, 75 }, { 1.1, 1.1 }, 64
        };
    } else if (dn_gpu_size(k)[TF32]) {
        double tensor = f->tensor_tf32;
        r = (rate){
            5.3e-6, 0.8 * tensor * one, 2, 5e-9, { 75, 60 }, { 1.12, 1.14 }, 64
        };
    } else if (q.a * q.d > 1) {
        r.start = 10e-6, r.latency = 0, r.tile = 64;
    } else if (q.b > r.tile || q.c > SMALL_TILES) {
        r.tile = 64;
    }
    return r;
}

/* Bytes, at most 16, that lie together, aligned, in all lines of x, y and weights: with fewer,
   tiles for tensor cores are fetched by threads. */
static int64_t aligned_bytes(const kernel *k, const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t weights = dn_gpu_size(k)[COLUMNS] ? q.b : q.c;
    int64_t lines =
        p->layout == DANAUS_BATCH_LAST && p->batch > 1 ? p->batch | weights : q.b | q.c;
    int64_t bytes = lines * dn_size_of(p->dtype) | 16;
    return bytes & -bytes;
}

/* A product of f32 with few columns: one is a sum over rows of weights at the rate of
   memory; more take a tile of vector units long, whose sums only a single product cuts
   into parts. */
static double few_columns_cost(
    const gpu_facts *f, const kernel *k, const problem *p, double weights)
{
    danaus_pattern q = p->pattern;
    int columns = dn_gpu_size(k)[COLUMNS];
    if (p->batch == 1 && !columns)
        return 4.6e-6 + weights / (0.76 * f->bandwidth);
    if (p->batch <= FEW && p->layout == DANAUS_BATCH_FIRST && !columns)
        return 5.5e-6 + weights / (0.55 * f->bandwidth);
    double stream = weights / (0.3 * f->bandwidth);
    if (q.a * q.d == 1)
        return (columns ? 9.5e-6 : 13e-6) + stream;
    return 5e-6 + fmax(stream, (columns ? 40e-9 : 32e-9) * (double)q.c);
}

/* Seconds of ks_after.cu, which reads and writes y; 0 where the library itself applies the
   bias and the activation. */
static double after_cost(const gpu_facts *f, const problem *p)
{
    danaus_pattern q = p->pattern;
    double bytes = (double)dn_pattern_rows(q) * (double)p->batch *
                   (double)danaus_dtype_size(p->dtype);
    int ends = f->epilogues && (q.a == 1 || q.d == 1) &&
               dn_gpu_library_ends(p, p->batch, p->bias, p->activation);
    return (p->bias || p->activation) && !ends ? 2.5e-6 + 2.4 * bytes / f->bandwidth
                                               : 0;
}

/* How much longer blocks of 16-bit numbers take with short lines, measured on 9.0
   (docs/notes/gpu-records.md). */
static double narrow_lines(const problem *p)
{
    int is_narrow = dn_has_16_bits(p->dtype) && p->layout == DANAUS_BATCH_FIRST &&
                    p->pattern.a > 1 && p->pattern.c <= 16;
    return 1 + fmax(fmin(3 * dn_gpu_sharing(p), 1.7), is_narrow ? 0.35 : 0);
}

/* A sum of c terms takes as long as c + steps do. 3 % dearer than measured: our own rows add a
   bias for nothing. */
static double blas_cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const gpu_facts *f = dn_gpu_facts(dev);
    danaus_pattern q = p->pattern;
    rate r = rate_of(f, k, q);
    double weights = (double)blas_bytes(k, p), after = after_cost(f, p);
    double times = (double)MIN(q.a, q.d);
    if (k->dtype == DANAUS_F32 && !dn_gpu_size(k)[TF32] && p->batch <= 64)
        return times * few_columns_cost(f, k, p, weights / times) + after;
    double blocks = (double)q.a * (double)q.d;
    double rows = (double)ROUND_UP(q.b, r.tile);
    double columns = (double)CEIL_DIV(p->batch, 64) * 64;
    double work = dn_is_complex(p->dtype) ? 8 : 2;
    double multiply =
        work * blocks * rows * ((double)q.c + r.steps[p->layout]) * columns / r.flops;
    double bytes = dn_gpu_moved_bytes(p) + weights;
    double move = r.slow[p->layout] * bytes / f->bandwidth;
    int narrow = danaus_dtype_size(k->dtype) == 2;
    int64_t aligned = aligned_bytes(k, p);
    if (aligned < 16 && (narrow || dn_gpu_size(k)[TF32])) {
        move *= narrow ? 1.5 : 1.3;
        multiply *= !narrow ? 3.5 : aligned == 2 ? 7.5 : 4;
    }
    double all = narrow_lines(p) * dn_gpu_beside(r.overlap, move, multiply);
    double depth = q.a * q.d == 1 ? fmin((double)q.c, MOST_WAIT) : (double)q.c;
    double start = r.start + (times - 1) * 3e-6 + times * r.latency * depth;
    double columns_first = dn_gpu_size(k)[COLUMNS] ? 0.94 : 1;
    return 1.03 * columns_first * (start + all) + after;
}

static double dense_cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    problem whole = as_one_block(p);
    return blas_cost(dev, k, &whole);
}

const gpu_family dn_gpu_blas = {
    .kernel = { .batch_variant = 1,
                .fits = blas_fits,
                .cost = blas_cost,
                .packed_bytes = blas_bytes,
                .pack = blas_pack },
    .text = "ks_after.cu",
    .library = 1,
    .defines = defines,
    .launch = launch_of,
    .products = blas_products,
};

const gpu_family dn_gpu_dense = {
    .kernel = { .batch_variant = 1,
                .fits = dense_fits,
                .cost = dense_cost,
                .packed_bytes = dense_bytes,
                .pack = dense_pack },
    .text = "ks_after.cu",
    .library = 1,
    .defines = defines,
    .launch = launch_of,
    .products = dense_products,
};
