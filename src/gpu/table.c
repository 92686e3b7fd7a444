/* The table of rows for GPUs. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/gradient/dw.h"
#include "gpu/rows.h"

#include "base/thread.h"
#include "math/pattern.h"

/* Types, as names of rows have them. */
#define TYPE_f32  DANAUS_F32
#define TYPE_tf32 DANAUS_F32
#define TYPE_f16  DANAUS_F16
#define TYPE_bf16 DANAUS_BF16
#define TYPE_f64  DANAUS_F64
#define TYPE_c64  DANAUS_C64
#define TYPE_c128 DANAUS_C128

/* Rows of several types. */
#define FOR_16(ROWS)  ROWS(f16), ROWS(bf16)
#define FOR_32(ROWS)  ROWS(f32), FOR_16(ROWS)
#define FOR_ALL(ROWS) FOR_32(ROWS), ROWS(f64), ROWS(c64), ROWS(c128)

/* A row: its name, type, family, the least architecture that it runs on, its sizes. */
#define ROW(NAME, type, FAMILY, ARCH, ...)                                             \
    {                                                                                  \
        NAME, TYPE_##type, &dn_gpu_##FAMILY.kernel, &(const gpu_code)                  \
        {                                                                              \
            .arch = ARCH, .size = { __VA_ARGS__ }                                      \
        }                                                                              \
    }

/* A portable row: a tile of BR rows, BS columns and BJ lanes, a thread TR x TS of it,
   BK steps of k at once. */
#define SIMT(type, BR, BS, BJ, TR, TS, BK)                                             \
    ROW("ks.simt." #type "." #BR "x" #BS "x" #BJ, type, simt, 0, BR, BS, BJ, TR, TS, BK)

/* A portable row for few columns: a block makes OUTS outputs for NS of them, k split
   over so many warps, whose threads load B bytes of weights at once. */
#define VEC(type, NS, OUTS, WARPS, B)                                                  \
    ROW("ks.vec." #type "." #NS "x" #OUTS, type, vec, 0, OUTS, NS, 1, WARPS, B)
#define VEC_4(type)                                                                    \
    VEC(type, 1, 32, 16, 16), VEC(type, 1, 8, 16, 16), VEC(type, 2, 32, 16, 16),       \
        VEC(type, 4, 32, 16, 8), VEC(type, 4, 8, 16, 8), VEC(type, 8, 32, 8, 8)
#define VEC_8(type)                                                                    \
    VEC(type, 1, 32, 16, 16), VEC(type, 1, 8, 16, 16), VEC(type, 4, 32, 8, 16)

/* A portable row for few columns k: EACH outputs of a thread, SPAN columns at once. */
#define THIN(type, EACH, SPAN)                                                         \
    ROW("ks.thin." #type "." #EACH "x" #SPAN, type, thin, 0, EACH, SPAN, 1)
#define THIN_4(type) THIN(type, 4, 4), THIN(type, 2, 8), THIN(type, 1, 4)
#define THIN_8(type) THIN(type, 2, 4), THIN(type, 1, 4)

/* Sums of 4 bytes. */
#define SIMT_4(type)                                                                   \
    SIMT(type, 128, 128, 1, 8, 8, 8), SIMT(type, 64, 64, 1, 8, 4, 16),                 \
        SIMT(type, 32, 128, 1, 8, 4, 16), SIMT(type, 16, 256, 1, 8, 4, 8),             \
        SIMT(type, 8, 512, 1, 8, 4, 4), SIMT(type, 4, 512, 1, 4, 4, 4),                \
        SIMT(type, 128, 8, 1, 4, 4, 8), SIMT(type, 64, 128, 2, 8, 8, 8),               \
        SIMT(type, 64, 64, 4, 8, 8, 8), SIMT(type, 8, 128, 4, 8, 4, 4),                \
        SIMT(type, 32, 64, 8, 8, 8, 4), SIMT(type, 4, 64, 16, 4, 4, 4)

/* Tiles for numbers of 8 bytes, and of 16. */
#define SIMT_8(type)                                                                   \
    SIMT(type, 64, 64, 1, 4, 4, 8), SIMT(type, 16, 128, 1, 4, 4, 8),                   \
        SIMT(type, 4, 256, 1, 4, 2, 4), SIMT(type, 64, 4, 1, 4, 2, 8),                 \
        SIMT(type, 32, 32, 4, 4, 4, 4), SIMT(type, 4, 64, 4, 4, 2, 4)
#define SIMT_16(type)                                                                  \
    SIMT(type, 32, 64, 1, 4, 2, 8), SIMT(type, 4, 128, 1, 2, 2, 4),                    \
        SIMT(type, 32, 4, 1, 2, 1, 8), SIMT(type, 16, 32, 4, 4, 2, 4)

/* A row for compute capability 9.0: at most R rows and C columns in a tile, whose
   columns G groups share; K blocks in a cluster, B resident; numbers in P parts. */
#define WGMMA(type, R, C, G, K, B, P) WGMMA_TO(type, R, C, G, K, B, P, 0)
/* T: y is what another factor takes. */
#define WGMMA_TO(type, R, C, G, K, B, P, T)                                            \
    ROW("ks.wgmma." #type "." #R "x" #C "." #K, type, wgmma, 90, R, C, 1, G, K, B, P, T)

#define WGMMA_16(type)                                                                 \
    WGMMA(type, 256, 128, 2, 1, 1, 1), WGMMA(type, 256, 128, 2, 2, 1, 1),              \
        WGMMA(type, 192, 192, 3, 1, 1, 1), WGMMA(type, 128, 128, 2, 1, 2, 1),          \
        WGMMA(type, 64, 64, 1, 1, 3, 1)

/* The same for narrow blocks, which are joined. */
#define WGMMA_JOINED(type, R, C, G, K, B, P)                                           \
    ROW("ks.wgmma_joined." #type "." #R "x" #C, type, wgmma_joined, 90, R, C, 1, G, K, \
        B, P)
#define WGMMA_JOINED_16(type)                                                          \
    WGMMA_JOINED(type, 256, 128, 2, 1, 1, 1),                                          \
        WGMMA_JOINED(type, 128, 128, 2, 1, 2, 1),                                      \
        WGMMA_JOINED(type, 64, 64, 1, 1, 3, 1)

/* Batch-first with d > 1, R rows, C columns and L lanes in a tile; clusters of N tiles of
   the same columns; T: x is what another factor made; numbers in P parts. */
#define WGMMA_LANES(type, R, C, L, N, T, P)                                            \
    ROW("ks.wgmma_lanes." #type ".1x" #N, type, wgmma_lanes, 90, R, C, L, N, T, P)
#define WGMMA_LANES_ALL(type, R, L, P)                                                 \
    WGMMA_LANES(type, R, 64, L, 1, 0, P), WGMMA_LANES(type, R, 64, L, 2, 0, P),        \
        WGMMA_LANES(type, R, 64, L, 4, 0, P)

/* A row from compute capability 8.0 on: at most R rows and C columns in a tile, B blocks
   resident. */
#define MMA(type, R, C, B) ROW("ks.mma." #type "." #R "x" #C, type, mma, 80, R, C, 1, B)

#define MMA_16(type) MMA(type, 128, 128, 1), MMA(type, 64, 128, 1), MMA(type, 64, 64, 2)

/* The same for batch-first with d > 1, a warp making 16 R rows by 8 S columns of 4 lanes,
   M warps beside each other in rows, W in all, B blocks resident; from compute capability
   ARCH on. */
#define MMA_LANES(type, ARCH, R, S, M, W, B, P)                                        \
    ROW("ks.mma_lanes." #type "." #R "x" #S "." #M "." #W, type, mma_lanes, ARCH, R,   \
        S, M, W, B, P)

/* Where a processor has 227 KiB of shared memory, and anywhere. */
#define MMA_LANES_90(type)                                                             \
    MMA_LANES(type, 90, 3, 4, 2, 4, 2, 1), MMA_LANES(type, 90, 4, 3, 1, 4, 2, 1)
#define MMA_LANES_80(type) MMA_LANES(type, 80, 4, 2, 1, 4, 1, 1)

/* Batch-first for any lanes and alignment, a warp making at most 16 R rows by 8 S columns of
   a lane, at most W warps, B blocks resident; from compute capability ARCH on. */
#define MMA_RUNS(type, ARCH, R, S, W, B, P)                                            \
    ROW("ks.mma_runs." #type "." #R "x" #S "." #W "." #B, type, mma_runs, ARCH, R, S,  \
        1, W, B, P)
#define MMA_RUNS_80(type) MMA_RUNS(type, 80, 2, 4, 8, 1, 1)
#define MMA_RUNS_90(type)                                                              \
    MMA_RUNS(type, 90, 4, 4, 16, 1, 1), MMA_RUNS(type, 90, 4, 4, 8, 2, 1),             \
        MMA_RUNS(type, 90, 2, 8, 8, 2, 1), MMA_RUNS(type, 90, 8, 2, 8, 2, 1)

/* A row for few columns from compute capability ARCH on, of a warp 16 R rows and 8 S
   columns; M warps beside each other in rows, columns k split over K ways; B blocks
   resident, numbers in P parts. */
#define SPLIT(type, ARCH, R, S, M, K, B, P)                                            \
    ROW("ks.split." #type "." #R "x" #S "." #M "x" #K, type, split, ARCH, R, S, M, K,  \
        B, P)
#define SPLIT_90(type, P)                                                              \
    SPLIT(type, 90, 1, 1, 1, 8, 2, P), SPLIT(type, 90, 2, 1, 1, 8, 2, P),              \
        SPLIT(type, 90, 1, 2, 1, 8, 3, P), SPLIT(type, 90, 2, 2, 1, 8, 2, P),          \
        SPLIT(type, 90, 2, 2, 2, 4, 2, P)

/* Batch-first by a row whose x and y are batch-last, or whose x FIRST makes: AT from compute
   capability AT / 10 on. */
#define TURNED_TO(NAME, type, AT, FIRST, ...)                                          \
    {                                                                                  \
        NAME, TYPE_##type, &dn_gpu_turned.kernel, &(const gpu_code)                    \
        {                                                                              \
            .arch = AT, .size = { 64, 64, 1 }, .first = FIRST,                         \
            .inner = &(const kernel)__VA_ARGS__                                        \
        }                                                                              \
    }
#define TURNED(NAME, type, AT, ...)                                                    \
    TURNED_TO("ks.turned." NAME, type, AT, NULL, __VA_ARGS__)
/* Two factors, in two launches. */
#define PAIR_LANES(type, R, L)                                                         \
    TURNED_TO(                                                                         \
        "ks.pair." #type ".lanes", type, 90, &first_##type,                            \
        WGMMA_LANES(type, R, 64, L, 1, 1, 1))
#define TURNED_90(type)                                                                \
    TURNED(#type ".256x128.2", type, 90, WGMMA(type, 256, 128, 2, 2, 1, 1))

/* The rows of a library, by blocks and as a whole. */
#define LIBRARY(name, NAME, type, ...)                                                 \
    ROW("ks." #name "." NAME, type, name, 0, 64, 64, 1, __VA_ARGS__)
/* Packing to a type. */
#define GATHER(type) ROW("pack.gather." #type, type, pack_gather, 0, 1, 1, 1)
#define MERGE(type)  ROW("pack.merge." #type, type, pack_merge, 0, 1, 1, 1)

#define BLAS(type, TF32)                                                               \
    LIBRARY(blas, #type, type, TF32), LIBRARY(dense, #type, type, TF32)

/* Two factors at once, C columns in a tile, W warps, at most B blocks resident; for compute
   capability 9.0, or from 8.0 on. */
#define PAIR(type, ARCH, C, W, B)                                                      \
    ROW("ks.pair." #type "." #C "." #W, type, pair, ARCH, 1, C, 1, W, B)
#define PAIR_90(type)                                                                  \
    PAIR(type, 90, 48, 4, 2), PAIR(type, 90, 48, 8, 1), PAIR(type, 90, 32, 8, 1),      \
        PAIR(type, 90, 24, 8, 1)

/* A way to make weight gradients (gpu/gradient/dw.h), with lanes as they lie, and the others; F:
   whether the copy engine fetches. */
#define DW_FORM(FAMILY, NAME, type, ARCH, FORM, F)                                     \
    ROW("dw." NAME "." #type, type, dw_##FAMILY.gpu, ARCH, FORM, F)
#define DW_AS_IT_IS(FAMILY, NAME, type, ARCH, F)                                       \
    DW_FORM(FAMILY, NAME, type, ARCH, DW_AS_IT_LIES, F)
#define DW(FAMILY, NAME, type, ARCH, F)                                                \
    DW_AS_IT_IS(FAMILY, NAME, type, ARCH, F),                                          \
        DW_FORM(FAMILY, NAME ".turned", type, ARCH, DW_TURNED, F),                     \
        DW_FORM(FAMILY, NAME ".dense", type, ARCH, DW_DENSE, F)

#define DW_MMA_90(type) DW(mma, "mma_boxes", type, 90, 1)
#define DW_MMA_80(type) DW(mma, "mma", type, 80, 0)
#define DW_MATRIX(type) DW(matrix, "matrix", type, 90, 1)
#define DW_FOURS(type)  DW_AS_IT_IS(fours, "fours", type, 90, 1)
#define DW_SIMT(type)   DW_AS_IT_IS(simt, "simt", type, 0, 0)
#define DW_BLAS(type)   DW(blas, "blas", type, 0, 0)

/* The first of two factors. */
static const kernel first_f16 = WGMMA_TO(f16, 256, 128, 2, 1, 1, 1, 1);
static const kernel first_bf16 = WGMMA_TO(bf16, 256, 128, 2, 1, 1, 1, 1);
static const kernel first_tf32 = WGMMA_TO(tf32, 256, 128, 2, 1, 1, 1, 1);

const kernel dn_gpu_kernels[] = {
    PAIR_90(f16),
    PAIR_LANES(f16, 48, 16),
    PAIR_LANES(bf16, 48, 16),
    PAIR_LANES(tf32, 96, 8),
    PAIR_90(bf16),
    PAIR(tf32, 90, 48, 4, 2),
    PAIR(tf32, 90, 32, 8, 1),
    PAIR(tf32, 90, 24, 8, 2),
    FOR_16(WGMMA_16),
    WGMMA(tf32, 256, 128, 2, 1, 1, 1),
    WGMMA(tf32, 256, 128, 2, 2, 1, 1),
    WGMMA(tf32, 128, 192, 3, 1, 1, 1),
    WGMMA(tf32, 64, 64, 1, 1, 2, 1),
    WGMMA(f32, 128, 128, 2, 1, 1, 2),
    WGMMA(f32, 64, 64, 1, 1, 2, 2),
    FOR_16(WGMMA_JOINED_16),
    WGMMA_JOINED(tf32, 64, 64, 1, 1, 2, 1),
    WGMMA_JOINED(f32, 64, 64, 1, 1, 2, 2),
    WGMMA_LANES_ALL(f16, 40, 16, 1),
    WGMMA_LANES_ALL(bf16, 40, 16, 1),
    WGMMA_LANES_ALL(tf32, 96, 8, 1),
    WGMMA_LANES(f32, 64, 64, 8, 1, 0, 2),
    FOR_16(MMA_LANES_90),
    MMA_LANES_90(tf32),
    MMA_LANES(f32, 90, 3, 2, 1, 4, 2, 2),
    MMA_LANES(f32, 90, 4, 2, 1, 4, 2, 2),
    FOR_16(MMA_RUNS_90),
    MMA_RUNS_90(tf32),
    MMA_RUNS(f32, 90, 2, 2, 8, 2, 2),
    MMA_RUNS(f32, 90, 2, 4, 16, 1, 2),
    MMA_RUNS(f32, 90, 4, 2, 8, 2, 2),
    MMA_RUNS(f32, 90, 4, 2, 16, 1, 2),
    SPLIT_90(f16, 1),
    SPLIT_90(bf16, 1),
    SPLIT_90(tf32, 1),
    SPLIT_90(f32, 2),
    FOR_16(TURNED_90),
    TURNED_90(tf32),
    TURNED("f32.128x128.1", f32, 90, WGMMA(f32, 128, 128, 2, 1, 1, 2)),
    FOR_32(DW_MMA_90),
    DW(wgmma, "wgmma", f32, 90, 1),
    FOR_16(DW_MATRIX),
    FOR_16(DW_FOURS),
    PAIR(f16, 80, 16, 8, 1),
    PAIR(bf16, 80, 16, 8, 1),
    PAIR(tf32, 80, 16, 8, 1),
    FOR_16(MMA_16),
    SPLIT(f16, 80, 1, 2, 1, 4, 1, 1),
    SPLIT(bf16, 80, 1, 2, 1, 4, 1, 1),
    SPLIT(tf32, 80, 1, 2, 1, 4, 1, 1),
    SPLIT(f32, 80, 1, 2, 1, 4, 1, 2),
    FOR_16(MMA_LANES_80),
    MMA_LANES_80(tf32),
    FOR_16(MMA_RUNS_80),
    MMA_RUNS_80(tf32),
    MMA_RUNS(f32, 80, 2, 2, 8, 1, 2),
    FOR_32(DW_MMA_80),
    FOR_32(SIMT_4),
    SIMT_8(f64),
    SIMT_8(c64),
    SIMT_16(c128),
    FOR_32(THIN_4),
    THIN_8(f64),
    THIN_8(c64),
    THIN(c128, 1, 2),
    FOR_32(VEC_4),
    VEC_8(f64),
    VEC_8(c64),
    VEC_8(c128),
    TURNED("f32.128x128", f32, 0, SIMT(f32, 128, 128, 1, 8, 8, 8)),
    TURNED("f64.64x64", f64, 0, SIMT(f64, 64, 64, 1, 4, 4, 8)),
    TURNED("c64.64x64", c64, 0, SIMT(c64, 64, 64, 1, 4, 4, 8)),
    TURNED("c128.32x64", c128, 0, SIMT(c128, 32, 64, 1, 4, 2, 8)),
    FOR_ALL(GATHER),
    MERGE(f64),
    MERGE(c128),
    MERGE(f32),
    MERGE(c64),
    FOR_ALL(DW_SIMT),
    BLAS(f32, 0),
    LIBRARY(blas, "f32.columns", f32, 0, 1),
    BLAS(tf32, 1),
    BLAS(f16, 0),
    BLAS(bf16, 0),
    BLAS(f64, 0),
    BLAS(c64, 0),
    BLAS(c128, 0),
    FOR_32(DW_BLAS),
    DW_BLAS(f64),
    { 0 },
};

#define ROWS (sizeof dn_gpu_kernels / sizeof *dn_gpu_kernels)

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
