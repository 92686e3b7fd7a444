/* Kinds, windows, and boxes of frequencies. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/frame.h"

#include "base/dtype.h"

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

/* Rows of planes for tensor cores begin at multiples of this, where those in memory do: eight
   numbers are then read at once. */
#define PLANE_UNIT 8

static int64_t in_units(const conv_problem *p, int64_t numbers)
{
    int fast = p->accuracy == DANAUS_CONV_FAST && p->height > 1;
    return fast && p->length % PLANE_UNIT == 0 ? ROUND_UP(numbers, PLANE_UNIT)
                                               : numbers;
}

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
    l->halo = f->periodic && l->height > 1 ? in_units(p, x.before) : 0;
    l->pitch = l->width + (f->periodic ? l->halo : in_units(p, MAX(x.before, x.after)));
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
        .parts = dn_part_type(p->dtype) == p->dtype ? 1 : 2,
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
    if (dn_conv_room(f, n) >= f->length + more)
        return 1;
    int64_t most = dn_conv_room(f, n) - f->before - f->after;
    return most > 0 ? CEIL_DIV(f->length, most) : 0;
}

conv_frame dn_conv_cut_rows(const conv_frame *f, conv_cut cut)
{
    conv_frame made = *f;
    made.cut = cut;
    made.step = CEIL_DIV(f->length, dn_conv_windows(f, cut.n));
    int64_t most = dn_conv_room(f, cut.n) - f->before - f->after;
    if (ROUND_UP(made.step, CONV_LINE) <= most)
        made.step = ROUND_UP(made.step, CONV_LINE);
    made.windows = CEIL_DIV(f->length, made.step);
    made.fold = f->periodic && f->parts == 1 && cut.n == f->length;
    return made;
}

/* Local number of the first y of a window whose y[t] meets `before` earlier numbers:
   that many or, where there is room, enough for windows to begin with a line. */
static int64_t lead(const conv_frame *f, int64_t before, int64_t after)
{
    if ((f->windows == 1 && !f->periodic) || f->fold)
        return 0;
    int64_t room = dn_conv_room(f, f->cut.n);
    return MIN(ROUND_UP(before, CONV_LINE), room - after - f->step);
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
