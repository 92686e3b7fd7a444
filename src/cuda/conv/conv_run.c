/* Calls of convolutions on CUDA. Windows whose points fit in the shared memory of a block of
   threads take one launch. A longer window is a matrix: its columns are transformed, then its
   rows with the product, then its columns back, for as many windows at once as
   dn_cuda_conv_group() says. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/conv/conv.h"

#include "base/status.h"

/* Bytes of the points of windows, and how many of these at once; 0 of windows of one level. */
typedef struct product_group {
    int64_t items, group;
    size_t points, sizes; /* sizes: the largest magnitudes of rows, or norms */
} product_group;

static product_group group_product(const cuda_conv *e, const conv_job *job)
{
    int64_t items = e->p.channels * dn_cuda_conv_each_channel(e, job);
    int64_t bytes = dn_cuda_conv_window(e);
    product_group g = { items, items, 0, 0 };
    if (e->fast->root)
        bytes = dn_gpu_conv_mma_points(e->fast);
    if (e->fast->root ? !dn_gpu_conv_mma_has_points(e->fast) : e->shape.levels == 1)
        return g;
    g.group = dn_cuda_conv_group(e, bytes, items);
    g.points = (size_t)(g.group * bytes);
    bytes = e->fast->root ? GPU_CONV_PEAKS_BYTES : dn_cuda_conv_norms(e);
    g.sizes = (size_t)(g.group * bytes);
    return g;
}

/* One launch of run_fast(). */
static danaus_status run_part(
    cuda_device *d, const cuda_conv *e, gpu_conv_mma_part part, int is_few,
    const cuda_transform *t)
{
    int which = (is_few ? CONV_FEW : CONV_FAST) + (int)part;
    return dn_cuda_conv_transform(d, e, (cuda_conv_function)which, t);
}

/* The columns of a matrix, its rows and the columns back, by tensor cores. */
static danaus_status run_fast(
    cuda_device *d, const cuda_conv *e, const cuda_transform *t)
{
    char *peaks = (char *)t->points + t->items * dn_gpu_conv_mma_points(e->fast);
    size_t bytes = (size_t)t->items * GPU_CONV_PEAKS_BYTES;
    int is_few = t->few != NULL;
    if (!dn_gpu_conv_mma_has_points(e->fast))
        return run_part(d, e, GPU_CONV_PRODUCT, is_few, t);
    CUDA_TRY(d->driver, MemsetAsync((cu_pointer)peaks, 0, bytes, d->stream));
    TRY(run_part(d, e, GPU_CONV_PEAKS, is_few, t));
    TRY(run_part(d, e, GPU_CONV_SPLIT, is_few, t));
    TRY(run_part(d, e, GPU_CONV_PRODUCT, 0, t));
    return run_part(d, e, GPU_CONV_JOIN, is_few, t);
}

static danaus_status run_accurate(
    cuda_device *d, const cuda_conv *e, const cuda_transform *t)
{
    if (dn_cuda_conv_norms(e))
        TRY(dn_cuda_conv_transform(d, e, CONV_NORMS, t));
    if (e->shape.levels > 1)
        TRY(dn_cuda_conv_transform(d, e, CONV_SPLIT, t));
    TRY(dn_cuda_conv_transform(d, e, CONV_PRODUCT, t));
    return e->shape.levels > 1 ? dn_cuda_conv_transform(d, e, CONV_JOIN, t) : DANAUS_OK;
}

/* One product of all rows. */
static danaus_status run_product(
    cuda_device *d, const cuda_conv *e, const conv_job *job, const conv_product *p)
{
    product_group g = group_product(e, job);
    cuda_transform t = { .rows = dn_cuda_conv_rows(e, job, p->adjoint),
                         .x = p->x.data,
                         .x_factor = p->x.factor,
                         .points = d->scratch,
                         .norms = (char *)d->scratch + g.points,
                         .spectrum = (void *)(uintptr_t)job->spectrum,
                         .few = p->few,
                         .share = e->p.channels / e->p.filters };
    t.rows.flags |= p->x.grouped << GROUPED_X;
    for (int i = 0; i < p->sinks; i++) {
        t.y[i] = p->sink[i].data;
        t.y_factor[i] = p->sink[i].factor;
        t.rows.flags |= p->sink[i].grouped << (GROUPED_Y + 2 * i);
    }
    for (t.first = 0; t.first < g.items; t.first += g.group) {
        t.items = MIN(g.group, g.items - t.first);
        TRY(e->fast->root ? run_fast(d, e, &t) : run_accurate(d, e, &t));
    }
    return DANAUS_OK;
}

static size_t product_bytes(const cuda_conv *e, const conv_job *job)
{
    product_group g = group_product(e, job);
    return job->products ? g.points + g.sizes : 0;
}

static size_t call_bytes(const conv_call *c)
{
    const cuda_conv *e = (const cuda_conv *)c->engine;
    if (!c->job)
        return dn_cuda_conv_filter_bytes(e);
    size_t sums = c->job->sums ? dn_cuda_conv_sums_bytes(e, c->job) : 0;
    return MAX(product_bytes(e, c->job), sums);
}

/* Pieces of all calls lie behind the scratch of each. */
typedef struct calls_scratch {
    size_t calls, pieces;
} calls_scratch;

static calls_scratch lay_calls(int count, const conv_call *calls)
{
    calls_scratch s = { 0 };
    for (int i = 0; i < count; i++) {
        const conv_job *job = calls[i].job;
        s.calls = MAX(s.calls, call_bytes(&calls[i]));
        s.pieces += job && job->pieces ? (size_t)job->count * sizeof(conv_piece) : 0;
    }
    if (s.pieces)
        s.calls = dn_gpu_aligned((int64_t)s.calls);
    return s;
}

static danaus_status enqueue_products(
    cuda_device *d, const cuda_conv *e, const conv_job *job)
{
    for (int i = 0; i < job->products; i++)
        TRY(run_product(d, e, job, &job->product[i]));
    return DANAUS_OK;
}

/* Products that need no scratch run beside others, so that the last windows of some and the
   first of others fill the device together: those of every second call. */
static danaus_status enqueue_job(
    cuda_device *d, const cuda_conv *e, const conv_job *job, int is_beside)
{
    if (is_beside)
        dn_cuda_turn(d);
    danaus_status status = enqueue_products(d, e, job);
    if (is_beside)
        dn_cuda_turn(d);
    TRY(status);
    return job->sums ? dn_cuda_conv_sums(d, e, job, d->scratch) : DANAUS_OK;
}

/* pieces: where those of the host have come to; parted: there are two branches. */
static danaus_status enqueue_calls(
    cuda_device *d, int count, const conv_call *calls, conv_piece *pieces, int parted)
{
    for (int i = 0; i < count; i++) {
        const cuda_conv *e = (const cuda_conv *)calls[i].engine;
        if (!calls[i].job) {
            TRY(dn_cuda_conv_transform_filters(
                d, e, calls[i].filters, calls[i].spectrum));
            continue;
        }
        conv_job job = *calls[i].job;
        if (job.pieces) {
            job.pieces = pieces;
            pieces += job.count;
        }
        TRY(enqueue_job(d, e, &job, parted && i % 2));
    }
    return DANAUS_OK;
}

/* True if the products of these calls can run at the same time. */
static int are_apart(int count, const conv_call *calls)
{
    for (int i = 0; i < count; i++)
        if (!calls[i].job || !calls[i].job->pieces ||
            product_bytes((const cuda_conv *)calls[i].engine, calls[i].job))
            return 0;
    return count > 1;
}

static danaus_status enqueue(
    cuda_device *d, int count, const conv_call *calls, const calls_scratch *s)
{
    conv_piece *pieces = (conv_piece *)((char *)d->scratch + s->calls);
    int parted = 0;
    if (s->pieces)
        TRY(dn_cuda_conv_put_pieces(
            d, ((const cuda_conv *)calls->engine)->function[CONV_PIECES],
            calls->job->pieces, (int64_t)(s->pieces / sizeof(conv_piece)), pieces));
    if (are_apart(count, calls))
        TRY(dn_cuda_part_always(d, &parted));
    danaus_status status = enqueue_calls(d, count, calls, pieces, parted);
    if (parted) {
        dn_cuda_turn(d);
        TRY(dn_cuda_meet(d));
    }
    return status;
}

static danaus_status run_inside(cuda_device *d, int count, const conv_call *calls)
{
    int capturing = 0;
    calls_scratch s = lay_calls(count, calls);
    cuda_need need = { .scratch = s.calls + s.pieces };
    CUDA_TRY(d->driver, StreamIsCapturing(d->stream, &capturing));
    if (capturing && !calls->job && !calls->filters->on_device)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "filters of the host cannot be transformed while a graph is captured: take "
            "them from the device's memory (danaus_spectrum_update_from)");
    TRY(dn_cuda_take_scratch(d, need, capturing));
    danaus_status status = enqueue(d, count, calls, &s);
    dn_cuda_give_scratch(d);
    return status;
}

danaus_status dn_cuda_conv_run(danaus_device *dev, int count, const conv_call *calls)
{
    cuda_device *d = (cuda_device *)dev;
    RETURN_INSIDE(d, run_inside(d, count, calls));
}

size_t dn_cuda_conv_scratch_bytes(danaus_device *dev, int count, const conv_call *calls)
{
    calls_scratch s = lay_calls(count, calls);
    cuda_need need = { .scratch = s.calls + s.pieces };
    return dn_cuda_scratch_bytes((cuda_device *)dev, need);
}
