/* What a backend does for convolutions: danaus/conv.h after its arguments are
   checked. A conv_engine is a backend's plan of a problem, immutable like a plan. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BACKEND_CONV_H
#define DN_BACKEND_CONV_H

#include "backend/backend.h"
#include "danaus/conv.h"

struct text;

typedef struct conv_engine conv_engine;

/* Every field is set: filter_length, filters and dtype are never 0; axes and keep are
   all 0 where whole spectra count. */
typedef danaus_conv_desc conv_problem;

#define CONV_AXES 4

/* One way to cut rows: into windows of 2 n numbers, transformed by radices of at most
   `radix`. */
typedef struct conv_cut {
    const char *kernel; /* one of those that kernel() below lists */
    int64_t n;
    int radix;
} conv_cut;

/* k[filters][filter_length], in the type of sums. */
typedef struct conv_filters {
    const void *k, *k_reverse, *skip; /* k_reverse, skip: or NULL */
} conv_filters;

typedef struct conv_operands {
    int64_t batch; /* at least 1 */
    const void *spectrum;
    const void *u, *gate_in, *gate_out; /* gates: or NULL */
    void *y;
} conv_operands;

typedef struct conv_gradient_operands {
    int64_t batch; /* at least 1 */
    const void *spectrum;
    const void *u, *gate_in, *gate_out, *dy; /* gates: or NULL */
    danaus_conv_gradients to;
} conv_gradient_operands;

typedef struct short_operands {
    danaus_short_desc desc; /* dtype is set */
    int64_t batch;          /* at least 1 */
    const void *k, *bias;   /* in the type of sums; bias: or NULL */
    const void *u;
    void *y;
} short_operands;

typedef struct short_gradient_operands {
    danaus_short_desc desc; /* dtype is set */
    int64_t batch;          /* at least 1 */
    const void *k, *u, *dy; /* k is there for du, u for dk */
    danaus_short_gradients to;
} short_gradient_operands;

typedef struct stream_engine stream_engine;

struct conv_backend {
    /* Names of the rows of the device's table, for danaus_device_kernel(); NULL past the
       last. */
    const char *(*kernel)(const danaus_device *dev, int index);
    /* Measures the constants of the cost model and adds them to the tuning table. */
    danaus_status (*calibrate)(
        danaus_device *dev, danaus_progress_fn progress, void *user);
    danaus_status (*create)(
        danaus_device *dev, const conv_problem *p, conv_engine **engine);
    void (*destroy)(conv_engine *engine);
    void (*describe)(const conv_engine *engine, struct text *to);
    size_t (*spectrum_bytes)(const conv_engine *engine); /* of all filters */
    danaus_status (*transform)(
        danaus_device *dev, const conv_engine *engine, const conv_filters *filters,
        void *spectrum);
    danaus_status (*run)(
        danaus_device *dev, const conv_engine *engine, const conv_operands *o);
    danaus_status (*gradient)(
        danaus_device *dev, const conv_engine *engine, const conv_gradient_operands *o);
    danaus_status (*few_taps)(danaus_device *dev, const short_operands *o);
    danaus_status (*few_taps_gradient)(
        danaus_device *dev, const short_gradient_operands *o);
    /* Every field of desc is set. */
    danaus_status (*stream_create)(
        danaus_device *dev, const danaus_stream_desc *desc, const void *k,
        stream_engine **stream);
    void (*stream_destroy)(stream_engine *stream);
    void (*stream_reset)(stream_engine *stream);
    danaus_status (*stream_run)(
        danaus_device *dev, stream_engine *stream, int64_t count, const void *u,
        void *y);
};

#endif
