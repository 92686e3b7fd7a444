/* Filters of a stream that are replaced: new ones get a growing share of the signal and old ones
   the rest, until what these have got has rung out. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/stream.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

#include <string.h>

#define PIECE 256 /* numbers of a channel at a time */

danaus_status dn_stream_make_room(danaus_stream *s)
{
    const danaus_stream_desc *d = &s->shape.desc;
    size_t bytes = (size_t)(d->channels * PIECE) * danaus_dtype_size(d->dtype);
    s->u = dn_calloc(1, bytes);
    s->y = dn_calloc(1, bytes);
    return s->u && s->y ? DANAUS_OK : dn_fail_memory(2 * bytes, "a stream");
}

/* The number from which on a voice is silent. */
static int64_t end_of(const danaus_stream *s, int i)
{
    int64_t end = INT64_MAX;
    for (int j = i + 1; j < s->voices; j++) {
        const stream_voice *later = &s->voice[j];
        end = MIN(end, later->from + later->fade + s->voice[i].taps - 1);
    }
    return end;
}

int dn_stream_is_fading(const danaus_stream *s)
{
    for (int i = 0; i < s->voices - 1; i++)
        if (end_of(s, i) > s->time)
            return 1;
    return 0;
}

/* The share of number t that a voice gets: its own of what later ones leave. */
static double share_of(const danaus_stream *s, int i, int64_t t)
{
    double share = 1;
    for (int j = s->voices - 1; j >= i && j > 0; j--) {
        const stream_voice *v = &s->voice[j];
        double own = (double)(t - v->from + 1) / (double)(v->fade + 1);
        own = MIN(own, 1);
        share *= j == i ? own : 1 - own;
    }
    return share;
}

/* Numbers [at, at + n) of every channel of a block of `count`. */
typedef struct piece {
    int64_t count, at, n;
} piece;

/* The voice's share of a piece of u. */
static void take_share(const danaus_stream *s, int i, piece p, const void *u)
{
    const danaus_stream_desc *d = &s->shape.desc;
    for (int64_t t = 0; t < p.n; t++) {
        double share = share_of(s, i, s->time + t);
        for (int64_t h = 0; h < d->channels; h++) {
            int64_t from = h * p.count + p.at + t, to = h * p.n + t;
            if (d->dtype == DANAUS_F64)
                ((double *)s->u)[to] = share * ((const double *)u)[from];
            else
                ((float *)s->u)[to] = (float)(share * ((const float *)u)[from]);
        }
    }
}

/* Adds what the voice has made of it, or stores what the first one has. */
static void add_to(const danaus_stream *s, int is_first, piece p, void *y)
{
    const danaus_stream_desc *d = &s->shape.desc;
    for (int64_t h = 0; h < d->channels; h++)
        for (int64_t t = 0; t < p.n; t++) {
            int64_t from = h * p.n + t, to = h * p.count + p.at + t;
            if (d->dtype == DANAUS_F64)
                ((double *)y)[to] =
                    ((double *)s->y)[from] + (is_first ? 0 : ((double *)y)[to]);
            else
                ((float *)y)[to] =
                    ((float *)s->y)[from] + (is_first ? 0 : ((float *)y)[to]);
        }
}

/* No voice ends inside a piece, however the signal is cut into blocks. */
static piece next_piece(const danaus_stream *s, int64_t count, int64_t at)
{
    piece p = { count, at, MIN(count - at, PIECE) };
    for (int i = 0; i < s->voices; i++)
        if (end_of(s, i) > s->time)
            p.n = MIN(p.n, end_of(s, i) - s->time);
    return p;
}

danaus_status dn_stream_fade(
    danaus_stream *s, danaus_device *device, int64_t count, const void *u, void *y)
{
    piece p;
    for (int64_t at = 0; at < count; at += p.n) {
        int sounding = 0;
        p = next_piece(s, count, at);
        for (int i = 0; i < s->voices; i++) {
            const stream_voice *v = &s->voice[i];
            if (end_of(s, i) <= s->time)
                continue;
            take_share(s, i, p, u);
            TRY(s->conv->stream_run(
                device, v->engine, s->time - v->from, p.n, s->u, s->y));
            add_to(s, !sounding++, p, y);
        }
        s->time += p.n;
    }
    return DANAUS_OK;
}

static danaus_status check_next(
    const danaus_stream *s, const danaus_stream *next, int64_t fade)
{
    if (!s || !next || s == next)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a stream and another one are needed");
    const danaus_stream_desc *a = &s->shape.desc, *b = &next->shape.desc;
    if (fade < 0 || fade > INT64_MAX / 4)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a fade over %lld numbers", (long long)fade);
    if (!s->u)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "streams of %s keep their filters", s->device);
    if (strcmp(s->device, next->device) || a->dtype != b->dtype ||
        a->channels != b->channels || next->time || next->voices > 1)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "filters are replaced by those of a stream of as many "
                                 "channels, of the same "
                                 "type and device, that has seen no signal");
    return DANAUS_OK;
}

/* Forgets silent voices. */
static void sweep(danaus_stream *s)
{
    int left = 0;
    int64_t end[DANAUS_STREAM_MOST_FADING + 1];
    for (int i = 0; i < s->voices; i++)
        end[i] = end_of(s, i);
    for (int i = 0; i < s->voices; i++)
        if (end[i] <= s->time)
            s->conv->stream_destroy(s->voice[i].engine);
        else
            s->voice[left++] = s->voice[i];
    s->voices = left;
}

danaus_status danaus_stream_replace(
    danaus_stream *stream, danaus_stream *next, int64_t fade)
{
    TRY(check_next(stream, next, fade));
    sweep(stream);
    if (stream->voices > DANAUS_STREAM_MOST_FADING)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "%d replaced filters still sound",
            stream->voices - 1);
    stream_voice *v = &stream->voice[stream->voices++];
    *v = next->voice[0];
    v->from = stream->time;
    v->fade = fade;
    next->voices = 0;
    danaus_stream_destroy(next);
    return DANAUS_OK;
}
