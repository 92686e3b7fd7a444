/* Gradients of convolutions. With p = gate_in u, c = k (*) p + skip p and y = gate_out c:

       dgate_out = dy c,       dp[t] = sum over lags s of k[s] (gate_out dy)[t + s],
       du = gate_in dp,        dgate_in = u dp,
       dk[s] = sum over rows and t of (gate_out dy)[t] p[t - s],     dskip = dk[0],

   where dp takes the conjugate of the filter's spectrum and dk the product of the
   spectrum of gate_out dy and the conjugate of p's. dk sums over rows in parts that
   depend on the problem alone, so that threads change no bit: several parts where
   filters are few, else one, which its thread takes back at once. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/loop.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "cpu/grid.h"

#include <string.h>

/* Parts that sums over rows are made of, over all filters, and their bytes. */
#define MOST_PARTS      16
#define MOST_PART_BYTES ((int64_t)64 << 20)

static void add_sink(
    conv_window *w, const conv_engine *e, void *data, const void *factor, int64_t row)
{
    if (data)
        w->sink[w->sinks++] = (conv_sink){ (void *)(uintptr_t)dn_conv_row(e, data, row),
                                           dn_conv_row(e, factor, row) };
}

/* dgate_out: the convolution itself, times dy. */
static void gate_item(const conv_loop *l, int64_t item, void *extra, conv_window *w)
{
    (void)extra;
    const conv_gradient_operands *o = l->arg;
    const conv_engine *e = l->e;
    conv_place at = dn_conv_place(e, o->batch, item);
    int64_t lead = dn_conv_lead(e, e->before);
    range used = dn_conv_used(e, at.y, e->before);
    w->code = e->code;
    w->source = dn_conv_source(e, o->u, o->gate_in, at.row, used);
    add_sink(w, e, o->to.dgate_out, o->dy, at.row);
    w->start = at.y.from - lead;
    w->out = (range){ lead, lead + at.y.to - at.y.from };
    w->fold = dn_conv_folds(e);
    w->mode = CONV_MULTIPLY;
    w->spectrum = (const char *)o->spectrum + at.filter * dn_conv_bytes(e);
}

/* du and dgate_in: what was after is before. */
static void adjoint_item(const conv_loop *l, int64_t item, void *extra, conv_window *w)
{
    (void)extra;
    const conv_gradient_operands *o = l->arg;
    const conv_engine *e = l->e;
    conv_place at = dn_conv_place(e, o->batch, item);
    int64_t lead = dn_conv_lead(e, e->after);
    range used = dn_conv_used(e, at.y, e->after);
    w->code = e->code;
    w->source = dn_conv_source(e, o->dy, o->gate_out, at.row, used);
    add_sink(w, e, o->to.du, o->gate_in, at.row);
    add_sink(w, e, o->to.dgate_in, o->u, at.row);
    w->start = at.y.from - lead;
    w->out = (range){ lead, lead + at.y.to - at.y.from };
    w->fold = -dn_conv_folds(e);
    w->mode = CONV_CORRELATE;
    w->spectrum = (const char *)o->spectrum + at.filter * dn_conv_bytes(e);
}

static danaus_status run_items(
    danaus_device *dev, const conv_engine *e, const conv_gradient_operands *o,
    void (*item)(const conv_loop *, int64_t, void *, conv_window *))
{
    conv_loop l = {
        .dev = (cpu_device *)dev,
        .e = e,
        .items = e->p.channels * o->batch * e->windows,
        .item = item,
        .arg = o,
    };
    return dn_conv_loop(&l);
}

/* ---- filters ---- */

typedef struct filter_sums {
    const conv_engine *e;
    const conv_gradient_operands *o;
    int64_t parts, items; /* of one filter */
    char *sums;           /* spectra [filter][part], where there are several parts */
    char *slots;          /* scratch of each thread: three spectra and a buffer */
    size_t slot_bytes;
    atomic_llong next;
    int phase; /* 0: sums over rows, and all of a single part; 1: parts to filters */
} filter_sums;

static void forward_window(
    const filter_sums *s, conv_source source, int64_t start, char *z, void *buffer)
{
    conv_window w = {
        .tables = s->e->tables,
        .code = s->e->code,
        .source = source,
        .start = start,
        .mode = CONV_FORWARD,
        .z = z,
    };
    dn_conv_window(&w, buffer);
}

/* Items of a part follow each other: rows and windows of one filter. */
static void sum_part(
    const filter_sums *s, int64_t filter, int64_t part, char *slot, char *sum)
{
    const conv_engine *e = s->e;
    const conv_gradient_operands *o = s->o;
    size_t z = (size_t)dn_conv_bytes(e);
    memset(sum, 0, z);
    for (int64_t i = s->items * part / s->parts; i < s->items * (part + 1) / s->parts;
         i++) {
        conv_place at = dn_conv_place(e, o->batch, filter * s->items + i);
        int64_t start = at.y.from - dn_conv_lead(e, e->before);
        range used = dn_conv_used(e, at.y, e->before);
        conv_source u = dn_conv_source(e, o->u, o->gate_in, at.row, used);
        conv_source dy = dn_conv_source(e, o->dy, o->gate_out, at.row, at.y);
        forward_window(s, u, start, slot, slot + 3 * z);
        forward_window(s, dy, start, slot + z, slot + 3 * z);
        e->sums->accumulate(1, e->tables->n, slot + z, slot, sum);
    }
}

static double number(const conv_engine *e, const void *from, int64_t i)
{
    return e->sums->size == sizeof(double) ? ((const double *)from)[i]
                                           : ((const float *)from)[i];
}

static void set_number(const conv_engine *e, void *to, int64_t i, double x)
{
    if (!to)
        return;
    if (e->sums->size == sizeof(double))
        ((double *)to)[i] = x;
    else
        ((float *)to)[i] = (float)x;
}

/* r: 2 n sums by lag, mod Z^2n + 1. */
static void store_filter(const filter_sums *s, int64_t filter, const void *r)
{
    const conv_engine *e = s->e;
    const danaus_conv_gradients *to = &s->o->to;
    int64_t taps = e->p.filter_length, n = e->tables->n;
    double scale = 1.0 / (double)n;
    int wraps = e->p.kind == DANAUS_CIRCULAR;
    for (int64_t t = 0; t < taps; t++) {
        int64_t lag = wraps ? t % e->p.length : t;
        double x = wraps || t <= e->before ? number(e, r, lag) : 0;
        if (dn_conv_folds(e)) /* what is beyond the row has its sign changed */
            x -= number(e, r, n + lag);
        double back = t < e->after ? -number(e, r, 2 * n - 1 - t) : 0;
        set_number(e, to->dk, filter * taps + t, scale * x);
        set_number(e, to->dk_reverse, filter * taps + t, scale * back);
    }
    set_number(e, to->dskip, filter, scale * number(e, r, 0));
}

/* sum: of the first part, which the others follow. */
static void finish_filter(const filter_sums *s, int64_t filter, char *slot, char *sum)
{
    const conv_engine *e = s->e;
    size_t z = (size_t)dn_conv_bytes(e);
    for (int64_t part = 1; part < s->parts; part++)
        for (int64_t i = 0; i < 2 * e->tables->n; i++)
            set_number(
                e, sum, i, number(e, sum, i) + number(e, sum + (size_t)part * z, i));
    conv_window w = {
        .tables = e->tables,
        .code = e->sums,
        .sink = { { .data = slot } },
        .sinks = 1,
        .out = { 0, 2 * e->tables->n },
        .mode = CONV_INVERSE,
        .z = sum,
    };
    dn_conv_window(&w, slot + 3 * z);
    store_filter(s, filter, slot);
}

static void take_filters(void *arg, int number_of_slot)
{
    filter_sums *s = arg;
    char *slot = s->slots + (size_t)number_of_slot * s->slot_bytes;
    size_t z = (size_t)dn_conv_bytes(s->e);
    int64_t parts = s->phase == 0 ? s->parts : 1;
    for (int64_t i; (i = atomic_fetch_add(&s->next, 1)) < s->e->p.filters * parts;) {
        size_t index = (size_t)(s->phase == 0 ? i : i * s->parts);
        char *sum = s->parts > 1 ? s->sums + index * z : slot + 2 * z;
        if (s->phase == 0)
            sum_part(s, i / parts, i % parts, slot, sum);
        if (s->phase == 1 || s->parts == 1)
            finish_filter(s, i, slot, sum);
    }
}

static danaus_status filter_gradients(
    cpu_device *dev, const conv_engine *e, const conv_gradient_operands *o)
{
    int64_t z = dn_conv_bytes(e);
    filter_sums s = { .e = e, .o = o };
    s.items = e->p.channels / e->p.filters * o->batch * e->windows;
    int64_t most = MIN(MOST_PARTS, MOST_PART_BYTES / z) / e->p.filters;
    s.parts = CLAMP(most, 1, s.items);
    s.slot_bytes =
        3 * (size_t)z + dn_aligned((int64_t)dn_conv_buffer(e->tables, e->sums));
    size_t sums = s.parts > 1 ? (size_t)(e->p.filters * s.parts * z) : 0;
    int slots = (int)MIN(dev->threads, e->p.filters * s.parts);
    void *scratch;
    TRY(dn_cpu_scratch(dev, sums + (size_t)slots * s.slot_bytes, &scratch));
    s.sums = scratch;
    s.slots = s.sums + sums;
    for (s.phase = 0; s.phase < (s.parts > 1 ? 2 : 1); s.phase++) {
        atomic_init(&s.next, 0);
        dn_cpu_parallel(dev, slots, take_filters, &s);
    }
    return DANAUS_OK;
}

danaus_status dn_cpu_conv_gradient(
    danaus_device *dev, const conv_engine *e, const conv_gradient_operands *o)
{
    const danaus_conv_gradients *to = &o->to;
    if (to->dgate_out)
        TRY(run_items(dev, e, o, gate_item));
    if (to->du || to->dgate_in)
        TRY(run_items(dev, e, o, adjoint_item));
    if (to->dk || to->dk_reverse || to->dskip)
        TRY(filter_gradients((cpu_device *)dev, e, o));
    return DANAUS_OK;
}
