/* Loads and stores of the first n lanes of a vector of 16-bit elements, by way of a whole
   vector; and plain stores in place of stores past the caches. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_ISA_VEC_PARTS_H
#define DN_CPU_ISA_VEC_PARTS_H

#include "cpu/isa/vec.h"

#define PARTS(type)                                                                    \
    static inline vf type##_load_part(const uint16_t *p, int n)                        \
    {                                                                                  \
        uint16_t t[VF] = { 0 };                                                        \
        memcpy(t, p, (size_t)n * sizeof *t);                                           \
        return type##_load(t);                                                         \
    }                                                                                  \
                                                                                       \
    static inline void type##_store_part(uint16_t *p, vf v, int n)                     \
    {                                                                                  \
        uint16_t t[VF];                                                                \
        type##_store(t, v);                                                            \
        memcpy(p, t, (size_t)n * sizeof *t);                                           \
    }                                                                                  \
                                                                                       \
    static inline void type##_stream(uint16_t *p, vf v) { type##_store(p, v); }

PARTS(f16)
PARTS(bf16)
#undef PARTS

#endif
