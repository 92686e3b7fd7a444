/* Adds up parts, several jobs at once:

       to[i s0 + r s1 + k s2 + j s3] = sum over slabs of part[slab][i][r][k][j],

   conjugated if asked. If dense, parts are [slab][i][r][j][k][j'], and those with j = j' are
   taken. Parts have type S, or X if `narrow` is odd. Sums have type S, or are rounded to X if
   `narrow` is 2 or 3.

   In lines, a thread adds up `per` neighbouring numbers over a share of the slabs; `per` is 1,
   or the V numbers of 16 bytes if V divides the count. `ways` threads, a power of two, have
   neighbouring slabs each, and one of them adds up their sums, all in order.

   In tiles, of `wide` lanes j, a power of two, by 1,024 / wide places (r, k), parts are
   [slab][i][j][r][k]: they go through shared memory, so that neighbouring threads read
   neighbouring places and write neighbouring lanes.

   A job's `blocks` blocks of threads, which take tiles or lines in turn, begin at `first`.
   gpu/run/dw_run.c fills the table. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

#define AT_ONCE    8    /* loads that wait for memory together */
#define NUMBERS    1024 /* of a tile, 2^10 */
#define MOST_LANES 32

typedef struct job {
    const GLOBAL void *part;
    GLOBAL void *to;
    int64 slabs, a, b, c, d, s0, s1, s2, s3;
    int first, blocks, wide_log2, per, ways, conjugated, dense, narrow;
} job;

typedef struct jobs {
    int64 count;
    job of[17];
} jobs;

/* Numbers of a part, and somewhat more: WIDE says that there are more than 2^30. */
#if WIDE
typedef int64 INDEX;
#else
typedef unsigned INDEX;
#endif

FN SV zeros(void)
{
    SV v;
    UNROLL
    for (int e = 0; e < V; e++)
        v.v[e] = zero();
    return v;
}

FN SV part_at(const GLOBAL void *RESTRICT part, int64 n, int per, int narrow)
{
    SV v = zeros();
    if (per == V && V > 1)
        return *(const GLOBAL SV *)((const GLOBAL S *)part + n);
    v.v[0] = narrow & 1 ? load(((const GLOBAL X *)part)[n])
                          : ((const GLOBAL S *)part)[n];
    return v;
}

FN SV sum_of(const GLOBAL job *j, int64 n, int slabs, int64 stride)
{
    SV sum = zeros();
    int per = j->per, narrow = j->narrow;
    for (int slab = 0; slab < slabs; slab += AT_ONCE) {
        SV some[AT_ONCE];
        UNROLL
        for (int u = 0; u < AT_ONCE; u++)
            some[u] = slab + u < slabs ? part_at(j->part, n + u * stride, per, narrow)
                                       : zeros();
        UNROLL
        for (int u = 0; u < AT_ONCE; u++)
            UNROLL
            for (int e = 0; e < V; e++)
                sum.v[e] = plus(sum.v[e], some[u].v[e]);
        n += AT_ONCE * stride;
    }
    return sum;
}

FN void put(const GLOBAL job *t, int64 n, S sum)
{
    if (t->narrow & 2)
        ((GLOBAL X *)t->to)[n] = store(sum);
    else
        ((GLOBAL S *)t->to)[n] = sum;
}

FN void put_line(const GLOBAL job *t, INDEX e, INDEX size, SV sum)
{
    INDEX B = (INDEX)t->b, C = (INDEX)t->c, D = (INDEX)t->d;
    INDEX line = e / D, j = e - line * D;
    INDEX row = line / C, k = line - row * C, i = row / B, r = row - i * B;
    if (e >= size)
        return;
    UNROLL
    for (int n = 0; n < V; n++) {
        if (n < t->per)
            put(t, j * t->s3 + k * t->s2 + r * t->s1 + i * t->s0,
                t->conjugated ? conjugate(sum.v[n]) : sum.v[n]);
        j++;
        if (j == D)
            j = 0, k++;
        if (k == C)
            k = 0, r++;
        if (r == B)
            r = 0, i++;
    }
}

FN void add_lines(const GLOBAL job *t, int64 number, LOCAL SV *sums)
{
    INDEX C = (INDEX)t->c, D = (INDEX)t->d, size = (INDEX)(t->a * t->b * t->c * t->d);
    int width = THREADS / t->ways, way = THREAD / width;
    int share = (int)t->slabs / t->ways;
    int more = way - (t->ways - (int)t->slabs % t->ways);
    int64 first = way * share + (more > 0 ? more : 0);
    int64 stride = t->dense ? size * t->d : size;
    INDEX step = (INDEX)width * t->per;
    for (INDEX block = (INDEX)number * step; block < size; block += t->blocks * step) {
        INDEX e = block + THREAD % width * t->per, line = e / D, j = e - line * D;
        INDEX row = line / C, k = line - row * C;
        int64 from = t->dense ? ((int64)row * D + j) * C * D + k * D + j : e;
        from += first * stride;
        sums[THREAD] = e < size ? sum_of(t, from, share + (more >= 0), stride) : zeros();
        BARRIER();
        SV sum = sums[THREAD];
        for (int w = 1; w < t->ways && way == 0; w++)
            UNROLL
            for (int n = 0; n < V; n++)
                sum.v[n] = plus(sum.v[n], sums[w * width + THREAD].v[n]);
        if (way == 0)
            put_line(t, e, size, sum);
        BARRIER();
    }
}

FN S sum_of_slabs(const GLOBAL S *RESTRICT part, int64 slabs, int64 stride)
{
    S sum = zero();
    for (int64 slab = 0; slab < slabs; slab++)
        sum = plus(sum, part[slab * stride]);
    return sum;
}

FN void add_tiles(const GLOBAL job *t, int64 number, LOCAL S *tile)
{
    int wide = 1 << t->wide_log2, tall = NUMBERS >> t->wide_log2, pitch = tall + 1;
    int64 d = t->d, size = t->b * t->c, across = (d + wide - 1) >> t->wide_log2;
    int64 down = (size + tall - 1) / tall;
    for (int64 n = number; n < t->a * across * down; n += t->blocks) {
        int64 i = n / down / across, lane = n / down % across * wide, at = n % down * tall;
        const GLOBAL S *from = (const GLOBAL S *)t->part + (i * d + lane) * size + at;
        UNROLL
        for (int u = 0; u < NUMBERS; u += THREADS) {
            int e = (u + THREAD) & (tall - 1), j = (u + THREAD) >> (10 - t->wide_log2);
            if (lane + j < d && at + e < size)
                tile[j * pitch + e] =
                    sum_of_slabs(from + j * size + e, t->slabs, t->a * d * size);
        }
        BARRIER();
        UNROLL
        for (int u = 0; u < NUMBERS; u += THREADS) {
            int j = (u + THREAD) & (wide - 1), e = (u + THREAD) >> t->wide_log2;
            unsigned place = (unsigned)(at + e), r = place / (unsigned)t->c;
            if (lane + j < d && at + e < size)
                put(t,
                    i * t->s0 + r * t->s1 + (place - r * t->c) * t->s2 +
                        (lane + j) * t->s3,
                    tile[j * pitch + e]);
        }
        BARRIER();
    }
}

KERNEL reduce(TABLE(jobs) t)
{
    IN_BLOCK SV sums[THREADS];
    IN_BLOCK S tile[NUMBERS + MOST_LANES];
    const GLOBAL job *j = WHOLE(t)->of;
    for (int i = 1; i < WHOLE(t)->count && BLOCK >= j[1].first; i++)
        j++;
    if (j->wide_log2 < 0)
        add_lines(j, BLOCK - j->first, sums);
    else
        add_tiles(j, BLOCK - j->first, tile);
}
