/* Convolutions of windows by tensor cores, in 16 bits: texts/conv_mma.cu. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_CONV_CONV_MMA_H
#define DN_GPU_CONV_CONV_MMA_H

#include "gpu/conv/conv.h"

/* How windows are multiplied: those of `rows` = 1 row at once, in one launch; of longer ones
   tiles of 16 columns, and then the rows, which these leave; by the blocks of a cluster in one
   launch, where these hold all of a window, else in several. */
typedef struct gpu_conv_mma {
    int root;          /* 256 root points are multiplied together */
    int half, pair;    /* of the numbers of signals (texts/conv_window.cuh) */
    int rows, columns; /* a window as a matrix of points */
    int tiled;         /* columns of it, else rows */
    int groups;        /* of arrays that are grouped */
    int short_taps;    /* taps that rows may go through; 0: none */
    int odd;           /* rows begin and end anywhere (texts/conv_mma_odd.cuh) */
    int in_order;      /* and results are stored by way of shared memory */
    conv_plane plane;  /* of which rows are, or none */
    int in_eights;     /* of planes (texts/conv_plane.cuh) */
    int sparse;        /* of a spectrum, whose box is: */
    conv_box box;
    int kept;           /* rows that have frequencies in it */
    int sums;           /* of gradients of filters (texts/conv_mma_sums.cu) */
    int warps, members; /* for so many; of them in a block */
    int cluster;        /* blocks that hold a window; 0: launches do not */
    int near;           /* tables lie in shared memory */
    int ahead;          /* what the next task reads comes there meanwhile */
    int resident;       /* warps of a multiprocessor for which there are registers */
} gpu_conv_mma;

/* The most taps of such a filter: four numbers need only the chunk before them. */
#define GPU_CONV_MOST_SHORT_TAPS 5

/* What launches do (texts/conv_mma.cu). */
typedef enum gpu_conv_mma_part {
    GPU_CONV_PRODUCT, /* of windows, or of rows of a matrix */
    GPU_CONV_PEAKS,
    GPU_CONV_SPLIT, /* its columns */
    GPU_CONV_JOIN,
    GPU_CONV_SUMS_PEAKS, /* of x and dy for sums of a matrix */
    GPU_CONV_SUMS_SPLIT,
    GPU_CONV_SUMS, /* of spectra, for gradients, over windows or rows of a matrix */
    GPU_CONV_MMA_PARTS
} gpu_conv_mma_part;

/* The parts for windows of n points; parts that a plan does not need have root 0. A window that
   fits one launch needs PRODUCT, and SUMS where memory allows. A window of a cluster also needs
   SPLIT. Returns 0 if no parts fit. */
int dn_gpu_conv_mma(
    const gpu_facts *f, int64_t n, int half, int pair,
    gpu_conv_mma m[GPU_CONV_MMA_PARTS]);
int dn_gpu_conv_mma_of(
    const gpu_facts *f, const conv_frame *frame, gpu_conv_mma m[GPU_CONV_MMA_PARTS]);

/* The same for a matrix of 16 r x 256 root points; r = 0: one row. */
int dn_gpu_conv_mma_matrix(
    const gpu_facts *f, int r, int root, int half, int pair,
    gpu_conv_mma m[GPU_CONV_MMA_PARTS]);

/* The same of 16 x 256 root points for a cluster, or one block. */
int dn_gpu_conv_mma_cluster(
    const gpu_facts *f, int root, int half, int pair,
    gpu_conv_mma m[GPU_CONV_MMA_PARTS]);

/* The groups and the spectrum of a frame, for windows as long as its. */
void dn_gpu_conv_mma_fit(const conv_frame *frame, gpu_conv_mma m[GPU_CONV_MMA_PARTS]);

/* True if eight numbers of flat rows of planes, from a multiple of 8 on, lie together. */
int dn_gpu_conv_mma_in_eights(const conv_frame *frame);

/* True if rows can start at any address and their windows cannot be moved to a multiple of
   32 bytes. */
int dn_gpu_conv_mma_is_unaligned(const conv_frame *frame);

/* The number of classes in which the box keeps a frequency. The lowest bits of a frequency
   are its class: there are `count`, a power of two. */
int dn_gpu_conv_mma_kept(const conv_box *box, int count);

/* True if both have the same tables. */
int dn_gpu_conv_mma_same(const gpu_conv_mma *a, const gpu_conv_mma *b);

/* Bytes of all tables of matrices; bytes of those that a launch reads (for columns, which have
   their own turns, those of one direction); and the tables. */
int64_t dn_gpu_conv_mma_bytes(const gpu_conv_mma *m);
int64_t dn_gpu_conv_mma_near(const gpu_conv_mma *m);
void dn_gpu_conv_mma_tables(const gpu_conv_mma *m, void *to);

/* True if the second half of rows of x is zero. Rows of a matrix are whole. */
static inline int dn_gpu_conv_mma_is_half(const gpu_conv_mma *m)
{
    return m->half && !m->pair && (m->rows == 1 || m->tiled);
}

/* True if the first index is done in layers, without matrices (texts/conv_mma_layers.cuh). */
static inline int dn_gpu_conv_mma_in_layers(const gpu_conv_mma *m)
{
    return m->root <= (m->tiled ? 2 : 8);
}

/* Bytes of the spectrum of a filter: of every row its numbers and a scale. */
static inline int64_t dn_gpu_conv_mma_spectrum(const gpu_conv_mma *m)
{
    return m->rows * ((int64_t)m->columns * 4 + 16);
}

/* True if the points of a window are in global memory. */
static inline int dn_gpu_conv_mma_has_points(const gpu_conv_mma *m)
{
    return m->rows > 1 && !m->cluster;
}

/* Bytes of the points of a window, and of the peaks behind the points of all windows. */
static inline int64_t dn_gpu_conv_mma_points(const gpu_conv_mma *m)
{
    return (int64_t)m->kept * m->columns * 4;
}
#define GPU_CONV_PEAKS_BYTES 8 /* of a window */

/* few: as many taps are taken by rows, or 0. */
void dn_gpu_conv_mma_use(
    const gpu_conv_mma *m, gpu_conv_mma_part part, danaus_dtype dtype, int short_taps,
    gpu_use *use);

/* How many members are at work at a time. */
int64_t dn_gpu_conv_mma_places(const gpu_facts *f, const gpu_conv_mma *m);

/* Launches `items` windows, or parts of sums; few: as above. */
gpu_launch dn_gpu_conv_mma_launch(
    const gpu_facts *f, const gpu_conv_mma *m, int short_taps, int64_t items);

#endif
