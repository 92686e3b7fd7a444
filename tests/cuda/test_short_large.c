/* Convolutions of few taps of more than 2^31 numbers, and their gradients: offsets, tiles and
   grids that 32 bits do not hold. u repeats some random numbers, whose number is a prime, so
   that a number 2^31 away is another one; dy is zero but in a few places. What is seen of
   the results are some numbers, at the ends and where offsets reach powers of two, and what
   lies before and behind them. An emulated device takes a thousandth. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/short.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PERIOD  1000003
#define GUARD   4096 /* bytes */
#define SAMPLES 24
#define TYPE    DANAUS_F16
#define SIZE    2 /* bytes of a number */

/* Operands on the device; those of rows lie between guards. */
typedef struct large {
    danaus_device *device;
    short_case c; /* without u */
    int64_t count;
    array block, dk, dbias; /* block: what u repeats */
    char *u, *y, *dy;
    void *k, *bias, *on_dk, *on_dbias;
    int64_t at[SAMPLES]; /* where dy is not zero, and y is looked at */
    value dy_at[SAMPLES];
} large;

static size_t bytes_of(const large *l) { return (size_t)l->count * SIZE + 2 * GUARD; }

/* Copies the first bytes of some memory until it is full. */
static void repeat(const large *l, char *memory, size_t filled)
{
    for (size_t all = bytes_of(l); filled < all;) {
        size_t more = filled < all - filled ? filled : all - filled;
        assert_ok(danaus_upload(l->device, memory + filled, memory, more));
        filled += more;
    }
}

static void fill(const large *l, char *memory, int byte)
{
    char some[GUARD];
    memset(some, byte, sizeof some);
    assert_ok(danaus_upload(l->device, memory, some, sizeof some));
    repeat(l, memory, sizeof some);
}

/* The guard before y, or behind it. */
static void expect_guards(const large *l)
{
    unsigned char found[2][GUARD];
    assert_ok(danaus_download(l->device, found[0], l->y, GUARD));
    assert_ok(
        danaus_download(l->device, found[1], l->y + GUARD + l->count * SIZE, GUARD));
    for (int i = 0; i < 2 * GUARD; i++)
        assert_int_equal(found[i / GUARD][i % GUARD], 0xff);
}

/* ---- where numbers are ---- */

typedef struct place {
    int64_t b, h, t;
} place;

static place place_of(const large *l, int64_t at)
{
    const danaus_short_desc *d = &l->c.desc;
    int last = d->layout == DANAUS_CHANNELS_LAST;
    int64_t inner = last ? d->channels : d->length, x = at % inner, y = at / inner;
    int64_t outer = last ? d->length : d->channels;
    return last ? (place){ y / outer, x, y % outer }
                : (place){ y / outer, y % outer, x };
}

static int is_inside(const large *l, int64_t t)
{
    return t >= 0 && t < l->c.desc.length;
}

static double u_of(const large *l, int64_t b, int64_t h, int64_t t)
{
    return element_get(TYPE, l->block.data, short_place(&l->c, b, h, t) % PERIOD).re;
}

static double tap_of(const large *l, int64_t h, int64_t s)
{
    return element_get(DANAUS_F32, l->c.k.data, h * l->c.desc.taps + s).re;
}

static double found_at(const large *l, int64_t at)
{
    uint16_t number;
    assert_ok(danaus_download(l->device, &number, l->y + GUARD + at * SIZE, SIZE));
    return element_get(TYPE, &number, 0).re;
}

/* A sum of at most `terms` products that are not zero, of this size together; stored:
   rounded to the type of rows. */
static void expect_sum(
    const char *name, int64_t at, double is, double sum, double size, int64_t terms,
    int stored)
{
    precision f = precision_of(TYPE);
    double nu = (double)(terms + 1) * f.sum_unit,
           bound = (nu / (1 - nu) + 1e-15) * size;
    if (stored)
        bound = bound * (1 + f.unit) + f.unit * fabs(sum) + f.tiny;
    if (!(fabs(is - sum) <= bound))
        fail_msg("%s[%lld] is %.9g, not %.9g", name, (long long)at, is, sum);
}

/* ---- operands ---- */

static void choose_places(large *l)
{
    rng r = { 77 };
    int64_t half = l->count / 2;
    const int64_t some[] = {
        0,        1,        l->count - 1,           l->count - 2,
        half - 1, half,     ((int64_t)1 << 31) - 1, (int64_t)1 << 31,
        half / 2, half + 1, l->count - 40
    };
    for (int i = 0; i < SAMPLES; i++) {
        int known = i < (int)(sizeof some / sizeof *some) && some[i] < l->count;
        l->at[i] = known ? some[i] : l->count / SAMPLES * i + rng_int(&r, 100, 109);
        l->dy_at[i] = element_random(&r, TYPE);
    }
}

/* 0: the device has too little memory. */
static int large_make(
    large *l, danaus_device *device, danaus_short_desc desc, int64_t batch)
{
    rng r = { 31 };
    *l = (large){ .device = device, .c = { .desc = desc, .batch = batch } };
    l->count = batch * desc.channels * desc.length;
    char **rows[] = { &l->u, &l->y, &l->dy };
    for (int i = 0; i < 3; i++)
        if (danaus_alloc(device, bytes_of(l), (void **)rows[i])) {
            for (int j = 0; j < i; j++)
                danaus_free(device, *rows[j]);
            return 0;
        }
    l->block = array_random(&r, TYPE, PERIOD);
    l->c.k = array_random(&r, DANAUS_F32, desc.channels * desc.taps);
    l->c.bias = array_random(&r, DANAUS_F32, desc.channels);
    l->dk = array_make(DANAUS_F32, l->c.k.count);
    l->dbias = array_make(DANAUS_F32, desc.channels);
    l->k = to_device(device, &l->c.k);
    l->bias = to_device(device, &l->c.bias);
    l->on_dk = to_device(device, &l->dk);
    l->on_dbias = to_device(device, &l->dbias);
    size_t period = PERIOD * SIZE < bytes_of(l) ? PERIOD * SIZE : bytes_of(l);
    assert_ok(danaus_upload(device, l->u, l->block.data, period));
    repeat(l, l->u, period);
    choose_places(l);
    fill(l, l->dy, 0);
    for (int i = 0; i < SAMPLES; i++) {
        uint16_t number;
        element_put(TYPE, &number, 0, l->dy_at[i]);
        assert_ok(danaus_upload(device, l->dy + l->at[i] * SIZE, &number, SIZE));
    }
    return 1;
}

static void large_free(large *l)
{
    from_device(l->device, &l->c.k, l->k);
    from_device(l->device, &l->c.bias, l->bias);
    danaus_free(l->device, l->u);
    danaus_free(l->device, l->y);
    danaus_free(l->device, l->dy);
    array_free(&l->block);
    array_free(&l->dk);
    array_free(&l->dbias);
    short_free(&l->c);
}

/* ---- results ---- */

static void expect_y(const large *l, int64_t at)
{
    const danaus_short_desc *d = &l->c.desc;
    place p = place_of(l, at);
    double sum = element_get(DANAUS_F32, l->c.bias.data, p.h).re, size = fabs(sum);
    for (int64_t s = 0; s < d->taps; s++) {
        int64_t t = p.t + short_shift(&l->c) - s;
        double term = is_inside(l, t) ? tap_of(l, p.h, s) * u_of(l, p.b, p.h, t) : 0;
        sum += term;
        size += fabs(term);
    }
    expect_sum("y", at, found_at(l, at), sum, size, d->taps, 1);
}

/* dy lies in few places: those of the row that du[t] sees. */
static void expect_du(const large *l, place p)
{
    const danaus_short_desc *d = &l->c.desc;
    double sum = 0, size = 0;
    for (int i = 0; i < SAMPLES; i++) {
        place q = place_of(l, l->at[i]);
        int64_t s = q.t - p.t + short_shift(&l->c);
        if (q.b != p.b || q.h != p.h || s < 0 || s >= d->taps)
            continue;
        double term = tap_of(l, p.h, s) * l->dy_at[i].re;
        sum += term;
        size += fabs(term);
    }
    int64_t at = short_place(&l->c, p.b, p.h, p.t);
    expect_sum("du", at, found_at(l, at), sum, size, d->taps, 1);
}

/* s == taps: the bias. */
static void expect_filter(const large *l, int64_t h, int64_t s)
{
    const danaus_short_desc *d = &l->c.desc;
    double sum = 0, size = 0;
    for (int i = 0; i < SAMPLES; i++) {
        place q = place_of(l, l->at[i]);
        int64_t t = q.t + short_shift(&l->c) - s;
        double term = l->dy_at[i].re;
        if (q.h != h || (s < d->taps && !is_inside(l, t)))
            continue;
        term *= s < d->taps ? u_of(l, q.b, h, t) : 1;
        sum += term;
        size += fabs(term);
    }
    const array *a = s < d->taps ? &l->dk : &l->dbias;
    int64_t at = s < d->taps ? h * d->taps + s : h;
    expect_sum(
        s < d->taps ? "dk" : "dbias", at, element_get(DANAUS_F32, a->data, at).re, sum,
        size, SAMPLES, 0);
}

static void check_conv(const large *l)
{
    fill(l, l->y, 0xff);
    assert_ok(danaus_short_conv(
        l->device, &l->c.desc, l->c.batch, l->k, l->bias, l->u, l->y + GUARD));
    assert_ok(danaus_device_sync(l->device));
    for (int i = 0; i < SAMPLES; i++)
        for (int64_t at = l->at[i] - 3; at <= l->at[i] + 3; at++)
            if (at >= 0 && at < l->count)
                expect_y(l, at);
    expect_guards(l);
}

static void check_gradient(large *l)
{
    const danaus_short_desc *d = &l->c.desc;
    danaus_short_gradients g = { .du = l->y + GUARD,
                                 .dk = l->on_dk,
                                 .dbias = l->on_dbias };
    fill(l, l->y, 0xff);
    assert_ok(
        danaus_short_conv_gradient(l->device, d, l->c.batch, l->k, l->u, l->dy, &g));
    assert_ok(danaus_device_sync(l->device));
    for (int i = 0; i < SAMPLES; i++) {
        place p = place_of(l, l->at[i]);
        for (int64_t t = p.t - d->taps; t <= p.t + d->taps; t++)
            if (is_inside(l, t))
                expect_du(l, (place){ p.b, p.h, t });
    }
    expect_guards(l);
    from_device(l->device, &l->dk, l->on_dk);
    from_device(l->device, &l->dbias, l->on_dbias);
    array_expect_guards(&l->dk);
    array_expect_guards(&l->dbias);
    for (int64_t h = 0; h < d->channels; h++)
        for (int64_t s = 0; s <= d->taps; s++)
            expect_filter(l, h, s);
}

/* Few long rows or many short ones, of odd sizes or not, few taps or more. */
static void rows_of_more_than_2_31_numbers(void **state)
{
    static const struct {
        int64_t channels, length, taps; /* length 0: few rows */
        int centred;
    } forms[] = { { 5, 0, 4, 0 }, { 96, 1031, 7, 1 }, { 64, 1024, 9, 0 } };
    int64_t least = (int64_t)1 << (share_of_cases() < 100 ? 31 : 21);
    int made = 0;
    for (int i = 0; i < 6; i++) {
        int64_t channels = forms[i / 2].channels, length = forms[i / 2].length;
        int64_t batch = length ? least / (channels * length) + 1 : 3;
        danaus_short_desc desc = { .channels = channels,
                                   .length = length ? length : least / 15 + 9,
                                   .taps = forms[i / 2].taps,
                                   .centred = forms[i / 2].centred,
                                   .layout = (danaus_channels)(i % 2),
                                   .dtype = TYPE };
        large l;
        if (!large_make(&l, *state, desc, batch))
            continue;
        made++;
        check_conv(&l);
        check_gradient(&l);
        large_free(&l);
    }
    if (!made)
        skip();
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(rows_of_more_than_2_31_numbers, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
