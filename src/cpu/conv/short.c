/* Convolutions with few taps: direct sums, on segments that pass through scratch in the
   type of sums. Channels first, vectors run along the row; channels last, along the
   channels of a row of memory, with the last `taps` rows kept. Gradients:
   short_gradient.c. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/loop.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

#include <string.h>

/* Numbers of a row, or channels, of a segment. */
#define SEGMENT 1024
/* Rows of memory of a segment, channels last: few, or as many as are worth converting
   the rows before them, too. */
#define ROWS_DIRECT    8
#define ROWS_CONVERTED 64
/* Segments that a thread takes at once, at most: memory likes to be met in order. */
#define LONGEST_RUN 16

typedef struct short_job {
    const short_operands *o;
    const conv_code *code;
    int64_t shift, segments, chunks; /* of a batch row, or of a channel */
    int64_t rows;                    /* of memory of a segment, channels last */
    int64_t run;                     /* segments that a thread takes at a time */
    int past;                        /* y is larger than the caches */
    char *scratch;
    size_t slot_bytes;
    const char *turned; /* k[taps][channels] */
    const char *zeros;  /* a row of SEGMENT */
    atomic_llong next;
} short_job;

const char *dn_short_window(
    const conv_code *code, const void *row, int64_t length, int64_t from, int64_t n,
    char *scratch)
{
    int64_t size = (int64_t)code->size;
    if (code->direct && from >= 0 && from + n <= length)
        return (const char *)row + from * size;
    int64_t first = CLAMP(0, from, from + n), end = CLAMP(length, first, from + n);
    memset(scratch, 0, (size_t)((first - from) * size));
    if (end > first)
        code->fetch(row, NULL, first, end - first, scratch + (first - from) * size);
    memset(scratch + (end - from) * size, 0, (size_t)((from + n - end) * size));
    return scratch;
}

/* Segment `number` of all channels of all batch rows. */
static void first_segment(const short_job *j, int64_t number, char *scratch)
{
    const danaus_short_desc *d = &j->o->desc;
    int64_t from = number % j->segments * SEGMENT, row = number / j->segments;
    int64_t n = MIN(SEGMENT, d->length - from), channel = row % d->channels;
    size_t size = j->code->size, storage = danaus_dtype_size(d->dtype);
    size_t at = (size_t)(row * d->length) * storage;
    const char *u = (const char *)j->o->u + at, *bias = j->o->bias;
    char *y = (char *)j->o->y + at;
    const char *x = dn_short_window(
        j->code, u, d->length, from + j->shift - (d->taps - 1), n + d->taps - 1,
        scratch);
    char *to = j->code->direct ? y + (size_t)from * size
                               : scratch + (SEGMENT + DANAUS_SHORT_MOST_TAPS) * size;
    j->code->taps(
        n, d->taps, (const char *)j->o->k + (size_t)(channel * d->taps) * size,
        x + (size_t)(d->taps - 1) * size,
        bias ? bias + (size_t)channel * size : j->zeros, 0, j->past, to);
    if (!j->code->direct)
        j->code->put(to, NULL, from, n, y);
}

conv_rows dn_short_rows(
    const conv_code *code, const danaus_short_desc *d, const char *data, int64_t from,
    int64_t count, int64_t h, int64_t n, int64_t stride, char *scratch)
{
    size_t size = code->size;
    if (code->direct && from >= 0 && from + count <= d->length)
        return (conv_rows){ data + (size_t)(from * d->channels + h) * size,
                            d->channels };
    char *to = scratch;
    for (int64_t t = from; t < from + count; t++, to += (size_t)stride * size)
        if (t >= 0 && t < d->length)
            code->fetch(data, NULL, t * d->channels + h, n, to);
        else
            memset(to, 0, (size_t)n * size);
    return (conv_rows){ scratch, stride };
}

/* Rows of memory of a batch row, some channels of each. */
static void last_segment(const short_job *j, int64_t number, char *scratch)
{
    const danaus_short_desc *d = &j->o->desc;
    const conv_code *code = j->code;
    int64_t chunk = number % j->chunks, rest = number / j->chunks;
    int64_t from = rest % j->segments * j->rows, count = MIN(j->rows, d->length - from);
    int64_t h = chunk * SEGMENT, n = MIN(SEGMENT, d->channels - h);
    int64_t stride = SHORT_STRIDE(SEGMENT), before = d->taps - 1;
    size_t size = code->size;
    size_t at = (size_t)(rest / j->segments * d->length * d->channels) *
                danaus_dtype_size(d->dtype);
    const char *bias = j->o->bias;
    char *y = (char *)j->o->y + at;
    conv_rows u = dn_short_rows(
        code, d, (const char *)j->o->u + at, from + j->shift - before, count + before,
        h, n, stride, scratch);
    u.data = dn_short_row(code, u, before);
    conv_rows k = { j->turned + (size_t)h * size, d->channels };
    char *sums = scratch + (size_t)((j->rows + before) * stride) * size;
    int64_t place = from * d->channels + h;
    char *to = code->direct ? y + (size_t)place * size : sums;
    code->cross(
        n, count, d->taps, k, u, bias ? bias + (size_t)h * size : NULL, j->past, to,
        code->direct ? d->channels : stride);
    for (int64_t t = 0; t < count && !code->direct; t++)
        code->put(
            sums + (size_t)(t * stride) * size, NULL, place + t * d->channels, n, y);
}

static int64_t segments_of(const short_job *j)
{
    const danaus_short_desc *d = &j->o->desc;
    int last = d->layout == DANAUS_CHANNELS_LAST;
    return j->o->batch * j->segments * (last ? j->chunks : d->channels);
}

static void take_runs(void *arg, int slot)
{
    short_job *j = arg;
    char *scratch = j->scratch + (size_t)slot * j->slot_bytes;
    int last = j->o->desc.layout == DANAUS_CHANNELS_LAST;
    int64_t all = segments_of(j);
    for (int64_t i; (i = atomic_fetch_add(&j->next, 1) * j->run) < all;)
        for (int64_t s = i; s < MIN(i + j->run, all); s++)
            (last ? last_segment : first_segment)(j, s, scratch);
    j->code->fence();
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
    j.rows = j.code->direct ? ROWS_DIRECT : ROWS_CONVERTED;
    j.segments = CEIL_DIV(o->desc.length, last ? j.rows : SEGMENT);
    j.chunks = CEIL_DIV(o->desc.channels, SEGMENT);
    int64_t rows = last ? 2 * j.rows + o->desc.taps : 3;
    int64_t size = (int64_t)j.code->size;
    double numbers = (double)(o->batch * o->desc.channels) * (double)o->desc.length;
    j.past = numbers * (double)size > (double)d->l3;
    j.slot_bytes = dn_aligned(rows * SHORT_STRIDE(SEGMENT) * size);
    size_t turned = last ? dn_aligned(o->desc.channels * o->desc.taps * size) : 0;
    size_t zeros = dn_aligned(SEGMENT * size);
    int64_t all = segments_of(&j);
    int slots = numbers * (double)o->desc.taps < SHORT_SERIAL_WORK
                    ? 1
                    : (int)MIN(d->threads, all);
    j.run = CLAMP(all / (8 * slots), 1, LONGEST_RUN);
    void *scratch;
    TRY(dn_cpu_scratch(d, turned + zeros + (size_t)slots * j.slot_bytes, &scratch));
    j.turned = scratch;
    j.zeros = j.turned + turned;
    j.scratch = (char *)scratch + turned + zeros;
    memset((char *)scratch + turned, 0, zeros);
    if (last)
        turn_filters(&j, scratch);
    atomic_init(&j.next, 0);
    if (slots == 1)
        take_runs(&j, 0);
    else
        dn_cpu_parallel(d, slots, take_runs, &j);
    return DANAUS_OK;
}
