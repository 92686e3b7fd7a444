/* Short convolutions and their gradients: direct sums on segments, which pass through scratch
   in the type of sums. With y[t] = bias + sum of k[s] u[t + shift - s]:

       du[t] = sum over s of k[s] dy[t - shift + s],
       dk[s] = sum over batch and t of dy[t] u[t + shift - s],    dbias = sum of dy.

   y and du are the same job: it takes rows x (u or dy) to rows y (y or du) by taps. du is a
   convolution with the reversed taps and shift taps - 1 - shift. Channels first, vectors run
   along the row; channels last, along the channels of a row of memory. A segment of x is read
   once, with the taps - 1 neighbours that it needs, and all results from it are computed while
   it is in the first cache. It passes through scratch at the ends of rows and where types are
   converted. Gradients of taps are summed in tasks of one channel (channels last: of some
   channels) and a part of the batch's segments. Parts depend only on the problem and are added
   in order, so results do not depend on threads. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/loop.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

#include <string.h>

/* Fewer products than this are not worth a thread. */
#define SERIAL_WORK 200000
/* Segments that a thread takes at once, at most: memory likes to be met in order. */
#define LONGEST_RUN 16
/* Tasks that sums are cut into, at least, where there are as many segments. */
#define TASKS 32
/* Channels at a time, at most. */
#define CHANNELS 1024

/* Numbers of a row at a time, channels first; channels last, rows of memory, few or as
   many as are worth converting the rows before them, too, and channels. */
typedef struct segment_sizes {
    int64_t numbers, rows, channels, rows_converted, channels_converted;
} segment_sizes;

static const segment_sizes of_rows = { 1024, 8, CHANNELS, 64, CHANNELS };
/* dy and u stay in the first cache. */
static const segment_sizes of_gradients = { 256, 8, CHANNELS, 64, 256 };

typedef struct short_job {
    const danaus_short_desc *d;
    const conv_code *code;
    int64_t batch;
    const void *x;
    void *y;           /* or NULL */
    const char *start; /* of the sums of each channel: or NULL */
    int64_t shift;
    const void *u;          /* for dk, else NULL */
    int bias;               /* dbias is asked for */
    int last;               /* channels last */
    int past;               /* y is larger than the caches */
    int64_t rows, segments; /* of a segment; of a row */
    short_sequences packed; /* one as long as a row, where none are packed */
    int64_t width, groups;  /* channels of a segment; of all channels */
    int64_t stride;         /* of scratch, or of sums */
    int64_t run;            /* segments that a thread takes at a time */
    int64_t parts;          /* of the batch's segments */
    int64_t sums_of_task;   /* numbers: taps, then the bias */
    const char *taps;       /* [channels][taps]; channels last [taps][channels] */
    char *zero, *ones;      /* a zero; for sums, CHANNELS ones */
    char *sums, *slots;     /* [parts][groups][sums_of_task]; of threads */
    size_t slot_bytes;
    atomic_llong next;
} short_job;

/* A thread's scratch: x and u with their neighbours, y, where sums go; and its channels. */
typedef struct task {
    char *x, *u, *y, *sums;
    int64_t group;
} task;

static char *numbers(const short_job *j, const void *from, int64_t count)
{
    return (char *)from + count * (int64_t)j->code->size;
}

/* ---- channels first ---- */

/* Numbers [from, from + n) of a sequence in the type of sums, zeros outside of it: where
   they lie, or in scratch. */
static const char *row_window(
    const short_job *j, const char *row, int64_t length, int64_t from, int64_t n,
    char *scratch)
{
    if (j->code->direct && from >= 0 && from + n <= length)
        return numbers(j, row, from);
    int64_t first = CLAMP(0, from, from + n), end = CLAMP(length, first, from + n);
    size_t size = j->code->size;
    memset(scratch, 0, (size_t)(first - from) * size);
    if (end > first)
        j->code->fetch(
            row, NULL, 0, first, end - first, numbers(j, scratch, first - from));
    memset(numbers(j, scratch, end - from), 0, (size_t)(from + n - end) * size);
    return scratch;
}

/* Numbers [from, from + n) of a sequence that begins `start` numbers behind the first. */
static void sequence_segment(
    const short_job *j, const task *k, int64_t start, int64_t length, int64_t from,
    int64_t n)
{
    const danaus_short_desc *d = j->d;
    int64_t taps = d->taps, before = taps - 1;
    size_t at = (size_t)start * danaus_dtype_size(d->dtype);
    const char *x = row_window(
        j, (const char *)j->x + at, length, from + j->shift - before, n + before, k->x);
    x = numbers(j, x, before);
    const char *dy = numbers(j, x, -j->shift);
    if (j->u) {
        const char *u = row_window(
            j, (const char *)j->u + at, length, from - j->shift, n + before, k->u);
        j->code->lags(n, taps, dy, numbers(j, u, before), k->sums);
    }
    if (j->bias)
        j->code->lags(n, 1, dy, j->ones, numbers(j, k->sums, taps * j->code->vector));
    if (!j->y)
        return;
    char *y = (char *)j->y + at, *to = j->code->direct ? numbers(j, y, from) : k->y;
    j->code->taps(
        n, taps, numbers(j, j->taps, k->group * taps), x,
        j->start ? numbers(j, j->start, k->group) : j->zero, 0, j->past, to);
    if (!j->code->direct)
        j->code->put(to, NULL, 0, from, n, y);
}

/* The sequence with a column. */
static int64_t sequence_at(const short_job *j, int64_t column)
{
    int64_t low = 0, high = j->packed.count - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (j->packed.offsets[middle] <= column)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Segment `number` of batch row `row`: of all sequences that have numbers there. */
static void first_segment(
    const short_job *j, const task *k, int64_t row, int64_t number)
{
    const danaus_short_desc *d = j->d;
    const int64_t *offsets = j->packed.offsets;
    int64_t start = (row * d->channels + k->group) * d->length;
    int64_t first = number * j->rows, end = MIN(first + j->rows, d->length);
    for (int64_t i = sequence_at(j, first); first < end; i++) {
        int64_t stop = MIN(offsets[i + 1], end);
        if (first < stop)
            sequence_segment(
                j, k, start + offsets[i], offsets[i + 1] - offsets[i],
                first - offsets[i], stop - first);
        first = stop;
    }
}

/* ---- channels last ---- */

/* Row t of these. */
static const void *row_at(const short_job *j, conv_rows rows, int64_t t)
{
    return numbers(j, rows.data, t * rows.stride);
}

/* Rows of memory [from, from + count) of data[length][channels], channels h to h + n:
   where they lie, or in scratch, in the type of sums; zeros outside. */
static conv_rows rows_of(
    const short_job *j, const char *data, int64_t from, int64_t count, int64_t h,
    int64_t n, char *scratch)
{
    const danaus_short_desc *d = j->d;
    if (j->code->direct && from >= 0 && from + count <= d->length)
        return (conv_rows){ numbers(j, data, from * d->channels + h), d->channels };
    conv_rows made = { scratch, j->stride };
    for (int64_t i = 0; i < count; i++) {
        int64_t t = from + i;
        char *to = numbers(j, scratch, i * j->stride);
        if (t >= 0 && t < d->length)
            j->code->fetch(data, NULL, 0, t * d->channels + h, n, to);
        else
            memset(to, 0, (size_t)n * j->code->size);
    }
    return made;
}

/* Sums for dk and dbias of `count` rows of x from row `from` on, of a batch row that is
   `at` bytes behind the first. */
static void add_sums(
    const short_job *j, const task *k, conv_rows dy, int64_t from, int64_t count,
    size_t at, int64_t h, int64_t n)
{
    int64_t taps = j->d->taps;
    if (j->u) {
        const char *u = (const char *)j->u + at;
        conv_rows x = rows_of(j, u, from - j->shift, count + taps - 1, h, n, k->u);
        x.data = row_at(j, x, taps - 1);
        j->code->cross_lags(n, count, taps, dy, x, k->sums, j->stride);
    }
    if (j->bias) { /* a sum over all rows is one of so many taps that are 1 */
        conv_rows ones = { j->ones, 0 };
        char *sums = numbers(j, k->sums, taps * j->stride);
        dy.data = row_at(j, dy, count - 1);
        j->code->cross(n, 1, count, ones, dy, sums, 0, sums, 0);
    }
}

static void last_segment(const short_job *j, const task *k, int64_t row, int64_t number)
{
    const danaus_short_desc *d = j->d;
    const conv_code *code = j->code;
    int64_t from = number * j->rows, count = MIN(j->rows, d->length - from);
    int64_t h = k->group * j->width, n = MIN(j->width, d->channels - h);
    int64_t before = d->taps - 1, place = from * d->channels + h;
    size_t at = (size_t)(row * d->length * d->channels) * danaus_dtype_size(d->dtype);
    conv_rows x = rows_of(
        j, (const char *)j->x + at, from + j->shift - before, count + before, h, n,
        k->x);
    conv_rows dy = { row_at(j, x, before - j->shift), x.stride };
    add_sums(j, k, dy, from, count, at, h, n);
    if (!j->y)
        return;
    conv_rows taps = { numbers(j, j->taps, h), d->channels };
    x.data = row_at(j, x, before);
    char *y = (char *)j->y + at, *to = code->direct ? numbers(j, y, place) : k->y;
    code->cross(
        n, count, d->taps, taps, x, j->start ? numbers(j, j->start, h) : NULL, j->past,
        to, code->direct ? d->channels : j->stride);
    for (int64_t t = 0; t < count && !code->direct; t++)
        code->put(
            numbers(j, to, t * j->stride), NULL, 0, place + t * d->channels, n, y);
}

/* ---- jobs ---- */

/* Numbers of scratch for rows with their neighbours. */
static int64_t window(const short_job *j)
{
    return j->last ? (j->rows + j->d->taps) * j->stride
                   : j->rows + DANAUS_SHORT_MOST_TAPS;
}

static task task_of(const short_job *j, int slot)
{
    task k = { .x = j->slots + (size_t)slot * j->slot_bytes };
    k.u = numbers(j, k.x, window(j));
    k.y = numbers(j, k.u, window(j));
    return k;
}

/* Runs of segments of all channels, in the order of memory. */
static void take_runs(void *arg, int slot)
{
    short_job *j = arg;
    task k = task_of(j, slot);
    int64_t all = j->batch * j->segments * j->groups;
    for (int64_t i; (i = atomic_fetch_add(&j->next, 1) * j->run) < all;)
        for (int64_t s = i; s < MIN(i + j->run, all); s++) {
            int64_t row = s / (j->last ? j->groups : j->segments);
            k.group = (j->last ? s : row) % j->groups;
            if (j->last)
                last_segment(j, &k, row / j->segments, row % j->segments);
            else
                first_segment(j, &k, row / j->groups, s % j->segments);
        }
    j->code->fence();
}

/* Parts of the segments of some channels, with their sums. */
static void take_parts(void *arg, int slot)
{
    short_job *j = arg;
    task k = task_of(j, slot);
    int64_t items = j->batch * j->segments;
    for (int64_t i; (i = atomic_fetch_add(&j->next, 1)) < j->groups * j->parts;) {
        int64_t part = i / j->groups;
        k.group = i % j->groups;
        k.sums = numbers(j, j->sums, i * j->sums_of_task);
        memset(k.sums, 0, (size_t)j->sums_of_task * j->code->size);
        for (int64_t s = items * part / j->parts; s < items * (part + 1) / j->parts;
             s++)
            (j->last ? last_segment
                     : first_segment)(j, &k, s / j->segments, s % j->segments);
    }
    j->code->fence();
}

/* whole: offsets of rows that are one sequence each. */
static short_job job_of(
    const cpu_device *dev, const danaus_short_desc *d, int64_t batch,
    const short_sequences *packed, const int64_t whole[2], const segment_sizes *sizes)
{
    short_job j = { .d = d, .batch = batch, .code = dn_conv_code(dev, d->dtype) };
    j.packed = packed->offsets ? *packed : (short_sequences){ 1, whole };
    int direct = j.code->direct;
    j.last = d->layout == DANAUS_CHANNELS_LAST;
    j.shift = d->centred ? (d->taps - 1) / 2 : 0;
    j.rows = !j.last ? sizes->numbers : direct ? sizes->rows : sizes->rows_converted;
    j.width =
        j.last ? MIN(d->channels, direct ? sizes->channels : sizes->channels_converted)
               : 1;
    j.groups = CEIL_DIV(d->channels, j.width);
    j.segments = CEIL_DIV(d->length, j.rows);
    j.stride = j.last ? j.width + 16 : j.code->vector; /* no power of two */
    return j;
}

/* Threads for so many tasks. */
static int slots_of(const cpu_device *dev, const short_job *j, int64_t tasks)
{
    double work = (double)j->batch * (double)j->d->channels * (double)j->d->length *
                  (double)j->d->taps;
    return work < SERIAL_WORK ? 1 : (int)MIN(dev->threads, tasks);
}

/* Lays k out as the kernels take it, or back to front. */
static void lay_taps(const short_job *j, const void *k, int reversed, char *to)
{
    int64_t taps = j->d->taps, channels = j->d->channels;
    size_t size = j->code->size;
    for (int64_t h = 0; h < channels; h++)
        for (int64_t s = 0; s < taps; s++)
            memcpy(
                numbers(j, to, j->last ? s * channels + h : h * taps + s),
                numbers(j, k, h * taps + (reversed ? taps - 1 - s : s)), size);
}

/* Divides scratch between taps, a zero and ones, sums and the slots of threads; lays k. */
static danaus_status take_scratch(
    short_job *j, cpu_device *dev, int slots, const void *k, int reversed)
{
    int64_t size = (int64_t)j->code->size, ones = j->sums_of_task ? CHANNELS : 0;
    size_t taps = dn_aligned(j->d->channels * j->d->taps * size);
    size_t ones_bytes = dn_aligned((1 + ones) * size);
    size_t sums = dn_aligned(j->groups * j->parts * j->sums_of_task * size);
    void *scratch;
    j->slot_bytes = dn_aligned(3 * window(j) * size);
    TRY(dn_cpu_scratch(
        dev, taps + ones_bytes + sums + (size_t)slots * j->slot_bytes, &scratch));
    j->zero = (char *)scratch + taps;
    j->ones = numbers(j, j->zero, 1);
    j->sums = j->zero + ones_bytes;
    j->slots = j->sums + sums;
    for (int64_t i = 0; i <= ones; i++)
        if (j->code->size == sizeof(double))
            ((double *)(void *)j->zero)[i] = i > 0;
        else
            ((float *)(void *)j->zero)[i] = i > 0;
    j->taps = k;
    if (j->y && (j->last || reversed)) {
        lay_taps(j, k, reversed, scratch);
        j->taps = scratch;
    }
    return DANAUS_OK;
}

static void run_job(
    short_job *j, cpu_device *dev, int slots, void (*take)(void *arg, int slot))
{
    atomic_init(&j->next, 0);
    if (slots == 1)
        take(j, 0);
    else
        dn_cpu_parallel(dev, slots, take, j);
}

danaus_status dn_cpu_conv_short(danaus_device *dev, const short_operands *o)
{
    cpu_device *d = (cpu_device *)dev;
    const int64_t whole[] = { 0, o->desc.length };
    short_job j = job_of(d, &o->desc, o->batch, &o->packed, whole, &of_rows);
    double rows = (double)(o->batch * o->desc.channels) * (double)o->desc.length;
    int64_t all = o->batch * j.segments * j.groups;
    int slots = slots_of(d, &j, all);
    j.x = o->u;
    j.y = o->y;
    j.start = o->bias;
    j.past = rows * (double)j.code->size > (double)d->l3;
    j.run = CLAMP(all / (8 * slots), 1, LONGEST_RUN);
    TRY(take_scratch(&j, d, slots, o->k, 0));
    run_job(&j, d, slots, take_runs);
    dn_cpu_give_scratch(d);
    return DANAUS_OK;
}

/* ---- sums of gradients ---- */

/* Number `index` of the sums of all parts of a group, and `n` after it, added. */
static void add_parts(
    const short_job *j, int64_t group, int64_t index, int64_t n, void *to)
{
    int64_t stride = j->groups * j->sums_of_task, last = (j->parts - 1) * stride;
    conv_rows ones = { j->ones, 0 };
    conv_rows parts = { numbers(j, j->sums, last + group * j->sums_of_task + index),
                        stride };
    j->code->cross(n, 1, j->parts, ones, parts, NULL, 0, to, 0);
}

/* The lanes of a sum become one number. */
static void add_lanes(const short_job *j, char *sum)
{
    for (int i = 1; i < j->code->vector; i++)
        if (j->code->size == sizeof(double))
            *(double *)(void *)sum += ((double *)(void *)sum)[i];
        else
            *(float *)(void *)sum += ((float *)(void *)sum)[i];
}

/* From the sums of all tasks to dk and dbias; total: scratch. */
static void finish(const short_job *j, const danaus_short_gradients *to, char *total)
{
    int64_t taps = j->d->taps;
    for (int64_t s = 0; s <= taps; s++) {
        char *out = s < taps ? to->dk : to->dbias;
        int64_t step = s < taps ? taps : 1, at = s < taps ? s : 0;
        for (int64_t g = 0; out && g < j->groups; g++) {
            int64_t n = MIN(j->width, j->d->channels - g * j->width);
            add_parts(j, g, s * j->stride, j->last ? n : j->stride, total);
            if (!j->last)
                add_lanes(j, total);
            for (int64_t i = 0; i < n; i++)
                memcpy(
                    numbers(j, out, (g * j->width + i) * step + at),
                    numbers(j, total, i), j->code->size);
        }
    }
}

danaus_status dn_cpu_conv_short_gradient(
    danaus_device *dev, const short_gradient_operands *o)
{
    cpu_device *d = (cpu_device *)dev;
    const int64_t whole[] = { 0, o->desc.length };
    short_job j = job_of(d, &o->desc, o->batch, &o->packed, whole, &of_gradients);
    j.x = o->dy;
    j.y = o->to.du;
    j.u = o->to.dk ? o->u : NULL;
    j.bias = o->to.dbias != NULL;
    j.shift = o->desc.taps - 1 - j.shift;
    j.parts = CLAMP(CEIL_DIV(TASKS, j.groups), 1, o->batch * j.segments);
    j.sums_of_task = (o->desc.taps + 1) * j.stride;
    int slots = slots_of(d, &j, j.groups * j.parts);
    TRY(take_scratch(&j, d, slots, o->k, 1));
    run_job(&j, d, slots, take_parts);
    finish(&j, &o->to, j.slots);
    dn_cpu_give_scratch(d);
    return DANAUS_OK;
}
