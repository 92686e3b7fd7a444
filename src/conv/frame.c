/* Kinds, windows, filters by lag, and boxes of frequencies. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/frame.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

/* What a kind is: whether rows repeat, whether it has reverse filters. */
static const struct {
    int periodic, reverse;
} kinds[] = {
    [DANAUS_CAUSAL] = { 0, 0 },
    [DANAUS_CIRCULAR] = { 1, 0 },
    [DANAUS_BIDIRECTIONAL] = { 0, 1 },
    [DANAUS_CENTRED] = { 0, 0 },
};

int dn_conv_is_kind(danaus_conv_kind kind)
{
    return (unsigned)kind < sizeof kinds / sizeof *kinds;
}

int dn_conv_is_periodic(danaus_conv_kind kind) { return kinds[kind].periodic; }

/* Along one axis: taps that meet a number of `size`, before the centre and after it. */
typedef struct axis_reach {
    int64_t before, after, first;
} axis_reach;

static axis_reach reach_along(int64_t size, int64_t taps, int64_t centre, int periodic)
{
    axis_reach r = { MIN(taps, size) - 1, 0, 0 };
    if (periodic)
        return r;
    r.before = MIN(taps - 1 - centre, size - 1);
    r.after = MIN(centre, size - 1);
    r.first = centre - r.after;
    return r;
}

/* True if memory is not simply rows: planes, and rows whose filters have a centre. */
static int has_plane(const conv_problem *p) { return p->height || p->centre[1]; }

/* The frame of flat rows. Rows of a plane share the zeros between them, as none meets more than
   one neighbour. */
static void lay_plane(const conv_problem *p, conv_frame *f)
{
    conv_plane *l = &f->plane;
    l->height = MAX(p->height, 1);
    l->width = p->length;
    l->down = p->centre[0];
    l->across = p->centre[1];
    l->taps_height = MAX(p->filter_height, 1);
    l->taps_width = p->filter_length;
    axis_reach y = reach_along(l->height, l->taps_height, l->down, f->periodic);
    axis_reach x = reach_along(l->width, l->taps_width, l->across, f->periodic);
    l->first_down = y.first;
    l->first_across = x.first;
    l->tap_rows = y.before + y.after + 1;
    l->tap_columns = x.before + x.after + 1;
    l->halo = f->periodic && l->height > 1 ? x.before : 0;
    l->pitch = l->width + (f->periodic ? l->halo : MAX(x.before, x.after));
    if (f->periodic)
        l->here = l->down % l->height * l->pitch + l->across % l->width;
    f->length = l->height * l->pitch - (f->periodic ? 0 : l->pitch - l->width);
    f->before = y.before * l->pitch + x.before;
    f->after = y.after * l->pitch + x.after;
}

/* Taps that matter: all k[s] that meet a number, or one residue each. */
conv_frame dn_conv_reach(const conv_problem *p)
{
    int64_t taps = p->filter_length, length = p->length;
    conv_frame f = {
        .length = length,
        .taps = dn_conv_taps(p),
        .before = MIN(taps, length) - 1,
        .after = kinds[p->kind].reverse ? MIN(taps, length - 1) : 0,
        .periodic = dn_conv_is_periodic(p->kind),
        .reverse = kinds[p->kind].reverse,
        .sparse = p->keep[0] != 0,
        .box = p->keep[0] ? dn_conv_box(p) : (conv_box){ { 0 }, { 0 }, { 0 } },
        .groups = 1,
    };
    if (has_plane(p))
        lay_plane(p, &f);
    return f;
}

conv_view dn_conv_view(const conv_frame *f, conv_side side)
{
    const conv_plane *l = &f->plane;
    conv_view v = { .height = l->height, .width = l->width, .pitch = l->pitch };
    v.columns = (range){ 0, l->width };
    if (!l->height || !f->periodic)
        return v;
    int64_t down = l->down % l->height, across = l->across % l->width;
    int64_t start = l->width - l->halo; /* of the numbers that a halo repeats */
    if (side == CONV_MEETS || side == CONV_MEETS_BACK)
        v.columns.to = l->pitch;
    if (side == CONV_MEETS) {
        v.down = down;
        v.across = (start + across) % l->width;
    } else if (side == CONV_MEETS_BACK) {
        v.down = (l->height - down) % l->height;
        v.across = (l->width - across) % l->width;
    } else if (side == CONV_MAKES) {
        v.columns = (range){ l->halo, l->pitch };
        v.across = start % l->width;
    }
    return v;
}

int64_t dn_conv_windows(const conv_frame *f, int64_t n)
{
    int64_t more = f->periodic ? f->before + f->after : MAX(f->before, f->after);
    if (2 * n >= f->length + more)
        return 1;
    int64_t most = 2 * n - f->before - f->after;
    return most > 0 ? CEIL_DIV(f->length, most) : 0;
}

conv_frame dn_conv_cut_rows(const conv_frame *f, conv_cut cut)
{
    conv_frame made = *f;
    made.cut = cut;
    made.step = CEIL_DIV(f->length, dn_conv_windows(f, cut.n));
    if (ROUND_UP(made.step, CONV_LINE) <= 2 * cut.n - f->before - f->after)
        made.step = ROUND_UP(made.step, CONV_LINE);
    made.windows = CEIL_DIV(f->length, made.step);
    made.fold = f->periodic && cut.n == f->length;
    return made;
}

/* Local number of the first y of a window whose y[t] meets `before` earlier numbers:
   that many or, where there is room, enough for windows to begin with a line. */
static int64_t lead(const conv_frame *f, int64_t before, int64_t after)
{
    if ((f->windows == 1 && !f->periodic) || f->fold)
        return 0;
    return MIN(ROUND_UP(before, CONV_LINE), 2 * f->cut.n - after - f->step);
}

conv_span dn_conv_span(const conv_frame *f, int64_t length, int64_t number, int adjoint)
{
    int64_t before = adjoint ? f->after : f->before, first = number * f->step;
    int64_t after = adjoint ? f->before : f->after;
    range y = { first, MIN(first + f->step, length) };
    return (conv_span){
        .start = first - lead(f, before, after),
        .used = f->fold ? y : (range){ y.from - before, y.to + after },
        .y = y,
    };
}

/* ---- filters ---- */

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

/* to[i] = x, or is added. */
static inline void put(danaus_dtype sums, int is_more, double x, void *to, int64_t i)
{
    set_number(sums, to, i, is_more ? number(sums, to, i) + x : x);
}

/* to[i] = scale from[step i] for i < met, then zeros, `count` numbers in all, in a type
   of sums; or they are added. Where this is called type and step are constants, so that
   compilers see plain loops. */
static inline void put_plain(
    danaus_dtype sums, int is_more, conv_scale scale, const void *from, int64_t met,
    int step, int64_t count, void *to)
{
    for (int64_t i = 0; i < met; i++)
        put(sums, is_more, times(scale, number(sums, from, step * i)), to, i);
    for (int64_t i = met; i < count && !is_more; i++)
        set_number(sums, to, i, 0);
}

/* to[step i] += scale from[i] for i < count, likewise. */
static inline void add_plain(
    danaus_dtype sums, conv_scale scale, const void *from, int64_t count, int step,
    void *to)
{
    for (int64_t i = 0; i < count; i++)
        set_number(
            sums, to, step * i,
            number(sums, to, step * i) + times(scale, number(sums, from, i)));
}

/* The same, step being 1 or -1. */
static void add_scaled(
    danaus_dtype sums, conv_scale scale, const void *from, int64_t count, int step,
    void *to)
{
    if (sums == DANAUS_F64)
        add_plain(DANAUS_F64, scale, from, count, step, to);
    else if (step == 1)
        add_plain(DANAUS_F32, scale, from, count, 1, to);
    else
        add_plain(DANAUS_F32, scale, from, count, -1, to);
}

/* The same for numbers of the filters' type, rounded to the type of sums first. at: where the
   first one goes in the window. */
static void add_taps(
    const conv_filters *filters, danaus_dtype sums, conv_scale scale, const void *from,
    int64_t first, int64_t count, int step, void *window, int64_t at)
{
    double some[256];
    size_t size = danaus_dtype_size(sums), own = danaus_dtype_size(filters->dtype);
    for (int64_t i = 0, n; i < count; i += n) {
        const char *x = (const char *)from + (size_t)(first + i) * own;
        n = filters->dtype == sums ? count : MIN(256, count - i);
        if (filters->dtype != sums)
            dn_convert(filters->dtype, x, sums, some, n);
        add_scaled(
            sums, scale, filters->dtype == sums ? (const void *)x : some, n, step,
            (char *)window + (at + step * i) * (int64_t)size);
    }
}

/* Where flat lags of a window begin: numbers of lags below 0 are at its end and change their
   sign. */
typedef struct lag_place {
    int64_t at;
    int is_negative;
} lag_place;

static lag_place place_of(const conv_frame *f, int64_t lag)
{
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

static void lay_rows(
    const conv_frame *f, danaus_dtype sums, const conv_filters *filters, int64_t first,
    conv_scale scale, void *window)
{
    int64_t n = f->cut.n;
    int64_t taps = f->periodic ? f->taps : MIN(f->taps, f->before + 1);
    for (int64_t s = 0; s < taps; s += f->length) /* once, unless rows are periodic */
        add_taps(
            filters, sums, scale, filters->k, first + s, MIN(taps - s, f->length), 1,
            window, 0);
    if (f->after)
        add_taps(
            filters, sums, minus(scale), filters->k_reverse, first, f->after, -1,
            window, 2 * n - 1);
}

static void lay_plane_rows(
    const conv_frame *f, danaus_dtype sums, const conv_filters *filters, int64_t first,
    conv_scale scale, void *window)
{
    tap_run run;
    for (int64_t at = 0; next_run(f, &at, &run);) {
        lag_place to = place_of(f, run.lag);
        add_taps(
            filters, sums, to.is_negative ? minus(scale) : scale, filters->k,
            first + run.first, run.count, 1, window, to.at);
    }
}

void dn_conv_lay_filter(
    const conv_frame *f, danaus_dtype sums, const conv_filters *filters, int64_t filter,
    int shift, void *window)
{
    int64_t first = filter * f->taps;
    conv_scale scale = scale_of(f, -shift);
    memset(window, 0, (size_t)(2 * f->cut.n) * danaus_dtype_size(sums));
    (f->plane.height ? lay_plane_rows
                     : lay_rows)(f, sums, filters, first, scale, window);
    if (filters->skip)
        add_taps(
            filters, sums, scale, filters->skip, filter, 1, 1, window, f->plane.here);
}

/* Number `lag` of the sum for a filter. In a window that folds, numbers beyond the row have their
   sign changed. */
static inline double sum_at(
    const conv_frame *f, danaus_dtype sums, const void *window, int64_t lag)
{
    double beyond = f->fold ? number(sums, window, f->cut.n + lag) : 0;
    return number(sums, window, lag) - beyond;
}

/* Taps of periodic rows: a tap has its lag mod the length. */
static inline void take_folded(
    const conv_frame *f, danaus_dtype sums, int is_more, conv_scale scale,
    const void *window, void *to)
{
    for (int64_t s = 0; s < f->taps; s += f->length)
        for (int64_t i = 0; i < MIN(f->taps - s, f->length); i++)
            put(sums, is_more, times(scale, sum_at(f, sums, window, i)), to, s + i);
}

static inline void take_rows(
    const conv_frame *f, danaus_dtype sums, conv_scale scale, const void *window,
    int64_t first, const conv_filter_sums *to)
{
    int64_t n = f->cut.n, size = sums == DANAUS_F64 ? 8 : 4;
    int more = to->is_more;
    if (to->dk && f->periodic)
        take_folded(f, sums, more, scale, window, (char *)to->dk + first * size);
    else if (to->dk)
        put_plain(
            sums, more, scale, window, MIN(f->taps, f->before + 1), 1, f->taps,
            (char *)to->dk + first * size);
    if (to->dk_reverse)
        put_plain(
            sums, more, minus(scale), (const char *)window + (2 * n - 1) * size,
            MIN(f->taps, f->after), -1, f->taps, (char *)to->dk_reverse + first * size);
}

static inline void take_plane(
    const conv_frame *f, danaus_dtype sums, conv_scale scale, const void *window,
    int64_t first, const conv_filter_sums *to)
{
    tap_run run;
    for (int64_t i = 0; i < f->taps && to->dk && !to->is_more; i++)
        set_number(sums, to->dk, first + i, 0);
    for (int64_t at = 0; to->dk && next_run(f, &at, &run);) {
        lag_place from = place_of(f, run.lag);
        conv_scale by = from.is_negative ? minus(scale) : scale;
        for (int64_t i = 0; i < run.count; i++)
            put(sums, 1, times(by, sum_at(f, sums, window, from.at + i)), to->dk,
                first + run.first + i);
    }
}

static inline void take_filter(
    const conv_frame *f, danaus_dtype sums, const void *window, int shift,
    int64_t filter, const conv_filter_sums *to)
{
    conv_scale scale = scale_of(f, shift);
    if (f->plane.height)
        take_plane(f, sums, scale, window, filter * f->taps, to);
    else
        take_rows(f, sums, scale, window, filter * f->taps, to);
    if (to->dskip) {
        double sum = sum_at(f, sums, window, f->plane.here);
        put(sums, to->is_more, times(scale, sum), to->dskip, filter);
    }
}

void dn_conv_take_filter(
    const conv_frame *f, danaus_dtype sums, const void *window, int shift,
    int64_t filter, const conv_filter_sums *to)
{
    if (sums == DANAUS_F64)
        take_filter(f, DANAUS_F64, window, shift, filter, to);
    else
        take_filter(f, DANAUS_F32, window, shift, filter, to);
}

/* ---- sparse spectra ---- */

conv_box dn_conv_box(const conv_problem *p)
{
    conv_box made = { { 0 }, { 0 }, { 0 } };
    for (int i = 0; i < CONV_AXES; i++) {
        made.mask[i] = p->axes[i] - 1;
        made.keep[i] = p->keep[i];
        while (p->axes[i] >> made.shift[i] > 1)
            made.shift[i]++;
    }
    return made;
}

/* f = f_1 + N_1 (f_2 + N_2 (f_3 + N_3 f_4 ...)) counts if every f_i is below keep_i. */
int dn_conv_is_outside(const conv_box *b, int64_t frequency)
{
    int out = 0;
    for (int i = 0; i < CONV_AXES; frequency >>= b->shift[i++])
        out |= (frequency & b->mask[i]) >= b->keep[i];
    return out;
}
