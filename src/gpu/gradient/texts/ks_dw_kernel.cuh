/* The kernel of texts that prepare B in places (ks_dw_places.cuh), PLACES_BYTES in all. The
   including text defines sums, make(), which the multiplying groups call, and store_sums(). */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ks_dw_places.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    dw(const element *x, const element *dy, float *part, i64 batch, i64 slab, int add MAPS)
{
    extern __shared__ u8 memory[];
    u32 flags = (shared_address(memory) + 1023) & ~1023u;
    u32 places = flags + 1024, stages = places + PLACES_BYTES;
    tile p = tile_at(blockIdx.x % TILES);
    span s = span_of(batch, blockIdx.x / TILES, slab, DEPTH);
    begin_places(flags);
    if (threadIdx.x >= MAKERS) {
        registers_drop<56>();
#if FLAT
        const int segment = 128 / ELEMENT;
        help(
            queue{ flags, stages, SWAPPED ? &x_map : &dy_map, SWAPPED ? &dy_map : &x_map,
                   (p.i * SIZE_A + p.a) * LANES / segment,
                   (p.i * SIZE_B + p.b) * LANES / segment, (int)s.first, s.steps },
            places);
#else
        queue q = { flags, stages };
        q.steps = s.steps;
        q.a.begin(SWAPPED ? x : dy, p.i, p.j, p.a, s.first, s.end, batch);
        q.b.begin(SWAPPED ? dy : x, p.i, p.j, p.b, s.first, s.end, batch);
        q.a.clear(stages, STAGE_BYTES);
        q.b.clear(stages + A_BYTES, STAGE_BYTES);
        help(q, places);
#endif
    } else {
        registers_take<GROUPS == 3 ? 152 : GROUPS == 2 ? 224 : 200>();
        sums sum;
        make(flags, stages, places, sum, s.steps);
        part += blockIdx.x / TILES * ((i64)BLOCKS * ROWS * COLS * LANES);
        store_sums(part, sum, p.i, p.j, p.a, p.b, add);
    }
}
