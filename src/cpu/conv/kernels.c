/* The kernels of convolutions, compiled once for each instruction set (DANAUS_ISA).
   This object exports one table, dn_cpu_conv_<isa>, and nothing else. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/conv.h"
#include "cpu/vec.h"
#include "cpu/vec_parts.h"

#define CAT_(a, b)    a##b
#define CAT(a, b)     CAT_(a, b)
#define ALWAYS_INLINE inline __attribute__((always_inline))

#define V(name)    vf_##name
#define VEC        vf
#define LANES      VF
#define CELL       float
#define ELEM       float
#define LOAD       vf_load
#define STORE      vf_store
#define LOAD_PART  vf_load_part
#define STORE_PART vf_store_part
#define FN(name)   name##_f32
#include "cpu/conv/rows.inc"

#define V(name)    vf_##name
#define VEC        vf
#define LANES      VF
#define CELL       float
#define ELEM       uint16_t
#define LOAD       vf_from_f16
#define STORE      vf_to_f16
#define LOAD_PART  f16_load_part
#define STORE_PART f16_store_part
#define FN(name)   name##_f16
#include "cpu/conv/rows.inc"

#define V(name)    vf_##name
#define VEC        vf
#define LANES      VF
#define CELL       float
#define ELEM       uint16_t
#define LOAD       vf_from_bf16
#define STORE      vf_to_bf16
#define LOAD_PART  bf16_load_part
#define STORE_PART bf16_store_part
#define FN(name)   name##_bf16
#include "cpu/conv/rows.inc"

#define V(name)    vd_##name
#define VEC        vd
#define LANES      VD
#define CELL       double
#define ELEM       double
#define LOAD       vd_load
#define STORE      vd_store
#define LOAD_PART  vd_load_part
#define STORE_PART vd_store_part
#define FN(name)   name##_f64
#include "cpu/conv/rows.inc"

/* Transforms, for each type of sums. */
#define R        float
#define V        vf
#define VL       VF
#define INNER    VF_INNER
#define VN(name) vf_##name
#define FN(name) name##_f
#include "cpu/conv/fft.inc"
#include "cpu/conv/fft_tail.inc"
#include "cpu/conv/conv.inc"
#include "cpu/conv/short.inc"
#undef R
#undef V
#undef VL
#undef INNER
#undef VN
#undef FN

#define R        double
#define V        vd
#define VL       VD
#define INNER    VD_INNER
#define VN(name) vd_##name
#define FN(name) name##_d
#include "cpu/conv/fft.inc"
#include "cpu/conv/fft_tail.inc"
#include "cpu/conv/conv.inc"
#include "cpu/conv/short.inc"

#define ROW_F(name, dtype, direct, fetch, put)                                         \
    {                                                                                  \
        { name, dtype, 4 * VF, FFT_RADIX, { 8, 4 } }, VF, VF_INNER, direct,            \
            sizeof(float), load_f, blocks_f, store_f, fetch, put, accumulate_f,        \
            taps_f, cross_f, fence_f, lags_f, cross_lags_f                             \
    }

extern const conv_code CAT(dn_cpu_conv_, DANAUS_ISA)[];

const conv_code CAT(dn_cpu_conv_, DANAUS_ISA)[] = {
    ROW_F("conv.fft.f32", DANAUS_F32, 1, fetch_f32, put_f32),
    ROW_F("conv.fft.f16", DANAUS_F16, 0, fetch_f16, put_f16),
    ROW_F("conv.fft.bf16", DANAUS_BF16, 0, fetch_bf16, put_bf16),
    { { "conv.fft.f64", DANAUS_F64, 4 * VD, FFT_RADIX, { 8, 4 } },
      VD,
      VD_INNER,
      1,
      sizeof(double),
      load_d,
      blocks_d,
      store_d,
      fetch_f64,
      put_f64,
      accumulate_d,
      taps_d,
      cross_d,
      fence_d,
      lags_d,
      cross_lags_d },
    { .kernel = { .name = NULL } },
};
