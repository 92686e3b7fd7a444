/* Small random implicit filters (model/hyena/hyena_filter.h) as arrays of a file, and their
   values by plain loops of f64. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_FILTER_H
#define TEST_SUPPORT_FILTER_H

#include "support/named.h"

#define FILTER_MOST_ORDER 64

typedef struct small_filter {
    int64_t length, channels, features, order;
    int64_t taps; /* values that are not 0; 0: all */
    int layers;
    double factor, shift;
} small_filter;

/* NAME.bias, NAME.pos_emb.z, NAME.implicit_filter.*, and, where `reverse`,
   NAME.implicit_filter_rev.*; buffers as they are made, unless `bare`. */
void filter_add_random(
    rng *r, named_arrays *to, const char *name, const small_filter *f, int reverse,
    int bare);

/* z[length][features] as it is made. */
void filter_encode(const small_filter *f, double *z);

/* k[channels][length]. */
void filter_values(
    const named_arrays *arrays, const char *name, const small_filter *f, int reverse,
    double *k, rng *noise);

#endif
