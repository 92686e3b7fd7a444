/* Products with chains: step after step on the device's queue. Vectors between steps are in
   scratch, in the type of x and y. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/run.h"

#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"

size_t dn_gpu_work_bytes(const ks_step *step, int64_t batch)
{
    if (!dn_gpu_code(step->kernel)->inner)
        return 0;
    gpu_turned_slabs s = dn_gpu_turned_plan(step->kernel, &step->p, batch);
    return s.x + s.y;
}

/* to[column][row] = from[row][column], plus the residual's, by ks_turn.cu. */
static danaus_status turn(
    gpu_device *d, gpu_function function, danaus_dtype dtype, int64_t rows,
    int64_t columns, const void *from, void *to, const void *residual)
{
    const gpu_argument arguments[] = { ARG(from), ARG(to),      ARG(residual),
                                       ARG(rows), ARG(columns), { 0 } };
    gpu_launch launch = dn_gpu_turn_launch(rows, columns, danaus_dtype_size(dtype));
    return dn_gpu_launch(d, function, &launch, arguments);
}

/* What the steps of a row with another inside need. */
typedef struct turned_run {
    const kernel *kernel;
    ks_step first, inner;
    const char *packed;
    gpu_ending ending; /* without the residual where y is turned */
    gpu_function turn;
    void *x, *y; /* in scratch; y only if it is turned */
} turned_run;

/* n columns. */
static danaus_status turned_slab(
    gpu_device *d, const turned_run *r, const problem *p, int64_t n, const void *x,
    const void *residual, void *y)
{
    gpu_ending ending = r->ending;
    const gpu_code *code = r->kernel->code;
    int64_t rows = dn_pattern_rows(p->pattern), cols = dn_pattern_cols(p->pattern);
    if (code->first)
        TRY(dn_gpu_step(d, &r->first, r->packed, NULL, NULL, n, x, r->x, NULL));
    else
        TRY(turn(d, r->turn, p->dtype, n, cols, x, r->x, NULL));
    ending.residual = code->first ? residual : NULL;
    TRY(dn_gpu_step(
        d, &r->inner, r->packed + dn_gpu_inner_at(r->kernel, p), &ending, NULL, n, r->x,
        code->first ? y : r->y, NULL));
    return code->first ? DANAUS_OK
                       : turn(d, r->turn, p->dtype, rows, n, r->y, y, residual);
}

/* By another row, slab after slab of columns. */
static danaus_status turned_step(
    gpu_device *d, const ks_step *step, const void *packed, const gpu_ending *ending,
    const gpu_call *call, void *work)
{
    const kernel *k = step->kernel;
    const gpu_code *code = k->code;
    const problem *p = &step->p;
    gpu_turned_slabs slabs = dn_gpu_turned_plan(k, p, call->batch);
    int64_t cols = dn_pattern_cols(p->pattern);
    int64_t size = dn_size_of(p->dtype);
    int64_t x_line = size * (code->first ? dn_pattern_cols(p->inner) : cols);
    int64_t y_line = size * dn_pattern_rows(p->pattern);
    turned_run r = { .kernel = k,
                     .inner = dn_gpu_inner(k, p),
                     .packed = packed,
                     .ending = ending ? *ending : (gpu_ending){ 0 },
                     .x = work,
                     .y = (char *)work + slabs.x };
    if (code->first)
        r.first = dn_gpu_first(k, p);
    else
        TRY(dn_gpu_function(d, k, p, 0, &r.turn));
    const char *x = call->x, *residual = call->residual;
    char *y = (char *)(uintptr_t)call->y;
    for (int64_t s = 0; s < call->batch; s += slabs.columns)
        TRY(turned_slab(
            d, &r, p, MIN(call->batch - s, slabs.columns), x + s * x_line,
            residual ? residual + s * y_line : NULL, y + s * y_line));
    return DANAUS_OK;
}

danaus_status dn_gpu_step(
    gpu_device *d, const ks_step *step, const void *packed, const gpu_ending *ending,
    const gpu_orders *orders, int64_t batch, const void *x, void *y, void *work)
{
    const kernel *k = step->kernel;
    const gpu_family *f = dn_gpu_family(k);
    const void *residual = ending ? ending->residual : NULL;
    gpu_call call = { batch, x, y, residual };
    gpu_launch launch;
    gpu_map maps[GPU_MAPS] = { 0 };
    gpu_function function;
    problem p = step->p;
    danaus_pattern q = p.pattern;
    int variant = f->variant ? f->variant(k, &p, &call) : 0;
    const void *bias = ending ? ending->bias : NULL;
    int activation = ending ? ending->activation : 0, ended = 0;
    if (dn_gpu_code(k)->inner)
        return turned_step(d, step, packed, ending, &call, work);
    if (f->products) {
        TRY(d->shared->driver->products(d, step, packed, &call, ending, &ended));
        if (ended || (!bias && !activation))
            return DANAUS_OK;
    }
    p.activation = activation;
    p.residual = residual != NULL;
    TRY(dn_gpu_function(d, k, &p, variant, &function));
    f->launch(k, &p, &d->facts, &call, &launch);
    if (f->maps)
        f->maps(k, &p, &call, maps);
    gpu_view view[GPU_MAPS] = { { maps[0], p.dtype, x },
                                { maps[1], p.dtype, packed },
                                { maps[2], p.dtype, y } };
    gpu_orders o = orders ? *orders : (gpu_orders){ 0 };
    const gpu_argument with_maps[] = { ARG(x),          ARG(packed),  ARG(bias),
                                       ARG(residual),   ARG(y),       ARG(batch),
                                       ARG(activation), ARG(q.a),     ARG(q.b),
                                       ARG(q.c),        ARG(q.d),     ARG(view[0]),
                                       ARG(view[1]),    ARG(view[2]), { 0 } };
    const gpu_argument with_orders[] = {
        ARG(x),   ARG(packed),   ARG(bias),       ARG(residual),
        ARG(y),   ARG(batch),    ARG(activation), ARG(q.a),
        ARG(q.b), ARG(q.c),      ARG(q.d),        ARG(o.x),
        ARG(o.y), ARG(o.x_rows), ARG(o.y_rows),   { 0 }
    };
    return dn_gpu_launch(d, function, &launch, f->maps ? with_maps : with_orders);
}

int dn_gpu_needs_library(const ks_step *step)
{
    const gpu_family *f = dn_gpu_family(step->kernel);
    ks_step part;
    int needs = f->library;
    for (int n = 0; f->part && f->part(step->kernel, &step->p, n, &part); n++)
        needs |= dn_gpu_needs_library(&part);
    return needs;
}

/* Two places in scratch take turns; what a step needs for itself follows them. */
typedef struct run_arguments {
    const ks_step *steps;
    int count;
    const ks_operands *o;
    size_t widest, between;
} run_arguments;

static gpu_need lay(run_arguments *a, int64_t batch)
{
    a->widest = 0;
    gpu_need need = { 0 };
    for (int i = 0; i < a->count; i++) {
        const ks_step *step = &a->steps[i];
        int64_t rows = i + 1 < a->count ? dn_pattern_rows(step->p.pattern) : 0;
        size_t bytes = dn_gpu_aligned(rows * batch * dn_size_of(step->p.dtype));
        size_t work = dn_gpu_work_bytes(step, batch);
        a->widest = MAX(a->widest, bytes);
        need.scratch = MAX(need.scratch, work);
        need.library |= dn_gpu_needs_library(step);
    }
    a->between = a->count > 2 ? 2 * a->widest : a->widest;
    need.scratch += a->between;
    return need;
}

static gpu_need need_of(gpu_device *d, void *arg)
{
    (void)d;
    run_arguments *a = arg;
    return lay(a, a->o->batch);
}

static danaus_status run(gpu_device *d, void *arg)
{
    run_arguments *a = arg;
    const ks_operands *o = a->o;
    lay(a, o->batch);
    char *scratch = d->scratch;
    const void *x = o->x;
    gpu_ending ending = { o->bias, o->rounded_bias, (int)o->activation, o->residual };
    gpu_orders orders = { o->x_order, o->y_order, o->x_rows, o->y_rows };
    for (int i = 0; i < a->count; i++) {
        int last = i + 1 == a->count;
        void *y = last ? o->y : scratch + (i % 2 ? a->widest : 0);
        TRY(dn_gpu_step(
            d, &a->steps[i], o->packed[i], last ? &ending : NULL, &orders, o->batch, x,
            y, scratch + a->between));
        x = y;
    }
    return DANAUS_OK;
}

/* Calls from which on a graph is worth being made: several launches, or one. */
static int often_enough(const ks_step *steps, int count)
{
    const kernel *k = steps[0].kernel;
    return count > 1 || dn_gpu_code(k)->inner || dn_gpu_family(k)->products ? 2 : 32;
}

static danaus_status run_or_replay(gpu_device *d, run_arguments *a)
{
    const ks_operands *o = a->o;
    gpu_key key;
    const void *operands[] = { o->x, o->bias,    o->rounded_bias, o->residual,
                               o->y, o->x_order, o->y_order };
    int64_t numbers[] = { a->count,
                          o->batch,
                          o->activation,
                          o->bias != NULL,
                          o->rounded_bias != NULL,
                          o->residual != NULL,
                          o->x_rows,
                          o->y_rows };
    dn_gpu_key_begin(&key);
    dn_gpu_key_add(&key, numbers, sizeof numbers);
    dn_gpu_key_add(&key, a->steps, (size_t)a->count * sizeof *a->steps);
    dn_gpu_key_end_form(&key);
    dn_gpu_key_add(&key, operands, sizeof operands);
    dn_gpu_key_add(&key, o->packed, (size_t)a->count * sizeof *o->packed);
    gpu_job call = { need_of, run, a, often_enough(a->steps, a->count) };
    return d->shared->driver->call(d, &key, &call);
}

size_t dn_gpu_ks_scratch(
    danaus_device *dev, const ks_step *steps, int count, int64_t batch)
{
    run_arguments a = { .steps = steps, .count = count };
    const gpu_device *d = (const gpu_device *)dev;
    return d->shared->driver->scratch_bytes(d, lay(&a, batch));
}

danaus_status dn_gpu_ks_run(
    danaus_device *dev, const ks_step *steps, int count, const ks_operands *o)
{
    gpu_device *d = (gpu_device *)dev;
    run_arguments a = { .steps = steps, .count = count, .o = o };
    RETURN_ENTERED(d, run_or_replay(d, &a));
}
