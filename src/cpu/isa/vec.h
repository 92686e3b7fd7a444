/* The vector vocabulary of the instruction set that this file is compiled for. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_ISA_VEC_H
#define DN_CPU_ISA_VEC_H

#include "base/dtype.h"

#include <math.h>
#include <string.h>

#if defined DANAUS_ISA_avx512
#    include "cpu/isa/vec_avx512.h"
#elif defined DANAUS_ISA_avx2
#    include "cpu/isa/vec_avx2.h"
#elif defined DANAUS_ISA_neon
#    include "cpu/isa/vec_neon.h"
#else
#    include "cpu/isa/vec_scalar.h"
#endif

/* A vector of at most 8 floats: vf, where that is no longer. */
#ifndef VH
#    define VH VF
typedef vf vh;
static inline vh vh_set1(float x) { return vf_set1(x); }
static inline vh vh_fma(vh a, vh b, vh c) { return vf_fma(a, b, c); }
static inline vh vh_load(const float *p) { return vf_load(p); }
static inline void vh_store(float *p, vh v) { vf_store(p, v); }
#endif

#endif
