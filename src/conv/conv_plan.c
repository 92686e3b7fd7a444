/* Plans of convolutions: from a description to a backend's engine; execution. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/conv_plan.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/byte_range.h"
#include "base/status.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Lengths along both axes, and the flat length of planes. */
static danaus_status check_lengths(const conv_problem *p)
{
    int64_t most = MAX(p->length, p->filter_length), flat;
    if (most > DANAUS_CONV_MOST_LENGTH)
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "lengths of %" PRId64 " and %" PRId64 "; at most %" PRId64, p->length,
            p->filter_length, DANAUS_CONV_MOST_LENGTH);
    flat = MAX(p->height, p->filter_height) * (p->length + p->filter_length);
    if (flat > DANAUS_CONV_MOST_LENGTH)
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "planes of %d x %" PRId64 " and filters of %d x %" PRId64
            "; the greater height times the sum of lengths is at most %" PRId64,
            p->height, p->length, p->filter_height, p->filter_length,
            DANAUS_CONV_MOST_LENGTH);
    return DANAUS_OK;
}

static danaus_status check_sizes(const conv_problem *p)
{
    if (p->channels < 1 || p->length < 1)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%" PRId64 " channels of length %" PRId64, p->channels,
            p->length);
    if (p->filter_length < 1 || p->filters < 1 || p->channels % p->filters)
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "%" PRId64 " filters of length %" PRId64 " for %" PRId64 " channels",
            p->filters, p->filter_length, p->channels);
    TRY(check_lengths(p));
    int64_t all, numbers = dn_conv_numbers(p);
    if (dn_mul_overflows(p->filters, 64 * (numbers + dn_conv_taps(p)), &all) ||
        dn_mul_overflows(p->channels, 8 * numbers, &all))
        return dn_fail(
            DANAUS_ERR_SHAPE, "%" PRId64 " channels of length %" PRId64 " have no size",
            p->channels, p->length);
    return DANAUS_OK;
}

/* What planes and centres exclude. */
static danaus_status check_plane(const conv_problem *p)
{
    int rows = MAX(p->filter_height, 1);
    if (p->height < 0 || p->filter_height < 0 || (p->filter_height && !p->height))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a height of %d and filters of height %d", p->height,
            p->filter_height);
    if (p->centre[0] < 0 || p->centre[0] >= rows || p->centre[1] < 0 ||
        p->centre[1] >= MAX(p->filter_length, 1))
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "the centre (%d, %d) is no place of a filter of %d x %" PRId64,
            p->centre[0], p->centre[1], rows, p->filter_length);
    int has_centre = p->centre[0] || p->centre[1];
    if (has_centre && p->kind != DANAUS_CENTRED && p->kind != DANAUS_CIRCULAR)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "only centred and circular filters have a centre");
    if (p->height && p->kind == DANAUS_BIDIRECTIONAL)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "planes have no reverse filters: give the filter a centre");
    if ((p->height || has_centre) && (p->packed || p->keep[0]))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "planes and centred filters are not %s",
            p->packed ? "packed" : "sparse");
    return DANAUS_OK;
}

static danaus_status check_box(const conv_problem *p)
{
    int64_t all = 1;
    if (p->keep[0] && dn_conv_is_periodic(p->kind))
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
    TRY(check_plane(p));
    TRY(check_sizes(p));
    TRY(check_box(p));
    TRY(dn_check_computed(p->dtype));
    if (dn_is_complex(p->dtype) && p->keep[0])
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "complex convolutions keep whole spectra");
    if (p->signals < 0 || (p->signals && p->channels % p->signals))
        return dn_fail(
            DANAUS_ERR_SHAPE, "%d signals for %" PRId64 " channels", p->signals,
            p->channels);
    if (p->effort != DANAUS_ESTIMATE && p->effort != DANAUS_MEASURE &&
        p->effort != DANAUS_TABLE_ONLY)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no effort", p->effort);
    if ((unsigned)p->accuracy > DANAUS_CONV_FAST)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no accuracy", p->accuracy);
    if (p->batch < 0)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a batch of %" PRId64 " to plan for", p->batch);
    if (p->packed && dn_conv_is_periodic(p->kind))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "circular convolutions take rows of one length, no packed sequences");
    return dn_check_reserved(p->reserved, sizeof p->reserved);
}

danaus_status dn_conv_plan_make(
    danaus_device *device, const danaus_conv_desc *desc, int64_t groups,
    int64_t short_taps, danaus_conv_plan **plan)
{
    if (!device || !desc || !plan)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a device, a description and a place for the plan are needed");
    conv_problem p = *desc;
    p.filter_length = p.filter_length ? p.filter_length : p.length;
    p.filter_height = p.filter_height ? p.filter_height : p.height;
    if (p.kind == DANAUS_CENTRED && !p.height && !p.centre[0] && !p.centre[1])
        p.kind = DANAUS_CAUSAL;
    p.filters = p.filters ? p.filters : p.channels;
    p.dtype = p.dtype ? p.dtype : DANAUS_F32;
    complete_box(&p);
    TRY(check_problem(&p));
    TRY(dn_conv_need(device, create, "long convolutions"));
    if (dn_conv_is_bank(&p) && !device->backend->conv->has_banks)
        return dn_conv_lacks(device, "filter banks: give each channel its signal");
    p.accuracy = dn_conv_accuracy(device, &p);
    danaus_conv_plan *made = dn_calloc(1, sizeof *made);
    if (!made)
        return dn_fail_memory(sizeof *made, "a plan");
    made->conv = device->backend->conv;
    made->p = p;
    made->groups = groups;
    made->short_taps = short_taps;
    snprintf(made->device, sizeof made->device, "%s", device->name);
    danaus_status status = dn_conv_make_classes(device, made);
    if (status != DANAUS_OK)
        danaus_conv_plan_destroy(made);
    else
        *plan = made;
    return status;
}

danaus_status danaus_conv_plan_create(
    danaus_device *device, const danaus_conv_desc *desc, danaus_conv_plan **plan)
{
    return dn_conv_plan_make(device, desc, 1, 0, plan);
}

void danaus_conv_plan_destroy(danaus_conv_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; i < plan->count; i++)
        if (plan->classes[i].engine)
            plan->conv->destroy(plan->classes[i].engine);
    dn_free(plan->classes);
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

danaus_status dn_conv_check_extent(
    const danaus_conv_plan *plan, const danaus_device *device, conv_extent *x)
{
    const conv_problem *p = &plan->p;
    int64_t columns = 0, bytes;
    TRY(dn_check_place(device, plan->device));
    if (x->batch < 0)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a batch of %" PRId64, x->batch);
    if (!x->offsets != !p->packed)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "plans for packed sequences, and no others, take calls with offsets");
    if (x->offsets)
        TRY(dn_conv_check_offsets(p->length, x->batch, x->offsets, &columns));
    else if (dn_mul_overflows(dn_conv_numbers(p), x->batch, &columns))
        return dn_fail(
            DANAUS_ERR_SHAPE, "a batch of %" PRId64 " is too large", x->batch);
    if (dn_mul_overflows(p->channels, columns, &x->numbers) ||
        dn_mul_overflows(x->numbers, 64, &bytes))
        return dn_fail(
            DANAUS_ERR_SHAPE, "a batch of %" PRId64 " is too large", x->batch);
    return DANAUS_OK;
}

danaus_status dn_conv_need_parts(
    const danaus_conv_plan *plan, const danaus_device *device,
    const danaus_spectrum *spectrum)
{
    if (!plan || !device || !spectrum)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a plan, a device and a spectrum are needed");
    if (spectrum->plan != plan)
        return dn_fail(DANAUS_ERR_ARGUMENT, "the spectrum was made for another plan");
    return DANAUS_OK;
}

size_t dn_conv_array_bytes(const danaus_conv_plan *plan, const conv_extent *x)
{
    return (size_t)x->numbers * danaus_dtype_size(plan->p.dtype);
}

/* ---- calls ---- */

danaus_status dn_conv_run(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, const conv_extent *x, const conv_job *job)
{
    conv_calls calls;
    TRY(dn_conv_lay_calls(plan, spectrum, x, job, &calls));
    danaus_status status = plan->conv->run(device, calls.count, calls.call);
    dn_free(calls.packed);
    return status;
}

static danaus_status job_scratch(
    const danaus_conv_plan *plan, danaus_device *device, const conv_extent *x,
    const conv_job *job, size_t *bytes)
{
    conv_calls calls;
    TRY(dn_conv_lay_calls(plan, NULL, x, job, &calls));
    *bytes = plan->conv->scratch_bytes(device, calls.count, calls.call);
    dn_free(calls.packed);
    return DANAUS_OK;
}

static danaus_status scratch_bytes(
    const danaus_conv_plan *plan, danaus_device *device, conv_extent *x,
    size_t *forward, size_t *gradient)
{
    const conv_job run = { .products = 1 }, back = { .products = 2, .sums = 1 };
    conv_call filters[CONV_MOST_CLASSES];
    size_t rows, all;
    if (!plan || !device)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan and a device are needed");
    TRY(dn_conv_check_extent(plan, device, x));
    if (x->batch < 1)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a batch of at least 1 is needed");
    TRY(job_scratch(plan, device, x, &run, &rows));
    TRY(job_scratch(plan, device, x, &back, &all));
    int count = dn_conv_lay_filters(plan, NULL, NULL, filters);
    if (forward)
        *forward = MAX(rows, plan->conv->scratch_bytes(device, count, filters));
    if (gradient)
        *gradient = all;
    return DANAUS_OK;
}

danaus_status danaus_conv_scratch_bytes(
    const danaus_conv_plan *plan, danaus_device *device, int64_t batch, size_t *forward,
    size_t *gradient)
{
    conv_extent x = { .batch = batch };
    return scratch_bytes(plan, device, &x, forward, gradient);
}

danaus_status danaus_conv_scratch_bytes_packed(
    const danaus_conv_plan *plan, danaus_device *device, int64_t sequences,
    const int64_t *offsets, size_t *forward, size_t *gradient)
{
    conv_extent x = { .batch = sequences, .offsets = offsets };
    TRY(dn_conv_need_offsets(offsets));
    return scratch_bytes(plan, device, &x, forward, gradient);
}

static danaus_status execute(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, conv_extent *x, const void *u, const void *gate_in,
    const void *gate_out, void *y)
{
    TRY(dn_conv_need_parts(plan, device, spectrum));
    TRY(dn_conv_check_extent(plan, device, x));
    if (x->numbers == 0)
        return DANAUS_OK;
    if (!u || !y)
        return dn_fail(DANAUS_ERR_ARGUMENT, "both u and y are needed");
    size_t bytes = dn_conv_array_bytes(plan, x);
    size_t in = bytes / (size_t)dn_conv_share(&plan->p);
    byte_range to = { "y", y, bytes };
    byte_range from[] = { { "u", u, in },
                          { "gate_in", gate_in, in },
                          { "gate_out", gate_out, in } };
    TRY(dn_check_apart(1, &to, 3, from));
    conv_job job = {
        .products = 1,
        .product = { { .adjoint = plan->p.correlate != 0,
                       .x = { .data = u, .factor = gate_in },
                       .sinks = 1,
                       .sink = { { .data = y, .factor = gate_out } } } },
    };
    return dn_conv_run(plan, device, spectrum, x, &job);
}

danaus_status danaus_conv_execute(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, int64_t batch, const void *u, const void *gate_in,
    const void *gate_out, void *y)
{
    conv_extent x = { .batch = batch };
    return execute(plan, device, spectrum, &x, u, gate_in, gate_out, y);
}

danaus_status danaus_conv_execute_packed(
    const danaus_conv_plan *plan, danaus_device *device,
    const danaus_spectrum *spectrum, int64_t sequences, const int64_t *offsets,
    const void *u, const void *gate_in, const void *gate_out, void *y)
{
    conv_extent x = { .batch = sequences, .offsets = offsets };
    TRY(dn_conv_need_offsets(offsets));
    return execute(plan, device, spectrum, &x, u, gate_in, gate_out, y);
}
