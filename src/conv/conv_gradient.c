/* Gradients of convolutions: checks of the arguments, and the products that compute them. With
   p = gate_in u, c = k (*) p + skip p and y = gate_out c (docs/conv.md (9)):

       dc = gate_out* dy,      dgate_out = dy c*,      du = gate_in* dp,      dgate_in = u* dp,
       dp[t] = sum over lags s of k[s]* dc[t + s],     dskip = dk[0],
       dk[s] = sum over rows and t of dc[t] p[t - s]*,

   where z* is the conjugate, and dp takes that of the filter's spectrum. In correlations c takes
   it and dp does not, and dc and p change places in dk. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/conv_plan.h"

#include "base/byte_range.h"
#include "base/dtype.h"
#include "base/status.h"

/* The operands of gradients. */
typedef struct gradient_operands {
    const void *u, *gate_in, *gate_out, *dy; /* gates: or NULL */
    const danaus_conv_gradients *to;
} gradient_operands;

static danaus_status check_members(
    const danaus_conv_plan *plan, const gradient_operands *o)
{
    const danaus_conv_gradients *g = o->to;
    if ((g->dgate_in && !o->gate_in) || (g->dgate_out && !o->gate_out))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "the gradient of a gate is asked for without the gate");
    if (g->dk_reverse && !dn_conv_longest(plan)->choice.frame.reverse)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "only bidirectional plans have reverse filters");
    return dn_check_reserved(g->reserved, sizeof g->reserved);
}

/* None of the outputs overlaps an input or another output. */
static danaus_status check_overlaps(
    const danaus_conv_plan *plan, const gradient_operands *o, const conv_extent *x)
{
    size_t rows = dn_conv_array_bytes(plan, x);
    size_t sums = danaus_dtype_size(dn_sum_type(plan->p.dtype));
    size_t filters = (size_t)plan->p.filters * sums;
    size_t taps = filters * (size_t)dn_conv_taps(&plan->p);
    byte_range in[] = { { "u", o->u, rows },
                        { "gate_in", o->gate_in, rows },
                        { "gate_out", o->gate_out, rows },
                        { "dy", o->dy, rows } };
    byte_range out[] = {
        { "du", o->to->du, rows },
        { "dgate_in", o->to->dgate_in, rows },
        { "dgate_out", o->to->dgate_out, rows },
        { "dk", o->to->dk, taps },
        { "dk_reverse", o->to->dk_reverse, taps },
        { "dskip", o->to->dskip, filters },
    };
    return dn_check_apart(6, out, 4, in);
}

static void add_sink(conv_product *p, void *data, const void *factor, int conjugate)
{
    if (data)
        p->sink[p->sinks++] =
            (conv_sink){ .data = data, .factor = factor, .conjugate = conjugate };
}

/* The products and sums that make the gradients. */
static conv_job job_of(const danaus_conv_plan *plan, const gradient_operands *o)
{
    const danaus_conv_gradients *to = o->to;
    const conv_input p = { .data = o->u, .factor = o->gate_in };
    const conv_input dc = { .data = o->dy,
                            .factor = o->gate_out,
                            .conjugate = CONV_CONJUGATE_FACTOR };
    int correlate = plan->p.correlate != 0;
    conv_job job = {
        .sums = to->dk || to->dk_reverse || to->dskip,
        .filter = { p, dc, to->dk, to->dk_reverse, to->dskip, 0 },
    };
    if (correlate) {
        job.filter.x = dc;
        job.filter.dy = p;
    }
    conv_product c = { .x = p, .adjoint = correlate };
    conv_product dp = { .x = dc, .adjoint = !correlate };
    add_sink(&c, to->dgate_out, o->dy, CONV_CONJUGATE_NUMBER);
    add_sink(&dp, to->du, o->gate_in, CONV_CONJUGATE_FACTOR);
    add_sink(&dp, to->dgate_in, o->u, CONV_CONJUGATE_FACTOR);
    if (c.sinks)
        job.product[job.products++] = c;
    if (dp.sinks)
        job.product[job.products++] = dp;
    return job;
}

static danaus_status gradient(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, conv_extent *x, const gradient_operands *o)
{
    TRY(dn_conv_need_parts(plan, device, spectrum));
    TRY(dn_conv_check_extent(plan, device, x));
    if (!o->to || x->numbers < 1 || !o->u || !o->dy)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "u, dy, gradients and a batch of at least 1 number are needed");
    if (dn_conv_is_bank(&plan->p))
        return dn_fail(DANAUS_ERR_UNSUPPORTED, "filter banks have no gradients");
    TRY(check_members(plan, o));
    TRY(check_overlaps(plan, o, x));
    conv_job job = job_of(plan, o);
    return dn_conv_run(plan, device, spectrum, x, &job);
}

danaus_status danaus_conv_gradient(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, int64_t batch, const void *u, const void *gate_in,
    const void *gate_out, const void *dy, const danaus_conv_gradients *gradients)
{
    const gradient_operands o = { u, gate_in, gate_out, dy, gradients };
    conv_extent x = { .batch = batch };
    return gradient(plan, device, spectrum, &x, &o);
}

danaus_status danaus_conv_gradient_packed(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, int64_t sequences, const int64_t *offsets,
    const void *u, const void *gate_in, const void *gate_out, const void *dy,
    const danaus_conv_gradients *gradients)
{
    const gradient_operands o = { u, gate_in, gate_out, dy, gradients };
    conv_extent x = { .batch = sequences, .offsets = offsets };
    TRY(dn_conv_need_offsets(offsets));
    return gradient(plan, device, spectrum, &x, &o);
}
