/* y = residual + activation(K x + bias) for few batch columns, on vector units. The weights,
   which are read once for NS columns, bound the time.

   A block of threads computes OUTS outputs o = r d + j of one block i. The 32 threads of a warp
   take OUTS outputs by SHARES groups of KV columns k, with one load of weights each. Warps take
   such steps in turn, and all sums of an output are added up in one order.

       w[i][outputs / OUTS][step][SHARES][OUTS][KV], type X, zeros past the last output
       and column

   READS and WRITES are those of ks_simt.cu. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS (32 * WARPS)
#define SHARES  (32 / OUTS)
#define SUMS    (WARPS * SHARES) /* parts of each output */
#define TERMS   (NS * KV * (COMPLEX ? 2 : 1))
#define DEPTH   (NS == 8 || TERMS > 16 || READS ? 1 : TERMS > 8 ? 2 : 4) /* on their way */
#include "simt.h"

typedef struct ALIGNED(KV * sizeof(X)) {
    X v[KV];
} XV;

enum { PARTIAL, COMPLETE, NEAR };

/* Where columns k lie: stride_k apart from xs[s] on or, with READS, `row` apart from there on,
   by rows of an order whose places are stride_k apart. */
typedef struct source {
    const GLOBAL X *xs[NS];
    const GLOBAL int64 *order;
    int64 stride_k, row;
} source;

FN X column(const source *from, int s, int64 k)
{
    int64 at = k * from->stride_k;
    if (!READS)
        return from->xs[s][at];
    int row = (int)from->order[at];
    return row < 0 ? store(zero()) : from->xs[s][row * from->row];
}

/* KV columns k from k0 on. `how`, a constant: they may reach past c; none does; and they
   follow each other, aligned. */
FN void add_group(
    const XV *wv, const source *from, int64 c, int64 k0, int how, S *sum)
{
    UNROLL
    for (int s = 0; s < NS; s++) {
        XV xv;
        if (how == NEAR)
            xv = *(const GLOBAL XV *)(from->xs[s] + k0);
        else
            UNROLL
            for (int v = 0; v < KV; v++)
                xv.v[v] = how == COMPLETE || k0 + v < c ? column(from, s, k0 + v)
                                                     : store(zero());
        UNROLL
        for (int v = 0; v < KV; v++)
            sum[s] = multiply_add(load(wv->v[v]), load(xv.v[v]), sum[s]);
    }
}

/* Adds every WARPS-th step before `end`, without branches, so that loads of DEPTH steps are in
   flight. */
FN void add_steps(
    const GLOBAL X *RESTRICT wt, const source *from, int64 c, int warp, int64 end, int share,
    int how, S *sum)
{
#pragma unroll DEPTH
    for (int64 step = warp; step < end; step += WARPS) {
        XV wv = *(const GLOBAL XV *)(wt + step * (32 * KV));
        add_group(&wv, from, c, (step * SHARES + share) * KV, how, sum);
    }
}

KERNEL ks(
    const GLOBAL X *RESTRICT x, const GLOBAL X *RESTRICT w,
    const GLOBAL S *RESTRICT bias, const GLOBAL X *residual, GLOBAL X *y, int64 batch,
    int activation, int64 a, int64 b, int64 c, int64 d,
    const GLOBAL int64 *RESTRICT x_order, const GLOBAL int64 *RESTRICT y_order,
    int64 x_rows, int64 y_rows)
{
    IN_BLOCK S part[SUMS * NS * OUTS];
    int lane = THREAD % 32, warp = THREAD / 32, share = lane / OUTS, out = lane % OUTS;
    int64 tiles = (b * d + OUTS - 1) / OUTS, groups = (c + KV - 1) / KV;
    int64 steps = (groups + SHARES - 1) / SHARES, passes = (batch + NS - 1) / NS;
    int64 stride_s = LAST ? 1 : READS ? x_rows : a * c * d;
    source from;
    from.row = LAST ? batch : 1;
    from.stride_k = READS ? d : d * from.row;
    for (int64 n = BLOCK; n < a * tiles * passes; n += BLOCKS) {
        int64 tile = n / passes, i = tile / tiles, s0 = n % passes * NS;
        int64 o = tile % tiles * OUTS + out;
        const GLOBAL X *wt = w + (tile * steps * 32 + lane) * KV;
        int last = batch - s0 < NS ? (int)(batch - s0) - 1 : NS - 1;
        int near = !READS && NS < 8 && from.stride_k == 1;
        int64 first = i * c * d + o % d;
        from.order = READS ? x_order + first : x_order;
        S sum[NS];
        UNROLL
        for (int s = 0; s < NS; s++) {
            sum[s] = zero();
            from.xs[s] = x + (READS ? 0 : first * from.row) +
                         (s0 + (s < last ? s : last)) * stride_s;
            near &= (int64)from.xs[s] % (int64)sizeof(XV) == 0;
        }
        int64 whole = c / (SHARES * KV);
        if (near)
            add_steps(wt, &from, c, warp, whole, share, NEAR, sum);
        else
            add_steps(wt, &from, c, warp, whole, share, COMPLETE, sum);
        if (whole < steps && whole % WARPS == warp) {
            XV wv = *(const GLOBAL XV *)(wt + whole * (32 * KV));
            add_group(&wv, &from, c, (whole * SHARES + share) * KV, PARTIAL, sum);
        }
        UNROLL
        for (int s = 0; s < NS; s++)
            part[((warp * SHARES + share) * NS + s) * OUTS + out] = sum[s];
        BARRIER();
        for (int t = THREAD; t < NS * OUTS; t += THREADS) {
            int s = t / OUTS;
            int64 row = tile % tiles * OUTS + t % OUTS;
            if (s > last || row >= b * d)
                continue;
            S total = part[t];
            UNROLL
            for (int p = 1; p < SUMS; p++)
                total = plus(total, part[p * (NS * OUTS) + t]);
            row += i * b * d;
            const GLOBAL S *own = bias ? bias + row : bias;
            if (WRITES && (row = y_order[row]) < 0)
                continue;
            int64 to = LAST ? row * batch + s0 + s
                            : (s0 + s) * (WRITES ? y_rows : a * b * d) + row;
            y[to] = end(total, own, activation, residual ? residual + to : residual);
        }
        BARRIER();
    }
}
