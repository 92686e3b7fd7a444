/* Batch-first with d > 1, by way of another order of x. Either x[s][N] is first turned to
   x[N][s], another row multiplies batch-last, where separate lanes cost nothing, and y is turned
   back; or another factor stores its product in lines of columns s, and a row reads these and
   writes y batch-first. This pays where products cost more than moving x, and y, twice. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "math/pattern.h"

#define THREADS    256
#define TILE_BYTES 256    /* of a row of a square of ks_turn.cu */
#define LAUNCH     3.2e-6 /* seconds */
#define TURNING    0.8    /* of the rate that memory has on paper */
#define LEAST_SLAB 1024

int64_t dn_gpu_most_turned = (int64_t)512 << 20;

ks_step dn_gpu_first(const kernel *k, const problem *p)
{
    ks_step step = dn_step(dn_gpu_code(k)->first, p);
    step.p.pattern = p->inner;
    step.p.inner = (danaus_pattern){ 0 };
    step.p.activation = step.p.residual = 0;
    return step;
}

ks_step dn_gpu_inner(const kernel *k, const problem *p)
{
    const gpu_code *code = dn_gpu_code(k);
    ks_step step = dn_step(code->inner, p);
    step.p.inner = (danaus_pattern){ 0 };
    step.p.layout = code->first ? DANAUS_BATCH_FIRST : DANAUS_BATCH_LAST;
    step.p.residual = code->first ? p->residual : 0; /* else y is turned, then added */
    return step;
}

static int step_fits(ks_step step) { return dn_fits(step.kernel, &step.p); }

static int fits(const kernel *k, const problem *p)
{
    int has_first = dn_gpu_code(k)->first != NULL;
    return p->layout == DANAUS_BATCH_FIRST && p->pattern.d > 1 &&
           has_first == (p->inner.a > 0) &&
           (!has_first || step_fits(dn_gpu_first(k, p))) &&
           step_fits(dn_gpu_inner(k, p));
}

static double step_cost(const danaus_device *dev, ks_step step)
{
    return dn_cost(dev, step.kernel, &step.p);
}

/* Bytes of so many numbers of a column, or as many as they seem where lines are ragged and
   turned in small pieces: measured on 9.0 (bench/rows). */
static double turned_bytes(const problem *p, int64_t numbers)
{
    int64_t size = dn_size_of(p->dtype);
    double slow = numbers * size % 16 == 0 ? 1 : size == 2 ? 2.8 : 1.6;
    return slow * (double)(numbers * size) * (double)p->batch;
}

/* Seconds in which x and y are read and written turned, and a residual is read. */
static double turning(const danaus_device *dev, const problem *p)
{
    int64_t rows = dn_pattern_rows(p->pattern), cols = dn_pattern_cols(p->pattern);
    double bytes = 2 * (turned_bytes(p, cols) + turned_bytes(p, rows));
    if (p->residual)
        bytes += turned_bytes(p, rows);
    return 2 * LAUNCH + bytes / (TURNING * dn_gpu_facts(dev)->bandwidth);
}

/* Products of 16 bits batch-last with ragged lines take longer than the estimates of the rows
   inside, most of all with few columns. Measured on 9.0 (bench/rows). */
static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    int64_t size = dn_size_of(p->dtype);
    int has_first = dn_gpu_code(k)->first != NULL;
    double before = has_first ? step_cost(dev, dn_gpu_first(k, p)) : turning(dev, p);
    double ragged = !has_first && size == 2 && p->batch * size % 16 ? 3 : 1;
    return before + ragged * step_cost(dev, dn_gpu_inner(k, p));
}

static size_t bytes_of(ks_step step) { return dn_packed_bytes(step.kernel, &step.p); }

size_t dn_gpu_inner_at(const kernel *k, const problem *p)
{
    if (!dn_gpu_code(k)->first)
        return 0;
    return dn_gpu_aligned((int64_t)bytes_of(dn_gpu_first(k, p)));
}

static size_t packed_bytes(const kernel *k, const problem *p)
{
    return dn_gpu_inner_at(k, p) + bytes_of(dn_gpu_inner(k, p));
}

static void pack_step(ks_step step, weights_view w, void *packed)
{
    step.kernel->family->pack(step.kernel, &step.p, w, packed);
}

static void pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    if (dn_gpu_code(k)->first)
        pack_step(dn_gpu_first(k, p), *w.inner, packed);
    pack_step(dn_gpu_inner(k, p), w, (char *)packed + dn_gpu_inner_at(k, p));
}

gpu_launch dn_gpu_turn_launch(int64_t rows, int64_t columns, size_t element)
{
    int64_t tile = TILE_BYTES / (int64_t)element;
    return dn_gpu_line(CEIL_DIV(rows, tile) * CEIL_DIV(columns, tile), THREADS);
}

/* What another factor makes has whole lines, and y is not turned back then. */
gpu_turned_slabs dn_gpu_turned_plan(const kernel *k, const problem *p, int64_t batch)
{
    int has_first = dn_gpu_code(k)->first != NULL;
    int64_t size = dn_size_of(p->dtype), line = has_first ? DN_MIDDLE_BYTES / size : 1;
    int64_t x = dn_pattern_cols(p->pattern) * size;
    int64_t y = has_first ? 0 : dn_pattern_rows(p->pattern) * size;
    int64_t most = dn_gpu_most_turned / (x + y) / LEAST_SLAB * LEAST_SLAB;
    int64_t columns = MIN(MAX(most, LEAST_SLAB), batch);
    return (gpu_turned_slabs){ columns, dn_gpu_aligned(ROUND_UP(columns, line) * x),
                               dn_gpu_aligned(columns * y) };
}

static void launch_of(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    (void)k, (void)f;
    danaus_pattern q = p->pattern;
    int64_t rows = dn_pattern_rows(q), cols = dn_pattern_cols(q);
    *launch =
        dn_gpu_turn_launch(MAX(rows, cols), call->batch, danaus_dtype_size(p->dtype));
}

static int part_of(const kernel *k, const problem *p, int n, ks_step *part)
{
    if (n == 0)
        *part = dn_gpu_inner(k, p);
    else if (n == 1 && dn_gpu_code(k)->first)
        *part = dn_gpu_first(k, p);
    else
        return 0;
    return 1;
}

const gpu_family dn_gpu_turned = {
    .kernel = { .fits = fits,
                .cost = cost,
                .packed_bytes = packed_bytes,
                .pack = pack },
    .text = "ks_turn.cu",
    .defines = dn_gpu_define_type,
    .launch = launch_of,
    .part = part_of,
};
