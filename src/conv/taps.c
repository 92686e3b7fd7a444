/* Filters as windows, tap by tap at their lags, and the way back for gradients. Part p of complex
   taps, 0 real and 1 imaginary, is p n numbers later, since Z^n is i (docs/conv.md (2)). */
// SPDX-License-Identifier: Apache-2.0
#include "conv/frame.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

static inline double number(danaus_dtype sums, const void *from, int64_t i)
{
    return sums == DANAUS_F64 ? ((const double *)from)[i] : ((const float *)from)[i];
}

static inline void set_number(danaus_dtype sums, void *to, int64_t i, double x)
{
    if (sums == DANAUS_F64)
        ((double *)to)[i] = x;
    else
        ((float *)to)[i] = (float)x;
}

/* 2^power / n in two factors: neither leaves the range of f64. */
typedef struct conv_scale {
    double factor[2];
} conv_scale;

static conv_scale scale_of(const conv_frame *f, int power)
{
    double n = 1.0 / (double)f->cut.n;
    return (conv_scale){ { ldexp(1, power / 2), ldexp(n, power - power / 2) } };
}

static inline double times(conv_scale s, double x)
{
    return x * s.factor[0] * s.factor[1];
}

static inline conv_scale minus(conv_scale s)
{
    return (conv_scale){ { -s.factor[0], s.factor[1] } };
}

/* Where flat lags of a window begin: numbers of lags below 0 are at its end and change their
   sign. */
typedef struct lag_place {
    int64_t at;
    int is_negative;
} lag_place;

static inline lag_place place_of(const conv_frame *f, int64_t lag, int part)
{
    lag += part * f->cut.n;
    return (lag_place){ lag < 0 ? 2 * f->cut.n + lag : lag, lag < 0 };
}

/* A row of taps of a plane, or the part of it on one side of lag 0: `count` taps from number
   `first` of a filter, at lags from `lag` on. */
typedef struct tap_run {
    int64_t first, lag, count;
} tap_run;

/* Parts of a filter in planes, one after the other; those of periodic planes may share lags.
   *at begins as 0. Returns 0 after the last one. */
static int next_run(const conv_frame *f, int64_t *at, tap_run *run)
{
    const conv_plane *l = &f->plane;
    int64_t rows = f->periodic ? l->taps_height : l->tap_rows;
    int64_t columns = f->periodic ? l->taps_width : l->tap_columns;
    if (*at >= rows * columns)
        return 0;
    int64_t row = *at / columns, column = *at % columns, lag;
    run->first = (l->first_down + row) * l->taps_width + l->first_across + column;
    run->count = columns - column;
    if (f->periodic) {
        lag = row % l->height * l->pitch + column % l->width;
        run->count = MIN(run->count, l->width - column % l->width);
    } else {
        lag = row * l->pitch + column - f->after;
        run->count = lag < 0 ? MIN(run->count, -lag) : run->count;
    }
    run->lag = lag;
    *at += run->count;
    return 1;
}

/* ---- to windows ---- */

/* A filter that is laid into a window. */
typedef struct filter_lay {
    const conv_frame *frame;
    const conv_filters *filters;
    danaus_dtype sums;
    conv_scale scale;
    void *window;
} filter_lay;

/* to[step i] += scale from[parts i] for i < count. Where this is called type, step and parts are
   constants, so that compilers see plain loops. */
static inline void add_plain(
    danaus_dtype sums, conv_scale scale, const void *from, int parts, int64_t count,
    int step, void *to)
{
    for (int64_t i = 0; i < count; i++)
        set_number(
            sums, to, step * i,
            number(sums, to, step * i) + times(scale, number(sums, from, parts * i)));
}

/* The same, step being 1 or -1. */
static void add_scaled(
    danaus_dtype sums, conv_scale scale, const void *from, int parts, int64_t count,
    int step, void *to)
{
    if (sums == DANAUS_F64)
        add_plain(DANAUS_F64, scale, from, parts, count, step, to);
    else if (parts == 2)
        add_plain(DANAUS_F32, scale, from, 2, count, step, to);
    else if (step == 1)
        add_plain(DANAUS_F32, scale, from, 1, count, 1, to);
    else
        add_plain(DANAUS_F32, scale, from, 1, count, -1, to);
}

/* Adds `count` taps of `sums` or, if they are complex, of such parts, to lags lag, lag + step, ...,
   which lie on one side of lag 0. */
static void add_at_lag(
    const filter_lay *l, const void *from, int64_t count, int step, int64_t lag)
{
    size_t size = danaus_dtype_size(l->sums);
    int parts = l->frame->parts;
    for (int p = 0; p < parts; p++) {
        lag_place to = place_of(l->frame, lag, p);
        conv_scale scale = to.is_negative ? minus(l->scale) : l->scale;
        add_scaled(
            l->sums, scale, (const char *)from + (size_t)p * size, parts, count, step,
            (char *)l->window + to.at * (int64_t)size);
    }
}

/* The same for taps `first` on of k, of the filters' type, which are first rounded to that of
   sums. */
static void add_taps(
    const filter_lay *l, const void *k, int64_t first, int64_t count, int step,
    int64_t lag)
{
    double some[256];
    danaus_dtype own = l->filters->dtype, wanted = l->sums;
    int64_t most = 256 / l->frame->parts;
    if (l->frame->parts == 2)
        wanted = l->sums == DANAUS_F64 ? DANAUS_C128 : DANAUS_C64;
    for (int64_t i = 0, n; i < count; i += n) {
        const char *x = (const char *)k + (size_t)(first + i) * danaus_dtype_size(own);
        n = own == wanted ? count : MIN(most, count - i);
        if (own != wanted)
            dn_convert(own, x, wanted, some, n);
        add_at_lag(l, own == wanted ? (const void *)x : some, n, step, lag + step * i);
    }
}

static void lay_rows(const filter_lay *l, int64_t first)
{
    const conv_frame *f = l->frame;
    int64_t taps = f->periodic ? f->taps : MIN(f->taps, f->before + 1);
    for (int64_t s = 0; s < taps; s += f->length) /* once, unless rows are periodic */
        add_taps(l, l->filters->k, first + s, MIN(taps - s, f->length), 1, 0);
    if (f->after)
        add_taps(l, l->filters->k_reverse, first, f->after, -1, -1);
}

static void lay_plane_rows(const filter_lay *l, int64_t first)
{
    tap_run run;
    for (int64_t at = 0; next_run(l->frame, &at, &run);)
        add_taps(l, l->filters->k, first + run.first, run.count, 1, run.lag);
}

void dn_conv_lay_filter(
    const conv_frame *f, danaus_dtype sums, const conv_filters *filters, int64_t filter,
    int shift, void *window)
{
    const filter_lay l = { f, filters, sums, scale_of(f, -shift), window };
    memset(window, 0, (size_t)(2 * f->cut.n) * danaus_dtype_size(sums));
    (f->plane.height ? lay_plane_rows : lay_rows)(&l, filter * f->taps);
    if (filters->skip)
        add_taps(&l, filters->skip, filter, 1, 1, f->plane.here);
}

/* ---- and back ---- */

/* to[i] = x, or is added. */
static inline void put(danaus_dtype sums, int is_more, double x, void *to, int64_t i)
{
    set_number(sums, to, i, is_more ? number(sums, to, i) + x : x);
}

/* to[parts i] = scale from[step i] for i < met, then zeros, `count` numbers in all, in a type
   of sums; or they are added. */
static inline void put_plain(
    danaus_dtype sums, int is_more, conv_scale scale, const void *from, int64_t met,
    int step, int64_t count, int parts, void *to)
{
    for (int64_t i = 0; i < met; i++)
        put(sums, is_more, times(scale, number(sums, from, step * i)), to, parts * i);
    for (int64_t i = met; i < count && !is_more; i++)
        set_number(sums, to, parts * i, 0);
}

/* Part p of the sums for a filter, which a window has, and of its gradients. */
typedef struct filter_take {
    const conv_frame *frame;
    danaus_dtype sums;
    int parts, part;
    conv_scale scale;
    const void *window;
    int64_t filter;
    const conv_filter_sums *to;
} filter_take;

/* Where gradients of tap number `first` of a filter, or of filter `first`, are. */
static inline void *tap_of(const filter_take *t, void *gradients, int64_t first)
{
    int64_t size = t->sums == DANAUS_F64 ? 8 : 4;
    return (char *)gradients + (first * t->parts + t->part) * size;
}

static inline const void *number_of(const filter_take *t, lag_place from)
{
    return (const char *)t->window + from.at * (t->sums == DANAUS_F64 ? 8 : 4);
}

/* Number `at` of the sum for a filter. In a window that folds, numbers beyond the row have their
   sign changed. */
static inline double sum_at(const filter_take *t, int64_t at)
{
    int64_t n = t->frame->cut.n;
    double beyond = t->frame->fold ? number(t->sums, t->window, n + at) : 0;
    return number(t->sums, t->window, at) - beyond;
}

/* Adds up or sets gradients of `count` taps from `to` on, whose lags begin at `lag`. */
static inline void take_run(
    const filter_take *t, int is_more, int64_t lag, int64_t count, void *to)
{
    lag_place from = place_of(t->frame, lag, t->part);
    conv_scale scale = from.is_negative ? minus(t->scale) : t->scale;
    for (int64_t i = 0; i < count; i++)
        put(t->sums, is_more, times(scale, sum_at(t, from.at + i)), to, t->parts * i);
}

static inline void take_rows(const filter_take *t)
{
    const conv_frame *f = t->frame;
    const conv_filter_sums *to = t->to;
    int64_t first = t->filter * f->taps;
    lag_place from = place_of(f, 0, t->part), reverse = place_of(f, -1, t->part);
    conv_scale scale = reverse.is_negative ? minus(t->scale) : t->scale;
    if (to->dk && f->periodic) /* a tap has its lag mod the length */
        for (int64_t s = 0; s < f->taps; s += f->length)
            take_run(
                t, to->is_more, 0, MIN(f->taps - s, f->length),
                tap_of(t, to->dk, first + s));
    else if (to->dk)
        put_plain(
            t->sums, to->is_more, t->scale, number_of(t, from),
            MIN(f->taps, f->before + 1), 1, f->taps, t->parts,
            tap_of(t, to->dk, first));
    if (to->dk_reverse)
        put_plain(
            t->sums, to->is_more, scale, number_of(t, reverse), MIN(f->taps, f->after),
            -1, f->taps, t->parts, tap_of(t, to->dk_reverse, first));
}

static inline void take_plane(const filter_take *t)
{
    const conv_frame *f = t->frame;
    void *dk = t->to->dk;
    int64_t first = t->filter * f->taps;
    tap_run run;
    for (int64_t i = 0; i < f->taps && dk && !t->to->is_more; i++)
        set_number(t->sums, tap_of(t, dk, first + i), 0, 0);
    for (int64_t at = 0; dk && next_run(f, &at, &run);)
        take_run(t, 1, run.lag, run.count, tap_of(t, dk, first + run.first));
}

/* Type and parts are constants where this is called. */
static inline void take_part(filter_take t, danaus_dtype sums, int parts)
{
    t.sums = sums;
    t.parts = parts;
    if (t.frame->plane.height)
        take_plane(&t);
    else
        take_rows(&t);
    if (t.to->dskip)
        take_run(
            &t, t.to->is_more, t.frame->plane.here, 1,
            tap_of(&t, t.to->dskip, t.filter));
}

void dn_conv_take_filter(
    const conv_frame *f, danaus_dtype sums, const void *window, int shift,
    int64_t filter, const conv_filter_sums *to)
{
    filter_take t = { .frame = f,
                      .scale = scale_of(f, shift),
                      .window = window,
                      .filter = filter,
                      .to = to };
    for (t.part = 0; t.part < f->parts; t.part++)
        if (sums == DANAUS_F64)
            take_part(t, DANAUS_F64, f->parts);
        else if (f->parts == 2)
            take_part(t, DANAUS_F32, 2);
        else
            take_part(t, DANAUS_F32, 1);
}
