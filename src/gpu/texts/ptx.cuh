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

/* The lower (upper) halves of two words as a pair. */
INLINE u32 low_halves(u32 lo, u32 hi) { return __byte_perm(lo, hi, 0x5410); }
INLINE u32 high_halves(u32 lo, u32 hi) { return __byte_perm(lo, hi, 0x7632); }

/* The nearest number with the 10 bits of mantissa that tensor cores read. */
INLINE u32 round_tf32(float x)
{
    u32 rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return rounded;
}

/* The same in half the instructions, but NaN is lost: it stays in what is left of x. */
INLINE u32 near_tf32(float x) { return (__float_as_uint(x) + 0x1000) & ~0x1fffu; }

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
    return low_of(pair >> 16);
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

/* Read once, and not kept near. */
INLINE uint4 load_once(const void *from)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

/* 16 bytes at once, whatever else is written beside them. */
INLINE void store128(void *to, uint4 v)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* The same, or zeros without a look. */
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

/* ---- tensor cores, sm_90a: four warps ---- */

#ifdef WGMMA

/* Shared memory written by this thread may be read by tensor cores and bulk copies. */
INLINE void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

INLINE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

INLINE void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int pending> INLINE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/* A matrix in rows of 128 bytes whose 16-byte chunks are exchanged by XOR with the
   row's number mod 8 (the 128-byte swizzle); the tile begins at a multiple of 1,024. */
INLINE u64 wgmma_matrix(u32 address)
{
    return (u64)((address & 0x3ffff) >> 4) | 1ull << 16 | (u64)(1024 >> 4) << 32 |
           1ull << 62;
}

/* A matrix of 16-byte pieces of columns k, eight of which (rows n) are 128 bytes; of the
   two of a product the second lies 128 bytes behind the first, and eight more rows 256. */
INLINE u64 wgmma_pieces(u32 address)
{
    return (u64)((address & 0x3ffff) >> 4) | (u64)(128 >> 4) << 16 |
           (u64)(256 >> 4) << 32;
}

/* Operands of inline assembly: names of registers %0, %1, ..., and the values. */
  #define DECADE(t)                                                                 \
      "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t         \
      "7,%" #t "8,%" #t "9,"
  #define NAMES_8   "%0,%1,%2,%3,%4,%5,%6,%7"
  #define NAMES_10  NAMES_8 ",%8,%9,"
  #define NAMES_16  NAMES_10 "%10,%11,%12,%13,%14,%15"
  #define NAMES_32  NAMES_10 DECADE(1) DECADE(2) "%30,%31"
  #define NAMES_20  NAMES_10 "%10,%11,%12,%13,%14,%15,%16,%17,%18,%19"
  #define NAMES_24  NAMES_10 DECADE(1) "%20,%21,%22,%23"
  #define NAMES_48  NAMES_10 DECADE(1) DECADE(2) DECADE(3) "%40,%41,%42,%43,%44,%45,%46,%47"
  #define NAMES_60  NAMES_10 DECADE(1) DECADE(2) DECADE(3) DECADE(4) DECADE(5)
  #define NAMES_64  NAMES_60 "%60,%61,%62,%63"
  #define NAMES_90  NAMES_60 DECADE(6) DECADE(7) DECADE(8)
  #define NAMES_96  NAMES_90 "%90,%91,%92,%93,%94,%95"
  #define NAMES_128 NAMES_90 DECADE(9) DECADE(10) DECADE(11)                         \
       "%120,%121,%122,%123,%124,%125,%126,%127"
  #define VALUES_4(d)   "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])
  #define VALUES_8(d)   VALUES_4(d), VALUES_4(d + 4)
  #define VALUES_16(d)  VALUES_8(d), VALUES_8(d + 8)
  #define VALUES_32(d)  VALUES_16(d), VALUES_16(d + 16)
  #define VALUES_64(d)  VALUES_32(d), VALUES_32(d + 32)
  #define VALUES_20(d)  VALUES_16(d), VALUES_4(d + 16)
  #define VALUES_24(d)  VALUES_16(d), VALUES_8(d + 16)
  #define VALUES_48(d)  VALUES_32(d), VALUES_16(d + 32)
  #define VALUES_96(d)  VALUES_64(d), VALUES_32(d + 64)
  #define VALUES_128(d) VALUES_64(d), VALUES_64(d + 64)

/* d = A B + (add ? d : 0): A 64 x 16, k by k if turned, B 16 x N, column by column.
   Registers count as in mma16: 4 for each 8 columns of d. */
template <int columns, int turned> INLINE void wgmma(float *d, u64 a, u64 b, int add)
{
  #define ISSUE(n, count, a_name, b_name, p_name, t_name)                           \
      asm volatile("{.reg .pred p;\n setp.ne.b32 p, " p_name ", 0;\n"               \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." TYPE_NAME      \
                   "." TYPE_NAME " {" NAMES_##count "}, " a_name ", " b_name        \
                   ", p, 1, 1, " t_name ", 0;}"                                     \
                   : VALUES_##count(d)                                              \
                   : "l"(a), "l"(b), "r"(add), "n"(turned))
    if constexpr (columns == 256)
        ISSUE(256, 128, "%128", "%129", "%130", "%131");
    else if constexpr (columns == 192)
        ISSUE(192, 96, "%96", "%97", "%98", "%99");
    else if constexpr (columns == 128)
        ISSUE(128, 64, "%64", "%65", "%66", "%67");
    else if constexpr (columns == 96)
        ISSUE(96, 48, "%48", "%49", "%50", "%51");
    else if constexpr (columns == 64)
        ISSUE(64, 32, "%32", "%33", "%34", "%35");
    else if constexpr (columns == 48)
        ISSUE(48, 24, "%24", "%25", "%26", "%27");
    else if constexpr (columns == 32)
        ISSUE(32, 16, "%16", "%17", "%18", "%19");
    else
        ISSUE(16, 8, "%8", "%9", "%10", "%11");
}

/* The same with A held in registers, numbers of 16 bits, or, if ELEMENT is 4, of tf32 and
   k8. Row and column of a[e] in the warp's 16 rows: l / 4 + 8 (e mod 2), and as pairs or
   as single numbers l mod 4 + 4 (e / 2). */
  #if ELEMENT == 4
    #define HELD_KIND "k8.f32.tf32.tf32"
    #define HELD_TAIL ""
  #else
    #define HELD_KIND "k16.f32." TYPE_NAME "." TYPE_NAME
    #define HELD_TAIL ", 0"
  #endif
template <int columns> INLINE void wgmma_held(float *d, const u32 *a, u64 b, int add)
{
  #define ISSUE_HELD(n, count, a0, a1, a2, a3, b_name, p_name)                      \
      asm volatile("{.reg .pred p;\n setp.ne.b32 p, " p_name ", 0;\n"               \
                   "wgmma.mma_async.sync.aligned.m64n" #n HELD_KIND " {"            \
                   NAMES_##count "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b_name     \
                   ", p, 1, 1" HELD_TAIL ";}"                                       \
                   : VALUES_##count(d)                                              \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))
    if constexpr (columns == 256)
        ISSUE_HELD(256, 128, "%128", "%129", "%130", "%131", "%132", "%133");
    else if constexpr (columns == 192)
        ISSUE_HELD(192, 96, "%96", "%97", "%98", "%99", "%100", "%101");
    else if constexpr (columns == 128)
        ISSUE_HELD(128, 64, "%64", "%65", "%66", "%67", "%68", "%69");
    else if constexpr (columns == 96)
        ISSUE_HELD(96, 48, "%48", "%49", "%50", "%51", "%52", "%53");
    else if constexpr (columns == 64)
        ISSUE_HELD(64, 32, "%32", "%33", "%34", "%35", "%36", "%37");
    else if constexpr (columns == 48)
        ISSUE_HELD(48, 24, "%24", "%25", "%26", "%27", "%28", "%29");
    else if constexpr (columns == 40)
        ISSUE_HELD(40, 20, "%20", "%21", "%22", "%23", "%24", "%25");
    else if constexpr (columns == 32)
        ISSUE_HELD(32, 16, "%16", "%17", "%18", "%19", "%20", "%21");
    else
        ISSUE_HELD(16, 8, "%8", "%9", "%10", "%11", "%12", "%13");
}

/* The widest product of at most `columns` columns, a multiple of 16. */
constexpr int wgmma_columns(int columns)
{
    const int widths[] = { 256, 192, 128, 96, 64, 48, 32, 16 };
    for (int width : widths)
        if (columns >= width)
            return width;
    return 0;
}

/* Four 8 x 8 matrices to shared memory, as load_matrices() has them. */
INLINE void store_matrices(u32 to, u32 v0, u32 v1, u32 v2, u32 v3)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     to),
                 "r"(v0), "r"(v1), "r"(v2), "r"(v3)
                 : "memory");
}

INLINE void store_matrices_turned(u32 to, u32 v0, u32 v1, u32 v2, u32 v3)
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
            to),
        "r"(v0), "r"(v1), "r"(v2), "r"(v3)
        : "memory");
}

/* Gives registers of this thread's group of four warps back, or takes more. */
template <int count> INLINE void registers_drop()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

template <int count> INLINE void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

/* ---- clusters ---- */

INLINE u32 cluster_rank()
{
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

INLINE void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::
                     : "memory");
}

/* The address in the cluster's block `rank` of what has this address here. */
INLINE u32 in_block(u32 address, u32 rank)
{
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

/* ---- barriers in shared memory that also count bytes ---- */

INLINE void flag_init(u32 flag, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(flag), "r"(arrivals)
                 : "memory");
}

/* After flag_init() by one thread, before others of the cluster use the flags. */
INLINE void flag_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::
                     : "memory");
}

/* Arrives and announces bytes. */
INLINE void flag_expect(u32 flag, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(flag),
                 "r"(bytes)
                 : "memory");
}

/* The flag may be in another block of the cluster. */
INLINE void flag_arrive(u32 flag)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(
                     flag)
                 : "memory");
}

/* Arrives when the copies (copy16() and so on) that this thread asked for are there. */
INLINE void flag_arrive_copies(u32 flag)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(flag)
                 : "memory");
}

INLINE void flag_wait(u32 flag, u32 phase)
{
    asm volatile("{\n.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" ::"r"(flag),
                 "r"(phase)
                 : "memory");
}

/* ---- bulk copies: one thread asks, a flag counts the bytes ---- */

typedef struct tensor_map {
    alignas(64) u64 opaque[16];
} tensor_map;

INLINE void bulk_load(u32 to, const void *from, u32 bytes, u32 flag)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(flag)
                 : "memory");
}

/* From this block's shared memory to another's, where the flag is. */
INLINE void bulk_send(u32 to, u32 from, u32 bytes, u32 flag)
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "r"(from), "r"(bytes), "r"(flag)
                 : "memory");
}

/* To the same place in every block of the cluster that `blocks` has a bit for. */
INLINE void bulk_load_all(u32 to, const void *from, u32 bytes, u32 flag, u32 blocks)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(flag), "h"((u16)blocks)
                 : "memory");
}

/* `blocks`: to the same place in every block of the cluster that it has a bit for; 0: to
   this one. */
INLINE void bulk_load_3(
    u32 to, const tensor_map *m, u32 flag, int i0, int i1, int i2, u32 blocks = 0)
{
    if (blocks)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier"
                     "::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5}], "
                     "[%2], %6;" ::"r"(to),
                     "l"(m), "r"(flag), "r"(i0), "r"(i1), "r"(i2), "h"((u16)blocks)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier"
                     "::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                     "l"(m), "r"(flag), "r"(i0), "r"(i1), "r"(i2)
                     : "memory");
}

INLINE void bulk_load_4(
    u32 to, const tensor_map *m, u32 flag, int i0, int i1, int i2, int i3,
    u32 blocks = 0)
{
    if (blocks)
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier"
                     "::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, %5, "
                     "%6}], [%2], %7;" ::"r"(to),
                     "l"(m), "r"(flag), "r"(i0), "r"(i1), "r"(i2), "r"(i3),
                     "h"((u16)blocks)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier"
                     "::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                     "l"(m), "r"(flag), "r"(i0), "r"(i1), "r"(i2), "r"(i3)
                     : "memory");
}

INLINE void bulk_store_3(const tensor_map *m, u32 from, int i0, int i1, int i2)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2, %3, %4}], [%1];" ::"l"(m),
                 "r"(from), "r"(i0), "r"(i1), "r"(i2)
                 : "memory");
}

INLINE void bulk_store_4(const tensor_map *m, u32 from, int i0, int i1, int i2, int i3)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(m),
                 "r"(from), "r"(i0), "r"(i1), "r"(i2), "r"(i3)
                 : "memory");
}

INLINE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/* Until at most `pending` groups of stores still read shared memory. */
template <int pending> INLINE void bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

#endif
