/* The work of windows on a GPU (docs/conv.md (8)), measured by limits of the device: operations
   of vector units, numbers through shared memory, bytes of memory. Constants are built in from
   the device's facts. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/conv/conv.h"

#include "gpu/conv/conv_mma.h"
#include "gpu/rows.h"

#include <math.h>

enum { OPERATIONS, SHARED, MEMORY, TERMS };

/* What of a roof is reached where the three are in turn. */
#define REACHED 0.6

int dn_gpu_conv_terms(
    const danaus_device *dev, const conv_kernel *k, conv_term to[CONV_MOST_TERMS])
{
    const gpu_facts *f = dn_gpu_facts(dev);
    double units = f->units * f->clock * REACHED;
    int wide = dn_conv_point_type(k->dtype) == DANAUS_F64;
    to[OPERATIONS] = (conv_term){ "operations", TUNING_GAMMA, 2,
                                  (wide ? 2 : 1) / (f->cores * units) };
    to[SHARED] = (conv_term){ "shared memory", TUNING_OMEGA, 2, 1 / (128 * units) };
    to[MEMORY] = (conv_term){ "memory", TUNING_OMEGA, 4, 1 / (f->bandwidth * REACHED) };
    return TERMS;
}

/* Multiply-adds for a point in a pass of this radix and back: three and four in each layer
   of radix 2; the R points of an odd radix R have (R - 1)^2 for sums times constants, 4 (R - 1)
   for turns and 5 (R - 1) for sums of two, both ways. */
#define LAYER_OPERATIONS 7.0

static double operations_of(int radix)
{
    int rest = radix - 1, layers = 0;
    for (int r = radix; r > 1; r /= 2)
        layers++;
    return radix % 2 ? 2.0 * (rest * rest + 9 * rest) / radix
                     : LAYER_OPERATIONS * layers;
}

/* Bytes of a row that pass through memory: u, whose windows overlap, and y. */
static double row_bytes(const conv_frame *f)
{
    int64_t read = f->windows > 1 ? dn_conv_room(f, f->cut.n) * f->windows : f->length;
    return (double)(read + f->length) * (double)dn_size_of(f->cut.kernel->dtype);
}

/* The share of `count` least parts of frequencies that a spectrum has. */
static double share_of(const gpu_conv_mma *m, int count)
{
    return m->sparse ? dn_gpu_conv_mma_kept(&m->box, count) / (double)count : 1;
}

/* Operations for a point of layers, and of rows without such a factor: about 40 for each chain
   of R points, by the times of powers of two; and what a layer of odd radix has more than
   layers of radix 2 would. */
static double layer_operations(const gpu_conv_mma *m)
{
    int odd = m->root;
    while (odd % 2 == 0)
        odd /= 2;
    return 40.0 / m->root + operations_of(odd) - LAYER_OPERATIONS * log2(odd);
}

/* Operations for a point where the first factor is multiplied: a warp takes 16 columns, and of
   these each tile of 16 rows, filled up, times all others; or of layers. */
static double first_operations(const gpu_conv_mma *m)
{
    double tiles = (double)CEIL_DIV(2 * m->root, 16);
    double all = dn_gpu_conv_mma_in_layers(m) ? layer_operations(m)
                                              : 8 * tiles / m->root * (20 + 5 * tiles);
    return m->half && !m->pair ? 0.75 * all : all;
}

/* Warps of a window that have a block less than others wait for these; where the first factor
   is a product, the fit has this in it. */
static double waiting_for_blocks(const gpu_conv_mma *m)
{
    int is_even = m->tiled || !dn_gpu_conv_mma_in_layers(m);
    return is_even ? 1 : (double)ROUND_UP(m->root, m->warps) / m->root;
}

/* Operations that place each number of a plane, or eight at once. */
static double plane_operations(const conv_frame *f)
{
    return !f->plane.height ? 0 : dn_gpu_conv_mma_in_eights(f) ? 20 : 200;
}

/* Operations that read and store rows. Pairs need none, windows with a half of zeros some, and
   other windows more, because they use only a part of their results. Rows at any address are
   moved. If windows are at any address too, results are stored through shared memory, with
   about as many instructions, or number by number. */
static double row_operations(const gpu_conv_mma *m, const conv_frame *f)
{
    double all = m->pair ? 0 : m->half ? 15 : 50;
    if (dn_gpu_conv_mma_is_unaligned(f))
        all += m->in_order ? 4 : 30;
    return all + (m->odd ? 15 : 0) + plane_operations(f);
}

/* How much longer than their work windows take if their steps wait for each other; and those
   of planes whose first factor is in layers, as all places do not find registers beside points:
   measured on 9.0 (docs/notes/conv-tensor-cores.md). */
#define WAITING 1.35

static double waiting(const gpu_conv_mma *m)
{
    if (m->plane.height && m->rows == 1 && dn_gpu_conv_mma_in_layers(m))
        return 1 + 0.35 * m->root;
    return m->cluster ? WAITING : 1;
}

/* Windows by tensor cores: instructions of all kinds, as operations, by the fit of
   docs/notes/conv-tensor-cores.md; a matrix also has those of its columns. Rows of a matrix and
   blocks that sparse spectra leave out do not count. */
static int mma_work(const gpu_facts *facts, const conv_frame *f, conv_work *work)
{
    gpu_conv_mma m[GPU_CONV_MMA_PARTS], *columns = &m[GPU_CONV_SPLIT];
    if (!dn_gpu_conv_mma_of(facts, f, m))
        return 0;
    double n = (double)(f->cut.n * f->windows) / (m->pair ? 2 : 1);
    double rows = share_of(m, m->rows), blocks = share_of(m, m->rows * m->root);
    *work = (conv_work){ .idle = waiting(m) };
    work->amount[OPERATIONS] = n * (row_operations(m, f) + rows * first_operations(m));
    work->amount[SHARED] =
        n * (6 + 6 * blocks * waiting_for_blocks(m) + (m->in_order ? 6 : 0));
    work->amount[MEMORY] = row_bytes(f);
    if (!columns->root)
        return 1;
    work->amount[OPERATIONS] += n * 20 * share_of(m, columns->root);
    work->amount[SHARED] += n * 16;
    if (!dn_gpu_conv_mma_has_points(m))
        return 1;
    work->amount[OPERATIONS] += n * first_operations(columns);
    work->amount[MEMORY] += 16 * n * rows;
    return 1;
}

/* Operations of vector units that find the place of each number, in rows that repeat or do not
   fill their window. A point of half a window has one number to read and one to store, a point
   of a whole window two and two. Of several windows only the ends are cut where they are read,
   so a point counts two. */
static double ragged_operations(const conv_frame *f)
{
    int is_one = f->windows == 1 && !f->periodic;
    int fills = is_one && f->length == f->cut.n && !f->packed;
    int is_whole = f->periodic || (is_one && !dn_gpu_conv_half(f));
    return dn_gpu_conv_circle(f) || fills ? 0 : 55 * (is_whole ? 4 : 2);
}

/* Rows that are paired in two levels: a launch before them reads each row and adds up squares.
   The windows then find half of the rows in the second cache. */
static void add_norms(const conv_frame *f, double points, conv_work *work)
{
    int64_t bytes = f->length * dn_size_of(f->cut.kernel->dtype);
    work->amount[OPERATIONS] += 2 * points;
    work->amount[MEMORY] += (double)bytes / 2;
}

int dn_gpu_conv_work(
    const danaus_device *dev, const conv_frame *f, int64_t rows, conv_work *work)
{
    gpu_conv_shape s;
    (void)rows;
    if (!dn_gpu_conv_shape_of(dn_gpu_facts(dev), f, &s))
        return 0;
    if (f->cut.kernel->fast) /* whose filters are transformed like others */
        return mma_work(dn_gpu_facts(dev), f, work);
    double n = (double)(s.n * f->windows) / (s.pair ? 2 : 1);
    double point = (double)dn_gpu_point(&s);
    double columns = (double)s.level[0].columns;
    *work = (conv_work){ .idle = 1 };
    work->amount[OPERATIONS] = n * ragged_operations(f);
    for (int i = 0; i < s.passes; i++)
        work->amount[OPERATIONS] += n * operations_of(s.pass[i].radix);
    work->amount[SHARED] = 4 * n * point * (s.passes - s.levels);
    work->amount[MEMORY] = row_bytes(f);
    /* Measured times are as if half of the numbers between levels stayed on chip. */
    if (s.levels > 1)
        work->amount[MEMORY] += 2 * n * point * MAX(1, 16 / columns);
    if (s.levels > 1 && s.scaled)
        add_norms(f, n, work);
    return 1;
}
