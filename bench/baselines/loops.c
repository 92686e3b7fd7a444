/* loops.inc for every element type; the build compiles this file once for each
   instruction set and calls the table loops_NAME. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/loops.h"

#include <complex.h>
#include <string.h>

#define PASTE2(a, b) a##b
#define PASTE(a, b)  PASTE2(a, b)

typedef struct two_words {
    uint64_t word[2];
} two_words;

#define SHUFFLE
#define FN(name) name##_f32
#define E        float
#define U        uint32_t
#include "bench/baselines/loops.inc"
#undef FN
#undef E
#undef U

#define FN(name) name##_f64
#define E        double
#define U        uint64_t
#include "bench/baselines/loops.inc"
#undef FN
#undef E
#undef U

#define FN(name) name##_c64
#define E        float complex
#define U        uint64_t
#include "bench/baselines/loops.inc"
#undef FN
#undef E
#undef U

#undef SHUFFLE
#define FN(name) name##_c128
#define E        double complex
#define U        two_words
#include "bench/baselines/loops.inc"

#define ROW(id, t)                                                                     \
    {                                                                                  \
        DANAUS_##id, transpose_##t, einsum_first_##t, einsum_last_##t, csr_first_##t,  \
            csr_last_##t, bsr_first_##t, bsr_last_##t                                  \
    }

const loops PASTE(loops_, BENCH_ISA)[] = { ROW(F32, f32), ROW(F64, f64), ROW(C64, c64),
                                           ROW(C128, c128) };
