/* Streams on the CPU: the transforms and products that are due (conv/stream.c). Subnormal
   numbers count as zero here: a signal that dies away leaves them in every sum, and processors
   are many times slower with them. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/loop.h"

#include "base/mem.h"
#include "base/status.h"
#include "cpu/isa/flags.h"

#include <string.h>

/* Sums of one number that are worth a thread. */
#define SERIAL_WORK 8192

typedef struct level_state {
    int64_t block, parts;
    conv_tables *tables;
    char *filters; /* spectra [filter][part] */
    char *windows; /* spectra [channel][part], the latest at block number % parts */
    char *sums;    /* spectra [channel]: (11) for the block to come, but part 0 */
} level_state;

struct stream_engine {
    stream_shape shape;
    const conv_code *code;
    level_state level[STREAM_MOST_LEVELS];
    char *head;   /* [filter][STREAM_HEAD] taps */
    char *past;   /* u [channel][ring] */
    char *future; /* sums that y will get, [channel][ring] */
};

static size_t spectrum_size(const stream_engine *s, const level_state *l)
{
    return (size_t)(2 * l->block) * s->code->size;
}

/* ---- making and forgetting ---- */

static danaus_status allocate(stream_engine *s, size_t cache)
{
    int64_t channels = s->shape.desc.channels, filters = s->shape.desc.filters;
    size_t size = s->code->size;
    s->head = dn_calloc((size_t)(filters * STREAM_HEAD), size);
    s->past = dn_calloc((size_t)(channels * s->shape.ring), size);
    s->future = dn_calloc((size_t)(channels * s->shape.ring), size);
    int ok = s->head && s->past && s->future;
    for (int i = 0; ok && i < s->shape.levels; i++) {
        level_state *l = &s->level[i];
        l->block = s->shape.level[i].block;
        l->parts = s->shape.level[i].parts;
        size_t z = spectrum_size(s, l);
        l->tables =
            dn_conv_tables_create(dn_conv_cut(s->code, l->block), s->code, cache, NULL);
        l->filters = dn_calloc((size_t)(filters * l->parts), z);
        l->windows = dn_calloc((size_t)(channels * l->parts), z);
        l->sums = dn_calloc((size_t)channels, z);
        ok = l->tables && l->filters && l->windows && l->sums;
    }
    return ok ? DANAUS_OK
              : dn_fail_memory(
                    (size_t)(channels * s->shape.desc.filter_length) * size,
                    "a stream");
}

/* Spectra of all parts, with the factor 1 / n; scaled: room for `block` taps. */
static void transform_filters(
    stream_engine *s, const void *k, char *scaled, void *buffer)
{
    int64_t taps = s->shape.desc.filter_length;
    size_t size = s->code->size;
    for (int64_t f = 0; f < s->shape.desc.filters; f++) {
        const char *row = (const char *)k + (size_t)(f * taps) * size;
        memcpy(
            s->head + (size_t)(f * STREAM_HEAD) * size, row,
            (size_t)MIN(taps, STREAM_HEAD) * size);
        for (int i = 0; i < s->shape.levels; i++) {
            level_state *l = &s->level[i];
            for (int64_t part = 0; part < l->parts; part++) {
                int64_t from = (part + 1) * l->block, n = MIN(l->block, taps - from);
                for (int64_t t = 0; t < n; t++)
                    if (size == sizeof(double))
                        ((double *)scaled)[t] =
                            ((const double *)row)[from + t] / (double)l->block;
                    else
                        ((float *)scaled)[t] =
                            ((const float *)row)[from + t] / (float)l->block;
                conv_source source = { .data = scaled, .length = n, .to = n };
                dn_conv_forward(
                    l->tables, s->code, source, 0, 0,
                    l->filters + (size_t)(f * l->parts + part) * spectrum_size(s, l),
                    buffer);
            }
        }
    }
}

/* Scratch of a thread: one block of numbers, and what a window needs. */
static size_t slot_bytes(const stream_engine *s)
{
    size_t most = 0;
    for (int i = 0; i < s->shape.levels; i++)
        most = MAX(most, dn_conv_buffer(s->level[i].tables, s->code));
    return dn_aligned((int64_t)(most + (size_t)s->shape.ring * s->code->size));
}

danaus_status dn_cpu_stream_create(
    danaus_device *dev, const stream_shape *shape, const void *k,
    stream_engine **stream)
{
    cpu_device *d = (cpu_device *)dev;
    stream_engine *s = dn_calloc(1, sizeof *s);
    if (!s)
        return dn_fail_memory(sizeof *s, "a stream");
    s->shape = *shape;
    s->code = dn_conv_code(d, shape->desc.dtype);
    void *scratch;
    danaus_status status = allocate(s, d->l2);
    status = status ? status : dn_cpu_scratch(d, slot_bytes(s), &scratch);
    if (status != DANAUS_OK) {
        dn_cpu_stream_destroy(s);
        return status;
    }
    small_numbers before = dn_small_as_zero();
    transform_filters(
        s, k, scratch, (char *)scratch + (size_t)s->shape.ring * s->code->size);
    dn_small_as_before(before);
    dn_cpu_give_scratch(d);
    *stream = s;
    return DANAUS_OK;
}

void dn_cpu_stream_destroy(stream_engine *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->shape.levels; i++) {
        dn_conv_tables_destroy(s->level[i].tables);
        dn_free(s->level[i].filters);
        dn_free(s->level[i].windows);
        dn_free(s->level[i].sums);
    }
    dn_free(s->head);
    dn_free(s->past);
    dn_free(s->future);
    dn_free(s);
}

void dn_cpu_stream_reset(stream_engine *s)
{
    size_t row = (size_t)s->shape.ring * s->code->size,
           channels = (size_t)s->shape.desc.channels;
    memset(s->past, 0, channels * row);
    memset(s->future, 0, channels * row);
    for (int i = 0; i < s->shape.levels; i++) {
        level_state *l = &s->level[i];
        memset(l->windows, 0, channels * (size_t)l->parts * spectrum_size(s, l));
        memset(l->sums, 0, channels * spectrum_size(s, l));
    }
}

/* ---- running ---- */

/* One channel at work. */
typedef struct channel_run {
    const stream_engine *s;
    int64_t channel, filter, time;
    char *past, *future, *block; /* block: scratch of `ring` numbers */
    void *buffer;
} channel_run;

/* Product of part i with the window that will be i blocks old when the block that
   fills now, number `number`, is complete. */
static void add_part(
    const channel_run *r, const level_state *l, int64_t number, int64_t i)
{
    const stream_engine *s = r->s;
    size_t z = spectrum_size(s, l);
    int64_t window = (number - i + l->parts) % l->parts;
    s->code->accumulate(
        0, l->block, l->windows + (size_t)(r->channel * l->parts + window) * z,
        l->filters + (size_t)(r->filter * l->parts + i) * z,
        l->sums + (size_t)r->channel * z);
}

/* The last block of a level is complete: (11). */
static void end_block(const channel_run *r, const level_state *l)
{
    const stream_engine *s = r->s;
    size_t size = s->code->size, z = spectrum_size(s, l);
    int64_t number = r->time / l->block, window = number % l->parts;
    char *sum = l->sums + (size_t)r->channel * z;
    conv_source source = { .data = r->past,
                           .length = s->shape.ring,
                           .from = r->time - 2 * l->block,
                           .to = r->time,
                           .periodic = 1 };
    dn_conv_forward(
        l->tables, s->code, source, r->time - 2 * l->block, 0,
        l->windows + (size_t)(r->channel * l->parts + window) * z, r->buffer);
    add_part(r, l, number, 0);
    conv_window w = {
        .tables = l->tables,
        .code = s->code,
        .sink = { { .data = r->block } },
        .sinks = 1,
        .start = -l->block,
        .out = { l->block, 2 * l->block },
        .mode = CONV_INVERSE,
        .z = sum,
    };
    dn_conv_window(&w, r->buffer);
    static const double one[1] = { 1 };
    static const float one_f[1] = { 1 };
    char *future = r->future + (size_t)(r->time % s->shape.ring) * size;
    s->code->taps(
        l->block, 1, size == sizeof(double) ? (const void *)one : one_f, r->block,
        future, 1, 0, future);
    memset(sum, 0, z);
}

static void take_step(channel_run *r, const stream_step *step, const char *u, char *y)
{
    const stream_engine *s = r->s;
    int64_t n = step->n;
    size_t size = s->code->size;
    int64_t at = r->time % s->shape.ring;
    memcpy(r->past + (size_t)at * size, u, (size_t)n * size);
    /* The head sees STREAM_HEAD - 1 numbers before, which may lie at the ring's end. */
    char *x = r->block;
    int64_t before = STREAM_HEAD - 1, wrapped = CLAMP(before - at, 0, before);
    memcpy(
        x, r->past + (size_t)(s->shape.ring - wrapped) * size, (size_t)wrapped * size);
    memcpy(
        x + (size_t)wrapped * size, r->past + (size_t)(at - before + wrapped) * size,
        (size_t)(before - wrapped + n) * size);
    char *sums = r->future + (size_t)at * size;
    memcpy(y, sums, (size_t)n * size);
    memset(sums, 0, (size_t)n * size);
    s->code->taps(
        n, MIN(STREAM_HEAD, s->shape.desc.filter_length),
        s->head + (size_t)(r->filter * STREAM_HEAD) * size, x + (size_t)before * size,
        y, 1, 0, y);
    for (int i = 0; i < s->shape.levels; i++)
        for (int64_t p = step->level[i].parts.from; p < step->level[i].parts.to; p++)
            add_part(r, &s->level[i], step->level[i].number, p);
    r->time += n;
    for (int i = 0; i < s->shape.levels; i++)
        if (step->level[i].complete)
            end_block(r, &s->level[i]);
}

typedef struct stream_job {
    const stream_engine *s;
    int64_t time, count;
    const char *u;
    char *y, *scratch;
    size_t slot_bytes;
    atomic_llong next;
} stream_job;

static void take_channels(void *arg, int slot)
{
    stream_job *j = arg;
    const stream_engine *s = j->s;
    size_t size = s->code->size, row = (size_t)s->shape.ring * size;
    char *block = j->scratch + (size_t)slot * j->slot_bytes;
    small_numbers before = dn_small_as_zero();
    for (int64_t c; (c = atomic_fetch_add(&j->next, 1)) < s->shape.desc.channels;) {
        channel_run r = {
            .s = s,
            .channel = c,
            .filter = c / (s->shape.desc.channels / s->shape.desc.filters),
            .time = j->time,
            .past = s->past + (size_t)c * row,
            .future = s->future + (size_t)c * row,
            .block = block,
            .buffer = block + row,
        };
        for (int64_t done = 0; done < j->count;) {
            size_t at = (size_t)(c * j->count + done) * size;
            stream_step step = dn_stream_step(&s->shape, r.time, j->count - done);
            take_step(&r, &step, j->u + at, j->y + at);
            done += step.n;
        }
    }
    dn_small_as_before(before);
}

danaus_status dn_cpu_stream_run(
    danaus_device *dev, stream_engine *s, int64_t time, int64_t count, const void *u,
    void *y)
{
    cpu_device *d = (cpu_device *)dev;
    stream_job j = { .s = s, .time = time, .count = count, .u = u, .y = y };
    int64_t worth = s->shape.desc.channels * count / SERIAL_WORK;
    int slots = (int)CLAMP(worth, 1, MIN(d->threads, s->shape.desc.channels));
    j.slot_bytes = slot_bytes(s);
    void *scratch;
    TRY(dn_cpu_scratch(d, (size_t)slots * j.slot_bytes, &scratch));
    j.scratch = scratch;
    atomic_init(&j.next, 0);
    if (slots == 1)
        take_channels(&j, 0);
    else
        dn_cpu_parallel(d, slots, take_channels, &j);
    dn_cpu_give_scratch(d);
    return DANAUS_OK;
}
