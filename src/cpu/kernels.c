/* Every CPU kernel, compiled once for each instruction set (DANAUS_ISA). This
   object exports one table, dn_cpu_kernels_<isa>, and nothing else. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "cpu/cpu.h"
#include "cpu/rows.h"
#include "cpu/vec.h"
#include "cpu/vec_parts.h"

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

#include "cpu/stage.inc"

#include "cpu/ahead.inc"

/* Turning, for each storage type. */
#define V(name)    vf_##name
#define VEC        vf
#define L          VF
#define CELL       float
#define ELEM       float
#define LOAD       vf_load
#define STORE      vf_store
#define STREAM     vf_stream
#define LOAD_PART  vf_load_part
#define STORE_PART vf_store_part
#define FN(name)   name##_f32
#include "cpu/turn.inc"

#define V(name)    vf_##name
#define VEC        vf
#define L          VF
#define CELL       float
#define ELEM       uint16_t
#define LOAD       vf_from_f16
#define STORE      vf_to_f16
#define STREAM     vf_to_f16
#define LOAD_PART  f16_load_part
#define STORE_PART f16_store_part
#define FN(name)   name##_f16
#include "cpu/turn.inc"

#define V(name)    vf_##name
#define VEC        vf
#define L          VF
#define CELL       float
#define ELEM       uint16_t
#define LOAD       vf_from_bf16
#define STORE      vf_to_bf16
#define STREAM     vf_to_bf16
#define LOAD_PART  bf16_load_part
#define STORE_PART bf16_store_part
#define FN(name)   name##_bf16
#include "cpu/turn.inc"

/* An f64 and a c64 element are both 8 bytes: one text turns them. */
#define V(name)    vd_##name
#define VEC        vd
#define L          VD
#define CELL       double
#define ELEM       double
#define LOAD       vd_load
#define STORE      vd_store
#define STREAM     vd_stream
#define LOAD_PART  vd_load_part
#define STORE_PART vd_store_part
#define FN(name)   name##_f64
#include "cpu/turn.inc"

/* A c128 element is a cell by itself. */
typedef struct c128 {
    double part[2];
} c128;

static inline c128 c128_set1(double x) { return (c128){ { x, x } }; }
static inline c128 c128_load(const c128 *p) { return *p; }
static inline void c128_store(c128 *p, c128 v) { *p = v; }
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

#define V(name)    c128_##name
#define VEC        c128
#define L          1
#define CELL       c128
#define ELEM       c128
#define LOAD       c128_load
#define STORE      c128_store
#define STREAM     c128_store
#define LOAD_PART  c128_load_part
#define STORE_PART c128_store_part
#define FN(name)   name##_c128
#include "cpu/turn.inc"

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

/* Products and weight gradients, for each type of sums. */
#define R         float
#define V         vf
#define VL        VF
#define VN(name)  vf_##name
#define NV        vh
#define NVL       VH
#define NVN(name) vh_##name
#define FN(name)  name##_f
#include "cpu/panel.inc"
#include "cpu/lanes.inc"
#include "cpu/dw.inc"
#undef R
#undef V
#undef VL
#undef VN
#undef NV
#undef NVL
#undef NVN
#undef FN

#define R         double
#define V         vd
#define VL        VD
#define VN(name)  vd_##name
#define NV        vd
#define NVL       VD
#define NVN(name) vd_##name
#define FN(name)  name##_d
#include "cpu/panel.inc"
#include "cpu/lanes.inc"
#include "cpu/dw.inc"

static const cpu_code panel_code_f = {
    TILE_ROWS, TILE_VECS *VF, VF, 0, panel_part_f, dw_part_f, load_panel,
};
static const cpu_code panel_code_fc = {
    TILE_ROWS,         TILE_VECS *VF / 2, VF / 2, 0, panel_part_complex_f,
    dw_part_complex_f, load_panel,
};
static const cpu_code panel_code_d = {
    TILE_ROWS, TILE_VECS *VD, VD, 0, panel_part_d, dw_part_d, load_panel,
};
static const cpu_code panel_code_dc = {
    TILE_ROWS,         TILE_VECS *VD / 2, VD / 2, 0, panel_part_complex_d,
    dw_part_complex_d, load_panel,
};
static const cpu_code lanes_code_f = {
    TILE_ROWS, LANE_COLUMNS, VF, LANE_VECS, lanes_part_f, dw_part_f, load_panel,
};
static const cpu_code lanes_code_fc = {
    TILE_ROWS,         LANE_COLUMNS / 2, VF / 2, LANE_VECS, lanes_part_complex_f,
    dw_part_complex_f, load_panel,
};
static const cpu_code lanes_code_d = {
    TILE_ROWS, LANE_COLUMNS, VD, LANE_VECS, lanes_part_d, dw_part_d, load_panel,
};
static const cpu_code lanes_code_dc = {
    TILE_ROWS,         LANE_COLUMNS / 2, VD / 2, LANE_VECS, lanes_part_complex_d,
    dw_part_complex_d, load_panel,
};

#define PANEL(name, dtype, code)                                                       \
    {                                                                                  \
        name, dtype, &dn_cpu_panel, &code                                              \
    }
#define LANES(name, dtype, code)                                                       \
    {                                                                                  \
        name, dtype, &dn_cpu_lanes, &code                                              \
    }

extern const kernel CAT(dn_cpu_kernels_, DANAUS_ISA)[];

const kernel CAT(dn_cpu_kernels_, DANAUS_ISA)[] = {
    PANEL("ks.panel.f32", DANAUS_F32, panel_code_f),
    PANEL("ks.panel.f16", DANAUS_F16, panel_code_f),
    PANEL("ks.panel.bf16", DANAUS_BF16, panel_code_f),
    PANEL("ks.panel.f64", DANAUS_F64, panel_code_d),
    PANEL("ks.panel.c64", DANAUS_C64, panel_code_fc),
    PANEL("ks.panel.c128", DANAUS_C128, panel_code_dc),
    LANES("ks.lanes.f32", DANAUS_F32, lanes_code_f),
    LANES("ks.lanes.f16", DANAUS_F16, lanes_code_f),
    LANES("ks.lanes.bf16", DANAUS_BF16, lanes_code_f),
    LANES("ks.lanes.f64", DANAUS_F64, lanes_code_d),
    LANES("ks.lanes.c64", DANAUS_C64, lanes_code_fc),
    LANES("ks.lanes.c128", DANAUS_C128, lanes_code_dc),
    { .name = NULL },
};
