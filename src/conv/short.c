/* Short convolutions and their gradients: checks of the arguments. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/conv_plan.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/byte_range.h"
#include "base/status.h"

#include <inttypes.h>

static danaus_status check_short(const danaus_short_desc *d, int64_t batch)
{
    int64_t all;
    if (d->channels < 1 || d->length < 1 || batch < 0)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%" PRId64 " x %" PRId64 " rows of length %" PRId64,
            batch, d->channels, d->length);
    if (d->taps < 1 || d->taps > DANAUS_SHORT_MOST_TAPS)
        return dn_fail(
            DANAUS_ERR_SHAPE, "%" PRId64 " taps; 1 to %d are few", d->taps,
            DANAUS_SHORT_MOST_TAPS);
    if (!dn_is_computed(d->dtype) || dn_is_complex(d->dtype))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%s (%d) is no real element type",
            danaus_dtype_name(d->dtype), d->dtype);
    if (d->layout != DANAUS_CHANNELS_FIRST && d->layout != DANAUS_CHANNELS_LAST)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no layout of channels", d->layout);
    if (dn_mul_overflows(d->channels, d->length, &all) ||
        dn_mul_overflows(all, batch, &all) || dn_mul_overflows(all, 1024, &all) ||
        dn_mul_overflows(d->channels, 4096, &all))
        return dn_fail(DANAUS_ERR_SHAPE, "the rows have no size");
    return dn_check_reserved(d->reserved, sizeof d->reserved);
}

/* Bytes of u or y, of all filters, of all biases. */
typedef struct short_sizes {
    size_t rows, filters, bias;
} short_sizes;

static short_sizes sizes_of(const danaus_short_desc *d, int64_t batch)
{
    size_t sums = d->dtype == DANAUS_F64 ? sizeof(double) : sizeof(float);
    return (short_sizes){
        .rows = (size_t)(batch * d->channels * d->length) * danaus_dtype_size(d->dtype),
        .filters = (size_t)(d->channels * d->taps) * sums,
        .bias = (size_t)d->channels * sums,
    };
}

/* What both calls begin with; d gets the description, its type filled in. */
static danaus_status open_short(
    const danaus_device *device, const danaus_short_desc *desc, int64_t batch,
    danaus_short_desc *d)
{
    if (!device || !desc)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a device and a description are needed");
    *d = *desc;
    d->dtype = d->dtype ? d->dtype : DANAUS_F32;
    return check_short(d, batch);
}

danaus_status danaus_short_conv(
    danaus_device *device, const danaus_short_desc *desc, int64_t batch, const void *k,
    const void *bias, const void *u, void *y)
{
    danaus_short_desc d;
    TRY(open_short(device, desc, batch, &d));
    TRY(dn_conv_need(device, short_conv, "convolutions of few taps"));
    if (batch == 0)
        return DANAUS_OK;
    if (!k || !u || !y)
        return dn_fail(DANAUS_ERR_ARGUMENT, "filters, u and y are needed");
    short_sizes size = sizes_of(&d, batch);
    byte_range to = { "y", y, size.rows };
    byte_range from[] = { { "u", u, size.rows },
                          { "k", k, size.filters },
                          { "bias", bias, size.bias } };
    TRY(dn_check_apart(1, &to, 3, from));
    short_operands o = {
        .desc = d, .batch = batch, .k = k, .bias = bias, .u = u, .y = y
    };
    return device->backend->conv->short_conv(device, &o);
}

static danaus_status check_gradients(
    int64_t batch, const void *k, const void *u, const void *dy,
    const danaus_short_gradients *g)
{
    if (!g || !dy || batch < 1)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "dy, gradients and a batch of at least 1 are needed");
    if ((g->du && !k) || (g->dk && !u))
        return dn_fail(DANAUS_ERR_ARGUMENT, "du needs the filters, dk needs u");
    return dn_check_reserved(g->reserved, sizeof g->reserved);
}

danaus_status danaus_short_conv_gradient(
    danaus_device *device, const danaus_short_desc *desc, int64_t batch, const void *k,
    const void *u, const void *dy, const danaus_short_gradients *gradients)
{
    danaus_short_desc d;
    TRY(open_short(device, desc, batch, &d));
    TRY(dn_conv_need(device, short_conv_gradient, "gradients of few taps"));
    TRY(check_gradients(batch, k, u, dy, gradients));
    short_sizes size = sizes_of(&d, batch);
    byte_range in[] = { { "u", u, size.rows },
                        { "dy", dy, size.rows },
                        { "k", k, size.filters } };
    byte_range out[] = { { "du", gradients->du, size.rows },
                         { "dk", gradients->dk, size.filters },
                         { "dbias", gradients->dbias, size.bias } };
    TRY(dn_check_apart(3, out, 3, in));
    short_gradient_operands o = {
        .desc = d, .batch = batch, .k = k, .u = u, .dy = dy, .to = *gradients
    };
    return device->backend->conv->short_conv_gradient(device, &o);
}
