/* One product with one factor, cut into a grid of parts for threads. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_PRODUCT_GRID_H
#define DN_CPU_PRODUCT_GRID_H

#include "cpu/cpu.h"
#include "base/mem.h"

/* Columns of scratch are a multiple of the longest vector of any type. */
#define COLUMNS_UNIT 16

/* Parts for each thread, so that an interrupted one is not waited for. */
#define PARTS_PER_THREAD 6
/* Tiles of columns that are staged at a time, at most. */
#define MOST_TILES 5
/* Bytes of runs of y that threads should not share lines of memory for: to and fro between
   two cores a line takes 0.1 to 0.4 microseconds. */
#define SHARED_RUN 1024

static inline const cpu_code *dn_code_of(const ks_step *step)
{
    return step->kernel->code;
}

/* x or y of a whole product with a step that begins or ends there. A single column by itself is
   the same in both layouts. ld: as in ks_operands. */
cpu_view dn_outside(
    const ks_step *step, const void *data, int64_t rows, int64_t n, int64_t ld);

/* Columns from s on. */
cpu_view dn_columns_from(cpu_view v, int64_t s);

/* How the step's kernel stages n columns from x to y; data is not looked at. The scratch
   for n columns is enough for fewer. */
void dn_shape(
    const cpu_device *d, const ks_step *step, const cpu_view *x, const cpu_view *y,
    int64_t n, cpu_shape *to);

/* The same for thin products (thin.c), which no cache's size changes. */
void dn_thin_shape(
    const ks_step *step, const cpu_view *x, const cpu_view *y, int64_t n,
    cpu_shape *to);

/* The same for products of 8-bit numbers (int8.c). */
void dn_int8_shape(
    const cpu_device *d, const ks_step *step, const cpu_view *x, const cpu_view *y,
    int64_t n, cpu_shape *to);

/* Scratch of a thread that computes parts of this shape. */
static inline size_t dn_stage_bytes(const cpu_shape *shape)
{
    return shape->x_bytes + shape->y_bytes;
}

/* Threads share the blocks of batch-first vectors, the same number each. Blocks are long runs
   in memory, and all threads share a narrow last chunk of columns. */
static inline int dn_owns_blocks(danaus_pattern p, int64_t cell, int threads)
{
    return p.a % threads == 0 &&
           p.a / threads * MIN(p.b, p.c) * p.d * cell >= SHARED_RUN;
}

/* True if y is aligned and too large to stay in the cache. */
int dn_can_stream(const cpu_view *y, int64_t rows, int64_t n, size_t cache);

/* All of y = K x over n columns, as one part that still lacks scratch. The shape stays the
   caller's. */
void dn_whole(
    const cpu_device *d, const ks_step *step, const cpu_shape *shape,
    const void *packed, const cpu_view *x, const cpu_view *y, int64_t n, cpu_part *to);

/* Cuts it into parts for the device's threads and computes them; scratch: dn_stage_bytes()
   for each thread. */
void dn_run_parts(cpu_device *d, cpu_part *all, void *scratch);

#endif
