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
    int64_t cell = (int64_t)danaus_dtype_size(dn_sum_type(g->steps->p.dtype));
    int64_t most = 0;
    for (int i = 0; i < g->count; i++)
        if (wants_dw(g->o, i) && g->dw[i].numbers > most)
            most = g->dw[i].numbers;
    if (g->o->dbias) {
        int64_t size =
            dn_pattern_rows(g->steps[g->count - 1].p.pattern) * bias_slabs(g).count;
        most = size > most ? size : most;
    }
    return dn_cuda_aligned(most * cell);
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
        most = there > most ? there : most;
        most = back > most ? back : most;
        most = moved > most ? moved : most;
    }
    return most;
}

/* Lays operands one after another from `memory`; returns all their bytes. */
static size_t lay(gradient_run *g, char *memory)
{
    int64_t cell = (int64_t)danaus_dtype_size(g->steps->p.dtype), widest = 0;
    size_t used = 0;
    g->x[0] = g->o->x;
    for (int i = 1; i < g->count; i++) {
        int64_t bytes = dn_pattern_cols(g->steps[i].p.pattern) * g->o->batch * cell;
        widest = bytes > widest ? bytes : widest;
        g->x[i] = memory ? memory + used : NULL;
        if (i <= g->highest)
            used += dn_cuda_aligned(bytes);
    }
    for (int i = 0; i < 2; i++) {
        g->dy[i] = memory ? memory + used : NULL;
        if (i + g->lowest + 1 < g->count)
            used += dn_cuda_aligned(widest);
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
        g->d, step, packed, NULL, 0, g->o->batch, x, (void *)(uintptr_t)y, g->work);
}

static danaus_status run(gradient_run *g)
{
    const ks_gradient_operands *o = g->o;
    void *scratch;
    for (int i = 0; i < g->count; i++)
        if (wants_dw(o, i))
            g->dw[i] = dn_gpu_dw_plan(&g->d->gpu.facts, &o->dw_steps[i], o->batch);
    TRY(dn_cuda_scratch(g->d, lay(g, NULL), &scratch));
    lay(g, scratch);
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

typedef struct run_arguments {
    const ks_step *steps, *adjoint;
    int count;
    const ks_gradient_operands *o;
} run_arguments;

static danaus_status run_again(cuda_device *d, void *arg)
{
    const run_arguments *a = arg;
    gradient_run g;
    g.d = d;
    g.steps = a->steps;
    g.adjoint = a->adjoint;
    g.count = a->count;
    g.o = a->o;
    g.lowest = a->o->dx ? 0 : a->o->dbias ? a->count - 1 : a->count;
    g.highest = -1;
    for (int i = 0; i < a->count; i++)
        if (wants_dw(a->o, i)) {
            g.lowest = g.lowest < i ? g.lowest : i;
            g.highest = i;
        }
    return g.lowest == a->count ? DANAUS_OK : run(&g);
}

static danaus_status run_or_replay(cuda_device *d, run_arguments *a)
{
    const ks_gradient_operands *o = a->o;
    cuda_key key;
    size_t count = (size_t)a->count;
    const void *operands[] = { o->x, o->dy, o->dx, o->dbias };
    int64_t numbers[] = { a->count, o->batch, o->dx != NULL, o->dw != NULL,
                          o->dbias != NULL };
    dn_key_begin(&key, d);
    dn_key_add(&key, numbers, sizeof numbers);
    dn_key_add(&key, a->steps, count * sizeof *a->steps);
    dn_key_add(&key, a->adjoint, count * sizeof *a->adjoint);
    if (o->dw_steps)
        dn_key_add(&key, o->dw_steps, count * sizeof *o->dw_steps);
    dn_key_end_form(&key);
    dn_key_add(&key, operands, sizeof operands);
    if (o->packed)
        dn_key_add(&key, o->packed, count * sizeof *o->packed);
    if (o->packed_adjoint)
        dn_key_add(&key, o->packed_adjoint, count * sizeof *o->packed_adjoint);
    for (int i = 0; o->dw && i < a->count; i++) {
        const weights_view *v = &o->dw[i];
        dn_key_add(&key, &v->data, sizeof v->data);
        dn_key_add(&key, v->s, sizeof v->s);
        dn_key_add(&key, &v->conjugate, sizeof v->conjugate);
    }
    return dn_cuda_replay(d, &key, 2, run_again, a);
}

danaus_status dn_cuda_ks_gradient(
    danaus_device *dev, const ks_step *steps, const ks_step *adjoint, int count,
    const ks_gradient_operands *o)
{
    cuda_device *d = (cuda_device *)dev;
    run_arguments a = { steps, adjoint, count, o };
    int pushed;
    TRY(dn_cuda_enter(d, &pushed));
    danaus_status status = run_or_replay(d, &a);
    dn_cuda_leave(d, pushed);
    return status;
}
