/* The table of processors and of instruction sets: what was measured on some, and is built in
   for others. A processor is described by the first line that is true of it. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/loop.h"

#include <string.h>

typedef struct processor {
    int (*is)(void);
    cpu_traits traits;
} processor;

#if defined __x86_64__
static int is_zen3_or_4(void) { return __builtin_cpu_is("amdfam19h"); }

static int has_bf16(void) { return __builtin_cpu_supports("avx512bf16"); }

static int is_zen5(void) { return has_bf16() && __builtin_cpu_is("amd"); }
#endif

static int is_any(void) { return 1; }

/* Columns in the order of cpu_traits. Measured on: a Zen 4, which makes vectors of 64 bytes in
   two halves; a Zen 5, which makes them whole; an Emerald Rapids, whose last cache is far away;
   and an Ice Lake, which loads little more than one vector of 64 bytes a cycle, broadcasts too,
   as soon as two in three instructions are loads. Its line serves all others. */
static const processor processors[] = {
/* product, load, turn, between; far cache; gather columns, tiles; weights first; fetch lines,
   near, far; in pieces, in place */
#if defined __x86_64__
    { is_zen3_or_4, { 1, 0.5, 16, 4, 0, 12, 12, 0, 1, 1, 1, 0, ANY_IN_PLACE } },
    { is_zen5, { 0.5, 0.6, 3, 3, 0, 6, 4, 1, 1, 1, 0, 1, 32768 } },
    { has_bf16, { 0.5, 0.6, 3, 4, 0.3, 6, 4, 1, 1, 0, 0, 1, 32768 } },
#endif
    { is_any, { 0.5, 0.9, 3, 4, 0, 12, 12, 0, 0, 0, 0, 0, 0 } },
};

cpu_traits dn_cpu_traits(const char *isa)
{
    const processor *p = processors;
    while (!p->is())
        p++;
    cpu_traits t = p->traits;
    if (strcmp(isa, "avx512")) { /* shorter vectors cost the same everywhere */
        t.product = t.load = 0.5;
        t.turn = 3;
    }
    return t;
}

/* Found by danaus calibrate on an Intel Xeon of 2.8 GHz (Ice Lake). The last line serves
   instruction sets that were not measured (neon). */
static const struct conv_times {
    const char *isa;
    double f32[CPU_CONV_TERMS], f64[CPU_CONV_TERMS];
} conv_times[] = {
    { "avx512",
      { 250, 12, 21, 5.4, 5.4, 7.3, 11, 7.5, 0.38, 0.92, 4.4 },
      { 250, 11, 19, 5.2, 4.7, 6.6, 11, 6.9, 0.34, 0.90, 4.2 } },
    { "scalar",
      { 170, 11, 20, 4.5, 4.4, 6.0, 9.0, 7.0, 0.25, 0.72, 3.0 },
      { 150, 9.5, 16, 3.6, 3.9, 5.0, 7.5, 6.3, 0.2, 0.65, 2.8 } },
    { "avx2",
      { 150, 8.5, 14, 3.3, 3.3, 4.6, 7.0, 5.2, 0.25, 0.60, 2.8 },
      { 190, 8.5, 14, 3.3, 3.5, 4.6, 7.0, 5.4, 0.25, 0.66, 2.8 } },
};

const double *dn_cpu_conv_times(const char *isa, danaus_dtype sums)
{
    const struct conv_times *t = conv_times;
    while (strcmp(t->isa, isa) && strcmp(t->isa, "avx2"))
        t++;
    return sums == DANAUS_F64 ? t->f64 : t->f32;
}
