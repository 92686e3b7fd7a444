/* Plans of convolutions: from a description to a backend's engine; execution. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/conv_plan.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static danaus_status check_sizes(const conv_problem *p)
{
    if (p->channels < 1 || p->length < 1)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%" PRId64 " channels of length %" PRId64, p->channels,
            p->length);
    if (p->length > DANAUS_CONV_MOST_LENGTH ||
        p->filter_length > DANAUS_CONV_MOST_LENGTH)
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "lengths of %" PRId64 " and %" PRId64 "; at most %" PRId64, p->length,
            p->filter_length, DANAUS_CONV_MOST_LENGTH);
    if (p->filter_length < 1 || p->filters < 1 || p->channels % p->filters)
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "%" PRId64 " filters of length %" PRId64 " for %" PRId64 " channels",
            p->filters, p->filter_length, p->channels);
    int64_t all;
    if (dn_mul_overflows(p->filters, 64 * (p->length + p->filter_length), &all) ||
        dn_mul_overflows(p->channels, 8 * p->length, &all))
        return dn_fail(
            DANAUS_ERR_SHAPE, "%" PRId64 " channels of length %" PRId64 " have no size",
            p->channels, p->length);
    return DANAUS_OK;
}

static danaus_status check_box(const conv_problem *p)
{
    int64_t all = 1;
    if (p->keep[0] && dn_conv_reach(p).periodic)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "circular convolutions keep whole spectra");
    for (int i = 0; i < CONV_AXES && p->keep[0]; i++) {
        if (p->axes[i] < 1 || (p->axes[i] & (p->axes[i] - 1)))
            return dn_fail(
                DANAUS_ERR_ARGUMENT, "an axis of %d: it has to be a power of two",
                p->axes[i]);
        if (p->keep[i] < 1 || p->keep[i] > p->axes[i])
            return dn_fail(
                DANAUS_ERR_ARGUMENT, "%d of %d to keep", p->keep[i], p->axes[i]);
        if (dn_mul_overflows(all, p->axes[i], &all) || all > DANAUS_CONV_MOST_LENGTH)
            return dn_fail(
                DANAUS_ERR_SHAPE, "axes of more than %" PRId64 " frequencies",
                DANAUS_CONV_MOST_LENGTH);
    }
    return DANAUS_OK;
}

/* Whole spectra have zeros, sparse ones every number. */
static void complete_box(conv_problem *p)
{
    int sparse = 0;
    for (int i = 0; i < CONV_AXES; i++) {
        p->axes[i] = p->axes[i] ? p->axes[i] : 8;
        sparse |= p->keep[i] != 0;
    }
    for (int i = 0; i < CONV_AXES; i++)
        if (!sparse)
            p->axes[i] = 0;
        else if (!p->keep[i])
            p->keep[i] = p->axes[i];
}

static danaus_status check_problem(const conv_problem *p)
{
    if (!dn_conv_is_kind(p->kind))
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no kind of convolution", p->kind);
    TRY(check_sizes(p));
    TRY(check_box(p));
    if (!dn_dtype(p->dtype) || dn_is_complex(p->dtype))
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no real element type", p->dtype);
    if (p->effort != DANAUS_ESTIMATE && p->effort != DANAUS_MEASURE &&
        p->effort != DANAUS_TABLE_ONLY)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no effort", p->effort);
    if (p->batch < 0)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a batch of %" PRId64 " to plan for", p->batch);
    return dn_check_reserved(p->reserved, sizeof p->reserved);
}

danaus_status danaus_conv_plan_create(
    danaus_device *device, const danaus_conv_desc *desc, danaus_conv_plan **plan)
{
    if (!device || !desc || !plan)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a device, a description and a place for the plan are needed");
    conv_problem p = *desc;
    p.filter_length = p.filter_length ? p.filter_length : p.length;
    p.filters = p.filters ? p.filters : p.channels;
    p.dtype = p.dtype ? p.dtype : DANAUS_F32;
    complete_box(&p);
    TRY(check_problem(&p));
    TRY(dn_conv_need(device, create, "convolutions"));
    danaus_conv_plan *made = dn_calloc(1, sizeof *made);
    if (!made)
        return dn_fail_memory(sizeof *made, "a plan");
    made->conv = device->backend->conv;
    made->p = p;
    snprintf(made->device, sizeof made->device, "%s", device->name);
    danaus_status status = dn_conv_choose(device, &p, &made->choice);
    status = status
                 ? status
                 : made->conv->create(device, &p, &made->choice.frame, &made->engine);
    if (status != DANAUS_OK)
        danaus_conv_plan_destroy(made);
    else
        *plan = made;
    return status;
}

void danaus_conv_plan_destroy(danaus_conv_plan *plan)
{
    if (plan && plan->engine)
        plan->conv->destroy(plan->engine);
    dn_free(plan);
}

size_t danaus_conv_plan_describe(const danaus_conv_plan *plan, char *to, size_t size)
{
    text t = { to, to ? size : 0, 0 };
    if (t.size)
        *to = '\0';
    if (plan)
        dn_conv_describe(plan, &t);
    return t.length;
}

danaus_status dn_conv_lacks(const danaus_device *device, const char *what)
{
    return dn_fail(DANAUS_ERR_UNSUPPORTED, "%s has no %s", device->name, what);
}

/* The device has the plan's name, and rows of this batch have a size. */
static danaus_status check_batch(
    const danaus_conv_plan *plan, const danaus_device *device, int64_t batch)
{
    TRY(dn_check_place(device, plan->device));
    if (batch < 0)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a batch of %" PRId64, batch);
    int64_t bytes;
    if (dn_mul_overflows(plan->p.channels * plan->p.length, batch, &bytes) ||
        dn_mul_overflows(bytes, 64, &bytes))
        return dn_fail(DANAUS_ERR_SHAPE, "a batch of %" PRId64 " is too large", batch);
    return DANAUS_OK;
}

danaus_status dn_conv_check(
    const danaus_conv_plan *plan, const danaus_device *device,
    const danaus_spectrum *spectrum, int64_t batch)
{
    if (!plan || !device || !spectrum)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a plan, a device and a spectrum are needed");
    if (spectrum->plan != plan)
        return dn_fail(DANAUS_ERR_ARGUMENT, "the spectrum was made for another plan");
    return check_batch(plan, device, batch);
}

danaus_status danaus_conv_scratch_bytes(
    const danaus_conv_plan *plan, danaus_device *device, int64_t batch, size_t *forward,
    size_t *gradient)
{
    if (!plan || !device || batch < 1)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a plan, a device and a batch of at least 1 are needed");
    TRY(check_batch(plan, device, batch));
    const conv_job run = { .batch = batch, .products = 1 };
    const conv_job back = { .batch = batch, .products = 2, .sums = 1 };
    const conv_backend *conv = plan->conv;
    size_t filters = conv->scratch_bytes(device, plan->engine, NULL);
    size_t rows = conv->scratch_bytes(device, plan->engine, &run);
    if (forward)
        *forward = MAX(filters, rows);
    if (gradient)
        *gradient = conv->scratch_bytes(device, plan->engine, &back);
    return DANAUS_OK;
}

static danaus_status check_pair(const piece *y, const piece *x)
{
    uintptr_t a = (uintptr_t)x->data, b = (uintptr_t)y->data;
    if (x->data && y->data && a < b + y->bytes && b < a + x->bytes)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%s overlaps %s", y->name, x->name);
    return DANAUS_OK;
}

danaus_status dn_conv_check_apart(
    int outputs, const piece *out, int inputs, const piece *in)
{
    for (int i = 0; i < outputs; i++) {
        for (int j = 0; j < inputs; j++)
            TRY(check_pair(&out[i], &in[j]));
        for (int j = 0; j < i; j++)
            TRY(check_pair(&out[i], &out[j]));
    }
    return DANAUS_OK;
}

size_t dn_conv_array_bytes(const danaus_conv_plan *plan, int64_t batch)
{
    return (size_t)(batch * plan->p.channels * plan->p.length) *
           danaus_dtype_size(plan->p.dtype);
}

danaus_status danaus_conv_execute(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, int64_t batch, const void *u, const void *gate_in,
    const void *gate_out, void *y)
{
    TRY(dn_conv_check(plan, device, spectrum, batch));
    if (batch == 0)
        return DANAUS_OK;
    if (!u || !y)
        return dn_fail(DANAUS_ERR_ARGUMENT, "both u and y are needed");
    size_t bytes = dn_conv_array_bytes(plan, batch);
    piece to = { "y", y, bytes };
    piece from[] = { { "u", u, bytes },
                     { "gate_in", gate_in, bytes },
                     { "gate_out", gate_out, bytes } };
    TRY(dn_conv_check_apart(1, &to, 3, from));
    conv_job job = {
        .batch = batch,
        .spectrum = spectrum->data,
        .products = 1,
        .product = { { .x = { u, gate_in }, .sinks = 1, .sink = { { y, gate_out } } } },
    };
    return plan->conv->run(device, plan->engine, &job);
}
