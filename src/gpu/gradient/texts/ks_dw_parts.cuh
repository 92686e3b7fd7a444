/* What all texts for weight gradients on tensor cores share: the columns s of a block of
   threads, and where it stores sums over them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "words.cuh"

typedef struct span {
    i64 first, end;
    int steps; /* of `depth` columns s */
} span;

INLINE span span_of(i64 batch, i64 number, i64 slab, int depth)
{
    span s = { number * slab };
    s.end = s.first + slab < batch ? s.first + slab : batch;
    s.steps = (int)((s.end - s.first + depth - 1) / depth);
    return s;
}

/* A sum, added to what is there if `add`. */
INLINE void store_sum(float *to, float v, int add) { *to = add ? *to + v : v; }

/* Four sums that follow each other, and what is there added to them. */
INLINE void store_four_sums(float *to, const float *v)
{
    store128(to, words_of(v[0], v[1], v[2], v[3]));
}

INLINE void add_four_sums(float *v, const float *from)
{
    uint4 four = *(const uint4 *)from;
    v[0] += __uint_as_float(four.x), v[1] += __uint_as_float(four.y);
    v[2] += __uint_as_float(four.z), v[3] += __uint_as_float(four.w);
}
