/* The table of rows for GPUs. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/dw.h"
#include "gpu/rows.h"

#include "base/thread.h"
#include "math/pattern.h"

/* A row: its name, type, family, the least architecture that it runs on, its sizes. */
#define ROW(NAME, DTYPE, FAMILY, ARCH, ...)                                            \
    {                                                                                  \
        NAME, DTYPE, &dn_gpu_##FAMILY.kernel, &(const gpu_code)                        \
        {                                                                              \
            .arch = ARCH, .size = { __VA_ARGS__ }                                      \
        }                                                                              \
    }

/* A portable row: a tile of BR rows, BS columns and BJ lanes, a thread TR x TS of it,
   BK steps of k at once. */
#define SIMT(type, DTYPE, BR, BS, BJ, TR, TS, BK)                                      \
    ROW("ks.simt." #type "." #BR "x" #BS "x" #BJ, DTYPE, simt, 0, BR, BS, BJ, TR, TS,  \
        BK)

/* A portable row for few columns: a block makes OUTS outputs for NS of them, k split
   over so many warps, whose threads load B bytes of weights at once. */
#define VEC(type, DTYPE, NS, OUTS, WARPS, B)                                           \
    ROW("ks.vec." #type "." #NS "x" #OUTS, DTYPE, vec, 0, OUTS, NS, 1, WARPS, B)
#define VEC_4(type, DTYPE)                                                             \
    VEC(type, DTYPE, 1, 32, 16, 16), VEC(type, DTYPE, 1, 8, 16, 16),                   \
        VEC(type, DTYPE, 2, 32, 16, 16), VEC(type, DTYPE, 4, 32, 16, 8),               \
        VEC(type, DTYPE, 4, 8, 16, 8), VEC(type, DTYPE, 8, 32, 8, 8)
#define VEC_8(type, DTYPE)                                                             \
    VEC(type, DTYPE, 1, 32, 16, 16), VEC(type, DTYPE, 1, 8, 16, 16),                   \
        VEC(type, DTYPE, 4, 32, 8, 16)

/* Sums of 4 bytes. */
#define SIMT_4(type, DTYPE)                                                            \
    SIMT(type, DTYPE, 128, 128, 1, 8, 8, 8), SIMT(type, DTYPE, 64, 64, 1, 8, 4, 16),   \
        SIMT(type, DTYPE, 32, 128, 1, 8, 4, 16),                                       \
        SIMT(type, DTYPE, 16, 256, 1, 8, 4, 8), SIMT(type, DTYPE, 8, 512, 1, 8, 4, 4), \
        SIMT(type, DTYPE, 4, 512, 1, 4, 4, 4), SIMT(type, DTYPE, 128, 8, 1, 4, 4, 8),  \
        SIMT(type, DTYPE, 64, 128, 2, 8, 8, 8), SIMT(type, DTYPE, 64, 64, 4, 8, 8, 8), \
        SIMT(type, DTYPE, 8, 128, 4, 8, 4, 4), SIMT(type, DTYPE, 32, 64, 8, 8, 8, 4),  \
        SIMT(type, DTYPE, 8, 64, 8, 8, 4, 4), SIMT(type, DTYPE, 4, 64, 16, 4, 4, 4),   \
        SIMT(type, DTYPE, 32, 32, 16, 8, 8, 4), SIMT(type, DTYPE, 32, 4, 8, 4, 4, 8)

/* Of 8 bytes, and of 16. */
#define SIMT_8(type, DTYPE)                                                            \
    SIMT(type, DTYPE, 64, 64, 1, 4, 4, 8), SIMT(type, DTYPE, 16, 128, 1, 4, 4, 8),     \
        SIMT(type, DTYPE, 4, 256, 1, 4, 2, 4), SIMT(type, DTYPE, 64, 4, 1, 4, 2, 8),   \
        SIMT(type, DTYPE, 32, 32, 4, 4, 4, 4), SIMT(type, DTYPE, 4, 64, 4, 4, 2, 4)
#define SIMT_16(type, DTYPE)                                                           \
    SIMT(type, DTYPE, 32, 64, 1, 4, 2, 8), SIMT(type, DTYPE, 4, 128, 1, 2, 2, 4),      \
        SIMT(type, DTYPE, 32, 4, 1, 2, 1, 8), SIMT(type, DTYPE, 16, 32, 4, 4, 2, 4)

/* A row for compute capability 9.0: at most R rows and C columns in a tile, whose
   columns G groups share; K blocks in a cluster, B resident; numbers in P parts. */
#define WGMMA(type, DTYPE, R, C, G, K, B, P) WGMMA_TO(type, DTYPE, R, C, G, K, B, P, 0)
/* T: y is what another factor takes. */
#define WGMMA_TO(type, DTYPE, R, C, G, K, B, P, T)                                     \
    ROW("ks.wgmma." #type "." #R "x" #C "." #K, DTYPE, wgmma, 90, R, C, 1, G, K, B, P, \
        T)

#define WGMMA_16(type, DTYPE)                                                          \
    WGMMA(type, DTYPE, 256, 128, 2, 1, 1, 1),                                          \
        WGMMA(type, DTYPE, 256, 128, 2, 2, 1, 1),                                      \
        WGMMA(type, DTYPE, 192, 192, 3, 1, 1, 1),                                      \
        WGMMA(type, DTYPE, 128, 128, 2, 1, 2, 1),                                      \
        WGMMA(type, DTYPE, 64, 64, 1, 1, 3, 1)

/* Batch-first with d > 1, R rows, C columns and L lanes in a tile; clusters of N tiles of
   the same columns; T: x is what another factor made; numbers in P parts. */
#define WGMMA_LANES(type, DTYPE, R, C, L, N, T, P)                                     \
    ROW("ks.wgmma_lanes." #type ".1x" #N, DTYPE, wgmma_lanes, 90, R, C, L, N, T, P)
#define WGMMA_LANES_ALL(type, DTYPE, R, L, P)                                          \
    WGMMA_LANES(type, DTYPE, R, 64, L, 1, 0, P),                                       \
        WGMMA_LANES(type, DTYPE, R, 64, L, 2, 0, P),                                   \
        WGMMA_LANES(type, DTYPE, R, 64, L, 4, 0, P)

/* A row from compute capability 8.0 on: at most R rows and C columns in a tile, B blocks
   resident. */
#define MMA(type, DTYPE, R, C, B)                                                      \
    ROW("ks.mma." #type "." #R "x" #C, DTYPE, mma, 80, R, C, 1, B)

#define MMA_16(type, DTYPE)                                                            \
    MMA(type, DTYPE, 128, 128, 1), MMA(type, DTYPE, 64, 128, 1),                       \
        MMA(type, DTYPE, 64, 64, 2)

/* The same for batch-first with d > 1, a warp making 16 R rows by 8 S columns of 4 lanes,
   M warps beside each other in rows, W in all, B blocks resident; from compute capability
   ARCH on. */
#define MMA_LANES(type, DTYPE, ARCH, R, S, M, W, B, P)                                 \
    ROW("ks.mma_lanes." #type "." #R "x" #S "." #M "." #W, DTYPE, mma_lanes, ARCH, R,  \
        S, M, W, B, P, 1)

/* The same in f32 with the weights of a tile held in shared memory, U units of columns k
   in a step. */
#define MMA_HELD(R, S, W, B, U)                                                        \
    ROW("ks.mma_held.f32." #R "x" #S "." #W "." #U, DANAUS_F32, mma_lanes, 90, R, S,   \
        1, W, B, 2, U, 1)

/* Where a processor has 227 KiB of shared memory, and anywhere. */
#define MMA_LANES_90(type, DTYPE)                                                      \
    MMA_LANES(type, DTYPE, 90, 3, 4, 1, 4, 2, 1),                                      \
        MMA_LANES(type, DTYPE, 90, 3, 4, 2, 4, 2, 1),                                  \
        MMA_LANES(type, DTYPE, 90, 4, 3, 1, 4, 2, 1)
#define MMA_LANES_80(type, DTYPE) MMA_LANES(type, DTYPE, 80, 4, 2, 1, 4, 1, 1)

/* A row for few columns from compute capability ARCH on, of a warp 16 R rows and 8 S
   columns; M warps beside each other in rows, columns k split over K ways; B blocks
   resident, numbers in P parts. */
#define SPLIT(type, DTYPE, ARCH, R, S, M, K, B, P)                                     \
    ROW("ks.split." #type "." #R "x" #S "." #M "x" #K, DTYPE, split, ARCH, R, S, M, K, \
        B, P)
#define SPLIT_90(type, DTYPE, P)                                                       \
    SPLIT(type, DTYPE, 90, 1, 1, 1, 8, 2, P),                                          \
        SPLIT(type, DTYPE, 90, 2, 1, 1, 8, 2, P),                                      \
        SPLIT(type, DTYPE, 90, 1, 2, 1, 8, 3, P),                                      \
        SPLIT(type, DTYPE, 90, 2, 2, 1, 8, 2, P),                                      \
        SPLIT(type, DTYPE, 90, 2, 2, 2, 4, 2, P)

/* Batch-first by a row whose x and y are batch-last, or whose x FIRST makes: AT from compute
   capability AT / 10 on. */
#define TURNED_TO(NAME, DTYPE, AT, FIRST, ...)                                         \
    {                                                                                  \
        NAME, DTYPE, &dn_gpu_turned.kernel, &(const gpu_code)                          \
        {                                                                              \
            .arch = AT, .size = { 64, 64, 1 }, .first = FIRST,                         \
            .inner = &(const kernel)__VA_ARGS__                                        \
        }                                                                              \
    }
#define TURNED(NAME, DTYPE, AT, ...)                                                   \
    TURNED_TO("ks.turned." NAME, DTYPE, AT, NULL, __VA_ARGS__)
/* Two factors, in two launches. */
#define PAIR_LANES(type, DTYPE, R, L)                                                  \
    TURNED_TO(                                                                         \
        "ks.pair." #type ".lanes", DTYPE, 90, &first_##type,                           \
        WGMMA_LANES(type, DTYPE, R, 64, L, 1, 1, 1))
#define TURNED_16(type, DTYPE)                                                         \
    TURNED(#type ".256x128.2", DTYPE, 90, WGMMA(type, DTYPE, 256, 128, 2, 2, 1, 1)),   \
        TURNED(                                                                        \
            #type ".192x192.1", DTYPE, 90, WGMMA(type, DTYPE, 192, 192, 3, 1, 1, 1)),  \
        TURNED(                                                                        \
            #type ".128x128.1", DTYPE, 90, WGMMA(type, DTYPE, 128, 128, 2, 1, 2, 1))

/* The rows of a library, by blocks and as a whole. */
#define LIBRARY(name, type, DTYPE, ...)                                                \
    ROW("ks." #name "." type, DTYPE, name, 0, 64, 64, 1, __VA_ARGS__)
/* Packing to a type. */
#define GATHER(type, DTYPE) ROW("pack.gather." #type, DTYPE, pack_gather, 0, 1, 1, 1)
#define MERGE(type, DTYPE)  ROW("pack.merge." #type, DTYPE, pack_merge, 0, 1, 1, 1)

#define BLAS(type, DTYPE, TF32)                                                        \
    LIBRARY(blas, #type, DTYPE, TF32), LIBRARY(dense, #type, DTYPE, TF32)

/* Two factors at once, C columns in a tile, W warps, at most B blocks resident; for compute
   capability 9.0, or from 8.0 on. */
#define PAIR(type, DTYPE, ARCH, C, W, B)                                               \
    ROW("ks.pair." #type "." #C "." #W, DTYPE, pair, ARCH, 1, C, 1, W, B)
#define PAIR_90(type, DTYPE)                                                           \
    PAIR(type, DTYPE, 90, 48, 4, 2), PAIR(type, DTYPE, 90, 48, 8, 1),                  \
        PAIR(type, DTYPE, 90, 32, 8, 1), PAIR(type, DTYPE, 90, 24, 8, 1)

/* A way to make weight gradients (gpu/dw.h), with lanes as they lie, and the others; F:
   whether the copy engine fetches. */
#define DW_FORM(FAMILY, NAME, TYPE, DTYPE, ARCH, FORM, F)                              \
    {                                                                                  \
        "dw." NAME "." #TYPE, DTYPE, &dn_gpu_dw_##FAMILY.gpu.kernel, &(const gpu_code) \
        {                                                                              \
            .arch = ARCH, .size = { FORM, F }                                          \
        }                                                                              \
    }
#define DW_AS_IT_IS(FAMILY, NAME, TYPE, DTYPE, ARCH, F)                                \
    DW_FORM(FAMILY, NAME, TYPE, DTYPE, ARCH, DW_AS_IT_LIES, F)
#define DW(FAMILY, NAME, TYPE, DTYPE, ARCH, F)                                         \
    DW_AS_IT_IS(FAMILY, NAME, TYPE, DTYPE, ARCH, F),                                   \
        DW_FORM(FAMILY, NAME ".turned", TYPE, DTYPE, ARCH, DW_TURNED, F),              \
        DW_FORM(FAMILY, NAME ".dense", TYPE, DTYPE, ARCH, DW_DENSE, F)

/* The first of two factors. */
static const kernel first_f16 = WGMMA_TO(f16, DANAUS_F16, 256, 128, 2, 1, 1, 1, 1);
static const kernel first_bf16 = WGMMA_TO(bf16, DANAUS_BF16, 256, 128, 2, 1, 1, 1, 1);
static const kernel first_tf32 = WGMMA_TO(tf32, DANAUS_F32, 256, 128, 2, 1, 1, 1, 1);

const kernel dn_gpu_kernels[] = {
    PAIR_90(f16, DANAUS_F16),
    PAIR_LANES(f16, DANAUS_F16, 48, 16),
    PAIR_LANES(bf16, DANAUS_BF16, 48, 16),
    PAIR_LANES(tf32, DANAUS_F32, 96, 8),
    PAIR_90(bf16, DANAUS_BF16),
    PAIR(tf32, DANAUS_F32, 90, 48, 4, 2),
    PAIR(tf32, DANAUS_F32, 90, 32, 8, 1),
    PAIR(tf32, DANAUS_F32, 90, 24, 8, 2),
    WGMMA_16(f16, DANAUS_F16),
    WGMMA_16(bf16, DANAUS_BF16),
    WGMMA(tf32, DANAUS_F32, 256, 128, 2, 1, 1, 1),
    WGMMA(tf32, DANAUS_F32, 256, 128, 2, 2, 1, 1),
    WGMMA(tf32, DANAUS_F32, 128, 192, 3, 1, 1, 1),
    WGMMA(tf32, DANAUS_F32, 64, 64, 1, 1, 2, 1),
    WGMMA(f32, DANAUS_F32, 128, 128, 2, 1, 1, 2),
    WGMMA(f32, DANAUS_F32, 64, 64, 1, 1, 2, 2),
    WGMMA_LANES_ALL(f16, DANAUS_F16, 40, 16, 1),
    WGMMA_LANES_ALL(bf16, DANAUS_BF16, 40, 16, 1),
    WGMMA_LANES_ALL(tf32, DANAUS_F32, 96, 8, 1),
    WGMMA_LANES(f32, DANAUS_F32, 64, 64, 8, 1, 0, 2),
    MMA_LANES_90(f16, DANAUS_F16),
    MMA_LANES_90(bf16, DANAUS_BF16),
    MMA_LANES_90(tf32, DANAUS_F32),
    MMA_LANES(f32, DANAUS_F32, 90, 3, 2, 1, 4, 2, 2),
    MMA_LANES(f32, DANAUS_F32, 90, 4, 2, 1, 4, 2, 2),
    MMA_HELD(3, 2, 4, 2, 1),
    MMA_HELD(3, 2, 4, 2, 2),
    SPLIT_90(f16, DANAUS_F16, 1),
    SPLIT_90(bf16, DANAUS_BF16, 1),
    SPLIT_90(tf32, DANAUS_F32, 1),
    SPLIT_90(f32, DANAUS_F32, 2),
    TURNED_16(f16, DANAUS_F16),
    TURNED_16(bf16, DANAUS_BF16),
    TURNED(
        "tf32.256x128.2", DANAUS_F32, 90,
        WGMMA(tf32, DANAUS_F32, 256, 128, 2, 2, 1, 1)),
    TURNED(
        "tf32.128x192.1", DANAUS_F32, 90,
        WGMMA(tf32, DANAUS_F32, 128, 192, 3, 1, 1, 1)),
    TURNED(
        "f32.128x128.1", DANAUS_F32, 90, WGMMA(f32, DANAUS_F32, 128, 128, 2, 1, 1, 2)),
    DW(mma, "mma_boxes", f32, DANAUS_F32, 90, 1),
    DW(mma, "mma_boxes", f16, DANAUS_F16, 90, 1),
    DW(mma, "mma_boxes", bf16, DANAUS_BF16, 90, 1),
    DW(wgmma, "wgmma", f32, DANAUS_F32, 90, 1),
    DW(matrix, "matrix", f16, DANAUS_F16, 90, 1),
    DW(matrix, "matrix", bf16, DANAUS_BF16, 90, 1),
    DW_AS_IT_IS(fours, "fours", f16, DANAUS_F16, 90, 1),
    DW_AS_IT_IS(fours, "fours", bf16, DANAUS_BF16, 90, 1),
    PAIR(f16, DANAUS_F16, 80, 16, 8, 1),
    PAIR(bf16, DANAUS_BF16, 80, 16, 8, 1),
    PAIR(tf32, DANAUS_F32, 80, 16, 8, 1),
    MMA_16(f16, DANAUS_F16),
    MMA_16(bf16, DANAUS_BF16),
    SPLIT(f16, DANAUS_F16, 80, 1, 2, 1, 4, 1, 1),
    SPLIT(bf16, DANAUS_BF16, 80, 1, 2, 1, 4, 1, 1),
    SPLIT(tf32, DANAUS_F32, 80, 1, 2, 1, 4, 1, 1),
    SPLIT(f32, DANAUS_F32, 80, 1, 2, 1, 4, 1, 2),
    MMA_LANES_80(f16, DANAUS_F16),
    MMA_LANES_80(bf16, DANAUS_BF16),
    MMA_LANES_80(tf32, DANAUS_F32),
    DW(mma, "mma", f32, DANAUS_F32, 80, 0),
    DW(mma, "mma", f16, DANAUS_F16, 80, 0),
    DW(mma, "mma", bf16, DANAUS_BF16, 80, 0),
    SIMT_4(f32, DANAUS_F32),
    SIMT_4(f16, DANAUS_F16),
    SIMT_4(bf16, DANAUS_BF16),
    SIMT_8(f64, DANAUS_F64),
    SIMT_8(c64, DANAUS_C64),
    SIMT_16(c128, DANAUS_C128),
    VEC_4(f32, DANAUS_F32),
    VEC_4(f16, DANAUS_F16),
    VEC_4(bf16, DANAUS_BF16),
    VEC_8(f64, DANAUS_F64),
    VEC_8(c64, DANAUS_C64),
    VEC_8(c128, DANAUS_C128),
    TURNED("f32.128x128", DANAUS_F32, 0, SIMT(f32, DANAUS_F32, 128, 128, 1, 8, 8, 8)),
    TURNED("f64.64x64", DANAUS_F64, 0, SIMT(f64, DANAUS_F64, 64, 64, 1, 4, 4, 8)),
    TURNED("c64.64x64", DANAUS_C64, 0, SIMT(c64, DANAUS_C64, 64, 64, 1, 4, 4, 8)),
    TURNED("c128.32x64", DANAUS_C128, 0, SIMT(c128, DANAUS_C128, 32, 64, 1, 4, 2, 8)),
    GATHER(f32, DANAUS_F32),
    GATHER(f16, DANAUS_F16),
    GATHER(bf16, DANAUS_BF16),
    GATHER(f64, DANAUS_F64),
    GATHER(c64, DANAUS_C64),
    GATHER(c128, DANAUS_C128),
    MERGE(f64, DANAUS_F64),
    MERGE(c128, DANAUS_C128),
    DW_AS_IT_IS(simt, "simt", f32, DANAUS_F32, 0, 0),
    DW_AS_IT_IS(simt, "simt", f16, DANAUS_F16, 0, 0),
    DW_AS_IT_IS(simt, "simt", bf16, DANAUS_BF16, 0, 0),
    DW_AS_IT_IS(simt, "simt", f64, DANAUS_F64, 0, 0),
    DW_AS_IT_IS(simt, "simt", c64, DANAUS_C64, 0, 0),
    DW_AS_IT_IS(simt, "simt", c128, DANAUS_C128, 0, 0),
    BLAS(f32, DANAUS_F32, 0),
    LIBRARY(blas, "f32.columns", DANAUS_F32, 0, 1),
    BLAS(tf32, DANAUS_F32, 1),
    BLAS(f16, DANAUS_F16, 0),
    BLAS(bf16, DANAUS_BF16, 0),
    BLAS(f64, DANAUS_F64, 0),
    BLAS(c64, DANAUS_C64, 0),
    BLAS(c128, DANAUS_C128, 0),
    DW(blas, "blas", f32, DANAUS_F32, 0, 0),
    DW(blas, "blas", f16, DANAUS_F16, 0, 0),
    DW(blas, "blas", bf16, DANAUS_BF16, 0, 0),
    DW(blas, "blas", f64, DANAUS_F64, 0, 0),
    { 0 },
};

#define ROWS (sizeof dn_gpu_kernels / sizeof *dn_gpu_kernels)

void dn_gpu_define(danaus_dtype dtype, const gpu_define *lines, size_t count, text *to)
{
    if (dtype == DANAUS_BF16)
        dn_text(to, "#define TYPE_BF16 1\n");
    for (size_t i = 0; i < count; i++)
        dn_text(to, "#define %s %lld\n", lines[i].name, (long long)lines[i].value);
}

void dn_gpu_define_type(const kernel *k, const problem *p, int variant, text *to)
{
    (void)k, (void)variant;
    dn_text(to, "#define TYPE_%s 1\n", danaus_dtype_name(p->dtype));
}

void dn_gpu_define_layout(const kernel *k, const problem *p, int variant, text *to)
{
    dn_gpu_define_type(k, p, variant, to);
    dn_text(to, "#define LAST %d\n", p->layout == DANAUS_BATCH_LAST);
}

int dn_gpu_runs_on(const kernel *k, int arch)
{
    int least = dn_gpu_code(k)->arch;
    return least == 90 ? arch == 90 : arch >= least;
}

/* The table as far as the rows of a library. Plans point into it, so there is one for the
   process. */
static const kernel *without_library(void)
{
    static kernel rows[ROWS];
    dn_lock_process();
    if (!rows[0].name)
        for (int i = 0;
             dn_gpu_kernels[i].name && !dn_gpu_family(&dn_gpu_kernels[i])->library; i++)
            rows[i] = dn_gpu_kernels[i];
    dn_unlock_process();
    return rows;
}

const kernel *dn_gpu_kernels_for(int arch, int library)
{
    const kernel *k = library ? dn_gpu_kernels : without_library();
    while (k->name && !dn_gpu_runs_on(k, arch))
        k++;
    return k;
}

void dn_gpu_use(const kernel *k, const problem *p, int variant, gpu_use *use)
{
    const gpu_family *f = dn_gpu_family(k);
    text t = { use->defines, sizeof use->defines, 0 };
    use->text = f->text;
    use->entry = f->entry ? f->entry : "ks";
    *use->defines = '\0';
    f->defines(k, p, variant, &t);
}

/* Rows whose x is made first turn nothing. Which variant it is hangs on whether a batch is
   one column, how many there are, and whether they are a multiple of some power of two. */
int dn_gpu_reaches(const kernel *k, const problem *p, int variant, int64_t memory)
{
    const gpu_family *f = dn_gpu_family(k);
    danaus_pattern q = p->pattern;
    int64_t column = (dn_pattern_rows(q) + dn_pattern_cols(q)) *
                     (int64_t)danaus_dtype_size(p->dtype);
    const int64_t batches[] = { p->batch, 1, 3, 64, memory / column };
    if (!f->text || dn_gpu_code(k)->first)
        return 0;
    if (!f->variant)
        return 1;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        gpu_call call = { MAX(batches[i], 1), NULL, NULL };
        if (f->variant(k, p, &call) == variant)
            return 1;
    }
    return 0;
}
