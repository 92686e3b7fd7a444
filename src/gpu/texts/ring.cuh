/* Stages of shared memory that are filled and read in turn, STAGES of them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ptx.cuh"

/* Two flags of a stage: its bytes have come, and all warps that read it have done so. */
typedef struct ring {
    u32 stages, full, empty;
    int slot;
    u32 phase;
} ring;

/* By one thread, before flag_publish(). */
INLINE void begin_flags(u32 flags, int count, u32 arrivals)
{
    for (int n = 0; n < count; n++)
        flag_init(flags + n * 8, arrivals);
}

/* By all threads of the block. So many arrivals fill a stage, so many warps read it. */
INLINE void begin_ring(const ring *r, u32 arrivals, u32 warps)
{
    if (threadIdx.x == 0) {
        begin_flags(r->full, STAGES, arrivals);
        begin_flags(r->empty, STAGES, warps);
        flag_publish();
    }
    __syncthreads();
}

INLINE void advance(ring *r)
{
    if (++r->slot == STAGES)
        r->slot = 0, r->phase ^= 1;
}

/* Tells every block of a cluster that all threads of this warp have read what a flag is for:
   no thread may answer for other warps, which can be behind. */
template <int blocks = 1> INLINE void release(u32 flag)
{
    u32 thread = threadIdx.x % 32;
    sync_warp();
    if (thread < blocks)
        flag_arrive(blocks > 1 ? in_block(flag, thread) : flag);
}
