/* y = K x + bias for few batch columns, on vector units: bound by the weights, which
   stream past once for NS columns.

   A block of threads makes 32 outputs o = r d + j of one block i, a thread of each warp one
   of them; warps take the groups of KV columns k in turn, a load of weights each, and
   their sums are added up in the order of the warps.

       w[i][outputs / 32][columns / KV][32][KV], type X, zeros past the last output and
       column */
// SPDX-License-Identifier: Apache-2.0
#define THREADS (32 * WARPS)
#define DEPTH   (NS * KV > 16 ? 1 : NS * KV > 8 ? 2 : 4) /* groups on their way */
#include "simt.h"

typedef struct ALIGNED(KV * sizeof(X)) {
    X v[KV];
} XV;

KERNEL ks(
    const X *RESTRICT x, const X *RESTRICT w, const S *RESTRICT bias, X *RESTRICT y,
    int64 batch, int activation, int64 a, int64 b, int64 c, int64 d)
{
    LOCAL S part[WARPS * NS * 32];
    int lane = THREAD % 32, warp = THREAD / 32;
    int64 tiles = (b * d + 31) / 32, groups = (c + KV - 1) / KV;
    int64 passes = (batch + NS - 1) / NS;
    int64 stride_k = LAST ? d * batch : d, stride_s = LAST ? 1 : a * c * d;
    for (int64 n = BLOCK; n < a * tiles * passes; n += BLOCKS) {
        int64 tile = n / passes, i = tile / tiles, s0 = n % passes * NS;
        int64 o = tile % tiles * 32 + lane;
        const X *xt = x + (i * c * d + o % d) * (LAST ? batch : 1) + s0 * stride_s;
        const X *wt = w + (tile * groups * 32 + lane) * KV;
        int last = batch - s0 < NS ? (int)(batch - s0) - 1 : NS - 1;
        S sum[NS];
        UNROLL
        for (int s = 0; s < NS; s++)
            sum[s] = zero();
#pragma unroll DEPTH
        for (int64 g = warp; g < groups; g += WARPS) {
            XV wv = *(const XV *)(wt + g * (32 * KV));
            UNROLL
            for (int v = 0; v < KV; v++) {
                const X *xk = xt + (g * KV + v) * stride_k;
                UNROLL
                for (int s = 0; s < NS; s++) {
                    S value = g * KV + v < c ? load(xk[(s < last ? s : last) * stride_s])
                                             : zero();
                    sum[s] = multiply_add(load(wv.v[v]), value, sum[s]);
                }
            }
        }
        UNROLL
        for (int s = 0; s < NS; s++)
            part[(warp * NS + s) * 32 + lane] = sum[s];
        BARRIER();
        if (warp <= last && o < b * d) { /* a warp finishes a column, or two */
            for (int s = warp; s <= last; s += WARPS) {
                S total = part[s * 32 + lane];
                for (int p = 1; p < WARPS; p++)
                    total = plus(total, part[(p * NS + s) * 32 + lane]);
                int64 row = i * b * d + o;
                total = bias ? plus(total, bias[row]) : total;
                y[LAST ? row * batch + s0 + s : (s0 + s) * (a * b * d) + row] =
                    store(activate(total, activation));
            }
        }
        BARRIER();
    }
}
