/* Numbers in another order, and added: a line of them at a time, which lies along columns
   where y is batch-last and along rows where it is batch-first. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu.h"

#include "base/dtype.h"

#include <string.h>

#define MOST_LINE 512   /* numbers */
#define TASK      16384 /* numbers that a task is worth */

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
    const pick_line *l, int64_t k, char *to, int64_t step, int64_t size)
{
    const pick_job *j = l->r->j;
    int64_t place = place_of(j, l->line, k), across = j->from.across * size;
    const char *from = number_at(&j->from, MAX(place, 0), l->at, size);
    if (step == size && place < 0)
        memset(to, 0, (size_t)(l->n * size));
    else if (step == size && across == size)
        memcpy(to, from, (size_t)(l->n * size));
    else
        for (int64_t i = 0; i < l->n; i++, to += step, from += across)
            place < 0 ? (void)memset(to, 0, (size_t)size) : move(to, from, size);
}

static inline void move_along_rows(
    const pick_line *l, int64_t k, char *to, int64_t step, int64_t size)
{
    const pick_job *j = l->r->j;
    int64_t next = j->from.next * size;
    const char *from = number_at(&j->from, 0, l->line, size);
    for (int64_t i = 0; i < l->n; i++, to += step) {
        int64_t place = place_of(j, l->at + i, k);
        place < 0 ? (void)memset(to, 0, (size_t)size)
                  : move(to, from + place * next, size);
    }
}

/* The k-th number of each place of a line, or zero, to places that are `step` bytes apart. */
static void move_line(const pick_line *l, int64_t k, char *to, int64_t step)
{
    int rows = l->r->along_rows;
    switch (l->r->size) {
    case 2: (rows ? move_along_rows : move_along_columns)(l, k, to, step, 2); break;
    case 4: (rows ? move_along_rows : move_along_columns)(l, k, to, step, 4); break;
    case 8: (rows ? move_along_rows : move_along_columns)(l, k, to, step, 8); break;
    default: (rows ? move_along_rows : move_along_columns)(l, k, to, step, 16);
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

/* The bias of a line: numbers of its places, or that of its one place. */
static const void *bias_of(const pick_line *l, char *memory)
{
    int64_t size = dn_size_of(dn_sum_type(l->r->j->dtype));
    const char *bias = l->r->j->bias;
    if (l->r->along_rows)
        return bias + l->at * size;
    for (int64_t i = 0; i < l->n; i++)
        memcpy(memory + i * size, bias + l->line * size, (size_t)size);
    return memory;
}

/* A line with sums, in the type that they have. */
static void sum_line(const pick_line *l, char *to, int64_t step)
{
    enum { BYTES = 16 };
    _Alignas(64) char sums[MOST_LINE * BYTES], more[MOST_LINE * BYTES],
        wide[MOST_LINE * BYTES];
    const pick_job *j = l->r->j;
    int64_t size = l->r->size;
    danaus_dtype type = dn_sum_type(j->dtype);
    memset(sums, 0, (size_t)(l->n * dn_size_of(type)));
    for (int64_t i = 0; j->add && i < l->n; i++)
        move(more + i * size, to + i * step, size);
    for (int64_t k = j->add ? -1 : 0, passes = passes_of(l); k < passes; k++) {
        if (k >= 0)
            move_line(l, k, more, size);
        if (type != j->dtype)
            dn_convert(j->dtype, more, type, wide, l->n);
        add_line(l, type == j->dtype ? more : wide, sums);
    }
    if (j->bias)
        add_line(l, bias_of(l, more), sums);
    if (l->r->activate)
        l->r->activate(sums, l->n);
    dn_convert(type, sums, j->dtype, more, l->n);
    for (int64_t i = 0; i < l->n; i++)
        move(to + i * step, more + i * size, size);
}

static void make_lines(void *arg, int task)
{
    const pick_run *r = arg;
    const pick_job *j = r->j;
    const number_view *v = &j->to;
    int64_t step = (r->along_rows ? v->next : v->across) * r->size;
    int moves = !j->start && !j->add && !j->bias && !r->activate;
    int64_t end = MIN(r->outer, (task + 1) * r->each);
    for (int64_t line = task * r->each; line < end; line++)
        for (int64_t at = 0; at < r->inner; at += MOST_LINE) {
            pick_line l = { r, line, at, MIN(MOST_LINE, r->inner - at) };
            char *to = r->along_rows ? number_at(v, at, line, r->size)
                                     : number_at(v, line, at, r->size);
            if (moves)
                move_line(&l, 0, to, step);
            else
                sum_line(&l, to, step);
        }
}

danaus_status dn_cpu_pick(danaus_device *dev, const pick_job *job)
{
    cpu_device *d = (cpu_device *)dev;
    int wide = dn_sum_type(job->dtype) == DANAUS_F64;
    pick_run r = { .j = job,
                   .activate = d->activations[job->activation][wide],
                   .along_rows = job->to.next == 1 && job->to.across != 1,
                   .size = dn_size_of(job->dtype) };
    r.outer = r.along_rows ? job->columns : job->rows;
    r.inner = r.along_rows ? job->rows : job->columns;
    r.each = CLAMP(TASK / MAX(r.inner, 1), 1, MAX(r.outer, 1));
    int tasks = (int)CEIL_DIV(r.outer, r.each);
    if (d->threads > 1 && tasks > 1)
        dn_cpu_parallel(d, tasks, make_lines, &r);
    else
        for (int n = 0; n < tasks; n++)
            make_lines(&r, n);
    return DANAUS_OK;
}
