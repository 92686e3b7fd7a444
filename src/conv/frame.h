/* The numbers of a convolution that every backend needs: the reach of each kind of
   convolution, the windows of rows, filters as windows, the frequencies that sparse spectra
   keep, and the work that is due in streams (docs/conv.md). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CONV_FRAME_H
#define DN_CONV_FRAME_H

#include "device/conv.h"

/* Numbers of any type that fill lines of the caches. */
#define CONV_LINE 32

int dn_conv_is_kind(danaus_conv_kind kind);
int dn_conv_is_periodic(danaus_conv_kind kind);

/* The frame of a problem by its kind, without a cut. */
conv_frame dn_conv_reach(const conv_problem *p);

/* The number of windows of n points that a row needs. Each gives dn_conv_room() - before - after
   numbers of y, or a single window gives all if its ends are zero (6). 0: n is too short. */
int64_t dn_conv_windows(const conv_frame *f, int64_t n);

/* The frame with this cut, whose n is not too short. */
conv_frame dn_conv_cut_rows(const conv_frame *f, conv_cut cut);

/* Windows of a channel. */
static inline int64_t dn_conv_windows_of(const conv_frame *f, const conv_job *job)
{
    return job->packed ? job->count : job->batch * f->windows;
}

/* Window `number` of a row of so many numbers: its local number j is number start + j of the
   row. It computes y from the numbers `used` of the row; others count as zero or, if rows are
   periodic, repeat. */
typedef struct conv_span {
    int64_t start;
    range used, y;
} conv_span;

conv_span dn_conv_span(
    const conv_frame *f, int64_t length, int64_t number, int adjoint);

/* ---- planes ---- */

/* What an array is to a product: it is read or written, and that by the adjoint. */
typedef enum conv_side {
    CONV_MEETS,
    CONV_MAKES,
    CONV_MEETS_BACK,
    CONV_MAKES_BACK
} conv_side;

/* The flat rows of planes in memory: number q of row r, q in `columns`, is number
   (q + across) mod width of row (r + down) mod height of the plane. Others are zero, or are not
   stored. height 0: rows lie in memory as they are. */
typedef struct conv_view {
    int64_t height, width, pitch, down, across;
    range columns;
} conv_view;

conv_view dn_conv_view(const conv_frame *f, conv_side side);

/* Numbers of a flat row that follow each other in memory: `count` from number `place` of the
   array's row on; place -1: zeros. */
typedef struct conv_piece {
    int64_t place, count;
} conv_piece;

/* The piece that begins at number `at` of a flat row, of at most n numbers. */
static inline conv_piece dn_conv_piece(const conv_view *v, int64_t at, int64_t n)
{
    if (!v->height)
        return (conv_piece){ at, n };
    int64_t row = at / v->pitch, q = at - row * v->pitch;
    if (q < v->columns.from)
        return (conv_piece){ -1, MIN(n, v->columns.from - q) };
    if (q >= v->columns.to)
        return (conv_piece){ -1, MIN(n, v->pitch - q) };
    int64_t column = (q + v->across) % v->width, count = v->width - column;
    row = (row + v->down) % v->height;
    return (conv_piece){ row * v->width + column,
                         MIN(n, MIN(count, v->columns.to - q)) };
}

/* ---- filters as windows (taps.c) ---- */

/* Filter number `filter`, over n 2^shift, as a window: 2 n numbers of `sums` mod Z^2n + 1, taps
   at their lag. Z^n is i: imaginary parts of complex taps are at lag + n. */
void dn_conv_lay_filter(
    const conv_frame *f, danaus_dtype sums, const conv_filters *filters, int64_t filter,
    int shift, void *window);

/* The way back: gradients of a filter from n 2^-shift times their sums by lag. */
void dn_conv_take_filter(
    const conv_frame *f, danaus_dtype sums, const void *window, int shift,
    int64_t filter, const conv_filter_sums *to);

/* ---- sparse spectra ---- */

/* The box of frequencies that a sparse problem keeps. */
conv_box dn_conv_box(const conv_problem *p);
int dn_conv_is_outside(const conv_box *b, int64_t frequency);

/* ---- streams (docs/conv.md (11)) ---- */

/* The next n numbers, which end no later than a block of STREAM_HEAD; and for each level,
   before they are taken, the parts whose products are due and the number of the block that
   fills; afterwards, whether it is complete. */
typedef struct stream_step {
    int64_t n;
    struct stream_due {
        range parts;
        int64_t number;
        int complete;
    } level[STREAM_MOST_LEVELS];
} stream_step;

/* After `time` numbers, when so many more are there. */
stream_step dn_stream_step(const stream_shape *s, int64_t time, int64_t there);

#endif
