/* Products with a plan and packed weights. */
// SPDX-License-Identifier: Apache-2.0
#include "product/ks_plan.h"

#include "base/mem.h"
#include "base/byte_range.h"
#include "base/status.h"
#include "math/pattern.h"

#include <inttypes.h>

/* The widest vector of the chain, padded, must have a size. */
static danaus_status check_batch(const danaus_ks_plan *plan, int64_t batch)
{
    if (batch < 0)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a batch of %" PRId64, batch);
    for (int i = 0; i < plan->count; i++) {
        int64_t rows = dn_pattern_rows(plan->patterns[i]);
        int64_t cols = dn_pattern_cols(plan->patterns[i]), n;
        if (batch > INT64_MAX - 64 ||
            dn_mul_overflows(rows > cols ? rows : cols, batch + 64, &n) ||
            dn_mul_overflows(n, 32, &n))
            return dn_fail(
                DANAUS_ERR_SHAPE, "a batch of %" PRId64 " is too large for factor %d",
                batch, i);
    }
    return DANAUS_OK;
}

danaus_status dn_check_operands(
    const danaus_ks_plan *plan, const danaus_device *device,
    const danaus_ks_weights *weights, int64_t batch, const void *x, const void *y)
{
    if (!plan || !device || !weights)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan, a device and weights are needed");
    TRY(dn_check_place(device, plan->device));
    if (weights->plan != plan)
        return dn_fail(DANAUS_ERR_ARGUMENT, "the weights were packed for another plan");
    if (batch && (!x || !y))
        return dn_fail(DANAUS_ERR_ARGUMENT, "both operands are needed");
    TRY(dn_check_bound(weights));
    return check_batch(plan, batch);
}

size_t dn_ks_x_bytes(const danaus_ks_plan *plan, int64_t batch)
{
    int64_t cols = plan->desc.adjoint
                       ? dn_pattern_rows(plan->patterns[0])
                       : dn_pattern_cols(plan->patterns[plan->count - 1]);
    return (size_t)(cols * batch) * danaus_dtype_size(plan->desc.dtype);
}

size_t dn_ks_y_bytes(const danaus_ks_plan *plan, int64_t batch)
{
    int64_t rows = plan->desc.adjoint ? dn_pattern_cols(plan->patterns[plan->count - 1])
                                      : dn_pattern_rows(plan->patterns[0]) /
                                            (plan->desc.gated ? 2 : 1);
    return (size_t)(rows * batch) * danaus_dtype_size(plan->desc.dtype);
}

static danaus_status check_apart(
    const danaus_ks_plan *plan, int64_t batch, const void *x, const void *y)
{
    byte_range from = { "x", x, dn_ks_x_bytes(plan, batch) };
    byte_range to = { "y", y, dn_ks_y_bytes(plan, batch) };
    return dn_check_apart(1, &to, 1, &from);
}

static danaus_status check_residual(
    const danaus_ks_plan *plan, int64_t batch, const void *residual, const void *y)
{
    uintptr_t a = (uintptr_t)residual, b = (uintptr_t)y;
    uintptr_t bytes = dn_ks_y_bytes(plan, batch);
    if (!plan->desc.residual)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "the plan expects no residual: desc.residual says so");
    if (batch && !residual)
        return dn_fail(DANAUS_ERR_ARGUMENT, "the plan expects a residual");
    if (a != b && (a < b ? b - a : a - b) < bytes)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "the residual overlaps y: it is y itself, or apart");
    return DANAUS_OK;
}

/* residual: NULL for plans without one. */
static danaus_status execute(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_ks_weights *weights,
    int64_t batch, const void *x, const void *residual, void *y)
{
    int has_bias = weights->has_bias && !plan->desc.adjoint;
    ks_operands o = {
        .batch = batch,
        .x = x,
        .y = y,
        .packed = weights->run,
        .bias = has_bias ? weights->memory + plan->bias_at : NULL,
        .rounded_bias = has_bias && plan->rounded_bias_at
                            ? weights->memory + plan->rounded_bias_at
                            : NULL,
        .activation = plan->desc.activation,
        .residual = residual,
    };
    return batch ? device->backend->ks_run(device, plan->run.step, plan->run.count, &o)
                 : DANAUS_OK;
}

danaus_status danaus_ks_execute(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_ks_weights *weights,
    int64_t batch, const void *x, void *y)
{
    TRY(dn_check_operands(plan, device, weights, batch, x, y));
    if (plan->desc.residual)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "the plan expects a residual: danaus_ks_execute_residual() takes it");
    TRY(check_apart(plan, batch, x, y));
    return execute(plan, device, weights, batch, x, NULL, y);
}

danaus_status danaus_ks_execute_residual(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_ks_weights *weights,
    int64_t batch, const void *x, const void *residual, void *y)
{
    TRY(dn_check_operands(plan, device, weights, batch, x, y));
    TRY(check_residual(plan, batch, residual, y));
    TRY(check_apart(plan, batch, x, y));
    return execute(plan, device, weights, batch, x, residual, y);
}

danaus_status dn_ks_run(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_ks_weights *weights,
    ks_operands o)
{
    o.packed = weights->run;
    return device->backend->ks_run(device, plan->run.step, plan->run.count, &o);
}

int dn_ks_orders(const danaus_ks_plan *plan)
{
    return plan->run.step[0].p.orders | plan->run.step[plan->run.count - 1].p.orders;
}

int dn_ks_adds(
    const danaus_ks_plan *plan, const danaus_device *device,
    danaus_activation activation)
{
    const backend *b = device->backend;
    ks_step last = plan->run.step[plan->run.count - 1];
    last.p.activation = (int)activation;
    return b->adds && b->adds(&last);
}

danaus_status danaus_ks_scratch_bytes(
    const danaus_ks_plan *plan, danaus_device *device, int64_t batch, size_t *forward,
    size_t *gradient)
{
    if (!plan || !device)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan and a device are needed");
    TRY(dn_check_place(device, plan->device));
    TRY(check_batch(plan, batch));
    const backend *b = device->backend;
    const step_list *run = &plan->run, *there = &plan->forward, *back = &plan->back;
    if (forward)
        *forward = batch ? b->ks_scratch(device, run->step, run->count, batch) : 0;
    if (gradient)
        *gradient = batch && plan->desc.gradients
                        ? b->gradient_scratch(
                              device, there->step, back->step,
                              plan->weights.count ? plan->weights.step : NULL,
                              plan->count, batch)
                        : 0;
    return DANAUS_OK;
}
