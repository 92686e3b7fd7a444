/* Numbers of conv_mma.cu and conv_mma_cluster.cu: the type of rows, windows of rows, and what
   a thread works on. */
// SPDX-License-Identifier: Apache-2.0
#define WINDOW  (ROWS * COLUMNS)
#define TILES(n) (((n) + 15) / 16)
#define PITCH   528 /* bytes of 256 points and some more */
#define PHASE   (PAIR ? 0 : 1) /* windows are mod Z^WINDOW - i^PHASE */

#include "ptx.cuh"

typedef long long int64;
typedef float S;
#define FN           INLINE
#define ALIGNED(n)   __align__(n)
#define FMA(a, b, c) fmaf(a, b, c)
#define UNROLL       _Pragma("unroll")
#define ROLL         _Pragma("unroll 1")

#if defined TYPE_f32
typedef float X;
INLINE u32 stored_pair(float v0, float v1) { return 0; }
INLINE float load(X x) { return x; }
INLINE X store(float v) { return v; }
#elif defined TYPE_bf16
typedef u16 X;
INLINE float load(X x) { return __uint_as_float((u32)x << 16); }
INLINE X store(float v) { return (X)pack_bf16(v, 0); }
INLINE u32 stored_pair(float v0, float v1) { return pack_bf16(v0, v1); }
#else
typedef u16 X;
INLINE float load(X x) { return low_of(x); }
INLINE X store(float v) { return (u16)pack_pair(v, 0); }
INLINE u32 stored_pair(float v0, float v1) { return pack_pair(v0, v1); }
#endif

#include "conv_points.cuh"
#include "conv_mma_sparse.cuh"
#include "conv_window.cuh"

#ifndef TAPS
#define TAPS 0
#endif
#ifndef SUMS
#define SUMS 0 /* conv_mma_sums.cu */
#endif
#include "conv_mma_few.cuh"

typedef struct work {
    rows r;
    window w;
    few_row few[2];      /* of x, of its factor */
    const uint4 *tables; /* this lane's */
    u32 near;            /* NEAR: their copy in shared memory */
    u32 d, other_d;      /* the address of D, and of where chunks come ahead */
    char *points;        /* of the window, in memory */
    u32 points_at;       /* the address of those in shared memory */
    u32 *peaks;          /* of its rows */
    float beside[2];     /* of dy, for sums: what undoes the scales of x; or 0 */
    int task;            /* the row of the window, or its tile of columns */
    int member, warp, lane, thread;
} work;

#include "conv_mma_odd.cuh"
