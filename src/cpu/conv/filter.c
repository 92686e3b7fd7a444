/* Sums over rows for the gradients of filters,

       dk[s] = sum over rows and t of dy[t] x[t - s],

   as the product of the spectrum of dy and the conjugate spectrum of x. Rows are summed in
   parts that depend only on the problem, so results do not depend on threads. Few filters have
   several parts each. Otherwise a filter has one part, and its thread transforms it back at
   once. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/loop.h"

#include "base/mem.h"
#include "cpu/isa/flags.h"

#include <stdlib.h>
#include <string.h>

/* Parts that sums over rows are made of, over all filters, and their bytes. */
#define MOST_PARTS      16
#define MOST_PART_BYTES ((int64_t)64 << 20)

/* More than any size has. */
#define MOST_SIZE 4096

typedef struct filter_sums {
    const cpu_engine *e;
    const conv_job *job;
    int64_t parts, items; /* of one filter */
    char *sums;           /* [filter][part], where there are several parts */
    char *slots;          /* scratch of each thread: two spectra, a sum, a buffer */
    size_t slot_bytes;
    atomic_llong next;
    int phase; /* 0: sums over rows, and all of a single part; 1: parts to filters */
} filter_sums;

/* What one item multiplies. */
typedef struct filter_operands {
    conv_source x, dy;
    int64_t start;
} filter_operands;

/* A sum is a spectrum and its note. */
static size_t sum_bytes(const cpu_engine *e)
{
    return dn_aligned((int64_t)(e->base.filter_bytes + e->base.note_bytes));
}

static conv_note *note_of(const cpu_engine *e, const void *sum)
{
    return dn_conv_notes(e, sum, 1);
}

static char *buffer_of(const cpu_engine *e, char *slot)
{
    return slot + 2 * e->base.filter_bytes + sum_bytes(e);
}

static filter_operands operands_of(const filter_sums *s, int64_t item)
{
    const cpu_engine *e = s->e;
    const conv_filter_sums *f = &s->job->filter;
    conv_place at = dn_conv_place(e, s->job, item);
    conv_span w = dn_conv_span(&e->frame, at.length, at.window, 0);
    return (filter_operands){
        .x = dn_conv_source(e, f->x, &at, w.used, CONV_MEETS),
        .dy = dn_conv_source(e, f->dy, &at, w.y, CONV_MAKES),
        .start = w.start,
    };
}

/* Sums so many items, x over 2^x_down and dy over 2^dy_down. */
static void sum_items(
    const filter_sums *s, range items, int x_down, int dy_down, char *slot, char *sum)
{
    const cpu_engine *e = s->e;
    size_t z = e->base.filter_bytes;
    char *buffer = buffer_of(e, slot);
    memset(sum, 0, sum_bytes(e));
    for (int64_t i = items.from; i < items.to; i++) {
        filter_operands o = operands_of(s, i);
        dn_conv_forward(e->tables, e->code, o.x, o.start, x_down, slot, buffer);
        dn_conv_forward(e->tables, e->code, o.dy, o.start, dy_down, slot + z, buffer);
        e->sums->accumulate(1, e->tables->n, slot + z, slot, sum);
    }
}

/* Sizes of all x and of all dy. Returns whether they are to be scaled by these. */
static int sizes_of(const filter_sums *s, range items, int *x, int *dy)
{
    int most = dn_conv_exponents(s->e->sums->kernel.dtype), one;
    *x = *dy = -MOST_SIZE;
    for (int64_t i = items.from; i < items.to; i++) {
        filter_operands o = operands_of(s, i);
        if (dn_conv_source_size(s->e->code, &o.x, &one))
            *x = MAX(*x, one);
        if (dn_conv_source_size(s->e->code, &o.dy, &one))
            *dy = MAX(*dy, one);
    }
    if (*x == -MOST_SIZE || *dy == -MOST_SIZE)
        return 0;
    return abs(*x) > most || abs(*dy) > most || abs(*x + *dy) > most;
}

/* Items of a part follow each other: rows and windows of one filter. */
static void sum_part(
    const filter_sums *s, int64_t filter, int64_t part, char *slot, char *sum)
{
    const cpu_engine *e = s->e;
    int64_t first = filter * s->items;
    range items = { first + s->items * part / s->parts,
                    first + s->items * (part + 1) / s->parts };
    range_notes notes = dn_range_begin();
    int x, dy;
    sum_items(s, items, 0, 0, slot, sum);
    if (!dn_range_end(notes) || !sizes_of(s, items, &x, &dy))
        return;
    sum_items(s, items, x, dy, slot, sum);
    note_of(e, sum)->shift = x + dy;
}

/* Divides a sum by one power of two more. */
static void shift_sum(const cpu_engine *e, void *sum, int shift)
{
    conv_note *note = note_of(e, sum);
    if (!shift)
        return;
    dn_conv_multiply(e->sums->kernel.dtype, -shift, 2 * e->tables->n, sum);
    note->shift += shift;
}

/* sum[i] += part[i] */
static void add_part(const cpu_engine *e, void *sum, void *part)
{
    int shift = note_of(e, sum)->shift;
    int other = note_of(e, part)->shift;
    shift_sum(e, sum, MAX(other - shift, 0));
    shift_sum(e, part, MAX(shift - other, 0));
    for (int64_t i = 0; i < 2 * e->tables->n; i++)
        if (e->sums->size == sizeof(double))
            ((double *)sum)[i] += ((const double *)part)[i];
        else
            ((float *)sum)[i] += ((const float *)part)[i];
}

/* sum: of the first part, which the others follow. */
static void finish_filter(const filter_sums *s, int64_t filter, char *slot, char *sum)
{
    const cpu_engine *e = s->e;
    for (int64_t part = 1; part < s->parts; part++)
        add_part(e, sum, sum + (size_t)part * sum_bytes(e));
    int size, most = dn_conv_exponents(e->sums->kernel.dtype);
    if (dn_conv_size(e->sums->kernel.dtype, sum, 2 * e->tables->n, &size) &&
        abs(size) > most)
        shift_sum(e, sum, size);
    int shift = note_of(e, sum)->shift;
    conv_window w = {
        .tables = e->tables,
        .code = e->sums,
        .sink = { { .data = slot } },
        .sinks = 1,
        .out = { 0, 2 * e->tables->n },
        .mode = CONV_INVERSE,
        .z = sum,
    };
    dn_conv_window(&w, buffer_of(e, slot));
    dn_conv_take_filter(
        &e->frame, e->sums->kernel.dtype, slot, shift, filter, &s->job->filter);
}

static void take_filters(void *arg, int number_of_slot)
{
    filter_sums *s = arg;
    char *slot = s->slots + (size_t)number_of_slot * s->slot_bytes;
    size_t z = s->e->base.filter_bytes, bytes = sum_bytes(s->e);
    int64_t parts = s->phase == 0 ? s->parts : 1;
    for (int64_t i; (i = atomic_fetch_add(&s->next, 1)) < s->e->p.filters * parts;) {
        size_t index = (size_t)(s->phase == 0 ? i : i * s->parts);
        char *sum = s->parts > 1 ? s->sums + index * bytes : slot + 2 * z;
        if (s->phase == 0)
            sum_part(s, i / parts, i % parts, slot, sum);
        if (s->phase == 1 || s->parts == 1)
            finish_filter(s, i, slot, sum);
    }
}

/* How the sums of a job are cut; no scratch yet. */
static filter_sums sums_of(const cpu_engine *e, const conv_job *job)
{
    int64_t bytes = (int64_t)sum_bytes(e), filters = e->p.filters;
    filter_sums s = { .e = e, .job = job };
    s.items = e->p.channels / filters * dn_conv_windows_of(&e->frame, job);
    s.parts = CLAMP(MIN(MOST_PARTS, MOST_PART_BYTES / bytes) / filters, 1, s.items);
    s.slot_bytes = e->base.filter_bytes + sum_bytes(e) + e->base.worker_bytes;
    return s;
}

static int slots_of(const cpu_device *dev, const filter_sums *s)
{
    return (int)MIN(dev->threads, s->e->p.filters * s->parts);
}

/* Bytes of the parts of all filters. */
static size_t part_bytes(const filter_sums *s)
{
    size_t all = (size_t)(s->e->p.filters * s->parts);
    return s->parts > 1 ? all * sum_bytes(s->e) : 0;
}

size_t dn_conv_sums_bytes(
    const cpu_device *dev, const cpu_engine *e, const conv_job *job)
{
    filter_sums s = sums_of(e, job);
    return part_bytes(&s) + (size_t)slots_of(dev, &s) * s.slot_bytes;
}

void dn_conv_sum_filters(
    cpu_device *dev, const cpu_engine *e, const conv_job *job, void *scratch)
{
    filter_sums s = sums_of(e, job);
    s.sums = scratch;
    s.slots = s.sums + part_bytes(&s);
    for (s.phase = 0; s.phase < (s.parts > 1 ? 2 : 1); s.phase++) {
        atomic_init(&s.next, 0);
        dn_cpu_parallel(dev, slots_of(dev, &s), take_filters, &s);
    }
}
