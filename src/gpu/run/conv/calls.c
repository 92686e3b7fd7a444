/* Calls of convolutions on GPUs. Windows whose points fit in the shared memory of a block of
   threads take one launch. A longer window is a matrix: its columns are transformed, then its
   rows with the product, then its columns back, for as many windows at once as
   dn_gpu_conv_group() says. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/conv/engine.h"

#include "base/status.h"

/* Bytes of the points of windows, and how many of these at once; 0 of windows of one level. */
typedef struct product_group {
    int64_t items, group;
    size_t points, sizes; /* sizes: the largest magnitudes of rows, or norms */
} product_group;

static product_group group_product(const gpu_conv_engine *e, const conv_job *job)
{
    int64_t items = e->p.channels * dn_gpu_conv_each_channel(e, job);
    int64_t bytes = dn_gpu_conv_window(e);
    product_group g = { items, items, 0, 0 };
    if (e->mma->root)
        bytes = dn_gpu_conv_mma_points(e->mma);
    if (e->mma->root ? !dn_gpu_conv_mma_has_points(e->mma) : e->shape.levels == 1)
        return g;
    g.group = dn_gpu_conv_group(e, bytes, items);
    g.points = (size_t)(g.group * bytes);
    bytes = e->mma->root ? GPU_CONV_PEAKS_BYTES : dn_gpu_conv_norms(e);
    g.sizes = (size_t)(g.group * bytes);
    return g;
}

/* One launch of run_mma(). */
static danaus_status run_part(
    gpu_device *d, const gpu_conv_engine *e, gpu_conv_mma_part part, int is_short,
    const gpu_conv_transform *t)
{
    int which = (is_short ? CONV_SHORT : CONV_MMA) + (int)part;
    return dn_gpu_conv_transform(d, e, (gpu_conv_function)which, t);
}

/* The columns of a matrix, its rows and the columns back, by tensor cores. */
static danaus_status run_mma(
    gpu_device *d, const gpu_conv_engine *e, const gpu_conv_transform *t)
{
    char *peaks = (char *)t->points + t->items * dn_gpu_conv_mma_points(e->mma);
    size_t bytes = (size_t)t->items * GPU_CONV_PEAKS_BYTES;
    int is_short = t->taps != NULL;
    if (!dn_gpu_conv_mma_has_points(e->mma))
        return run_part(d, e, GPU_CONV_PRODUCT, is_short, t);
    TRY(d->base.backend->clear(&d->base, peaks, bytes));
    TRY(run_part(d, e, GPU_CONV_PEAKS, is_short, t));
    TRY(run_part(d, e, GPU_CONV_SPLIT, is_short, t));
    TRY(run_part(d, e, GPU_CONV_PRODUCT, 0, t));
    return run_part(d, e, GPU_CONV_JOIN, is_short, t);
}

static danaus_status run_accurate(
    gpu_device *d, const gpu_conv_engine *e, const gpu_conv_transform *t)
{
    if (dn_gpu_conv_norms(e))
        TRY(dn_gpu_conv_transform(d, e, CONV_NORMS, t));
    if (e->shape.levels > 1)
        TRY(dn_gpu_conv_transform(d, e, CONV_SPLIT, t));
    TRY(dn_gpu_conv_transform(d, e, CONV_PRODUCT, t));
    return e->shape.levels > 1 ? dn_gpu_conv_transform(d, e, CONV_JOIN, t) : DANAUS_OK;
}

/* One product of all rows. */
static danaus_status run_product(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, const conv_product *p)
{
    product_group g = group_product(e, job);
    gpu_conv_transform t = { .rows = dn_gpu_conv_rows(e, job, p->adjoint),
                             .x = p->x.data,
                             .x_factor = p->x.factor,
                             .points = d->scratch,
                             .norms = (char *)d->scratch + g.points,
                             .spectrum = (void *)(uintptr_t)job->spectrum,
                             .taps = p->taps,
                             .share = e->p.channels / e->p.filters };
    t.rows.flags |= p->x.grouped << GROUPED_X;
    t.rows.flags |= dn_gpu_conv_conjugates(e, p->x.conjugate, 0);
    for (int i = 0; i < p->sinks; i++) {
        t.y[i] = p->sink[i].data;
        t.y_factor[i] = p->sink[i].factor;
        t.rows.flags |= p->sink[i].grouped << (GROUPED_Y + 2 * i);
        t.rows.flags |= dn_gpu_conv_conjugates(e, 0, p->sink[i].conjugate << 2 * i);
    }
    for (t.first = 0; t.first < g.items; t.first += g.group) {
        t.items = MIN(g.group, g.items - t.first);
        TRY(e->mma->root ? run_mma(d, e, &t) : run_accurate(d, e, &t));
    }
    return DANAUS_OK;
}

static size_t product_bytes(const gpu_conv_engine *e, const conv_job *job)
{
    product_group g = group_product(e, job);
    return job->products ? g.points + g.sizes : 0;
}

static size_t call_bytes(const conv_call *c)
{
    const gpu_conv_engine *e = (const gpu_conv_engine *)c->engine;
    if (!c->job)
        return dn_gpu_conv_filter_bytes(e);
    size_t sums = c->job->sums ? dn_gpu_conv_sums_bytes(e, c->job) : 0;
    return MAX(product_bytes(e, c->job), sums);
}

/* Packed windows of all calls lie behind the scratch of each. */
typedef struct calls_scratch {
    size_t calls, packed;
} calls_scratch;

static calls_scratch lay_calls(int count, const conv_call *calls)
{
    calls_scratch s = { 0 };
    for (int i = 0; i < count; i++) {
        const conv_job *job = calls[i].job;
        s.calls = MAX(s.calls, call_bytes(&calls[i]));
        s.packed += job && job->packed ? (size_t)job->count * sizeof(packed_window) : 0;
    }
    if (s.packed)
        s.calls = dn_gpu_aligned((int64_t)s.calls);
    return s;
}

static danaus_status enqueue_products(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job)
{
    for (int i = 0; i < job->products; i++)
        TRY(run_product(d, e, job, &job->product[i]));
    return DANAUS_OK;
}

/* Products that need no scratch run beside others, so that the last windows of some and the
   first of others fill the device together: those of every second call. */
static danaus_status enqueue_job(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, int is_beside)
{
    if (is_beside)
        d->shared->driver->turn(d);
    danaus_status status = enqueue_products(d, e, job);
    if (is_beside)
        d->shared->driver->turn(d);
    TRY(status);
    return job->sums ? dn_gpu_conv_sums(d, e, job, d->scratch) : DANAUS_OK;
}

/* windows: where those of the host have come to; parted: there are two branches. */
static danaus_status enqueue_calls(
    gpu_device *d, int count, const conv_call *calls, packed_window *windows,
    int parted)
{
    for (int i = 0; i < count; i++) {
        const gpu_conv_engine *e = (const gpu_conv_engine *)calls[i].engine;
        if (!calls[i].job) {
            TRY(dn_gpu_conv_transform_filters(
                d, e, calls[i].filters, calls[i].spectrum));
            continue;
        }
        conv_job job = *calls[i].job;
        if (job.packed) {
            job.packed = windows;
            windows += job.count;
        }
        TRY(enqueue_job(d, e, &job, parted && i % 2));
    }
    return DANAUS_OK;
}

/* True if the products of these calls can run at the same time. */
static int are_apart(int count, const conv_call *calls)
{
    for (int i = 0; i < count; i++)
        if (!calls[i].job || !calls[i].job->packed ||
            product_bytes((const gpu_conv_engine *)calls[i].engine, calls[i].job))
            return 0;
    return count > 1;
}

/* What a job makes. */
typedef struct conv_run {
    int count;
    const conv_call *calls;
    calls_scratch scratch;
} conv_run;

static gpu_need need_of(gpu_device *d, void *arg)
{
    const calls_scratch *s = &((const conv_run *)arg)->scratch;
    (void)d;
    return (gpu_need){ .scratch = s->calls + s->packed };
}

static danaus_status enqueue(gpu_device *d, void *arg)
{
    const conv_run *r = arg;
    const conv_call *calls = r->calls;
    packed_window *windows =
        (packed_window *)(void *)((char *)d->scratch + r->scratch.calls);
    int parted = 0;
    if (r->scratch.packed)
        TRY(dn_gpu_conv_put_packed(
            d, ((const gpu_conv_engine *)calls->engine)->function[CONV_PACKED],
            calls->job->packed, (int64_t)(r->scratch.packed / sizeof(packed_window)),
            windows));
    if (are_apart(r->count, calls))
        TRY(d->shared->driver->part(d, 1, &parted));
    danaus_status status = enqueue_calls(d, r->count, calls, windows, parted);
    if (parted) {
        d->shared->driver->turn(d);
        TRY(d->shared->driver->meet(d));
    }
    return status;
}

static danaus_status run_entered(gpu_device *d, int count, const conv_call *calls)
{
    int capturing = 0;
    conv_run r = { count, calls, lay_calls(count, calls) };
    const gpu_job job = { need_of, enqueue, &r, 0 };
    TRY(d->shared->driver->capturing(d, &capturing));
    if (capturing && !calls->job && !calls->filters->on_device)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "filters of the host cannot be transformed while a graph is captured: take "
            "them from the device's memory (danaus_spectrum_update_from)");
    return d->shared->driver->call(d, NULL, &job);
}

danaus_status dn_gpu_conv_run(danaus_device *dev, int count, const conv_call *calls)
{
    gpu_device *d = (gpu_device *)dev;
    RETURN_ENTERED(d, run_entered(d, count, calls));
}

size_t dn_gpu_conv_scratch_bytes(danaus_device *dev, int count, const conv_call *calls)
{
    const gpu_device *d = (const gpu_device *)dev;
    calls_scratch s = lay_calls(count, calls);
    gpu_need need = { .scratch = s.calls + s.packed };
    return d->shared->driver->scratch_bytes(d, need);
}
