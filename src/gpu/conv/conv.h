/* Transforms of windows on a GPU: which passes blocks of threads do together, their constants,
   and the #defines of texts/conv_*.cu. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_CONV_CONV_H
#define DN_GPU_CONV_CONV_H

#include "device/conv.h"
#include "gpu/gpu.h"

#define GPU_CONV_MOST_PASSES 32
#define GPU_CONV_MOST_LEVELS 2

typedef struct gpu_conv_pass {
    int radix;
    int64_t blocks;    /* of a window, that it splits */
    int64_t constants; /* where its own begin, complex numbers */
} gpu_conv_pass;

/* Passes first, ..., end - 1, between which tiles of a window lie in the shared memory of
   blocks of threads. */
typedef struct gpu_conv_level {
    int first, end;
    int64_t points, columns, tiles; /* of a tile; of the matrix, its own; of a window */
    int team, members; /* threads for a tile; tiles of a block of threads */
} gpu_conv_level;

/* A window of n points: one level, or the columns of a matrix and then its rows. */
typedef struct gpu_conv_shape {
    danaus_dtype sums;
    int circle;  /* points are those mod Z^n - 1, else Z^n - i */
    int complex; /* numbers are, so a window has n of them */
    int pair;    /* a window has two rows of the batch (texts/conv_window.cuh) */
    int scaled;  /* brought to the same size (texts/conv_scales.cuh) */
    int groups;  /* of arrays that are grouped */
    conv_plane plane;
    int sparse; /* of a spectrum, whose box is: */
    conv_box box;
    int rows; /* of conv_mma.cu, whose spectra filters have (texts/conv_lanes.cuh); 0: their own */
    int64_t n, constants;
    int passes, levels;
    gpu_conv_pass pass[GPU_CONV_MOST_PASSES];
    gpu_conv_level level[GPU_CONV_MOST_LEVELS];
} gpu_conv_shape;

/* rows: as in the shape. 0: a window of n points cannot be transformed so. */
int dn_gpu_conv_shape(
    const gpu_facts *f, danaus_dtype sums, int64_t n, int rows, gpu_conv_shape *shape);

/* The same of a frame. */
int dn_gpu_conv_shape_of(
    const gpu_facts *f, const conv_frame *frame, gpu_conv_shape *shape);

/* The constants of all passes, complex numbers of the type of sums. */
void dn_gpu_conv_constants(const gpu_conv_shape *shape, void *to);

/* Bytes of a point. */
static inline int64_t dn_gpu_point(const gpu_conv_shape *s)
{
    return 2 * dn_size_of(s->sums);
}

/* Parts of a window of two levels, each with norms of its own (texts/conv_norms.cu), and the
   bytes of these. */
int64_t dn_gpu_conv_parts(const gpu_conv_shape *s);
int64_t dn_gpu_conv_norms_bytes(const gpu_conv_shape *s);

/* Where a transform loads from and stores to: LOAD and STORE of the texts. */
typedef enum gpu_conv_place {
    GPU_CONV_ROWS,
    GPU_CONV_POINTS,
    GPU_CONV_SPECTRUM,
    GPU_CONV_TAPS,
    GPU_CONV_LANES /* the spectrum in the order of conv_mma.cu */
} gpu_conv_place;

typedef struct gpu_conv_use {
    const char *text;
    int level;
    int is_signal; /* rows are those of signals, else filters in the type of sums */
    gpu_conv_place load, store;
    int forward, inverse;
} gpu_conv_use;

/* half: the second halves of windows of signals are zeros, and are not made. gated: signals may
   have factors, and a second y. */
void dn_gpu_conv_use(
    const gpu_conv_shape *shape, const gpu_conv_use *c, danaus_dtype dtype, int half,
    int gated, gpu_use *use);

/* True if a row is one window as long as the row, and so a circle. Sparse spectra have other
   frequencies. */
static inline int dn_gpu_conv_circle(const conv_frame *f)
{
    return f->fold && !f->sparse;
}

/* Defines KEPT(X) of texts/conv_frequency.cuh, and what texts/conv_plane.cuh knows. */
void dn_gpu_conv_define_kept(const conv_box *box, text *to);
void dn_gpu_conv_define_plane(const conv_plane *l, text *to);

/* The launch of so many tiles. */
gpu_launch dn_gpu_conv_launch(const gpu_conv_shape *shape, int level, int64_t tiles);

/* The launch for the norms of so many windows. */
gpu_launch dn_gpu_conv_norms_launch(const gpu_conv_shape *shape, int64_t windows);

/* True if the second halves of windows are zeros that are not stored, or are folded. */
static inline int dn_gpu_conv_half(const conv_frame *f)
{
    int is_one = f->windows == 1 && !f->periodic;
    return f->fold || (f->parts == 1 && is_one && f->length <= f->cut.n);
}

/* Members of a conv_backend (device/conv.h). */
int dn_gpu_conv_terms(
    const danaus_device *dev, const conv_kernel *k, conv_term to[CONV_MOST_TERMS]);
int dn_gpu_conv_work(
    const danaus_device *dev, const conv_frame *f, int64_t rows, conv_work *work);

/* A thread for each of so many numbers. */
gpu_launch dn_gpu_conv_each(int64_t count);

#endif
