/* Gradients of a chain: forward through the factors, back through the adjoints, weight
   gradients between.

   x_0 = x, x_1 = K x_0, ... lie in scratch in the type of x. Sums over the batch are
   made in slabs of columns, as many as fill the GPU, and the slabs added up in their
   order: the same bits on every run. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/gradient.h"

#include "base/dtype.h"
#include "base/status.h"
#include "math/pattern.h"

typedef struct gradient_run {
    cuda_device *d;
    const ks_step *steps, *adjoint;
    int count;
    const ks_gradient_operands *o;
    int is_planned;      /* what follows is known */
    int lowest, highest; /* steps whose dy, and whose x, are needed */
    const void *x[DANAUS_MAX_FACTORS];
    void *dy[2];
    void *parts, *work; /* work: of a step */
    gpu_dw_plan dw[DANAUS_MAX_FACTORS];
} gradient_run;

/* ---- bias ---- */

static gpu_slabs bias_slabs(const gradient_run *g)
{
    return dn_gpu_bias_slabs(&g->d->gpu.facts, &g->steps[g->count - 1].p, g->o->batch);
}

static danaus_status bias_gradient(const gradient_run *g)
{
    const problem *p = &g->steps[g->count - 1].p;
    gpu_slabs s = bias_slabs(g);
    gpu_launch launch = dn_gpu_bias_launch(p, s.count);
    int64_t batch = g->o->batch, rows = dn_pattern_rows(p->pattern);
    const void *dy = g->o->dy;
    void *parts = g->parts;
    void *arguments[] = { &dy, &parts, &batch, &s.width, &rows };
    danaus_pattern line = { 1, rows, 1, 1 };
    weights_view to = dn_weights_view(g->o->dbias, dn_sum_type(p->dtype), line);
    gpu_sum sum = dn_gpu_sum(p->dtype, s.count, line, &to, 0);
    TRY(dn_cuda_help(g->d, GPU_BIAS, p, &launch, arguments));
    return dn_cuda_sum(g->d, p, g->parts, &sum);
}

/* ---- scratch ---- */

static int wants_dw(const ks_gradient_operands *o, int step)
{
    return o->dw && o->dw[step].data;
}

static size_t parts_bytes(const gradient_run *g)
{
    int64_t cell = dn_size_of(dn_sum_type(g->steps->p.dtype));
    int64_t most = 0;
    for (int i = 0; i < g->count; i++)
        if (wants_dw(g->o, i))
            most = MAX(most, g->dw[i].numbers);
    if (g->o->dbias) {
        int64_t rows = dn_pattern_rows(g->steps[g->count - 1].p.pattern);
        most = MAX(most, rows * bias_slabs(g).count);
    }
    return dn_gpu_aligned(most * cell);
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
            i < g->highest ? dn_cuda_work_bytes(&g->steps[i], g->o->batch) : 0;
        size_t back =
            i >= g->lowest ? dn_cuda_work_bytes(&g->adjoint[i], g->o->batch) : 0;
        const void *x = i ? NULL : g->o->x;
        size_t moved =
            wants_dw(g->o, i) ? dn_cuda_dw_work_bytes(&g->dw[i], x, dy_of(g, i)) : 0;
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
    used += parts_bytes(g);
    g->work = memory ? memory + used : NULL;
    return used + work_bytes(g);
}

/* ---- runs ---- */

/* A step forward, and one back. */
static danaus_status step_of(
    const gradient_run *g, const ks_step *step, const void *packed, const void *x,
    const void *y)
{
    return dn_cuda_step(
        g->d, step, packed, NULL, g->o->batch, x, (void *)(uintptr_t)y, g->work);
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
            g->dw[i] = dn_gpu_dw_plan(&g->d->gpu.facts, &o->dw_steps[i], o->batch);
        }
}

static cuda_need need_of(cuda_device *d, void *arg)
{
    (void)d;
    gradient_run *g = arg;
    cuda_need need = { 0 };
    plan_run(g);
    if (g->lowest < g->count)
        need.scratch = lay(g, NULL);
    for (int i = 0; i < g->count; i++)
        need.library |= (i < g->highest && dn_cuda_needs_library(&g->steps[i])) ||
                        (i >= g->lowest && dn_cuda_needs_library(&g->adjoint[i])) ||
                        (wants_dw(g->o, i) && g->dw[i].library);
    return need;
}

static danaus_status run(cuda_device *d, void *arg)
{
    gradient_run *g = arg;
    const ks_gradient_operands *o = g->o;
    plan_run(g);
    if (g->lowest == g->count)
        return DANAUS_OK;
    lay(g, d->scratch);
    for (int i = 0; i < g->highest; i++)
        TRY(step_of(g, &g->steps[i], o->packed[i], g->x[i], g->x[i + 1]));
    if (o->dbias)
        TRY(bias_gradient(g));
    const void *dy = o->dy;
    for (int i = g->count - 1; i >= g->lowest; i--) {
        if (wants_dw(o, i))
            TRY(dn_cuda_dw(g->d, &g->dw[i], g->x[i], dy, g->parts, g->work, &o->dw[i]));
        void *back = i > 0 ? g->dy[(g->count - 1 - i) % 2] : o->dx;
        if (i > g->lowest || (i == 0 && o->dx))
            TRY(step_of(g, &g->adjoint[i], o->packed_adjoint[i], dy, back));
        dy = back;
    }
    return DANAUS_OK;
}

static danaus_status run_or_replay(gradient_run *g)
{
    const ks_gradient_operands *o = g->o;
    cuda_key key;
    size_t count = (size_t)g->count;
    const void *operands[] = { o->x, o->dy, o->dx, o->dbias };
    int64_t numbers[] = { g->count, o->batch, o->dx != NULL, o->dw != NULL,
                          o->dbias != NULL };
    dn_key_begin(&key, g->d);
    dn_key_add(&key, numbers, sizeof numbers);
    dn_key_add(&key, g->steps, count * sizeof *g->steps);
    dn_key_add(&key, g->adjoint, count * sizeof *g->adjoint);
    if (o->dw_steps)
        dn_key_add(&key, o->dw_steps, count * sizeof *o->dw_steps);
    dn_key_end_form(&key);
    dn_key_add(&key, operands, sizeof operands);
    if (o->packed)
        dn_key_add(&key, o->packed, count * sizeof *o->packed);
    if (o->packed_adjoint)
        dn_key_add(&key, o->packed_adjoint, count * sizeof *o->packed_adjoint);
    for (int i = 0; o->dw && i < g->count; i++) {
        const weights_view *v = &o->dw[i];
        dn_key_add(&key, &v->data, sizeof v->data);
        dn_key_add(&key, v->s, sizeof v->s);
        dn_key_add(&key, &v->conjugate, sizeof v->conjugate);
    }
    cuda_call call = { need_of, run, g, 2 };
    return dn_cuda_replay(g->d, &key, &call);
}

static void open_run(
    gradient_run *g, danaus_device *dev, const ks_step *steps, const ks_step *adjoint,
    int count, const ks_gradient_operands *o)
{
    g->d = (cuda_device *)dev;
    g->steps = steps;
    g->adjoint = adjoint;
    g->count = count;
    g->o = o;
    g->is_planned = 0;
}

/* Operands that are not aligned may need more. */
size_t dn_cuda_gradient_scratch(
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
    return dn_cuda_scratch_bytes(g.d, need_of(g.d, &g));
}

danaus_status dn_cuda_ks_gradient(
    danaus_device *dev, const ks_step *steps, const ks_step *adjoint, int count,
    const ks_gradient_operands *o)
{
    gradient_run g;
    open_run(&g, dev, steps, adjoint, count, o);
    RETURN_INSIDE(g.d, run_or_replay(&g));
}
