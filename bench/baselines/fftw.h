/* Causal convolutions by FFTW, single precision: every row is padded to a length that FFTW
   likes, transformed (r2c), multiplied by the filter's spectrum and transformed back (c2r).
   The threads of a team share the rows. FFTW measures plans, for at most ten seconds each. */
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_BASELINES_FFTW_H
#define BENCH_BASELINES_FFTW_H

#include "bench/team.h"

#include <stdint.h>

typedef struct fftw_conv fftw_conv;

/* The release that runs, or "none" where danaus was built without it. */
const char *fftw_conv_version(void);

/* k[channels][taps]. Of the padded lengths that are a power of two or the least product
   of 2, 3, 5 and 7 the faster one is taken, and of rows one by one and all rows of a
   call in one batched plan with FFTW's own threads. NULL without FFTW or memory. */
fftw_conv *fftw_conv_create(
    team *t, int64_t length, int64_t taps, int64_t batch, int64_t channels,
    const float *k);
void fftw_conv_run(void *self, const void *u, void *y);
int64_t fftw_conv_padded(const fftw_conv *f);
int fftw_conv_batched(const fftw_conv *f);
void fftw_conv_destroy(fftw_conv *f);

#endif
