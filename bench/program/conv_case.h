/* One convolution that is measured: its plan, filters and signals. */
// SPDX-License-Identifier: Apache-2.0
#ifndef PROGRAM_CONV_CASE_H
#define PROGRAM_CONV_CASE_H

#include "common/suite.h"
#include "bench/program/measure.h"

/* One problem with its operands, in the device's memory: u in copies.x, y in copies.y; the
   filters in the host's. */
typedef struct conv_case {
    const conv_problem *p;
    danaus_device *device;
    danaus_dtype dtype;
    danaus_effort effort;
    danaus_conv_accuracy accuracy;
    danaus_conv_plan *plan;
    danaus_spectrum *spectrum;
    rotation copies;
    float *k, *k_reverse, *skip;
    void *gates[2];
    int failed;
    double error;
} conv_case;

/* Plan and filters; signals that rotate through `cache` bytes, and gates. Each returns an
   exit status; what was made goes with conv_case_destroy(). */
int conv_case_create(conv_case *c);
int conv_case_signals(conv_case *c, size_t cache);
void conv_case_destroy(conv_case *c);

/* A runner's members. */
void conv_case_run(void *self, const void *u, void *y);
void conv_case_finish(void *self);

/* Sets the error, that of the first row against the same in f64 on a processor, in norm;
   fails where rounding does not explain it. */
int conv_case_check(conv_case *c);

/* The first row of a signal of the case's type, as f64. Returns an exit status. */
int conv_case_row(const conv_case *c, const void *from, double *row);

double conv_relative_error(int64_t n, const double *is, const double *should);

/* So many of its arrays. */
double conv_case_bytes(const conv_case *c, int arrays);

#endif
