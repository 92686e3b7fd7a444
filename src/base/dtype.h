/* Facts about element types, read from dtype.def, and conversion between them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_DTYPE_H
#define DN_BASE_DTYPE_H

#include "danaus/base.h"

typedef struct dtype_facts {
    danaus_dtype dtype;
    const char *name;        /* "bf16" */
    const char *safetensors; /* "BF16" */
    char npy_kind;           /* 'f', 'c', 'i', 'V' */
    int npy_size;            /* bytes, as .npy counts them */
    size_t size;
    int digits; /* bits of the significand: the unit roundoff is 2^-digits */
    int complex;
    danaus_dtype part; /* the type of a real number, or of the parts of a complex one */
    danaus_dtype sums; /* the type in which products are summed */
} dtype_facts;

/* Bytes of an element; 0 for a value that is no element type. */
static inline int64_t dn_size_of(danaus_dtype dtype)
{
    switch (dtype) {
#define X(id, name, safe, kind, npy, size, digits, part, sums)                         \
case DANAUS_##id:                                                                      \
    return size;
#include "base/dtype.def"
#undef X
    }
    return 0;
}

/* True for types of 16 bits, which are stored alone: their sums are f32. */
static inline int dn_has_16_bits(danaus_dtype dtype) { return dn_size_of(dtype) == 2; }

/* NULL for a value that is no element type. */
const dtype_facts *dn_dtype(danaus_dtype dtype);
/* 1 for element types but integers, which are for files. */
int dn_is_computed(danaus_dtype dtype);
/* Fails for other values, with a sentence. */
danaus_status dn_check_computed(danaus_dtype dtype);
int dn_is_complex(danaus_dtype dtype);
danaus_dtype dn_sum_type(danaus_dtype dtype);
/* The type of the parts of a number; a value that is no element type stays. */
danaus_dtype dn_part_type(danaus_dtype dtype);

/* Finds a type by its name ("bf16") or its safetensors name; 0 if none. */
danaus_dtype dn_dtype_from_name(const char *name);
danaus_dtype dn_dtype_from_safetensors(const char *name);

float dn_f16_to_f32(uint16_t h);
uint16_t dn_f32_to_f16(float x); /* to nearest, ties to even */
float dn_bf16_to_f32(uint16_t h);
uint16_t dn_f32_to_bf16(float x); /* to nearest, ties to even */

/* One element as (re, im) in double, and back, rounding once. Storing a complex
   value in a real type drops the imaginary part. */
void dn_load(danaus_dtype dtype, const void *from, int64_t index, double value[2]);
void dn_store(danaus_dtype dtype, void *to, int64_t index, const double value[2]);

/* Copies `count` elements, converting. */
void dn_convert(
    danaus_dtype from_type, const void *from, danaus_dtype to_type, void *to,
    int64_t count);

#endif
