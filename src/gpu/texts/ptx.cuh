/* Instructions of NVIDIA GPUs that CUDA C has no words for, as small functions. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define INLINE static __device__ __forceinline__
#define MEMBER __device__ __forceinline__
#define GLOBAL /* in what portable texts share with others (simt.h) */

INLINE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

/* ---- pairs of 16-bit elements: lo in the lower half ---- */

#ifdef TYPE_BF16
  #define TYPE_NAME "bf16"
#else
  #define TYPE_NAME "f16"
#endif

INLINE u32 pack_pair(float lo, float hi)
{
    u32 pair;
    asm("cvt.rn." TYPE_NAME "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}

/* A pair of bf16, whatever the type of other pairs. */
INLINE u32 pack_bf16(float lo, float hi)
{
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}

/* The lower (upper) halves of two words as a pair. */
INLINE u32 low_halves(u32 lo, u32 hi) { return __byte_perm(lo, hi, 0x5410); }
INLINE u32 high_halves(u32 lo, u32 hi) { return __byte_perm(lo, hi, 0x7632); }

/* second ? b : a, and never a branch: of a condition in which lanes differ the compiler may
   make one, with a copy of the shuffle behind it in each way, where lanes wait for those of
   the other. */
INLINE u32 pick(int second, u32 a, u32 b)
{
    u32 v;
    asm("{.reg .pred p;\n setp.ne.b32 p, %3, 0;\n selp.b32 %0, %2, %1, p;}"
        : "=r"(v)
        : "r"(a), "r"(b), "r"(second));
    return v;
}

/* The largest v of all lanes. */
INLINE u32 largest_of_warp(u32 v)
{
    u32 most;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(most) : "r"(v));
    return most;
}

/* Products of two pairs of f16. */
INLINE u32 multiply_pairs(u32 a, u32 b)
{
    u32 product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

/* The nearest number with the 10 bits of mantissa that tensor cores read. */
INLINE u32 round_tf32(float x)
{
    u32 rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return rounded;
}

/* The same in half the instructions, but NaN is lost here; it stays in the rest of x. */
INLINE u32 near_tf32(float x) { return (__float_as_uint(x) + 0x1000) & ~0x1fffu; }

/* 2^x within a few units in the last place. */
INLINE float near_exp2(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

INLINE float low_of(u32 pair)
{
#ifdef TYPE_BF16
    return __uint_as_float(pair << 16);
#else
    float v;
    asm("{.reg .b16 lo, hi;\n mov.b32 {lo, hi}, %1;\n cvt.f32.f16 %0, lo;}"
        : "=f"(v)
        : "r"(pair));
    return v;
#endif
}

INLINE float high_of(u32 pair)
{
#ifdef TYPE_BF16
    return __uint_as_float(pair & 0xffff0000);
#else
    float v;
    asm("{.reg .b16 lo, hi;\n mov.b32 {lo, hi}, %1;\n cvt.f32.f16 %0, hi;}"
        : "=f"(v)
        : "r"(pair));
    return v;
#endif
}

/* ---- asynchronous copies, global to shared memory ---- */

/* Copies `bytes` (0 to 16) and fills up with zeros to 16. */
INLINE void copy16(u32 to, const void *from, u32 bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
}

INLINE void copy8(u32 to, const void *from, u32 bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
}

INLINE void copy4(u32 to, const void *from, u32 bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
}

INLINE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int pending> INLINE void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* ---- shared memory ---- */

INLINE void store_shared16(u32 to, u32 v)
{
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"((u16)v) : "memory");
}

INLINE void store_shared32(u32 to, u32 v)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
}

INLINE void store_shared128(u32 to, uint4 v)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* 8 bytes, or 16, at once, whatever else is written beside them. */
INLINE void store64(void *to, uint2 v)
{
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(v.x), "r"(v.y)
                 : "memory");
}

INLINE void store128(void *to, uint4 v)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* Read once, and not kept near; or zeros without a look. */
INLINE uint4 load_once_if(const void *from, int wanted)
{
    uint4 v;
    asm volatile("{.reg .pred p;\n setp.ne.b32 p, %5, 0;\n"
                 "mov.b32 %0, 0;\n mov.b32 %1, 0;\n mov.b32 %2, 0;\n mov.b32 %3, 0;\n"
                 "@p ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];}"
                 : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
                 : "l"(from), "r"(wanted));
    return v;
}

/* The same of what others read, too. */
INLINE uint4 load_near_if(const void *from, int wanted)
{
    uint4 v;
    asm volatile("{.reg .pred p;\n setp.ne.b32 p, %5, 0;\n"
                 "mov.b32 %0, 0;\n mov.b32 %1, 0;\n mov.b32 %2, 0;\n mov.b32 %3, 0;\n"
                 "@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];}"
                 : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
                 : "l"(from), "r"(wanted));
    return v;
}

/* *to = max(*to, v), whoever else does so. */
INLINE void keep_largest(u32 *to, u32 v)
{
    asm volatile("red.global.max.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}

INLINE void store_shared64(u32 to, float v0, float v1)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(v0), "f"(v1)
                 : "memory");
}

INLINE void store_shared64(u32 to, u32 v0, u32 v1)
{
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(v0), "r"(v1)
                 : "memory");
}

INLINE uint2 load_shared64(u32 from)
{
    uint2 v;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "r"(from)
                 : "memory");
    return v;
}

INLINE u32 load_shared32(u32 from)
{
    u32 v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
    return v;
}

INLINE u16 load_shared16(u32 from)
{
    u16 v;
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(v) : "r"(from) : "memory");
    return v;
}

INLINE uint4 load_shared128(u32 from)
{
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(from)
                 : "memory");
    return v;
}

/* Threads `count` of the block that use the same number (1 to 15). */
INLINE void barrier(int number, int count)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(count) : "memory");
}

/* The same for those of them that do not wait. */
INLINE void barrier_arrive(int number, int count)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(count) : "memory");
}

/* ---- tensor cores, sm_80: a warp ---- */

/* Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l mod 8 of
   matrix l / 8. Of each matrix a lane gets elements (l / 4, 2 (l mod 4) + {0, 1}). */
INLINE void load_matrices(u32 v[4], u32 from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(from)
                 : "memory");
}

INLINE void load_matrices_turned(u32 v[4], u32 from)
{
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
        : "r"(from)
        : "memory");
}

/* Transposes an 8 x 8 matrix that lies in the registers of a warp. */
INLINE u32 turn_matrix(u32 v)
{
    u32 turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
                 : "=r"(turned)
                 : "r"(v));
    return turned;
}

/* d += A B: A 16 x 16 in four registers, B 16 x 8 in two. */
INLINE void mma16(float *d, const u32 *a, u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE_NAME "." TYPE_NAME
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* d += A B: A 16 x 8 in two registers, B 8 x 8 in one. */
INLINE void mma8(float *d, const u32 *a, u32 b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." TYPE_NAME "." TYPE_NAME
                 ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}

/* d += A B of tf32 numbers: A 16 x 8 in four registers, B 8 x 8 in two. */
INLINE void mma8(float *d, const u32 *a, u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* d = A B. */
INLINE void mma8_first(float *d, const u32 *a, u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

/* The threads of a warp wait for each other. */
INLINE void sync_warp() { __syncwarp(); }

#ifdef WGMMA
  #include "ptx_90.cuh"
#elif CLUSTER > 1
  #include "ptx_cluster.cuh"
#endif
