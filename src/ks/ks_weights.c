/* Packing a chain for a plan: merged factors multiplied out, every step's
   weights in its kernel's order, in device memory. */
// SPDX-License-Identifier: Apache-2.0
#include "ks/ks_plan.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "ks/chain.h"
#include "math/pattern.h"

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
    if (dn_is_complex(plan->desc.dtype) != dn_is_complex(chain->dtype))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "the plan's type is %s, the chain's %s",
            danaus_dtype_name(plan->desc.dtype), danaus_dtype_name(chain->dtype));
    return DANAUS_OK;
}

static void free_list(danaus_ks_weights *w, void **packed)
{
    for (int i = 0; i < DANAUS_MAX_FACTORS; i++)
        if (packed[i])
            w->backend->free(w->device, packed[i]);
}

void danaus_ks_weights_destroy(danaus_ks_weights *weights)
{
    if (!weights)
        return;
    free_list(weights, weights->run);
    free_list(weights, weights->forward);
    free_list(weights, weights->back);
    if (weights->bias)
        weights->backend->free(weights->device, weights->bias);
    dn_free(weights);
}

static danaus_status allocate_list(
    const danaus_ks_weights *w, const step_list *list, void **packed)
{
    for (int i = 0; i < list->count; i++)
        TRY(w->backend->alloc(
            w->device,
            list->step[i].kernel->packed_bytes(list->step[i].kernel, &list->step[i].p),
            &packed[i]));
    return DANAUS_OK;
}

static danaus_status allocate(danaus_ks_weights *w)
{
    const danaus_ks_plan *plan = w->plan;
    size_t bias = (size_t)dn_pattern_rows(plan->patterns[0]) *
                  danaus_dtype_size(dn_sum_type(plan->desc.dtype));
    TRY(allocate_list(w, &plan->run, w->run));
    TRY(allocate_list(w, &plan->forward, w->forward));
    TRY(allocate_list(w, &plan->back, w->back));
    return w->backend->alloc(w->device, bias, &w->bias);
}

/* The weights of one step: those of factor from, or factors [from, to) multiplied out. */
static danaus_status pack_step(
    danaus_device *device, const danaus_chain *chain, const ks_step *step, int from,
    int to, int adjoint, void *packed)
{
    double *product = NULL;
    weights_view view = dn_chain_view(chain, from);
    if (to - from > 1) {
        danaus_dtype wide = dn_is_complex(chain->dtype) ? DANAUS_C128 : DANAUS_F64;
        TRY(dn_chain_product(chain, from, to, &product));
        view = dn_weights_view(
            product, wide, dn_chain_product_pattern(chain->patterns, from, to));
    }
    if (adjoint)
        view = dn_weights_adjoint(view);
    danaus_status status = dn_pack(device, step, view, packed);
    dn_free(product);
    return status;
}

static danaus_status pack_pair(
    danaus_device *device, const danaus_chain *chain, const ks_step *step, int from,
    int adjoint, void *packed)
{
    weights_view first = dn_chain_view(chain, adjoint ? from : from + 1);
    weights_view last = dn_chain_view(chain, adjoint ? from + 1 : from);
    if (adjoint) {
        first = dn_weights_adjoint(first);
        last = dn_weights_adjoint(last);
    }
    last.inner = &first;
    return dn_pack(device, step, last, packed);
}

/* adjoint: the steps multiply by the adjoints of the chain's factors. */
static danaus_status pack_list(
    danaus_device *device, const danaus_chain *chain, const step_list *list,
    int adjoint, void *const *packed)
{
    for (int i = 0; i < list->count; i++) {
        const ks_step *step = &list->step[i];
        int from = list->from[i], to = list->to[i];
        TRY(step->p.inner.a
                ? pack_pair(device, chain, step, from, adjoint, packed[i])
                : pack_step(device, chain, step, from, to, adjoint, packed[i]));
    }
    return DANAUS_OK;
}

static danaus_status pack(
    danaus_ks_weights *w, danaus_device *device, const danaus_chain *chain)
{
    const danaus_ks_plan *plan = w->plan;
    int adjoint = plan->desc.adjoint;
    TRY(pack_list(device, chain, &plan->run, adjoint, w->run));
    TRY(pack_list(device, chain, &plan->forward, adjoint, w->forward));
    TRY(pack_list(device, chain, &plan->back, !adjoint, w->back));
    w->has_bias = chain->bias != NULL;
    if (chain->bias)
        TRY(dn_put_numbers(
            device, chain->dtype, chain->bias, dn_sum_type(plan->desc.dtype), w->bias,
            danaus_chain_rows(chain)));
    return DANAUS_OK;
}

danaus_status danaus_ks_weights_create(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_chain *chain,
    danaus_ks_weights **weights)
{
    if (!plan || !device || !chain || !weights)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a plan, a device, a chain and a place are needed");
    TRY(check_chain(plan, chain));
    danaus_ks_weights *w = dn_calloc(1, sizeof *w);
    if (!w)
        return dn_fail_memory(sizeof *w, "packed weights");
    w->plan = plan;
    w->backend = device->backend;
    w->device = device;
    danaus_status status = dn_prepare(plan, device);
    if (status == DANAUS_OK)
        status = allocate(w);
    if (status == DANAUS_OK)
        status = pack(w, device, chain);
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
    TRY(check_chain(weights->plan, chain));
    return pack(weights, device, chain);
}
