/* Implicit long filters: Poli et al., Hyena Hierarchy, ICML 2023 (arXiv 2302.10866). A small
   network makes k[channel][s] of an encoding z[s] of each position,

       k[.][s] = W_last sin(f (W_n ... sin(f (W_0 z[s] + b_0)) ... + b_n))
                 (exp(-times[s] |decay|) + shift),

   where f is one vector for all sines, and times[s] = s / (length - 1). Values do not depend on
   how many are computed. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_HYENA_HYENA_FILTER_H
#define DN_MODEL_HYENA_HYENA_FILTER_H

#include "device/nn.h"
#include "model/linear.h"

/* Sines are one less. */
#define HYENA_MOST_LAYERS 9

typedef struct hyena_shape {
    int64_t length, channels;
    int64_t features; /* numbers of z[s]: odd, at least 3 */
    int64_t order;    /* numbers between the layers */
    int layers;       /* 2 to HYENA_MOST_LAYERS */
    int learned;      /* nonzero: z is in the file; else it may be missing */
    int reverse;      /* nonzero: a second network makes filters of what comes after */
    int constant;     /* nonzero: there is no window */
    float factor;     /* of f; 1 as a rule */
    float shift;
} hyena_shape;

typedef struct hyena_filter {
    hyena_shape shape;
    const float *z, *times, *decay, *frequency;
    const float *skip;                    /* [channels] */
    linear network[2][HYENA_MOST_LAYERS]; /* forward, reverse */
} hyena_filter;

/* Reads NAME.bias, NAME.pos_emb.{z,t}, NAME.modulation.deltas, and NAME.implicit_filter.* and
   NAME.implicit_filter_rev.*; frequencies may have any of the names that they have there.
   Missing buffers are computed. Tensors that do not fit are complaints. Close the filter
   after a failure, too. */
danaus_status dn_hyena_filter_open(
    hyena_filter *f, binder *b, const char *name, const hyena_shape *shape);
void dn_hyena_filter_close(hyena_filter *f);

/* The first `length` values of each channel, k[channels][stride], in device memory. */
danaus_status dn_hyena_filter_run(
    const hyena_filter *f, danaus_device *device, int reverse, int64_t length, float *k,
    int64_t stride);

/* Bytes of packed weights; products and sums for each position and direction. */
int64_t dn_hyena_filter_packed(const hyena_filter *f);
int64_t dn_hyena_filter_operations(const hyena_filter *f);

/* Operations of a convolution with a filter: a transform of length + taps real numbers each way,
   and a product of spectra. */
double dn_hyena_conv_operations(int64_t length, int64_t taps);

#endif
