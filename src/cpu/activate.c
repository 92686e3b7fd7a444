/* Activations, compiled once for each instruction set (DANAUS_ISA): this object exports
   one table, dn_cpu_activations_<isa>, and nothing else. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu.h"

#include <string.h>

#define CAT_(a, b) a##b
#define CAT(a, b)  CAT_(a, b)
#ifdef __clang__
#    define UNROLL
#else
#    define UNROLL _Pragma("GCC unroll 32")
#endif

/* 1 / n! for n = 0, 1, ... */
#define INVERSE_FACTORIALS                                                             \
    1, 1, (R)(1. / 2), (R)(1. / 6), (R)(1. / 24), (R)(1. / 120), (R)(1. / 720),        \
        (R)(1. / 5040), (R)(1. / 40320), (R)(1. / 362880), (R)(1. / 3628800),          \
        (R)(1. / 39916800), (R)(1. / 479001600), (R)(1. / 6227020800)

#define R             float
#define ABS           __builtin_fabsf
#define BITS          uint32_t
#define FN(name)      name##_f
#define MOST          13.0f
#define EXP_MOST      87.0f
#define EXP_TERMS     7
#define EXPONENT_BIAS 127u
#define MANTISSA_BITS 23
/* Adding and subtracting it rounds to an integer. */
#define ROUNDING 0x1.8p23f
/* ln 2 = high + low; an exponent times high is exact. */
#define LN2_HIGH    0x1.62e4p-1f
#define LN2_LOW     1.4286068203e-6f
#define TAIL_CENTRE 3.0f
#define TAIL                                                                           \
    0.121513948f, -0.206402622f, 0.123225034f, -0.0462132503f, 0.00613207575f,         \
        0.00290439592f, -0.000983935285f, -0.00033936397f, 0.000115907529f,            \
        5.38724426e-5f
#include "cpu/activate.inc"
#undef R
#undef ABS
#undef BITS
#undef FN
#undef MOST
#undef EXP_MOST
#undef EXP_TERMS
#undef EXPONENT_BIAS
#undef MANTISSA_BITS
#undef ROUNDING
#undef LN2_HIGH
#undef LN2_LOW
#undef TAIL_CENTRE
#undef TAIL

#define R             double
#define ABS           __builtin_fabs
#define BITS          uint64_t
#define FN(name)      name##_d
#define MOST          38.0
#define EXP_MOST      708.0
#define EXP_TERMS     13
#define EXPONENT_BIAS 1023u
#define MANTISSA_BITS 52
#define ROUNDING      0x1.8p52
#define LN2_HIGH      0x1.62e42fee00000p-1
#define LN2_LOW       1.9082149292705877e-10
#define TAIL_CENTRE   5.0
#define TAIL                                                                           \
    0.076919304975006296, -0.14345755526401197, 0.11606881188600329,                   \
        -0.080883877264127442, 0.047855352284170315, -0.023413900487691321,            \
        0.0089913705505847842, -0.0023788443567061806, 0.00021955073766753929,         \
        0.00013427684354679533, -6.0427483012984812e-5, 9.6130516461682702e-7,         \
        6.6444218562814526e-6, -1.2700732556027622e-6, -6.7507971134416739e-7,         \
        2.4334286145130122e-7, 7.7108555789764188e-8, -3.9164756933006302e-8,          \
        -1.0995986476520552e-8, 5.6880070389519184e-9, 1.8262952394654953e-9,          \
        -5.6961847587148454e-10, -2.3201675249088921e-10
#include "cpu/activate.inc"

extern const cpu_activate CAT(dn_cpu_activations_, DANAUS_ISA)[][2];

const cpu_activate CAT(dn_cpu_activations_, DANAUS_ISA)[][2] = {
    [DANAUS_ACTIVATION_NONE] = { NULL, NULL },
    [DANAUS_RELU] = { each_relu_f, each_relu_d },
    [DANAUS_GELU] = { each_gelu_f, each_gelu_d },
    [DANAUS_SILU] = { each_silu_f, each_silu_d },
    [DANAUS_GELU_TANH] = { each_gelu_tanh_f, each_gelu_tanh_d },
};
