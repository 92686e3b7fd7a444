/* Which instruction sets this build holds and this processor has. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/conv.h"
#include "cpu/nn/nn.h"

#include <string.h>
#if defined __aarch64__ && defined __linux__
#    include <sys/auxv.h>
#endif

static int always(void) { return 1; }
static int never(void) { return 0; }

extern const kernel dn_cpu_kernels_scalar[];
extern const conv_code dn_cpu_conv_scalar[];
extern const cpu_activate dn_cpu_activations_scalar[][2];
extern const struct nn_code dn_cpu_nn_scalar;

#if defined __x86_64__
extern const kernel dn_cpu_kernels_avx2[];
extern const conv_code dn_cpu_conv_avx2[];
extern const cpu_activate dn_cpu_activations_avx2[][2];
extern const struct nn_code dn_cpu_nn_avx2;

/* These also ask whether the operating system saves the registers. Every processor
   with AVX2 has F16C, for which clang 14 cannot ask. */
static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#    ifdef DANAUS_AVX512
extern const kernel dn_cpu_kernels_avx512[];
extern const conv_code dn_cpu_conv_avx512[];
extern const cpu_activate dn_cpu_activations_avx512[][2];
extern const struct nn_code dn_cpu_nn_avx512;

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

static int has_vnni(void) { return __builtin_cpu_supports("avx512vnni"); }
#    endif
#elif defined __aarch64__
extern const kernel dn_cpu_kernels_neon[];
extern const conv_code dn_cpu_conv_neon[];
extern const cpu_activate dn_cpu_activations_neon[][2];
extern const struct nn_code dn_cpu_nn_neon;

/* Those of Arm 8.2. Elsewhere than on Linux nobody is asked. */
static int has_dotprod(void)
{
#    ifdef HWCAP_ASIMDDP
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#    else
    return 0;
#    endif
}
#endif

#define ISA(name, present, dots)                                                       \
    {                                                                                  \
#        name, dn_cpu_kernels_##name, dn_cpu_conv_##name, dn_cpu_activations_##name,   \
            &dn_cpu_nn_##name, present, dots                                           \
    }

const cpu_isa dn_cpu_isas[] = {
#if defined __x86_64__
#    ifdef DANAUS_AVX512
    ISA(avx512, has_avx512, has_vnni),
#    endif
    ISA(avx2, has_avx2, never),
#elif defined __aarch64__
    ISA(neon, always, has_dotprod),
#endif
    ISA(scalar, always, never),
    { 0 },
};

const cpu_isa *dn_cpu_best(const cpu_isa *list, const char *limit)
{
    while (list->name && *limit && strcmp(list->name, limit))
        list++;
    while (list->name && !list->present())
        list++;
    return list->name ? list : NULL;
}
