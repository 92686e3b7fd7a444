/* The kernel of texts with the tiles of ks_mma_tiles.cuh. A block of threads stays on its
   multiprocessor and computes tile after tile, and copies run STAGES - 1 steps ahead, over the
   borders of tiles. The including text defines THREADS; STAGE, the bytes of a stage; sums;
   place; and

       source   what a thread copies of a tile: source_of() returns it, load_step() copies a step;
       reader   where a warp finds numbers of tile number n: reader_of() returns it, tile_of() the
                tile; begin() starts sums, with the bias unless it is NULL, while copies run;
                multiply() adds the products of a stage;
       out_of() where a warp's results are before write_y() stores them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ks_mma_tiles.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    ks(const element *x, const u8 *w, const float *bias, const element *residual,
       element *y, i64 batch, int)
{
    extern __shared__ u8 memory[];
    u32 stages = (shared_address(memory) + 127) & ~127u;
    place p = place_of_warp();
    u32 out = out_of(stages + STAGES * STAGE, p);
    u32 tiles = tiles_of(batch) * (BLOCKS * LANE_TILES * ROW_TILES);
    if (blockIdx.x >= tiles)
        return;
    source from = source_of(x, w, tile_at(blockIdx.x, batch), batch);
    u32 ahead = blockIdx.x, current = blockIdx.x;
    reader read = reader_of(x, current, p, batch);
    int ahead_step = 0, slot = 0, step = 0;
    auto load = [&](int to) {
        if (ahead < tiles) {
            load_step(stages + to * STAGE, &from, x, ahead_step, batch);
            if (++ahead_step == STEPS) {
                ahead_step = 0;
                ahead += gridDim.x;
                from = source_of(x, w, tile_at(ahead, batch), batch);
            }
        }
        copy_commit();
    };
    for (int s = 0; s < STAGES - 1; s++)
        load(s);

    sums sum;
    while (current < tiles) {
        if (step == 0)
            begin(sum, bias, tile_of(read, current, batch), p);
        copy_wait<STAGES - 2>();
        __syncthreads();
        load(slot ? slot - 1 : STAGES - 1);
        multiply(sum, stages + slot * STAGE, step, read, p);
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        if (++step < STEPS)
            continue;
        step = 0;
        write_y(out, sum, residual, y, tile_of(read, current, batch), p, batch);
        current += gridDim.x;
        read = reader_of(x, current, p, batch);
    }
}
