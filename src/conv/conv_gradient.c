/* Gradients of convolutions: what is asked for, checked. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/conv_plan.h"

#include "base/status.h"

static danaus_status check_members(
    const danaus_conv_plan *plan, const void *gate_in, const void *gate_out,
    const danaus_conv_gradients *g)
{
    if ((g->dgate_in && !gate_in) || (g->dgate_out && !gate_out))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "the gradient of a gate is asked for without the gate");
    if (g->dk_reverse && plan->p.kind != DANAUS_BIDIRECTIONAL)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "only bidirectional plans have reverse filters");
    if (g->reserved[0] || g->reserved[1])
        return dn_fail(DANAUS_ERR_ARGUMENT, "reserved members must be NULL");
    return DANAUS_OK;
}

/* None of the outputs overlaps an input or another output. */
static danaus_status check_overlaps(
    const danaus_conv_plan *plan, const conv_gradient_operands *o)
{
    size_t rows = dn_conv_array_bytes(plan, o->batch);
    size_t sums = plan->p.dtype == DANAUS_F64 ? sizeof(double) : sizeof(float);
    size_t filters = (size_t)plan->p.filters * sums;
    size_t taps = filters * (size_t)plan->p.filter_length;
    piece in[] = { { "u", o->u, rows },
                   { "gate_in", o->gate_in, rows },
                   { "gate_out", o->gate_out, rows },
                   { "dy", o->dy, rows } };
    piece out[] = {
        { "du", o->to.du, rows },
        { "dgate_in", o->to.dgate_in, rows },
        { "dgate_out", o->to.dgate_out, rows },
        { "dk", o->to.dk, taps },
        { "dk_reverse", o->to.dk_reverse, taps },
        { "dskip", o->to.dskip, filters },
    };
    return dn_conv_check_apart(6, out, 4, in);
}

danaus_status danaus_conv_gradient(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, int64_t batch, const void *u, const void *gate_in,
    const void *gate_out, const void *dy, const danaus_conv_gradients *gradients)
{
    TRY(dn_conv_check(plan, device, spectrum, batch));
    if (!gradients || batch < 1 || !u || !dy)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "u, dy, gradients and a batch of at least 1 are needed");
    TRY(check_members(plan, gate_in, gate_out, gradients));
    conv_gradient_operands o = {
        .batch = batch,
        .spectrum = spectrum->data,
        .u = u,
        .gate_in = gate_in,
        .gate_out = gate_out,
        .dy = dy,
        .to = *gradients,
    };
    TRY(check_overlaps(plan, &o));
    return plan->conv->gradient(device, plan->engine, &o);
}
