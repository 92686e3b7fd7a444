/* Gradients: the array that each step's weight gradient goes to. */
// SPDX-License-Identifier: Apache-2.0
#include "product/ks_plan.h"

#include "base/dtype.h"
#include "base/byte_range.h"
#include "base/status.h"
#include "math/pattern.h"

static danaus_status check(const danaus_ks_plan *plan, const danaus_ks_gradients *g)
{
    if (!g)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for gradients is needed");
    if (!plan->desc.gradients)
        return dn_fail(DANAUS_ERR_ARGUMENT, "the plan was made without desc.gradients");
    if (plan->desc.adjoint && g->dbias)
        return dn_fail(DANAUS_ERR_ARGUMENT, "an adjoint product has no bias");
    return dn_check_reserved(g->reserved, sizeof g->reserved);
}

/* The type of dw and dbias. */
static danaus_dtype type_of(const danaus_ks_plan *plan, const danaus_ks_gradients *g)
{
    return g->rounded ? plan->desc.dtype : dn_sum_type(plan->desc.dtype);
}

/* None of the gradients overlaps an input or another gradient. */
static danaus_status check_apart(
    const danaus_ks_plan *plan, int64_t batch, const void *x, const void *dy,
    const danaus_ks_gradients *g)
{
    size_t size = danaus_dtype_size(type_of(plan, g));
    size_t bias = (size_t)dn_pattern_rows(plan->patterns[0]) * size;
    byte_range in[] = { { "x", x, dn_ks_x_bytes(plan, batch) },
                        { "dy", dy, dn_ks_y_bytes(plan, batch) } };
    byte_range out[DANAUS_MAX_FACTORS + 2] = { { "dx", g->dx, in[0].bytes },
                                               { "dbias", g->dbias, bias } };
    for (int i = 0; g->dw && i < plan->count; i++) {
        size_t weights = (size_t)dn_pattern_weights(plan->patterns[i]);
        out[2 + i] = (byte_range){ "a factor's dw", g->dw[i], weights * size };
    }
    return dn_check_apart(2 + (g->dw ? plan->count : 0), out, 2, in);
}

/* Over an empty batch every sum is zero. */
static danaus_status clear(
    danaus_device *device, const danaus_ks_plan *plan, const danaus_ks_gradients *g)
{
    size_t size = danaus_dtype_size(type_of(plan, g));
    for (int i = 0; g->dw && i < plan->count; i++)
        if (g->dw[i])
            TRY(device->backend->clear(
                device, g->dw[i],
                (size_t)dn_pattern_weights(plan->patterns[i]) * size));
    if (g->dbias)
        TRY(device->backend->clear(
            device, g->dbias, (size_t)dn_pattern_rows(plan->patterns[0]) * size));
    return DANAUS_OK;
}

danaus_status danaus_ks_gradient(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_ks_weights *weights,
    int64_t batch, const void *x, const void *dy, const danaus_ks_gradients *gradients)
{
    TRY(dn_check_operands(plan, device, weights, batch, x, dy));
    TRY(check(plan, gradients));
    if (batch == 0)
        return clear(device, plan, gradients);
    TRY(check_apart(plan, batch, x, dy, gradients));
    weights_view dw[DANAUS_MAX_FACTORS] = { 0 };
    for (int i = 0; gradients->dw && i < plan->count; i++) {
        int factor = plan->forward.from[i];
        weights_view view = dn_weights_view(
            gradients->dw[factor], type_of(plan, gradients), plan->patterns[factor]);
        dw[i] = plan->desc.adjoint ? dn_weights_adjoint(view) : view;
    }
    ks_gradient_operands o = {
        .batch = batch,
        .x = x,
        .dy = dy,
        .packed = weights->forward,
        .packed_adjoint = weights->back,
        .dx = gradients->dx,
        .dw = dw,
        .dw_steps = plan->weights.count ? plan->weights.step : NULL,
        .dbias = gradients->dbias,
        .rounded = type_of(plan, gradients) != dn_sum_type(plan->desc.dtype),
    };
    return device->backend->ks_gradient(
        device, plan->forward.step, plan->back.step, plan->count, &o);
}
