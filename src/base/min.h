/* The smaller and the larger of two numbers. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_MIN_H
#define DN_BASE_MIN_H

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#endif
