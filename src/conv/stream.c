/* Streams: checks of the arguments, and which work is due when. fade.c replaces filters.

   Taps below STREAM_HEAD are summed directly. Level l works in blocks of b = 64 4^l numbers.
   It has the taps from b up to 4 b, the last level those up to the end, in parts of b taps.
   When a block is complete, at time p, the window of the last 2 b numbers is transformed, and

       y[p + r] += sum over parts i of (K_i X(p - i b))[b + r],    r < b,              (11)

   where X(q) is the window that ended at q. Part i of level l begins at lag (i + 1) b and needs
   only numbers before p, so y of the next block is ready in time. Products with past windows
   are computed while the block fills. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/stream.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/byte_range.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GROWTH     4
#define MOST_BLOCK 16384

static stream_shape shape_of(const danaus_stream_desc *desc)
{
    stream_shape s = { .desc = *desc, .ring = 2 * STREAM_HEAD };
    int64_t taps = desc->filter_length;
    for (int64_t b = STREAM_HEAD; b < taps && s.levels < STREAM_MOST_LEVELS;
         b *= GROWTH) {
        int64_t end = b == MOST_BLOCK ? taps : MIN(taps, GROWTH * b);
        s.level[s.levels++] = (stream_level){ b, CEIL_DIV(end - b, b) };
        s.ring = 2 * b;
    }
    return s;
}

/* Parts 1 ... whose time has come when `filled` numbers of a block are there. */
static int64_t parts_due(const stream_level *l, int64_t filled)
{
    return 1 + (l->parts - 1) * filled / l->block;
}

stream_step dn_stream_step(const stream_shape *s, int64_t time, int64_t there)
{
    stream_step step = { .n = MIN(there, STREAM_HEAD - time % STREAM_HEAD) };
    for (int i = 0; i < s->levels; i++) {
        const stream_level *l = &s->level[i];
        int64_t filled = time % l->block, end = filled + step.n;
        step.level[i].parts = (range){ parts_due(l, filled), parts_due(l, end) };
        step.level[i].number = time / l->block + 1;
        step.level[i].complete = end == l->block;
    }
    return step;
}

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
    return dn_check_reserved(d->reserved, sizeof d->reserved);
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
    s->shape = shape_of(&d);
    snprintf(s->device, sizeof s->device, "%s", device->name);
    stream_voice v = { .taps = d.filter_length };
    danaus_status status =
        device->backend->on_host ? dn_stream_make_room(s) : DANAUS_OK;
    status = status ? status : s->conv->stream_create(device, &s->shape, k, &v.engine);
    if (!status)
        s->voice[s->voices++] = v;
    if (status != DANAUS_OK)
        danaus_stream_destroy(s);
    else
        *stream = s;
    return status;
}

void danaus_stream_destroy(danaus_stream *stream)
{
    if (!stream)
        return;
    for (int i = 0; i < stream->voices; i++)
        stream->conv->stream_destroy(stream->voice[i].engine);
    dn_free(stream->u);
    dn_free(stream->y);
    dn_free(stream);
}

danaus_status danaus_stream_reset(danaus_stream *stream)
{
    if (!stream)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a stream is needed");
    stream_voice *last = &stream->voice[stream->voices - 1];
    for (stream_voice *v = stream->voice; v < last; v++)
        stream->conv->stream_destroy(v->engine);
    stream->voice[0] = (stream_voice){ .engine = last->engine, .taps = last->taps };
    stream->voices = 1;
    stream->conv->stream_reset(stream->voice[0].engine);
    stream->time = 0;
    return DANAUS_OK;
}

danaus_status danaus_stream_run(
    danaus_stream *stream, danaus_device *device, int64_t count, const void *u, void *y)
{
    if (!stream || !device)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a stream and a device are needed");
    TRY(dn_check_place(device, stream->device));
    const danaus_stream_desc *d = &stream->shape.desc;
    int64_t bytes;
    if (count < 0 || dn_mul_overflows(d->channels, count, &bytes) ||
        dn_mul_overflows(bytes, 64, &bytes))
        return dn_fail(DANAUS_ERR_ARGUMENT, "a block of %" PRId64, count);
    if (count == 0)
        return DANAUS_OK;
    if (!u || !y)
        return dn_fail(DANAUS_ERR_ARGUMENT, "both u and y are needed");
    size_t block = (size_t)(d->channels * count) * danaus_dtype_size(d->dtype);
    byte_range to = { "y", y, block }, from = { "u", u, block };
    TRY(dn_check_apart(1, &to, 1, &from));
    if (dn_stream_is_fading(stream))
        return dn_stream_fade(stream, device, count, u, y);
    const stream_voice *v = &stream->voice[stream->voices - 1];
    TRY(stream->conv->stream_run(
        device, v->engine, stream->time - v->from, count, u, y));
    stream->time += count;
    return DANAUS_OK;
}
