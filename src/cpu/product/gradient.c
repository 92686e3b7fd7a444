/* Gradients of a chain: forward through the factors, back through the adjoints,
   weight gradients between.

   The batch is taken in slabs of a fixed width, whatever the threads. In each,
   x_0 = x, x_1 = K x_0, ... are kept as panels. Then dy goes back through the
   adjoints, and at every step dw += dy x^H, with the entries of dw divided among
   threads. Slabs follow each other, so sums over the batch are always computed
   in the same order. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/product/grid.h"

#include "base/dtype.h"
#include "base/status.h"
#include "math/pattern.h"

#define SLAB          256
#define ROWS_PER_TASK 64 /* that a task turns or sums */
#define MOST_DW_TASKS 64 /* of blocks, and of rows when blocks are fewer */

typedef struct cpu_gradient_run {
    cpu_device *dev;
    const ks_step *steps, *adjoint;
    int count;
    const ks_gradient_operands *o;
    int lowest, highest; /* steps whose dy, and whose x, are needed */
    int64_t width;       /* columns of a panel */
    cpu_view x[DANAUS_MAX_FACTORS], dy[2];
    void *stage;
    cpu_shape *shape[2]; /* of steps, of adjoint steps */
} cpu_gradient_run;

static danaus_dtype sums_of(const cpu_gradient_run *g)
{
    return dn_sum_type(g->steps->p.dtype);
}

static int64_t rows_in(const cpu_gradient_run *g, int step)
{
    return dn_pattern_cols(g->steps[step].p.pattern);
}

static int64_t rows_out(const cpu_gradient_run *g, int step)
{
    return dn_pattern_rows(g->steps[step].p.pattern);
}

/* An operand of the whole product. */
static cpu_view outside(const cpu_gradient_run *g, const void *data, int64_t rows)
{
    return dn_outside(g->steps, data, rows, g->o->batch, 0);
}

/* ---- turning an operand into a panel ---- */

typedef struct load_job {
    const cpu_code *code;
    cpu_view from, to;
    int64_t rows, n;
} load_job;

static range task_rows(int64_t rows, int task)
{
    int64_t from = (int64_t)task * ROWS_PER_TASK;
    return (range){ from, MIN(rows, from + ROWS_PER_TASK) };
}

static void load_rows(void *arg, int task)
{
    const load_job *job = arg;
    job->code->load(&job->from, task_rows(job->rows, task), job->n, &job->to);
}

static void load(
    cpu_gradient_run *g, const void *data, int64_t rows, int64_t s, int64_t n,
    cpu_view to)
{
    cpu_view from = dn_columns_from(outside(g, data, rows), s);
    load_job job = { dn_code_of(g->steps), from, to, rows, n };
    job.to.ld = ROUND_UP(n, COLUMNS_UNIT);
    dn_cpu_parallel(g->dev, (int)CEIL_DIV(rows, ROWS_PER_TASK), load_rows, &job);
}

/* ---- sums over columns: dbias ---- */

typedef struct bias_job {
    cpu_view dy;
    int64_t rows, n;
    void *dbias;
    int add;
} bias_job;

/* Eight running sums in a fixed order; `parts` numbers interleaved in a row. */
static void sum_row(const bias_job *job, int64_t row, int parts)
{
    int wide = job->dy.dtype == DANAUS_F64 || job->dy.dtype == DANAUS_C128;
    int64_t at = row * job->dy.ld * parts, n = job->n * parts;
    double sum[8] = { 0 };
    for (int64_t s = 0; s < n; s++)
        sum[s % 8] += wide ? ((const double *)job->dy.data)[at + s]
                           : (double)((const float *)job->dy.data)[at + s];
    for (int part = 0; part < parts; part++) {
        double total = 0;
        for (int e = part; e < 8; e += parts)
            total += sum[e];
        int64_t to = row * parts + part;
        if (wide)
            ((double *)job->dbias)[to] =
                total + (job->add ? ((double *)job->dbias)[to] : 0);
        else
            ((float *)job->dbias)[to] =
                (float)(total + (job->add ? (double)((float *)job->dbias)[to] : 0));
    }
}

static void sum_rows(void *arg, int task)
{
    const bias_job *job = arg;
    range rows = task_rows(job->rows, task);
    for (int64_t row = rows.from; row < rows.to; row++)
        sum_row(job, row, dn_is_complex(job->dy.dtype) ? 2 : 1);
}

static void add_bias_gradient(cpu_gradient_run *g, cpu_view dy, int64_t n, int add)
{
    bias_job job = { dy, rows_out(g, g->count - 1), n, g->o->dbias, add };
    dn_cpu_parallel(g->dev, (int)CEIL_DIV(job.rows, ROWS_PER_TASK), sum_rows, &job);
}

/* ---- weight gradients of one step ---- */

typedef struct dw_job {
    const cpu_code *code;
    cpu_dw_part all;
    int64_t blocks, blocks_per_task, rows, row_parts;
} dw_job;

static void dw_task(void *arg, int task)
{
    const dw_job *job = arg;
    cpu_dw_part part = job->all;
    int64_t piece = task % job->row_parts;
    int64_t block = task / job->row_parts * job->blocks_per_task;
    part.block = (range){ block, MIN(job->blocks, block + job->blocks_per_task) };
    part.r = (range){ job->rows * piece / job->row_parts,
                      job->rows * (piece + 1) / job->row_parts };
    job->code->dw(&part);
}

/* Tasks are blocks; a few large blocks are cut into runs of rows. */
static void add_weight_gradient(
    cpu_gradient_run *g, int step, cpu_view dy, int64_t n, int add)
{
    const weights_view *to = &g->o->dw[step];
    danaus_pattern p = g->steps[step].p.pattern;
    dw_job job = {
        .code = dn_code_of(&g->steps[step]),
        .all = { .p = p,
                 .x = g->x[step],
                 .dy = dy,
                 .columns = n,
                 .dw = (void *)(uintptr_t)to->data,
                 .stride = { to->s[0], to->s[1], to->s[2], to->s[3] },
                 .conjugate = to->conjugate,
                 .add = add },
        .blocks = p.a * p.d,
        .rows = p.b,
        .row_parts = p.a * p.d >= MOST_DW_TASKS ? 1 : MIN(p.b, MOST_DW_TASKS),
    };
    job.blocks_per_task = CEIL_DIV(job.blocks, MOST_DW_TASKS);
    int64_t tasks = CEIL_DIV(job.blocks, job.blocks_per_task) * job.row_parts;
    job.all.x.ld = job.all.dy.ld = ROUND_UP(n, COLUMNS_UNIT);
    dn_cpu_parallel(g->dev, (int)tasks, dw_task, &job);
}

/* ---- one slab ---- */

/* y = K x for n columns of a panel x, by step `number` or, back, by its adjoint. */
static void multiply(
    cpu_gradient_run *g, int back, int number, cpu_view x, cpu_view y, int64_t n)
{
    const ks_step *step = back ? &g->adjoint[number] : &g->steps[number];
    const void *const *packed = back ? g->o->packed_adjoint : g->o->packed;
    x.ld = ROUND_UP(n, COLUMNS_UNIT);
    cpu_part all;
    dn_whole(g->dev, step, &g->shape[back][number], packed[number], &x, &y, n, &all);
    dn_run_parts(g->dev, &all, g->stage);
}

static void run_slab(cpu_gradient_run *g, int64_t s, int64_t n)
{
    const ks_gradient_operands *o = g->o;
    int last = g->count - 1;
    int64_t ld = ROUND_UP(n, COLUMNS_UNIT);
    cpu_view dx = outside(g, o->dx, rows_in(g, 0));
    if (g->highest >= 0)
        load(g, o->x, rows_in(g, 0), s, n, g->x[0]);
    for (int i = 0; i < g->highest; i++) {
        cpu_view y = g->x[i + 1];
        y.ld = ld;
        multiply(g, 0, i, g->x[i], y, n);
    }
    load(g, o->dy, rows_out(g, last), s, n, g->dy[last % 2]);
    for (int i = last; i >= g->lowest; i--) {
        cpu_view dy = g->dy[i % 2], back = g->dy[(i + 1) % 2];
        dy.ld = back.ld = ld;
        if (i == last && o->dbias)
            add_bias_gradient(g, dy, n, s > 0);
        if (o->dw && o->dw[i].data)
            add_weight_gradient(g, i, dy, n, s > 0);
        if (i > g->lowest)
            multiply(g, 1, i, dy, back, n);
        else if (i == 0 && o->dx)
            multiply(g, 1, 0, dy, dn_columns_from(dx, s), n);
    }
}

/* ---- scratch ---- */

/* Decides the shapes of all products, for panels as wide as a slab; returns the most scratch
   that a thread needs. */
static size_t choose_shapes(cpu_gradient_run *g)
{
    size_t most = 0;
    cpu_view panel = { .dtype = sums_of(g),
                       .layout = DANAUS_BATCH_LAST,
                       .ld = g->width };
    cpu_view dx = outside(g, g->o->dx, rows_in(g, 0));
    for (int i = 0; i < 2 * g->count; i++) {
        int back = i >= g->count, number = i % g->count;
        const ks_step *step = back ? &g->adjoint[number] : &g->steps[number];
        cpu_shape *shape = &g->shape[back][number];
        const cpu_view *y = i == g->count ? &dx : &panel;
        dn_shape(g->dev, step, &panel, y, MIN(g->width, g->o->batch), shape);
        most = MAX(most, dn_stage_bytes(shape));
    }
    return most;
}

/* Lays panels one after another from `memory`; returns all their bytes. */
static size_t lay_panels(cpu_gradient_run *g, char *memory)
{
    size_t used = 0;
    cpu_view panel = { .dtype = sums_of(g),
                       .layout = DANAUS_BATCH_LAST,
                       .ld = g->width };
    int64_t cell = dn_size_of(panel.dtype), widest = 0;
    for (int i = 0; i < g->count; i++) {
        widest = MAX(widest, MAX(rows_in(g, i), rows_out(g, i)));
        g->x[i] = panel;
        g->x[i].data = memory ? memory + used : NULL;
        if (i <= g->highest)
            used += dn_aligned(rows_in(g, i) * g->width * cell);
    }
    for (int i = 0; i < 2; i++) {
        g->dy[i] = panel;
        g->dy[i].data = memory ? memory + used : NULL;
        used += dn_aligned(widest * g->width * cell);
    }
    return used;
}

/* ---- sums that are rounded ---- */

/* Sums of gradients that have another type: where they are made, in scratch. */
typedef struct rounded_sums {
    const ks_gradient_operands *o; /* what was asked */
    ks_gradient_operands made;
    weights_view dw[DANAUS_MAX_FACTORS];
} rounded_sums;

/* Lays sums one after another from `memory`; returns all their bytes. */
static size_t lay_sums(const cpu_gradient_run *g, rounded_sums *r, char *memory)
{
    size_t used = 0, cell = danaus_dtype_size(sums_of(g));
    r->made = *r->o;
    if (!r->o->rounded)
        return 0;
    for (int i = 0; r->o->dw && i < g->count; i++) {
        r->dw[i] = r->o->dw[i];
        if (r->dw[i].data) {
            r->dw[i].data = memory ? memory + used : r->dw[i].data;
            used +=
                dn_aligned(dn_pattern_weights(g->steps[i].p.pattern) * (int64_t)cell);
        }
    }
    r->made.dw = r->o->dw ? r->dw : NULL;
    if (r->o->dbias) {
        r->made.dbias = memory ? memory + used : r->o->dbias;
        used += dn_aligned(rows_out(g, g->count - 1) * (int64_t)cell);
    }
    return used;
}

static void round_sums(const cpu_gradient_run *g, const rounded_sums *r)
{
    danaus_dtype type = g->steps->p.dtype;
    if (!r->o->rounded)
        return;
    for (int i = 0; r->o->dw && i < g->count; i++)
        if (r->dw[i].data)
            dn_convert(
                sums_of(g), r->dw[i].data, type, (void *)(uintptr_t)r->o->dw[i].data,
                dn_pattern_weights(g->steps[i].p.pattern));
    if (r->o->dbias)
        dn_convert(
            sums_of(g), r->made.dbias, type, r->o->dbias, rows_out(g, g->count - 1));
}

danaus_status dn_cpu_ks_gradient(
    danaus_device *dev, const ks_step *steps, const ks_step *adjoint, int count,
    const ks_gradient_operands *o)
{
    rounded_sums rounded = { .o = o };
    cpu_shape there[DANAUS_MAX_FACTORS], back[DANAUS_MAX_FACTORS];
    cpu_gradient_run g = {
        .dev = (cpu_device *)dev,
        .steps = steps,
        .adjoint = adjoint,
        .count = count,
        .o = o,
        .shape = { there, back },
        .lowest = o->dx ? 0 : count,
        .highest = -1,
        .width = MIN(SLAB, ROUND_UP(o->batch, COLUMNS_UNIT)),
    };
    for (int i = 0; o->dw && i < count; i++)
        if (o->dw[i].data) {
            g.lowest = MIN(g.lowest, i);
            g.highest = i;
        }
    if (o->dbias)
        g.lowest = MIN(g.lowest, count - 1);
    if (g.lowest == count)
        return DANAUS_OK;
    size_t panels = lay_panels(&g, NULL), sums = lay_sums(&g, &rounded, NULL);
    size_t stage = choose_shapes(&g) * (size_t)g.dev->threads;
    void *scratch;
    TRY(dn_cpu_scratch(g.dev, panels + sums + stage, &scratch));
    lay_panels(&g, scratch);
    lay_sums(&g, &rounded, (char *)scratch + panels);
    g.o = &rounded.made;
    g.stage = (char *)scratch + panels + sums;
    for (int64_t s = 0; s < o->batch; s += SLAB)
        run_slab(&g, s, MIN(SLAB, o->batch - s));
    round_sums(&g, &rounded);
    return DANAUS_OK;
}
