/* Gradients of filters on GPUs: sums of spectra over the windows of a filter, and their inverse
   transform. Parts of the sums depend only on the problem and the GPU's memory. Groups of
   filters follow each other, and so do ranges of one filter's windows of two levels, so that
   scratch does not grow with the problem. Where tensor cores compute the sums, one launch
   computes the parts of a group, and another adds them and puts them in order. */
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

static sums_plan plan_mma(const gpu_conv_engine *e, const conv_job *job)
{
    int64_t filters = e->p.filters, window = dn_gpu_conv_window(e);
    int64_t windows = MAX(1, e->gpu->facts.memory / CONV_MEMORY_SHARE / window);
    int64_t places = dn_gpu_conv_mma_places(&e->gpu->facts, &e->mma[GPU_CONV_SUMS]);
    sums_plan s = { .each =
                        e->p.channels / filters * dn_gpu_conv_each_channel(e, job) };
    s.parts = MIN(windows, parts_for(MIN(filters, windows), s.each, places));
    s.at_once = s.each;
    s.group = CLAMP(windows / s.parts, 1, filters);
    s.sums = dn_gpu_aligned(s.group * s.parts * window);
    s.added = s.windows = dn_gpu_aligned(s.group * window);
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
    s.windows = dn_gpu_aligned(s.group * window);
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

/* Windows [from, to) of `filters` filters as points. */
static danaus_status split(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, const sums_plan *s,
    int64_t first, int64_t filters, range part, char *scratch)
{
    const conv_filter_sums *f = &job->filter;
    gpu_conv_transform t = { .rows = dn_gpu_conv_rows(e, job, 0),
                             .x = f->x.data,
                             .x_factor = f->x.factor,
                             .points = scratch,
                             .norms = scratch + 2 * s->points,
                             .share = 1,
                             .first = first * s->each + part.from,
                             .items = (filters - 1) * s->each + part.to - part.from };
    int flags = t.rows.flags;
    t.rows.flags |= f->x.grouped << GROUPED_X;
    if (dn_gpu_conv_norms(e))
        TRY(dn_gpu_conv_transform(d, e, CONV_NORMS, &t));
    TRY(dn_gpu_conv_transform(d, e, CONV_SPLIT, &t));
    t.x = f->dy.data;
    t.x_factor = f->dy.factor;
    t.points = scratch + s->points;
    t.rows.before = t.rows.after = 0;
    t.rows.flags = flags | CONV_LOWER | f->dy.grouped << GROUPED_X;
    return dn_gpu_conv_transform(d, e, CONV_SPLIT, &t);
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

/* Parts of sums by tensor cores, to one sum for each filter. */
static danaus_status add_mma(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, const sums_plan *s,
    int64_t first, int64_t filters, void *sums, void *added)
{
    const conv_filter_sums *f = &job->filter;
    gpu_conv_rows r = dn_gpu_conv_rows(e, job, 0);
    const void *x = f->x.data, *x_factor = f->x.factor;
    const void *dy = f->dy.data, *dy_factor = f->dy.factor;
    const void *tables = e->matrices[GPU_CONV_SUMS];
    int64_t parts = s->parts, each = s->each;
    gpu_launch launch =
        dn_gpu_conv_mma_launch(&d->facts, &e->mma[GPU_CONV_SUMS], 0, filters * parts);
    r.flags |= f->x.grouped << GROUPED_X | f->dy.grouped << GROUPED_Y;
    const gpu_argument arguments[] = { ARG(x),          ARG(x_factor),  ARG(dy),
                                       ARG(dy_factor),  ARG(sums),      ARG(tables),
                                       ARG(first),      ARG(filters),   ARG(parts),
                                       ARG(each),       ARG(r.length),  ARG(r.batch),
                                       ARG(r.channels), ARG(r.windows), ARG(r.step),
                                       ARG(r.lead),     ARG(r.before),  ARG(r.after),
                                       ARG(r.packed),   ARG(r.flags),   { 0 } };
    TRY(dn_gpu_launch(d, e->function[CONV_MMA + GPU_CONV_SUMS], &launch, arguments));
    const gpu_argument order[] = {
        ARG(sums), ARG(added), ARG(filters), ARG(parts), { 0 }
    };
    return dn_gpu_conv_run_each(d, e, CONV_ORDER, filters * e->shape.n, order);
}

/* So many bytes further; of NULL, NULL. */
static void *behind(void *memory, int64_t bytes)
{
    return memory ? (char *)memory + bytes : NULL;
}

/* Sums to windows, and these to gradients. */
static danaus_status take(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, int64_t first,
    int64_t filters, void *sums, void *windows)
{
    const conv_frame *r = &e->frame;
    int64_t size = dn_size_of(e->shape.sums), taps = r->taps, length = r->length;
    int64_t n = e->shape.n, positive = MIN(taps, r->before + 1), negative = r->after;
    int is_periodic = r->periodic, is_folded = r->fold && !e->shape.circle;
    const conv_filter_sums *f = &job->filter;
    int is_more = f->is_more;
    int64_t reach = is_more && !is_periodic ? MIN(taps, MAX(positive, negative)) : taps;
    void *dk = behind(f->dk, first * taps * size);
    void *dk_reverse = behind(f->dk_reverse, first * taps * size);
    void *dskip = behind(f->dskip, first * size);
    gpu_conv_transform t = { .rows = dn_gpu_conv_filter_rows(e),
                             .y = { windows },
                             .points = sums,
                             .spectrum = sums,
                             .items = filters,
                             .share = 1 };
    TRY(dn_gpu_conv_mask(d, e, filters, sums));
    TRY(dn_gpu_conv_transform(d, e, CONV_BACK, &t));
    if (e->shape.levels > 1)
        TRY(dn_gpu_conv_transform(d, e, CONV_FILTER_JOIN, &t));
    const gpu_argument arguments[] = { ARG(windows),   ARG(dk),       ARG(dk_reverse),
                                       ARG(dskip),     ARG(filters),  ARG(n),
                                       ARG(taps),      ARG(reach),    ARG(length),
                                       ARG(positive),  ARG(negative), ARG(is_periodic),
                                       ARG(is_folded), ARG(is_more),  { 0 } };
    return dn_gpu_conv_run_each(d, e, CONV_TAKE, filters * reach, arguments);
}

/* All windows of some filters, to one sum for each, *made, in scratch. */
static danaus_status sum_windows(
    gpu_device *d, const gpu_conv_engine *e, const conv_job *job, const sums_plan *s,
    int64_t first, int64_t filters, char *scratch, void **made)
{
    void *sums = scratch + after_sums(s) + s->kept, *added = (char *)sums + s->sums;
    int64_t parts = s->parts, count = 2 * e->shape.n;
    *made = parts > 1 || has_mma(e) ? added : sums;
    if (has_mma(e))
        return add_mma(d, e, job, s, first, filters, sums, added);
    for (int64_t from = 0; from < s->each; from += s->at_once) {
        range part = { from, MIN(from + s->at_once, s->each) };
        if (e->shape.levels > 1)
            TRY(split(d, e, job, s, first, filters, part, scratch));
        TRY(add_windows(d, e, job, s, first, filters, part, scratch));
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
    return take(d, e, job, first, filters, sums, scratch);
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
