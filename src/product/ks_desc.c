/* Words of plans: which descriptions there can be, and what a plan says of itself. */
// SPDX-License-Identifier: Apache-2.0
#include "product/ks_plan.h"

#include "base/dtype.h"
#include "base/status.h"
#include "base/text.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

static const char *const activation_names[] = {
    [DANAUS_RELU] = "ReLU",
    [DANAUS_GELU] = "GELU",
    [DANAUS_SILU] = "SiLU",
    [DANAUS_GELU_TANH] = "GELU by tanh",
};

static danaus_status check_activation(const danaus_ks_desc *d)
{
    if (d->activation < DANAUS_ACTIVATION_NONE || d->activation > DANAUS_GELU_TANH)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no activation", (int)d->activation);
    if (d->activation && dn_is_complex(d->dtype))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "%s is for real numbers, the plan's type is %s",
            activation_names[d->activation], danaus_dtype_name(d->dtype));
    if (d->activation && d->gradients)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a plan with an activation has no gradients: plan the product without it, "
            "and multiply dy by the activation's derivative before "
            "danaus_ks_gradient()");
    return DANAUS_OK;
}

static danaus_status check_scale(const danaus_ks_desc *d)
{
    int wide = d->dtype == DANAUS_F64 || d->dtype == DANAUS_C128;
    double least = wide ? DBL_MIN : FLT_MIN, most = wide ? DBL_MAX : FLT_MAX;
    if (!isfinite(d->scale))
        return dn_fail(DANAUS_ERR_ARGUMENT, "a scale of %g", d->scale);
    if (d->scale != 0 && (fabs(d->scale) < least || fabs(d->scale) > most))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a scale of %g: products of %s take magnitudes from %.2g to %.2g", d->scale,
            danaus_dtype_name(d->dtype), least, most);
    if (d->scale != 0 && d->scale != 1 && d->gradients)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a plan with a scale has no gradients: scale the weights");
    return DANAUS_OK;
}

static danaus_status check_gated(const danaus_ks_desc *d)
{
    if (d->gated && (d->gradients || d->residual || d->adjoint))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a gated plan has neither gradients nor a residual, and is no adjoint");
    return DANAUS_OK;
}

static danaus_status check_invariant(const danaus_ks_desc *d)
{
    if (d->batch_invariant && d->effort != DANAUS_ESTIMATE)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a batch-invariant plan is chosen by estimates: measurements and tables "
            "change");
    return DANAUS_OK;
}

static danaus_status check_int8(const danaus_ks_desc *d)
{
    if (d->int8 && dn_sum_type(d->dtype) != DANAUS_F32)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "products of 8-bit numbers are for rows of f32, f16 and bf16, not of %s",
            danaus_dtype_name(d->dtype));
    if (d->int8 && (d->gradients || d->gated))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a plan for 8-bit numbers has no gradients, and is not gated");
    return DANAUS_OK;
}

danaus_status dn_check_desc(const danaus_ks_desc *d)
{
    if (d->layout != DANAUS_BATCH_FIRST && d->layout != DANAUS_BATCH_LAST)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no layout", (int)d->layout);
    TRY(dn_check_computed(d->dtype));
    if (d->math != DANAUS_MATH_F32 && d->math != DANAUS_MATH_TF32)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no kind of products", (int)d->math);
    if (d->effort < DANAUS_ESTIMATE || d->effort > DANAUS_TABLE_ONLY)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no effort", (int)d->effort);
    if (d->batch < 0)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a batch of %" PRId64 " to plan for", d->batch);
    TRY(dn_check_reserved(d->reserved, sizeof d->reserved));
    TRY(check_scale(d));
    TRY(check_gated(d));
    TRY(check_invariant(d));
    TRY(check_int8(d));
    return check_activation(d);
}

size_t danaus_ks_plan_describe(const danaus_ks_plan *plan, char *to, size_t size)
{
    text t = { to, to ? size : 0, 0 };
    if (t.size)
        *to = '\0';
    for (int i = 0; plan && i < plan->run.count; i++) {
        danaus_pattern p = plan->run.step[i].p.pattern;
        dn_text(
            &t, "step %d: (%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ") by %s", i,
            p.a, p.b, p.c, p.d, plan->run.step[i].kernel->name);
        if (plan->run.to[i] - plan->run.from[i] > 1)
            dn_text(
                &t, ", factors %d to %d %s", plan->run.from[i], plan->run.to[i] - 1,
                plan->run.step[i].p.inner.a ? "at once" : "merged");
        if (plan->desc.activation && i + 1 == plan->run.count)
            dn_text(&t, ", then %s", activation_names[plan->desc.activation]);
        if (plan->desc.gated && i + 1 == plan->run.count)
            dn_text(&t, ", gated");
        if (plan->desc.residual && i + 1 == plan->run.count)
            dn_text(&t, ", added to a residual");
        dn_text(&t, "\n");
    }
    return t.length;
}
