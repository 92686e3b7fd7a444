/* The layout of a stream's past and taps: neighbouring numbers of a segment are in different
   rows, SEGMENT of them, so that threads that have one segment each read neighbours. */
// SPDX-License-Identifier: Apache-2.0

#define SEGMENT 256
