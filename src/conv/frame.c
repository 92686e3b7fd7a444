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
};

int dn_conv_is_kind(danaus_conv_kind kind)
{
    return (unsigned)kind < sizeof kinds / sizeof *kinds;
}

int dn_conv_is_periodic(danaus_conv_kind kind) { return kinds[kind].periodic; }

/* Taps that matter: all k[s] that meet a number, or one residue each. */
conv_frame dn_conv_reach(const conv_problem *p)
{
    int64_t taps = p->filter_length, length = p->length;
    return (conv_frame){
        .length = length,
        .taps = taps,
        .before = MIN(taps, length) - 1,
        .after = kinds[p->kind].reverse ? MIN(taps, length - 1) : 0,
        .periodic = dn_conv_is_periodic(p->kind),
        .reverse = kinds[p->kind].reverse,
        .sparse = p->keep[0] != 0,
        .box = p->keep[0] ? dn_conv_box(p) : (conv_box){ { 0 }, { 0 }, { 0 } },
        .groups = 1,
    };
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

void dn_conv_lay_filter(
    const conv_frame *f, danaus_dtype sums, const conv_filters *filters, int64_t filter,
    int shift, void *window)
{
    int64_t n = f->cut.n, first = filter * f->taps;
    int64_t taps = f->periodic ? f->taps : MIN(f->taps, f->before + 1);
    conv_scale scale = scale_of(f, -shift);
    memset(window, 0, (size_t)(2 * n) * danaus_dtype_size(sums));
    for (int64_t s = 0; s < taps; s += f->length) /* once, unless rows are periodic */
        add_taps(
            filters, sums, scale, filters->k, first + s, MIN(taps - s, f->length), 1,
            window, 0);
    if (f->after)
        add_taps(
            filters, sums, minus(scale), filters->k_reverse, first, f->after, -1,
            window, 2 * n - 1);
    if (filters->skip)
        add_taps(filters, sums, scale, filters->skip, filter, 1, 1, window, 0);
}

/* Taps of periodic rows: a tap has its lag mod the length. In a window that folds, taps beyond
   the row have their sign changed. */
static inline void take_folded(
    const conv_frame *f, danaus_dtype sums, int is_more, conv_scale scale,
    const void *window, void *to)
{
    for (int64_t s = 0; s < f->taps; s += f->length)
        for (int64_t i = 0; i < MIN(f->taps - s, f->length); i++) {
            double beyond = f->fold ? number(sums, window, f->cut.n + i) : 0;
            double sum = times(scale, number(sums, window, i) - beyond);
            put(sums, is_more, sum, to, s + i);
        }
}

static inline void take_filter(
    const conv_frame *f, danaus_dtype sums, const void *window, int shift,
    int64_t filter, const conv_filter_sums *to)
{
    int64_t n = f->cut.n, size = sums == DANAUS_F64 ? 8 : 4;
    int64_t first = filter * f->taps * size;
    int more = to->is_more;
    conv_scale scale = scale_of(f, shift);
    if (to->dk && f->periodic)
        take_folded(f, sums, more, scale, window, (char *)to->dk + first);
    else if (to->dk)
        put_plain(
            sums, more, scale, window, MIN(f->taps, f->before + 1), 1, f->taps,
            (char *)to->dk + first);
    if (to->dk_reverse)
        put_plain(
            sums, more, minus(scale), (const char *)window + (2 * n - 1) * size,
            MIN(f->taps, f->after), -1, f->taps, (char *)to->dk_reverse + first);
    if (to->dskip)
        put(sums, more, times(scale, number(sums, window, 0)), to->dskip, filter);
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
