/* Packing a chain for a plan: merged factors multiplied out, every step's
   weights in its kernel's order, in device memory. The numbers come from the host;
   ks_gather.c packs numbers in the memory of another device. */
// SPDX-License-Identifier: Apache-2.0
#include "product/ks_plan.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"
#include "product/chain.h"
#include "product/patterns.h"

static danaus_status check_type(const danaus_ks_plan *plan, danaus_dtype dtype)
{
    TRY(dn_check_computed(dtype));
    if (dn_is_complex(plan->desc.dtype) != dn_is_complex(dtype))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "the plan's type is %s, the weights' %s",
            danaus_dtype_name(plan->desc.dtype), danaus_dtype_name(dtype));
    return DANAUS_OK;
}

static danaus_status check_chain(const danaus_ks_plan *plan, const danaus_chain *chain)
{
    if (chain->count != plan->count)
        return dn_fail(
            DANAUS_ERR_SHAPE, "the plan has %d factors, the chain %d", plan->count,
            chain->count);
    for (int i = 0; i < plan->count; i++)
        if (!dn_pattern_equal(plan->patterns[i], chain->patterns[i]))
            return dn_fail(
                DANAUS_ERR_SHAPE,
                "factor %d of the chain has another pattern than the plan", i);
    return check_type(plan, chain->dtype);
}

void danaus_ks_weights_destroy(danaus_ks_weights *weights)
{
    if (!weights)
        return;
    dn_release_weights(weights);
    if (weights->own)
        weights->backend->free(weights->device, weights->own);
    dn_free(weights);
}

/* ---- places of packed weights ---- */

/* Steps of one plan that have a kernel and factors in common differ in hints alone.
   plan->forms: there is none yet. */
static int find_form(const danaus_ks_plan *plan, const packed_form *like)
{
    int i = 0;
    for (; i < plan->forms; i++) {
        const packed_form *f = &plan->form[i];
        if (f->step->kernel == like->step->kernel && f->from == like->from &&
            f->to == like->to && f->adjoint == like->adjoint)
            break;
    }
    return i;
}

/* Appends so many bytes to the block; *at becomes their place. */
static danaus_status append(danaus_ks_plan *plan, size_t bytes, size_t *at)
{
    size_t end = plan->packed_bytes, padded = bytes + (DANAUS_SCRATCH_ALIGN - 1);
    padded -= padded % DANAUS_SCRATCH_ALIGN;
    if (padded < bytes || padded > SIZE_MAX - end)
        return dn_fail_memory(SIZE_MAX, "packed weights");
    *at = end;
    plan->packed_bytes = end + padded;
    return DANAUS_OK;
}

/* Forms of the first `count` steps of a list. */
static danaus_status add_forms(
    danaus_ks_plan *plan, const step_list *list, int count, int adjoint, int *forms)
{
    for (int i = 0; i < count; i++) {
        const ks_step *step = &list->step[i];
        packed_form form = { step, list->from[i], list->to[i], adjoint, 0 };
        forms[i] = find_form(plan, &form);
        if (forms[i] == plan->forms) {
            TRY(append(plan, dn_packed_bytes(step->kernel, &step->p), &form.at));
            plan->form[plan->forms++] = form;
        }
    }
    return DANAUS_OK;
}

/* Gradients run forward steps for the inputs of later ones: never the last. */
danaus_status dn_lay_out_weights(danaus_ks_plan *plan, const danaus_device *device)
{
    const backend *b = device->backend;
    const ks_step *last = &plan->run.step[plan->run.count - 1];
    danaus_dtype type = plan->desc.dtype, wide = dn_sum_type(type);
    int adjoint = plan->desc.adjoint != 0;
    size_t rows = (size_t)dn_pattern_rows(plan->patterns[0]);
    TRY(add_forms(plan, &plan->run, plan->run.count, adjoint, plan->run_form));
    TRY(add_forms(
        plan, &plan->forward, plan->forward.count - 1, adjoint, plan->forward_form));
    TRY(add_forms(plan, &plan->back, plan->back.count, !adjoint, plan->back_form));
    TRY(append(plan, rows * danaus_dtype_size(wide), &plan->bias_at));
    if (type == wide)
        plan->rounded_bias_at = plan->bias_at;
    else if (!adjoint && b->rounds_bias && b->rounds_bias(device, last))
        TRY(append(plan, rows * danaus_dtype_size(type), &plan->rounded_bias_at));
    return DANAUS_OK;
}

static void bind(danaus_ks_weights *w, void *memory)
{
    const danaus_ks_plan *plan = w->plan;
    w->memory = memory;
    for (int i = 0; i < plan->run.count; i++)
        w->run[i] = w->memory + plan->form[plan->run_form[i]].at;
    for (int i = 0; i + 1 < plan->forward.count; i++)
        w->forward[i] = w->memory + plan->form[plan->forward_form[i]].at;
    for (int i = 0; i < plan->back.count; i++)
        w->back[i] = w->memory + plan->form[plan->back_form[i]].at;
}

danaus_status danaus_ks_weights_bytes(const danaus_ks_plan *plan, size_t *bytes)
{
    if (!plan || !bytes)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan and a place are needed");
    *bytes = plan->packed_bytes;
    return DANAUS_OK;
}

static danaus_status check_memory(const danaus_ks_weights *weights, const void *memory)
{
    if (weights->own)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "these weights have memory of their own: make them by "
                                 "danaus_ks_weights_create_unbound()");
    int align = weights->backend->on_host ? DN_ALIGN : DANAUS_SCRATCH_ALIGN;
    if ((uintptr_t)memory % (unsigned)align)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "memory of packed weights is aligned to %d bytes",
            align);
    return DANAUS_OK;
}

danaus_status danaus_ks_weights_bind(
    danaus_ks_weights *weights, void *memory, int has_bias)
{
    if (!weights || !memory)
        return dn_fail(DANAUS_ERR_ARGUMENT, "weights and memory are needed");
    TRY(check_memory(weights, memory));
    bind(weights, memory);
    weights->has_bias = has_bias != 0;
    return DANAUS_OK;
}

danaus_status dn_check_bound(const danaus_ks_weights *weights)
{
    if (!weights->memory)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "these weights have no memory yet: danaus_ks_weights_bind() lends some");
    return DANAUS_OK;
}

/* ---- packing ---- */

static weights_view view_of(const chain_numbers *n, int factor)
{
    return dn_weights_view(n->w[factor], n->dtype, n->patterns[factor]);
}

/* The weights of one factor, or of [from, to) multiplied out, times `scale`. */
static danaus_status pack_product(
    danaus_device *device, const chain_numbers *n, const packed_form *f, double scale,
    void *packed)
{
    double *product = NULL;
    weights_view view = view_of(n, f->from);
    if (f->to - f->from > 1) {
        danaus_dtype wide = dn_is_complex(n->dtype) ? DANAUS_C128 : DANAUS_F64;
        TRY(dn_chain_product(n, f->from, f->to, &product));
        view = dn_weights_view(
            product, wide, dn_patterns_product(n->patterns + f->from, f->to - f->from));
    }
    if (f->adjoint)
        view = dn_weights_adjoint(view);
    view.scale = scale;
    danaus_status status = dn_pack(device, f->step, view, packed);
    dn_free(product);
    return status;
}

/* Packs two factors; the one that is applied last is multiplied by `scale`. */
static danaus_status pack_pair(
    danaus_device *device, const chain_numbers *n, const packed_form *f, double scale,
    void *packed)
{
    weights_view first = view_of(n, f->from + !f->adjoint);
    weights_view last = view_of(n, f->from + f->adjoint);
    if (f->adjoint) {
        first = dn_weights_adjoint(first);
        last = dn_weights_adjoint(last);
    }
    last.scale = scale;
    last.inner = &first;
    return dn_pack(device, f->step, last, packed);
}

/* How many of a form's factors are given. */
static int given(const chain_numbers *n, const packed_form *f)
{
    int count = 0;
    for (int i = f->from; i < f->to; i++)
        count += n->w[i] != NULL;
    return count;
}

static danaus_status pack_forms(
    const danaus_ks_weights *w, danaus_device *device, const chain_numbers *n)
{
    for (int i = 0; i < w->plan->forms; i++) {
        const packed_form *f = &w->plan->form[i];
        if (given(n, f))
            TRY((f->step->p.inner.a ? pack_pair : pack_product)(
                device, n, f, dn_scale_of(w->plan, f), w->memory + f->at));
    }
    const danaus_ks_plan *plan = w->plan;
    danaus_dtype type = plan->desc.dtype;
    int64_t rows = dn_pattern_rows(n->patterns[0]);
    if (n->bias)
        TRY(dn_put_numbers(
            device, n->dtype, n->bias, dn_sum_type(type), w->memory + plan->bias_at,
            rows));
    if (n->bias && dn_rounds_bias(plan))
        TRY(dn_put_numbers(
            device, n->dtype, n->bias, type, w->memory + plan->rounded_bias_at, rows));
    return DANAUS_OK;
}

static danaus_status pack_chain(
    danaus_ks_weights *w, danaus_device *device, const danaus_chain *chain)
{
    chain_numbers n = dn_chain_numbers(chain);
    w->has_bias = n.bias != NULL;
    return pack_forms(w, device, &n);
}

/* Without a chain weights are zero, when this returns: whatever stream comes next may pack
   or read them. And they are ready for numbers in the device's memory. */
static danaus_status begin(danaus_ks_weights *w)
{
    TRY(w->backend->clear(w->device, w->memory, w->plan->packed_bytes));
    TRY(w->backend->sync(w->device));
    return dn_ready_weights(w);
}

static danaus_status fill(danaus_ks_weights *w, const danaus_chain *chain)
{
    TRY(w->backend->alloc(w->device, w->plan->packed_bytes, &w->own));
    bind(w, w->own);
    return chain ? pack_chain(w, w->device, chain) : begin(w);
}

/* Without memory. */
static danaus_status create(
    const danaus_ks_plan *plan, danaus_device *device, danaus_ks_weights **weights)
{
    TRY(dn_check_place(device, plan->device));
    danaus_ks_weights *w = dn_calloc(1, sizeof *w);
    if (!w)
        return dn_fail_memory(sizeof *w, "packed weights");
    w->plan = plan;
    w->backend = device->backend;
    w->device = device;
    danaus_status status = dn_prepare(plan, device);
    if (status == DANAUS_OK)
        *weights = w;
    else
        danaus_ks_weights_destroy(w);
    return status;
}

static danaus_status check_places(
    const danaus_ks_plan *plan, const danaus_device *device,
    danaus_ks_weights **weights)
{
    if (!plan || !device || !weights)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan, a device and a place are needed");
    return DANAUS_OK;
}

danaus_status danaus_ks_weights_create(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_chain *chain,
    danaus_ks_weights **weights)
{
    danaus_ks_weights *w = NULL;
    TRY(check_places(plan, device, weights));
    if (chain)
        TRY(check_chain(plan, chain));
    TRY(create(plan, device, &w));
    danaus_status status = fill(w, chain);
    if (status == DANAUS_OK)
        *weights = w;
    else
        danaus_ks_weights_destroy(w);
    return status;
}

danaus_status danaus_ks_weights_create_unbound(
    const danaus_ks_plan *plan, danaus_device *device, danaus_ks_weights **weights)
{
    danaus_ks_weights *w = NULL;
    TRY(check_places(plan, device, weights));
    TRY(create(plan, device, &w));
    danaus_status status = dn_ready_weights(w);
    if (status == DANAUS_OK)
        *weights = w;
    else
        danaus_ks_weights_destroy(w);
    return status;
}

danaus_status danaus_ks_weights_update(
    danaus_ks_weights *weights, danaus_device *device, const danaus_chain *chain)
{
    if (!weights || !device || !chain)
        return dn_fail(DANAUS_ERR_ARGUMENT, "weights, a device and a chain are needed");
    TRY(dn_check_place(device, weights->plan->device));
    TRY(dn_check_bound(weights));
    TRY(check_chain(weights->plan, chain));
    return pack_chain(weights, device, chain);
}

/* Fails if only some factors of a merged one are given. Two factors at once have a place each,
   but only a device's own packing can write one of them alone. */
static danaus_status check_given(const danaus_ks_weights *w, const chain_numbers *n)
{
    for (int i = 0; i < w->plan->forms; i++) {
        const packed_form *f = &w->plan->form[i];
        int count = given(n, f), apart = f->step->p.inner.a && w->backend->pack;
        if (count && count < f->to - f->from && !apart)
            return dn_fail(
                DANAUS_ERR_ARGUMENT,
                "factors %d to %d are merged by this plan: give all of them or none, "
                "or "
                "plan with fresh_weights or keep_factors",
                f->from, f->to - 1);
    }
    return DANAUS_OK;
}

chain_numbers dn_update_numbers(const danaus_ks_update *u)
{
    static const void *const none[DANAUS_MAX_FACTORS];
    return (chain_numbers){ u->weights->plan->patterns, u->dtype, u->w ? u->w : none,
                            u->bias };
}

void dn_bind_update(const danaus_ks_update *u)
{
    if (u->memory) {
        bind(u->weights, u->memory);
        u->weights->has_bias = 0;
    }
    u->weights->has_bias |= u->bias != NULL;
}

/* Prepares what packing needs, and changes nothing. */
static danaus_status check_update(
    const danaus_device *device, const danaus_ks_update *u)
{
    if (!u->weights)
        return dn_fail(DANAUS_ERR_ARGUMENT, "weights are needed");
    TRY(dn_check_place(device, u->weights->plan->device));
    TRY(u->memory ? check_memory(u->weights, u->memory) : dn_check_bound(u->weights));
    TRY(check_type(u->weights->plan, u->dtype));
    chain_numbers n = dn_update_numbers(u);
    TRY(check_given(u->weights, &n));
    return dn_ready_weights(u->weights);
}

static danaus_status pack_update(danaus_device *device, const danaus_ks_update *u)
{
    chain_numbers n = dn_update_numbers(u);
    dn_bind_update(u);
    return pack_forms(u->weights, device, &n);
}

danaus_status danaus_ks_weights_update_many(
    danaus_device *device, int count, const danaus_ks_update *updates)
{
    if (!device || count < 0 || (count && !updates))
        return dn_fail(DANAUS_ERR_ARGUMENT, "a device and updates are needed");
    for (int i = 0; i < count; i++)
        TRY(check_update(device, &updates[i]));
    if (device->backend->pack)
        return dn_gather_weights(device, count, updates);
    for (int i = 0; i < count; i++)
        TRY(pack_update(device, &updates[i]));
    return DANAUS_OK;
}

danaus_status danaus_ks_weights_update_from(
    danaus_ks_weights *weights, danaus_device *device, danaus_dtype dtype,
    const void *const *w, const void *bias)
{
    danaus_ks_update update = {
        .weights = weights, .w = w, .bias = bias, .dtype = dtype
    };
    return danaus_ks_weights_update_many(device, 1, &update);
}
