/* The instructions of src/gpu/texts/ptx.cuh that ks_mma.cu, ks_mma_lanes.cu, ks_split.cu,
   ks_pair.cu, conv_mma.cu, conv_mma_cluster.cu, ks_dw_mma.cu, ks_dw_wgmma.cu, ks_dw_matrix.cu,
   nn_attention_mma.cu, ks_wgmma.cu in 16 bits and ks_wgmma_lanes.cu in f32 (both of one block,
   operands not aligned) use, in C++ for a processor:
   a block is as many threads as it has on a GPU, which take turns on one of the processor with
   those of its cluster (turns.h), and the lanes of a warp wait for each other wherever an
   instruction exchanges registers. Copies are made at once, so that what is missing of waiting
   for them does not show. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "map.h"
#include "standard.h"
#include "turns.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define GLOBAL
#define INLINE static inline
#define MEMBER inline
#define __global__
#define __shared__
#define __launch_bounds__(threads, blocks)
#define __grid_constant__
#define __align__(bytes)
#define __shfl_sync(lanes, v, lane) (v)

struct uint4 {
    u32 x, y, z, w;
};
struct uint2 {
    u32 x, y;
};
static struct index gridDim;

struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};

INLINE float2 make_float2(float x, float y) { return { x, y }; }
INLINE float4 make_float4(float x, float y, float z, float w) { return { x, y, z, w }; }
INLINE uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return { x, y, z, w }; }

/* ---- threads that wait ---- */

struct warp {
    meeting wait{ 32 };
    u32 a[32][4];                     /* registers that its lanes show each other */
    float left[16][16], right[8][16]; /* of a product, by rows and by columns */
};

struct four_warps {
    meeting wait{ 128 };
};

/* Blocks that run at a time: those of a cluster. */
#if CLUSTER > 1
enum { TOGETHER_BLOCKS = CLUSTER };
#else
enum { TOGETHER_BLOCKS = 1 };
#endif

static warp warps[TOGETHER_BLOCKS][32];
static four_warps fours[4];
static meeting cluster, block[TOGETHER_BLOCKS], group[TOGETHER_BLOCKS][16];

INLINE u32 cluster_rank() { return blockIdx.x % TOGETHER_BLOCKS; }
INLINE void cluster_sync() { cluster.arrive_and_wait(); }
INLINE warp &own_warp() { return warps[cluster_rank()][threadIdx.x / 32]; }
static inline void __syncthreads() { block[cluster_rank()].arrive_and_wait(); }
INLINE void sync_warp() { own_warp().wait.arrive_and_wait(); }

INLINE meeting &barrier_of(int number, int count)
{
    meeting &m = group[cluster_rank()][number];
    if (m.arrived && m.expected != (u32)count)
        abort();
    m.expected = (u32)count;
    return m;
}

INLINE void barrier(int number, int count)
{
    barrier_of(number, count).arrive_and_wait();
}

/* What the lane has whose number differs in these bits. */
INLINE u32 __shfl_xor_sync(u32, u32 v, int bits)
{
    int lane = threadIdx.x % 32;
    warp &w = own_warp();
    w.a[lane][0] = v;
    w.wait.arrive_and_wait();
    v = w.a[lane ^ bits][0];
    w.wait.arrive_and_wait();
    return v;
}

/* The largest of all lanes. */
INLINE u32 largest_of_warp(u32 v)
{
    warp &w = own_warp();
    w.a[threadIdx.x % 32][0] = v;
    w.wait.arrive_and_wait();
    for (int lane = 0; lane < 32; lane++)
        v = w.a[lane][0] > v ? w.a[lane][0] : v;
    w.wait.arrive_and_wait();
    return v;
}

INLINE u32 pick(int second, u32 a, u32 b) { return second ? b : a; }

/* The larger lower and the larger upper half. */
INLINE u32 __vmaxu2(u32 a, u32 b)
{
    u32 lo = (a & 0xffff) > (b & 0xffff) ? a : b, hi = a >> 16 > b >> 16 ? a : b;
    return (lo & 0xffff) | (hi & 0xffff0000);
}

INLINE void barrier_arrive(int number, int count)
{
    barrier_of(number, count).arrive();
}

INLINE int min(i64 a, i64 b) { return (int)(a < b ? a : b); }

/* ---- elements ---- */

INLINE float __uint_as_float(u32 bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

INLINE u32 __float_as_uint(float f)
{
    u32 bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

INLINE float value_of(u16 bits)
{
#ifdef TYPE_BF16
    return __uint_as_float((u32)bits << 16);
#else
    u32 wide = (bits & 0x8000) << 16 | (bits & 0x7fff) << 13;
    float f = __uint_as_float((bits & 0x7c00) == 0x7c00 ? wide | 0x7f800000 : wide);
    return (bits & 0x7c00) == 0x7c00 ? f : f * 0x1p112f;
#endif
}

INLINE u16 bf16_of(float f)
{
    u32 wide = __float_as_uint(f);
    return f != f ? 0x7fff : (u16)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

INLINE u16 bits_of(float f)
{
#ifdef TYPE_BF16
    return bf16_of(f);
#else
    _Float16 h = (_Float16)f;
    u16 bits;
    memcpy(&bits, &h, sizeof bits);
    return bits;
#endif
}

INLINE u16 half_of(u32 pair, int upper) { return (u16)(upper ? pair >> 16 : pair); }
INLINE u32 pair_of(u16 lo, u16 hi) { return lo | (u32)hi << 16; }
INLINE u32 pack_pair(float lo, float hi) { return pair_of(bits_of(lo), bits_of(hi)); }
INLINE u32 pack_bf16(float lo, float hi) { return pair_of(bf16_of(lo), bf16_of(hi)); }
INLINE u32 low_halves(u32 lo, u32 hi) { return pair_of((u16)lo, (u16)hi); }
INLINE u32 high_halves(u32 lo, u32 hi)
{
    return pair_of((u16)(lo >> 16), (u16)(hi >> 16));
}
INLINE u32 multiply_pairs(u32 a, u32 b)
{
    return pack_pair(
        value_of(half_of(a, 0)) * value_of(half_of(b, 0)),
        value_of(half_of(a, 1)) * value_of(half_of(b, 1)));
}
INLINE float low_of(u32 pair) { return value_of(half_of(pair, 0)); }
INLINE float high_of(u32 pair) { return value_of(half_of(pair, 1)); }

#define __expf    expf /* which names something else here */
#define __sincosf sincosf
INLINE float near_exp2(float x) { return exp2f(x); }
INLINE float __fdividef(float x, float y) { return x / y; }

/* Ties away from zero. */
INLINE u32 round_tf32(float f) { return (__float_as_uint(f) + 0x1000) & ~0x1fffu; }
INLINE u32 near_tf32(float f) { return round_tf32(f); }

/* What tensor cores read of a number. */
INLINE float cut_tf32(u32 bits) { return __uint_as_float(bits & ~0x1fffu); }

/* ---- shared memory: accesses that are not aligned, or outside, end the program ---- */

#define BLOCK_BYTES (227 << 10)
extern "C" {
alignas(1024) u8 memory[TOGETHER_BLOCKS * BLOCK_BYTES];
}
static u32 shared_bytes; /* of a block */

INLINE u32 shared_address(const void *p) { return (u32)((const u8 *)p - memory); }

INLINE u8 *shared_of(u32 rank, u32 at, u32 bytes)
{
    if (at % bytes || at > shared_bytes - bytes)
        abort();
    return memory + rank * BLOCK_BYTES + at;
}

INLINE u8 *shared(u32 at, u32 bytes) { return shared_of(cluster_rank(), at, bytes); }

/* Addresses of any block: its number and one are above those in it. */
INLINE u32 in_block(u32 address, u32 rank) { return address | (rank + 1) << 24; }
INLINE u8 *in_cluster(u32 at, u32 bytes)
{
    if (at >> 24 == 0 || at >> 24 > TOGETHER_BLOCKS)
        abort();
    return shared_of((at >> 24) - 1, at & 0xffffff, bytes);
}

INLINE void copy(u32 to, const void *from, u32 bytes, u32 whole)
{
    if ((uintptr_t)from % whole || bytes > whole)
        abort();
    memset(shared(to, whole), 0, whole);
    memcpy(shared(to, whole), from, bytes);
}

INLINE void copy16(u32 to, const void *from, u32 bytes) { copy(to, from, bytes, 16); }
INLINE void copy8(u32 to, const void *from, u32 bytes) { copy(to, from, bytes, 8); }
INLINE void copy4(u32 to, const void *from, u32 bytes) { copy(to, from, bytes, 4); }
INLINE void copy_commit() {}
template <int pending> INLINE void copy_wait() {}

INLINE u16 load_shared16(u32 from)
{
    u16 v;
    memcpy(&v, shared(from, 2), 2);
    return v;
}

INLINE u32 load_shared32(u32 from)
{
    u32 v;
    memcpy(&v, shared(from, 4), 4);
    return v;
}

INLINE uint4 load_once_if(const void *from, int wanted)
{
    uint4 v = {};
    if (wanted && (uintptr_t)from % 16)
        abort();
    if (wanted)
        memcpy(&v, from, 16);
    return v;
}

INLINE uint4 load_near_if(const void *from, int wanted)
{
    return load_once_if(from, wanted);
}

INLINE void store_shared16(u32 to, u32 v)
{
    u16 bits = (u16)v;
    memcpy(shared(to, 2), &bits, 2);
}

INLINE void store_shared32(u32 to, u32 v) { memcpy(shared(to, 4), &v, 4); }

INLINE void store64(void *to, uint2 v)
{
    if ((uintptr_t)to % 8)
        abort();
    memcpy(to, &v, 8);
}

INLINE void store128(void *to, uint4 v)
{
    if ((uintptr_t)to % 16)
        abort();
    memcpy(to, &v, 16);
}

INLINE void keep_largest(u32 *to, u32 v) { *to = *to > v ? *to : v; }

INLINE void store_shared64(u32 to, u32 v0, u32 v1)
{
    uint2 v = { v0, v1 };
    memcpy(shared(to, 8), &v, 8);
}

INLINE uint4 load_cluster128(u32 from)
{
    uint4 v;
    memcpy(&v, in_cluster(from, 16), 16);
    return v;
}

INLINE void store_cluster32(u32 to, u32 v) { memcpy(in_cluster(to, 4), &v, 4); }

INLINE void store_cluster64(u32 to, u32 v0, u32 v1)
{
    uint2 v = { v0, v1 };
    memcpy(in_cluster(to, 8), &v, 8);
}

INLINE void store_shared128(u32 to, uint4 v) { memcpy(shared(to, 16), &v, 16); }

INLINE uint2 load_shared64(u32 from)
{
    uint2 v;
    memcpy(&v, shared(from, 8), 8);
    return v;
}

INLINE uint4 load_shared128(u32 from)
{
    uint4 v;
    memcpy(&v, shared(from, 16), 16);
    return v;
}

/* ---- barriers in shared memory that also count bytes, and copies that they count ---- */

struct flag_state {
    u32 address, arrivals, missing, phase;
    i64 bytes;
};

static flag_state flags[64]; /* of a block */
static u32 flag_count;

/* The one at an address, or the next to be had. */
INLINE flag_state *find_flag(u32 address)
{
    u32 i = 0;
    while (i < flag_count && flags[i].address != address)
        i++;
    if (i == sizeof flags / sizeof *flags)
        abort();
    return &flags[i];
}

INLINE flag_state *known_flag(u32 address)
{
    flag_state *f = find_flag(address);
    if (f == flags + flag_count)
        abort();
    return f;
}

INLINE void flag_init(u32 flag, u32 arrivals)
{
    shared(flag, 8);
    flag_state *f = find_flag(flag);
    flag_count += f == flags + flag_count;
    *f = { flag, arrivals, arrivals, 0, 0 };
}

INLINE void flag_publish() {}

INLINE void flag_change(u32 flag, u32 arrivals, i64 bytes)
{
    flag_state *f = known_flag(flag);
    turns.waits = 0;
    f->missing -= arrivals;
    f->bytes += bytes;
    if (f->missing || f->bytes)
        return;
    f->missing = f->arrivals;
    f->phase ^= 1;
}

INLINE void flag_expect(u32 flag, u32 bytes) { flag_change(flag, 1, bytes); }
INLINE void flag_arrive(u32 flag) { flag_change(flag, 1, 0); }

INLINE void flag_wait(u32 flag, u32 phase)
{
    while (known_flag(flag)->phase == phase)
        give_turn();
}

INLINE void flag_arrive_copies(u32 flag) { flag_arrive(flag); }

INLINE void bulk_load(u32 to, const void *from, u32 bytes, u32 flag)
{
    if ((uintptr_t)from % 16 || bytes % 16)
        abort();
    for (u32 n = 0; n < bytes; n += 16)
        memcpy(shared(to + n, 16), (const u8 *)from + n, 16);
    flag_change(flag, 0, -(i64)bytes);
}

/* An element of a box to a place in shared memory; zero if it is outside of the view. */
INLINE void load_element(u32 to, const tensor_map *m, const i64 i[3])
{
    i64 from = 0;
    to ^= m->swizzle ? (to >> 7 & (u32)(m->swizzle / 16 - 1)) << 4 : 0;
    u8 *element = shared(to, (u32)m->element);
    memset(element, 0, (size_t)m->element);
    for (int a = 0; a < 3; a++) {
        if (i[a] < 0 || i[a] >= m->size[a])
            return;
        from += i[a] * m->stride[a];
    }
    memcpy(element, (const u8 *)m->memory + from * m->element, (size_t)m->element);
}

/* Not to other blocks. */
INLINE void bulk_load_3(
    u32 to, const tensor_map *m, u32 flag, int i0, int i1, int i2, u32 blocks = 0)
{
    int line = m->box[0], elements = line * m->box[1] * m->box[2];
    if (blocks || to % 128 || line * m->element % 16 ||
        (m->swizzle && line * m->element > m->swizzle))
        abort();
    for (int e = 0; e < elements; e++) {
        i64 i[] = { i0 + e % line, i1 + e / line % m->box[1],
                    i2 + e / line / m->box[1] };
        load_element(to + (u32)(e * m->element), m, i);
    }
    flag_change(flag, 0, -elements * m->element);
}

/* What else is not emulated: copies to all blocks of a cluster, boxes of four axes, and copies
   out of shared memory. */
INLINE void bulk_load_all(u32, const void *, u32, u32, u32) { abort(); }
INLINE void bulk_load_4(u32, const tensor_map *, u32, int, int, int, int, u32 = 0)
{
    abort();
}
INLINE void bulk_store_3(const tensor_map *, u32, int, int, int) { abort(); }
INLINE void bulk_store_4(const tensor_map *, u32, int, int, int, int) { abort(); }
INLINE void bulk_commit() {}
template <int pending> INLINE void bulk_wait_read() {}

/* ---- instructions of a warp, as PTX describes them ---- */

/* Element `column` of a row of 8 whose address is given. */
INLINE u16 element_at(u32 row, int column)
{
    u16 bits;
    memcpy(&bits, shared(row, 16) + column * 2, 2);
    return bits;
}

INLINE void load_matrices_as(u32 v[4], u32 from, int turned)
{
    int lane = threadIdx.x % 32, i = lane / 4, j = lane % 4 * 2;
    warp &w = own_warp();
    w.a[lane][0] = from;
    w.wait.arrive_and_wait();
    for (int m = 0; m < 4; m++)
        v[m] = turned ? pair_of(
                            element_at(w.a[m * 8 + j][0], i),
                            element_at(w.a[m * 8 + j + 1][0], i))
                      : pair_of(
                            element_at(w.a[m * 8 + i][0], j),
                            element_at(w.a[m * 8 + i][0], j + 1));
    w.wait.arrive_and_wait();
}

INLINE void load_matrices(u32 v[4], u32 from) { load_matrices_as(v, from, 0); }
INLINE void load_matrices_turned(u32 v[4], u32 from) { load_matrices_as(v, from, 1); }

INLINE u32 turn_matrix(u32 v)
{
    int lane = threadIdx.x % 32, i = lane / 4, j = lane % 4 * 2;
    warp &w = own_warp();
    w.a[lane][0] = v;
    w.wait.arrive_and_wait();
    u32 turned = pair_of(
        half_of(w.a[j * 4 + i / 2][0], i % 2),
        half_of(w.a[(j + 1) * 4 + i / 2][0], i % 2));
    w.wait.arrive_and_wait();
    return turned;
}

/* Numbers of registers in 16 bits, of a product's operands. */
INLINE void show_left16(warp &w, const u32 *a, int count)
{
    int lane = threadIdx.x % 32;
    for (int n = 0; n < 2 * count; n++)
        w.left[lane / 4 + n / 2 % 2 * 8][lane % 4 * 2 + n % 2 + n / 4 * 8] =
            value_of(half_of(a[n / 2], n % 2));
}

INLINE void show_right16(warp &w, u32 b, int number)
{
    int lane = threadIdx.x % 32;
    for (int n = 0; n < 2; n++)
        w.right[lane / 4][lane % 4 * 2 + n + number * 8] = value_of(half_of(b, n));
}

/* Numbers of registers in tf32. */
INLINE void show_left32(warp &w, const u32 *a)
{
    int lane = threadIdx.x % 32;
    for (int n = 0; n < 4; n++)
        w.left[lane / 4 + n % 2 * 8][lane % 4 + n / 2 * 4] = cut_tf32(a[n]);
}

INLINE void show_right32(warp &w, u32 b0, u32 b1)
{
    int lane = threadIdx.x % 32;
    w.right[lane / 4][lane % 4] = cut_tf32(b0);
    w.right[lane / 4][lane % 4 + 4] = cut_tf32(b1);
}

/* When all lanes have shown theirs. */
INLINE void add_products(warp &w, float *d, int depth)
{
    int lane = threadIdx.x % 32;
    w.wait.arrive_and_wait();
    for (int e = 0; e < 4; e++) {
        const float *left = w.left[lane / 4 + e / 2 * 8];
        const float *right = w.right[lane % 4 * 2 + e % 2];
        float sum = d[e];
        for (int k = 0; k < depth; k++)
            sum += left[k] * right[k];
        d[e] = sum;
    }
    w.wait.arrive_and_wait();
}

INLINE void mma16(float *d, const u32 *a, u32 b0, u32 b1)
{
    warp &w = own_warp();
    show_left16(w, a, 4);
    show_right16(w, b0, 0);
    show_right16(w, b1, 1);
    add_products(w, d, 16);
}

INLINE void mma8(float *d, const u32 *a, u32 b)
{
    warp &w = own_warp();
    show_left16(w, a, 2);
    show_right16(w, b, 0);
    add_products(w, d, 8);
}

INLINE void mma8(float *d, const u32 *a, u32 b0, u32 b1)
{
    warp &w = own_warp();
    show_left32(w, a);
    show_right32(w, b0, b1);
    add_products(w, d, 8);
}

INLINE void mma8_first(float *d, const u32 *a, u32 b0, u32 b1)
{
    d[0] = d[1] = d[2] = d[3] = 0;
    mma8(d, a, b0, b1);
}

/* ---- instructions of four warps: each makes its 16 rows, at once ---- */

INLINE void fence_async() {}
INLINE void wgmma_fence() {}
INLINE void wgmma_commit() {}
template <int pending> INLINE void wgmma_wait() {}
template <int count> INLINE void registers_drop() {}
template <int count> INLINE void registers_take() {}
INLINE u64 wgmma_matrix(u32 address) { return address / 16; }
INLINE u64 wgmma_pieces(u32 address) { return address / 16 | 1ull << 62; }
INLINE u64 wgmma_segments(u32 address, u32 bytes)
{
    return address / 16 | (u64)(bytes / 16) << 32;
}
constexpr int wgmma_columns(int columns) { return columns / 16 * 16; }

/* Where number (j, k) of the right operand lies. */
INLINE u32 right_at(u64 matrix, int j, int k)
{
    u32 from = (u32)matrix * 16;
    if (matrix >> 62) /* pieces of 16 bytes */
        return from + j / 8 * 256 + k / 4 * 128 + j % 8 * 16 + k % 4 * 4;
    u32 at = from + j * 128 + k * 4; /* and the 128-byte swizzle */
    return at ^ at / 128 % 8 * 16;
}

/* The sums of a lane: `left` has its two rows, right(k, j) is number (k, j). */
template <int columns, int depth, class operand>
INLINE void add_wide_products(
    float *d, const float *const left[2], operand right, int add)
{
    int lane = threadIdx.x % 32;
    for (int e = 0; e < columns / 2; e++) {
        int j = e / 4 * 8 + lane % 4 * 2 + e % 2;
        float sum = add ? d[e] : 0;
        for (int k = 0; k < depth; k++)
            sum += left[e % 4 / 2][k] * right(k, j);
        d[e] = sum;
    }
    fours[threadIdx.x / 128].wait.arrive_and_wait();
}

#if ELEMENT == 4
template <int columns> INLINE void wgmma_held(float *d, const u32 *a, u64 b, int add)
{
    int row = threadIdx.x % 32 / 4;
    warp &w = own_warp();
    show_left32(w, a);
    w.wait.arrive_and_wait();
    const float *left[] = { w.left[row], w.left[row + 8] };
    add_wide_products<columns, 8>(
        d, left,
        [=](int k, int j) { return cut_tf32(load_shared32(right_at(b, j, k))); }, add);
}
#endif

/* Number (k, j) of a turned operand. */
INLINE float turned_at(u64 segments, int k, int j)
{
    u32 at = (u32)segments * 16 + (u32)(segments >> 32) * 16 * (j / 64);
    at += k * 128 + j % 64 * 2;
    at ^= at / 128 % 8 * 16;
    return value_of(half_of(load_shared32(at & ~3u), at & 2));
}

/* Number (j, k) of one whose rows of 128 bytes are those of its matrix. */
INLINE float straight_at(u64 matrix, int k, int j)
{
    u32 at = (u32)matrix * 16 + j * 128 + k * 2;
    at ^= at / 128 % 8 * 16;
    return value_of(half_of(load_shared32(at & ~3u), at & 2));
}

template <int columns, int turned, int b_turned = 0>
INLINE void wgmma(float *d, u64 a, u64 b, int add)
{
    auto left = turned ? turned_at : straight_at;
    auto right = b_turned ? turned_at : straight_at;
    int row = threadIdx.x % 32 / 4 + threadIdx.x / 32 % 4 * 16;
    float own[2][16];
    for (int n = 0; n < 2 * 16; n++)
        own[n / 16][n % 16] = left(a, n % 16, row + n / 16 * 8);
    const float *rows[] = { own[0], own[1] };
    add_wide_products<columns, 16>(
        d, rows, [=](int k, int j) { return right(b, k, j); }, add);
}

#if ELEMENT == 2
template <int columns, int turned>
INLINE void wgmma_held(float *d, const u32 *a, u64 b, int add)
{
    static_assert(turned);
    int row = threadIdx.x % 32 / 4;
    warp &w = own_warp();
    show_left16(w, a, 4);
    w.wait.arrive_and_wait();
    const float *left[] = { w.left[row], w.left[row + 8] };
    add_wide_products<columns, 16>(
        d, left, [=](int k, int j) { return turned_at(b, k, j); }, add);
}
#endif

/* Four 8 x 8 matrices, in rows of 16 bytes whose places the threads know. */
INLINE void store_matrices(u32 to, u32 v0, u32 v1, u32 v2, u32 v3)
{
    int lane = threadIdx.x % 32;
    warp &w = own_warp();
    u32 v[4] = { v0, v1, v2, v3 };
    w.a[lane][0] = to;
    w.wait.arrive_and_wait();
    for (int m = 0; m < 4; m++)
        store_shared32(w.a[m * 8 + lane / 4][0] + lane % 4 * 4, v[m]);
    w.wait.arrive_and_wait();
}

INLINE void store_matrices_turned(u32 to, u32 v0, u32 v1, u32 v2, u32 v3)
{
    store_matrices(
        to, turn_matrix(v0), turn_matrix(v1), turn_matrix(v2), turn_matrix(v3));
}

/* ---- launching ---- */

/* Makes all blocks of a kernel, a cluster after the other, each with other bytes in its shared
   memory; threads take turns from the first to the last, or from the last to the first. */
template <class kernel_type>
static void run_blocks(u32 blocks, u32 threads, u32 bytes, kernel_type kernel)
{
    static kernel_type *made;
    made = &kernel;
    gridDim.x = blocks;
    shared_bytes = bytes;
    for (u32 first = 0; first < blocks; first += TOGETHER_BLOCKS) {
        memset(memory, 0x7f, sizeof memory);
        flag_count = 0;
        memset(group, 0, sizeof group);
        cluster = { TOGETHER_BLOCKS * threads };
        for (meeting &one : block)
            one = { threads };
        take_turns(first, TOGETHER_BLOCKS, threads, first / TOGETHER_BLOCKS % 2, [] {
            (*made)();
        });
    }
}
