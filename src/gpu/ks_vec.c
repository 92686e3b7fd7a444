/* The portable rows for few batch columns: weights stream past, split over warps. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#include <math.h>
#include <string.h>

#define MOST_BLOCKS ((int64_t)1 << 30)
#define LANES       32
#define ROUND       1.2e-6 /* seconds from tile to tile */

enum { NS = 1, WARPS = 3, BYTES = 4 };

static const int *size_of(const kernel *k) { return dn_gpu_code(k)->size; }

/* Columns k whose weights a thread loads at once. */
static int64_t group_of(const kernel *k)
{
    return size_of(k)[BYTES] / (int64_t)danaus_dtype_size(k->dtype);
}

static int64_t tiles_of(danaus_pattern p)
{
    return p.a * dn_gpu_parts(p.b * p.d, LANES);
}

static int64_t passes_of(const kernel *k, int64_t batch)
{
    return dn_gpu_parts(batch, size_of(k)[NS]);
}

int dn_vec_fits(const kernel *k, const problem *p) { return dn_is_one_factor(k, p); }

/* A multiprocessor streams 45 GB/s of weights at best, and makes so many multiply-adds
   with their loads and conversions. Measured on an H200. */
double dn_vec_cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const gpu_facts *f = dn_gpu_facts(dev);
    double weights = (double)dn_vec_bytes(k, p),
           passes = (double)passes_of(k, p->batch);
    double tiles = (double)tiles_of(p->pattern), clock = f->flops / f->units / 256;
    double rounds = ceil(tiles * passes / f->units), each = weights / tiles;
    double work = dn_is_complex(p->dtype) ? 24 : 8;
    double terms = each / (double)danaus_dtype_size(p->dtype) * size_of(k)[NS];
    double stream = fmax(rounds * each / 45e9, weights / (0.8 * f->bandwidth));
    return 4e-6 + fmax(stream, rounds * terms * work / 100 / clock) +
           (rounds - 1) * ROUND;
}

size_t dn_vec_bytes(const kernel *k, const problem *p)
{
    return (size_t)(tiles_of(p->pattern) * dn_gpu_parts(p->pattern.c, group_of(k))) *
           LANES * (size_t)size_of(k)[BYTES];
}

/* [i][tile][group][output][column], zeros past the last output and column. */
void dn_vec_pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    danaus_pattern q = p->pattern;
    int64_t group = group_of(k), tiles = dn_gpu_parts(q.b * q.d, LANES);
    char *to = packed;
    memset(packed, 0, dn_vec_bytes(k, p));
    for (int64_t i = 0; i < q.a; i++)
        for (int64_t t = 0; t < tiles; t++)
            for (int64_t c = 0; c < q.c; c += group)
                for (int64_t o = t * LANES; o < (t + 1) * LANES;
                     o++, to += size_of(k)[BYTES]) {
                    int64_t count = q.c - c < group ? q.c - c : group;
                    if (o < q.b * q.d)
                        dn_gpu_gather(
                            &w,
                            i * w.s[0] + o / q.d * w.s[1] + c * w.s[2] +
                                o % q.d * w.s[3],
                            w.s[2], count, p->dtype, to);
                }
}

void dn_vec_defines(const kernel *k, const problem *p, int variant, text *to)
{
    (void)variant;
    dn_text(to, "#define TYPE_%s 1\n", danaus_dtype_name(p->dtype));
    dn_text(to, "#define LAST %d\n", p->layout == DANAUS_BATCH_LAST);
    dn_text(
        to, "#define NS %d\n#define KV %d\n#define WARPS %d\n", size_of(k)[NS],
        (int)group_of(k), size_of(k)[WARPS]);
}

void dn_vec_launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    (void)f;
    int64_t blocks = tiles_of(p->pattern) * passes_of(k, call->batch);
    *launch = (gpu_launch){
        .blocks = { blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS, 1, 1 },
        .threads = LANES * size_of(k)[WARPS],
    };
}
