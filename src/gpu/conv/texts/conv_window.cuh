/* Windows of rows of numbers.

   A window has 2 POINTS numbers, or POINTS if they are complex; number j is number start + j of its row. Numbers in the range
   `there` count and others are zero. Where rows are periodic, numbers before and after the row
   repeat it. Numbers in the range `made` are stored. HALF: numbers from POINTS on are zero and
   are not stored, or are added to those before (FOLD), or subtracted from them (and ADJOINT).
   PAIR: a window has POINTS numbers of a row of the batch, and POINTS of the next row if there
   is one.

   Rows are [batch][channels][length] with `windows` windows each. Packed, they are parts
   of `channels` rows of `length` numbers, and each row has the same `windows` parts. GROUPS:
   arrays that `flags` names are [batch][GROUPS][channels][length]. PLANE_PITCH: rows are flat, of
   planes (conv_plane.cuh). */
// SPDX-License-Identifier: Apache-2.0

#define PERIODIC 1 /* bits of `flags` */
#define FOLD     2
#define ADJOINT  4
#define GROUPED_X          8
#define GROUPED_X_FACTOR   16
#define GROUPED_Y(s)        (32 << 2 * (s)) /* or of dy (conv_sums.cu) */
#define GROUPED_Y_FACTOR(s) (64 << 2 * (s))
#define LOWER              512 /* rows that are read times the inverse of what is theirs */
#define CONJUGATE_X        1024 /* the factors of rows that are read */
#define CONJUGATE_Y(s)        (2048 << 2 * (s))
#define CONJUGATE_Y_FACTOR(s) (4096 << 2 * (s)) /* or of dy (conv_sums.cu) */

#ifndef PAIR
#define PAIR 0
#endif
#ifndef GROUPS
#define GROUPS 1
#endif

#include "conv_packed.cuh"
#include "conv_plane.cuh"

typedef struct rows {
    int64 length, batch, channels;
    int64 windows, step, lead, before, after;
    const GLOBAL packed_window *packed; /* or NULL */
    int flags;
} rows;

/* Numbers of a window: from, ..., from + count - 1. is_made: of y, else of x. */
typedef struct range {
    int from, count, is_made;
} range;

typedef struct window {
    int number, batch, channel; /* of its row, of the batch, of its rows */
    int64 base; /* its number 0 in the arrays or, of planes, that of the plane */
    int start;  /* of planes: its number 0 in the flat row */
    int64 other;                /* PAIR: from there to the next row, or 0 */
    int64 groups;               /* numbers of other groups before it */
    range there, made, row;
} window;

/* Numbers [from, to) of a row, in a window that begins at `start`. */
FN range range_of(int64 from, int64 to, int64 start)
{
    range r;
    r.from = (int)(from - start);
    r.count = to > from ? (int)(to - from) : 0;
    r.is_made = 0;
    return r;
}

FN int is_in(range r, int j) { return (unsigned)(j - r.from) < (unsigned)r.count; }

/* a / b, quickly where both are short. */
FN int64 divide(int64 a, int64 b)
{
    return (a | b) >> 32 ? a / b : (int64)((unsigned)a / (unsigned)b);
}

/* Numbers of a row in memory. */
FN int64 numbers_of(const rows *r) { return PLANE_PITCH ? (int64)HEIGHT * WIDTH : r->length; }

/* Rows of the batch, or pairs of them. */
FN int rows_of(const rows *r) { return (int)(PAIR ? (r->batch + 1) / 2 : r->batch); }

FN int64 other_of(const rows *r, int batch)
{
    return PAIR && 2 * batch + 1 < r->batch ? r->channels * numbers_of(r) : 0;
}

/* A window from its number in its row, its row of the batch and its channel. */
FN window place_window(const rows *r, int number, int batch, int channel)
{
    window w;
    packed_window p = { 0, r->length, number };
    if (r->packed)
        p = r->packed[number];
    int64 from = p.number * r->step, to = from + r->step, start = from - r->lead;
    w.number = number;
    w.batch = batch;
    w.channel = channel;
    w.base = ((PAIR ? 2 : 1) * batch * r->channels + channel) * numbers_of(r);
    w.base += PLANE_PITCH ? 0 : p.offset + start;
    w.start = PLANE_PITCH ? (int)start : 0;
    w.other = other_of(r, batch);
    w.groups = (GROUPS - 1) * batch * r->channels * numbers_of(r);
    to = to < p.length ? to : p.length;
    w.row = range_of(0, p.length, start);
    w.made = range_of(from, to, start);
    w.made.is_made = 1;
    from -= r->flags & FOLD ? 0 : r->before;
    to += r->flags & FOLD ? 0 : r->after;
    if (!(r->flags & PERIODIC)) {
        from = from > 0 ? from : 0;
        to = to < p.length ? to : p.length;
    }
    w.there = range_of(from, to, start);
    return w;
}

/* Window `item`: those of a row follow each other, then come the rows of a channel. */
FN window window_of(const rows *r, int64 item)
{
    int64 row = divide(item, r->windows), channel = divide(row, rows_of(r));
    return place_window(
        r, (int)(item - row * r->windows), (int)(row - channel * rows_of(r)),
        (int)channel);
}

/* True if a row, or a pair, is one window and the batch has another one `count` rows later. */
FN int is_in_batch(const rows *r, const window *w, int count)
{
    return r->windows == 1 && w->batch + count < rows_of(r);
}

FN void go_on_in_batch(const rows *r, window *w, int count)
{
    w->batch += count;
    w->base += (PAIR ? 2 : 1) * count * r->channels * numbers_of(r);
    w->other = other_of(r, w->batch);
    w->groups += (GROUPS - 1) * count * r->channels * numbers_of(r);
}

/* The next one: most often of the next row of the batch. */
FN void go_on(const rows *r, window *w)
{
    int number = w->number + 1;
    if (is_in_batch(r, w, 1)) {
        go_on_in_batch(r, w, 1);
    } else if (number < (int)r->windows) {
        *w = place_window(r, number, w->batch, w->channel);
    } else {
        int is_new = w->batch + 1 == rows_of(r);
        *w = place_window(r, 0, is_new ? 0 : w->batch + 1, w->channel + is_new);
    }
}

/* How much later the rows of a window begin in an array, if that is grouped. */
FN int64 beside(const rows *r, const window *w, int flag)
{
    return GROUPS > 1 && r->flags & flag ? w->groups : 0;
}

/* Where number j of a window is, from its number 0. */
FN int place_in_row(const rows *r, const window *w, int j)
{
    if (!HALF && !PAIR && r->flags & PERIODIC) {
        j += j < w->row.from ? w->row.count : 0;
        j -= j - w->row.from >= w->row.count ? w->row.count : 0;
    }
    return j;
}

/* Where number j of a window is in its plane, if it is in the range; -1: it is not there. */
FN int place_in_memory(const rows *r, const window *w, range in, int j)
{
    int at = w->start + place_in_row(r, w, j);
    int is_there = is_in(in, j);
    return is_there ? place_in_plane(
                          at, r->flags & PERIODIC, in.is_made, r->flags & ADJOINT)
                    : -1;
}
