/* Gradients of convolutions with few taps. With y[t] = sum of k[s] u[t + shift - s]:

       du[t] = sum over s of k[s] dy[t - shift + s],
       dk[s] = sum over batch and t of dy[t] u[t + shift - s],    dbias = sum of dy.

   du is a convolution with the reversed taps and shift taps - 1 - shift. A task takes
   one channel, or CHANNELS of them where they lie last in memory, and a part of the
   batch's segments: dy and u come to scratch once, in the type of sums, each with the
   taps - 1 neighbours that it needs, and all three gradients are made from there. The
   parts depend on the problem alone and are added in order, so threads change no bit. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv_loop.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "cpu/grid.h"

#include <string.h>

/* Channels first: numbers of a row at a time. */
#define SEGMENT 1024
/* Channels last: rows of memory at a time, channels of a task, and numbers from one row
   of scratch to the next, which is no power of two. */
#define ROWS     64
#define CHANNELS 256
#define STRIDE   (CHANNELS + 16)
/* Tasks that sums are cut into, at least, where there are as many segments. */
#define TASKS 64

#define MOST_TAPS DANAUS_SHORT_MOST_TAPS

typedef struct gradient_job {
    const short_gradient_operands *o;
    const conv_code *code;
    int last;                         /* channels last */
    int64_t shift, segments;          /* of a row */
    int64_t groups, parts;            /* of channels; of the batch's segments */
    int64_t sums_of_task;             /* numbers: taps, then the bias */
    char *back, *ones, *sums, *slots; /* reversed taps; [parts][groups][sums] */
    size_t slot_bytes;
    atomic_llong next;
} gradient_job;

/* A task's memory: dy and u with their neighbours, du, and where its sums go. */
typedef struct task {
    char *dy, *u, *du, *sums;
    int64_t group;
} task;

static char *numbers(const gradient_job *j, char *from, int64_t count)
{
    return from + (size_t)count * j->code->size;
}

/* ---- channels first ---- */

static void first_segment(const gradient_job *j, const task *k, int64_t item)
{
    const short_gradient_operands *o = j->o;
    const danaus_short_desc *d = &o->desc;
    int64_t taps = d->taps, from = item % j->segments * SEGMENT;
    int64_t n = MIN(SEGMENT, d->length - from);
    size_t at = (size_t)((item / j->segments * d->channels + k->group) * d->length) *
                danaus_dtype_size(d->dtype);
    dn_short_fetch(
        j->code, (const char *)o->dy + at, d->length, from - j->shift, n + taps - 1,
        k->dy);
    const char *dy = numbers(j, k->dy, j->shift);
    if (o->to.dk) {
        dn_short_fetch(
            j->code, (const char *)o->u + at, d->length, from + j->shift - (taps - 1),
            n + taps - 1, k->u);
        j->code->lags(n, taps, dy, numbers(j, k->u, taps - 1), k->sums);
    }
    if (o->to.dbias)
        j->code->lags(n, 1, dy, j->ones, numbers(j, k->sums, taps));
    if (!o->to.du)
        return;
    memset(k->du, 0, (size_t)n * j->code->size);
    j->code->taps(
        n, taps, numbers(j, j->back, k->group * taps), numbers(j, k->dy, taps - 1),
        k->du);
    j->code->put(k->du, NULL, from, n, (char *)o->to.du + at);
}

/* ---- channels last ---- */

/* Rows of memory [from, from + count) of `n` channels from h on; zeros outside. */
static void fetch_rows(
    const gradient_job *j, const char *data, int64_t from, int64_t count, int64_t h,
    int64_t n, char *to)
{
    const danaus_short_desc *d = &j->o->desc;
    for (int64_t t = from; t < from + count; t++, to = numbers(j, to, STRIDE))
        if (t >= 0 && t < d->length)
            j->code->fetch(data, NULL, t * d->channels + h, n, to);
        else
            memset(to, 0, STRIDE * j->code->size);
}

static void last_du(
    const gradient_job *j, const task *k, int64_t from, int64_t count, int64_t n,
    char *du)
{
    const danaus_short_desc *d = &j->o->desc;
    int64_t h = k->group * CHANNELS;
    for (int64_t t = 0; t < count; t++) {
        const void *rows[MOST_TAPS];
        for (int64_t s = 0; s < d->taps; s++)
            rows[s] = numbers(j, k->dy, (t + d->taps - 1 - s) * STRIDE);
        memset(k->du, 0, (size_t)n * j->code->size);
        j->code->cross(n, d->taps, numbers(j, j->back, h), d->channels, rows, k->du);
        j->code->put(k->du, NULL, (from + t) * d->channels + h, n, du);
    }
}

static void last_segment(const gradient_job *j, const task *k, int64_t item)
{
    const short_gradient_operands *o = j->o;
    const danaus_short_desc *d = &o->desc;
    int64_t taps = d->taps, from = item % j->segments * ROWS;
    int64_t count = MIN(ROWS, d->length - from);
    int64_t h = k->group * CHANNELS, n = MIN(CHANNELS, d->channels - h);
    size_t at = (size_t)(item / j->segments * d->length * d->channels) *
                danaus_dtype_size(d->dtype);
    fetch_rows(
        j, (const char *)o->dy + at, from - j->shift, count + taps - 1, h, n, k->dy);
    const char *dy = numbers(j, k->dy, j->shift * STRIDE);
    if (o->to.dk) {
        fetch_rows(
            j, (const char *)o->u + at, from + j->shift - (taps - 1), count + taps - 1,
            h, n, k->u);
        j->code->cross_lags(
            n, count, taps, STRIDE, dy, numbers(j, k->u, (taps - 1) * STRIDE), k->sums);
    }
    if (o->to.dbias) {
        const void *rows[ROWS];
        for (int64_t t = 0; t < count; t++)
            rows[t] = dy + (size_t)(t * STRIDE) * j->code->size;
        j->code->cross(n, count, j->ones, 0, rows, numbers(j, k->sums, taps * STRIDE));
    }
    if (o->to.du)
        last_du(j, k, from, count, n, (char *)o->to.du + at);
}

/* ---- tasks ---- */

/* Scratch of a task: dy and u with their neighbours. */
static int64_t window(const gradient_job *j)
{
    return j->last ? (ROWS + MOST_TAPS) * STRIDE : SEGMENT + MOST_TAPS;
}

static void take_tasks(void *arg, int slot)
{
    gradient_job *j = arg;
    char *scratch = j->slots + (size_t)slot * j->slot_bytes;
    task k = { .dy = scratch, .u = numbers(j, scratch, window(j)) };
    k.du = numbers(j, k.u, window(j));
    int64_t items = j->o->batch * j->segments;
    for (int64_t i; (i = atomic_fetch_add(&j->next, 1)) < j->groups * j->parts;) {
        int64_t part = i / j->groups;
        k.group = i % j->groups;
        k.sums = numbers(j, j->sums, i * j->sums_of_task);
        memset(k.sums, 0, (size_t)j->sums_of_task * j->code->size);
        for (int64_t s = items * part / j->parts; s < items * (part + 1) / j->parts;
             s++)
            (j->last ? last_segment : first_segment)(j, &k, s);
    }
}

/* Number `index` of the sums of all parts of a group, and `n` after it, added. */
static void add_parts(
    const gradient_job *j, int64_t group, int64_t index, int64_t n, void *to)
{
    const void *parts[TASKS];
    for (int64_t p = 0; p < j->parts; p++)
        parts[p] =
            numbers(j, j->sums, (p * j->groups + group) * j->sums_of_task + index);
    memset(to, 0, (size_t)n * j->code->size);
    j->code->cross(n, j->parts, j->ones, 0, parts, to);
}

/* From the sums of all tasks to dk and dbias; total: scratch. */
static void finish(const gradient_job *j, char *total)
{
    const danaus_short_gradients *to = &j->o->to;
    int64_t taps = j->o->desc.taps, channels = j->o->desc.channels;
    size_t size = j->code->size;
    for (int64_t s = 0; s <= taps; s++) {
        char *out = s < taps ? to->dk : to->dbias;
        int64_t step = s < taps ? taps : 1, at = s < taps ? s : 0;
        for (int64_t g = 0; out && g < j->groups; g++) {
            int64_t n = j->last ? MIN(CHANNELS, channels - g * CHANNELS) : 1;
            add_parts(j, g, s * (j->last ? STRIDE : 1), n, total);
            for (int64_t i = 0; i < n; i++)
                memcpy(
                    numbers(j, out, (g * (j->last ? CHANNELS : 1) + i) * step + at),
                    total + (size_t)i * size, size);
        }
    }
}

/* Reversed taps, as `taps` and `cross` take them, and ones. */
static void prepare(const gradient_job *j)
{
    int64_t taps = j->o->desc.taps, channels = j->o->desc.channels;
    size_t size = j->code->size;
    for (int64_t h = 0; j->o->to.du && h < channels; h++)
        for (int64_t s = 0; s < taps; s++)
            memcpy(
                numbers(j, j->back, j->last ? s * channels + h : h * taps + s),
                (const char *)j->o->k + (size_t)(h * taps + taps - 1 - s) * size, size);
    for (int64_t i = 0; i < SEGMENT; i++)
        if (size == sizeof(double))
            ((double *)(void *)j->ones)[i] = 1;
        else
            ((float *)(void *)j->ones)[i] = 1;
}

/* Divides scratch between back, ones, sums and the slots of threads. */
static danaus_status take_scratch(gradient_job *j, cpu_device *d, int slots)
{
    int64_t size = (int64_t)j->code->size, taps = j->o->desc.taps;
    size_t back = dn_aligned(j->o->desc.channels * taps * size);
    size_t ones = dn_aligned(SEGMENT * size);
    size_t sums = dn_aligned(j->groups * j->parts * j->sums_of_task * size);
    void *scratch;
    j->slot_bytes = dn_aligned((2 * window(j) + SEGMENT) * size);
    TRY(dn_cpu_scratch(
        d, back + ones + sums + (size_t)slots * j->slot_bytes, &scratch));
    j->back = scratch;
    j->ones = j->back + back;
    j->sums = j->ones + ones;
    j->slots = j->sums + sums;
    return DANAUS_OK;
}

danaus_status dn_cpu_conv_short_gradient(
    danaus_device *dev, const short_gradient_operands *o)
{
    cpu_device *d = (cpu_device *)dev;
    const danaus_short_desc *p = &o->desc;
    gradient_job j = { .o = o, .code = dn_conv_code(d, p->dtype) };
    j.last = p->layout == DANAUS_CHANNELS_LAST;
    j.shift = p->centred ? (p->taps - 1) / 2 : 0;
    j.segments = CEIL_DIV(p->length, j.last ? ROWS : SEGMENT);
    j.groups = j.last ? CEIL_DIV(p->channels, CHANNELS) : p->channels;
    j.parts = CLAMP(CEIL_DIV(TASKS, j.groups), 1, o->batch * j.segments);
    j.sums_of_task = (p->taps + 1) * (j.last ? STRIDE : 1);
    double work =
        (double)o->batch * (double)p->channels * (double)p->length * (double)p->taps;
    int slots = work < SHORT_SERIAL_WORK ? 1 : (int)MIN(d->threads, j.groups * j.parts);
    TRY(take_scratch(&j, d, slots));
    prepare(&j);
    atomic_init(&j.next, 0);
    if (slots == 1)
        take_tasks(&j, 0);
    else
        dn_cpu_parallel(d, slots, take_tasks, &j);
    finish(&j, j.slots);
    return DANAUS_OK;
}
