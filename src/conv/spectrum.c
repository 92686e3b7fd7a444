/* Spectra: filters transformed for a plan, in the order of its transform's results. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/conv_plan.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

#include <string.h>

static danaus_status check_device(
    const danaus_conv_plan *plan, const danaus_device *device)
{
    if (!plan || !device)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan and a device are needed");
    return dn_check_place(device, plan->device);
}

static danaus_status check_filters(
    const danaus_conv_plan *plan, const conv_filters *filters)
{
    if (!filters->k)
        return dn_fail(DANAUS_ERR_ARGUMENT, "filters are needed");
    if ((filters->k_reverse != NULL) != dn_conv_longest(plan)->choice.frame.reverse)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "reverse filters are given with bidirectional plans and no others");
    return DANAUS_OK;
}

static danaus_status update(
    danaus_spectrum *s, danaus_device *device, const conv_filters *filters)
{
    TRY(check_device(s->plan, device));
    TRY(check_filters(s->plan, filters));
    conv_call calls[CONV_MOST_CLASSES];
    int count = dn_conv_lay_filters(s->plan, filters, s->data, calls);
    return s->plan->conv->run(device, count, calls);
}

static conv_filters on_host(
    const danaus_conv_plan *plan, const void *k, const void *k_reverse,
    const void *skip)
{
    return (conv_filters){ k, k_reverse, skip, dn_sum_type(plan->p.dtype), 0 };
}

/* Fills a spectrum. Without filters all numbers are zero, and so is the spectrum when this
   returns. */
static danaus_status fill(
    danaus_spectrum *s, danaus_device *device, const conv_filters *filters)
{
    size_t bytes = s->plan->spectrum_bytes;
    TRY(danaus_alloc(device, bytes, &s->data));
    s->owned = 1;
    if (filters->k)
        return update(s, device, filters);
    TRY(device->backend->clear(device, s->data, bytes));
    return device->backend->sync(device);
}

/* One without memory yet; to: where the caller will have it. */
static danaus_status make(
    const danaus_conv_plan *plan, danaus_device *device, danaus_spectrum **to,
    danaus_spectrum **made)
{
    if (!to)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for the spectrum is needed");
    danaus_spectrum *s = dn_calloc(1, sizeof *s);
    if (!s)
        return dn_fail_memory(sizeof *s, "a spectrum");
    s->plan = plan;
    s->device = device;
    *made = s;
    return DANAUS_OK;
}

danaus_status danaus_spectrum_create(
    const danaus_conv_plan *plan, danaus_device *device, const void *k,
    const void *k_reverse, const void *skip, danaus_spectrum **spectrum)
{
    TRY(check_device(plan, device));
    conv_filters filters = on_host(plan, k, k_reverse, skip);
    if (k || k_reverse || skip)
        TRY(check_filters(plan, &filters));
    danaus_spectrum *s = NULL;
    TRY(make(plan, device, spectrum, &s));
    danaus_status status = fill(s, device, &filters);
    if (status != DANAUS_OK)
        danaus_spectrum_destroy(s);
    else
        *spectrum = s;
    return status;
}

danaus_status danaus_spectrum_bytes(const danaus_conv_plan *plan, size_t *bytes)
{
    if (!plan || !bytes)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan and a place for bytes are needed");
    *bytes = plan->spectrum_bytes;
    return DANAUS_OK;
}

danaus_status danaus_spectrum_create_in(
    const danaus_conv_plan *plan, danaus_device *device, void *memory, size_t bytes,
    danaus_spectrum **spectrum)
{
    TRY(check_device(plan, device));
    if (!memory || (uintptr_t)memory % DN_ALIGN)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a spectrum needs memory at a multiple of %d bytes",
            DN_ALIGN);
    if (bytes < plan->spectrum_bytes)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%zu bytes for a spectrum that takes %zu", bytes,
            plan->spectrum_bytes);
    danaus_spectrum *s = NULL;
    TRY(make(plan, device, spectrum, &s));
    s->data = memory;
    *spectrum = s;
    return DANAUS_OK;
}

danaus_status danaus_spectrum_update(
    danaus_spectrum *spectrum, danaus_device *device, const void *k,
    const void *k_reverse, const void *skip)
{
    if (!spectrum)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a spectrum is needed");
    conv_filters filters = on_host(spectrum->plan, k, k_reverse, skip);
    return update(spectrum, device, &filters);
}

danaus_status danaus_spectrum_update_from(
    danaus_spectrum *spectrum, danaus_device *device, danaus_dtype dtype, const void *k,
    const void *k_reverse, const void *skip)
{
    if (!spectrum)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a spectrum is needed");
    int is_complex = dn_is_complex(spectrum->plan->p.dtype);
    if (!dn_is_computed(dtype) || dn_is_complex(dtype) != is_complex)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "filters are %s numbers of a known type",
            is_complex ? "complex" : "real");
    conv_filters filters = { k, k_reverse, skip, dtype, 1 };
    return update(spectrum, device, &filters);
}

void danaus_spectrum_destroy(danaus_spectrum *spectrum)
{
    if (!spectrum)
        return;
    if (spectrum->owned)
        danaus_free(spectrum->device, spectrum->data);
    dn_free(spectrum);
}
