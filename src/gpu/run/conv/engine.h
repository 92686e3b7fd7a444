/* Convolutions on GPUs: what engine, products and sums share. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_RUN_CONV_ENGINE_H
#define DN_GPU_RUN_CONV_ENGINE_H

#include "conv/frame.h"

#include "gpu/conv/conv.h"
#include "gpu/conv/conv_mma.h"
#include "gpu/run/run.h"

/* The functions that are compiled for a plan. Windows of one level have no splits and joins. */
typedef enum gpu_conv_function {
    CONV_ADD,
    CONV_PACKED,
    CONV_LEVEL, /* spectra of filters to one scale */
    CONV_NORMS, /* of rows that are brought to the same size */
    CONV_SPLIT, /* rows to points */
    CONV_PRODUCT,
    CONV_JOIN,         /* points to rows */
    CONV_FILTER_SPLIT, /* taps to points */
    CONV_FILTER,       /* to the spectrum */
    CONV_SUMS,
    CONV_BACK,                 /* from it */
    CONV_FILTER_JOIN,          /* points to taps */
    CONV_GATED,                /* those of signals above, with factors or a second y */
    CONV_MMA = 2 * CONV_GATED, /* parts by tensor cores */
    CONV_SHORT =
        CONV_MMA + GPU_CONV_MMA_PARTS, /* those whose rows go through few taps */
    CONV_FUNCTIONS = CONV_SHORT + GPU_CONV_MMA_PARTS
} gpu_conv_function;

typedef struct gpu_conv_engine {
    conv_engine base;
    conv_problem p;
    conv_frame frame;
    gpu_conv_shape shape;
    gpu_shared *gpu;
    gpu_conv_mma mma[GPU_CONV_MMA_PARTS]; /* root 0: products are not by tensor cores */
    const void *constants;                /* in its memory, which keeps them */
    const void *matrices[GPU_CONV_MMA_PARTS]; /* likewise, of `mma` */
    gpu_function function[CONV_FUNCTIONS];
} gpu_conv_engine;

/* Shifts of what is grouped (device/conv.h) to the flags of rows: of x, of y or dy
   (texts/conv_window.cuh). */
enum { GROUPED_X = 3, GROUPED_Y = 5 };
enum { CONV_LOWER = 512 }; /* LOWER of texts/conv_window.cuh */

/* What flags of rows have for factors of x that are conjugated, and for y or dy and theirs. */
static inline int dn_gpu_conv_conjugates(const gpu_conv_engine *e, int x, int y)
{
    enum { CONJUGATE_X = 1024, CONJUGATE_Y = 2048 };
    int of_x = x & CONV_CONJUGATE_FACTOR ? CONJUGATE_X : 0;
    return e->shape.complex ? of_x | y * CONJUGATE_Y : 0;
}

/* Operands of a transform (texts/conv_transform.cu). */
typedef struct gpu_conv_rows {
    int64_t length, batch, channels, windows, step, lead, before, after;
    const void *packed; /* windows, or NULL */
    int flags;
} gpu_conv_rows;

typedef struct gpu_conv_transform {
    gpu_conv_rows rows;
    const void *x, *x_factor;
    void *y[CONV_MOST_SINKS];
    const void *y_factor[CONV_MOST_SINKS];
    void *points, *spectrum;
    void *norms;            /* of pairs of two levels */
    const conv_short *taps; /* or NULL */
    int64_t first, items;   /* windows */
    int64_t share;          /* channels of a filter */
} gpu_conv_transform;

/* The uses that a plan for rows of this type compiles, and their number. half: the second
   halves of windows are zeros or folded. mma: products by tensor cores, with root 0 if there
   are none. */
int dn_gpu_conv_uses(
    const gpu_conv_shape *s, const gpu_conv_mma mma[GPU_CONV_MMA_PARTS],
    danaus_dtype dtype, int half, gpu_use uses[CONV_FUNCTIONS]);

/* The constants of windows, which are made where they are not there yet. */
danaus_status dn_gpu_conv_keep_constants(
    gpu_device *d, const gpu_conv_shape *s, const void **constants);

/* The matrices of products by tensor cores, if there are any, likewise. */
danaus_status dn_gpu_conv_keep_matrices(
    gpu_device *d, const gpu_conv_mma *m, const void **matrices);

/* Rows of signals, or packed windows, which lie on the device. */
gpu_conv_rows dn_gpu_conv_rows(
    const gpu_conv_engine *e, const conv_job *job, int adjoint);

danaus_status dn_gpu_conv_transform(
    gpu_device *d, const gpu_conv_engine *e, gpu_conv_function which,
    const gpu_conv_transform *t);

/* The function that does so; gated: rows have factors, or there is a second y. */
static inline gpu_function dn_gpu_conv_find(
    const gpu_conv_engine *e, gpu_conv_function which, int is_gated)
{
    int has_gated = is_gated && which < CONV_GATED;
    gpu_function gated = has_gated ? e->function[CONV_GATED + which] : NULL;
    return gated ? gated : e->function[which];
}

/* A launch with a thread for each of `count` numbers. */
danaus_status dn_gpu_conv_run_each(
    gpu_device *d, const gpu_conv_engine *e, gpu_conv_function which, int64_t count,
    const gpu_argument *arguments);

/* Sums, and points, at once take this part of the device's memory: of 80 GB 160 MB. */
#define CONV_MEMORY_SHARE 512

/* The taps of windows of filters (texts/conv_taps.cuh). Periodic: taps share lags, so rows that
   repeat are not if they are as long as their filters. */
typedef struct gpu_conv_taps {
    int64_t count, length, positive, negative;
    int is_periodic;
} gpu_conv_taps;

gpu_conv_taps dn_gpu_conv_taps(const conv_frame *f);

/* How many windows of so many bytes lie as points in scratch at once: by tensor cores what nearly
   stays in the second cache, else so many that the ends of launches take little of their time. */
int64_t dn_gpu_conv_group(const gpu_conv_engine *e, int64_t bytes, int64_t items);

/* Windows of a channel; a window of circles is a pair of rows. */
int64_t dn_gpu_conv_each_channel(const gpu_conv_engine *e, const conv_job *job);

/* Bytes of the norms of a window, of those that have them. */
static inline int64_t dn_gpu_conv_norms(const gpu_conv_engine *e)
{
    return e->shape.scaled && e->shape.levels > 1 ? dn_gpu_conv_norms_bytes(&e->shape)
                                                  : 0;
}

static inline int64_t dn_gpu_conv_window(
    const gpu_conv_engine *e) /* bytes of its points */
{
    return e->shape.n * dn_gpu_point(&e->shape);
}

/* Members of a conv_backend (device/conv.h). */
danaus_status dn_gpu_conv_run(danaus_device *dev, int count, const conv_call *calls);
size_t dn_gpu_conv_scratch_bytes(danaus_device *dev, int count, const conv_call *calls);
danaus_status dn_gpu_conv_prepare(
    danaus_device *dev, int count, const conv_frame *const *frames);

/* Enqueues that packed windows of the host come to the device, by the function of conv_packed.cu.
   They may go at once. */
danaus_status dn_gpu_conv_put_packed(
    gpu_device *d, gpu_function function, const packed_window *windows, int64_t count,
    void *to);

/* The sums of a job, in scratch; how much of that they need. */
size_t dn_gpu_conv_sums_bytes(const gpu_conv_engine *e, const conv_job *job);
danaus_status dn_gpu_conv_sums(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, char *scratch);

/* Filters to the spectra of a plan, in scratch (filters.c); how much of that they need. */
size_t dn_gpu_conv_filter_bytes(const gpu_conv_engine *e);
danaus_status dn_gpu_conv_transform_filters(
    gpu_device *d, const gpu_conv_engine *e, const conv_filters *filters,
    char *spectrum);

/* Spectra of gradients, of `filters` filters from `first` on, to the taps of `f`. points: room for
   their windows, if these have two levels. */
danaus_status dn_gpu_conv_take_filters(
    gpu_device *d, const gpu_conv_engine *e, const conv_filter_sums *f, int64_t first,
    int64_t filters, const void *spectra, void *points);

/* Streams: conv_stream.c. */
danaus_status dn_gpu_stream_create(
    danaus_device *dev, const stream_shape *shape, const void *k,
    stream_engine **stream);
void dn_gpu_stream_destroy(stream_engine *stream);
void dn_gpu_stream_reset(stream_engine *stream);
danaus_status dn_gpu_stream_run(
    danaus_device *dev, stream_engine *stream, int64_t time, int64_t count,
    const void *u, void *y);

/* ---- few taps (conv_short.c): members of dn_gpu_conv_backend ---- */

danaus_status dn_gpu_short_conv(danaus_device *dev, const short_operands *operands);
danaus_status dn_gpu_short_conv_gradient(
    danaus_device *dev, const short_gradient_operands *operands);

#endif
