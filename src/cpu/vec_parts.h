/* The first n lanes of a vector of 16-bit elements: they pass through a whole one. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_VEC_PARTS_H
#define DN_CPU_VEC_PARTS_H

#include "cpu/vec.h"

static inline vf f16_load_part(const uint16_t *p, int n)
{
    uint16_t t[VF] = { 0 };
    memcpy(t, p, (size_t)n * sizeof *t);
    return vf_from_f16(t);
}

static inline void f16_store_part(uint16_t *p, vf v, int n)
{
    uint16_t t[VF];
    vf_to_f16(t, v);
    memcpy(p, t, (size_t)n * sizeof *t);
}

static inline vf bf16_load_part(const uint16_t *p, int n)
{
    uint16_t t[VF] = { 0 };
    memcpy(t, p, (size_t)n * sizeof *t);
    return vf_from_bf16(t);
}

static inline void bf16_store_part(uint16_t *p, vf v, int n)
{
    uint16_t t[VF];
    vf_to_bf16(t, v);
    memcpy(p, t, (size_t)n * sizeof *t);
}

#endif
