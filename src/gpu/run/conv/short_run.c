/* Short convolutions and their gradients. One launch computes y. One launch computes parts of
   dk and dbias, and another one adds them up. du is computed with the parts where possible,
   otherwise by a launch before. Packed sequences are first copied to scratch, as tables that
   are arguments of launches. */
// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"
#include "base/status.h"
#include "gpu/run/conv/engine.h"
#include "gpu/run/gradient.h"
#include "gpu/conv/conv_short.h"
#include "math/pattern.h"

#define OFTEN 32 /* calls of one launch after which a graph is worth being made */
#define CHUNK 84 /* sequences of a table */

/* ---- sequences ---- */

/* Those of a call that are not empty, on the device. */
typedef struct sequences {
    const void *of; /* NULL: rows are one each */
    int64_t count;
} sequences;

static size_t sequences_bytes(const short_sequences *s)
{
    return s->offsets ? (size_t)s->count * sizeof(packed_window) : 0;
}

static danaus_status put_sequences(
    gpu_device *d, danaus_dtype dtype, const short_sequences *from, packed_window *to,
    sequences *made)
{
    const problem p = { .dtype = dtype };
    packed_window chunk[CHUNK];
    gpu_function function;
    int64_t n = 0;
    *made = (sequences){ NULL, 0 };
    if (!from->offsets)
        return DANAUS_OK;
    TRY(dn_gpu_function(d, dn_gpu_short_sequences(), &p, 0, &function));
    made->of = to;
    for (int64_t i = 0; i < from->count; i++) {
        int64_t offset = from->offsets[i], length = from->offsets[i + 1] - offset;
        if (length)
            chunk[n++] = (packed_window){ offset, length, 0 };
        if (n == CHUNK || (n && i + 1 == from->count)) {
            TRY(dn_gpu_conv_put_packed(d, function, chunk, n, to + made->count));
            made->count += n;
            n = 0;
        }
    }
    return DANAUS_OK;
}

/* ---- launches ---- */

/* y, or du: what the taps, or the taps reversed, make of x. */
typedef struct short_pass {
    const danaus_short_desc *desc;
    int64_t batch, shift;
    int reversed;
    const void *k, *bias, *x;
    void *y;
    sequences packed;
} short_pass;

static danaus_status launch_pass(gpu_device *d, const short_pass *c)
{
    int64_t channels = c->desc->channels, length = c->desc->length, batch = c->batch;
    int64_t rows = batch * channels;
    int taps = (int)c->desc->taps, reversed = c->reversed, shift = (int)c->shift;
    const void *k = c->k, *bias = c->bias, *x = c->x;
    void *y = c->y;
    gpu_function function;
    sequences packed = c->packed;
    gpu_short s =
        dn_gpu_short(&d->facts, c->desc, batch, packed.of != NULL, shift, x, y);
    const gpu_argument first[] = { ARG(x),       ARG(k),         ARG(bias),
                                   ARG(y),       ARG(channels),  ARG(length),
                                   ARG(rows),    ARG(taps),      ARG(reversed),
                                   ARG(s.ahead), ARG(packed.of), ARG(packed.count),
                                   ARG(s.steps), { 0 } };
    const gpu_argument last[] = {
        ARG(x),        ARG(k),      ARG(bias),         ARG(y),
        ARG(channels), ARG(length), ARG(batch),        ARG(taps),
        ARG(reversed), ARG(shift),  ARG(s.lanes_log2), ARG(s.steps),
        { 0 }
    };
    TRY(dn_gpu_function(d, s.kernel, &s.p, s.variant, &function));
    return dn_gpu_launch(
        d, function, &s.launch, c->desc->layout == DANAUS_CHANNELS_LAST ? last : first);
}

static int64_t shift_of(const danaus_short_desc *d)
{
    return d->centred ? (d->taps - 1) / 2 : 0;
}

/* ---- y ---- */

static gpu_need need_of_conv(gpu_device *d, void *arg)
{
    const short_operands *o = arg;
    (void)d;
    return (gpu_need){ .scratch = sequences_bytes(&o->packed) };
}

static danaus_status run_conv(gpu_device *d, void *arg)
{
    const short_operands *o = arg;
    short_pass c = { &o->desc, o->batch, shift_of(&o->desc), 0, o->k, o->bias,
                     o->u,     o->y,     { NULL, 0 } };
    TRY(put_sequences(d, o->desc.dtype, &o->packed, d->scratch, &c.packed));
    return launch_pass(d, &c);
}

/* Keys of these calls begin unlike those of others. */
static void begin_key(
    gpu_key *key, danaus_status (*run)(gpu_device *d, void *arg),
    const danaus_short_desc *desc, int64_t batch)
{
    dn_gpu_key_begin(key);
    dn_gpu_key_add(key, &run, sizeof run);
    dn_gpu_key_add(key, desc, sizeof *desc);
    dn_gpu_key_add(key, &batch, sizeof batch);
}

static danaus_status conv_or_replay(gpu_device *d, short_operands *o)
{
    gpu_key key;
    const void *operands[] = { o->k, o->bias, o->u, o->y };
    gpu_job call = { need_of_conv, run_conv, o, OFTEN };
    if (o->packed.offsets)
        return d->shared->driver->call(d, NULL, &call); /* offsets seldom come again */
    begin_key(&key, run_conv, &o->desc, o->batch);
    dn_gpu_key_end_form(&key);
    dn_gpu_key_add(&key, operands, sizeof operands);
    return d->shared->driver->call(d, &key, &call);
}

danaus_status dn_gpu_short_conv(danaus_device *dev, const short_operands *operands)
{
    gpu_device *d = (gpu_device *)dev;
    short_operands o = *operands;
    RETURN_ENTERED(d, conv_or_replay(d, &o));
}

/* ---- gradients ---- */

static gpu_short plan_sums(const short_gradient_operands *o)
{
    return dn_gpu_short_sums(
        &o->desc, o->batch, o->packed.offsets != NULL, shift_of(&o->desc), o->dy,
        o->to.dk ? o->u : NULL, o->to.du);
}

/* Bytes of parts: those of dk, then those of dbias. */
static size_t dk_bytes(const short_gradient_operands *o, int64_t parts)
{
    int64_t size = dn_size_of(dn_sum_type(o->desc.dtype));
    return o->to.dk ? dn_gpu_aligned(parts * o->desc.channels * o->desc.taps * size)
                    : 0;
}

/* Bytes of all parts, behind which sequences lie. */
static size_t parts_bytes(const short_gradient_operands *o)
{
    if (!o->to.dk && !o->to.dbias)
        return 0;
    int64_t parts = plan_sums(o).parts;
    int64_t size = dn_size_of(dn_sum_type(o->desc.dtype));
    size_t dbias = dn_gpu_aligned(parts * o->desc.channels * size);
    return dk_bytes(o, parts) + (o->to.dbias ? dbias : 0);
}

static gpu_need need_of_gradient(gpu_device *d, void *arg)
{
    const short_gradient_operands *o = arg;
    (void)d;
    return (gpu_need){ .scratch = parts_bytes(o) + sequences_bytes(&o->packed) };
}

/* to[channels][taps] from its parts. */
static danaus_status add_parts(
    gpu_device *d, gpu_sums *sums, const danaus_short_desc *desc, int64_t taps,
    int64_t parts, const void *from, void *to)
{
    problem p = { .dtype = desc->dtype, .pattern = { 1, desc->channels, taps, 1 } };
    weights_view view = dn_weights_view(to, dn_sum_type(desc->dtype), p.pattern);
    gpu_sum sum = dn_gpu_sum(desc->dtype, parts, p.pattern, &view);
    return dn_gpu_add_sum(d, sums, &p, from, &sum);
}

static danaus_status make_sums(
    gpu_device *d, const short_gradient_operands *o, const gpu_short *plan,
    sequences packed)
{
    const danaus_short_desc *desc = &o->desc;
    gpu_short s = *plan;
    int64_t channels = desc->channels, length = desc->length, batch = o->batch;
    int taps = (int)desc->taps, shift = (int)shift_of(desc);
    const void *dy = o->dy, *u = o->to.dk ? o->u : NULL, *k = o->k;
    void *du = o->to.du, *dk = o->to.dk ? d->scratch : NULL;
    void *dbias = o->to.dbias ? (char *)d->scratch + dk_bytes(o, s.parts) : NULL;
    gpu_function function;
    const gpu_argument first[] = { ARG(dy),       ARG(u),         ARG(k),
                                   ARG(du),       ARG(dk),        ARG(dbias),
                                   ARG(channels), ARG(length),    ARG(batch),
                                   ARG(s.parts),  ARG(taps),      ARG(s.ahead),
                                   ARG(s.groups), ARG(packed.of), ARG(packed.count),
                                   { 0 } };
    const gpu_argument last[] = {
        ARG(dy),    ARG(u),        ARG(k),        ARG(du),           ARG(dk),
        ARG(dbias), ARG(channels), ARG(length),   ARG(batch),        ARG(s.parts),
        ARG(taps),  ARG(shift),    ARG(s.groups), ARG(s.lanes_log2), { 0 }
    };
    TRY(dn_gpu_function(d, s.kernel, &s.p, s.variant, &function));
    TRY(dn_gpu_launch(
        d, function, &s.launch, desc->layout == DANAUS_CHANNELS_LAST ? last : first));
    gpu_sums sums = { .count = 0 };
    if (dk)
        TRY(add_parts(d, &sums, desc, desc->taps, s.parts, dk, o->to.dk));
    if (dbias)
        TRY(add_parts(d, &sums, desc, 1, s.parts, dbias, o->to.dbias));
    return dn_gpu_make_sums(d, &sums);
}

static danaus_status run_gradient(gpu_device *d, void *arg)
{
    const short_gradient_operands *o = arg;
    int64_t shift = o->desc.taps - 1 - shift_of(&o->desc);
    short_pass back = { &o->desc, o->batch, shift,    1,          o->k,
                        NULL,     o->dy,    o->to.du, { NULL, 0 } };
    gpu_short sums = plan_sums(o);
    packed_window *behind =
        (packed_window *)(void *)((char *)d->scratch + parts_bytes(o));
    TRY(put_sequences(d, o->desc.dtype, &o->packed, behind, &back.packed));
    if (o->to.du && !sums.makes_du)
        TRY(launch_pass(d, &back));
    if (!o->to.dk && !o->to.dbias)
        return DANAUS_OK;
    return make_sums(d, o, &sums, back.packed);
}

static danaus_status gradient_or_replay(gpu_device *d, short_gradient_operands *o)
{
    gpu_key key;
    int wanted[] = { o->to.du != NULL, o->to.dk != NULL, o->to.dbias != NULL };
    const void *operands[] = { o->k, o->u, o->dy, o->to.du, o->to.dk, o->to.dbias };
    gpu_job call = { need_of_gradient, run_gradient, o, 2 };
    if (o->packed.offsets)
        return d->shared->driver->call(d, NULL, &call); /* offsets seldom come again */
    begin_key(&key, run_gradient, &o->desc, o->batch);
    dn_gpu_key_add(&key, wanted, sizeof wanted);
    dn_gpu_key_end_form(&key);
    dn_gpu_key_add(&key, operands, sizeof operands);
    return d->shared->driver->call(d, &key, &call);
}

danaus_status dn_gpu_short_conv_gradient(
    danaus_device *dev, const short_gradient_operands *operands)
{
    gpu_device *d = (gpu_device *)dev;
    short_gradient_operands o = *operands;
    RETURN_ENTERED(d, gradient_or_replay(d, &o));
}
