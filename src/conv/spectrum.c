/* Spectra: filters transformed for a plan, in the order that its transform leaves. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/conv_plan.h"

#include "base/mem.h"
#include "base/status.h"

#include <string.h>

static danaus_status check_filters(
    const danaus_conv_plan *plan, const danaus_device *device, const void *k,
    const void *k_reverse)
{
    if (!plan || !device || !k)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a plan, a device and filters are needed");
    if (strcmp(plan->device, device->name))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "the plan was made for %s, this device is %s",
            plan->device, device->name);
    if ((k_reverse != NULL) != (plan->p.kind == DANAUS_BIDIRECTIONAL))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "reverse filters are given with bidirectional plans and no others");
    return DANAUS_OK;
}

danaus_status danaus_spectrum_create(
    const danaus_conv_plan *plan, danaus_device *device, const void *k,
    const void *k_reverse, const void *skip, danaus_spectrum **spectrum)
{
    TRY(check_filters(plan, device, k, k_reverse));
    if (!spectrum)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for the spectrum is needed");
    danaus_spectrum *s = dn_calloc(1, sizeof *s);
    if (!s)
        return dn_fail_memory(sizeof *s, "a spectrum");
    s->plan = plan;
    s->device = device;
    danaus_status status = danaus_alloc(
        device, (size_t)plan->p.filters * plan->engine->filter_bytes, &s->data);
    if (status == DANAUS_OK)
        status = danaus_spectrum_update(s, device, k, k_reverse, skip);
    if (status != DANAUS_OK)
        danaus_spectrum_destroy(s);
    else
        *spectrum = s;
    return status;
}

danaus_status danaus_spectrum_update(
    danaus_spectrum *spectrum, danaus_device *device, const void *k,
    const void *k_reverse, const void *skip)
{
    if (!spectrum)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a spectrum is needed");
    const danaus_conv_plan *plan = spectrum->plan;
    TRY(check_filters(plan, device, k, k_reverse));
    conv_filters filters = { k, k_reverse, skip };
    return plan->conv->transform(device, plan->engine, &filters, spectrum->data);
}

void danaus_spectrum_destroy(danaus_spectrum *spectrum)
{
    if (!spectrum)
        return;
    danaus_free(spectrum->device, spectrum->data);
    dn_free(spectrum);
}
