/* Stages of dy and then x, which the copy engine of compute capability 9.0 fetches AHEAD
   stages ahead of the products by maps. The including text defines THREADS, STAGES and
   STAGE_BYTES, DEPTH, tile, and load_boxes(stage, flag, x, dy, t, s), by which a thread asks
   for the stage of tile t from column s on. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ks_dw_parts.cuh"

#define MAPS , const __grid_constant__ tensor_map x_map,                                \
             const __grid_constant__ tensor_map dy_map

struct queue {
    u32 stages, full, empty; /* flags of a stage: it is there; all warps have read it */
    const tensor_map *x, *dy;
    tile t;
    int column, ahead, steps, slot, phase, read;

    /* By the first warp. */
    MEMBER void load()
    {
        int to = ahead % STAGES, s = column + ahead * DEPTH;
        if (ahead >= steps)
            return;
        flag_wait(empty + to * 8, (ahead++ / STAGES & 1) ^ 1);
        if (threadIdx.x > 0)
            return;
        flag_expect(full + to * 8, STAGE_BYTES);
        load_boxes(stages + to * STAGE_BYTES, full + to * 8, x, dy, t, s);
    }

    MEMBER void begin(
        u32 memory, const tensor_map *x_map, const tensor_map *dy_map, tile at, span s)
    {
        full = (memory + 1023) & ~1023u, empty = full + STAGES * 8;
        stages = full + 1024;
        x = x_map, dy = dy_map, t = at;
        column = (int)s.first, steps = s.steps;
        ahead = slot = phase = read = 0;
        if (threadIdx.x == 0) {
            for (int n = 0; n < STAGES; n++) {
                flag_init(full + n * 8, 1);
                flag_init(empty + n * 8, THREADS / 32);
            }
            flag_publish();
        }
        __syncthreads();
        for (int n = 0; n < AHEAD && threadIdx.x < 32; n++)
            load();
    }

    MEMBER u32 next()
    {
        if (threadIdx.x < 32)
            load();
        u32 stage = stages + slot * STAGE_BYTES;
        flag_wait(full + slot * 8, phase);
        phase ^= slot + 1 == STAGES;
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        return stage;
    }

    /* The first stage that has not been released. */
    MEMBER void release()
    {
        sync_warp();
        if (threadIdx.x % 32 == 0)
            flag_arrive(empty + read * 8);
        read = read + 1 == STAGES ? 0 : read + 1;
    }
};
