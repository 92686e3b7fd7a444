/* Activations, compiled once for each instruction set (DANAUS_ISA): this object exports
   one table, dn_cpu_activations_<isa>, and nothing else. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu.h"
#include "cpu/isa/exp.h"

#define CAT_(a, b) a##b
#define CAT(a, b)  CAT_(a, b)

#define R           float
#define ABS         __builtin_fabsf
#define FN(name)    name##_f
#define MOST        13.0f
#define EXP_MOST    EXP_MOST_F
#define TAIL_CENTRE 3.0f
#define TAIL                                                                           \
    0.121513948f, -0.206402622f, 0.123225034f, -0.0462132503f, 0.00613207575f,         \
        0.00290439592f, -0.000983935285f, -0.00033936397f, 0.000115907529f,            \
        5.38724426e-5f
#include "cpu/nn/activate.inc"
#undef R
#undef ABS
#undef FN
#undef MOST
#undef EXP_MOST
#undef TAIL_CENTRE
#undef TAIL

#define R           double
#define ABS         __builtin_fabs
#define FN(name)    name##_d
#define MOST        38.0
#define EXP_MOST    EXP_MOST_D
#define TAIL_CENTRE 5.0
#define TAIL                                                                           \
    0.076919304975006296, -0.14345755526401197, 0.11606881188600329,                   \
        -0.080883877264127442, 0.047855352284170315, -0.023413900487691321,            \
        0.0089913705505847842, -0.0023788443567061806, 0.00021955073766753929,         \
        0.00013427684354679533, -6.0427483012984812e-5, 9.6130516461682702e-7,         \
        6.6444218562814526e-6, -1.2700732556027622e-6, -6.7507971134416739e-7,         \
        2.4334286145130122e-7, 7.7108555789764188e-8, -3.9164756933006302e-8,          \
        -1.0995986476520552e-8, 5.6880070389519184e-9, 1.8262952394654953e-9,          \
        -5.6961847587148454e-10, -2.3201675249088921e-10
#include "cpu/nn/activate.inc"

extern const cpu_activate CAT(dn_cpu_activations_, DANAUS_ISA)[][2];

const cpu_activate CAT(dn_cpu_activations_, DANAUS_ISA)[][2] = {
    [DANAUS_ACTIVATION_NONE] = { NULL, NULL },
    [DANAUS_RELU] = { each_relu_f, each_relu_d },
    [DANAUS_GELU] = { each_gelu_f, each_gelu_d },
    [DANAUS_SILU] = { each_silu_f, each_silu_d },
    [DANAUS_GELU_TANH] = { each_gelu_tanh_f, each_gelu_tanh_d },
};
