/* Products with a plan of an operator, and their gradients.

   A slab of columns passes through all orders and chains of a term, then of the next term, whose
   results are added to y. On a CPU each thread takes a slab with its own device, and
   intermediate results stay in its cache. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/operator_plan.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "product/ks_plan.h"

#include <inttypes.h>
#include <stdatomic.h>

#define VECTOR 16 /* columns that are a whole vector of any type */

/* A product with some columns, and its memory. */
typedef struct run {
    const danaus_operator_plan *plan;
    danaus_device *device;
    int64_t columns;
    int64_t size;    /* of an element */
    char *buffer[2]; /* for numbers between stages, `widest` of each column */
} run;

/* A view of data with `rows` numbers of each column, without gaps. */
static number_view inside(const run *r, char *data, int64_t rows)
{
    if (r->plan->inside == DANAUS_BATCH_LAST)
        return (number_view){ data, r->columns, 1 };
    return (number_view){ data, 1, rows };
}

/* Columns from s of x or y, of `batch`. */
static number_view outside(
    const danaus_operator_plan *plan, const void *data, int64_t rows, int64_t batch,
    int64_t s)
{
    int last = plan->desc.layout == DANAUS_BATCH_LAST;
    number_view v = { NULL, last ? batch : 1, last ? 1 : rows };
    v.data = (char *)(uintptr_t)data + s * v.across * dn_size_of(plan->desc.dtype);
    return v;
}

/* True if chains can read and write numbers of this layout. */
static int fits(const run *r, const number_view *v, int64_t rows)
{
    if (r->plan->inside == DANAUS_BATCH_LAST)
        return v->across == 1;
    return v->next == 1 && v->across == rows;
}

static danaus_status pick(
    const run *r, const operator_order *o, number_view from, number_view to, int add)
{
    pick_job job = { .dtype = r->plan->desc.dtype,
                     .rows = o->rows,
                     .columns = r->columns,
                     .start = o->start,
                     .place = o->place,
                     .from = from,
                     .to = to,
                     .add = add };
    return r->device->backend->pick(r->device, &job);
}

/* The buffer that does not hold v. */
static char *other(const run *r, const number_view *v)
{
    return r->buffer[v->data == r->buffer[0]];
}

/* Numbers in an order, where they lie if that will do, else in a buffer. */
static danaus_status bring(
    const run *r, const operator_order *o, number_view from, number_view *to)
{
    *to = from;
    if (o->natural && fits(r, &from, o->rows))
        return DANAUS_OK;
    *to = inside(r, other(r, &from), o->rows);
    return pick(r, o, from, *to, 0);
}

/* Copies the numbers that pass by a stage from behind its inputs to behind its outputs, in an
   order unless that is NULL. */
static danaus_status pass_by(
    const run *r, int64_t passing, const int64_t *order, number_view from,
    int64_t takes, number_view to, int64_t gives)
{
    operator_order all = { .rows = passing };
    if (!passing)
        return DANAUS_OK;
    if (order)
        all.place = (void *)(uintptr_t)(order + takes);
    else
        from.data = (char *)from.data + takes * from.next * r->size;
    to.data = (char *)to.data + gives * to.next * r->size;
    return pick(r, &all, from, to, 0);
}

/* The distance from one row to the next of these columns among others. */
static int64_t row_step(const run *r, const number_view *v)
{
    return r->plan->inside == DANAUS_BATCH_LAST ? v->next : 0;
}

/* The order before a stage, if its plan does that. */
static const int64_t *order_read(const operator_stage *stage)
{
    return stage->orders & DN_READS ? stage->before.place : NULL;
}

static danaus_status multiply(
    const run *r, const operator_stage *stage, number_view x, number_view y,
    ks_operands o)
{
    o.batch = r->columns;
    o.x = x.data;
    o.y = y.data;
    o.x_ld = row_step(r, &x);
    o.y_ld = row_step(r, &y);
    o.x_order = order_read(stage);
    o.x_rows = stage->before.sources;
    return dn_ks_run(stage->plan, r->device, stage->weights, o);
}

/* A chain and what passes by it, to a buffer. */
static danaus_status run_chain(
    const run *r, const operator_stage *stage, number_view x, number_view *y)
{
    *y = inside(r, other(r, &x), stage->gives + stage->passing);
    TRY(multiply(r, stage, x, *y, (ks_operands){ .kept = 1 }));
    return pass_by(
        r, stage->passing, order_read(stage), x, stage->takes, *y, stage->gives);
}

/* How a term comes to y: by its last chain, or by an order. */
typedef struct term_end {
    int add;              /* to what y holds */
    int last;             /* bias and activation follow */
    int by_chain, whole;  /* the chain comes to y itself, and makes these too */
    const int64_t *order; /* in which it writes y, or NULL */
} term_end;

static term_end end_of(const run *r, int number, const number_view *y)
{
    const danaus_operator_plan *plan = r->plan;
    const operator_term *term = &plan->term[number];
    const operator_stage *last = &plan->stage[term->to - 1];
    int on_host = r->device->backend->on_host;
    danaus_activation ending =
        number + 1 == plan->terms ? plan->desc.activation : DANAUS_ACTIVATION_NONE;
    term_end e = { .add = number > 0, .last = number + 1 == plan->terms };
    e.order = last->orders & DN_WRITES ? term->back.place : NULL;
    e.by_chain =
        e.order || (term->after.natural && !last->passing && fits(r, y, plan->gives) &&
                    (!e.add || dn_ks_adds(last->plan, r->device, ending)));
    e.whole = e.by_chain && on_host;
    return e;
}

/* Applies bias and activation to y. */
static danaus_status finish(const run *r, number_view y)
{
    const danaus_operator_plan *plan = r->plan;
    pick_job job = { .dtype = plan->desc.dtype,
                     .rows = plan->gives,
                     .columns = r->columns,
                     .from = y,
                     .to = y,
                     .bias = plan->bias,
                     .activation = plan->desc.activation };
    return plan->bias || plan->desc.activation
               ? r->device->backend->pick(r->device, &job)
               : DANAUS_OK;
}

/* y = T x of one term, or y += T x. */
static danaus_status run_term(const run *r, int number, number_view x, number_view y)
{
    const danaus_operator_plan *plan = r->plan;
    const operator_term *term = &plan->term[number];
    term_end e = end_of(r, number, &y);
    ks_operands o = {
        .add = e.add, .kept = !e.last, .y_order = e.order, .y_rows = plan->gives
    };
    if (e.whole && e.last) {
        o.bias = plan->bias;
        o.activation = plan->desc.activation;
    }
    for (int n = term->from; n < term->to; n++) {
        const operator_stage *stage = &plan->stage[n];
        if (!order_read(stage))
            TRY(bring(r, &stage->before, x, &x));
        if (e.by_chain && n + 1 == term->to)
            TRY(multiply(r, stage, x, y, o));
        else
            TRY(run_chain(r, stage, x, &x));
    }
    if (!e.by_chain)
        TRY(pick(r, &term->after, x, y, e.add));
    return e.last && !e.whole ? finish(r, y) : DANAUS_OK;
}

static danaus_status run_terms(const run *r, number_view x, number_view y)
{
    for (int i = 0; i < r->plan->terms; i++)
        TRY(run_term(r, i, x, y));
    return DANAUS_OK;
}

/* ---- slabs ---- */

typedef struct slabs {
    danaus_operator_plan *plan;
    const void *x;
    void *y;
    int64_t batch, columns; /* of a slab */
    char *memory;
    size_t bytes, buffer; /* of a thread, and of each of its two buffers */
    atomic_int next, status;
} slabs;

static danaus_status run_slab(slabs *w, danaus_device *device, char *memory, int64_t s)
{
    danaus_operator_plan *plan = w->plan;
    run r = { .plan = plan,
              .device = device,
              .columns = MIN(w->columns, w->batch - s),
              .size = dn_size_of(plan->desc.dtype),
              .buffer = { memory, memory + w->buffer } };
    number_view x = outside(plan, w->x, plan->takes, w->batch, s),
                y = outside(plan, w->y, plan->gives, w->batch, s);
    return run_terms(&r, x, y);
}

/* A thread's slabs. */
static void take_slabs(void *arg, int slot)
{
    slabs *w = arg;
    char *memory = w->memory + (size_t)slot * w->bytes;
    for (;;) {
        int64_t s = (int64_t)atomic_fetch_add(&w->next, 1) * w->columns;
        if (s >= w->batch)
            return;
        danaus_status status = run_slab(w, w->plan->helpers[slot], memory, s);
        if (status != DANAUS_OK)
            atomic_store(&w->status, (int)status);
    }
}

/* Devices of one thread each. */
static danaus_status open_helpers(danaus_operator_plan *plan, int count)
{
    if (plan->helper_count >= count)
        return DANAUS_OK;
    danaus_device **all = dn_calloc((size_t)count, sizeof(danaus_device *));
    if (!all)
        return dn_fail_memory((size_t)count * sizeof *all, "devices of threads");
    for (int i = 0; i < plan->helper_count; i++)
        all[i] = plan->helpers[i];
    dn_free(plan->helpers);
    plan->helpers = all;
    for (; plan->helper_count < count; plan->helper_count++) {
        danaus_device **own = &all[plan->helper_count];
        TRY(danaus_device_open(plan->place, own));
        (*own)->backend->set_threads(*own, 1);
    }
    return DANAUS_OK;
}

/* Slabs for every thread, or all columns at once. */
static danaus_status run_slabs(slabs *w, danaus_device *device, int threads)
{
    danaus_operator_plan *plan = w->plan;
    if (threads == 0) {
        TRY(dn_operator_work(plan, w->bytes, &w->memory));
        return run_slab(w, device, w->memory, 0);
    }
    TRY(open_helpers(plan, threads));
    TRY(dn_operator_work(plan, (size_t)threads * w->bytes, &w->memory));
    atomic_init(&w->next, 0);
    atomic_init(&w->status, DANAUS_OK);
    if (threads == 1)
        take_slabs(w, 0);
    else
        device->backend->parallel(device, threads, take_slabs, w);
    return atomic_load(&w->status) == DANAUS_OK
               ? DANAUS_OK
               : dn_fail(
                     (danaus_status)atomic_load(&w->status),
                     "a thread had no memory for its slab");
}

/* Bytes of `count` vectors of so many numbers for each column. */
static danaus_status bytes_of(
    const danaus_operator_plan *plan, int64_t numbers, int64_t columns, size_t *bytes)
{
    int64_t all;
    if (dn_mul_overflows(numbers, columns, &all) ||
        dn_mul_overflows(all, dn_size_of(plan->desc.dtype), &all) ||
        all > INT64_MAX / 8)
        return dn_fail(DANAUS_ERR_SHAPE, "a batch of %" PRId64, columns);
    *bytes = dn_aligned(all);
    return DANAUS_OK;
}

static danaus_status check(
    const danaus_operator_plan *plan, danaus_device *device, int64_t batch,
    const void *x, const void *y)
{
    size_t bytes;
    if (!plan || !device || (batch && (!x || !y)))
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan, a device, x and y are needed");
    TRY(dn_check_place(device, plan->place));
    if (batch < 0)
        return dn_fail(DANAUS_ERR_SHAPE, "a batch of %" PRId64, batch);
    return bytes_of(plan, MAX(plan->widest, 1), batch, &bytes);
}

danaus_status danaus_operator_execute(
    danaus_operator_plan *plan, danaus_device *device, int64_t batch, const void *x,
    void *y)
{
    TRY(check(plan, device, batch, x, y));
    if (!batch)
        return DANAUS_OK;
    slabs w = { .plan = plan, .x = x, .y = y, .batch = batch, .columns = batch };
    int threads = 0;
    int most = plan->slab ? device->backend->threads(device) : 0;
    if (most && batch > OPERATOR_SLAB_UNIT * most) {
        int64_t count = ROUND_UP(CEIL_DIV(batch, plan->slab), most);
        w.columns = ROUND_UP(CEIL_DIV(batch, count), VECTOR);
        threads = (int)MIN(most, CEIL_DIV(batch, w.columns));
    }
    TRY(bytes_of(plan, plan->plain ? 0 : plan->widest, w.columns, &w.buffer));
    w.bytes = 2 * w.buffer;
    return run_slabs(&w, device, threads);
}

/* ---- gradients ---- */

/* The arrays of one term: what each of its chains took. */
typedef struct back_run {
    run r;
    const danaus_ks_gradients *g;
    number_view x[DANAUS_MAX_FACTORS]; /* of stages of this term */
    char *memory;                      /* for these */
} back_run;

/* Runs forward until each chain has its inputs. */
static danaus_status keep_inputs(back_run *b, const operator_term *term, number_view x)
{
    const run *r = &b->r;
    char *memory = b->memory;
    for (int n = term->from; n < term->to; n++) {
        const operator_stage *stage = &r->plan->stage[n];
        number_view own = inside(r, memory, stage->before.rows);
        memory += dn_aligned(stage->before.rows * r->columns * r->size);
        b->x[n - term->from] = own;
        TRY(pick(r, &stage->before, x, own, 0));
        if (n + 1 == term->to)
            break;
        TRY(run_chain(r, stage, own, &x));
    }
    return DANAUS_OK;
}

/* Weight gradients of a chain, and *dx for all that came to it, if `on`. */
static danaus_status back_stage(
    const back_run *b, const operator_stage *stage, number_view x, number_view dy,
    int on, number_view *dx)
{
    const run *r = &b->r;
    *dx = inside(r, other(r, &dy), stage->before.rows);
    danaus_ks_gradients g = { .dx = on ? dx->data : NULL,
                              .dw = b->g->dw ? b->g->dw + stage->first : NULL,
                              .rounded = b->g->rounded };
    const void *kept = g.dw ? x.data : dy.data; /* is looked at for dw alone */
    TRY(danaus_ks_gradient(
        stage->plan, r->device, stage->weights, r->columns, kept, dy.data, &g));
    return on ? pass_by(r, stage->passing, NULL, dy, stage->gives, *dx, stage->takes)
              : DANAUS_OK;
}

static danaus_status back_term(
    back_run *b, const operator_term *term, number_view x, number_view dy, int add)
{
    const run *r = &b->r;
    const operator_order *order = &term->back;
    if (b->g->dw)
        TRY(keep_inputs(b, term, x));
    for (int n = term->to - 1; n >= term->from; n--) {
        const operator_stage *stage = &r->plan->stage[n];
        int on = n > term->from || b->g->dx;
        TRY(bring(r, order, dy, &dy));
        TRY(back_stage(b, stage, b->x[n - term->from], dy, on, &dy));
        order = &stage->back;
    }
    number_view dx = outside(r->plan, b->g->dx, r->plan->takes, r->columns, 0);
    return b->g->dx ? pick(r, order, dy, dx, add) : DANAUS_OK;
}

/* The most that any one term keeps. */
static int64_t kept_numbers(const danaus_operator_plan *plan)
{
    int64_t most = 0;
    for (int i = 0; i < plan->terms; i++) {
        int64_t sum = 0;
        for (int n = plan->term[i].from; n < plan->term[i].to; n++)
            sum += plan->stage[n].before.rows + DN_ALIGN;
        most = MAX(most, sum);
    }
    return most;
}

static danaus_status check_gradients(
    const danaus_operator_plan *plan, const danaus_ks_gradients *g)
{
    if (!g)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for gradients is needed");
    if (!plan->desc.gradients)
        return dn_fail(DANAUS_ERR_ARGUMENT, "the plan was made without desc.gradients");
    if (plan->desc.adjoint && g->dbias)
        return dn_fail(DANAUS_ERR_ARGUMENT, "an adjoint product has no bias");
    return dn_check_reserved(g->reserved, sizeof g->reserved);
}

danaus_status danaus_operator_gradient(
    danaus_operator_plan *plan, danaus_device *device, int64_t batch, const void *x,
    const void *dy, const danaus_ks_gradients *gradients)
{
    TRY(check(plan, device, batch, x, dy));
    TRY(check_gradients(plan, gradients));
    size_t buffer = 0, kept = 0;
    back_run b = { .r = { .plan = plan,
                          .device = device,
                          .columns = batch,
                          .size = dn_size_of(plan->desc.dtype) },
                   .g = gradients };
    TRY(bytes_of(plan, plan->widest, batch, &buffer));
    TRY(bytes_of(plan, gradients->dw ? kept_numbers(plan) : 0, batch, &kept));
    TRY(dn_operator_work(plan, 2 * buffer + kept, &b.memory));
    b.r.buffer[0] = b.memory + kept;
    b.r.buffer[1] = b.memory + kept + buffer;
    danaus_ks_gradients g = { .dbias = gradients->dbias,
                              .rounded = gradients->rounded };
    if (g.dbias)
        TRY(danaus_ks_gradient(
            plan->end, device, plan->end_weights, batch, dy, dy, &g));
    for (int i = 0; i < plan->terms; i++)
        TRY(back_term(
            &b, &plan->term[i], outside(plan, x, plan->takes, batch, 0),
            outside(plan, dy, plan->gives, batch, 0), i > 0));
    return DANAUS_OK;
}
