/* Where the windows of a job's products and sums lie in its arrays. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/loop.h"

#include "base/dtype.h"

/* No exponent of f64 is larger. */
#define MOST_SHIFT 1100

static size_t row_offset(
    const cpu_engine *e, int64_t first, const conv_place *at, int grouped)
{
    first += grouped ? at->beside : 0;
    return (size_t)first * danaus_dtype_size(e->p.dtype);
}

/* The row of what is read; NULL stays NULL. */
static const void *row_of(
    const cpu_engine *e, const void *data, const conv_place *at, int grouped)
{
    return data ? (const char *)data + row_offset(e, at->signal, at, grouped) : NULL;
}

conv_place dn_conv_place(const cpu_engine *e, const conv_job *job, int64_t item)
{
    int64_t each = dn_conv_windows_of(&e->frame, job), windows = e->frame.windows;
    int64_t channel = item / each, window = item % each;
    int64_t share = dn_conv_share(&e->p), signal = channel / share;
    conv_place at = { .filter = channel / (e->p.channels / e->p.filters) };
    if (job->packed) {
        const packed_window *w = &job->packed[window];
        at.first = channel * job->columns + w->offset;
        at.signal = signal * job->columns + w->offset;
        at.length = w->length;
        at.window = w->number;
    } else {
        int64_t batch = window / windows, rows = e->p.channels;
        int64_t numbers = dn_conv_numbers(&e->p);
        at.first = (batch * rows + channel) * numbers;
        at.signal = (batch * (rows / share) + signal) * numbers;
        at.beside = batch * (e->frame.groups - 1) * rows * numbers;
        at.length = e->frame.length;
        at.window = window % windows;
    }
    return at;
}

conv_source dn_conv_source(
    const cpu_engine *e, conv_input from, const conv_place *at, range used,
    conv_side side)
{
    return (conv_source){
        .data = row_of(e, from.data, at, from.grouped & CONV_GROUPED_DATA),
        .factor = row_of(e, from.factor, at, from.grouped & CONV_GROUPED_FACTOR),
        .conjugate = from.conjugate,
        .length = at->length,
        .from = used.from,
        .to = used.to,
        .periodic = e->frame.periodic,
        .view = dn_conv_view(&e->frame, side),
    };
}

/* The power of two that a spectrum lacks. Memory of the caller's may hold anything. */
static int shift_of(const cpu_engine *e, const void *spectra, int64_t filter)
{
    const conv_note *notes = dn_conv_notes(e, spectra, e->p.filters);
    return CLAMP(notes[filter].shift, -MOST_SHIFT, MOST_SHIFT);
}

void dn_conv_product_window(
    const cpu_engine *e, const product_job *j, int64_t item, conv_window *w)
{
    const conv_product *p = j->product;
    conv_place at = dn_conv_place(e, j->job, item);
    conv_span s = dn_conv_span(&e->frame, at.length, at.window, p->adjoint);
    w->code = e->code;
    w->source =
        dn_conv_source(e, p->x, &at, s.used, p->adjoint ? CONV_MEETS_BACK : CONV_MEETS);
    w->view = dn_conv_view(&e->frame, p->adjoint ? CONV_MAKES_BACK : CONV_MAKES);
    w->sinks = p->sinks;
    for (int i = 0; i < p->sinks; i++) {
        const conv_sink *to = &p->sink[i];
        w->sink[i].data = (char *)to->data +
                          row_offset(e, at.first, &at, to->grouped & CONV_GROUPED_DATA);
        w->sink[i].factor =
            row_of(e, to->factor, &at, to->grouped & CONV_GROUPED_FACTOR);
        w->sink[i].conjugate = to->conjugate;
    }
    w->start = s.start;
    w->out = (range){ s.y.from - s.start, s.y.to - s.start };
    w->fold = p->adjoint ? -e->frame.fold : e->frame.fold;
    w->mode = p->adjoint ? CONV_CORRELATE : CONV_MULTIPLY;
    w->spectrum =
        (const char *)j->job->spectrum + (size_t)at.filter * e->base.filter_bytes;
    w->scaling.up = shift_of(e, j->job->spectrum, at.filter);
}
