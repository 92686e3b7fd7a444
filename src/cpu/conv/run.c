/* Convolutions on the CPU: threads share rows and their windows or, where rows are few and
   long, the strips and blocks of one window. Every window is computed by the same arithmetic,
   so results do not depend on threads or batch. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/loop.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/text.h"
#include "cpu/isa/flags.h"

#include <stdlib.h>

/* Complex numbers that a thread takes at a time, at most. */
#define TASK_NUMBERS 65536
/* Complex numbers for which a waiting thread pays: about ten microseconds. */
#define THREAD_NUMBERS 4096
/* Complex numbers for which waking a thread pays. */
#define LONG_NUMBERS 32768
/* From this length on the threads may share one window. */
#define SHARED_LENGTH 32768
/* Bytes of the next row that are fetched early. */
#define AHEAD 16384

const conv_code *dn_conv_code(const cpu_device *d, danaus_dtype dtype)
{
    const conv_code *code = d->conv;
    while (code->kernel.name && code->kernel.dtype != dtype)
        code++;
    return code->kernel.name ? code : NULL;
}

static void destroy(conv_engine *engine)
{
    dn_conv_tables_destroy(((cpu_engine *)engine)->tables);
    dn_free(engine);
}

static size_t buffer_bytes(const cpu_engine *e)
{
    return dn_aligned((int64_t)dn_conv_buffer(e->tables, e->sums));
}

static danaus_status create(
    danaus_device *dev, const conv_problem *p, const conv_frame *f,
    conv_engine **engine)
{
    cpu_device *d = (cpu_device *)dev;
    cpu_engine *e = dn_calloc(1, sizeof *e);
    if (!e)
        return dn_fail_memory(sizeof *e, "a convolution");
    e->p = *p;
    e->frame = *f;
    e->code = dn_conv_code(d, p->dtype);
    e->sums = dn_conv_code(d, dn_conv_point_type(p->dtype));
    e->tables = dn_conv_tables_create(f->cut, e->sums, d->l2, f->sparse ? p : NULL);
    if (!e->tables) {
        size_t bytes = (size_t)f->cut.n * e->sums->size;
        destroy(&e->base);
        return dn_fail_memory(bytes, "the tables of a transform");
    }
    e->base.filter_bytes = dn_aligned(2 * f->cut.n * (int64_t)e->sums->size);
    e->base.note_bytes = sizeof(conv_note);
    e->base.worker_bytes = e->base.filter_bytes + buffer_bytes(e);
    *engine = &e->base;
    return DANAUS_OK;
}

void dn_conv_window(const conv_window *w, void *buffer)
{
    range strips = { 0, dn_conv_strips(w->tables) };
    range blocks = { 0, w->tables->inner_blocks };
    if (w->mode != CONV_INVERSE)
        w->code->load(w, strips, buffer);
    w->code->blocks(w, blocks);
    if (w->mode != CONV_FORWARD)
        w->code->store(w, strips, buffer);
}

void dn_conv_forward(
    const conv_tables *t, const conv_code *code, conv_source source, int64_t start,
    int down, void *z, void *buffer)
{
    conv_window w = {
        .tables = t,
        .code = code,
        .source = source,
        .start = start,
        .mode = CONV_FORWARD,
        .z = z,
        .scaling = { .down = down },
    };
    dn_conv_window(&w, buffer);
}

/* Prefetches the beginning of the next item: short rows end before a processor notices that
   they are read in order. */
static void fetch_ahead(const conv_loop *l, int64_t item)
{
    conv_window w = { .tables = l->e->tables };
    if (!l->ahead || item >= l->items)
        return;
    l->item(l, item, NULL, &w);
    size_t size = danaus_dtype_size(l->e->p.dtype);
    int64_t first = MAX(w.start, 0),
            end = MIN(w.source.length, first + AHEAD / (int64_t)size);
    const char *u = w.source.data, *y = w.sink[0].data;
    for (size_t i = (size_t)first * size; i < (size_t)end * size; i += 64) {
        __builtin_prefetch(u + i, 0, 2);
        __builtin_prefetch(y + i, 1, 2);
    }
}

/* Scratch of a slot: z, buffer, extra. */
static void take_items(void *arg, int slot)
{
    conv_loop *l = arg;
    char *z = l->scratch + (size_t)slot * l->slot_bytes;
    char *buffer = z + l->e->base.filter_bytes, *extra = buffer + buffer_bytes(l->e);
    for (int64_t from; (from = atomic_fetch_add(&l->next, l->chunk)) < l->items;) {
        range items = { from, MIN(from + l->chunk, l->items) };
        range_notes notes = dn_range_begin();
        for (int64_t i = items.from; i < items.to; i++) {
            conv_window w = { .tables = l->e->tables, .z = z };
            l->item(l, i, extra, &w);
            fetch_ahead(l, i + 1);
            dn_conv_window(&w, buffer);
        }
        int left = dn_range_end(notes);
        if (!left)
            continue;
        for (int64_t i = items.from; i < items.to; i++) {
            conv_window w = { .tables = l->e->tables, .z = z };
            l->item(l, i, extra, &w);
            if (l->rescale(l, i, extra, left, &w))
                dn_conv_window(&w, buffer);
        }
    }
}

/* One window whose strips or blocks the threads share. */
typedef struct shared_window {
    const conv_window *w;
    char *buffers;
    size_t buffer_bytes;
    int phase, parts; /* 0: load, 1: blocks, 2: store */
    atomic_int left;  /* how parts left the range of their type */
} shared_window;

static void take_part(void *arg, int part)
{
    shared_window *s = arg;
    const conv_tables *t = s->w->tables;
    int64_t all = s->phase == 1 ? t->inner_blocks : dn_conv_strips(t);
    range r = { all * part / s->parts, all * (part + 1) / s->parts };
    void *buffer = s->buffers + (size_t)part * s->buffer_bytes;
    range_notes notes = dn_range_begin();
    if (s->phase == 0)
        s->w->code->load(s->w, r, buffer);
    else if (s->phase == 1)
        s->w->code->blocks(s->w, r);
    else
        s->w->code->store(s->w, r, buffer);
    atomic_fetch_or(&s->left, dn_range_end(notes));
}

/* Returns how the window left the range of its type. buffers: of all threads. */
static int share_window(const conv_loop *l, const conv_window *w, char *buffers)
{
    shared_window s = {
        .w = w,
        .buffers = buffers,
        .buffer_bytes = buffer_bytes(l->e),
        .parts = l->dev->threads,
    };
    atomic_init(&s.left, 0);
    for (s.phase = 0; s.phase < 3; s.phase++)
        if (!(s.phase == 0 && w->mode == CONV_INVERSE) &&
            !(s.phase == 2 && w->mode == CONV_FORWARD))
            dn_cpu_parallel(l->dev, s.parts, take_part, &s);
    return atomic_load(&s.left);
}

/* Scratch: z, extra, buffers of all threads. */
static void share_items(const conv_loop *l)
{
    char *extra = l->scratch + l->e->base.filter_bytes;
    char *buffers = extra + l->extra_bytes;
    for (int64_t i = 0; i < l->items; i++) {
        conv_window w = { .tables = l->e->tables, .z = l->scratch };
        range_notes notes = dn_range_begin();
        l->item(l, i, extra, &w);
        int left = dn_range_end(notes);
        left |= share_window(l, &w, buffers);
        if (left && l->rescale(l, i, extra, left, &w))
            share_window(l, &w, buffers);
    }
}

int64_t dn_conv_slots(int64_t threads, const conv_tables *t, int64_t items)
{
    /* Blocks that are no groups of four vectors cannot be shared (conv.inc). */
    if (threads > 1 && items < 2 * threads && t->n >= SHARED_LENGTH &&
        t->inner_vectors % 4 == 0)
        return 0;
    return CLAMP(CEIL_DIV(items * t->n, THREAD_NUMBERS), 1, MIN(threads, items));
}

/* Scratch that a loop needs. */
static size_t loop_bytes(const conv_loop *l)
{
    size_t slots = (size_t)dn_conv_slots(l->dev->threads, l->e->tables, l->items);
    if (slots)
        return slots * (l->e->base.worker_bytes + l->extra_bytes);
    return l->e->base.filter_bytes + l->extra_bytes +
           (size_t)l->dev->threads * buffer_bytes(l->e);
}

/* Runs all items over the device's threads, or the threads over the parts of each. */
static void run_loop(conv_loop *l)
{
    int64_t n = l->e->tables->n;
    int slots = (int)dn_conv_slots(l->dev->threads, l->e->tables, l->items);
    if (!slots) {
        share_items(l);
        return;
    }
    l->chunk = CLAMP(l->items / (slots * 8), 1, CEIL_DIV(TASK_NUMBERS, n));
    l->slot_bytes = l->e->base.worker_bytes + l->extra_bytes;
    atomic_init(&l->next, 0);
    if (l->items * n > LONG_NUMBERS)
        dn_cpu_parallel(l->dev, slots, take_items, l);
    else
        dn_cpu_parallel_short(l->dev, slots, take_items, l);
}

/* ---- filters ---- */

typedef struct filter_job {
    const conv_filters *filters;
    char *spectrum;
} filter_job;

/* The filter over 2^shift, which its note says. */
static void lay_filter(
    const conv_loop *l, int64_t item, int shift, void *numbers, conv_window *w)
{
    const filter_job *job = l->arg;
    const conv_code *sums = l->e->sums;
    int64_t length = 2 * w->tables->n;
    dn_conv_lay_filter(
        &l->e->frame, sums->kernel.dtype, job->filters, item, shift, numbers);
    w->code = sums;
    w->source =
        (conv_source){ .data = numbers, .length = length, .from = 0, .to = length };
    w->mode = CONV_FORWARD;
    w->z = job->spectrum + (size_t)item * l->e->base.filter_bytes;
    dn_conv_notes(l->e, job->spectrum, l->e->p.filters)[item].shift = shift;
}

static void filter_item(const conv_loop *l, int64_t item, void *numbers, conv_window *w)
{
    lay_filter(l, item, 0, numbers, w);
}

static int rescale_filter(
    const conv_loop *l, int64_t item, void *numbers, int left, conv_window *w)
{
    (void)left;
    const filter_job *job = l->arg;
    int size, most = dn_conv_exponents(l->e->sums->kernel.dtype);
    if (!dn_conv_filter_size(&l->e->frame, job->filters, item, &size) ||
        abs(size) <= most)
        return 0;
    lay_filter(l, item, size, numbers, w);
    return 1;
}

static conv_loop filter_loop(danaus_device *dev, const cpu_engine *e)
{
    return (conv_loop){
        .dev = (cpu_device *)dev,
        .e = e,
        .items = e->p.filters,
        .item = filter_item,
        .rescale = rescale_filter,
        .extra_bytes = e->base.filter_bytes,
    };
}

static void transform(danaus_device *dev, const conv_call *c, void *scratch)
{
    filter_job job = { c->filters, c->spectrum };
    conv_loop l = filter_loop(dev, (const cpu_engine *)c->engine);
    l.arg = &job;
    l.scratch = scratch;
    run_loop(&l);
}

/* ---- products ---- */

static void row_item(const conv_loop *l, int64_t item, void *extra, conv_window *w)
{
    (void)extra;
    dn_conv_product_window(l->e, l->arg, item, w);
}

static int rescale_row(
    const conv_loop *l, int64_t item, void *extra, int left, conv_window *w)
{
    (void)item;
    (void)extra;
    return dn_conv_rescale(w, l->e->sums->kernel.dtype, left);
}

static conv_loop row_loop(danaus_device *dev, const cpu_engine *e, const conv_job *job)
{
    return (conv_loop){
        .dev = (cpu_device *)dev,
        .e = e,
        .items = e->p.channels * dn_conv_windows_of(&e->frame, job),
        .item = row_item,
        .rescale = rescale_row,
        .ahead = 1,
    };
}

static void run_job(
    danaus_device *dev, const cpu_engine *e, const conv_job *job, void *scratch)
{
    for (int i = 0; i < job->products; i++) {
        product_job one = { job, &job->product[i] };
        if (dn_conv_is_bank(&e->p)) {
            dn_conv_run_bank((cpu_device *)dev, e, &one, scratch);
            continue;
        }
        conv_loop l = row_loop(dev, e, job);
        l.arg = &one;
        l.scratch = scratch;
        run_loop(&l);
    }
    if (job->sums)
        dn_conv_sum_filters((cpu_device *)dev, e, job, scratch);
}

static size_t call_bytes(danaus_device *dev, const conv_call *c)
{
    const cpu_engine *e = (const cpu_engine *)c->engine;
    const conv_job *job = c->job;
    conv_loop l = job ? row_loop(dev, e, job) : filter_loop(dev, e);
    size_t rows = !job || job->products ? loop_bytes(&l) : 0;
    if (job && dn_conv_is_bank(&e->p))
        rows = dn_conv_bank_bytes(l.dev, e, job);
    size_t sums = job && job->sums ? dn_conv_sums_bytes(l.dev, e, job) : 0;
    return MAX(rows, sums);
}

static size_t scratch_bytes(danaus_device *dev, int count, const conv_call *calls)
{
    size_t most = 0;
    for (int i = 0; i < count; i++)
        most = MAX(most, call_bytes(dev, &calls[i]));
    return most;
}

static danaus_status run(danaus_device *dev, int count, const conv_call *calls)
{
    cpu_device *d = (cpu_device *)dev;
    void *scratch;
    TRY(dn_cpu_scratch(d, scratch_bytes(dev, count, calls), &scratch));
    for (int i = 0; i < count; i++)
        if (calls[i].job)
            run_job(dev, (const cpu_engine *)calls[i].engine, calls[i].job, scratch);
        else
            transform(dev, &calls[i], scratch);
    dn_cpu_give_scratch(d);
    return DANAUS_OK;
}

static const conv_kernel *kernel_at(const danaus_device *dev, int index)
{
    const conv_code *code = ((const cpu_device *)dev)->conv;
    while (code->kernel.name && index-- > 0)
        code++;
    return code->kernel.name ? &code->kernel : NULL;
}

static void describe(const conv_engine *engine, conv_cut cut, text *to)
{
    const conv_code *sums = ((const cpu_engine *)engine)->sums;
    conv_tables t;
    if (!dn_conv_shape(&t, cut, sums, 0, 0))
        return;
    for (int l = 0; l < t.passes; l++)
        dn_text(to, "%d x ", t.pass[l].radix);
    dn_text(to, "%d in vectors", sums->vector);
}

const conv_backend dn_cpu_conv = {
    .kernel = kernel_at,
    .few_rows = DN_CPU_FEW_ROWS,
    .has_banks = 1,
    .terms = dn_cpu_conv_terms,
    .work = dn_cpu_conv_work,
    .create = create,
    .destroy = destroy,
    .describe = describe,
    .run = run,
    .scratch_bytes = scratch_bytes,
    .short_conv = dn_cpu_conv_short,
    .short_conv_gradient = dn_cpu_conv_short_gradient,
    .stream_create = dn_cpu_stream_create,
    .stream_destroy = dn_cpu_stream_destroy,
    .stream_reset = dn_cpu_stream_reset,
    .stream_run = dn_cpu_stream_run,
};
