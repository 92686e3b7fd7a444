/* Gradients of a chain: forward through the factors, back through the adjoints, weight
   gradients between.

   x_0 = x, x_1 = K x_0, ... are in scratch in the type of x. Sums over the batch are computed
   in slabs of columns, as many as fill the GPU, and slabs are added up in order: the same bits
   on every run. One launch adds up the slabs of all factors and of the bias, as long as they
   fit in the second cache.

   With small operands, launches take longer than their work. The graph then has two branches:
   x_1, ... with the gradients of the last step, and the way back through the adjoints. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/gradient.h"

#include "base/dtype.h"
#include "base/status.h"
#include "math/pattern.h"

#include <string.h>

/* The most bytes of parts that wait. */
#define MOST_WAITING ((size_t)16 << 20)

/* Bytes of the widest vector up to which there are branches. */
#define MOST_BRANCHED ((int64_t)4 << 20)

/* Where the parts of a gradient lie, and whether those that lie there are added up before. */
typedef struct part_place {
    size_t at;
    int is_reused;
} part_place;

typedef struct gradient_run {
    gpu_device *d;
    const ks_step *steps, *adjoint;
    int count;
    const ks_gradient_operands *o;
    int is_planned;      /* what follows is known */
    int lowest, highest; /* steps whose dy, and whose x, are needed */
    const void *x[DANAUS_MAX_FACTORS];
    void *dy[2];
    char *parts;
    void *work;      /* of a step, */
    void *work_back; /* and of one in the second branch, if operands are small */
    int is_small, has_branches;
    int is_turned; /* work goes to the second branch */
    gpu_dw_plan dw[DANAUS_MAX_FACTORS];
    part_place place[DANAUS_MAX_FACTORS], bias_place;
    size_t parts_bytes;
    gpu_sums sums;
} gradient_run;

/* ---- bias ---- */

static gpu_slabs bias_slabs(const gradient_run *g)
{
    return dn_gpu_bias_slabs(&g->d->facts, &g->steps[g->count - 1].p, g->o->batch);
}

/* Room for the parts of one gradient. */
static danaus_status enter(gradient_run *g, const part_place *place)
{
    return place->is_reused ? dn_gpu_make_sums(g->d, &g->sums) : DANAUS_OK;
}

static danaus_status bias_gradient(gradient_run *g)
{
    const problem *p = &g->steps[g->count - 1].p;
    int64_t batch = g->o->batch, rows = dn_pattern_rows(p->pattern);
    const void *dy = g->o->dy;
    void *parts = g->parts + g->bias_place.at;
    weights_view to = dn_weights_view(
        g->o->dbias, g->o->rounded ? p->dtype : dn_sum_type(p->dtype),
        (danaus_pattern){ 1, rows, 1, 1 });
    gpu_sum sum = dn_gpu_bias_sum(&g->d->facts, p, batch, &to);
    if (dn_gpu_bias_is_sum(p, batch))
        return dn_gpu_add_sum(g->d, &g->sums, p, dy, &sum);
    gpu_slabs s = bias_slabs(g);
    gpu_launch launch = dn_gpu_bias_launch(p, s.count);
    const gpu_argument arguments[] = { ARG(dy),      ARG(parts), ARG(batch),
                                       ARG(s.width), ARG(rows),  { 0 } };
    TRY(enter(g, &g->bias_place));
    TRY(dn_gpu_help(g->d, GPU_BIAS, p, &launch, arguments));
    return dn_gpu_add_sum(g->d, &g->sums, p, parts, &sum);
}

/* ---- weights ---- */

static int is_direct(const gradient_run *g, int step)
{
    return dn_gpu_dw_is_direct(&g->dw[step], &g->o->dw[step]);
}

static danaus_status weight_gradient(
    gradient_run *g, int step, const void *dy, void *work)
{
    const gpu_dw_plan *plan = &g->dw[step];
    const weights_view *to = &g->o->dw[step];
    if (is_direct(g, step))
        return dn_gpu_dw_run(
            g->d, plan, g->x[step], dy, (void *)(uintptr_t)to->data, work);
    void *parts = g->parts + g->place[step].at;
    gpu_sum sum = dn_gpu_dw_sum(plan, to);
    TRY(enter(g, &g->place[step]));
    TRY(dn_gpu_dw_run(g->d, plan, g->x[step], dy, parts, work));
    return dn_gpu_add_sum(g->d, &g->sums, &plan->p, parts, &sum);
}

/* ---- scratch ---- */

static int wants_dw(const ks_gradient_operands *o, int step)
{
    return o->dw && o->dw[step].data;
}

/* Behind what waits, or in its place. */
static part_place place_parts(gradient_run *g, size_t *waiting, int64_t numbers)
{
    size_t bytes = dn_gpu_aligned(numbers * dn_size_of(dn_sum_type(g->steps->p.dtype)));
    part_place place = { *waiting, *waiting && *waiting + bytes > MOST_WAITING };
    if (place.is_reused)
        place.at = 0;
    *waiting = place.at + bytes;
    g->parts_bytes = MAX(g->parts_bytes, *waiting);
    return place;
}

/* In the order in which they are made. */
static void place_all_parts(gradient_run *g)
{
    const problem *last = &g->steps[g->count - 1].p;
    size_t waiting = 0;
    g->parts_bytes = 0;
    g->bias_place = (part_place){ 0 };
    memset(g->place, 0, sizeof g->place);
    if (g->o->dbias && !dn_gpu_bias_is_sum(last, g->o->batch))
        g->bias_place = place_parts(
            g, &waiting, dn_pattern_rows(last->pattern) * bias_slabs(g).count);
    for (int i = g->count - 1; i >= 0; i--)
        if (wants_dw(g->o, i) && !is_direct(g, i))
            g->place[i] = place_parts(g, &waiting, g->dw[i].numbers);
}

/* The dy of a step as it is given; others lie in scratch. */
static const void *dy_of(const gradient_run *g, int step)
{
    return step + 1 == g->count ? g->o->dy : NULL;
}

static size_t work_bytes(const gradient_run *g)
{
    size_t most = 0;
    for (int i = 0; i < g->count; i++) {
        size_t there =
            i < g->highest ? dn_gpu_work_bytes(&g->steps[i], g->o->batch) : 0;
        size_t back =
            i >= g->lowest ? dn_gpu_work_bytes(&g->adjoint[i], g->o->batch) : 0;
        const void *x = i ? NULL : g->o->x;
        size_t moved =
            wants_dw(g->o, i) ? dn_gpu_dw_work_bytes(&g->dw[i], x, dy_of(g, i)) : 0;
        most = MAX(MAX(most, there), MAX(back, moved));
    }
    return most;
}

/* Lays operands one after another from `memory`; returns all their bytes. */
static size_t lay(gradient_run *g, char *memory)
{
    int64_t cell = dn_size_of(g->steps->p.dtype), widest = 0;
    size_t used = 0;
    g->x[0] = g->o->x;
    for (int i = 1; i < g->count; i++) {
        int64_t bytes = dn_pattern_cols(g->steps[i].p.pattern) * g->o->batch * cell;
        widest = MAX(widest, bytes);
        g->x[i] = memory ? memory + used : NULL;
        if (i <= g->highest)
            used += dn_gpu_aligned(bytes);
    }
    for (int i = 0; i < 2; i++) {
        g->dy[i] = memory ? memory + used : NULL;
        if (i + g->lowest + 1 < g->count)
            used += dn_gpu_aligned(widest);
    }
    g->parts = memory ? memory + used : NULL;
    used += g->parts_bytes;
    size_t work = work_bytes(g);
    g->work = memory ? memory + used : NULL;
    g->work_back = memory && g->is_small ? memory + used + work : g->work;
    return used + (g->is_small ? 2 : 1) * work;
}

/* ---- runs ---- */

/* A step forward, and one back. */
static danaus_status step_there(const gradient_run *g, int i)
{
    return dn_gpu_step(
        g->d, &g->steps[i], g->o->packed[i], NULL, NULL, g->o->batch, g->x[i],
        (void *)(uintptr_t)g->x[i + 1], g->work);
}

static danaus_status step_back(const gradient_run *g, int i, const void *dy, void *back)
{
    return dn_gpu_step(
        g->d, &g->adjoint[i], g->o->packed_adjoint[i], NULL, NULL, g->o->batch, dy,
        back, g->work_back);
}

static int is_small(const gradient_run *g)
{
    int64_t widest = 0;
    for (int i = 0; i < g->count; i++) {
        danaus_pattern q = g->steps[i].p.pattern;
        widest = MAX(widest, MAX(dn_pattern_rows(q), dn_pattern_cols(q)));
    }
    return widest * g->o->batch * dn_size_of(g->steps->p.dtype) <= MOST_BRANCHED;
}

/* The library has one workspace, and sums that have to be made between are of both. */
static int may_branch(const gradient_run *g)
{
    int last = g->count - 1, there = 0, back = 0, reused = g->bias_place.is_reused;
    for (int i = 0; i <= last; i++) {
        int dw = wants_dw(g->o, i), library = dw && g->dw[i].library;
        there |= i < g->highest && dn_gpu_needs_library(&g->steps[i]);
        there |= i == last && library;
        back |= i >= g->lowest && dn_gpu_needs_library(&g->adjoint[i]);
        back |= i < last && library;
        reused |= dw && g->place[i].is_reused;
    }
    return g->is_small && g->count < MOST_SUMS && g->lowest < last && !reused &&
           !(there && back);
}

/* What is to be made, and how. */
static void plan_run(gradient_run *g)
{
    const ks_gradient_operands *o = g->o;
    if (g->is_planned)
        return;
    g->is_planned = 1;
    g->lowest = o->dx ? 0 : o->dbias ? g->count - 1 : g->count;
    g->highest = -1;
    for (int i = 0; i < g->count; i++)
        if (wants_dw(o, i)) {
            g->lowest = MIN(g->lowest, i);
            g->highest = i;
            g->dw[i] = dn_gpu_dw_plan(&g->d->facts, &o->dw_steps[i], o->batch);
        }
    place_all_parts(g);
    g->is_small = is_small(g);
    g->has_branches = may_branch(g);
}

static gpu_need need_of(gpu_device *d, void *arg)
{
    (void)d;
    gradient_run *g = arg;
    gpu_need need = { 0 };
    plan_run(g);
    if (g->lowest < g->count)
        need.scratch = lay(g, NULL);
    for (int i = 0; i < g->count; i++)
        need.library |= (i < g->highest && dn_gpu_needs_library(&g->steps[i])) ||
                        (i >= g->lowest && dn_gpu_needs_library(&g->adjoint[i])) ||
                        (wants_dw(g->o, i) && g->dw[i].library);
    return need;
}

/* What comes back from step i on, whose dy is given. */
static danaus_status run_back(gradient_run *g, int i, const void *dy)
{
    const ks_gradient_operands *o = g->o;
    for (; i >= g->lowest; i--) {
        if (wants_dw(o, i) && i + 1 < g->count)
            TRY(weight_gradient(g, i, dy, g->work_back));
        void *back = i > 0 ? g->dy[(g->count - 1 - i) % 2] : o->dx;
        if (i > g->lowest || (i == 0 && o->dx))
            TRY(step_back(g, i, dy, back));
        dy = back;
    }
    return DANAUS_OK;
}

static danaus_status part(const gradient_run *g, int *parted)
{
    return g->d->shared->driver->part(g->d, 0, parted);
}

/* In the second branch, x_1 is not needed if there are two steps. */
static danaus_status run_all(gradient_run *g)
{
    const ks_gradient_operands *o = g->o;
    int last = g->count - 1, parted = 0;
    if (g->has_branches && last == 1)
        TRY(part(g, &parted));
    for (int i = 0; i < g->highest; i++)
        TRY(step_there(g, i));
    if (g->has_branches && last > 1)
        TRY(part(g, &parted));
    if (o->dbias)
        TRY(bias_gradient(g));
    if (wants_dw(o, last))
        TRY(weight_gradient(g, last, o->dy, g->work));
    if (parted)
        g->d->shared->driver->turn(g->d);
    g->is_turned = parted;
    return run_back(g, last, o->dy);
}

static danaus_status run(gpu_device *d, void *arg)
{
    gradient_run *g = arg;
    plan_run(g);
    if (g->lowest == g->count)
        return DANAUS_OK;
    lay(g, d->scratch);
    g->sums.count = 0;
    g->is_turned = 0;
    danaus_status status = run_all(g);
    if (g->is_turned)
        TRY(d->shared->driver->meet(d));
    TRY(status);
    return dn_gpu_make_sums(d, &g->sums);
}

static danaus_status run_or_replay(gradient_run *g)
{
    const ks_gradient_operands *o = g->o;
    gpu_key key;
    size_t count = (size_t)g->count;
    const void *operands[] = { o->x, o->dy, o->dx, o->dbias };
    int64_t numbers[] = { g->count,      o->batch,         o->dx != NULL,
                          o->dw != NULL, o->dbias != NULL, o->rounded };
    dn_gpu_key_begin(&key);
    dn_gpu_key_add(&key, numbers, sizeof numbers);
    dn_gpu_key_add(&key, g->steps, count * sizeof *g->steps);
    dn_gpu_key_add(&key, g->adjoint, count * sizeof *g->adjoint);
    if (o->dw_steps)
        dn_gpu_key_add(&key, o->dw_steps, count * sizeof *o->dw_steps);
    dn_gpu_key_end_form(&key);
    dn_gpu_key_add(&key, operands, sizeof operands);
    if (o->packed)
        dn_gpu_key_add(&key, o->packed, count * sizeof *o->packed);
    if (o->packed_adjoint)
        dn_gpu_key_add(&key, o->packed_adjoint, count * sizeof *o->packed_adjoint);
    for (int i = 0; o->dw && i < g->count; i++) {
        const weights_view *v = &o->dw[i];
        dn_gpu_key_add(&key, &v->data, sizeof v->data);
        dn_gpu_key_add(&key, v->s, sizeof v->s);
        dn_gpu_key_add(&key, &v->conjugate, sizeof v->conjugate);
    }
    gpu_job call = { need_of, run, g, 2 };
    return g->d->shared->driver->call(g->d, &key, &call);
}

static void open_run(
    gradient_run *g, danaus_device *dev, const ks_step *steps, const ks_step *adjoint,
    int count, const ks_gradient_operands *o)
{
    g->d = (gpu_device *)dev;
    g->steps = steps;
    g->adjoint = adjoint;
    g->count = count;
    g->o = o;
    g->is_planned = 0;
}

/* Operands that are not aligned may need more. */
size_t dn_gpu_gradient_scratch(
    danaus_device *dev, const ks_step *steps, const ks_step *adjoint,
    const ks_step *dw_steps, int count, int64_t batch)
{
    weights_view dw[DANAUS_MAX_FACTORS] = { 0 };
    char some[2];
    const void *apart = (uintptr_t)some % 2 ? some : some + 1;
    for (int i = 0; i < count; i++)
        dw[i].data = some;
    ks_gradient_operands o = { .batch = batch,
                               .x = apart,
                               .dy = apart,
                               .dx = some,
                               .dw = dw,
                               .dw_steps = dw_steps,
                               .dbias = some };
    gradient_run g;
    open_run(&g, dev, steps, adjoint, count, &o);
    return g.d->shared->driver->scratch_bytes(g.d, need_of(g.d, &g));
}

danaus_status dn_gpu_ks_gradient(
    danaus_device *dev, const ks_step *steps, const ks_step *adjoint, int count,
    const ks_gradient_operands *o)
{
    gradient_run g;
    open_run(&g, dev, steps, adjoint, count, o);
    RETURN_ENTERED(g.d, run_or_replay(&g));
}
