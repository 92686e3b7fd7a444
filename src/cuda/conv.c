/* Convolutions on CUDA: engines and products. Windows whose points find room in
   the shared memory of a block of threads take one launch. Of longer ones the columns of a
   matrix are transformed, then its rows with the product, then the columns back; so many
   windows at once that they stay in the second cache, or are just too many for it where
   launches are short. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/conv.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "cuda/conv_short.h"

#define UNIT 16 /* a window has a multiple of so many points */

enum { PERIODIC = 1, FOLD = 2, ADJOINT = 4 }; /* as in texts/conv_window.cuh */

/* ---- the table ---- */

static const conv_kernel kernels[] = {
    { "conv.points.f16", DANAUS_F16, UNIT, 16, { 16, 0 }, 0 },
    { "conv.points.bf16", DANAUS_BF16, UNIT, 16, { 16, 0 }, 0 },
    { "conv.points.f32", DANAUS_F32, UNIT, 16, { 16, 0 }, 0 },
    { "conv.points.f64", DANAUS_F64, UNIT, 16, { 16, 0 }, 0 },
    { "conv.mma.f16", DANAUS_F16, 256, 16, { 16, 0 }, 1 },
    { "conv.mma.bf16", DANAUS_BF16, 256, 16, { 16, 0 }, 1 },
    { "conv.mma.f32", DANAUS_F32, 256, 16, { 16, 0 }, 1 },
};

static const conv_kernel *kernel_at(const danaus_device *dev, int index)
{
    (void)dev;
    return index < (int)(sizeof kernels / sizeof *kernels) ? &kernels[index] : NULL;
}

/* ---- functions ---- */

#define TRANSFORM "conv_transform.cu"
#define ROWS      GPU_CONV_ROWS
#define POINTS    GPU_CONV_POINTS
#define SPECTRUM  GPU_CONV_SPECTRUM

/* Of windows of one level, of two. */
static const gpu_conv_use functions[GPU_CONV_MOST_LEVELS][CONV_FUNCTIONS] = {
    {
        [CONV_LAY] = { .text = "conv_lay.cu" },
        [CONV_TAKE] = { .text = "conv_take.cu" },
        [CONV_ADD] = { .text = "conv_add.cu" },
        [CONV_ORDER] = { .text = "conv_order.cu" },
        [CONV_MASK] = { .text = "conv_mask.cu" },
        [CONV_PIECES] = { .text = "conv_pieces.cu" },
        [CONV_SPECTRUM] = { .text = "conv_spectrum.cu" },
        [CONV_PRODUCT] = { TRANSFORM, 0, 1, ROWS, ROWS, 1, 1, 0 },
        [CONV_FILTER] = { TRANSFORM, 0, 0, ROWS, SPECTRUM, 1, 0, 0 },
        [CONV_SUMS] = { "conv_sums.cu", 0, 1, ROWS, SPECTRUM, 1, 0, 1 },
        [CONV_BACK] = { TRANSFORM, 0, 0, SPECTRUM, ROWS, 0, 1, 0 },
    },
    {
        [CONV_LAY] = { .text = "conv_lay.cu" },
        [CONV_TAKE] = { .text = "conv_take.cu" },
        [CONV_ADD] = { .text = "conv_add.cu" },
        [CONV_ORDER] = { .text = "conv_order.cu", .level = 1 },
        [CONV_MASK] = { .text = "conv_mask.cu", .level = 1 },
        [CONV_PIECES] = { .text = "conv_pieces.cu" },
        [CONV_SPECTRUM] = { .text = "conv_spectrum.cu", .level = 1 },
        [CONV_NORMS] = { .text = "conv_norms.cu", .is_signal = 1 },
        [CONV_SPLIT] = { TRANSFORM, 0, 1, ROWS, POINTS, 1, 0, 0 },
        [CONV_PRODUCT] = { TRANSFORM, 1, 0, POINTS, POINTS, 1, 1, 0 },
        [CONV_JOIN] = { TRANSFORM, 0, 1, POINTS, ROWS, 0, 1, 0 },
        [CONV_FILTER_SPLIT] = { TRANSFORM, 0, 0, ROWS, POINTS, 1, 0, 0 },
        [CONV_FILTER] = { TRANSFORM, 1, 0, POINTS, SPECTRUM, 1, 0, 0 },
        [CONV_SUMS_SPLIT] = { TRANSFORM, 0, 1, ROWS, POINTS, 1, 0, 1 },
        [CONV_SUMS] = { "conv_sums.cu", 1, 0, POINTS, SPECTRUM, 1, 0, 1 },
        [CONV_BACK] = { TRANSFORM, 1, 0, SPECTRUM, POINTS, 0, 1, 0 },
        [CONV_FILTER_JOIN] = { TRANSFORM, 0, 0, POINTS, ROWS, 0, 1, 0 },
    },
};

/* Part number p of a product by tensor cores, and whether its rows go through few taps. */
static int part_of(int which, int *few)
{
    *few = which >= CONV_FEW;
    return which - (*few ? CONV_FEW : CONV_FAST);
}

/* Of longer windows the product itself is of points. */
static int use_of_part(
    const gpu_conv_mma fast[GPU_CONV_MMA_PARTS], danaus_dtype dtype, int which,
    gpu_use *use)
{
    int few, part = part_of(which, &few);
    const gpu_conv_mma *m = &fast[part];
    int is_there = m->root > 0 && (part == GPU_CONV_PRODUCT || !m->cluster);
    if (few)
        is_there &=
            m->few && (part != GPU_CONV_PRODUCT || !dn_gpu_conv_mma_has_points(m));
    if (is_there)
        dn_gpu_conv_mma_use(m, (gpu_conv_mma_part)part, dtype, few ? m->few : 0, use);
    return is_there;
}

/* Is it replaced by what tensor cores do, or only there for these, or for pairs? */
static int is_left_out(
    const gpu_conv_shape *s, const gpu_conv_mma fast[GPU_CONV_MMA_PARTS], int which)
{
    int sums = fast[GPU_CONV_SUMS].root > 0;
    switch (which) {
    case CONV_NORMS:
    case CONV_SUMS_SPLIT: return !s->scaled;
    case CONV_SPECTRUM: return !fast->root;
    case CONV_PRODUCT:
    case CONV_JOIN: return fast->root > 0;
    case CONV_ORDER: return !sums;
    case CONV_SUMS:
    case CONV_ADD: return sums;
    default: return 0;
    }
}

/* What a function of a plan is compiled from; 0: there is none. */
static int use_of(
    const gpu_conv_shape *s, const gpu_conv_mma fast[GPU_CONV_MMA_PARTS],
    danaus_dtype dtype, int half, int which, gpu_use *use)
{
    const gpu_conv_use *c = &functions[s->levels - 1][which];
    if (which >= CONV_FAST)
        return use_of_part(fast, dtype, which, use);
    if (!c->text || is_left_out(s, fast, which))
        return 0;
    dn_gpu_conv_use(s, c, dtype, half, use);
    if (which == CONV_SPECTRUM)
        dn_gpu_conv_mma_define_rows(fast, use);
    return 1;
}

int dn_cuda_conv_uses(
    const gpu_conv_shape *s, const gpu_conv_mma fast[GPU_CONV_MMA_PARTS],
    danaus_dtype dtype, int half, gpu_use uses[CONV_FUNCTIONS])
{
    int count = 0;
    for (int i = 0; i < CONV_FUNCTIONS; i++)
        count += use_of(s, fast, dtype, half, i, &uses[count]);
    return count;
}

static danaus_status load_functions(cuda_device *d, cuda_conv *e)
{
    gpu_use *uses = dn_alloc(CONV_FUNCTIONS * sizeof *uses);
    cu_function found[CONV_FUNCTIONS];
    int is_there[CONV_FUNCTIONS], count = 0;
    if (!uses)
        return dn_fail_memory(CONV_FUNCTIONS * sizeof *uses, "the texts of kernels");
    int half = dn_gpu_conv_half(&e->frame);
    for (int i = 0; i < CONV_FUNCTIONS; i++) {
        is_there[i] = use_of(&e->shape, e->fast, e->p.dtype, half, i, &uses[count]);
        count += is_there[i];
    }
    danaus_status status = dn_cuda_load_uses(d, uses, count, found);
    for (int i = CONV_FUNCTIONS - 1; i >= 0 && !status; i--)
        e->function[i] = is_there[i] ? found[--count] : NULL;
    dn_free(uses);
    return status;
}

/* ---- engines ---- */

static void destroy(conv_engine *engine) { dn_free(engine); }

static danaus_status create(
    danaus_device *dev, const conv_problem *p, const conv_frame *f,
    conv_engine **engine)
{
    cuda_device *d = (cuda_device *)dev;
    cuda_conv *e = dn_calloc(1, sizeof *e);
    if (!e)
        return dn_fail_memory(sizeof *e, "a convolution");
    e->p = *p;
    e->frame = *f;
    e->gpu = d->shared;
    dn_gpu_conv_shape_of(&d->gpu.facts, f, &e->shape);
    e->base.filter_bytes = (size_t)dn_cuda_conv_window(e);
    if (f->cut.kernel->fast) {
        dn_gpu_conv_mma_of(&d->gpu.facts, f, e->fast);
        e->base.filter_bytes = (size_t)dn_gpu_conv_mma_spectrum(e->fast);
    }
    danaus_status status = load_functions(d, e);
    status = status ? status : dn_cuda_conv_constants(d, &e->shape, &e->constants);
    for (int i = 0; i < GPU_CONV_MMA_PARTS; i++)
        status =
            status ? status : dn_cuda_conv_matrices(d, &e->fast[i], &e->matrices[i]);
    if (status)
        destroy(&e->base);
    else
        *engine = &e->base;
    return status;
}

static int takes_few(const conv_engine *engine)
{
    const cuda_conv *e = (const cuda_conv *)engine;
    return e->fast->root && e->fast->few;
}

static void describe(const conv_engine *engine, conv_cut cut, text *to)
{
    const cuda_conv *e = (const cuda_conv *)engine;
    gpu_conv_shape s;
    gpu_conv_mma m[GPU_CONV_MMA_PARTS] = { { 0 } };
    if (cut.kernel->fast)
        dn_gpu_conv_mma(&e->gpu->facts, cut.n, 1, 0, m);
    if (m[GPU_CONV_SPLIT].root)
        dn_text(to, "%d x 16, then ", m[GPU_CONV_SPLIT].root);
    if (m->root)
        dn_text(to, "%d x 16 x 16 by matrices", m->root);
    if (cut.kernel->fast ||
        !dn_gpu_conv_shape(&e->gpu->facts, e->shape.sums, cut.n, &s))
        return;
    for (int l = 0; l < s.passes; l++) {
        int begins = s.levels > 1 && l == s.level[1].first;
        dn_text(to, "%s%d", !l ? "" : begins ? ", then " : " x ", s.pass[l].radix);
    }
}

/* ---- launches ---- */

cuda_rows dn_cuda_conv_rows(const cuda_conv *e, const conv_job *job, int adjoint)
{
    const conv_frame *f = &e->frame;
    int is_packed = job->pieces != NULL;
    return (cuda_rows){
        .length = is_packed ? job->columns : f->length,
        .batch = is_packed ? 1 : job->batch,
        .channels = e->p.channels,
        .windows = is_packed ? job->count : f->windows,
        .step = f->step,
        .lead = -dn_conv_span(f, f->length, 0, adjoint).start,
        .before = adjoint ? f->after : f->before,
        .after = adjoint ? f->before : f->after,
        .pieces = job->pieces,
        .flags = (f->periodic ? PERIODIC : 0) | (adjoint ? ADJOINT : 0) |
                 (f->fold && !dn_gpu_conv_circle(f) ? FOLD : 0),
    };
}

cuda_rows dn_cuda_conv_filter_rows(const cuda_conv *e)
{
    int64_t length = 2 * e->shape.n;
    return (cuda_rows){
        .length = length,
        .batch = 1,
        .channels = e->p.filters,
        .windows = 1,
        .step = length,
    };
}

danaus_status dn_cuda_conv_transform(
    cuda_device *d, const cuda_conv *e, cuda_conv_function which,
    const cuda_transform *t)
{
    cuda_transform o = *t;
    cuda_rows *r = &o.rows;
    const void *constants = e->constants;
    conv_few few = { NULL, NULL, { -1, -1, -1 } };
    if (o.few)
        few = *o.few;
    int level = functions[e->shape.levels - 1][which].level;
    int groups = (few.group[0] + 1) | (few.group[1] + 1) << 4 | (few.group[2] + 1) << 8;
    gpu_launch launch =
        dn_gpu_conv_launch(&e->shape, level, o.items * e->shape.level[level].tiles);
    if (which == CONV_NORMS)
        launch = dn_gpu_conv_norms_launch(&e->shape, o.items);
    if (which >= CONV_FAST) {
        int is_few, part = part_of((int)which, &is_few);
        launch = dn_gpu_conv_mma_launch(&d->gpu.facts, &e->fast[part], is_few, o.items);
        constants = e->matrices[part];
        if (e->fast[part].cluster) /* whose points lie in shared memory */
            o.points = (void *)(uintptr_t)e->matrices[GPU_CONV_SPLIT];
    }
    void *arguments[] = {
        &o.x,           &o.x_factor, &o.y[0],     &o.y_factor[0], &o.y[1],
        &o.y_factor[1], &o.points,   &o.spectrum, &constants,     &o.first,
        &o.items,       &o.share,    &r->length,  &r->batch,      &r->channels,
        &r->windows,    &r->step,    &r->lead,    &r->before,     &r->after,
        &r->pieces,     &r->flags,   &few.k,      &few.bias,      &groups,
    };
    return dn_cuda_launch(d, e->function[which], &launch, arguments);
}

danaus_status dn_cuda_conv_each(
    cuda_device *d, const cuda_conv *e, cuda_conv_function which, int64_t count,
    void **arguments)
{
    gpu_launch launch = dn_gpu_conv_each(count);
    return dn_cuda_launch(d, e->function[which], &launch, arguments);
}

danaus_status dn_cuda_conv_mask(
    cuda_device *d, const cuda_conv *e, int64_t filters, void *spectrum)
{
    const conv_box b = e->frame.box;
    int shift[CONV_AXES], keep[CONV_AXES];
    int64_t count = filters * e->shape.n;
    if (!e->frame.sparse)
        return DANAUS_OK;
    for (int i = 0; i < CONV_AXES; i++) {
        shift[i] = b.shift[i];
        keep[i] = (int)b.keep[i];
    }
    void *arguments[] = { &spectrum, &count,   &shift[0], &shift[1], &shift[2],
                          &shift[3], &keep[0], &keep[1],  &keep[2],  &keep[3] };
    return dn_cuda_conv_each(d, e, CONV_MASK, count, arguments);
}

int64_t dn_cuda_conv_group(const cuda_conv *e, int64_t bytes, int64_t items)
{
    int64_t room = e->fast->root ? 2 * e->gpu->facts.l2 : e->gpu->facts.l2 / 2;
    return CLAMP(room / bytes, 1, items);
}

int64_t dn_cuda_conv_each_channel(const cuda_conv *e, const conv_job *job, int is_sums)
{
    int64_t windows = dn_conv_windows_of(&e->frame, job);
    int pair = e->shape.pair && !(e->shape.scaled && is_sums);
    return pair ? CEIL_DIV(windows, 2) : windows;
}

/* ---- calls ---- */

/* Bytes of the points of windows, and how many of these at once, so that they stay in the
   second cache; 0 of windows of one level. */
typedef struct product_group {
    int64_t items, group;
    size_t points, sizes; /* sizes: the largest magnitudes of rows, or norms */
} product_group;

static product_group group_product(const cuda_conv *e, const conv_job *job)
{
    int64_t items = e->p.channels * dn_cuda_conv_each_channel(e, job, 0);
    int64_t bytes = dn_cuda_conv_window(e);
    product_group g = { items, items, 0, 0 };
    if (e->fast->root)
        bytes = dn_gpu_conv_mma_points(e->fast);
    if (e->fast->root ? !dn_gpu_conv_mma_has_points(e->fast) : e->shape.levels == 1)
        return g;
    g.group = dn_cuda_conv_group(e, bytes, items);
    g.points = (size_t)(g.group * bytes);
    bytes = e->shape.scaled ? dn_gpu_conv_norms_bytes(&e->shape) : 0;
    g.sizes = (size_t)(g.group * (e->fast->root ? GPU_CONV_PEAKS_BYTES : bytes));
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
    if (e->shape.levels > 1 && e->shape.scaled)
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

/* May products of these run beside each other? */
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

static danaus_status run(danaus_device *dev, int count, const conv_call *calls)
{
    cuda_device *d = (cuda_device *)dev;
    RETURN_INSIDE(d, run_inside(d, count, calls));
}

static size_t scratch_bytes(danaus_device *dev, int count, const conv_call *calls)
{
    calls_scratch s = lay_calls(count, calls);
    cuda_need need = { .scratch = s.calls + s.pieces };
    return dn_cuda_scratch_bytes((cuda_device *)dev, need);
}

const conv_backend dn_cuda_conv = {
    .kernel = kernel_at,
    .terms = dn_gpu_conv_terms,
    .work = dn_gpu_conv_work,
    .prepare = dn_cuda_conv_prepare,
    .create = create,
    .destroy = destroy,
    .takes_few = takes_few,
    .describe = describe,
    .run = run,
    .scratch_bytes = scratch_bytes,
    .few_taps = dn_cuda_few_taps,
    .few_taps_gradient = dn_cuda_few_taps_gradient,
    .stream_create = dn_cuda_stream_create,
    .stream_destroy = dn_cuda_stream_destroy,
    .stream_reset = dn_cuda_stream_reset,
    .stream_run = dn_cuda_stream_run,
};
