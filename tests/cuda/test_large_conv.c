/* Long convolutions of more than 2^31 numbers on a real GPU: offsets, windows and grids that
   32 bits do not hold. u repeats some random numbers, whose number is a prime; of y and du
   some rows, at the ends and where offsets reach powers of two, are compared with the
   oracle, and what lies before and behind must stay as it was. dy is zero but in these rows,
   so that gradients of filters are sums over them alone. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"
#include "support/device.h"

#include "conv/choose.h"
#include "device/tuning.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAST_ERROR   2e-3 /* in norm */
#define PERIOD       1000003
#define GUARD        4096 /* bytes */
#define ROWS         7
#define LEAST_MEMORY 18000000000 /* bytes; three arrays of 16 bits and room to work */

/* A convolution of so many numbers, in memory of the device: u, dy, and y or du between
   guards. */
typedef struct large {
    danaus_device *device;
    danaus_conv_desc desc;
    int64_t batch, row[ROWS]; /* those that are looked at */
    size_t bytes;             /* of an array */
    array block, k;           /* what u repeats */
    array u[ROWS], dy[ROWS];
    char *on_u, *on_dy, *on_y, *on_dk;
    danaus_conv_plan *plan;
    danaus_spectrum *spectrum;
} large;

static size_t row_bytes(const large *g)
{
    return (size_t)g->desc.length * danaus_dtype_size(g->desc.dtype);
}

/* ---- memory ---- */

/* Copies the first bytes of memory until it is full. */
static void repeat(danaus_device *device, char *memory, size_t filled, size_t all)
{
    while (filled < all) {
        size_t more = filled < all - filled ? filled : all - filled;
        assert_ok(danaus_upload(device, memory + filled, memory, more));
        filled += more;
    }
}

static void fill(const large *g, char *memory, int byte, size_t bytes)
{
    char some[GUARD];
    memset(some, byte, sizeof some);
    assert_ok(danaus_upload(g->device, memory, some, sizeof some));
    repeat(g->device, memory, sizeof some, bytes);
}

static void expect_guards(const large *g, const char *what)
{
    const char *at[] = { g->on_y, g->on_y + GUARD + g->bytes };
    unsigned char found[GUARD];
    for (int side = 0; side < 2; side++) {
        assert_ok(danaus_download(g->device, found, at[side], GUARD));
        for (int i = 0; i < GUARD; i++)
            if (found[i] != 0xff)
                fail_msg("bytes outside of %s were written", what);
    }
}

static char *get(const large *g, size_t bytes)
{
    void *memory = NULL;
    assert_ok(danaus_alloc(g->device, bytes, &memory));
    return memory;
}

/* ---- rows ---- */

/* Both ends, where offsets reach 2^30 and 2^31 numbers, and any. */
static void choose_rows(large *g, rng *r)
{
    int64_t rows = g->batch * g->desc.channels, length = g->desc.length;
    int64_t chosen[ROWS] = { 0, rows - 1, ((int64_t)1 << 31) / length,
                             ((int64_t)1 << 30) / length };
    for (int i = 0; i < ROWS; i++) {
        int64_t row = i < 4 ? chosen[i] : rng_int(r, rows / 4 * (i - 4), rows - 1);
        g->row[i] = row < rows ? row : rows / 2 + i;
        for (int j = 0; j < i; j++) /* none twice */
            if (g->row[j] == g->row[i])
                g->row[i]++, j = -1;
    }
}

static int64_t filter_of(const large *g, int i)
{
    int64_t channel = g->row[i] % g->desc.channels;
    return channel / (g->desc.channels / g->desc.filters);
}

/* Row i of u and of dy. */
static void make_row(large *g, rng *r, int i)
{
    danaus_dtype type = g->desc.dtype;
    g->u[i] = array_make(type, g->desc.length);
    g->dy[i] = array_random(r, type, g->desc.length);
    for (int64_t t = 0; t < g->desc.length; t++) {
        int64_t at = (g->row[i] * g->desc.length + t) % PERIOD;
        element_put(type, g->u[i].data, t, element_get(type, g->block.data, at));
    }
    assert_ok(danaus_upload(
        g->device, g->on_dy + (size_t)g->row[i] * row_bytes(g), g->dy[i].data,
        row_bytes(g)));
}

static large large_make(danaus_device *device, danaus_conv_desc desc, int64_t elements)
{
    rng r = { 31 };
    large g = { .device = device, .desc = desc };
    g.batch = elements / (desc.channels * desc.length) + 1;
    g.bytes = (size_t)(g.batch * desc.channels) * row_bytes(&g);
    g.block = array_random(&r, desc.dtype, PERIOD);
    g.k = array_random(&r, DANAUS_F32, desc.filters * desc.filter_length);
    size_t period = PERIOD * danaus_dtype_size(desc.dtype);
    g.on_u = get(&g, g.bytes + period);
    g.on_dy = get(&g, g.bytes + GUARD);
    g.on_y = get(&g, g.bytes + 2 * GUARD);
    g.on_dk = get(&g, (size_t)g.k.count * sizeof(float));
    assert_ok(danaus_upload(device, g.on_u, g.block.data, period));
    repeat(device, g.on_u, period, g.bytes + period);
    fill(&g, g.on_dy, 0, g.bytes + GUARD);
    choose_rows(&g, &r);
    for (int i = 0; i < ROWS; i++)
        make_row(&g, &r, i);
    assert_ok(danaus_conv_plan_create(device, &desc, &g.plan));
    assert_ok(
        danaus_spectrum_create(g.plan, device, g.k.data, NULL, NULL, &g.spectrum));
    return g;
}

static void large_free(large *g)
{
    danaus_spectrum_destroy(g->spectrum);
    danaus_conv_plan_destroy(g->plan);
    char *all[] = { g->on_u, g->on_dy, g->on_y, g->on_dk };
    for (int i = 0; i < 4; i++)
        danaus_free(g->device, all[i]);
    for (int i = 0; i < ROWS; i++) {
        array_free(&g->u[i]);
        array_free(&g->dy[i]);
    }
    array_free(&g->block);
    array_free(&g->k);
}

/* ---- results ---- */

static void turn(array *a)
{
    size_t size = danaus_dtype_size(a->dtype);
    char kept[16], *first = a->data, *last = first + (size_t)(a->count - 1) * size;
    for (; first < last; first += size, last -= size) {
        memcpy(kept, first, size);
        memcpy(first, last, size);
        memcpy(last, kept, size);
    }
}

/* Results are rounded. */
static void expect_near(const array *y, const conv_result *expected)
{
    double error = 0, norm = 0;
    for (int64_t t = 0; t < y->count; t++) {
        double should = expected->y[t];
        double difference = element_get(y->dtype, y->data, t).re - should;
        error += difference * difference;
        norm += should * should;
    }
    assert_true(sqrt(error / norm) <= FAST_ERROR + precision_of(y->dtype).unit);
}

/* Row i of y, or of du: that is what the reversed dy gives, reversed. */
static void expect_row(const large *g, int i, int is_du)
{
    conv_case c = { .desc = g->desc, .batch = 1, .u = is_du ? g->dy[i] : g->u[i] };
    int64_t taps = g->desc.filter_length;
    c.desc.channels = c.desc.filters = 1;
    c.k = (array){ .dtype = DANAUS_F32,
                   .count = taps,
                   .data = (float *)g->k.data + filter_of(g, i) * taps };
    array y = array_make(g->desc.dtype, g->desc.length);
    const char *at = g->on_y + GUARD + (size_t)g->row[i] * row_bytes(g);
    assert_ok(danaus_download(g->device, y.data, at, row_bytes(g)));
    if (is_du) {
        turn(&c.u);
        turn(&y);
    }
    conv_result expected = conv_direct(&c);
    if (c.desc.accuracy == DANAUS_CONV_FAST)
        expect_near(&y, &expected);
    else
        conv_expect(&c, &y, &expected);
    if (is_du)
        turn(&c.u);
    conv_result_free(&expected);
    array_free(&y);
}

static double exact_dk(const large *g, int64_t filter, int64_t s)
{
    danaus_dtype type = g->desc.dtype;
    double sum = 0;
    for (int i = 0; i < ROWS; i++)
        for (int64_t t = s; t < g->desc.length && filter_of(g, i) == filter; t++)
            sum += element_get(type, g->dy[i].data, t).re *
                   element_get(type, g->u[i].data, t - s).re;
    return sum;
}

/* Within what users are told of errors (property/test_conv_error.c). */
static void expect_dk(const large *g)
{
    array dk = array_make(DANAUS_F32, g->k.count);
    double error = 0, norm = 0;
    assert_ok(danaus_download(
        g->device, dk.data, g->on_dk, (size_t)dk.count * sizeof(float)));
    for (int64_t i = 0; i < dk.count; i++) {
        int64_t taps = g->desc.filter_length;
        double should = exact_dk(g, i / taps, i % taps);
        double is = element_get(DANAUS_F32, dk.data, i).re;
        error += (is - should) * (is - should);
        norm += should * should;
    }
    double most = g->desc.accuracy == DANAUS_CONV_FAST
                      ? FAST_ERROR
                      : 1.2 * 0x1p-23 * sqrt(log2((double)g->desc.length));
    if (!(sqrt(error / norm) <= most))
        fail_msg("dk errs by %.3g, more than %.3g", sqrt(error / norm), most);
    array_free(&dk);
}

static void check(danaus_device *device, danaus_conv_desc desc)
{
    int64_t elements = ((int64_t)1 << 31) / share_of_cases() + 1;
    large g = large_make(device, desc, elements);
    fill(&g, g.on_y, 0xff, g.bytes + 2 * GUARD);
    assert_ok(danaus_conv_execute(
        g.plan, device, g.spectrum, g.batch, g.on_u, NULL, NULL, g.on_y + GUARD));
    assert_ok(danaus_device_sync(device));
    for (int i = 0; i < ROWS; i++)
        expect_row(&g, i, 0);
    expect_guards(&g, "y");
    danaus_conv_gradients to = { .du = g.on_y + GUARD, .dk = g.on_dk };
    fill(&g, g.on_y, 0xff, g.bytes + 2 * GUARD);
    assert_ok(danaus_conv_gradient(
        g.plan, device, g.spectrum, g.batch, g.on_u, NULL, NULL, g.on_dy, &to));
    assert_ok(danaus_device_sync(device));
    for (int i = 0; i < ROWS; i++)
        expect_row(&g, i, 1);
    expect_guards(&g, "du");
    expect_dk(&g);
    large_free(&g);
}

static void windows_of_one_level_reach_the_end(void **state)
{
    static const danaus_conv_accuracy both[] = { DANAUS_CONV_ACCURATE,
                                                 DANAUS_CONV_FAST };
    for (int i = 0; i < 2; i++)
        check(
            *state, (danaus_conv_desc){ .channels = 64,
                                        .filters = 4,
                                        .length = 4096,
                                        .filter_length = 64,
                                        .dtype = DANAUS_F16,
                                        .accuracy = both[i] });
}

static void windows_of_two_levels_reach_the_end(void **state)
{
    danaus_conv_desc desc = { .channels = 4,
                              .filters = 2,
                              .length = 65000,
                              .filter_length = 300,
                              .dtype = DANAUS_BF16,
                              .accuracy = DANAUS_CONV_ACCURATE,
                              .effort = DANAUS_TABLE_ONLY };
    danaus_device *device = *state;
    int first = 0;
    conv_cut cut = { dn_conv_next_kernel(device, desc.dtype, &first), 32768, 16 };
    dn_tuning_add_conv(device->tuning, &desc, 0, cut, 1e-6);
    check(device, desc);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    danaus_device_info info;
    assert_ok(danaus_device_describe(device, &info));
    if (info.memory < LEAST_MEMORY / share_of_cases()) {
        printf("%s has %" PRId64 " bytes: too little\n", info.name, info.memory);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(windows_of_one_level_reach_the_end, device),
        cmocka_unit_test_prestate(windows_of_two_levels_reach_the_end, device),
    };
    int failed = cmocka_run_group_tests_name("large convolutions", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
