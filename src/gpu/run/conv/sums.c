/* Gradients of filters on GPUs: sums of spectra over the windows of a filter, and their inverse
   transform. Parts of the sums depend only on the problem and the GPU's memory. Groups of
   filters follow each other, and so do ranges of one filter's windows of two levels, so that
   scratch does not grow with the problem. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/conv/engine.h"

#include "base/dtype.h"
#include "base/status.h"

/* Filters and parts of their windows that are summed at once, at least where there are so
   many: enough for a GPU. */
#define PARTS 512
/* Threads of a multiprocessor: some more than have room. */
#define PLACES 1024

/* How the sums of a job are cut, and where the parts of scratch begin. */
typedef struct sums_plan {
    int64_t each; /* windows of a filter */
    int64_t group, parts, at_once, blocks;
    size_t points, norms, kept, sums, added, windows; /* bytes */
} sums_plan;

/* True if tensor cores compute the sums. */
static int has_mma(const gpu_conv_engine *e) { return e->mma[GPU_CONV_SUMS].root > 0; }

/* Rounds of all members that are looked at, and windows whose time a part takes to be stored
   and added. */
#define MOST_ROUNDS 8
#define PART_COST   2

/* How many parts each filter has, so that `places` members that take parts in turn are at work
   for the shortest time. */
static int64_t parts_for(int64_t filters, int64_t each, int64_t places)
{
    int64_t best = 1, least = 0;
    for (int64_t rounds = 1; rounds <= MOST_ROUNDS; rounds++) {
        int64_t parts = CLAMP(rounds * places / filters, 1, each);
        int64_t time =
            CEIL_DIV(filters * parts, places) * (CEIL_DIV(each, parts) + PART_COST);
        if (!least || time < least) {
            best = parts;
            least = time;
        }
    }
    return best;
}

/* Windows that are one row: all of a filter at once, in so many parts. */
static void plan_rows(const gpu_conv_engine *e, sums_plan *s)
{
    int64_t filters = e->p.filters, window = dn_gpu_conv_window(e);
    int64_t windows = MAX(1, e->gpu->facts.memory / CONV_MEMORY_SHARE / window);
    int64_t places = dn_gpu_conv_mma_places(&e->gpu->facts, &e->mma[GPU_CONV_SUMS]);
    s->parts = MIN(windows, parts_for(MIN(filters, windows), s->each, places));
    s->at_once = s->each;
    s->group = CLAMP(windows / s->parts, 1, filters);
}

/* Windows that are matrices: so many at once that the points of x and dy nearly stay in the second
   cache. */
static void plan_matrices(const gpu_conv_engine *e, sums_plan *s)
{
    const gpu_conv_mma *m = &e->mma[GPU_CONV_SUMS];
    int64_t bytes = dn_gpu_conv_mma_points(m), filters = e->p.filters;
    int64_t places = dn_gpu_conv_mma_places(&e->gpu->facts, m);
    int64_t windows = dn_gpu_conv_group(e, 2 * bytes, filters * s->each);
    s->at_once = MIN(windows, s->each);
    s->group = CLAMP(windows / s->each, 1, filters);
    s->parts = parts_for(s->group * m->kept, s->at_once, places);
    s->points = dn_gpu_aligned(s->group * s->at_once * (bytes + GPU_CONV_PEAKS_BYTES));
}

static sums_plan plan_mma(const gpu_conv_engine *e, const conv_job *job)
{
    int64_t filters = e->p.filters, window = dn_gpu_conv_window(e);
    sums_plan s = { .each =
                        e->p.channels / filters * dn_gpu_conv_each_channel(e, job) };
    if (e->mma[GPU_CONV_SUMS].rows > 1)
        plan_matrices(e, &s);
    else
        plan_rows(e, &s);
    s.sums = dn_gpu_aligned(s.group * s.parts * window);
    s.added = s.parts > 1 ? dn_gpu_aligned(s.group * window) : 0;
    s.windows = e->shape.levels > 1 ? dn_gpu_aligned(s.group * window) : 0;
    return s;
}

static sums_plan plan_sums(const gpu_conv_engine *e, const conv_job *job)
{
    int two = e->shape.levels > 1;
    int64_t filters = e->p.filters, window = dn_gpu_conv_window(e);
    int64_t windows = e->gpu->facts.memory / CONV_MEMORY_SHARE / window;
    const gpu_conv_level *l = &e->shape.level[two];
    int64_t places = MAX(1, PLACES / l->team) * e->gpu->facts.units;
    sums_plan s = { .each =
                        e->p.channels / filters * dn_gpu_conv_each_channel(e, job) };
    s.parts = two ? 1 : CLAMP(PARTS / filters, 1, s.each);
    s.parts = CLAMP(windows, 1, s.parts);
    s.at_once = two ? CLAMP(windows, 1, s.each) : s.each;
    s.group = windows / MAX(s.parts, two ? s.each : 1);
    s.group = CLAMP(s.group, 1, filters);
    if (two) /* few rows of long windows are at work otherwise */
        s.parts = CLAMP(places / (s.group * l->tiles), 1, s.at_once);
    s.blocks = MIN(s.group * s.parts * l->tiles, places);
    s.points = two ? dn_gpu_aligned(s.group * s.at_once * window) : 0;
    s.norms = dn_gpu_aligned(s.group * s.at_once * dn_gpu_conv_norms(e));
    s.kept = dn_gpu_aligned(s.blocks * l->points * dn_gpu_point(&e->shape));
    s.sums = dn_gpu_aligned(s.group * s.parts * window);
    s.added = s.parts > 1 ? dn_gpu_aligned(s.group * window) : 0;
    s.windows = two ? dn_gpu_aligned(s.group * window) : 0;
    return s;
}

static sums_plan plan_for(const gpu_conv_engine *e, const conv_job *job)
{
    return has_mma(e) ? plan_mma(e, job) : plan_sums(e, job);
}

/* The points of windows and their norms, no longer needed when the sums are made, and what comes
   after. */
static size_t after_sums(const sums_plan *s)
{
    return MAX(2 * s->points + s->norms, s->windows);
}

size_t dn_gpu_conv_sums_bytes(const gpu_conv_engine *e, const conv_job *job)
{
    sums_plan s = plan_for(e, job);
    return after_sums(&s) + s.kept + s.sums + s.added;
}

/* The peaks of windows, which lie behind their points. */
static void *peaks_of(const gpu_conv_engine *e, const void *points, int64_t windows)
{
    return (char *)(uintptr_t)points +
           windows * dn_gpu_conv_mma_points(&e->mma[GPU_CONV_SUMS]);
}

/* Windows to points by tensor cores. */
static danaus_status split_mma(
    gpu_device *d, const gpu_conv_engine *e, const gpu_conv_transform *t)
{
    size_t bytes = (size_t)t->items * GPU_CONV_PEAKS_BYTES;
    void *peaks = peaks_of(e, t->points, t->items);
    TRY(d->base.backend->clear(&d->base, peaks, bytes));
    TRY(dn_gpu_conv_transform(d, e, CONV_MMA + (int)GPU_CONV_SUMS_PEAKS, t));
    return dn_gpu_conv_transform(d, e, CONV_MMA + (int)GPU_CONV_SUMS_SPLIT, t);
}

/* Windows [from, to) of `filters` filters as points, those of x and then those of dy. */
static danaus_status split(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, const sums_plan *s,
    int64_t first, int64_t filters, range part, char *scratch)
{
    const conv_filter_sums *f = &job->filter;
    gpu_conv_transform x = { .rows = dn_gpu_conv_rows(e, job, 0),
                             .x = f->x.data,
                             .x_factor = f->x.factor,
                             .points = scratch,
                             .norms = scratch + 2 * s->points,
                             .share = 1,
                             .first = first * s->each + part.from,
                             .items = (filters - 1) * s->each + part.to - part.from };
    gpu_conv_transform dy = x;
    x.rows.flags |= f->x.grouped << GROUPED_X;
    dy.x = f->dy.data;
    dy.x_factor = f->dy.factor;
    dy.points = scratch + s->points;
    dy.rows.before = dy.rows.after = 0;
    dy.rows.flags |= CONV_LOWER | f->dy.grouped << GROUPED_X;
    x.rows.flags |= dn_gpu_conv_conjugates(e, f->x.conjugate, 0);
    dy.rows.flags |= dn_gpu_conv_conjugates(e, f->dy.conjugate, 0);
    if (has_mma(e)) {
        dy.spectrum = peaks_of(e, x.points, x.items);
        TRY(split_mma(d, e, &x));
        return split_mma(d, e, &dy);
    }
    if (dn_gpu_conv_norms(e))
        TRY(dn_gpu_conv_transform(d, e, CONV_NORMS, &x));
    TRY(dn_gpu_conv_transform(d, e, CONV_SPLIT, &x));
    return dn_gpu_conv_transform(d, e, CONV_SPLIT, &dy);
}

static danaus_status add_windows(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, const sums_plan *s,
    int64_t first, int64_t filters, range part, char *scratch)
{
    const conv_filter_sums *f = &job->filter;
    gpu_conv_rows r = dn_gpu_conv_rows(e, job, 0);
    int two = e->shape.levels > 1;
    const void *x = f->x.data, *x_factor = f->x.factor;
    const void *dy = f->dy.data, *dy_factor = f->dy.factor;
    void *points = scratch, *dy_points = scratch + s->points;
    void *kept = scratch + after_sums(s), *sums = (char *)kept + s->kept;
    const void *constants = e->constants;
    int64_t parts = s->parts, each = s->each;
    gpu_launch launch = dn_gpu_conv_launch(&e->shape, two, 1);
    launch.blocks[0] = s->blocks;
    launch.threads = e->shape.level[two].team;
    launch.shared /= e->shape.level[two].members;
    r.flags |= f->x.grouped << GROUPED_X | f->dy.grouped << GROUPED_Y;
    r.flags |= dn_gpu_conv_conjugates(e, f->x.conjugate, f->dy.conjugate);
    const gpu_argument arguments[] = {
        ARG(x),         ARG(x_factor), ARG(dy),         ARG(dy_factor), ARG(points),
        ARG(dy_points), ARG(kept),     ARG(sums),       ARG(constants), ARG(first),
        ARG(filters),   ARG(parts),    ARG(each),       ARG(part.from), ARG(part.to),
        ARG(r.length),  ARG(r.batch),  ARG(r.channels), ARG(r.windows), ARG(r.step),
        ARG(r.lead),    ARG(r.before), ARG(r.after),    ARG(r.packed),  ARG(r.flags),
        { 0 }
    };
    gpu_function add = dn_gpu_conv_find(e, CONV_SUMS, x_factor || dy_factor);
    return dn_gpu_launch(d, add, &launch, arguments);
}

/* Parts of sums by tensor cores, over windows [from, to) of `filters` filters: of rows, or of the
   points in scratch. */
static danaus_status add_mma(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, const sums_plan *s,
    int64_t first, int64_t filters, range part, const char *scratch, void *sums)
{
    const conv_filter_sums *f = &job->filter;
    gpu_conv_rows r = dn_gpu_conv_rows(e, job, 0);
    const void *x = f->x.data, *x_factor = f->x.factor;
    const void *dy = f->dy.data, *dy_factor = f->dy.factor;
    const void *tables = e->matrices[GPU_CONV_SUMS];
    int64_t parts = s->parts, each = part.to - part.from;
    int is_more = part.from > 0;
    gpu_launch launch =
        dn_gpu_conv_mma_launch(&d->facts, &e->mma[GPU_CONV_SUMS], 0, filters * parts);
    if (s->points) {
        x = scratch;
        dy = scratch + s->points;
        x_factor = peaks_of(e, x, filters * each);
        dy_factor = peaks_of(e, dy, filters * each);
    }
    r.flags |= f->x.grouped << GROUPED_X | f->dy.grouped << GROUPED_Y;
    const gpu_argument arguments[] = {
        ARG(x),        ARG(x_factor), ARG(dy),         ARG(dy_factor), ARG(sums),
        ARG(tables),   ARG(first),    ARG(filters),    ARG(parts),     ARG(each),
        ARG(r.length), ARG(r.batch),  ARG(r.channels), ARG(r.windows), ARG(r.step),
        ARG(r.lead),   ARG(r.before), ARG(r.after),    ARG(r.packed),  ARG(r.flags),
        ARG(is_more),  { 0 }
    };
    return dn_gpu_launch(d, e->function[CONV_MMA + GPU_CONV_SUMS], &launch, arguments);
}

/* Windows [from, to) of some filters. */
static danaus_status add_range(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, const sums_plan *s,
    int64_t first, int64_t filters, range part, char *scratch)
{
    if (s->points)
        TRY(split(d, e, job, s, first, filters, part, scratch));
    if (!has_mma(e))
        return add_windows(d, e, job, s, first, filters, part, scratch);
    void *sums = scratch + after_sums(s) + s->kept;
    return add_mma(d, e, job, s, first, filters, part, scratch, sums);
}

/* All windows of some filters, to one sum for each, *made, in scratch. */
static danaus_status sum_windows(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, const sums_plan *s,
    int64_t first, int64_t filters, char *scratch, void **made)
{
    void *sums = scratch + after_sums(s) + s->kept, *added = (char *)sums + s->sums;
    int64_t parts = s->parts, count = 2 * e->shape.n;
    *made = parts > 1 ? added : sums;
    for (int64_t from = 0; from < s->each; from += s->at_once) {
        range part = { from, MIN(from + s->at_once, s->each) };
        TRY(add_range(d, e, job, s, first, filters, part, scratch));
    }
    const gpu_argument arguments[] = { ARG(sums),  ARG(added), ARG(filters),
                                       ARG(parts), ARG(count), { 0 } };
    if (parts > 1)
        TRY(dn_gpu_conv_run_each(d, e, CONV_ADD, filters * count, arguments));
    return DANAUS_OK;
}

static danaus_status sum_group(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, const sums_plan *s,
    int64_t first, int64_t filters, char *scratch)
{
    void *sums;
    TRY(sum_windows(d, e, job, s, first, filters, scratch, &sums));
    return dn_gpu_conv_take_filters(d, e, &job->filter, first, filters, sums, scratch);
}

danaus_status dn_gpu_conv_sums(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, char *scratch)
{
    sums_plan s = plan_for(e, job);
    for (int64_t first = 0; first < e->p.filters; first += s.group)
        TRY(sum_group(
            d, e, job, &s, first, MIN(s.group, e->p.filters - first), scratch));
    return DANAUS_OK;
}
