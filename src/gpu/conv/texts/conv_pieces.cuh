/* Window `number` of a sequence, that is of columns offset, ..., offset + length - 1: a
   conv_piece (device/conv.h). */
// SPDX-License-Identifier: Apache-2.0
typedef struct piece {
    int64 offset, length, number;
} piece;
