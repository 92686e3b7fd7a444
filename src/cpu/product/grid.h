/* One product with one factor, cut into a grid of parts for threads. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_PRODUCT_GRID_H
#define DN_CPU_PRODUCT_GRID_H

#include "cpu/cpu.h"
#include "base/mem.h"

#include <stdatomic.h>

/* Columns of scratch are a multiple of the longest vector of any type. */
#define COLUMNS_UNIT 16

/* Parts are dealt to so many homes at most; a thread begins with those of its own. */
#define MOST_HOMES 64

typedef struct grid {
    cpu_part all; /* what the parts are cut from */
    const cpu_code *code;
    int columns, blocks, lanes, tiles; /* parts in each direction */
    int whole_blocks; /* all columns of a block before the next one's */
    int64_t s_unit, i_unit, j_unit, t_unit; /* a cut is a multiple of these */
    int64_t s_chunk;                        /* columns that a part should have, about */
    char *scratch;
    size_t slot_bytes;
    int is_short; /* too little work to wake a thread */
    int homes;
    atomic_int taken[MOST_HOMES]; /* parts of each home */
} grid;

static inline const cpu_code *dn_code_of(const ks_step *step)
{
    return step->kernel->code;
}

/* How the step's kernel stages n columns from x to y; data is not looked at. The scratch
   for n columns is enough for fewer. */
cpu_shape dn_shape(
    const cpu_device *d, const ks_step *step, const cpu_view *x, const cpu_view *y,
    int64_t n);

/* The same for thin products (thin.c), which no cache's size changes. */
cpu_shape dn_thin_shape(
    const ks_step *step, const cpu_view *x, const cpu_view *y, int64_t n);

/* True if y is aligned and too large to stay in the cache. */
int dn_can_stream(const cpu_view *y, int64_t rows, int64_t n, size_t cache);

/* Cuts y = K x + bias over n columns; bias may be NULL. */
void dn_grid_open(
    grid *g, const cpu_device *d, const ks_step *step, const void *packed,
    const void *bias, cpu_view x, cpu_view y, int64_t n);

/* Makes all parts; scratch: slot_bytes for each thread of the device. */
void dn_grid_run(cpu_device *d, grid *g, void *scratch);

#endif
