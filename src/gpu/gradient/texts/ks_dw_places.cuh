/* Groups of four warps, MAKERS threads, multiply operands A and B (ks_dw_tiles.cuh); four more
   warps, COPIERS, fetch stages of both and make an operand of B in one of PLACES. The including
   text defines STAGE_BYTES, A_BYTES, where B begins in a stage, and make_place(stage, places, n),
   which makes B of the n-th stage. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ks_dw_parts.cuh"
#include "ring.cuh"

/* Flags: a stage, or a place, is there; a place has been read. */
#define STAGE_FLAG(n) (flags + (n) % STAGES * 8)
#define PLACE_FLAG(n) (flags + 64 + (n) % PLACES * 8)
#define FREE_FLAG(n)  (flags + 128 + (n) % PLACES * 8)

INLINE void begin_places(u32 flags)
{
    if (threadIdx.x == 0) {
        begin_flags(STAGE_FLAG(0), STAGES, 1);
        begin_flags(PLACE_FLAG(0), PLACES, COPIERS);
        begin_flags(FREE_FLAG(0), PLACES, MAKERS / 32);
        flag_publish();
    }
    __syncthreads();
}

#if FLAT
  #define MAPS , const __grid_constant__ tensor_map x_map,                              \
               const __grid_constant__ tensor_map dy_map

/* Stages that the copy engine fetches, of all lanes of some rows. */
struct queue {
    u32 flags, stages;
    const tensor_map *map_a, *map_b;
    int line_a, line_b, s, steps;

    MEMBER void load(int n)
    {
        u32 stage = stages + n % STAGES * STAGE_BYTES;
        if (n >= steps || COPIER > 0)
            return;
        flag_expect(STAGE_FLAG(n), STAGE_BYTES);
        bulk_load_3(stage, map_a, STAGE_FLAG(n), 0, s + n * DEPTH, line_a);
        bulk_load_3(stage + A_BYTES, map_b, STAGE_FLAG(n), 0, s + n * DEPTH, line_b);
    }

    MEMBER void wait(int n) { flag_wait(STAGE_FLAG(n), n / STAGES & 1); }
};
#endif

/* Fetches stages ahead and makes B of them. A stage is free when the place that was made
   of it is: B has been read then, and A. */
template <class stages> INLINE void help(stages q, u32 places)
{
    u32 flags = q.flags;
    for (int n = 0; n < STAGES - PLACES; n++)
        q.load(n);
#pragma unroll 1
    for (int n = 0; n < q.steps; n++) {
        flag_wait(FREE_FLAG(n), (n / PLACES & 1) ^ 1);
        q.load(n + STAGES - PLACES);
        q.wait(n);
        make_place(q.stages + n % STAGES * STAGE_BYTES, places, n);
        fence_async();
        flag_arrive(PLACE_FLAG(n));
    }
}
