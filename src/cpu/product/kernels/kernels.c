/* Every CPU kernel, compiled once for each instruction set (DANAUS_ISA). This
   object exports one table, dn_cpu_kernels_<isa>, and nothing else. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "cpu/cpu.h"
#include "cpu/isa/vec.h"
#include "cpu/isa/vec_parts.h"
#include "cpu/product/rows.h"

#include <float.h>
#include <math.h>

#define CAT_(a, b)    a##b
#define CAT(a, b)     CAT_(a, b)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NEVER_INLINE  __attribute__((noinline))

/* Before a loop over a tile in registers: left as a loop by GCC it would index the
   tile, which then lives in memory. Clang unrolls them by itself. */
#ifdef __clang__
#    define UNROLL
#else
#    define UNROLL _Pragma("GCC unroll 32")
#endif

/* Hides from the compiler what a variable holds or points to. What a tile loads through a
   pointer lives no longer than the tile; else GCC keeps it from tile to tile, and in memory
   in the loops. */
#define OPAQUE(variable) __asm__("" : "+r"(variable))

/* Keeps a vector in a register; else GCC loads it again for every product with it. */
#ifdef __aarch64__
#    define IN_REGISTER(vector) __asm__("" : "+w"(vector))
#else
#    define IN_REGISTER(vector) __asm__("" : "+x"(vector))
#endif

/* Columns k that a tile takes at a time: a tile's part of X stays in the
   second cache. */
#define K_BLOCK 2048

#include "cpu/product/kernels/stage.inc"

#include "cpu/product/kernels/lines.inc"

#include "cpu/product/kernels/ahead.inc"

/* Turning; an f64 and a c64 element are both 8 bytes, and turned by one text. */
#define TEXT "cpu/product/kernels/turn.inc"
#include "cpu/product/kernels/each_type.inc"
#undef TEXT

/* A c128 element is a cell by itself. */
typedef struct c128 {
    double part[2];
} c128;

static inline c128 c128_set1(double x) { return (c128){ { x, x } }; }
static inline c128 c128_load(const c128 *p) { return *p; }
static inline void c128_store(c128 *p, c128 v) { *p = v; }
static inline void c128_stream(c128 *p, c128 v) { *p = v; }
static inline void c128_transpose(c128 v[1]) { (void)v; }
static inline c128 c128_load_part(const c128 *p, int n)
{
    return n ? *p : c128_set1(0);
}
static inline void c128_store_part(c128 *p, c128 v, int n)
{
    if (n)
        *p = v;
}

#define V(name)      c128_##name
#define VEC          c128
#define L            1
#define CELL         c128
#define ELEM         c128
#define STORED(name) c128_##name
#define FN(name)     name##_c128
#include "cpu/product/kernels/turn.inc"
#undef V
#undef L
#undef FN

static const turns *turns_of(danaus_dtype dtype)
{
    switch (dtype) {
    case DANAUS_F32: return &turns_f32;
    case DANAUS_F16: return &turns_f16;
    case DANAUS_BF16: return &turns_bf16;
    case DANAUS_C128: return &turns_c128;
    default: return &turns_f64;
    }
}

/* Products and weight gradients. */
#define TEXT "cpu/product/kernels/products.inc"
#include "cpu/product/kernels/each_sum.inc"
#undef TEXT

/* Products of 8-bit numbers, of at most this magnitude. Greater factors than 1 / DOT_SMALL may be
   beyond the range of f32. */
#define DOT_MOST  127.0f
#define DOT_SMALL 0x1p-100f

#define DOT(name) plain_##name
#define FN(name)  plain_##name
#define DOT_TERMS PLAIN_TERMS
#define DOT_ZERO  PLAIN_ZERO
#define DOT_FAST  0
#include "cpu/product/kernels/int8.inc"
#undef DOT
#undef FN
#undef DOT_TERMS
#undef DOT_ZERO
#undef DOT_FAST

#ifdef FAST_TERMS
#    define DOT(name) fast_##name
#    define FN(name)  fast_##name
#    define DOT_TERMS FAST_TERMS
#    define DOT_ZERO  FAST_ZERO
#    define DOT_FAST  1
#    include "cpu/product/kernels/int8.inc"
#endif

#define PANEL(name, dtype, code)                                                       \
    {                                                                                  \
        name, dtype, &dn_cpu_panel, &code                                              \
    }
#define LANES(name, dtype, code)                                                       \
    {                                                                                  \
        name, dtype, &dn_cpu_lanes, &code                                              \
    }
#define THIN(name, dtype, code)                                                        \
    {                                                                                  \
        name, dtype, &dn_cpu_thin, &code                                               \
    }
#define INT8(name, dtype, code)                                                        \
    {                                                                                  \
        name, dtype, &dn_cpu_int8, &code                                               \
    }

extern const kernel CAT(dn_cpu_kernels_, DANAUS_ISA)[];

const kernel CAT(dn_cpu_kernels_, DANAUS_ISA)[] = {
    PANEL("ks.panel.f32", DANAUS_F32, panel_code_f),
    PANEL("ks.panel.f16", DANAUS_F16, panel_code_f),
    PANEL("ks.panel.bf16", DANAUS_BF16, panel_code_f),
    PANEL("ks.panel.f64", DANAUS_F64, panel_code_d),
    PANEL("ks.panel.c64", DANAUS_C64, panel_code_complex_f),
    PANEL("ks.panel.c128", DANAUS_C128, panel_code_complex_d),
    LANES("ks.lanes.f32", DANAUS_F32, lanes_code_f),
    LANES("ks.lanes.f16", DANAUS_F16, lanes_code_f),
    LANES("ks.lanes.bf16", DANAUS_BF16, lanes_code_f),
    LANES("ks.lanes.f64", DANAUS_F64, lanes_code_d),
    LANES("ks.lanes.c64", DANAUS_C64, lanes_code_complex_f),
    LANES("ks.lanes.c128", DANAUS_C128, lanes_code_complex_d),
    THIN("ks.thin.f32", DANAUS_F32, thin_code_f),
    THIN("ks.thin.f16", DANAUS_F16, thin_code_f),
    THIN("ks.thin.bf16", DANAUS_BF16, thin_code_f),
    THIN("ks.thin.f64", DANAUS_F64, thin_code_d),
    THIN("ks.thin.c64", DANAUS_C64, thin_code_complex_f),
    THIN("ks.thin.c128", DANAUS_C128, thin_code_complex_d),
    INT8("ks.int8.f32", DANAUS_F32, plain_dot_code),
    INT8("ks.int8.f16", DANAUS_F16, plain_dot_code),
    INT8("ks.int8.bf16", DANAUS_BF16, plain_dot_code),
#ifdef FAST_TERMS
    INT8("ks.int8.dot.f32", DANAUS_F32, fast_dot_code),
    INT8("ks.int8.dot.f16", DANAUS_F16, fast_dot_code),
    INT8("ks.int8.dot.bf16", DANAUS_BF16, fast_dot_code),
#endif
    { .name = NULL },
};
