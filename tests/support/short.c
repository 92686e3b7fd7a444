/* Random convolutions of few taps. */
// SPDX-License-Identifier: Apache-2.0
#include "support/short.h"

#include "support/device.h"
#include "support/test.h"

#include <string.h>

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_F16, DANAUS_BF16 };

static void short_fill(rng *r, short_case *c)
{
    const danaus_short_desc *d = &c->desc;
    danaus_dtype sums = sum_type(d->dtype);
    c->k = array_random(r, sums, d->channels * d->taps);
    if (rng_next(r) % 2)
        c->bias = array_random(r, sums, d->channels);
    c->u = array_random(r, d->dtype, c->batch * d->channels * d->length);
}

short_case short_random(rng *r, int round)
{
    short_case c = { .batch = rng_int(r, 1, 3) };
    c.desc = (danaus_short_desc){
        .channels = rng_int(r, 1, round % 10 == 9 ? 1200 : 40),
        .length = rng_int(r, 1, round % 10 == 5 ? 3000 : 150),
        .taps = rng_int(r, 1, round % 2 ? 5 : DANAUS_SHORT_MOST_TAPS),
        .centred = (int)(rng_next(r) % 2),
        .layout = rng_next(r) % 2 ? DANAUS_CHANNELS_LAST : DANAUS_CHANNELS_FIRST,
        .dtype = types[round % 4],
    };
    short_fill(r, &c);
    return c;
}

short_case short_small(rng *r, int number)
{
    static const int64_t taps[] = { 1, 2, 3, 4, 5, 7, 8, 9, 19 };
    static const int64_t channels[] = { 1, 2, 3, 4, 5, 8 };
    short_case c = { .batch = number / 4 % 2 + 1 };
    c.desc = (danaus_short_desc){
        .channels = channels[number / 8 % 6],
        .length = number / 432 + 1,
        .taps = taps[number / 48 % 9],
        .centred = number / 2 % 2,
        .layout = number % 2 ? DANAUS_CHANNELS_LAST : DANAUS_CHANNELS_FIRST,
        .dtype = types[(number + number / 8) % 4],
    };
    short_fill(r, &c);
    return c;
}

void short_free(short_case *c)
{
    array_free(&c->k);
    array_free(&c->bias);
    array_free(&c->u);
}

short_operand short_put(danaus_device *device, const array *a, int aligned)
{
    return (short_operand){ a,
                            aligned ? bias_to_device(device, a) : to_device(device, a),
                            aligned };
}

void short_take(danaus_device *device, const short_operand *o)
{
    if (o->aligned)
        bias_from_device(device, o->a, o->at);
    else
        from_device(device, o->a, o->at);
}

int64_t short_place(const short_case *c, int64_t b, int64_t h, int64_t t)
{
    const danaus_short_desc *d = &c->desc;
    return d->layout == DANAUS_CHANNELS_LAST ? (b * d->length + t) * d->channels + h
                                             : (b * d->channels + h) * d->length + t;
}

int64_t short_shift(const short_case *c)
{
    return c->desc.centred ? (c->desc.taps - 1) / 2 : 0;
}

short_case short_turned(const short_case *c, const array *from, array *to)
{
    short_case other = *c;
    const danaus_short_desc *d = &c->desc;
    size_t size = danaus_dtype_size(d->dtype);
    other.desc.layout = d->layout == DANAUS_CHANNELS_LAST ? DANAUS_CHANNELS_FIRST
                                                          : DANAUS_CHANNELS_LAST;
    *to = array_make(d->dtype, from->count);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t h = 0; h < d->channels; h++)
            for (int64_t t = 0; t < d->length; t++)
                memcpy(
                    (char *)to->data + (size_t)short_place(&other, b, h, t) * size,
                    (char *)from->data + (size_t)short_place(c, b, h, t) * size, size);
    return other;
}
