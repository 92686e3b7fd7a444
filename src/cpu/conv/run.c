/* Convolutions on the CPU: rows and their windows over threads, and, where rows are
   few and long, the strips and blocks of one window. Every window is computed by the
   same arithmetic wherever it falls: results do not depend on threads or batch. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/loop.h"
#include "cpu/conv/model.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "cpu/grid.h"

#include <string.h>

/* Complex numbers that a thread takes at a time, at most. */
#define TASK_NUMBERS 65536
/* Complex numbers that are worth a thread that waits: some ten microseconds. */
#define THREAD_NUMBERS 4096
/* Complex numbers that are worth waking one. */
#define LONG_NUMBERS 32768
/* From this length on the threads may share one window. */
#define SHARED_LENGTH 32768
/* Bytes of the next row that are fetched early. */
#define AHEAD 16384

const conv_code *dn_conv_code(const cpu_device *d, danaus_dtype dtype)
{
    const conv_code *code = d->conv;
    while (code->name && code->dtype != dtype)
        code++;
    return code->name ? code : NULL;
}

/* Taps that matter: all k[s] that meet a number, or one residue each. */
static void set_reach(conv_engine *e)
{
    int64_t taps = MIN(e->p.filter_length, e->p.length);
    e->before = taps - 1;
    e->after = e->p.kind == DANAUS_BIDIRECTIONAL
                   ? MIN(e->p.filter_length, e->p.length - 1)
                   : 0;
}

static void destroy(conv_engine *e)
{
    dn_conv_tables_destroy(e->tables);
    dn_free(e);
}

conv_machine dn_conv_machine(const cpu_device *dev)
{
    return (conv_machine){ dev->isa, dev->threads, dev->l2, dev->l3 };
}

static danaus_status create(
    danaus_device *dev, const conv_problem *p, conv_engine **engine)
{
    cpu_device *d = (cpu_device *)dev;
    conv_engine *e = dn_calloc(1, sizeof *e);
    if (!e)
        return dn_fail_memory(sizeof *e, "a convolution");
    e->p = *p;
    e->code = dn_conv_code(d, p->dtype);
    e->sums = dn_conv_code(d, dn_sum_type(p->dtype));
    e->machine = dn_conv_machine(d);
    set_reach(e);
    danaus_status status = dn_conv_choose(d, e);
    if (status == DANAUS_OK) {
        *engine = e;
        return DANAUS_OK;
    }
    destroy(e);
    return status;
}

int64_t dn_conv_bytes(const conv_engine *e)
{
    return (int64_t)dn_aligned(2 * e->tables->n * (int64_t)e->sums->size);
}

static size_t spectrum_bytes(const conv_engine *e)
{
    return (size_t)(e->p.filters * dn_conv_bytes(e));
}

static size_t buffer_bytes(const conv_engine *e)
{
    return dn_aligned((int64_t)dn_conv_buffer(e->tables, e->sums));
}

int64_t dn_conv_slot_bytes(const conv_engine *e)
{
    return dn_conv_bytes(e) + (int64_t)buffer_bytes(e);
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

/* Asks for the start of what comes next: short rows are too short for a processor to
   notice that it is being read in order. */
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
    char *buffer = z + dn_conv_bytes(l->e);
    for (int64_t from; (from = atomic_fetch_add(&l->next, l->chunk)) < l->items;)
        for (int64_t i = from; i < MIN(from + l->chunk, l->items); i++) {
            conv_window w = { .tables = l->e->tables, .z = z };
            l->item(l, i, buffer + buffer_bytes(l->e), &w);
            fetch_ahead(l, i + 1);
            dn_conv_window(&w, buffer);
        }
}

/* One window whose strips or blocks the threads share. */
typedef struct shared_window {
    const conv_window *w;
    char *buffers;
    size_t buffer_bytes;
    int phase, parts; /* 0: load, 1: blocks, 2: store */
} shared_window;

static void take_part(void *arg, int part)
{
    const shared_window *s = arg;
    const conv_tables *t = s->w->tables;
    int64_t all = s->phase == 1 ? t->inner_blocks : dn_conv_strips(t);
    range r = { all * part / s->parts, all * (part + 1) / s->parts };
    void *buffer = s->buffers + (size_t)part * s->buffer_bytes;
    if (s->phase == 0)
        s->w->code->load(s->w, r, buffer);
    else if (s->phase == 1)
        s->w->code->blocks(s->w, r);
    else
        s->w->code->store(s->w, r, buffer);
}

static danaus_status share_items(conv_loop *l)
{
    int threads = l->dev->threads;
    size_t z = (size_t)dn_conv_bytes(l->e), buffer = buffer_bytes(l->e);
    void *scratch;
    TRY(dn_cpu_scratch(
        l->dev, z + l->extra_bytes + (size_t)threads * buffer, &scratch));
    for (int64_t i = 0; i < l->items; i++) {
        conv_window w = { .tables = l->e->tables, .z = scratch };
        l->item(l, i, (char *)scratch + z, &w);
        shared_window s = {
            .w = &w,
            .buffers = (char *)scratch + z + l->extra_bytes,
            .buffer_bytes = buffer,
            .parts = threads,
        };
        for (s.phase = 0; s.phase < 3; s.phase++)
            if (!(s.phase == 0 && w.mode == CONV_INVERSE) &&
                !(s.phase == 2 && w.mode == CONV_FORWARD))
                dn_cpu_parallel(l->dev, threads, take_part, &s);
    }
    return DANAUS_OK;
}

int64_t dn_conv_slots(int64_t threads, const conv_tables *t, int64_t items)
{
    /* Blocks that are no groups of four vectors cannot be shared (conv.inc). */
    if (threads > 1 && items < 2 * threads && t->n >= SHARED_LENGTH &&
        t->inner_vectors % 4 == 0)
        return 0;
    return CLAMP(CEIL_DIV(items * t->n, THREAD_NUMBERS), 1, MIN(threads, items));
}

danaus_status dn_conv_loop(conv_loop *l)
{
    int64_t n = l->e->tables->n;
    int slots = (int)dn_conv_slots(l->dev->threads, l->e->tables, l->items);
    if (!slots)
        return share_items(l);
    l->chunk = CLAMP(l->items / (slots * 8), 1, CEIL_DIV(TASK_NUMBERS, n));
    l->slot_bytes = (size_t)dn_conv_slot_bytes(l->e) + l->extra_bytes;
    void *scratch;
    TRY(dn_cpu_scratch(l->dev, l->slot_bytes * (size_t)slots, &scratch));
    l->scratch = scratch;
    atomic_init(&l->next, 0);
    if (l->items * n > LONG_NUMBERS)
        dn_cpu_parallel(l->dev, slots, take_items, l);
    else
        dn_cpu_parallel_short(l->dev, slots, take_items, l);
    return DANAUS_OK;
}

/* ---- filters ---- */

static double number(danaus_dtype sums, const void *from, int64_t i)
{
    return sums == DANAUS_F64 ? ((const double *)from)[i] : ((const float *)from)[i];
}

static void add_number(danaus_dtype sums, void *to, int64_t i, double x)
{
    if (sums == DANAUS_F64)
        ((double *)to)[i] += x;
    else
        ((float *)to)[i] = (float)(((float *)to)[i] + x);
}

/* A filter as a window of 2 n numbers: taps at their lag, mod Z^2n + 1, over n. */
static void lay_filter(
    const conv_engine *e, const conv_filters *f, int64_t filter, void *to)
{
    danaus_dtype sums = dn_sum_type(e->p.dtype);
    int64_t taps = e->p.filter_length, n = e->tables->n;
    double scale = 1.0 / (double)n;
    int wraps = e->p.kind == DANAUS_CIRCULAR;
    memset(to, 0, (size_t)(2 * n) * e->sums->size);
    for (int64_t s = 0; s < taps && (wraps || s <= e->before); s++)
        add_number(
            sums, to, wraps ? s % e->p.length : s,
            scale * number(sums, f->k, filter * taps + s));
    for (int64_t s = 0; s < e->after; s++)
        add_number(
            sums, to, 2 * n - 1 - s,
            -scale * number(sums, f->k_reverse, filter * taps + s));
    if (f->skip)
        add_number(sums, to, 0, scale * number(sums, f->skip, filter));
}

typedef struct filter_job {
    const conv_filters *filters;
    char *spectrum;
} filter_job;

static void filter_item(const conv_loop *l, int64_t item, void *numbers, conv_window *w)
{
    const filter_job *job = l->arg;
    int64_t length = 2 * w->tables->n;
    lay_filter(l->e, job->filters, item, numbers);
    w->code = l->e->sums;
    w->source =
        (conv_source){ .data = numbers, .length = length, .from = 0, .to = length };
    w->mode = CONV_FORWARD;
    w->z = job->spectrum + item * dn_conv_bytes(l->e);
}

static danaus_status transform(
    danaus_device *dev, const conv_engine *e, const conv_filters *filters,
    void *spectrum)
{
    filter_job job = { filters, spectrum };
    conv_loop l = {
        .dev = (cpu_device *)dev,
        .e = e,
        .items = e->p.filters,
        .item = filter_item,
        .arg = &job,
        .extra_bytes = (size_t)dn_conv_bytes(e),
    };
    return dn_conv_loop(&l);
}

/* ---- products ---- */

const void *dn_conv_row(const conv_engine *e, const void *data, int64_t row)
{
    return data ? (const char *)data +
                      (size_t)(row * e->p.length) * danaus_dtype_size(e->p.dtype)
                : NULL;
}

/* Items in the order channel, row of the batch, window: rows that share a filter follow
   each other. */
conv_place dn_conv_place(const conv_engine *e, int64_t batch, int64_t item)
{
    int64_t number = item % e->windows, row = item / e->windows % batch;
    int64_t channel = item / e->windows / batch, first = number * e->step;
    return (conv_place){
        .row = row * e->p.channels + channel,
        .filter = channel / (e->p.channels / e->p.filters),
        .y = { first, MIN(first + e->step, e->p.length) },
    };
}

conv_source dn_conv_source(
    const conv_engine *e, const void *data, const void *factor, int64_t row, range used)
{
    return (conv_source){
        .data = dn_conv_row(e, data, row),
        .factor = dn_conv_row(e, factor, row),
        .length = e->p.length,
        .from = used.from,
        .to = used.to,
        .periodic = e->p.kind == DANAUS_CIRCULAR,
    };
}

int dn_conv_folds(const conv_engine *e)
{
    return e->p.kind == DANAUS_CIRCULAR && e->tables->n == e->p.length;
}

range dn_conv_used(const conv_engine *e, range y, int64_t before)
{
    int64_t after = e->before + e->after - before;
    return dn_conv_folds(e) ? y : (range){ y.from - before, y.to + after };
}

int64_t dn_conv_lead(const conv_engine *e, int64_t before)
{
    if ((e->windows == 1 && e->p.kind != DANAUS_CIRCULAR) || dn_conv_folds(e))
        return 0;
    int64_t after = e->before + e->after - before;
    return MIN(ROUND_UP(before, CONV_LINE), 2 * e->tables->n - after - e->step);
}

static void row_item(const conv_loop *l, int64_t item, void *extra, conv_window *w)
{
    (void)extra;
    const conv_operands *o = l->arg;
    const conv_engine *e = l->e;
    conv_place at = dn_conv_place(e, o->batch, item);
    int64_t lead = dn_conv_lead(e, e->before);
    range used = dn_conv_used(e, at.y, e->before);
    w->code = e->code;
    w->source = dn_conv_source(e, o->u, o->gate_in, at.row, used);
    w->sink[0].data = (void *)(uintptr_t)dn_conv_row(e, o->y, at.row);
    w->sink[0].factor = dn_conv_row(e, o->gate_out, at.row);
    w->sinks = 1;
    w->start = at.y.from - lead;
    w->out = (range){ lead, lead + at.y.to - at.y.from };
    w->fold = dn_conv_folds(e);
    w->mode = CONV_MULTIPLY;
    w->spectrum = (const char *)o->spectrum + at.filter * dn_conv_bytes(e);
}

static danaus_status run(
    danaus_device *dev, const conv_engine *e, const conv_operands *o)
{
    conv_loop l = {
        .dev = (cpu_device *)dev,
        .e = e,
        .items = e->p.channels * o->batch * e->windows,
        .item = row_item,
        .arg = o,
        .ahead = 1,
    };
    return dn_conv_loop(&l);
}

static const char *kernel_name(const danaus_device *dev, int index)
{
    const conv_code *code = ((const cpu_device *)dev)->conv;
    while (code->name && index-- > 0)
        code++;
    return code->name;
}

const conv_backend dn_cpu_conv = {
    .kernel = kernel_name,
    .calibrate = dn_cpu_conv_calibrate,
    .create = create,
    .destroy = destroy,
    .describe = dn_conv_describe,
    .spectrum_bytes = spectrum_bytes,
    .transform = transform,
    .run = run,
    .gradient = dn_cpu_conv_gradient,
    .few_taps = dn_cpu_conv_short,
    .few_taps_gradient = dn_cpu_conv_short_gradient,
    .stream_create = dn_cpu_stream_create,
    .stream_destroy = dn_cpu_stream_destroy,
    .stream_reset = dn_cpu_stream_reset,
    .stream_run = dn_cpu_stream_run,
};
