/* Streams: what is asked for, checked. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/conv_plan.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct danaus_stream {
    const conv_backend *conv;
    stream_engine *engine;
    danaus_stream_desc desc;
    char device[32];
};

static danaus_status check_stream(const danaus_stream_desc *d)
{
    int64_t all;
    if (d->channels < 1 || d->filter_length < 1)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%" PRId64 " channels with %" PRId64 " taps",
            d->channels, d->filter_length);
    if (d->filter_length > DANAUS_CONV_MOST_LENGTH)
        return dn_fail(
            DANAUS_ERR_SHAPE, "%" PRId64 " taps; at most %" PRId64, d->filter_length,
            DANAUS_CONV_MOST_LENGTH);
    if (d->filters < 1 || d->channels % d->filters)
        return dn_fail(
            DANAUS_ERR_SHAPE, "%" PRId64 " filters for %" PRId64 " channels",
            d->filters, d->channels);
    if (d->dtype != DANAUS_F32 && d->dtype != DANAUS_F64)
        return dn_fail(DANAUS_ERR_ARGUMENT, "streams are f32 or f64");
    if (dn_mul_overflows(d->channels, d->filter_length + 65536, &all) ||
        dn_mul_overflows(all, 64, &all))
        return dn_fail(
            DANAUS_ERR_SHAPE, "%" PRId64 " channels of %" PRId64 " taps have no size",
            d->channels, d->filter_length);
    return dn_conv_check_reserved(d->reserved);
}

danaus_status danaus_stream_create(
    danaus_device *device, const danaus_stream_desc *desc, const void *k,
    danaus_stream **stream)
{
    if (!device || !desc || !k || !stream)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a device, a description, filters and a place for the stream are needed");
    danaus_stream_desc d = *desc;
    d.filters = d.filters ? d.filters : d.channels;
    d.dtype = d.dtype ? d.dtype : DANAUS_F32;
    TRY(check_stream(&d));
    TRY(dn_conv_need(device, stream_create, "streams"));
    danaus_stream *s = dn_calloc(1, sizeof *s);
    if (!s)
        return dn_fail_memory(sizeof *s, "a stream");
    s->conv = device->backend->conv;
    s->desc = d;
    snprintf(s->device, sizeof s->device, "%s", device->name);
    danaus_status status = s->conv->stream_create(device, &d, k, &s->engine);
    if (status != DANAUS_OK)
        dn_free(s);
    else
        *stream = s;
    return status;
}

void danaus_stream_destroy(danaus_stream *stream)
{
    if (stream)
        stream->conv->stream_destroy(stream->engine);
    dn_free(stream);
}

danaus_status danaus_stream_reset(danaus_stream *stream)
{
    if (!stream)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a stream is needed");
    stream->conv->stream_reset(stream->engine);
    return DANAUS_OK;
}

danaus_status danaus_stream_run(
    danaus_stream *stream, danaus_device *device, int64_t count, const void *u, void *y)
{
    if (!stream || !device)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a stream and a device are needed");
    if (strcmp(stream->device, device->name))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "the stream was made for %s, this device is %s",
            stream->device, device->name);
    int64_t bytes;
    if (count < 0 || dn_mul_overflows(stream->desc.channels, count, &bytes) ||
        dn_mul_overflows(bytes, 64, &bytes))
        return dn_fail(DANAUS_ERR_ARGUMENT, "a block of %" PRId64, count);
    if (count == 0)
        return DANAUS_OK;
    if (!u || !y)
        return dn_fail(DANAUS_ERR_ARGUMENT, "both u and y are needed");
    size_t block =
        (size_t)(stream->desc.channels * count) * danaus_dtype_size(stream->desc.dtype);
    piece to = { "y", y, block }, from = { "u", u, block };
    TRY(dn_conv_check_apart(1, &to, 1, &from));
    return stream->conv->stream_run(device, stream->engine, count, u, y);
}
