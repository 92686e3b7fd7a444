/* Convolutions on GPUs: the table of windows, what is compiled for a plan, and launches. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/conv/engine.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

#define UNIT 16 /* a window has a multiple of so many points */

enum { PERIODIC = 1, FOLD = 2, ADJOINT = 4 }; /* as in texts/conv_window.cuh */

/* ---- the table ---- */

static const conv_kernel kernels[] = {
    { "conv.points.f16", DANAUS_F16, UNIT, 16, { 16, 0 }, 0 },
    { "conv.points.bf16", DANAUS_BF16, UNIT, 16, { 16, 0 }, 0 },
    { "conv.points.f32", DANAUS_F32, UNIT, 16, { 16, 0 }, 0 },
    { "conv.points.f64", DANAUS_F64, UNIT, 16, { 16, 0 }, 0 },
    { "conv.points.c64", DANAUS_C64, UNIT, 16, { 16, 0 }, 0 },
    { "conv.points.c128", DANAUS_C128, UNIT, 16, { 16, 0 }, 0 },
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

#define TRANSFORM   "conv_transform.cu"
#define FILTER      "conv_filter.cu"
#define FILTER_BACK "conv_filter_back.cu"
#define ROWS        GPU_CONV_ROWS
#define POINTS      GPU_CONV_POINTS
#define SPECTRUM    GPU_CONV_SPECTRUM
#define TAPS        GPU_CONV_TAPS

/* Uses for windows of one level, and of two. Tensor cores have another order of the spectrum. */
static const gpu_conv_use functions[GPU_CONV_MOST_LEVELS][CONV_GATED] = {
    {
        [CONV_ADD] = { .text = "conv_add.cu" },
        [CONV_PACKED] = { .text = "conv_packed.cu" },
        [CONV_PRODUCT] = { TRANSFORM, 0, 1, ROWS, ROWS, 1, 1 },
        [CONV_FILTER] = { FILTER, 0, 0, TAPS, SPECTRUM, 1, 0 },
        [CONV_SUMS] = { "conv_sums.cu", 0, 1, ROWS, SPECTRUM, 1, 0 },
        [CONV_BACK] = { FILTER_BACK, 0, 0, SPECTRUM, TAPS, 0, 1 },
    },
    {
        [CONV_ADD] = { .text = "conv_add.cu" },
        [CONV_PACKED] = { .text = "conv_packed.cu" },
        [CONV_LEVEL] = { .text = "conv_level.cu", .level = 1 },
        [CONV_NORMS] = { .text = "conv_norms.cu", .is_signal = 1 },
        [CONV_SPLIT] = { TRANSFORM, 0, 1, ROWS, POINTS, 1, 0 },
        [CONV_PRODUCT] = { TRANSFORM, 1, 0, POINTS, POINTS, 1, 1 },
        [CONV_JOIN] = { TRANSFORM, 0, 1, POINTS, ROWS, 0, 1 },
        [CONV_FILTER_SPLIT] = { FILTER, 0, 0, TAPS, POINTS, 1, 0 },
        [CONV_FILTER] = { FILTER, 1, 0, POINTS, SPECTRUM, 1, 0 },
        [CONV_SUMS] = { "conv_sums.cu", 1, 0, POINTS, SPECTRUM, 1, 0 },
        [CONV_BACK] = { FILTER_BACK, 1, 0, SPECTRUM, POINTS, 0, 1 },
        [CONV_FILTER_JOIN] = { FILTER_BACK, 0, 0, POINTS, TAPS, 0, 1 },
    },
};

/* Part number p of a product by tensor cores, and whether its rows go through few taps. */
static int part_of(int which, int *is_short)
{
    *is_short = which >= CONV_SHORT;
    return which - (*is_short ? CONV_SHORT : CONV_MMA);
}

/* In longer windows the product itself takes points. */
static int use_of_part(
    const gpu_conv_mma mma[GPU_CONV_MMA_PARTS], danaus_dtype dtype, int which,
    gpu_use *use)
{
    int is_short, part = part_of(which, &is_short);
    const gpu_conv_mma *m = &mma[part];
    int is_there = m->root > 0 && (part == GPU_CONV_PRODUCT || !m->cluster);
    if (is_short)
        is_there &= m->short_taps &&
                    (part != GPU_CONV_PRODUCT || !dn_gpu_conv_mma_has_points(m));
    if (is_there)
        dn_gpu_conv_mma_use(
            m, (gpu_conv_mma_part)part, dtype, is_short ? m->short_taps : 0, use);
    return is_there;
}

/* True if the plan does not need this function: tensor cores replace it, or it is only for tensor
   cores or for pairs. */
static int is_left_out(
    const gpu_conv_shape *s, const gpu_conv_mma mma[GPU_CONV_MMA_PARTS], int which)
{
    int sums = mma[GPU_CONV_SUMS].root > 0;
    switch (which) {
    case CONV_NORMS: return !s->scaled;
    case CONV_LEVEL: return !mma->root;
    case CONV_PRODUCT:
    case CONV_JOIN: return mma->root > 0;
    case CONV_SUMS: return sums;
    default: return 0;
    }
}

/* What a function of a plan is compiled from; 0: there is none. */
static int use_of(
    const gpu_conv_shape *s, const gpu_conv_mma mma[GPU_CONV_MMA_PARTS],
    danaus_dtype dtype, int half, int which, gpu_use *use)
{
    if (which >= CONV_MMA)
        return use_of_part(mma, dtype, which, use);
    int gated = which >= CONV_GATED;
    which -= gated ? CONV_GATED : 0;
    const gpu_conv_use *c = &functions[s->levels - 1][which];
    if (!c->text || (gated && !c->is_signal) || is_left_out(s, mma, which))
        return 0;
    gpu_conv_use own = *c;
    if (which == CONV_FILTER && mma->root)
        own.store = GPU_CONV_LANES;
    if (which == CONV_BACK && mma[GPU_CONV_SUMS].root)
        own.load = GPU_CONV_LANES;
    dn_gpu_conv_use(s, &own, dtype, half, gated, use);
    return 1;
}

int dn_gpu_conv_uses(
    const gpu_conv_shape *s, const gpu_conv_mma mma[GPU_CONV_MMA_PARTS],
    danaus_dtype dtype, int half, gpu_use uses[CONV_FUNCTIONS])
{
    int count = 0;
    for (int i = 0; i < CONV_FUNCTIONS; i++)
        count += use_of(s, mma, dtype, half, i, &uses[count]);
    return count;
}

static danaus_status load_functions(gpu_device *d, gpu_conv_engine *e)
{
    gpu_use *uses = dn_alloc(CONV_FUNCTIONS * sizeof *uses);
    gpu_function found[CONV_FUNCTIONS];
    int is_there[CONV_FUNCTIONS], count = 0;
    if (!uses)
        return dn_fail_memory(CONV_FUNCTIONS * sizeof *uses, "the texts of kernels");
    int half = dn_gpu_conv_half(&e->frame);
    for (int i = 0; i < CONV_FUNCTIONS; i++) {
        is_there[i] = use_of(&e->shape, e->mma, e->p.dtype, half, i, &uses[count]);
        count += is_there[i];
    }
    danaus_status status = dn_gpu_load_uses(d, uses, count, found);
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
    gpu_device *d = (gpu_device *)dev;
    TRY(dn_gpu_check_type(d, p->dtype));
    gpu_conv_engine *e = dn_calloc(1, sizeof *e);
    if (!e)
        return dn_fail_memory(sizeof *e, "a convolution");
    e->p = *p;
    e->frame = *f;
    e->gpu = d->shared;
    dn_gpu_conv_shape_of(&d->facts, f, &e->shape);
    e->base.filter_bytes = (size_t)dn_gpu_conv_window(e);
    if (f->cut.kernel->fast) {
        dn_gpu_conv_mma_of(&d->facts, f, e->mma);
        e->base.filter_bytes = (size_t)dn_gpu_conv_mma_spectrum(e->mma);
    }
    danaus_status status = load_functions(d, e);
    status = status ? status : dn_gpu_conv_keep_constants(d, &e->shape, &e->constants);
    for (int i = 0; i < GPU_CONV_MMA_PARTS; i++)
        status =
            status ? status : dn_gpu_conv_keep_matrices(d, &e->mma[i], &e->matrices[i]);
    if (status)
        destroy(&e->base);
    else
        *engine = &e->base;
    return status;
}

static int takes_short(const conv_engine *engine)
{
    const gpu_conv_engine *e = (const gpu_conv_engine *)engine;
    return e->mma->root && e->mma->short_taps;
}

static void describe(const conv_engine *engine, conv_cut cut, text *to)
{
    const gpu_conv_engine *e = (const gpu_conv_engine *)engine;
    gpu_conv_shape s;
    gpu_conv_mma m[GPU_CONV_MMA_PARTS] = { { 0 } };
    if (cut.kernel->fast)
        dn_gpu_conv_mma(&e->gpu->facts, cut.n, 1, 0, m);
    if (m[GPU_CONV_SPLIT].root)
        dn_text(to, "%d x 16, then ", m[GPU_CONV_SPLIT].root);
    if (m->root)
        dn_text(to, "%d x 16 x 16 by matrices", m->root);
    if (cut.kernel->fast ||
        !dn_gpu_conv_shape(&e->gpu->facts, e->shape.sums, cut.n, 0, &s))
        return;
    for (int l = 0; l < s.passes; l++) {
        int begins = s.levels > 1 && l == s.level[1].first;
        dn_text(to, "%s%d", !l ? "" : begins ? ", then " : " x ", s.pass[l].radix);
    }
}

/* ---- launches ---- */

gpu_conv_rows dn_gpu_conv_rows(
    const gpu_conv_engine *e, const conv_job *job, int adjoint)
{
    const conv_frame *f = &e->frame;
    int is_packed = job->packed != NULL;
    return (gpu_conv_rows){
        .length = is_packed ? job->columns : f->length,
        .batch = is_packed ? 1 : job->batch,
        .channels = e->p.channels,
        .windows = is_packed ? job->count : f->windows,
        .step = f->step,
        .lead = -dn_conv_span(f, f->length, 0, adjoint).start,
        .before = adjoint ? f->after : f->before,
        .after = adjoint ? f->before : f->after,
        .packed = job->packed,
        .flags = (f->periodic ? PERIODIC : 0) | (adjoint ? ADJOINT : 0) |
                 (f->fold && !dn_gpu_conv_circle(f) ? FOLD : 0),
    };
}

danaus_status dn_gpu_conv_transform(
    gpu_device *d, const gpu_conv_engine *e, gpu_conv_function which,
    const gpu_conv_transform *t)
{
    gpu_conv_transform o = *t;
    gpu_conv_rows *r = &o.rows;
    const void *constants = e->constants;
    conv_short taps = { NULL, NULL, { -1, -1, -1 } };
    if (o.taps)
        taps = *o.taps;
    int level = which < CONV_GATED ? functions[e->shape.levels - 1][which].level : 0;
    int is_gated = o.x_factor || o.y_factor[0] || o.y[1];
    int groups =
        (taps.group[0] + 1) | (taps.group[1] + 1) << 4 | (taps.group[2] + 1) << 8;
    gpu_launch launch =
        dn_gpu_conv_launch(&e->shape, level, o.items * e->shape.level[level].tiles);
    if (which == CONV_NORMS)
        launch = dn_gpu_conv_norms_launch(&e->shape, o.items);
    if (which >= CONV_MMA) {
        int is_short, part = part_of((int)which, &is_short);
        launch = dn_gpu_conv_mma_launch(&d->facts, &e->mma[part], is_short, o.items);
        constants = e->matrices[part];
        if (e->mma[part].cluster) /* whose points lie in shared memory */
            o.points = (void *)(uintptr_t)e->matrices[GPU_CONV_SPLIT];
    }
    const void *last = which >= CONV_MMA ? taps.k : o.norms;
    const gpu_argument arguments[] = { ARG(o.x),         ARG(o.x_factor),
                                       ARG(o.y[0]),      ARG(o.y_factor[0]),
                                       ARG(o.y[1]),      ARG(o.y_factor[1]),
                                       ARG(o.points),    ARG(o.spectrum),
                                       ARG(constants),   ARG(o.first),
                                       ARG(o.items),     ARG(o.share),
                                       ARG(r->length),   ARG(r->batch),
                                       ARG(r->channels), ARG(r->windows),
                                       ARG(r->step),     ARG(r->lead),
                                       ARG(r->before),   ARG(r->after),
                                       ARG(r->packed),   ARG(r->flags),
                                       ARG(last),        ARG(taps.bias),
                                       ARG(groups),      { 0 } };
    return dn_gpu_launch(d, dn_gpu_conv_find(e, which, is_gated), &launch, arguments);
}

danaus_status dn_gpu_conv_run_each(
    gpu_device *d, const gpu_conv_engine *e, gpu_conv_function which, int64_t count,
    const gpu_argument *arguments)
{
    gpu_launch launch = dn_gpu_conv_each(count);
    return dn_gpu_launch(d, e->function[which], &launch, arguments);
}

int64_t dn_gpu_conv_group(const gpu_conv_engine *e, int64_t bytes, int64_t items)
{
    const gpu_facts *f = &e->gpu->facts;
    int64_t room = e->mma->root ? 2 * f->l2 : f->memory / CONV_MEMORY_SHARE;
    return CLAMP(room / bytes, 1, items);
}

int64_t dn_gpu_conv_each_channel(const gpu_conv_engine *e, const conv_job *job)
{
    int64_t windows = dn_conv_windows_of(&e->frame, job);
    return e->shape.pair ? CEIL_DIV(windows, 2) : windows;
}

const conv_backend dn_gpu_conv_backend = {
    .kernel = kernel_at,
    .terms = dn_gpu_conv_terms,
    .work = dn_gpu_conv_work,
    .prepare = dn_gpu_conv_prepare,
    .create = create,
    .destroy = destroy,
    .takes_short = takes_short,
    .describe = describe,
    .run = dn_gpu_conv_run,
    .scratch_bytes = dn_gpu_conv_scratch_bytes,
    .short_conv = dn_gpu_short_conv,
    .short_conv_gradient = dn_gpu_short_conv_gradient,
    .stream_create = dn_gpu_stream_create,
    .stream_destroy = dn_gpu_stream_destroy,
    .stream_reset = dn_gpu_stream_reset,
    .stream_run = dn_gpu_stream_run,
};
