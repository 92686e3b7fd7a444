/* Gradients of filters by tensor cores: sums over the windows of a filter, of the spectrum of dy
   times the conjugate spectrum of x, in f32. There are so many WARPS that each has few blocks p0,
   whose sums stay in registers.

       LOAD  0: rows of numbers, whose windows are one row of points (conv_mma.cu)
             1: points of both, which conv_mma.cu made, and behind them their peaks: a task is one
                row of them

   A member of a block has parts of filters one after another, and for each part its windows one
   after another. It loads x and dy, each to its own D, and transforms both to blocks. Sums are
   computed in this order, so they have the same bits on every call. They are
   sums[filter][part][row][COLUMNS], in the order of registers (conv_lanes.cuh) and with the scale
   of orthogonal transforms. */
// SPDX-License-Identifier: Apache-2.0
#define SUMS 1
#define STORE 0
#define FORWARD 1
#define INVERSE 1
#include "conv_mma_numbers.cuh"

#include "conv_mma_points.cuh"

#include "conv_mma_part.cuh"

#define BLOCKS_EACH ((ROOT + WARPS - 1) / WARPS) /* of a warp */

/* The numbers of a block that a lane has. */
typedef struct lane_sums {
    float re[8], im[8];
} lane_sums;

/* What undoes the scales of products. */
INLINE float scale_of_products(const scales *x, const scales *dy)
{
    float first = x->of[0] * dy->of[0], second = x->of[1] * dy->of[1];
    float both = first + second, larger = first > second ? first : second;
    return both == both ? larger : both;
}

INLINE void add_products(
    lane_sums *sum, const complex_tile *x, const complex_tile *dy, float scale)
{
    UNROLL for (int i = 0; i < 8; i++)
    {
        float a = dy->re[i / 4][i % 4] * scale, b = dy->im[i / 4][i % 4] * scale;
        float c = x->re[i / 4][i % 4], d = x->im[i / 4][i % 4];
        sum->re[i] += a * c;
        sum->re[i] += b * d;
        sum->im[i] += b * c;
        sum->im[i] -= a * d;
    }
}

#if LOAD
/* Loads both rows of points, and finds what undoes their scales. */
INLINE void load_both(
    const work *x, const work *dy, const X *const from[4], u32 most, scales back[2])
{
    uint4 words[2][EACH];
    read_points(x, words[0]);
    read_points(dy, words[1]);
    scales_of(x->peaks, &back[0]);
    scales_of(dy->peaks, &back[1]);
    if (PAIR)
        level_scales(back[0].of, &back[1]);
    meet_all(x); /* nobody reads D any more */
    put_chunks(x, words[0]);
    put_chunks(dy, words[1]);
}
#else
/* Loads both rows of a window to D. If both are plain and sums leave enough registers, both are
   read before either is awaited. */
INLINE void load_both(
    const work *x, const work *dy, const X *const from[4], u32 most, scales back[2])
{
    uint4 words[2][EACH];
    work own = *dy;
    int plain = BLOCKS_EACH <= 2 && is_plain(x, from[0], from[1]) &&
                is_plain(dy, from[2], from[3]);
    if (plain) {
        read_row(x, from[0], words[0]);
        read_row(dy, from[2], words[1]);
        put_row(x, words[0], most, &back[0]);
    } else {
        load_rows(x, from[0], from[1], most, &back[0]);
    }
    own.beside[0] = back[0].of[0];
    own.beside[1] = back[0].of[1];
    if (plain)
        put_row(&own, words[1], most + WARPS * 8, &back[1]);
    else
        load_rows(&own, from[2], from[3], most + WARPS * 8, &back[1]);
}
#endif

INLINE void add_window(
    const work *x, const work *dy, const X *const from[4], u32 most,
    lane_sums sum[BLOCKS_EACH])
{
    scales back[2] = {};
    inner_way way;
    load_both(x, dy, from, most, back);
    float scale = scale_of_products(&back[0], &back[1]);
    meet_all(x);
    if (ROOT > 1 && !AT_ONCE) {
        first_forward(x);
        first_forward(dy);
        meet_all(x);
    }
    UNROLL for (int i = 0; i < BLOCKS_EACH; i++)
    {
        int p0 = x->warp + i * WARPS;
        int is_idle = ROOT % WARPS && p0 >= ROOT;
        if (is_idle || is_left_out((LOAD ? kept_row(x->task) : 0) + ROWS * p0))
            continue;
        complex_tile u = inner_forward(x, p0, &way), v = inner_forward(dy, p0, &way);
        add_products(&sum[i], &u, &v, scale);
    }
}

/* From or to where the numbers of a part lie, two at a time. */
INLINE void take_sums(const work *k, lane_sums sum[BLOCKS_EACH], const float4 *from)
{
    UNROLL for (int i = 0; i < BLOCKS_EACH; i++)
    {
        int p0 = k->warp + i * WARPS;
        UNROLL for (int n = 0; n < 4 && (ROOT % WARPS == 0 || p0 < ROOT); n++)
        {
            float4 two = from[((p0 * 2 + n / 2) * 32 + k->lane) * 2 + n % 2];
            sum[i].re[2 * n] = two.x, sum[i].im[2 * n] = two.y;
            sum[i].re[2 * n + 1] = two.z, sum[i].im[2 * n + 1] = two.w;
        }
    }
}

INLINE void put_sums(const work *k, const lane_sums sum[BLOCKS_EACH], float4 *to)
{
    UNROLL for (int i = 0; i < BLOCKS_EACH; i++)
    {
        int p0 = k->warp + i * WARPS;
        if (ROOT % WARPS && p0 >= ROOT)
            continue;
        UNROLL for (int n = 0; n < 4; n++)
        {
            const float *re = sum[i].re + 2 * n, *im = sum[i].im + 2 * n;
            to[((p0 * 2 + n / 2) * 32 + k->lane) * 2 + n % 2] =
                make_float4(re[0], im[0], re[1], im[1]);
        }
    }
}

/* LOAD 1: window number `window` of the launch, whose points and peaks are. */
INLINE void find_points(work *k, const X *points, const X *peaks, int64 window)
{
    k->points = (char *)points + window * WINDOW_BYTES;
    k->peaks = (u32 *)peaks + window * 2;
}

/* Sums over the windows of filters first, ..., first + filters - 1; each filter has `each`
   windows. LOAD 1: the factors are peaks. is_more: they are added to what is there. */
extern "C" __global__ void __launch_bounds__(TEAM *MEMBERS, RESIDENT) conv(
    const X *x, const X *x_factor, const X *dy, const X *dy_factor, float4 *sums,
    const uint4 *constants, int64 first, int64 filters, int64 parts, int64 each,
    int64 length, int64 batch, int64 channels, int64 windows, int64 step, int64 lead,
    int64 before, int64 after, const packed_window *packed, int flags, int is_more)
{
    extern __shared__ u8 memory[];
    work k = {};
    const u32 near = shared_address(memory), own_memory = near + (NEAR ? TABLES * 16 : 0);
    for (int i = threadIdx.x; NEAR && i < TABLES; i += TEAM * MEMBERS)
        store_shared128(near + i * 16, constants[i]);
    __syncthreads();
    k.near = near + threadIdx.x % 32 * 16;
    k.r = { length, batch, channels, windows, step, lead, before, after, packed, flags };
    k.tables = constants + threadIdx.x % 32;
    k.member = threadIdx.x / TEAM;
    k.thread = threadIdx.x % TEAM;
    k.warp = k.thread / 32;
    k.lane = k.thread % 32;
    k.d = own_memory + k.member * 2 * OWN_BYTES;
    u32 most = own_memory + MEMBERS * 2 * OWN_BYTES + k.member * 2 * WARPS * 8;
    const int rows = LOAD ? KEPT_ROWS : 1, apart = (int)gridDim.x * MEMBERS;
    const int all = (int)(filters * parts) * rows;
    ROLL for (int number = blockIdx.x * MEMBERS + k.member; number < all; number += apart)
    {
        int64 item = number / rows, filter = divide(item, parts), part = item - filter * parts;
        k.task = number % rows;
        float4 *to = sums + item * (WINDOW / 2) +
                     (LOAD ? (int64)kept_row(k.task) * (COLUMNS / 2) : 0);
        int64 begin = divide(each * part, parts);
        int left = (int)(divide(each * (part + 1), parts) - begin);
        lane_sums sum[BLOCKS_EACH] = {};
        int64 window = filter * each + begin;
        if (is_more)
            take_sums(&k, sum, to);
        if (!LOAD)
            k.w = first_window(&k.r, first * each + window);
        ROLL for (; left > 0; left--, window++)
        {
            work of_dy = k;
            of_dy.d += OWN_BYTES;
            if (LOAD) {
                find_points(&k, x, x_factor, window);
                find_points(&of_dy, dy, dy_factor, window);
                add_window(&k, &of_dy, 0, most, sum);
                continue;
            }
            of_dy.w.there = k.w.made;
            const X *const from[] = {
                x + beside(&k.r, &k.w, GROUPED_X),
                x_factor + beside(&k.r, &k.w, GROUPED_X_FACTOR),
                dy + beside(&k.r, &k.w, GROUPED_Y(0)),
                dy_factor + beside(&k.r, &k.w, GROUPED_Y_FACTOR(0))
            };
            add_window(&k, &of_dy, from, most, sum);
            next_window(&k.r, &k.w);
        }
        put_sums(&k, sum, to);
    }
}
