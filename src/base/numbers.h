/* Small functions of integers: minimum, maximum, division and multiples rounded up, ranges. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_NUMBERS_H
#define DN_BASE_NUMBERS_H

#include <stdint.h>

#define MIN(a, b)           ((a) < (b) ? (a) : (b))
#define MAX(a, b)           ((a) > (b) ? (a) : (b))
#define CLAMP(x, low, high) MIN(MAX(x, low), high)
#define CEIL_DIV(n, by)     (((n) + (by)-1) / (by))
#define ROUND_UP(n, to)     (CEIL_DIV(n, to) * (to))

/* from, ..., to - 1 */
typedef struct range {
    int64_t from, to;
} range;

#endif
