/* The inside of a tuning table, for the two files that make it. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BACKEND_TUNING_TABLE_H
#define DN_BACKEND_TUNING_TABLE_H

#include "backend/tuning.h"

typedef struct tuning_row {
    danaus_pattern pattern;
    danaus_dtype dtype;
    danaus_layout layout;
    danaus_math math;
    int exponent;         /* the batch is 2^exponent */
    const kernel *kernel; /* NULL: no row */
    double seconds;
} tuning_row;

/* Open addressing; at most half of the rows are taken. */
struct tuning {
    tuning_row *rows;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
};

/* Of the power of two whose ratio to the batch is nearest to 1. */
int dn_tuning_exponent(int64_t batch);

/* Room for so many more rows. */
danaus_status dn_tuning_reserve(tuning *table, size_t more);

/* Puts a row, for which there must be room, in the place of the row for the same
   problem, or keeps that one if asked to keep the faster. */
void dn_tuning_put(tuning *table, const tuning_row *row, int keep_faster);

#endif
