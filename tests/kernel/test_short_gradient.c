/* Gradients of convolutions of few taps: against the definition, across the dot product,
   as differences; in both layouts, with any number of threads. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/short.h"

#include "device/backend.h"

#include <math.h>

typedef struct gradients {
    array du, dk, dbias;
} gradients;

static double get(const array *a, int64_t i)
{
    return element_get(a->dtype, a->data, i).re;
}

/* aligned: a bit for each operand, dy, u, du, dk, dbias. */
static gradients compute_with(
    danaus_device *device, const short_case *c, const array *dy, int which, int aligned)
{
    danaus_dtype sums = sum_type(c->desc.dtype);
    gradients g = { { 0 }, { 0 }, { 0 } };
    if (which & 1)
        g.du = array_make(c->desc.dtype, c->u.count);
    if (which & 2)
        g.dk = array_make(sums, c->k.count);
    if (which & 4)
        g.dbias = array_make(sums, c->desc.channels);
    const array *all[] = { dy, &c->u, &g.du, &g.dk, &g.dbias, &c->k };
    short_operand on[6];
    for (int i = 0; i < 6; i++)
        on[i] = short_put(device, all[i], aligned >> i & 1);
    danaus_short_gradients to = { on[2].at, on[3].at, on[4].at, { NULL, NULL } };
    assert_ok(danaus_short_conv_gradient(
        device, &c->desc, c->batch, which & 1 ? on[5].at : NULL,
        which & 2 ? on[1].at : NULL, on[0].at, &to));
    for (int i = 0; i < 6; i++) {
        short_take(device, &on[i]);
        if (all[i]->data)
            array_expect_guards(all[i]);
    }
    return g;
}

static gradients compute(
    danaus_device *device, const short_case *c, const array *dy, int which)
{
    return compute_with(device, c, dy, which, 31);
}

static void gradients_free(gradients *g)
{
    array_free(&g->du);
    array_free(&g->dk);
    array_free(&g->dbias);
}

/* A sum of n terms of this size altogether, made in any order; `stored`: rounded to the
   plan's type after. */
static void expect(
    const short_case *c, const char *name, int64_t at, double is, double sum,
    double size, double n, int stored)
{
    precision f = precision_of(c->desc.dtype);
    double nu = n * f.sum_unit, gamma = nu / (1 - nu);
    double bound = (gamma + 1e-15) * size;
    if (stored)
        bound = bound * (1 + f.unit) + f.unit * fabs(sum) + f.tiny;
    if (!(fabs(is - sum) <= bound))
        fail_msg(
            "%s, %d taps, layout %d, %d x %d x %d: %s[%d] is %.9g, not %.9g +- %.2g",
            danaus_dtype_name(c->desc.dtype), (int)c->desc.taps, c->desc.layout,
            (int)c->batch, (int)c->desc.channels, (int)c->desc.length, name, (int)at,
            is, sum, bound);
}

static void expect_du(const short_case *c, const array *dy, const array *du)
{
    const danaus_short_desc *d = &c->desc;
    for (int64_t i = 0; i < c->batch * d->channels * d->length; i++) {
        int64_t t = i % d->length, row = i / d->length;
        int64_t h = row % d->channels, b = row / d->channels;
        double sum = 0, size = 0;
        for (int64_t s = 0; s < d->taps; s++) {
            int64_t from = t - short_shift(c) + s;
            if (from < 0 || from >= d->length)
                continue;
            double term =
                get(&c->k, h * d->taps + s) * get(dy, short_place(c, b, h, from));
            sum += term;
            size += fabs(term);
        }
        int64_t at = short_place(c, b, h, t);
        expect(c, "du", at, get(du, at), sum, size, (double)d->taps, 1);
    }
}

/* s == taps: the bias, whose u is 1. */
static void expect_filter(
    const short_case *c, const array *dy, int64_t h, int64_t s, double is)
{
    const danaus_short_desc *d = &c->desc;
    double sum = 0, size = 0;
    int64_t lag = s < d->taps ? short_shift(c) - s : 0;
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t t = 0; t < d->length; t++) {
            if (t + lag < 0 || t + lag >= d->length)
                continue;
            double term = get(dy, short_place(c, b, h, t));
            if (s < d->taps)
                term *= get(&c->u, short_place(c, b, h, t + lag));
            sum += term;
            size += fabs(term);
        }
    expect(
        c, s < d->taps ? "dk" : "dbias", h * d->taps + s, is, sum, size,
        (double)(c->batch * d->length) + 1, 0);
}

static void expect_case(danaus_device *device, rng *r, short_case *c)
{
    array dy = array_random(r, c->desc.dtype, c->u.count);
    gradients g = compute(device, c, &dy, 7);
    expect_du(c, &dy, &g.du);
    for (int64_t h = 0; h < c->desc.channels; h++) {
        int64_t taps = c->desc.taps, step = taps > 20 ? 7 : 1;
        for (int64_t s = h % step; s < taps; s += step)
            expect_filter(c, &dy, h, s, get(&g.dk, h * taps + s));
        expect_filter(c, &dy, h, taps, get(&g.dbias, h));
    }
    gradients_free(&g);
    array_free(&dy);
    short_free(c);
}

static void gradients_are_their_sums(void **state)
{
    for (int round = 0; round < rounds_of(100); round++) {
        rng r = { (uint64_t)round };
        short_case c = short_random(&r, round);
        expect_case(*state, &r, &c);
    }
}

/* An emulated device, which compiles slowly, takes some. */
static void gradients_of_every_small_size_are_their_sums(void **state)
{
    rng some = { 8 };
    for (int number = 0; number < SHORT_SMALL; number++) {
        rng r = { (uint64_t)number };
        if (rng_int(&some, 0, share_of_cases() - 1))
            continue;
        short_case c = short_small(&r, number);
        expect_case(*state, &r, &c);
    }
}

static void expect_same(const gradients *some, const gradients *g)
{
    assert_true(!some->du.data || array_same(&some->du, &g->du));
    assert_true(!some->dk.data || array_same(&some->dk, &g->dk));
    assert_true(!some->dbias.data || array_same(&some->dbias, &g->dbias));
}

static void set_threads(danaus_device *device, int threads)
{
    if (device->backend->on_host)
        assert_ok(danaus_device_set_threads(device, threads));
}

/* Alone or together, with any number of threads, wherever operands lie, and du in the other
   layout. */
static void the_same_bits_in_every_way(void **state)
{
    danaus_device *device = *state;
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        short_case c = short_random(&r, round);
        array dy = array_random(&r, c.desc.dtype, c.u.count), turned, du;
        set_threads(device, 1 + round % 4);
        gradients g = compute(device, &c, &dy, 7);
        set_threads(device, 0);
        for (int which = 1; which < 8; which++) {
            gradients some =
                compute_with(device, &c, &dy, which, (int)rng_int(&r, 0, 31));
            expect_same(&some, &g);
            gradients_free(&some);
        }
        short_case other = short_turned(&c, &dy, &turned);
        gradients last = compute(device, &other, &turned, 1);
        short_turned(&c, &g.du, &du);
        assert_true(array_same(&last.du, &du));
        array_free(&turned);
        array_free(&du);
        gradients_free(&last);
        gradients_free(&g);
        array_free(&dy);
        short_free(&c);
    }
}

/* <y, dy>. */
static double loss(danaus_device *device, const short_case *c, const array *dy)
{
    double sum = 0;
    array y = array_make(c->desc.dtype, c->u.count);
    const array *all[] = { &c->k, &c->bias, &c->u, &y };
    short_operand on[4];
    for (int i = 0; i < 4; i++)
        on[i] = short_put(device, all[i], 1);
    assert_ok(danaus_short_conv(
        device, &c->desc, c->batch, on[0].at, on[1].at, on[2].at, on[3].at));
    for (int i = 0; i < 4; i++)
        short_take(device, &on[i]);
    for (int64_t i = 0; i < y.count; i++)
        sum += get(&y, i) * get(dy, i);
    array_free(&y);
    return sum;
}

static double dot(const array *a, const array *b)
{
    double sum = 0;
    for (int64_t i = 0; a->data && i < a->count; i++)
        sum += get(a, i) * get(b, i);
    return sum;
}

/* In f64: y is linear in u and in the taps, so <y, dy> is <u, du> + <bias, dbias> and
   <k, dk> + <bias, dbias>; and a step of 1 either way is as good as any. Sums of some
   10^5 numbers below 1. */
static void gradients_move_across_and_are_differences(void **state)
{
    danaus_device *device = *state;
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        short_case c = short_random(&r, 4 * round + 1); /* of f64 */
        array dy = array_random(&r, DANAUS_F64, c.u.count);
        gradients g = compute(device, &c, &dy, 7);
        double y = loss(device, &c, &dy), bias = dot(&c.bias, &g.dbias);
        double most = 1e-15 * (double)(c.u.count * c.desc.taps);
        assert_true(fabs(y - dot(&c.u, &g.du) - bias) <= most);
        assert_true(fabs(y - dot(&c.k, &g.dk) - bias) <= most);
        array *members[] = { &c.u, &c.k, &c.bias },
              *found[] = { &g.du, &g.dk, &g.dbias };
        for (int i = 0; i < 3; i++) {
            if (!members[i]->data)
                continue;
            int64_t at = rng_int(&r, 0, members[i]->count - 1);
            double x = get(members[i], at), two[2];
            for (int side = 0; side < 2; side++) {
                element_put(
                    DANAUS_F64, members[i]->data, at, (value){ x + 2 * side - 1, 0 });
                two[side] = loss(device, &c, &dy);
            }
            element_put(DANAUS_F64, members[i]->data, at, (value){ x, 0 });
            assert_true(fabs((two[1] - two[0]) / 2 - get(found[i], at)) <= 2 * most);
        }
        gradients_free(&g);
        array_free(&dy);
        short_free(&c);
    }
}

static void one_row_by_hand(void **state)
{
    short_case c = { .batch = 1 };
    c.desc = (danaus_short_desc){
        .channels = 1, .length = 4, .taps = 2, .dtype = DANAUS_F32
    };
    array dy = array_make(DANAUS_F32, 4);
    c.k = array_make(DANAUS_F32, 2);
    c.u = array_make(DANAUS_F32, 4);
    for (int i = 0; i < 4; i++) {
        element_put(DANAUS_F32, c.u.data, i, (value){ i + 1, 0 });
        element_put(DANAUS_F32, dy.data, i, (value){ 1, 0 });
        element_put(DANAUS_F32, c.k.data, i / 2, (value){ i / 2 + 1, 0 });
    }
    gradients g = compute(*state, &c, &dy, 7);
    assert_true(get(&g.du, 0) == 3 && get(&g.du, 3) == 1);
    assert_true(get(&g.dk, 0) == 10 && get(&g.dk, 1) == 6 && get(&g.dbias, 0) == 4);
    gradients_free(&g);
    array_free(&dy);
    short_free(&c);
}

static void it_refuses_what_cannot_be(void **state)
{
    danaus_device *device = *state;
    danaus_short_desc good = { .channels = 1, .length = 4, .taps = 2 }, bad = good;
    float k[2] = { 1, 2 }, u[4] = { 1, 2, 3, 4 }, dy[4] = { 1, 1, 1, 1 };
    float du[4] = { 9, 9, 9, 9 }, dk[2] = { 9, 9 }, dbias[1] = { 9 };
    danaus_short_gradients g = { du, dk, dbias, { NULL, NULL } };
#define RUN(desc, batch, k, u, dy, g)                                                  \
    danaus_short_conv_gradient(device, desc, batch, k, u, dy, g)
    const danaus_status wrong = DANAUS_ERR_ARGUMENT;
    bad.taps = 0;
    assert_status(RUN(&bad, 1, k, u, dy, &g), DANAUS_ERR_SHAPE);
    assert_status(RUN(NULL, 1, k, u, dy, &g), wrong);
    assert_status(RUN(&good, 0, k, u, dy, &g), wrong);
    assert_status(RUN(&good, 1, NULL, u, dy, &g), wrong);
    assert_status(RUN(&good, 1, k, NULL, dy, &g), wrong);
    assert_status(RUN(&good, 1, k, u, NULL, &g), wrong);
    assert_status(RUN(&good, 1, k, u, dy, NULL), wrong);
    danaus_short_gradients bad_ones[] = {
        { .du = du, .reserved = { k } },
        { .du = dy },
        { .du = u },
        { .dk = u + 3 },
        { .dbias = k + 1 },
        { .du = du, .dbias = du + 2 },
    };
    for (int i = 0; i < 6; i++)
        assert_status(RUN(&good, 1, k, u, dy, &bad_ones[i]), wrong);
    for (int i = 0; i < 4; i++)
        assert_true(du[i] == 9 && dk[i / 2] == 9 && dbias[0] == 9);
    danaus_short_gradients none = { 0 };
    assert_ok(RUN(&good, 1, NULL, NULL, dy, &none));
#undef RUN
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(gradients_are_their_sums, device),
        cmocka_unit_test_prestate(gradients_of_every_small_size_are_their_sums, device),
        cmocka_unit_test_prestate(the_same_bits_in_every_way, device),
        cmocka_unit_test_prestate(gradients_move_across_and_are_differences, device),
        cmocka_unit_test_prestate(one_row_by_hand, device),
        cmocka_unit_test_prestate(it_refuses_what_cannot_be, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
