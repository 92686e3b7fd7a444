/* Which instruction sets this build holds and this processor has. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv.h"

static int always(void) { return 1; }

extern const kernel dn_cpu_kernels_scalar[];
extern const conv_code dn_cpu_conv_scalar[];

#if defined __x86_64__
extern const kernel dn_cpu_kernels_avx2[], dn_cpu_kernels_avx512[];
extern const conv_code dn_cpu_conv_avx2[], dn_cpu_conv_avx512[];

/* These also ask whether the operating system saves the registers. Every processor
   with AVX2 has F16C, for which clang 14 cannot ask. */
static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}
#elif defined __aarch64__
extern const kernel dn_cpu_kernels_neon[];
extern const conv_code dn_cpu_conv_neon[];
#endif

const cpu_isa dn_cpu_isas[] = {
#if defined __x86_64__
    { "avx512", dn_cpu_kernels_avx512, dn_cpu_conv_avx512, has_avx512 },
    { "avx2", dn_cpu_kernels_avx2, dn_cpu_conv_avx2, has_avx2 },
#elif defined __aarch64__
    { "neon", dn_cpu_kernels_neon, dn_cpu_conv_neon, always },
#endif
    { "scalar", dn_cpu_kernels_scalar, dn_cpu_conv_scalar, always },
    { 0 },
};
