/* exp(-u) for f32 and f64: exp_minus_f(), exp_minus_d(), in loops that compilers turn into
   vectors. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_ISA_EXP_H
#define DN_CPU_ISA_EXP_H

#include <stdint.h>
#include <string.h>

#ifdef __clang__
#    define UNROLL
#else
#    define UNROLL _Pragma("GCC unroll 32")
#endif

/* exp(-u) is not made less than that of these. */
#define EXP_MOST_F 87.0f
#define EXP_MOST_D 708.0

/* 1 / n! for n = 0, 1, ... */
#define INVERSE_FACTORIALS                                                             \
    1, 1, (R)(1. / 2), (R)(1. / 6), (R)(1. / 24), (R)(1. / 120), (R)(1. / 720),        \
        (R)(1. / 5040), (R)(1. / 40320), (R)(1. / 362880), (R)(1. / 3628800),          \
        (R)(1. / 39916800), (R)(1. / 479001600), (R)(1. / 6227020800)

/* ROUNDING: adding and subtracting it rounds to an integer. ln 2 = high + low; an exponent
   times high is exact. */
#define R             float
#define BITS          uint32_t
#define FN(name)      name##_f
#define EXP_MOST      EXP_MOST_F
#define EXP_TERMS     7
#define EXPONENT_BIAS 127u
#define MANTISSA_BITS 23
#define ROUNDING      0x1.8p23f
#define LN2_HIGH      0x1.62e4p-1f
#define LN2_LOW       1.4286068203e-6f
#include "cpu/isa/exp.inc"

#define R             double
#define BITS          uint64_t
#define FN(name)      name##_d
#define EXP_MOST      EXP_MOST_D
#define EXP_TERMS     13
#define EXPONENT_BIAS 1023u
#define MANTISSA_BITS 52
#define ROUNDING      0x1.8p52
#define LN2_HIGH      0x1.62e42fee00000p-1
#define LN2_LOW       1.9082149292705877e-10
#include "cpu/isa/exp.inc"

#endif
