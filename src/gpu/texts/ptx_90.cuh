/* Instructions that only compute capability 9.0 has. ptx.cuh includes this where WGMMA is
   defined. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ptx_cluster.cuh"

/* ---- tensor cores, sm_90a: four warps ---- */

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

/* A matrix k by k, in segments of 64 columns, `bytes` apart, whose rows of 128 bytes have the
   128-byte swizzle. */
INLINE u64 wgmma_segments(u32 address, u32 bytes)
{
    return (u64)((address & 0x3ffff) >> 4) | (u64)(bytes >> 4) << 16 |
           (u64)(1024 >> 4) << 32 | 1ull << 62;
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

/* A product of so many columns: their number, that of a thread's sums, and names of up to
   seven operands that follow these. */
#define FOR_WIDTH(columns, PRODUCT)                                                 \
    if constexpr (columns == 256)                                                     \
        PRODUCT(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134");    \
    else if constexpr (columns == 192)                                                \
        PRODUCT(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102");         \
    else if constexpr (columns == 128)                                                \
        PRODUCT(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70");            \
    else if constexpr (columns == 96)                                                 \
        PRODUCT(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54");             \
    else if constexpr (columns == 64)                                                 \
        PRODUCT(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38");             \
    else if constexpr (columns == 48)                                                 \
        PRODUCT(48, 24, "%24", "%25", "%26", "%27", "%28", "%29", "%30");             \
    else if constexpr (columns == 40)                                                 \
        PRODUCT(40, 20, "%20", "%21", "%22", "%23", "%24", "%25", "%26");             \
    else if constexpr (columns == 32)                                                 \
        PRODUCT(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22");             \
    else                                                                              \
        PRODUCT(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")

/* d = A B + (add ? d : 0): A 64 x 16, k by k if turned, B 16 x N, column by column, k by k if
   b_turned. Registers count as in mma16: 4 for each 8 columns of d. */
template <int columns, int turned, int b_turned = 0>
INLINE void wgmma(float *d, u64 a, u64 b, int add)
{
#define ISSUE(n, count, a_name, b_name, p_name, t_name, u_name, ...)              \
      asm volatile("{.reg .pred p;\n setp.ne.b32 p, " p_name ", 0;\n"               \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." TYPE_NAME      \
                   "." TYPE_NAME " {" NAMES_##count "}, " a_name ", " b_name        \
                   ", p, 1, 1, " t_name ", " u_name ";}"                            \
                   : VALUES_##count(d)                                              \
                   : "l"(a), "l"(b), "r"(add), "n"(turned), "n"(b_turned))
    FOR_WIDTH(columns, ISSUE);
}

/* The same with A held in registers, numbers of 16 bits, or, if ELEMENT is 4, of tf32 and
   k8; B k by k if turned, in 16 bits. Row and column of a[e] in the warp's 16 rows:
   l / 4 + 8 (e mod 2), and as pairs or as single numbers l mod 4 + 4 (e / 2). */
#if ELEMENT == 4
    #define HELD_KIND "k8.f32.tf32.tf32"
    #define HELD_TAIL(t_name) ""
#else
    #define HELD_KIND "k16.f32." TYPE_NAME "." TYPE_NAME
    #define HELD_TAIL(t_name) ", " t_name
#endif
template <int columns, int turned = 0>
INLINE void wgmma_held(float *d, const u32 *a, u64 b, int add)
{
#define ISSUE_HELD(n, count, a0, a1, a2, a3, b_name, p_name, t_name)              \
      asm volatile("{.reg .pred p;\n setp.ne.b32 p, " p_name ", 0;\n"               \
                   "wgmma.mma_async.sync.aligned.m64n" #n HELD_KIND " {"            \
                   NAMES_##count "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b_name     \
                   ", p, 1, 1" HELD_TAIL(t_name) ";}"                               \
                   : VALUES_##count(d)                                              \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add),    \
                     "n"(turned))
    FOR_WIDTH(columns, ISSUE_HELD);
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
