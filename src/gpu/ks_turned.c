/* Batch-first with d > 1 by turning: x[s][N] is turned into x[N][s], another row makes the
   product batch-last, where lanes apart cost nothing, and y is turned back. Worth it where
   products cost more than moving x and y twice. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "math/pattern.h"

#define THREADS     256
#define TILE_BYTES  256    /* of a row of a square of ks_turn.cu */
#define LAUNCH      3.2e-6 /* seconds */
#define MOST_BLOCKS (1 << 30)

ks_step dn_gpu_inner(const kernel *k, const problem *p)
{
    ks_step step = { *p, dn_gpu_code(k)->inner };
    step.p.layout = DANAUS_BATCH_LAST;
    return step;
}

int dn_turned_fits(const kernel *k, const problem *p)
{
    ks_step inner = dn_gpu_inner(k, p);
    return p->layout == DANAUS_BATCH_FIRST && p->pattern.d > 1 &&
           inner.kernel->fits(inner.kernel, &inner.p);
}

/* Turning reads and writes, at 0.8 of the rate that memory has on paper. */
double dn_turned_cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    ks_step inner = dn_gpu_inner(k, p);
    danaus_pattern q = p->pattern;
    double bytes = (double)(dn_pattern_rows(q) + dn_pattern_cols(q)) *
                   (double)p->batch * (double)danaus_dtype_size(p->dtype);
    return 2 * LAUNCH + 2 * bytes / (0.8 * dn_gpu_facts(dev)->bandwidth) +
           inner.kernel->cost(dev, inner.kernel, &inner.p);
}

size_t dn_turned_bytes(const kernel *k, const problem *p)
{
    ks_step inner = dn_gpu_inner(k, p);
    return inner.kernel->packed_bytes(inner.kernel, &inner.p);
}

void dn_turned_pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    ks_step inner = dn_gpu_inner(k, p);
    inner.kernel->pack(inner.kernel, &inner.p, w, packed);
}

void dn_turned_defines(const kernel *k, const problem *p, int variant, text *to)
{
    (void)k, (void)variant;
    dn_text(to, "#define TYPE_%s 1\n", danaus_dtype_name(p->dtype));
}

gpu_launch dn_gpu_turn_launch(int64_t rows, int64_t columns, size_t element)
{
    int64_t tile = TILE_BYTES / (int64_t)element;
    int64_t squares = dn_gpu_parts(rows, tile) * dn_gpu_parts(columns, tile);
    return (
        gpu_launch){ .blocks = { squares < MOST_BLOCKS ? squares : MOST_BLOCKS, 1, 1 },
                     .threads = THREADS };
}

void dn_turned_launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    (void)k, (void)f;
    danaus_pattern q = p->pattern;
    int64_t rows = dn_pattern_rows(q), cols = dn_pattern_cols(q);
    *launch = dn_gpu_turn_launch(
        rows > cols ? rows : cols, call->batch, danaus_dtype_size(p->dtype));
}
