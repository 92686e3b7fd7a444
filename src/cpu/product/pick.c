/* Moves numbers into another order, and adds them: one line at a time. Lines run along columns
   if y is batch-last and along rows if it is batch-first. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu.h"

#include "base/dtype.h"

#include <string.h>

#define MOST_LINE 512     /* numbers */
#define MOST_SIZE 16      /* bytes of one */
#define APART     8       /* columns at a time that come apart: ways of a first cache */
#define TASK      16384   /* numbers that a task is worth, */
#define LEAST     65536   /* and that threads are worth; with a few times as many */
#define LONG      1048576 /* those that sleep are */

typedef struct pick_run {
    const pick_job *j;
    cpu_activate activate; /* or NULL */
    int along_rows;
    int64_t outer, inner; /* lines, and numbers of each */
    int64_t each;         /* lines of a task */
    int64_t size;         /* of an element */
} pick_run;

/* Numbers [at, at + n) of line number `line`. */
typedef struct pick_line {
    const pick_run *r;
    int64_t line, at, n;
} pick_line;

/* Which number goes to place p as its k-th, -1: none. */
static inline int64_t place_of(const pick_job *j, int64_t p, int64_t k)
{
    if (j->start)
        return j->start[p] + k < j->start[p + 1] ? j->place[j->start[p] + k] : -1;
    return j->place ? j->place[p] : p;
}

static char *number_at(const number_view *v, int64_t p, int64_t s, int64_t size)
{
    return (char *)v->data + (p * v->next + s * v->across) * size;
}

/* Constant sizes are single moves. */
static inline void move(char *to, const char *from, int64_t size)
{
    switch (size) {
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    case 8: memcpy(to, from, 8); break;
    default: memcpy(to, from, 16);
    }
}

static inline void move_along_columns(
    const pick_line *l, int64_t k, char *to, int64_t size)
{
    const pick_job *j = l->r->j;
    int64_t place = place_of(j, l->line, k), across = j->from.across * size;
    const char *from = number_at(&j->from, MAX(place, 0), l->at, size);
    if (place < 0)
        memset(to, 0, (size_t)(l->n * size));
    else if (across == size)
        memcpy(to, from, (size_t)(l->n * size));
    else
        for (int64_t i = 0; i < l->n; i++)
            move(to + i * size, from + i * across, size);
}

/* True if a line along rows lies as it comes. */
static int is_run(const pick_line *l)
{
    const pick_job *j = l->r->j;
    return l->r->along_rows && !j->start && !j->place && j->from.next == 1;
}

/* Numbers from n places. */
static inline void gather(
    const int64_t *place, int64_t n, const char *from, int64_t next, char *to,
    int64_t size)
{
    for (int64_t i = 0; i < n; i++)
        if (place[i] < 0)
            memset(to + i * size, 0, (size_t)size);
        else
            move(to + i * size, from + place[i] * next, size);
}

static inline void move_along_rows(
    const pick_line *l, int64_t k, char *to, int64_t size)
{
    const pick_job *j = l->r->j;
    int64_t next = j->from.next * size;
    const char *from = number_at(&j->from, 0, l->line, size);
    if (is_run(l)) {
        memcpy(to, from + l->at * size, (size_t)(l->n * size));
        return;
    }
    if (!j->start && j->place) {
        gather(j->place + l->at, l->n, from, next, to, size);
        return;
    }
    for (int64_t i = 0; i < l->n; i++) {
        int64_t place = place_of(j, l->at + i, k);
        if (place < 0)
            memset(to + i * size, 0, (size_t)size);
        else
            move(to + i * size, from + place * next, size);
    }
}

#define MOVES(SIZE)                                                                    \
    static void move_##SIZE(const pick_line *l, int64_t k, char *to)                   \
    {                                                                                  \
        if (l->r->along_rows)                                                          \
            move_along_rows(l, k, to, SIZE);                                           \
        else                                                                           \
            move_along_columns(l, k, to, SIZE);                                        \
    }
MOVES(2)
MOVES(4)
MOVES(8)
MOVES(16)
#undef MOVES

/* The k-th number of each place of a line, or zero. */
static void move_line(const pick_line *l, int64_t k, char *to)
{
    switch (l->r->size) {
    case 2: move_2(l, k, to); break;
    case 4: move_4(l, k, to); break;
    case 8: move_8(l, k, to); break;
    default: move_16(l, k, to);
    }
}

/* Most numbers that go to one place of a line. */
static int64_t passes_of(const pick_line *l)
{
    const int64_t *start = l->r->j->start;
    int64_t most = 1, p = l->r->along_rows ? l->at : l->line;
    for (int64_t i = 0; start && i < (l->r->along_rows ? l->n : 1); i++)
        most = MAX(most, start[p + i + 1] - start[p + i]);
    return most;
}

static void add_f32(const float *more, int64_t count, float *sums)
{
    for (int64_t i = 0; i < count; i++)
        sums[i] += more[i];
}

static void add_f64(const double *more, int64_t count, double *sums)
{
    for (int64_t i = 0; i < count; i++)
        sums[i] += more[i];
}

/* sums[n] += numbers of the type of sums. */
static void add_line(const pick_line *l, const void *more, void *sums)
{
    danaus_dtype type = dn_sum_type(l->r->j->dtype);
    int64_t count = l->n * (dn_is_complex(type) ? 2 : 1);
    if (type == DANAUS_F64 || type == DANAUS_C128)
        add_f64(more, count, sums);
    else
        add_f32(more, count, sums);
}

/* sums[n] += the k-th number of each place, where it lies if that is a run of them. */
static void add_pass(const pick_line *l, int64_t k, void *sums)
{
    _Alignas(64) char more[MOST_LINE * MOST_SIZE], wide[MOST_LINE * MOST_SIZE];
    const pick_job *j = l->r->j;
    danaus_dtype type = dn_sum_type(j->dtype);
    const void *numbers = more;
    int64_t place = l->r->along_rows ? -1 : place_of(j, l->line, k);
    if (!l->r->along_rows && place < 0)
        return;
    if (place >= 0 && j->from.across == 1)
        numbers = number_at(&j->from, place, l->at, l->r->size);
    else if (is_run(l))
        numbers = number_at(&j->from, l->at, l->line, l->r->size);
    else
        move_line(l, k, more);
    if (type != j->dtype)
        dn_convert(j->dtype, numbers, type, wide, l->n);
    add_line(l, type == j->dtype ? numbers : wide, sums);
}

/* The bias of a line: that of its places, or of its one place. */
static void add_bias(const pick_line *l, void *sums)
{
    _Alignas(64) char same[MOST_LINE * MOST_SIZE];
    int64_t size = dn_size_of(dn_sum_type(l->r->j->dtype));
    const char *bias = l->r->j->bias;
    if (l->r->along_rows) {
        add_line(l, bias + l->at * size, sums);
        return;
    }
    for (int64_t i = 0; i < l->n; i++)
        move(same + i * size, bias + l->line * size, size);
    add_line(l, same, sums);
}

/* A line with sums, in the type that they have: in place where that is the type of `to`. */
static void sum_line(const pick_line *l, char *to)
{
    _Alignas(64) char own[MOST_LINE * MOST_SIZE];
    const pick_job *j = l->r->j;
    danaus_dtype type = dn_sum_type(j->dtype);
    int wide = type != j->dtype, in_place = j->from.data == j->to.data;
    char *sums = wide ? own : to;
    if (wide && (j->add || in_place))
        dn_convert(j->dtype, to, type, sums, l->n);
    else if (!j->add && !in_place)
        memset(sums, 0, (size_t)(l->n * dn_size_of(type)));
    for (int64_t k = 0, passes = passes_of(l); k < passes && !in_place; k++)
        add_pass(l, k, sums);
    if (j->bias)
        add_bias(l, sums);
    if (l->r->activate)
        l->r->activate(sums, l->n);
    if (wide)
        dn_convert(type, sums, j->dtype, to, l->n);
}

static void make_line(const pick_run *r, int64_t line, int64_t at, int64_t n)
{
    const pick_job *j = r->j;
    const number_view *v = &j->to;
    pick_line l = { r, line, at, n };
    char *to = r->along_rows ? number_at(v, at, line, r->size)
                             : number_at(v, line, at, r->size);
    if (j->start || j->add || j->bias || r->activate)
        sum_line(&l, to);
    else
        move_line(&l, 0, to);
}

/* Moves line after line. If columns are apart in memory, it takes a few of each line at a time,
   so that a cache line stays in the first cache until its other numbers are read. */
static void make_lines(void *arg, int task)
{
    const pick_run *r = arg;
    int apart = !r->along_rows && r->j->from.across != 1;
    int64_t lines = apart ? r->each : 1, most = apart ? APART : MOST_LINE;
    int64_t end = MIN(r->outer, (task + 1) * r->each);
    for (int64_t first = task * r->each; first < end; first += lines)
        for (int64_t at = 0; at < r->inner; at += most)
            for (int64_t line = first; line < MIN(first + lines, end); line++)
                make_line(r, line, at, MIN(most, r->inner - at));
}

danaus_status dn_cpu_pick(danaus_device *dev, const pick_job *job)
{
    cpu_device *d = (cpu_device *)dev;
    int wide = dn_sum_type(job->dtype) == DANAUS_F64;
    pick_run r = { .j = job,
                   .activate = d->activations[job->activation][wide],
                   .along_rows = job->to.across != 1,
                   .size = dn_size_of(job->dtype) };
    r.outer = r.along_rows ? job->columns : job->rows;
    r.inner = r.along_rows ? job->rows : job->columns;
    r.each = CLAMP(TASK / MAX(r.inner, 1), 1, MAX(r.outer, 1));
    int tasks = (int)CEIL_DIV(r.outer, r.each);
    if (d->threads == 1 || r.outer * r.inner < LEAST)
        for (int n = 0; n < tasks; n++)
            make_lines(&r, n);
    else
        (r.outer * r.inner < LONG ? dn_cpu_parallel_short
                                  : dn_cpu_parallel)(d, tasks, make_lines, &r);
    return DANAUS_OK;
}
