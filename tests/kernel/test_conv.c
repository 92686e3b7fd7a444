/* Convolutions of every kind, length and type against the definition. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"
#include "support/device.h"

#include "conv/choose.h"
#include "device/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_F16, DANAUS_BF16 };
static const danaus_conv_kind kinds[] = { DANAUS_CAUSAL, DANAUS_CIRCULAR,
                                          DANAUS_BIDIRECTIONAL };

static void check(
    rng *r, danaus_device *device, const danaus_conv_desc *desc, int64_t batch,
    int extras)
{
    conv_case c = conv_random(r, desc, batch, extras);
    array y = conv_run(device, &c);
    conv_result expected = conv_direct(&c);
    conv_expect(&c, &y, &expected);
    conv_result_free(&expected);
    array_free(&y);
    conv_free(&c);
}

static void every_length_and_kind_is_right(void **state)
{
    for (int kind = 0; kind < 3; kind++)
        for (int64_t length = 1; length <= 512; length += share_of_cases()) {
            rng r = { (uint64_t)length };
            danaus_conv_desc desc = { .channels = 1,
                                      .length = length,
                                      .kind = kinds[kind] };
            check(&r, *state, &desc, 1, 0);
            desc.dtype = DANAUS_F64;
            check(&r, *state, &desc, 1, 0);
        }
}

static void random_filters_gates_and_types_are_right(void **state)
{
    for (int round = 0; round < rounds_of(400); round++) {
        rng r = { (uint64_t)round };
        int64_t filters = rng_int(&r, 1, 3), group = rng_int(&r, 1, 3);
        danaus_conv_desc desc = {
            .channels = filters * group,
            .filters = filters,
            .length = rng_int(&r, 1, round % 4 ? 300 : 3000),
            .kind = kinds[round % 3],
            .dtype = types[rng_int(&r, 0, 3)],
        };
        desc.filter_length = rng_int(&r, 1, round % 2 ? 2 * desc.length : 40);
        check(&r, *state, &desc, rng_int(&r, 1, 3), (int)rng_int(&r, 0, 7));
    }
}

/* Lengths at which transforms leave the caches and short filters make windows. */
static void long_rows_are_right(void **state)
{
    static const int64_t sizes[][2] = { { 70000, 300 }, { 40000, 20 }, { 200003, 40 } };
    for (int s = 0; s < 3; s++)
        for (int kind = 0; kind < 3; kind++) {
            rng r = { (uint64_t)s };
            danaus_conv_desc desc = {
                .channels = 2,
                .length = sizes[s][0] / share_of_cases(),
                .filter_length = sizes[s][1],
                .kind = kinds[kind],
                .dtype = types[(s + kind) % 2],
            };
            check(&r, *state, &desc, 1, 7);
        }
}

/* 64 times some radices. */
static int64_t random_points(rng *r)
{
    static const int factors[] = { 2, 3, 4, 5, 7, 8 };
    int64_t n = 64;
    for (int64_t i = rng_int(r, 0, 3); i > 0; i--)
        n *= factors[rng_int(r, 0, 5)];
    return n;
}

/* However a table cuts rows, the result is that of the definition. */
static void every_cut_is_right(void **state)
{
    danaus_device *device = *state;
    int tabled = 0;
    for (int round = 0; round < rounds_of(300); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = {
            .channels = rng_int(&r, 1, 2),
            .length = rng_int(&r, 1, round % 8 ? 1500 : 30000),
            .kind = kinds[round % 3],
            .dtype = types[rng_int(&r, 0, 1)],
            .effort = DANAUS_TABLE_ONLY,
        };
        desc.filter_length = rng_int(&r, 1, round % 2 ? desc.length : 40);
        int first = 0;
        conv_cut cut = { dn_conv_next_kernel(device, desc.dtype, &first),
                         random_points(&r), rng_int(&r, 0, 1) ? 8 : 4 };
        danaus_conv_plan *plan = NULL;
        dn_tuning_add_conv(device->tuning, &desc, 0, cut, 1e-6);
        if (danaus_conv_plan_create(device, &desc, &plan) == DANAUS_OK) {
            check(&r, device, &desc, rng_int(&r, 1, 2), (int)rng_int(&r, 0, 7));
            tabled++;
        }
        danaus_conv_plan_destroy(plan);
    }
    assert_true(tabled >= rounds_of(300) / 20);
}

/* The values of x at the frequencies (f + 1/4) / n. */
static void values_at(int64_t n, int64_t f, int64_t count, const double *x, double z[2])
{
    z[0] = z[1] = 0;
    for (int64_t t = 0; t < count; t++) {
        double angle = 2 * 3.14159265358979323846 *
                       (double)((4 * f + 1) * t % (4 * n)) / (double)(4 * n);
        z[0] += x[t] * cos(angle);
        z[1] += x[t] * sin(angle);
    }
}

static int is_kept(const danaus_conv_desc *d, int64_t f)
{
    for (int i = 0; i < 4; i++) {
        int64_t axis = d->axes[i] ? d->axes[i] : 8;
        if (d->keep[i] && f % axis >= d->keep[i])
            return 0;
        f /= axis;
    }
    return 1;
}

/* The kept values of u times k at frequency f. */
static void value_of_product(const conv_case *c, int64_t n, int64_t f, double z[2])
{
    int64_t length = c->desc.length;
    double u[64], k[64], a[2], b[2];
    assert_true(length <= 64);
    for (int64_t t = 0; t < length; t++) {
        u[t] = element_get(c->u.dtype, c->u.data, t).re;
        k[t] = element_get(c->k.dtype, c->k.data, t).re;
    }
    values_at(n, f, length, u, a);
    values_at(n, f, length, k, b);
    z[0] = a[0] * b[0] - a[1] * b[1], z[1] = a[0] * b[1] + a[1] * b[0];
}

/* y of a sparse causal plan, from its definition: y[t] = 1/n times the real part of the
   sum of the kept values with their angles turned back. */
static void sparse_row(const conv_case *c, int64_t n, double *y)
{
    double(*z)[2] = calloc((size_t)n, sizeof *z);
    assert_non_null(z);
    for (int64_t f = 0; f < n; f++)
        if (is_kept(&c->desc, f))
            value_of_product(c, n, f, z[f]);
    for (int64_t t = 0; t < c->desc.length; t++) {
        long double sum = 0;
        for (int64_t f = 0; f < n; f++) {
            double angle = 2 * 3.14159265358979323846 *
                           (double)((4 * f + 1) * t % (4 * n)) / (double)(4 * n);
            sum += z[f][0] * cos(angle) + z[f][1] * sin(angle);
        }
        y[t] = (double)(sum / (long double)n);
    }
    free(z);
}

/* Sizes of axes, 0: 8, and what is kept of each. */
typedef struct sparse_box {
    int32_t axes[4], keep[4];
} sparse_box;

/* Bounded like the whole convolution, whose spectrum is nowhere smaller. */
static void expect_sparse_row(
    danaus_device *device, const sparse_box *box, danaus_dtype dtype, int64_t n,
    int64_t length)
{
    rng r = { (uint64_t)(length + n) };
    danaus_conv_desc desc = { .channels = 1, .length = length, .dtype = dtype };
    memcpy(desc.axes, box->axes, sizeof desc.axes);
    memcpy(desc.keep, box->keep, sizeof desc.keep);
    conv_case c = conv_random(&r, &desc, 1, 0);
    array y = conv_run(device, &c);
    conv_result expected = conv_direct(&c);
    sparse_row(&c, n, expected.y);
    conv_expect(&c, &y, &expected);
    conv_result_free(&expected);
    array_free(&y);
    conv_free(&c);
}

static void sparse_spectra_are_right(void **state)
{
    static const sparse_box boxes[] = {
        { { 0 }, { 8, 8 } },
        { { 0 }, { 4, 4, 4, 4 } },
        { { 0 }, { 1, 8 } },
        { { 0 }, { 7, 3, 8, 5 } },
        { { 0 }, { 8, 1 } },
        { { 0 }, { 0, 0, 0, 1 } },
        { { 4096, 1, 1, 1 }, { 1777, 0, 0, 0 } },
        { { 1, 1, 2, 2048 }, { 1, 1, 1, 1000 } },
        { { 2, 32, 4, 16 }, { 1, 31, 3, 9 } },
    };
    rng r = { 0 };
    for (int i = 0; i < (int)(sizeof boxes / sizeof *boxes); i++)
        for (int type = 0; type < 2; type++)
            expect_sparse_row(*state, &boxes[i], types[type], 4096, rng_int(&r, 1, 60));
    expect_sparse_row(
        *state, &(sparse_box){ { 16, 32, 8, 4 }, { 9, 20, 0, 3 } }, DANAUS_F32, 16384,
        33);
}

/* A signal of one frequency, which a filter of one tap passes or stops: all of its
   window but one number, so that what is wrong has a norm of at most 1; and, fast, an error
   of at most 3e-3 of the norm beside. */
static void expect_passed(
    danaus_device *device, const sparse_box *box, int64_t n, int64_t f, int fast)
{
    danaus_conv_desc desc = { .channels = 1, .length = 2 * n - 1, .filter_length = 1 };
    desc.dtype = DANAUS_F32;
    desc.accuracy = fast ? DANAUS_CONV_FAST : DANAUS_CONV_ACCURATE;
    memcpy(desc.axes, box->axes, sizeof desc.axes);
    memcpy(desc.keep, box->keep, sizeof desc.keep);
    int passes = is_kept(&desc, f);
    rng r = { 0 };
    conv_case c = conv_random(&r, &desc, 1, 0);
    element_put(c.k.dtype, c.k.data, 0, (value){ 1, 0 });
    for (int64_t t = 0; t < c.u.count; t++) {
        double angle = 2 * 3.14159265358979323846 *
                       (double)((4 * f + 1) * t % (4 * n)) / (double)(4 * n);
        element_put(c.u.dtype, c.u.data, t, (value){ cos(angle), 0 });
    }
    array y = conv_run(device, &c);
    double rest = 0;
    for (int64_t t = 0; t < y.count; t++) {
        double u = passes ? element_get(c.u.dtype, c.u.data, t).re : 0;
        double e = element_get(y.dtype, y.data, t).re - u;
        rest += e * e;
    }
    if (!(rest <= 1.01 + (fast ? 9e-6 * (double)n : 0)))
        fail_msg("frequency %d of %d: off by %.3g in norm", (int)f, (int)n, sqrt(rest));
    array_free(&y);
    conv_free(&c);
}

/* Up to lengths at which several passes go by strips; frequencies inside, and outside on
   each of the axes. */
static void sparse_spectra_of_long_rows_pass_their_frequencies(void **state)
{
    static const sparse_box boxes[] = {
        { { 8, 8, 8, 8 }, { 5, 3, 8, 8 } },
        { { 16, 16, 16, 1 }, { 9, 12, 3, 1 } },
        { { 4, 8, 2, 64 }, { 3, 5, 1, 33 } },
    };
    for (int64_t n = 4096; n <= (1 << 20) / share_of_cases(); n *= 16)
        for (int i = 0; i < 3; i++) {
            const sparse_box *b = &boxes[i];
            rng r = { (uint64_t)n };
            for (int axis = 0; axis < 5; axis++) {
                int64_t f = 0, weight = 1;
                for (int a = 0; a < 4; weight *= b->axes[a++]) {
                    int out = a == axis && b->keep[a] < b->axes[a];
                    int64_t digit = out ? rng_int(&r, b->keep[a], b->axes[a] - 1)
                                        : rng_int(&r, 0, b->keep[a] - 1);
                    f += weight * digit;
                }
                f += weight * rng_int(&r, 0, n / weight - 1);
                expect_passed(*state, b, n, f, (i + axis) % 2);
            }
        }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_length_and_kind_is_right, device),
        cmocka_unit_test_prestate(random_filters_gates_and_types_are_right, device),
        cmocka_unit_test_prestate(long_rows_are_right, device),
        cmocka_unit_test_prestate(every_cut_is_right, device),
        cmocka_unit_test_prestate(sparse_spectra_are_right, device),
        cmocka_unit_test_prestate(
            sparse_spectra_of_long_rows_pass_their_frequencies, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
