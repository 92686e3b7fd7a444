/* Plans and calls of packed sequences: classes of lengths, each with its own transform;
   offsets; and the jobs that compute sequences (docs/conv.md, "Packed sequences"). A sequence
   belongs to the shortest class that is long enough, whatever else is in the call. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/conv_plan.h"

#include "base/mem.h"
#include "base/status.h"

#include <inttypes.h>

/* ---- classes ---- */

/* 128, 160, 192, 256, 320, ... */
static int64_t next_length(int64_t length)
{
    int64_t quarter = CONV_LEAST_CLASS / 4;
    while (8 * quarter <= length)
        quarter *= 2;
    return length == 6 * quarter ? 8 * quarter : length + quarter;
}

/* Shorter rows than these gain by a class of their own: than the plan's or, where these are
   cut into several windows, than such a window. */
static int64_t shortest_of(const danaus_conv_plan *plan, const conv_choice *longest)
{
    const conv_frame *f = &longest->frame;
    if (!plan->p.packed || f->sparse)
        return 0;
    return f->windows > 1 ? f->step : f->length;
}

/* Room for classes of all lengths below that, and last the plan's own. */
static danaus_status make_room(danaus_conv_plan *plan, int64_t end)
{
    int64_t length = CONV_LEAST_CLASS;
    int count = 1;
    for (; length < end; length = next_length(length))
        count++;
    plan->classes = dn_calloc((size_t)count, sizeof *plan->classes);
    if (!plan->classes)
        return dn_fail_memory((size_t)count * sizeof *plan->classes, "a plan");
    plan->count = count;
    length = CONV_LEAST_CLASS;
    for (int i = 0; i < count; i++, length = next_length(length)) {
        plan->classes[i].p = plan->p;
        plan->classes[i].p.packed = 0;
        plan->classes[i].p.length = i + 1 < count ? length : plan->p.length;
    }
    return DANAUS_OK;
}

/* Leaves out classes with a transform as long as that of the next one. */
static void thin_out(danaus_conv_plan *plan)
{
    int kept = 0;
    for (int i = 0; i < plan->count; i++) {
        int64_t n = plan->classes[i].choice.frame.cut.n;
        if (i + 1 == plan->count || n < plan->classes[i + 1].choice.frame.cut.n)
            plan->classes[kept++] = plan->classes[i];
    }
    plan->count = kept;
}

static danaus_status choose(danaus_device *device, danaus_conv_plan *plan)
{
    conv_choice longest = { 0 };
    conv_problem p = plan->p;
    p.packed = 0;
    TRY(dn_conv_choose(device, &p, &longest));
    TRY(make_room(plan, shortest_of(plan, &longest)));
    plan->classes[plan->count - 1].choice = longest;
    for (int i = 0; i + 1 < plan->count; i++)
        TRY(dn_conv_choose(device, &plan->classes[i].p, &plan->classes[i].choice));
    thin_out(plan);
    return DANAUS_OK;
}

danaus_status dn_conv_make_classes(danaus_device *device, danaus_conv_plan *plan)
{
    const conv_frame *frames[CONV_MOST_CLASSES];
    TRY(choose(device, plan));
    for (int i = 0; i < plan->count; i++) {
        plan->classes[i].choice.frame.groups = plan->groups;
        plan->classes[i].choice.frame.short_taps = plan->short_taps;
        plan->classes[i].choice.frame.packed = plan->p.packed;
        frames[i] = &plan->classes[i].choice.frame;
    }
    if (plan->count > 1 && plan->conv->prepare)
        TRY(plan->conv->prepare(device, plan->count, frames));
    for (int i = 0; i < plan->count; i++) {
        conv_class *c = &plan->classes[i];
        TRY(plan->conv->create(device, &c->p, &c->choice.frame, &c->engine));
        c->spectrum = ROUND_UP(plan->spectrum_bytes, CONV_SPECTRUM_ALIGN);
        plan->spectrum_bytes =
            c->spectrum + dn_conv_spectra_bytes(c->engine, c->p.filters);
    }
    return DANAUS_OK;
}

/* ---- offsets ---- */

danaus_status dn_conv_need_offsets(const int64_t *offsets)
{
    return offsets ? DANAUS_OK : dn_fail(DANAUS_ERR_ARGUMENT, "offsets are needed");
}

danaus_status dn_conv_check_offsets(
    int64_t longest, int64_t sequences, const int64_t *offsets, int64_t *columns)
{
    if (offsets[0] != 0)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "offsets begin with %" PRId64 ", not with 0",
            offsets[0]);
    for (int64_t i = 0; i < sequences; i++) {
        if (offsets[i + 1] < offsets[i])
            return dn_fail(
                DANAUS_ERR_ARGUMENT,
                "offset number %" PRId64 " is %" PRId64 ", less than the %" PRId64
                " before it",
                i + 1, offsets[i + 1], offsets[i]);
        if (offsets[i + 1] - offsets[i] > longest)
            return dn_fail(
                DANAUS_ERR_SHAPE,
                "sequence %" PRId64 " has %" PRId64 " numbers; the plan is for %" PRId64
                " at most",
                i, offsets[i + 1] - offsets[i], longest);
    }
    *columns = offsets[sequences];
    return DANAUS_OK;
}

/* ---- jobs ---- */

/* The class of a sequence. */
static int class_of(const danaus_conv_plan *plan, int64_t length)
{
    int c = 0;
    while (plan->classes[c].p.length < length)
        c++;
    return c;
}

/* Windows of each class. */
static void count_windows(
    const danaus_conv_plan *plan, const conv_extent *x,
    int64_t counts[CONV_MOST_CLASSES])
{
    for (int64_t i = 0; i < x->batch; i++) {
        int64_t length = x->offsets[i + 1] - x->offsets[i];
        int c = class_of(plan, length);
        counts[c] += CEIL_DIV(length, plan->classes[c].choice.frame.step);
    }
}

/* Pieces in the order of classes, and of sequences; those of a class begin at at[c]. */
static void lay_windows(
    const danaus_conv_plan *plan, const conv_extent *x, packed_window **at)
{
    for (int64_t i = 0; i < x->batch; i++) {
        int64_t from = x->offsets[i], length = x->offsets[i + 1] - from;
        int c = class_of(plan, length);
        int64_t windows = CEIL_DIV(length, plan->classes[c].choice.frame.step);
        for (int64_t w = 0; w < windows; w++)
            *at[c]++ = (packed_window){ from, length, w };
    }
}

/* One more job of a class, without windows yet. */
static conv_job *add_call(
    const conv_class *c, const danaus_spectrum *spectrum, const conv_extent *x,
    const conv_job *job, conv_calls *to)
{
    conv_job *own = &to->job[to->count];
    *own = *job;
    own->batch = x->batch;
    own->filter.is_more = to->count > 0;
    if (spectrum)
        own->spectrum = (const char *)spectrum->data + c->spectrum;
    to->call[to->count++] = (conv_call){ .engine = c->engine, .job = own };
    return own;
}

danaus_status dn_conv_lay_calls(
    const danaus_conv_plan *plan, const danaus_spectrum *spectrum, const conv_extent *x,
    const conv_job *job, conv_calls *to)
{
    int64_t counts[CONV_MOST_CLASSES] = { 0 }, all = 0;
    packed_window *at[CONV_MOST_CLASSES];
    to->count = 0;
    to->packed = NULL;
    if (!x->offsets) {
        add_call(plan->classes, spectrum, x, job, to);
        return DANAUS_OK;
    }
    count_windows(plan, x, counts);
    for (int c = 0; c < plan->count; c++)
        all += counts[c];
    if (!all)
        return DANAUS_OK;
    to->packed = dn_alloc((size_t)all * sizeof *to->packed);
    if (!to->packed)
        return dn_fail_memory((size_t)all * sizeof *to->packed, "a list of sequences");
    packed_window *next = to->packed;
    for (int c = 0; c < plan->count; next += counts[c++]) {
        at[c] = next;
        if (!counts[c])
            continue;
        conv_job *own = add_call(&plan->classes[c], spectrum, x, job, to);
        own->packed = next;
        own->count = counts[c];
        own->columns = x->offsets[x->batch];
    }
    lay_windows(plan, x, at);
    return DANAUS_OK;
}

int dn_conv_lay_filters(
    const danaus_conv_plan *plan, const conv_filters *filters, void *data,
    conv_call call[CONV_MOST_CLASSES])
{
    for (int i = 0; i < plan->count; i++) {
        const conv_class *c = &plan->classes[i];
        void *own = data ? (char *)data + c->spectrum : NULL;
        call[i] = (conv_call){ c->engine, NULL, filters, own };
    }
    return plan->count;
}
