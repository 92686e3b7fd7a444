/* The vector vocabulary of the instruction set that this file is compiled for. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_VEC_H
#define DN_CPU_VEC_H

#include "base/dtype.h"

#include <string.h>

#if defined DANAUS_ISA_avx512
#    include "cpu/vec_avx512.h"
#elif defined DANAUS_ISA_avx2
#    include "cpu/vec_avx2.h"
#elif defined DANAUS_ISA_neon
#    include "cpu/vec_neon.h"
#else
#    include "cpu/vec_scalar.h"
#endif

#endif
