/* Convolutions with few taps: direct sums, on segments that pass through scratch in the
   type of sums. Channels first, vectors run along the row; channels last, along the
   channels of a row of memory, with the last `taps` rows kept. Gradients:
   conv_short_gradient.c. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv_loop.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "cpu/grid.h"

#include <string.h>

/* Numbers of a row, or channels, that a task takes. */
#define SEGMENT 1024
/* Rows of memory of a task, channels last. */
#define ROWS 512

typedef struct short_job {
    const short_operands *o;
    const conv_code *code;
    int64_t shift, segments, chunks; /* of a batch row, or of a channel */
    char *scratch;
    size_t slot_bytes;
    const char *turned; /* k[taps][channels] */
    atomic_llong next;
} short_job;

static void fill(
    const conv_code *code, void *to, int64_t n, const void *from, int64_t at)
{
    for (int64_t i = 0; i < n; i++)
        if (code->size == sizeof(double))
            ((double *)to)[i] = from ? ((const double *)from)[at] : 0;
        else
            ((float *)to)[i] = from ? ((const float *)from)[at] : 0;
}

void dn_short_fetch(
    const conv_code *code, const void *row, int64_t length, int64_t from, int64_t n,
    char *to)
{
    int64_t size = (int64_t)code->size;
    int64_t first = CLAMP(0, from, from + n), end = CLAMP(length, first, from + n);
    memset(to, 0, (size_t)(n * size));
    if (end > first)
        code->fetch(row, NULL, first, end - first, to + (first - from) * size);
}

/* Task: segment `number` of a channel of a batch row. */
static void first_task(const short_job *j, int64_t number, char *scratch)
{
    const danaus_short_desc *d = &j->o->desc;
    int64_t from = number % j->segments * SEGMENT, row = number / j->segments;
    int64_t n = MIN(SEGMENT, d->length - from), channel = row % d->channels;
    size_t size = j->code->size, storage = danaus_dtype_size(d->dtype);
    size_t at = (size_t)(row * d->length) * storage;
    char *x = scratch, *y = x + (SEGMENT + DANAUS_SHORT_MOST_TAPS) * size;
    dn_short_fetch(
        j->code, (const char *)j->o->u + at, d->length, from + j->shift - (d->taps - 1),
        n + d->taps - 1, x);
    fill(j->code, y, n, j->o->bias, channel);
    j->code->taps(
        n, d->taps, (const char *)j->o->k + (size_t)(channel * d->taps) * size,
        x + (size_t)(d->taps - 1) * size, y);
    j->code->put(y, NULL, from, n, (char *)j->o->y + at);
}

/* Task: rows [from, to) of memory of a batch row, some channels of each. */
static void last_task(const short_job *j, int64_t number, char *scratch)
{
    const danaus_short_desc *d = &j->o->desc;
    int64_t chunk = number % j->chunks, rest = number / j->chunks;
    int64_t from = rest % j->segments * ROWS, to = MIN(from + ROWS, d->length);
    int64_t h = chunk * SEGMENT, n = MIN(SEGMENT, d->channels - h);
    size_t size = j->code->size, row = SEGMENT * size;
    size_t at = (size_t)(rest / j->segments * d->length * d->channels) *
                danaus_dtype_size(d->dtype);
    const char *u = (const char *)j->o->u + at;
    char *y = scratch + DANAUS_SHORT_MOST_TAPS * row;
    int64_t have = from + j->shift - (d->taps - 1); /* rows that are in scratch */
    for (int64_t t = from; t < to; t++) {
        const void *rows[DANAUS_SHORT_MOST_TAPS];
        for (; have <= t + j->shift; have++) {
            char *place = scratch + (size_t)((have + d->taps) % d->taps) * row;
            if (have >= 0 && have < d->length)
                j->code->fetch(u, NULL, have * d->channels + h, n, place);
            else
                memset(place, 0, row);
        }
        for (int64_t s = 0; s < d->taps; s++)
            rows[s] = scratch + (size_t)((t + j->shift - s + d->taps) % d->taps) * row;
        memset(y, 0, row);
        if (j->o->bias)
            memcpy(y, (const char *)j->o->bias + (size_t)h * size, (size_t)n * size);
        j->code->cross(n, d->taps, j->turned + (size_t)h * size, d->channels, rows, y);
        j->code->put(y, NULL, t * d->channels + h, n, (char *)j->o->y + at);
    }
}

static int64_t tasks_of(const short_job *j)
{
    const danaus_short_desc *d = &j->o->desc;
    int last = d->layout == DANAUS_CHANNELS_LAST;
    return j->o->batch * j->segments * (last ? j->chunks : d->channels);
}

static void take_tasks(void *arg, int slot)
{
    short_job *j = arg;
    char *scratch = j->scratch + (size_t)slot * j->slot_bytes;
    int last = j->o->desc.layout == DANAUS_CHANNELS_LAST;
    for (int64_t i; (i = atomic_fetch_add(&j->next, 1)) < tasks_of(j);)
        (last ? last_task : first_task)(j, i, scratch);
}

static void turn_filters(const short_job *j, char *to)
{
    const danaus_short_desc *d = &j->o->desc;
    size_t size = j->code->size;
    const char *k = j->o->k;
    for (int64_t h = 0; h < d->channels; h++)
        for (int64_t s = 0; s < d->taps; s++)
            memcpy(
                to + (size_t)(s * d->channels + h) * size,
                k + (size_t)(h * d->taps + s) * size, size);
}

danaus_status dn_cpu_conv_short(danaus_device *dev, const short_operands *o)
{
    cpu_device *d = (cpu_device *)dev;
    int last = o->desc.layout == DANAUS_CHANNELS_LAST;
    short_job j = { .o = o, .code = dn_conv_code(d, o->desc.dtype) };
    j.shift = o->desc.centred ? (o->desc.taps - 1) / 2 : 0;
    j.segments = CEIL_DIV(o->desc.length, last ? ROWS : SEGMENT);
    j.chunks = CEIL_DIV(o->desc.channels, SEGMENT);
    int64_t rows = last ? DANAUS_SHORT_MOST_TAPS + 1 : 3;
    j.slot_bytes = dn_aligned(rows * SEGMENT * (int64_t)j.code->size);
    size_t turned =
        last ? dn_aligned(o->desc.channels * o->desc.taps * (int64_t)j.code->size) : 0;
    double work = (double)o->batch * (double)o->desc.channels * (double)o->desc.length *
                  (double)o->desc.taps;
    int slots = work < SHORT_SERIAL_WORK ? 1 : (int)MIN(d->threads, tasks_of(&j));
    void *scratch;
    TRY(dn_cpu_scratch(d, turned + (size_t)slots * j.slot_bytes, &scratch));
    j.turned = scratch;
    j.scratch = (char *)scratch + turned;
    if (last)
        turn_filters(&j, scratch);
    atomic_init(&j.next, 0);
    if (slots == 1)
        take_tasks(&j, 0);
    else
        dn_cpu_parallel(d, slots, take_tasks, &j);
    return DANAUS_OK;
}
