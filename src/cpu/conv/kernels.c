/* The kernels of convolutions, compiled once for each instruction set (DANAUS_ISA).
   This object exports one table, dn_cpu_conv_<isa>, and nothing else. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/conv.h"
#include "cpu/isa/vec.h"
#include "cpu/isa/vec_parts.h"

#define CAT_(a, b)    a##b
#define CAT(a, b)     CAT_(a, b)
#define ALWAYS_INLINE inline __attribute__((always_inline))

#define TEXT "cpu/conv/rows.inc"
#include "cpu/product/kernels/each_type.inc"
#undef TEXT

#define TEXT "cpu/conv/sums.inc"
#include "cpu/product/kernels/each_sum.inc"
#undef TEXT

/* A row for a storage type with sums of R; direct: the two types, or that of parts, are the
   same. */
#define ROW(name, dtype, stored, R, sum, VL, INNER, parts, direct)                     \
    {                                                                                  \
        { name, dtype, 4 * VL, FFT_RADIX, { 8, 4 }, 0 }, VL, INNER, parts, direct,     \
            sizeof(R), load_##sum, blocks_##sum, store_##sum, fetch_##stored,          \
            put_##stored, accumulate_##sum, taps_##sum, cross_##sum, fence_##sum,      \
            lags_##sum, cross_lags_##sum                                               \
    }

extern const conv_code CAT(dn_cpu_conv_, DANAUS_ISA)[];

const conv_code CAT(dn_cpu_conv_, DANAUS_ISA)[] = {
    ROW("conv.fft.f32", DANAUS_F32, f32, float, f, VF, VF_INNER, 1, 1),
    ROW("conv.fft.f16", DANAUS_F16, f16, float, f, VF, VF_INNER, 1, 0),
    ROW("conv.fft.bf16", DANAUS_BF16, bf16, float, f, VF, VF_INNER, 1, 0),
    ROW("conv.fft.f64", DANAUS_F64, f64, double, d, VD, VD_INNER, 1, 1),
    ROW("conv.fft.c64", DANAUS_C64, complex_f, float, f, VF, VF_INNER, 2, 1),
    ROW("conv.fft.c128", DANAUS_C128, complex_d, double, d, VD, VD_INNER, 2, 1),
    { .kernel = { .name = NULL } },
};
