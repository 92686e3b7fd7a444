/* Computes the weight gradient of a factor as planned: parts dw[slab], sums over the columns of
   a slab; and sums of parts in the order of slabs, for all factors at once. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/gradient.h"

#include "base/dtype.h"
#include "base/status.h"
#include "math/pattern.h"

#include <string.h>

typedef struct dw_run {
    gpu_device *d;
    const gpu_dw_plan *plan;
    void *parts;
} dw_run;

/* ---- sums of parts ---- */

danaus_status dn_gpu_help(
    gpu_device *d, gpu_helper which, const problem *p, const gpu_launch *launch,
    const gpu_argument *arguments)
{
    gpu_function function;
    TRY(dn_gpu_function(d, &dn_gpu_helpers[which], p, 0, &function));
    return dn_gpu_launch(d, function, launch, arguments);
}

/* The table of ks_reduce.cu. */
typedef struct sum_table {
    int64_t count;
    struct {
        const void *part, *to;
        int64_t slabs, q[4], s[4];
        int first, blocks, wide_log2, per, ways, conjugated, dense,
            narrow; /* 1: parts, 2: sums */
    } job[MOST_SUMS];
} sum_table;

_Static_assert(sizeof(sum_table) == GPU_TABLE_BYTES, "a table that kernels are given");

static int is_rounded(const gpu_sums *s, const gpu_sum *sum)
{
    return sum->to.dtype != dn_sum_type(s->largest.dtype);
}

danaus_status dn_gpu_make_sums(gpu_device *d, gpu_sums *s)
{
    sum_table t = { .count = s->count };
    const gpu_argument arguments[] = { ARG_TABLE(t), { 0 } };
    int blocks = 0;
    if (!s->count)
        return DANAUS_OK;
    for (int n = 0; n < s->count; n++) {
        const gpu_sum *sum = &s->sum[n];
        danaus_pattern q = sum->q;
        const int64_t sizes[] = { q.a, q.b, q.c, q.d };
        t.job[n].part = s->parts[n];
        t.job[n].to = sum->to.data;
        t.job[n].slabs = sum->count;
        memcpy(t.job[n].q, sizes, sizeof sizes);
        memcpy(t.job[n].s, sum->to.s, sizeof sizes);
        t.job[n].first = blocks;
        t.job[n].blocks = sum->blocks;
        t.job[n].wide_log2 = sum->wide_log2;
        t.job[n].per = sum->per;
        t.job[n].ways = sum->ways;
        t.job[n].conjugated = sum->to.conjugate;
        t.job[n].dense = sum->dense;
        t.job[n].narrow = sum->narrow | is_rounded(s, sum) << 1;
        blocks += sum->blocks;
    }
    s->count = 0;
    gpu_launch launch = dn_gpu_line(blocks, GPU_SUM_THREADS);
    return dn_gpu_help(d, GPU_ADD, &s->largest, &launch, arguments);
}

danaus_status dn_gpu_add_sum(
    gpu_device *d, gpu_sums *s, const problem *p, const void *parts, const gpu_sum *sum)
{
    if (s->count == MOST_SUMS)
        TRY(dn_gpu_make_sums(d, s));
    int64_t weights = dn_pattern_weights(p->pattern);
    if (!s->count || weights > dn_pattern_weights(s->largest.pattern))
        s->largest = *p;
    s->parts[s->count] = parts;
    s->sum[s->count++] = *sum;
    return DANAUS_OK;
}

/* ---- operands ---- */

static const void *column_at(
    const problem *p, const void *v, int64_t rows, int64_t column)
{
    int64_t step = p->layout == DANAUS_BATCH_LAST ? 1 : rows;
    return (const char *)v + column * step * dn_size_of(p->dtype);
}

/* Sets the lanes of n columns apart, of blocks of `size` rows. */
static danaus_status turn_lanes(
    gpu_device *d, const problem *p, const void *from, int64_t n, int64_t size,
    void *to)
{
    int64_t count = n * p->pattern.a;
    gpu_launch launch = dn_gpu_turn_lanes_launch(p, n, size);
    const gpu_argument arguments[] = {
        ARG(from), ARG(to), ARG(count), ARG(size), { 0 }
    };
    return dn_gpu_help(d, GPU_TURN_LANES, p, &launch, arguments);
}

/* n columns from `first` on of v, of blocks of `size` rows: where they lie, or in `room`. */
static danaus_status find(
    const dw_run *r, const void *v, int64_t size, int64_t first, int64_t n, void *room,
    const void **at)
{
    gpu_device *d = r->d;
    const problem *p = &r->plan->p;
    int64_t rows = p->pattern.a * size * p->pattern.d;
    const void *from = column_at(p, v, rows, first);
    *at = dn_gpu_dw_moves(r->plan, v) ? room : from;
    if (*at == from)
        return DANAUS_OK;
    if (r->plan->form == DW_TURNED)
        return turn_lanes(d, p, from, n, size, room);
    return d->shared->driver->copy(
        d, room, from, (size_t)(rows * n) * danaus_dtype_size(p->dtype));
}

size_t dn_gpu_dw_work_bytes(const gpu_dw_plan *plan, const void *x, const void *dy)
{
    size_t bytes = 0;
    for (int i = 0; i < 2; i++)
        if (dn_gpu_dw_moves(plan, i ? dy : x))
            bytes += dn_gpu_aligned((int64_t)dn_gpu_dw_moved(plan, i));
    return bytes;
}

/* ---- parts ---- */

/* Multiplies n columns. Their slabs are added to the parts if asked. A last slab that is
   narrower is a product by itself. */
static danaus_status make_by_library(
    const dw_run *r, const void *x, const void *dy, int64_t n, int add)
{
    const problem *p = &r->plan->made;
    danaus_pattern q = p->pattern;
    int64_t width = r->plan->slabs.width, weights = dn_pattern_weights(q);
    gpu_slabs whole = { width, n / width }, rest = { n % width, 1 };
    int64_t done = whole.count * width;
    char *to = r->parts;
    if (whole.count)
        TRY(r->d->shared->driver->weight_products(r->d, p, n, whole, x, dy, to, add));
    if (!rest.width)
        return DANAUS_OK;
    to += whole.count * weights * dn_size_of(dn_sum_type(p->dtype));
    return r->d->shared->driver->weight_products(
        r->d, p, n, rest, column_at(p, x, dn_pattern_cols(q), done),
        column_at(p, dy, dn_pattern_rows(q), done), to, add);
}

/* Texts of tiles go on with `add` and two maps, that of vector units with the pattern. */
static danaus_status make_by_text(
    const dw_run *r, const void *x, const void *dy, int64_t n, int add)
{
    const gpu_dw_plan *plan = r->plan;
    danaus_pattern q = plan->p.pattern;
    gpu_launch launch = dn_gpu_dw_launch(plan, n);
    gpu_map maps[2] = { 0 };
    gpu_function function;
    void *parts = r->parts;
    int64_t width = plan->slabs.width;
    if (plan->tile.boxes)
        dn_gpu_dw_maps(plan, n, maps);
    gpu_view view[2] = { { maps[0], plan->p.dtype, x },
                         { maps[1], plan->p.dtype, dy } };
    const gpu_argument vectors[] = { ARG(x),     ARG(dy),  ARG(parts), ARG(n),
                                     ARG(width), ARG(q.a), ARG(q.b),   ARG(q.c),
                                     ARG(q.d),   { 0 } };
    const gpu_argument tiles[] = { ARG(x),       ARG(dy),      ARG(parts),
                                   ARG(n),       ARG(width),   ARG(add),
                                   ARG(view[0]), ARG(view[1]), { 0 } };
    TRY(dn_gpu_function(r->d, plan->kernel, &plan->p, 0, &function));
    return dn_gpu_launch(
        r->d, function, &launch, plan->tile.resident ? tiles : vectors);
}

danaus_status dn_gpu_dw_run(
    gpu_device *d, const gpu_dw_plan *plan, const void *x, const void *dy, void *parts,
    void *work)
{
    dw_run r = { d, plan, parts };
    danaus_pattern q = plan->p.pattern;
    char *dy_room = work;
    if (dn_gpu_dw_moves(plan, x))
        dy_room += dn_gpu_aligned((int64_t)dn_gpu_dw_moved(plan, 0));
    for (int64_t first = 0, n; first < plan->batch; first += n) {
        const void *some_x, *some_dy;
        n = MIN(plan->batch - first, plan->at_once);
        TRY(find(&r, x, q.c, first, n, work, &some_x));
        TRY(find(&r, dy, q.b, first, n, dy_room, &some_dy));
        TRY((plan->library ? make_by_library : make_by_text)(
            &r, some_x, some_dy, n, first > 0));
    }
    return DANAUS_OK;
}
