/* Elements of every type as pairs of doubles, written from the definitions of
   the formats and sharing no code with the library; arrays of them between guard
   bytes. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_ELEMENT_H
#define TEST_SUPPORT_ELEMENT_H

#include "support/rng.h"

#include "danaus/base.h"

#include <math.h>

typedef struct value {
    double re, im;
} value;

/* |v|. Most numbers are real, and need no square root. */
static inline double magnitude_of(value v)
{
    return v.im == 0 ? fabs(v.re) : hypot(v.re, v.im);
}

/* What rounding costs in a type: one rounding of x errs by at most
   unit |x| + tiny, and numbers beyond `largest` become infinite; sums are made with
   unit sum_unit. */
typedef struct precision {
    double unit, tiny, largest, sum_unit;
    int complex;
} precision;

precision precision_of(danaus_dtype dtype);
danaus_dtype sum_type(danaus_dtype dtype); /* in which products are summed */

value element_get(danaus_dtype dtype, const void *from, int64_t index);

/* v must be exactly representable. */
void element_put(danaus_dtype dtype, void *to, int64_t index, value v);

/* Representable in the type, parts in [-1, 1]. */
value element_random(rng *r, danaus_dtype dtype);

/* `count` elements, all of them NaN at first. Every other array is aligned to no more
   than one element and lies between guards; the rest ends, or begins, at a page that may
   not be touched, so that even reading past it is seen. */
typedef struct array {
    danaus_dtype dtype;
    int64_t count;
    void *data;
    unsigned char *block;
    size_t after; /* bytes of the guard behind the elements */
    void *pages;  /* NULL: the block is of malloc */
    size_t page_bytes;
} array;

array array_make(danaus_dtype dtype, int64_t count);

/* From now on arrays lie in the four ways in turn, beginning with this one (modulo 4). */
void array_places_from(unsigned place);
array array_random(rng *r, danaus_dtype dtype, int64_t count);
void array_free(array *a);
size_t array_block_bytes(const array *a); /* from `block` to behind the last guard */
int array_untouched(const array *a);      /* still all NaN as made? */
int array_same(const array *a, const array *b); /* bit for bit */
void array_expect_guards(const array *a);       /* fails the test if written */

#endif
