/* Loads left operands of ks_wgmma_lanes.cu from a step. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ks_wgmma_lanes.cuh"

INLINE u32 word_of(uint4 v, int n)
{
    return n == 0 ? v.x : n == 1 ? v.y : n == 2 ? v.z : v.w;
}

/* What a thread reads of a step. */
typedef struct units {
    uint4 v[STEP_K / FOUR_K][2]; /* of columns s and s + 8 */
} units;

INLINE units load_units(u32 from)
{
    units u;
#pragma unroll
    for (int n = 0; n < STEP_K / FOUR_K; n++)
        for (int eight = 0; eight < 2; eight++)
            u.v[n][eight] = load_shared128(own_unit(from, n, eight));
    return u;
}

#if ELEMENT == 4
/* The number of a lane that register e of unit n holds. */
INLINE float number_of(const units &u, int lane, int n, int e)
{
    int at = NARROW ? e / 2 * 2 + lane : lane;
    return __uint_as_float(word_of(u.v[n * (8 / FOUR_K) + (NARROW ? 0 : e / 2)][e % 2], at));
}
#endif

#if X_MIDDLE
/* The word of lane n for register e, in this thread's column s; even columns k of each eight
   come first. */
INLINE u32 load_middle(u32 stage, int n, int e)
{
    int lane = threadIdx.x % 32, group = threadIdx.x / 128;
    int s = threadIdx.x / 32 % 4 * 16 + lane / 4 + e % 2 * 8;
    u32 block = s / BLOCK_S + (HALVES == 2 ? 0 : group * (64 / BLOCK_S));
    u32 from = stage + block * X_BLOCK + ((HALVES == 2 ? group * PER_LOAD : 0) + n) * X_LANE;
    return load_shared32(
        from + swizzled(lane % 4 * 2 + e / 2, s % BLOCK_S / 4) + s % 4 * 4);
}

INLINE units load_units_middle(u32 stage)
{
    units u;
#pragma unroll
    for (int e = 0; e < 4; e++)
        u.v[e / 2][e % 2] = make_uint4(
            load_middle(stage, 0, e), load_middle(stage, 1, e), load_middle(stage, 2, e),
            load_middle(stage, 3, e));
    return u;
}
#endif

INLINE units next_units(const ring *r)
{
    u32 stage = r->stages + r->slot * STAGE;
    flag_wait(r->full + r->slot * 8, r->phase);
#if X_MIDDLE
    return load_units_middle(stage);
#else
    return load_units(stage + own_place());
#endif
}

template <int from> INLINE void rows_of(float *sum, const u32 *a, u64 w, int add)
{
    const int left = TILE_R - from, n = left == 40 ? 40 : wgmma_columns(left);
    wgmma_held<n>(sum + from / 2, a, w + from * 32 / 16, add);
    if constexpr (left > n)
        rows_of<from + n>(sum, a, w, add);
}
