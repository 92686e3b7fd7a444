/* Plans of operators: a plan for each chain, and the orders in the device's memory. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/operator_plan.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "base/text.h"
#include "math/pattern.h"
#include "product/ks_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Columns of a slab at most: 240 were best of 48 to 336, or near it, for sums of Monarch chains
   of 2,048 and cosine transforms of 4,096. */
#define MOST_SLAB (5 * OPERATOR_SLAB_UNIT)

/* ---- orders ---- */

/* So many places in the device's memory. */
static danaus_status upload(
    danaus_operator_plan *plan, const int64_t *places, int64_t count, void **to)
{
    const backend *b = plan->device->backend;
    size_t bytes = (size_t)MAX(count, 1) * sizeof *places;
    TRY(b->alloc(plan->device, bytes, to));
    return danaus_upload(plan->device, *to, places, (size_t)count * sizeof *places);
}

/* True if some row has no place. */
static int has_gaps(const int64_t *places, int64_t count)
{
    int64_t p = 0;
    while (p < count && places[p] >= 0)
        p++;
    return p < count;
}

/* For an order whose numbers come from one place each. */
static danaus_status put_places(
    danaus_operator_plan *plan, const int64_t *places, operator_order *to)
{
    to->gaps = has_gaps(places, to->rows);
    return upload(plan, places, to->rows, &to->place);
}

static danaus_status take_order(
    danaus_operator_plan *plan, const danaus_operator *o, int i, operator_order *to)
{
    *to = (operator_order){ .rows = o->lengths[i],
                            .sources = o->sources[i],
                            .natural = dn_operator_natural(o, i) };
    if (to->natural)
        return DANAUS_OK;
    return put_places(plan, o->orders[i], to);
}

/* For each source of an order the places that it goes to. */
static void turn_order(
    const int64_t *order, int64_t length, int64_t sources, int64_t *start,
    int64_t *place)
{
    memset(start, 0, (size_t)(sources + 1) * sizeof *start);
    for (int64_t p = 0; p < length; p++)
        if (order[p] >= 0)
            start[order[p] + 1]++;
    for (int64_t x = 0; x < sources; x++)
        start[x + 1] += start[x];
    for (int64_t p = 0; p < length; p++)
        if (order[p] >= 0)
            place[start[order[p]]++] = p;
    for (int64_t x = sources; x > 0; x--) /* each has moved to its end */
        start[x] = start[x - 1];
    start[0] = 0;
}

/* Finds the place of each source, for sources that go to at most one place. The array is read
   below the places that are written. */
static void single_places(const int64_t *start, int64_t sources, int64_t *place)
{
    for (int64_t x = sources - 1; x >= 0; x--)
        place[x] = start[x] < start[x + 1] ? place[start[x]] : -1;
}

static danaus_status take_turned(
    danaus_operator_plan *plan, const danaus_operator *o, int i, operator_order *to)
{
    int64_t length = o->lengths[i], sources = o->sources[i], room;
    *to = (operator_order){ .rows = sources,
                            .sources = length,
                            .natural = dn_operator_natural(o, i) };
    if (to->natural)
        return DANAUS_OK;
    room = MAX(length, sources);
    int64_t *start = dn_alloc((size_t)(sources + 1) * sizeof *start);
    int64_t *place = dn_alloc((size_t)room * sizeof *place);
    danaus_status status =
        start && place ? DANAUS_OK
                       : dn_fail_memory((size_t)room * sizeof *place, "an order");
    if (status == DANAUS_OK)
        turn_order(o->orders[i], length, sources, start, place);
    if (status == DANAUS_OK && o->repeats[i]) {
        status = upload(plan, start, sources + 1, &to->start);
        if (status == DANAUS_OK)
            status = upload(plan, place, length, &to->place);
    } else if (status == DANAUS_OK) {
        single_places(start, sources, place);
        status = put_places(plan, place, to);
    }
    dn_free(start);
    dn_free(place);
    return status;
}

/* An order and its transpose, which change places for adjoints. */
static danaus_status take_both(
    danaus_operator_plan *plan, const danaus_operator *o, int i, operator_order *there,
    operator_order *back)
{
    int adjoint = plan->desc.adjoint;
    TRY(take_order(plan, o, i, adjoint ? back : there));
    return take_turned(plan, o, i, adjoint ? there : back);
}

static void free_order(danaus_operator_plan *plan, operator_order *o)
{
    plan->device->backend->free(plan->device, o->start);
    plan->device->backend->free(plan->device, o->place);
}

/* ---- stages ---- */

/* Which orders around a chain of a term its steps can do. Each number must come from one place,
   in the layout of the plan's inside. An order of y must write all numbers, and not add to
   them. */
static int orders_of(
    const danaus_operator_plan *plan, const operator_term *term,
    const operator_stage *stage, int is_first, int is_last)
{
    const operator_order *before = &stage->before, *after = &term->after;
    int outside = plan->inside == plan->desc.layout, orders = 0;
    if (!before->natural && !before->start && (outside || !is_first))
        orders |= DN_READS;
    if (is_last && outside && term == plan->term && !stage->passing &&
        !after->natural && !after->start && !after->gaps && !term->back.start)
        orders |= DN_WRITES;
    return orders;
}

static danaus_status plan_chain(
    danaus_operator_plan *plan, const danaus_chain *chain, operator_stage *stage,
    int orders)
{
    danaus_ks_desc desc = plan->desc;
    desc.layout = plan->inside;
    desc.activation = DANAUS_ACTIVATION_NONE;
    desc.bias = 0;
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    for (int l = 0; l < stage->factors; l++)
        patterns[l] = danaus_chain_pattern(chain, l);
    TRY(dn_ks_plan_create(
        plan->device, patterns, stage->factors, &desc, orders, &stage->plan));
    stage->orders = dn_ks_orders(stage->plan);
    return danaus_ks_weights_create(stage->plan, plan->device, chain, &stage->weights);
}

/* Counts the factors of the first chains of a term. */
static int factors_of(const danaus_operator *o, int chains)
{
    int sum = 0;
    for (int i = 0; i < chains; i++)
        sum += danaus_chain_count(o->chains[i]);
    return sum;
}

/* Chain i of a term, the n-th that runs; `first` is its first factor's number. */
static danaus_status take_chain(
    danaus_operator_plan *plan, const danaus_operator *o, const operator_term *term,
    int n, int first)
{
    int adjoint = plan->desc.adjoint, i = adjoint ? n : o->count - 1 - n;
    operator_stage *stage = &plan->stage[plan->stages++];
    const danaus_chain *chain = o->chains[i];
    int64_t rows = danaus_chain_rows(chain), cols = danaus_chain_cols(chain);
    stage->takes = adjoint ? rows : cols;
    stage->gives = adjoint ? cols : rows;
    stage->passing = dn_operator_passing(o, i);
    stage->first = first + factors_of(o, i);
    stage->factors = danaus_chain_count(chain);
    TRY(take_both(plan, o, adjoint ? i : i + 1, &stage->before, &stage->back));
    return plan_chain(
        plan, chain, stage, orders_of(plan, term, stage, n == 0, n + 1 == o->count));
}

static danaus_status take_term(
    danaus_operator_plan *plan, const danaus_operator *o, int first)
{
    operator_term *term = &plan->term[plan->terms++];
    int adjoint = plan->desc.adjoint;
    term->from = term->to = plan->stages;
    TRY(take_both(plan, o, adjoint ? o->count : 0, &term->after, &term->back));
    for (int n = 0; n < o->count; n++, term->to++)
        TRY(take_chain(plan, o, term, n, first));
    return DANAUS_OK;
}

static danaus_status take_terms(danaus_operator_plan *plan, const danaus_operator *made)
{
    int first = 0;
    for (int i = 0; i < danaus_operator_terms(made); i++) {
        const danaus_operator *term = danaus_operator_term(made, i);
        TRY(take_term(plan, term, first));
        first += factors_of(term, term->count);
    }
    return DANAUS_OK;
}

/* ---- shapes ---- */

/* If numbers pass by chains, everything between stages is batch-last: in this layout the input
   of a chain is the first part of the array. */
static void look_at(danaus_operator_plan *plan, const danaus_operator *made)
{
    int passing = 0;
    plan->inside = plan->desc.layout;
    for (int i = 0; i < danaus_operator_terms(made); i++) {
        const danaus_operator *o = danaus_operator_term(made, i);
        for (int n = 0; n <= o->count; n++)
            plan->widest = MAX(plan->widest, MAX(o->lengths[n], o->sources[n]));
        for (int n = 0; n < o->count; n++)
            passing |= dn_operator_passing(o, n) > 0;
    }
    if (passing)
        plan->inside = DANAUS_BATCH_LAST;
}

/* Three vectors for each column, in a thread's share of the last cache. */
static danaus_status choose_slab(danaus_operator_plan *plan)
{
    danaus_device_info info;
    if (plan->plain || !plan->device->backend->threads)
        return DANAUS_OK;
    TRY(danaus_device_describe(plan->device, &info));
    int64_t column = 3 * plan->widest * dn_size_of(plan->desc.dtype);
    int64_t fitting = info.cache / MAX(1, info.threads) / column;
    fitting = fitting / OPERATOR_SLAB_UNIT * OPERATOR_SLAB_UNIT;
    plan->slab = CLAMP(fitting, OPERATOR_SLAB_UNIT, MOST_SLAB);
    return DANAUS_OK;
}

/* ---- bias ---- */

static danaus_status put_bias(
    danaus_operator_plan *plan, danaus_device *device, danaus_dtype dtype,
    const void *bias, int on_device)
{
    danaus_dtype type = plan->desc.dtype, sums = dn_sum_type(type);
    const backend *b = device->backend;
    if (!plan->bias)
        TRY(b->alloc(
            plan->device, (size_t)(plan->gives * dn_size_of(sums)), &plan->bias));
    if (!on_device || !b->pack)
        return dn_put_numbers(device, dtype, bias, sums, plan->bias, plan->gives);
    pack_job job = { .from_type = dtype,
                     .to_type = sums,
                     .count = plan->gives,
                     .w = { bias },
                     .scale = 1,
                     .to = plan->bias };
    TRY(b->pack->prepare(device, type, 0));
    return b->pack->pack(device, type, &job, 1);
}

/* Sums over columns are what a plan of any factor gives as gradients of its bias. */
static danaus_status plan_end(danaus_operator_plan *plan)
{
    danaus_pattern one = { plan->gives, 1, 1, 1 };
    danaus_ks_desc desc = { .layout = plan->desc.layout,
                            .dtype = plan->desc.dtype,
                            .batch = plan->desc.batch,
                            .gradients = 1 };
    TRY(danaus_ks_plan_create(plan->device, &one, 1, &desc, &plan->end));
    return danaus_ks_weights_create(plan->end, plan->device, NULL, &plan->end_weights);
}

/* ---- making ---- */

static danaus_status fill(danaus_operator_plan *plan, const danaus_operator *made)
{
    plan->plain = dn_operator_is_chain(made);
    look_at(plan, made);
    TRY(choose_slab(plan));
    TRY(take_terms(plan, made));
    if (made->bias && !plan->desc.adjoint)
        TRY(put_bias(plan, plan->device, made->dtype, made->bias, 0));
    return plan->desc.gradients && !plan->desc.adjoint ? plan_end(plan) : DANAUS_OK;
}

danaus_status danaus_operator_plan_create(
    danaus_device *device, const danaus_operator *made, const danaus_ks_desc *desc,
    danaus_operator_plan **plan)
{
    danaus_ks_desc d = desc ? *desc : (danaus_ks_desc){ 0 };
    if (!device || !made || !plan)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a device, an operator and a place are needed");
    if (!d.dtype)
        d.dtype = made->dtype;
    TRY(dn_check_desc(&d));
    if (d.residual || d.gated || (d.scale != 0 && d.scale != 1))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "plans of operators have neither scale nor residual nor gates");
    danaus_operator_plan *p = dn_calloc(1, sizeof *p);
    if (!p)
        return dn_fail_memory(sizeof *p, "a plan");
    snprintf(p->place, sizeof p->place, "%s", device->name);
    p->device = device;
    p->desc = d;
    int64_t rows = danaus_operator_rows(made), cols = danaus_operator_cols(made);
    p->takes = d.adjoint ? rows : cols;
    p->gives = d.adjoint ? cols : rows;
    danaus_status status = fill(p, made);
    if (status == DANAUS_OK)
        *plan = p;
    else
        danaus_operator_plan_destroy(p);
    return status;
}

static void free_stage(danaus_operator_plan *plan, operator_stage *stage)
{
    danaus_ks_weights_destroy(stage->weights);
    danaus_ks_plan_destroy(stage->plan);
    free_order(plan, &stage->before);
    free_order(plan, &stage->back);
}

void danaus_operator_plan_destroy(danaus_operator_plan *plan)
{
    if (!plan)
        return;
    const backend *b = plan->device->backend;
    for (int i = 0; i < plan->stages; i++)
        free_stage(plan, &plan->stage[i]);
    for (int i = 0; i < plan->terms; i++) {
        free_order(plan, &plan->term[i].after);
        free_order(plan, &plan->term[i].back);
    }
    danaus_ks_weights_destroy(plan->end_weights);
    danaus_ks_plan_destroy(plan->end);
    for (int i = 0; i < plan->helper_count; i++)
        danaus_device_close(plan->helpers[i]);
    dn_free(plan->helpers);
    b->free(plan->device, plan->bias);
    b->free(plan->device, plan->work);
    dn_free(plan);
}

danaus_status dn_operator_work(danaus_operator_plan *plan, size_t bytes, char **memory)
{
    danaus_device *d = plan->device;
    if (bytes > plan->work_bytes) {
        TRY(d->backend->sync(d)); /* the old one may be in use */
        d->backend->free(d, plan->work);
        plan->work = NULL;
        plan->work_bytes = 0;
        TRY(d->backend->alloc(d, bytes, &plan->work));
        plan->work_bytes = bytes;
    }
    *memory = plan->work;
    return DANAUS_OK;
}

/* ---- packing again, and what will run ---- */

danaus_status danaus_operator_plan_update(
    danaus_operator_plan *plan, danaus_device *device, danaus_dtype dtype,
    const void *const *w, const void *bias)
{
    if (!plan || !device)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan and a device are needed");
    TRY(dn_check_place(device, plan->place));
    if (!dn_is_computed(dtype) ||
        dn_is_complex(dtype) != dn_is_complex(plan->desc.dtype))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "numbers of type %d for a plan of %s", (int)dtype,
            danaus_dtype_name(plan->desc.dtype));
    for (int i = 0; i < plan->stages && w; i++)
        TRY(danaus_ks_weights_update_from(
            plan->stage[i].weights, device, dtype, w + plan->stage[i].first, NULL));
    return bias && !plan->desc.adjoint ? put_bias(plan, device, dtype, bias, 1)
                                       : DANAUS_OK;
}

static void describe_order(text *t, const operator_order *o)
{
    if (!o->natural)
        dn_text(t, "order: %" PRId64 " of %" PRId64 " numbers\n", o->rows, o->sources);
}

size_t danaus_operator_plan_describe(
    const danaus_operator_plan *plan, char *to, size_t size)
{
    text t = { to, to ? size : 0, 0 };
    if (t.size)
        *to = '\0';
    for (int i = 0; plan && i < plan->terms; i++) {
        const operator_term *term = &plan->term[i];
        if (plan->terms > 1)
            dn_text(&t, "term %d:\n", i);
        for (int n = term->from; n < term->to; n++) {
            char steps[8192];
            describe_order(&t, &plan->stage[n].before);
            danaus_ks_plan_describe(plan->stage[n].plan, steps, sizeof steps);
            dn_text(&t, "%s", steps);
        }
        describe_order(&t, &term->after);
    }
    return t.length;
}

double danaus_operator_plan_seconds(const danaus_operator_plan *plan)
{
    double seconds = 0;
    for (int i = 0; plan && i < plan->stages; i++)
        seconds += danaus_ks_plan_seconds(plan->stage[i].plan);
    return seconds;
}
