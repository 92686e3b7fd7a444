/* Tensors of 8-bit integers with a tensor of scales, whose sizes are the same or 1: a number is its
   integer times its scale. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_IO_INT8_H
#define DN_IO_INT8_H

#include "danaus/file.h"

int64_t dn_int8_count(const danaus_tensor *t);

/* 1 if these are scales for the tensor, in a real type. */
int dn_int8_fits(const danaus_tensor *t, const danaus_tensor *scale);

void dn_int8_widen(const danaus_tensor *t, const danaus_tensor *scale, float *to);

/* Rounds a tensor of real numbers. The tensor of scales says by its sizes which numbers share one;
   it is f32, and its numbers are filled. */
void dn_int8_narrow(const danaus_tensor *t, const danaus_tensor *scale, int8_t *to);

/* Rounds w[blocks][c][d] to 8 bits, as plans for these round the a b blocks of a factor, and keeps
   them f32. A row of c numbers with one that is not finite stays. */
void dn_int8_round_blocks(int64_t blocks, int64_t c, int64_t d, float *w);

#endif
