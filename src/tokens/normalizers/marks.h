/* Marks in a row, which decomposition puts in the order of their combining classes; marks of
   one class stay in their order. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_MARKS_H
#define DN_TOKENS_MARKS_H

#include "danaus/base.h"

#include <stddef.h>
#include <stdint.h>

typedef struct waiting_mark {
    int32_t c;
    int order; /* its combining class, more than 0 */
} waiting_mark;

/* Zeros are an empty one. */
typedef struct mark_row {
    waiting_mark *marks;
    size_t count, capacity;
} mark_row;

danaus_status dn_marks_add(mark_row *row, int32_t c, int order);

/* Calls `put` for each mark in order, and empties the row. */
typedef danaus_status put_mark_fn(void *arg, waiting_mark mark);
danaus_status dn_marks_put(mark_row *row, put_mark_fn *put, void *arg);

#endif
