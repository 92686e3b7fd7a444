/* A packed_window (device/conv.h): window `number` of a sequence, which has columns offset, ...,
   offset + length - 1. */
// SPDX-License-Identifier: Apache-2.0
typedef struct packed_window {
    int64 offset, length, number;
} packed_window;
