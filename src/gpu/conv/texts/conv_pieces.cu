/* Copies a list of pieces of sequences from a table, which a graph keeps, to memory.
   gpu/run/conv/pieces.c fills the table. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 128
#include "simt.h"

#include "conv_pieces.cuh"

typedef struct jobs {
    piece *to;
    int64 count;
    piece of[84];
    int64 unused[2];
} jobs;

KERNEL conv(TABLE(jobs) t)
{
    if (THREAD < WHOLE(t)->count)
        WHOLE(t)->to[THREAD] = WHOLE(t)->of[THREAD];
}
