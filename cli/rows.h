/* Rows of numbers: the channels of a file of sound, or the last axis of a .npy array. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_ROWS_H
#define CLI_ROWS_H

#include "danaus/danaus.h"

typedef struct rows {
    danaus_dtype dtype;
    int64_t count, length;
    void *data;
    int rate;            /* 0: .npy */
    danaus_tensor shape; /* of the .npy file */
} rows;

/* These return an exit status. */
int rows_read(const char *path, rows *r);

/* Puts rows of f32 below others; the shorter ones end in zeros. */
int rows_append(rows *to, const rows *more);

/* Scales all rows by one number, so that the largest magnitude is 1. */
int rows_normalize(rows *r);

/* How many numbers are infinite or NaN. */
int64_t rows_non_finite(const rows *r);

#endif
