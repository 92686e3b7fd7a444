/* Streams on GPUs: the past of every channel in a ring, and direct sums over all taps
   (texts/conv_stream.cu). Each number reads the whole filter; generation, which has one number
   at a time, must do that anyway. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/conv/engine.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

#include <string.h>

#define SEGMENT 256 /* taps that a thread sums: as in texts/conv_stream.cuh */
#define TIMES   8   /* numbers of a block of threads: texts/conv_stream.cu */
#define LANES   32
#define EACH    256 /* threads: texts/conv_stream_put.cu */
/* Numbers of a channel that come into the ring at once. */
#define CHUNK 4096

enum { PUT, SUM, FUNCTIONS };

struct stream_engine {
    stream_shape shape;
    gpu_shared *gpu;
    int64_t segments, columns; /* of taps; of the ring */
    void *k, *ring;
    gpu_function function[FUNCTIONS];
};

static int64_t size_of(const stream_engine *s)
{
    return dn_size_of(s->shape.desc.dtype);
}

static size_t ring_bytes(const stream_engine *s)
{
    return (size_t)(s->shape.desc.channels * SEGMENT * s->columns * size_of(s));
}

/* ---- making ---- */

/* Taps [filter][SEGMENT][segment], zeros past the last. */
static danaus_status put_taps(gpu_device *d, stream_engine *s, const void *k)
{
    const danaus_stream_desc *p = &s->shape.desc;
    const backend *b = d->base.backend;
    size_t size = (size_t)size_of(s);
    size_t bytes = (size_t)(p->filters * SEGMENT * s->segments) * size;
    char *made = dn_calloc(bytes, 1);
    if (!made)
        return dn_fail_memory(bytes, "the taps of a stream");
    for (int64_t f = 0; f < p->filters; f++)
        for (int64_t t = 0; t < p->filter_length; t++) {
            int64_t at = (f * SEGMENT + t % SEGMENT) * s->segments + t / SEGMENT;
            const char *from =
                (const char *)k + (size_t)(f * p->filter_length + t) * size;
            memcpy(made + (size_t)at * size, from, size);
        }
    danaus_status status = b->alloc(&d->base, bytes, &s->k);
    status = status ? status : b->copy(&d->base, s->k, made, bytes);
    dn_free(made);
    return status;
}

static danaus_status load_functions(gpu_device *d, stream_engine *s)
{
    static const char *const texts[] = { "conv_stream_put.cu", "conv_stream.cu" };
    gpu_use *uses = dn_calloc(FUNCTIONS, sizeof *uses);
    if (!uses)
        return dn_fail_memory(FUNCTIONS * sizeof *uses, "the texts of kernels");
    for (int i = 0; i < FUNCTIONS; i++) {
        text to = { uses[i].defines, sizeof uses[i].defines, 0 };
        uses[i].text = texts[i];
        uses[i].entry = "conv";
        dn_text(&to, "#define TYPE_%s 1\n", danaus_dtype_name(s->shape.desc.dtype));
    }
    danaus_status status = dn_gpu_load_uses(d, uses, FUNCTIONS, s->function);
    dn_free(uses);
    return status;
}

void dn_gpu_stream_destroy(stream_engine *s)
{
    if (s->k)
        s->gpu->driver->free(s->gpu, s->k);
    if (s->ring)
        s->gpu->driver->free(s->gpu, s->ring);
    dn_free(s);
}

danaus_status dn_gpu_stream_create(
    danaus_device *dev, const stream_shape *shape, const void *k,
    stream_engine **stream)
{
    gpu_device *d = (gpu_device *)dev;
    stream_engine *s = dn_calloc(1, sizeof *s);
    if (!s)
        return dn_fail_memory(sizeof *s, "a stream");
    s->shape = *shape;
    s->gpu = d->shared;
    s->segments = CEIL_DIV(shape->desc.filter_length, SEGMENT);
    s->columns = s->segments + CEIL_DIV(CHUNK, SEGMENT) + 1;
    danaus_status status = load_functions(d, s);
    status = status ? status : put_taps(d, s, k);
    status = status ? status : dev->backend->alloc(dev, ring_bytes(s), &s->ring);
    if (status)
        dn_gpu_stream_destroy(s);
    else
        *stream = s;
    return status;
}

/* The first call afterwards finds that it is the first. */
void dn_gpu_stream_reset(stream_engine *s) { (void)s; }

/* ---- running ---- */

typedef struct stream_call {
    const stream_engine *s;
    int64_t time, whole; /* numbers before; of a channel, in this call */
    const void *u;
    void *y;
} stream_call;

/* Numbers from, ..., from + count - 1 of a call. */
static danaus_status run_chunk(
    gpu_device *d, const stream_call *c, int64_t from, int64_t count)
{
    const stream_engine *s = c->s;
    const danaus_stream_desc *p = &s->shape.desc;
    int64_t channels = p->channels, share = channels / p->filters, columns = s->columns;
    int64_t time = c->time + from, whole = c->whole;
    int segments = (int)s->segments, wide = (int)columns;
    const void *u = c->u, *k = s->k;
    void *ring = s->ring, *y = c->y;
    const gpu_argument put[] = { ARG(u),     ARG(ring),    ARG(channels),
                                 ARG(whole), ARG(from),    ARG(count),
                                 ARG(time),  ARG(columns), { 0 } };
    gpu_launch l = dn_gpu_line(CEIL_DIV(channels * count, EACH), EACH);
    TRY(dn_gpu_launch(d, s->function[PUT], &l, put));
    const gpu_argument sum[] = { ARG(k),        ARG(ring), ARG(y),     ARG(share),
                                 ARG(whole),    ARG(from), ARG(count), ARG(time),
                                 ARG(segments), ARG(wide), { 0 } };
    l = dn_gpu_line(channels * CEIL_DIV(count, TIMES), TIMES * LANES);
    return dn_gpu_launch(d, s->function[SUM], &l, sum);
}

static danaus_status run(gpu_device *d, const stream_call *c)
{
    int capturing = 0;
    TRY(d->shared->driver->capturing(d, &capturing));
    if (capturing)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a block of a signal cannot be captured: a graph would put it in the same "
            "place of the signal each time");
    if (c->time == 0)
        TRY(d->base.backend->clear(&d->base, c->s->ring, ring_bytes(c->s)));
    for (int64_t from = 0; from < c->whole; from += CHUNK)
        TRY(run_chunk(d, c, from, MIN(CHUNK, c->whole - from)));
    return DANAUS_OK;
}

danaus_status dn_gpu_stream_run(
    danaus_device *dev, stream_engine *s, int64_t time, int64_t count, const void *u,
    void *y)
{
    gpu_device *d = (gpu_device *)dev;
    stream_call c = { s, time, count, u, y };
    RETURN_ENTERED(d, run(d, &c));
}
