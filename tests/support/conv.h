/* Random convolutions, and what they must be: plain loops of f64 over the definition
   in danaus/conv.h, which share no code with the library, with a bound on the error of
   any transform of n complex numbers in layers of butterflies.

   The bound. A layer of butterflies with rounded constants changes a vector by at most
   5 u in norm, relatively, so a transform of log2 n layers by t = 5 u log2 n. Filter
   and signal are transformed, which changes y[t] by at most 2 t |k| |p| (Cauchy), and
   the product is transformed back, which changes it by t |y| <= t |k|_1 |p|, all norms
   but |k|_1 Euclidean. The gates before, the product and the scale add 8 u of the same.
   Transforms of at most 4 (length + taps) + 1024 numbers are expected. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_CONV_H
#define TEST_SUPPORT_CONV_H

#include "support/element.h"
#include "support/rng.h"

#include "danaus/conv.h"

typedef struct conv_case {
    danaus_conv_desc desc; /* filter_length, filters and dtype are set */
    int64_t batch;
    array u, gate_in, gate_out; /* gates: data may be NULL */
    array k, k_reverse, skip;   /* in the type of sums; the last two as gates */
} conv_case;

/* Everything random but the description, which is accurate unless it says otherwise, and the
   batch; extras: bit 0 gate_in, bit 1
   gate_out, bit 2 skip. */
conv_case conv_random(rng *r, const danaus_conv_desc *desc, int64_t batch, int extras);
void conv_free(conv_case *c);

/* batch times channels. */
int64_t conv_rows(const conv_case *c);

/* y[rows][length], and a bound e on the error of each. */
typedef struct conv_result {
    int64_t count;
    double *y, *e;
} conv_result;

conv_result conv_direct(const conv_case *c);
void conv_result_free(conv_result *r);

/* Ends the program with status 77 when the device has no convolutions. */
void conv_need(danaus_device *device);

/* Results, NaN before and between guards; data NULL where the case has no such operand. */
typedef enum conv_name {
    CONV_Y,
    CONV_DU,
    CONV_DGATE_IN,
    CONV_DGATE_OUT,
    CONV_DK,
    CONV_DK_REVERSE,
    CONV_DSKIP,
    CONV_RESULTS
} conv_name;

typedef struct conv_outcome {
    array of[CONV_RESULTS];
} conv_outcome;

void conv_outcome_free(conv_outcome *o);
int conv_outcome_same(const conv_outcome *a, const conv_outcome *b); /* bit for bit */

/* A case where a device can run it: a plan, a spectrum, and operands and results in the
   device's memory; of dy NULL without gradients. Calls return what the library does. */
typedef struct conv_scene {
    danaus_device *device;
    const conv_case *c;
    const array *dy;
    danaus_conv_plan *plan;
    danaus_spectrum *spectrum;
    conv_outcome made;
    int is_like; /* only the results are its own */
    void *u, *gate_in, *gate_out, *on_dy, *to[CONV_RESULTS];
} conv_scene;

conv_scene conv_scene_make(danaus_device *device, const conv_case *c, const array *dy);

/* Another one of the same plan, spectrum and operands, with results of its own, which ends
   before that one. */
conv_scene conv_scene_like(const conv_scene *s);
danaus_status conv_scene_run(const conv_scene *s, danaus_device *device);
danaus_status conv_scene_go_back(const conv_scene *s, danaus_device *device);

/* Results are NaN again. */
void conv_scene_forget(conv_scene *s);

/* What lies in the device's memory now; guards are looked at. */
conv_outcome conv_scene_results(const conv_scene *s);
void conv_scene_end(conv_scene *s);

/* Plans, transforms and executes; fails the test when that fails. */
array conv_run(danaus_device *device, const conv_case *c);

/* y, and all gradients of a loss that reached it as dy. */
conv_outcome conv_compute(danaus_device *device, const conv_case *c, const array *dy);

/* Fails the test, naming the case, unless y is within e. */
void conv_expect(const conv_case *c, const array *y, const conv_result *expected);

#endif
