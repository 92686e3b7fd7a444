/* Stages of dy and then x, which the copy engine of compute capability 9.0 fetches AHEAD
   stages ahead of the products by maps. The including text defines THREADS, STAGES and
   STAGE_BYTES, DEPTH, tile, and load_boxes(stage, flag, x, dy, t, s), by which a thread asks
   for the stage of tile t from column s on. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ks_dw_parts.cuh"
#include "ring.cuh"

#define MAPS , const __grid_constant__ tensor_map x_map,                                \
             const __grid_constant__ tensor_map dy_map

struct queue {
    ring r;
    const tensor_map *x, *dy;
    tile t;
    int column, ahead, steps, read;

    /* By the first warp. */
    MEMBER void load()
    {
        int to = ahead % STAGES, s = column + ahead * DEPTH;
        if (ahead >= steps)
            return;
        flag_wait(r.empty + to * 8, (ahead++ / STAGES & 1) ^ 1);
        if (threadIdx.x > 0)
            return;
        flag_expect(r.full + to * 8, STAGE_BYTES);
        load_boxes(r.stages + to * STAGE_BYTES, r.full + to * 8, x, dy, t, s);
    }

    MEMBER void begin(
        u32 memory, const tensor_map *x_map, const tensor_map *dy_map, tile at, span s)
    {
        u32 flags = (memory + 1023) & ~1023u;
        r = { flags + 1024, flags, flags + STAGES * 8 };
        x = x_map, dy = dy_map, t = at;
        column = (int)s.first, steps = s.steps;
        ahead = read = 0;
        begin_ring(&r, 1, THREADS / 32);
        for (int n = 0; n < AHEAD && threadIdx.x < 32; n++)
            load();
    }

    MEMBER u32 next()
    {
        if (threadIdx.x < 32)
            load();
        u32 stage = r.stages + r.slot * STAGE_BYTES;
        flag_wait(r.full + r.slot * 8, r.phase);
        advance(&r);
        return stage;
    }

    /* The first stage that has not been released. */
    MEMBER void free()
    {
        release(r.empty + read * 8);
        read = read + 1 == STAGES ? 0 : read + 1;
    }
};
