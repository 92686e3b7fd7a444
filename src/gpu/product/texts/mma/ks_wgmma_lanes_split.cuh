/* Products of f32 for ks_wgmma_lanes.cu: x and w are sums of two tf32 numbers, and the product of
   the small ones is left out. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ks_wgmma_lanes_operands.cuh"

/* The left operands of a lane: x rounded to tf32, and the rest. */
typedef struct operand {
    u32 high[UNITS][4], rest[UNITS][4];
} operand;

/* Made here, not between products. */
INLINE operand operand_of_lane(const units &u, int lane)
{
    operand x;
#pragma unroll
    for (int n = 0; n < UNITS; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float v = number_of(u, lane, n, e);
            x.high[n][e] = near_tf32(v);
            x.rest[n][e] = __float_as_uint(v - __uint_as_float(x.high[n][e]));
            asm volatile("" : "+r"(x.high[n][e]), "+r"(x.rest[n][e]));
        }
    return x;
}

/* part = the products of a lane, the small ones first: tensor cores cut where f32 rounds. */
INLINE void multiply_lane(float *part, const operand &x, u64 w)
{
    const u64 rest = W_UNIT / 16;
#pragma unroll
    for (int pass = 0; pass < 3; pass++)
#pragma unroll
        for (int n = 0; n < UNITS; n++)
            rows_of<0>(
                part, pass == 0 ? x.rest[n] : x.high[n], w + (n * 2 + (pass == 1)) * rest,
                pass + n > 0);
}

/* The groups ask for products in turn, so that they do not add at the same time. */
#define TURN_BARRIER(group) (3 + (group))

INLINE void begin_turns()
{
    if (threadIdx.x / 128 == 1)
        barrier_arrive(TURN_BARRIER(0), 128 * GROUPS);
}

/* While a lane is multiplied, the operands of the next are made. */
INLINE void multiply_tile(float sum[PER_LOAD][TILE_R / 2], ring *r)
{
    operand x[2];
    clear<PER_LOAD * TILE_R / 2>(sum[0]);
    units u = next_units(r);
    x[0] = operand_of_lane(u, 0);
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
        int slot = r->slot;
        u64 w = wgmma_pieces(r->stages + slot * STAGE + own_weights());
        advance(r);
#pragma unroll
        for (int lane = 0; lane < PER_LOAD; lane++) {
            float part[TILE_R / 2];
            barrier(TURN_BARRIER(threadIdx.x / 128), 128 * GROUPS);
            wgmma_fence();
            multiply_lane(part, x[lane % 2], w + lane * (W_LANE / 16));
            wgmma_commit();
            barrier_arrive(TURN_BARRIER(1 - threadIdx.x / 128), 128 * GROUPS);
            if (lane + 1 == PER_LOAD && step + 1 < STEPS)
                u = next_units(r);
            x[1 - lane % 2] = operand_of_lane(u, (lane + 1) % PER_LOAD);
            wgmma_wait<0>();
            if (lane + 1 == PER_LOAD)
                release<CLUSTER>(r->empty + slot * 8);
            add<TILE_R / 2>(sum[lane], part);
        }
    }
}
