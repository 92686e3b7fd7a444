/* Gradients of convolutions with few taps. With y[t] = sum of k[s] u[t + shift - s]:

       du[t] = sum over s of k[s] dy[t - shift + s],
       dk[s] = sum over batch and t of dy[t] u[t + shift - s],    dbias = sum of dy.

   du is a convolution with the reversed taps and shift taps - 1 - shift. A task takes
   one channel, or CHANNELS of them where they lie last in memory, and a part of the
   batch's segments: dy and u are read once, each with the taps - 1 neighbours that it
   needs, through scratch at the ends of rows and where types are converted, and all
   three gradients are made of what is then in the first cache. The
   parts depend on the problem alone and are added in order, so threads change no bit. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/loop.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

#include <string.h>

/* Channels first: numbers of a row at a time. */
#define SEGMENT 256
/* Channels last: rows of memory at a time and channels of a task, so that dy and u stay
   in the first cache; where types are converted more rows, of fewer channels. */
#define ROWS               8
#define CHANNELS           1024
#define ROWS_CONVERTED     64
#define CHANNELS_CONVERTED 256
/* Tasks that sums are cut into, at least, where there are as many segments. */
#define TASKS 32

#define MOST_TAPS DANAUS_SHORT_MOST_TAPS

typedef struct gradient_job {
    const short_gradient_operands *o;
    const conv_code *code;
    int last;                    /* channels last */
    int past;                    /* du is larger than the caches */
    int64_t shift, segments;     /* of a row */
    int64_t rows, width, stride; /* channels last: of a segment; of scratch */
    int64_t groups, parts;       /* of channels; of the batch's segments */
    int64_t sums_of_task;        /* numbers: taps, then the bias */
    char *back, *ones, *zero;    /* reversed taps; CHANNELS ones, a zero */
    char *sums, *slots;          /* [parts][groups][sums]; of threads */
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
    const char *all = dn_short_window(
        j->code, (const char *)o->dy + at, d->length, from - j->shift, n + taps - 1,
        k->dy);
    const char *dy = all + (size_t)j->shift * j->code->size;
    if (o->to.dk) {
        const char *u = dn_short_window(
            j->code, (const char *)o->u + at, d->length, from + j->shift - (taps - 1),
            n + taps - 1, k->u);
        j->code->lags(n, taps, dy, u + (size_t)(taps - 1) * j->code->size, k->sums);
    }
    if (o->to.dbias)
        j->code->lags(n, 1, dy, j->ones, numbers(j, k->sums, taps * j->code->vector));
    if (!o->to.du)
        return;
    char *du = (char *)o->to.du + at;
    char *to = j->code->direct ? numbers(j, du, from) : k->du;
    j->code->taps(
        n, taps, numbers(j, j->back, k->group * taps),
        all + (size_t)(taps - 1) * j->code->size, j->zero, 0, j->past, to);
    if (!j->code->direct)
        j->code->put(to, NULL, from, n, du);
}

/* ---- channels last ---- */

static void last_segment(const gradient_job *j, const task *k, int64_t item)
{
    const short_gradient_operands *o = j->o;
    const danaus_short_desc *d = &o->desc;
    const conv_code *code = j->code;
    int64_t taps = d->taps, from = item % j->segments * j->rows;
    int64_t count = MIN(j->rows, d->length - from), most = count + taps - 1;
    int64_t h = k->group * j->width, n = MIN(j->width, d->channels - h);
    size_t at = (size_t)(item / j->segments * d->length * d->channels) *
                danaus_dtype_size(d->dtype);
    conv_rows ones = { j->ones, 0 }, back = { numbers(j, j->back, h), d->channels };
    conv_rows all = dn_short_rows(
        code, d, (const char *)o->dy + at, from - j->shift, most, h, n, j->stride,
        k->dy);
    conv_rows dy = { dn_short_row(code, all, j->shift), all.stride };
    if (o->to.dk) {
        conv_rows u = dn_short_rows(
            code, d, (const char *)o->u + at, from + j->shift - (taps - 1), most, h, n,
            j->stride, k->u);
        u.data = dn_short_row(code, u, taps - 1);
        code->cross_lags(n, count, taps, dy, u, k->sums, j->stride);
    }
    if (o->to.dbias) { /* a sum over all rows is one of so many taps that are 1 */
        char *sums = numbers(j, k->sums, taps * j->stride);
        dy.data = dn_short_row(code, dy, count - 1);
        code->cross(n, 1, count, ones, dy, sums, 0, sums, 0);
    }
    if (!o->to.du)
        return;
    char *du = (char *)o->to.du + at;
    int64_t place = from * d->channels + h;
    char *to = code->direct ? numbers(j, du, place) : k->du;
    all.data = dn_short_row(code, all, taps - 1);
    code->cross(
        n, count, taps, back, all, NULL, j->past, to,
        code->direct ? d->channels : j->stride);
    for (int64_t t = 0; t < count && !code->direct; t++)
        code->put(numbers(j, to, t * j->stride), NULL, place + t * d->channels, n, du);
}

/* ---- tasks ---- */

/* Numbers of scratch of a task for each of dy and u with their neighbours, and du. */
static int64_t window(const gradient_job *j)
{
    return j->last ? (j->rows + j->o->desc.taps) * j->stride : SEGMENT + MOST_TAPS;
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
    j->code->fence();
}

/* Number `index` of the sums of all parts of a group, and `n` after it, added. */
static void add_parts(
    const gradient_job *j, int64_t group, int64_t index, int64_t n, void *to)
{
    int64_t stride = j->groups * j->sums_of_task, last = (j->parts - 1) * stride;
    conv_rows ones = { j->ones, 0 };
    conv_rows parts = { numbers(j, j->sums, last + group * j->sums_of_task + index),
                        stride };
    j->code->cross(n, 1, j->parts, ones, parts, NULL, 0, to, 0);
}

/* The lanes of a sum become one number. */
static void add_lanes(const gradient_job *j, char *sum)
{
    for (int i = 1; i < j->code->vector; i++)
        if (j->code->size == sizeof(double))
            *(double *)(void *)sum += ((double *)(void *)sum)[i];
        else
            *(float *)(void *)sum += ((float *)(void *)sum)[i];
}

/* From the sums of all tasks to dk and dbias; total: scratch. */
static void finish(const gradient_job *j, char *total)
{
    const danaus_short_gradients *to = &j->o->to;
    int64_t taps = j->o->desc.taps, channels = j->o->desc.channels;
    int64_t width = j->last ? j->width : 1, stride = j->stride;
    size_t size = j->code->size;
    for (int64_t s = 0; s <= taps; s++) {
        char *out = s < taps ? to->dk : to->dbias;
        int64_t step = s < taps ? taps : 1, at = s < taps ? s : 0;
        for (int64_t g = 0; out && g < j->groups; g++) {
            int64_t n = MIN(width, channels - g * width);
            add_parts(j, g, s * stride, j->last ? n : stride, total);
            if (!j->last)
                add_lanes(j, total);
            for (int64_t i = 0; i < n; i++)
                memcpy(
                    numbers(j, out, (g * width + i) * step + at),
                    total + (size_t)i * size, size);
        }
    }
}

/* Reversed taps, as `taps` and `cross` take them, ones, and a zero. */
static void prepare(const gradient_job *j)
{
    int64_t taps = j->o->desc.taps, channels = j->o->desc.channels;
    size_t size = j->code->size;
    for (int64_t h = 0; j->o->to.du && h < channels; h++)
        for (int64_t s = 0; s < taps; s++)
            memcpy(
                numbers(j, j->back, j->last ? s * channels + h : h * taps + s),
                (const char *)j->o->k + (size_t)(h * taps + taps - 1 - s) * size, size);
    for (int64_t i = 0; i <= CHANNELS; i++)
        if (size == sizeof(double))
            ((double *)(void *)j->ones)[i] = i < CHANNELS;
        else
            ((float *)(void *)j->ones)[i] = i < CHANNELS;
}

/* Divides scratch between back, ones, sums and the slots of threads. */
static danaus_status take_scratch(gradient_job *j, cpu_device *d, int slots)
{
    int64_t size = (int64_t)j->code->size, taps = j->o->desc.taps;
    size_t back = dn_aligned(j->o->desc.channels * taps * size);
    size_t ones = dn_aligned((CHANNELS + 1) * size);
    size_t sums = dn_aligned(j->groups * j->parts * j->sums_of_task * size);
    void *scratch;
    j->slot_bytes = dn_aligned(3 * window(j) * size);
    TRY(dn_cpu_scratch(
        d, back + ones + sums + (size_t)slots * j->slot_bytes, &scratch));
    j->back = scratch;
    j->ones = j->back + back;
    j->zero = numbers(j, j->ones, CHANNELS);
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
    j.rows = j.code->direct ? ROWS : ROWS_CONVERTED;
    j.width = MIN(p->channels, j.code->direct ? CHANNELS : CHANNELS_CONVERTED);
    j.stride = j.last ? SHORT_STRIDE(j.width) : j.code->vector;
    j.segments = CEIL_DIV(p->length, j.last ? j.rows : SEGMENT);
    j.groups = j.last ? CEIL_DIV(p->channels, j.width) : p->channels;
    j.parts = CLAMP(CEIL_DIV(TASKS, j.groups), 1, o->batch * j.segments);
    j.sums_of_task = (p->taps + 1) * j.stride;
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
