/* Products with chains: step after step on the device's stream. Vectors between steps are in
   scratch, in the type of x and y. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/gradient.h"

#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"

danaus_status dn_cuda_map(
    cuda_device *d, danaus_dtype dtype, const void *memory, const gpu_map *m,
    cu_tensor_map *map)
{
    static const unsigned step[5] = { 1, 1, 1, 1, 1 };
    int type = dtype == DANAUS_F16    ? CU_MAP_F16
               : dtype == DANAUS_BF16 ? CU_MAP_BF16
               : dtype == DANAUS_F32  ? CU_MAP_F32
                                      : CU_MAP_F64;
    int swizzle = m->swizzle == 128 ? 3 : m->swizzle == 64 ? 2 : m->swizzle == 32;
    uint64_t size[5], stride[4];
    unsigned box[5];
    for (int i = 0; i < m->rank; i++) {
        size[i] = (uint64_t)m->size[i];
        box[i] = (unsigned)m->box[i];
        if (i)
            stride[i - 1] = (uint64_t)m->stride[i] * danaus_dtype_size(dtype);
    }
    if (!d->driver->TensorMapEncodeTiled)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "this driver is too old for compute capability 9.0");
    CUDA_TRY(
        d->driver, TensorMapEncodeTiled(
                       map, type, (unsigned)m->rank, (void *)(uintptr_t)memory, size,
                       stride, box, step, 0, swizzle, CU_MAP_PROMOTE_256, 0));
    return DANAUS_OK;
}

static danaus_status launch_cluster(
    cuda_device *d, cu_function function, const gpu_launch *l, void **arguments)
{
    cu_launch_attribute cluster = { .id = CU_LAUNCH_CLUSTER };
    cluster.value.cluster.x = (unsigned)l->cluster;
    cluster.value.cluster.y = cluster.value.cluster.z = 1;
    cu_launch launch = {
        .grid = { (unsigned)l->blocks[0], (unsigned)l->blocks[1],
                  (unsigned)l->blocks[2] },
        .block = { (unsigned)l->threads, 1, 1 },
        .shared = (unsigned)l->shared,
        .stream = d->stream,
        .attributes = &cluster,
        .count = 1,
    };
    if (!d->driver->LaunchKernelEx)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "this driver is too old for compute capability 9.0");
    CUDA_TRY(d->driver, LaunchKernelEx(&launch, function, arguments, NULL));
    return DANAUS_OK;
}

static danaus_status launch_blocks(
    cuda_device *d, cu_function function, const gpu_launch *l, void **arguments)
{
    CUDA_TRY(
        d->driver, LaunchKernel(
                       function, (unsigned)l->blocks[0], (unsigned)l->blocks[1],
                       (unsigned)l->blocks[2], (unsigned)l->threads, 1, 1,
                       (unsigned)l->shared, d->stream, arguments, NULL));
    return DANAUS_OK;
}

danaus_status dn_cuda_launch(
    cuda_device *d, cu_function function, const gpu_launch *l, void **arguments)
{
    if (d->patched) {
        dn_cuda_patch(d, function, l, arguments);
        return DANAUS_OK;
    }
    if (l->cluster)
        TRY(launch_cluster(d, function, l, arguments));
    else
        TRY(launch_blocks(d, function, l, arguments));
    if (d->recorded)
        dn_cuda_record(d, function, l);
    return DANAUS_OK;
}

size_t dn_cuda_work_bytes(const ks_step *step, int64_t batch)
{
    if (!dn_gpu_code(step->kernel)->inner)
        return 0;
    gpu_turned_slabs s = dn_gpu_turned_plan(step->kernel, &step->p, batch);
    return s.x + s.y;
}

/* to[column][row] = from[row][column], plus the residual's, by ks_turn.cu. */
static danaus_status turn(
    cuda_device *d, cu_function function, danaus_dtype dtype, int64_t rows,
    int64_t columns, const void *from, void *to, const void *residual)
{
    void *arguments[] = { &from, &to, &residual, &rows, &columns };
    gpu_launch launch = dn_gpu_turn_launch(rows, columns, danaus_dtype_size(dtype));
    return dn_cuda_launch(d, function, &launch, arguments);
}

/* What the steps of a row with another inside need. */
typedef struct turned_run {
    const kernel *kernel;
    ks_step first, inner;
    const char *packed;
    cuda_ending ending; /* without the residual where y is turned */
    cu_function turn;
    void *x, *y; /* in scratch; y only if it is turned */
} turned_run;

/* n columns. */
static danaus_status turned_slab(
    cuda_device *d, const turned_run *r, const problem *p, int64_t n, const void *x,
    const void *residual, void *y)
{
    cuda_ending ending = r->ending;
    const gpu_code *code = r->kernel->code;
    int64_t rows = dn_pattern_rows(p->pattern), cols = dn_pattern_cols(p->pattern);
    if (code->first)
        TRY(dn_cuda_step(d, &r->first, r->packed, NULL, NULL, n, x, r->x, NULL));
    else
        TRY(turn(d, r->turn, p->dtype, n, cols, x, r->x, NULL));
    ending.residual = code->first ? residual : NULL;
    TRY(dn_cuda_step(
        d, &r->inner, r->packed + dn_gpu_inner_at(r->kernel, p), &ending, NULL, n, r->x,
        code->first ? y : r->y, NULL));
    return code->first ? DANAUS_OK
                       : turn(d, r->turn, p->dtype, rows, n, r->y, y, residual);
}

/* By another row, slab after slab of columns. */
static danaus_status turned_step(
    cuda_device *d, const ks_step *step, const void *packed, const cuda_ending *ending,
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
                     .ending = ending ? *ending : (cuda_ending){ 0 },
                     .x = work,
                     .y = (char *)work + slabs.x };
    if (code->first)
        r.first = dn_gpu_first(k, p);
    else
        TRY(dn_cuda_function(d, k, p, 0, &r.turn));
    const char *x = call->x, *residual = call->residual;
    char *y = (char *)(uintptr_t)call->y;
    for (int64_t s = 0; s < call->batch; s += slabs.columns)
        TRY(turned_slab(
            d, &r, p, MIN(call->batch - s, slabs.columns), x + s * x_line,
            residual ? residual + s * y_line : NULL, y + s * y_line));
    return DANAUS_OK;
}

danaus_status dn_cuda_step(
    cuda_device *d, const ks_step *step, const void *packed, const cuda_ending *ending,
    const cuda_orders *orders, int64_t batch, const void *x, void *y, void *work)
{
    const kernel *k = step->kernel;
    const gpu_family *f = dn_gpu_family(k);
    const void *residual = ending ? ending->residual : NULL;
    gpu_call call = { batch, x, y, residual };
    gpu_launch launch;
    gpu_map maps[GPU_MAPS] = { 0 };
    cu_tensor_map map[GPU_MAPS];
    cu_function function;
    problem p = step->p;
    danaus_pattern q = p.pattern;
    int variant = f->variant ? f->variant(k, &p, &call) : 0;
    const void *bias = ending ? ending->bias : NULL;
    int activation = ending ? ending->activation : 0, ended = 0;
    if (dn_gpu_code(k)->inner)
        return turned_step(d, step, packed, ending, &call, work);
    if (f->products) {
        TRY(dn_cuda_products(d, step, packed, &call, ending, &ended));
        if (ended || (!bias && !activation))
            return DANAUS_OK;
    }
    p.activation = activation;
    p.residual = residual != NULL;
    TRY(dn_cuda_function(d, k, &p, variant, &function));
    f->launch(k, &p, &d->gpu.facts, &call, &launch);
    if (f->maps)
        f->maps(k, &p, &call, maps);
    const void *operand[GPU_MAPS] = { x, packed, y };
    for (int i = 0; i < GPU_MAPS; i++)
        if (maps[i].rank)
            TRY(dn_cuda_map(d, p.dtype, operand[i], &maps[i], &map[i]));
    cuda_orders o = orders ? *orders : (cuda_orders){ 0 };
    void *with_maps[] = { &x,     &packed,     &bias,   &residual, &y,
                          &batch, &activation, &q.a,    &q.b,      &q.c,
                          &q.d,   &map[0],     &map[1], &map[2] };
    void *with_orders[] = { &x,     &packed,     &bias, &residual, &y,
                            &batch, &activation, &q.a,  &q.b,      &q.c,
                            &q.d,   &o.x,        &o.y,  &o.x_rows, &o.y_rows };
    void **arguments = f->maps ? with_maps : with_orders;
    return dn_cuda_launch(d, function, &launch, arguments);
}

int dn_cuda_needs_library(const ks_step *step)
{
    const gpu_family *f = dn_gpu_family(step->kernel);
    ks_step part;
    int needs = f->library;
    for (int n = 0; f->part && f->part(step->kernel, &step->p, n, &part); n++)
        needs |= dn_cuda_needs_library(&part);
    return needs;
}

/* Two places in scratch take turns; what a step needs for itself follows them. */
typedef struct run_arguments {
    const ks_step *steps;
    int count;
    const ks_operands *o;
    size_t widest, between;
} run_arguments;

static cuda_need lay(run_arguments *a, int64_t batch)
{
    a->widest = 0;
    cuda_need need = { 0 };
    for (int i = 0; i < a->count; i++) {
        const ks_step *step = &a->steps[i];
        int64_t rows = i + 1 < a->count ? dn_pattern_rows(step->p.pattern) : 0;
        size_t bytes = dn_gpu_aligned(rows * batch * dn_size_of(step->p.dtype));
        size_t work = dn_cuda_work_bytes(step, batch);
        a->widest = MAX(a->widest, bytes);
        need.scratch = MAX(need.scratch, work);
        need.library |= dn_cuda_needs_library(step);
    }
    a->between = a->count > 2 ? 2 * a->widest : a->widest;
    need.scratch += a->between;
    return need;
}

static cuda_need need_of(cuda_device *d, void *arg)
{
    (void)d;
    run_arguments *a = arg;
    return lay(a, a->o->batch);
}

static danaus_status run(cuda_device *d, void *arg)
{
    run_arguments *a = arg;
    const ks_operands *o = a->o;
    lay(a, o->batch);
    char *scratch = d->scratch;
    const void *x = o->x;
    cuda_ending ending = { o->bias, o->rounded_bias, (int)o->activation, o->residual };
    cuda_orders orders = { o->x_order, o->y_order, o->x_rows, o->y_rows };
    for (int i = 0; i < a->count; i++) {
        int last = i + 1 == a->count;
        void *y = last ? o->y : scratch + (i % 2 ? a->widest : 0);
        TRY(dn_cuda_step(
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

static danaus_status run_or_replay(cuda_device *d, run_arguments *a)
{
    const ks_operands *o = a->o;
    cuda_key key;
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
    dn_key_begin(&key, d);
    dn_key_add(&key, numbers, sizeof numbers);
    dn_key_add(&key, a->steps, (size_t)a->count * sizeof *a->steps);
    dn_key_end_form(&key);
    dn_key_add(&key, operands, sizeof operands);
    dn_key_add(&key, o->packed, (size_t)a->count * sizeof *o->packed);
    cuda_call call = { need_of, run, a, often_enough(a->steps, a->count) };
    return dn_cuda_replay(d, &key, &call);
}

size_t dn_cuda_ks_scratch(
    danaus_device *dev, const ks_step *steps, int count, int64_t batch)
{
    run_arguments a = { .steps = steps, .count = count };
    return dn_cuda_scratch_bytes((cuda_device *)dev, lay(&a, batch));
}

danaus_status dn_cuda_ks_run(
    danaus_device *dev, const ks_step *steps, int count, const ks_operands *o)
{
    cuda_device *d = (cuda_device *)dev;
    run_arguments a = { .steps = steps, .count = count, .o = o };
    RETURN_INSIDE(d, run_or_replay(d, &a));
}
