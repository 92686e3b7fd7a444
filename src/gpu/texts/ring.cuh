/* Stages of shared memory that are filled and read in turn. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ptx.cuh"

/* A ring of stages with flags: bytes have come, everybody has read them. */
typedef struct ring {
    u32 stages, full, empty;
    int slot;
    u32 phase;
} ring;

INLINE void advance(ring *r)
{
    if (++r->slot == STAGES)
        r->slot = 0, r->phase ^= 1;
}
