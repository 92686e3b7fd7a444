/* Circular rows of a batch beside rows of any other size: whether or not a device multiplies
   two of them at once (docs/conv.md, 'Pairs'), each is within the bound of its own norm. Rows of
   zeros give zeros, and what is not finite in one is in no other. Gradients of filters are within
   the bound of the products of the norms of u and dy, row by row. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/exact.h"

#include <math.h>
#include <string.h>

/* What becomes of a row: it is multiplied, or one number of it is another one. */
typedef struct fate {
    double factor;
    double number; /* 0: none */
} fate;

static fate draw_fate(rng *r, danaus_dtype dtype)
{
    const fate all[] = { { 1, 0 },       { 2, 0 },           { 0x1p-2, 0 },
                         { 0x1p-12, 0 }, { 0x1p95, 0 },      { 0x1p-95, 0 },
                         { 0, 0 },       { 1, (double)NAN }, { 1, (double)INFINITY } };
    fate f = all[rng_int(r, 0, 8)];
    if (dtype == DANAUS_F16 && f.factor > 0)
        f.factor = fmin(fmax(f.factor, 0x1p-4), 2);
    return f;
}

/* Rows of the array have fates of their own. */
static void spread(rng *r, array *a, int64_t length)
{
    for (int64_t row = 0; row < a->count / length; row++) {
        fate f = draw_fate(r, a->dtype);
        for (int64_t t = row * length; t < (row + 1) * length; t++) {
            value v = element_get(a->dtype, a->data, t);
            element_put(a->dtype, a->data, t, (value){ v.re * f.factor, 0 });
        }
        if (f.number != 0)
            element_put(
                a->dtype, a->data, row * length + rng_int(r, 0, length - 1),
                (value){ f.number, 0 });
    }
}

static int is_finite(const array *a, int64_t from, int64_t count)
{
    int finite = 1;
    for (int64_t i = from; i < from + count; i++)
        finite &= isfinite(element_get(a->dtype, a->data, i).re) != 0;
    return finite;
}

/* Results of a finite row of `from` are within their bounds; those of any other row are nowhere
   finite. The oracle takes u and dy of a row at once, so that one of them is zero. */
static void expect_rows(
    const conv_case *c, const array *from, const array *dy, const array *is,
    conv_name name)
{
    precision f = precision_of(is->dtype);
    int64_t length = c->desc.length;
    int finite = 1;
    conv_exact x = conv_exactly(c, dy);
    for (int64_t i = 0; i < is->count; i++) {
        int64_t row = i / length * length;
        if (i == row)
            finite = is_finite(from, row, length);
        double found = element_get(is->dtype, is->data, i).re;
        double should = x.v[name][i];
        double e = x.e[name][i] * (1 + f.unit) + f.unit * fabs(should) + 2 * f.tiny;
        if (finite ? !(fabs(found - should) <= e) : isfinite(found))
            fail_msg(
                "%s, %d x %d x %d: number %d of row %d of result %d is %.9g, not %.9g "
                "+- %.2g",
                danaus_dtype_name(c->desc.dtype), (int)c->batch, (int)c->desc.channels,
                (int)length, (int)(i - row), (int)(row / length), (int)name, found,
                should, e);
    }
    conv_exact_free(&x);
}

static void check(danaus_device *device, rng *r, danaus_conv_desc desc, int64_t batch)
{
    desc.kind = DANAUS_CIRCULAR;
    desc.accuracy = DANAUS_CONV_ACCURATE;
    conv_case c = conv_random(r, &desc, batch, (int)rng_int(r, 0, 7));
    array dy = array_random(r, c.desc.dtype, c.u.count);
    spread(r, &c.u, desc.length);
    spread(r, &dy, desc.length);
    conv_outcome is = conv_compute(device, &c, &dy);
    conv_outcome again = conv_compute(device, &c, &dy);
    array none = array_make(desc.dtype, c.u.count);
    memset(none.data, 0, (size_t)none.count * danaus_dtype_size(none.dtype));
    expect_rows(&c, &c.u, &none, &is.of[CONV_Y], CONV_Y);
    conv_case back = c;
    back.u = none;
    expect_rows(&back, &dy, &dy, &is.of[CONV_DU], CONV_DU);
    for (int i = CONV_Y; i <= CONV_DU; i++)
        assert_memory_equal(
            is.of[i].data, again.of[i].data,
            (size_t)is.of[i].count * danaus_dtype_size(is.of[i].dtype));
    conv_outcome_free(&is);
    conv_outcome_free(&again);
    array_free(&none);
    array_free(&dy);
    conv_free(&c);
}

/* Rows of u times 2^(e - most) to 2^(e + most), and those of dy times the inverses. */
static void spread_both(rng *r, array *u, array *dy, int64_t length, int e, int most)
{
    int own = 0;
    for (int64_t i = 0; i < u->count; i++) {
        own = i % length ? own : e + (int)rng_int(r, -most, most);
        double a = element_get(u->dtype, u->data, i).re;
        double b = element_get(dy->dtype, dy->data, i).re;
        element_put(u->dtype, u->data, i, (value){ ldexp(a, own), 0 });
        element_put(dy->dtype, dy->data, i, (value){ ldexp(b, -own), 0 });
    }
}

/* The oracle takes u and dy of a row at once in f64, so that they are not far apart there: what
   makes all of u larger makes all of dy smaller, and nothing of the gradients. */
static void check_filters(
    danaus_device *device, rng *r, danaus_conv_desc desc, int64_t batch)
{
    desc.kind = DANAUS_CIRCULAR;
    desc.accuracy = DANAUS_CONV_ACCURATE;
    conv_case c = conv_random(r, &desc, batch, (int)rng_int(r, 0, 7));
    array dy = array_random(r, c.desc.dtype, c.u.count);
    int is_wide = desc.dtype == DANAUS_F32 || desc.dtype == DANAUS_BF16;
    spread_both(r, &c.u, &dy, desc.length, 0, is_wide ? 6 : 2);
    conv_exact x = conv_exactly(&c, &dy);
    spread_both(
        r, &c.u, &dy, desc.length, is_wide ? 80 * (int)rng_int(r, -1, 1) : 0, 0);
    conv_outcome is = conv_compute(device, &c, &dy);
    conv_outcome filters = is;
    for (int name = 0; name < CONV_DK; name++)
        filters.of[name].count = 0;
    conv_exact_expect(&c, &filters, &x);
    conv_exact_free(&x);
    conv_outcome_free(&is);
    array_free(&dy);
    conv_free(&c);
}

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_BF16, DANAUS_F64, DANAUS_F16 };

/* Most windows are circles, and some are not. */
static void rows_of_any_size_have_their_own_error(void **state)
{
    for (int round = 0; round < rounds_of(200); round++) {
        static const int64_t lengths[] = { 16, 32, 48, 112, 256, 400, 1024, 1680 };
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = {
            .channels = rng_int(&r, 1, 5),
            .length = round % 5 ? lengths[rng_int(&r, 0, 7)] : rng_int(&r, 1, 600),
            .dtype = types[round % 8 < 5 ? 0 : round % 8 - 4],
        };
        desc.filters = round % 3 ? desc.channels : 1;
        check(*state, &r, desc, rng_int(&r, 1, 7));
        check_filters(*state, &r, desc, rng_int(&r, 1, 7));
    }
}

static void so_have_long_ones(void **state)
{
    static const int64_t lengths[] = { 8192, 16384, 32768, 49152, 65536 };
    for (int round = 0; round < rounds_of(25); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = {
            .channels = rng_int(&r, 1, 2),
            .length = lengths[round % 5],
            .dtype = types[round % 3 == 2],
        };
        check(*state, &r, desc, rng_int(&r, 2, 5));
        check_filters(*state, &r, desc, rng_int(&r, 2, 5));
    }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(rows_of_any_size_have_their_own_error, device),
        cmocka_unit_test_prestate(so_have_long_ones, device),
    };
    int failed = cmocka_run_group_tests_name("pairs of rows", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
