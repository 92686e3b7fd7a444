/* How a stream's past and its taps lie: SEGMENT numbers that follow each other in rows of
   their own, so that threads that have a segment of taps each meet neighbours. */
// SPDX-License-Identifier: Apache-2.0

#define SEGMENT 256
