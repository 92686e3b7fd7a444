/* Streams against the whole convolution, cut into blocks in any way. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"
#include "support/device.h"

#include "device/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Feeds the case's u in blocks of at most `most` (random ones where it is negative) and
   gathers y[channels][length]. */
static array stream_all(
    danaus_device *device, const conv_case *c, danaus_stream *stream, rng *r,
    int64_t most)
{
    int64_t length = c->desc.length, channels = c->desc.channels;
    size_t size = danaus_dtype_size(c->desc.dtype);
    array y = array_make(c->desc.dtype, c->u.count);
    for (int64_t done = 0, n; done < length; done += n) {
        n = most > 0 ? most : rng_int(r, 0, -most);
        n = n < length - done ? n : length - done;
        array in = array_make(c->desc.dtype, channels * n);
        array out = array_make(c->desc.dtype, channels * n);
        for (int64_t h = 0; h < channels; h++)
            memcpy(
                (char *)in.data + (size_t)(h * n) * size,
                (char *)c->u.data + (size_t)(h * length + done) * size,
                (size_t)n * size);
        void *u = to_device(device, &in), *to = to_device(device, &out);
        assert_ok(danaus_stream_run(stream, device, n, u, to));
        from_device(device, &in, u);
        from_device(device, &out, to);
        array_expect_guards(&out);
        for (int64_t h = 0; h < channels; h++)
            memcpy(
                (char *)y.data + (size_t)(h * length + done) * size,
                (char *)out.data + (size_t)(h * n) * size, (size_t)n * size);
        array_free(&in);
        array_free(&out);
    }
    return y;
}

static danaus_stream *stream_of(danaus_device *device, const conv_case *c)
{
    danaus_stream_desc desc = {
        .channels = c->desc.channels,
        .filters = c->desc.filters,
        .filter_length = c->desc.filter_length,
        .dtype = c->desc.dtype,
    };
    danaus_stream *stream = NULL;
    assert_ok(danaus_stream_create(device, &desc, c->k.data, &stream));
    return stream;
}

/* Every part errs as in support/conv.h with its own |k|, and these add up to |k|_1 at
   most: three times the bound of a single transform. */
static void expect_stream(const conv_case *c, const array *y)
{
    conv_result expected = conv_direct(c);
    for (int64_t i = 0; i < expected.count; i++)
        expected.e[i] *= 3;
    conv_expect(c, y, &expected);
    conv_result_free(&expected);
}

static conv_case random_stream(rng *r, int64_t most_taps, int64_t most_length)
{
    int64_t filters = rng_int(r, 1, 2), group = rng_int(r, 1, 2);
    danaus_conv_desc desc = {
        .channels = filters * group,
        .filters = filters,
        .filter_length = rng_int(r, 1, most_taps),
        .length = rng_int(r, 1, most_length),
        .dtype = rng_next(r) % 2 ? DANAUS_F32 : DANAUS_F64,
    };
    return conv_random(r, &desc, 1, 0);
}

static void a_stream_is_the_convolution(void **state)
{
    danaus_device *device = *state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        conv_case c = random_stream(&r, round % 2 ? 3000 : 200, 3000);
        danaus_stream *stream = stream_of(device, &c);
        array y = stream_all(device, &c, stream, &r, -300);
        expect_stream(&c, &y);
        array_free(&y);
        danaus_stream_destroy(stream);
        conv_free(&c);
    }
}

static void long_filters_have_all_their_parts(void **state)
{
    danaus_device *device = *state;
    rng r = { 7 };
    danaus_conv_desc desc = { .channels = 1,
                              .filter_length = 60000 / share_of_cases(),
                              .length = 70000 / share_of_cases() };
    conv_case c = conv_random(&r, &desc, 1, 0), wide = c;
    danaus_stream *stream = stream_of(device, &c);
    array y = stream_all(device, &c, stream, &r, -5000);
    array whole = conv_run(device, &wide);
    double error = 0, norm = 0;
    for (int64_t t = 0; t < y.count; t++) {
        double a = element_get(y.dtype, y.data, t).re;
        double b = element_get(whole.dtype, whole.data, t).re;
        error += (a - b) * (a - b);
        norm += b * b;
    }
    assert_true(sqrt(error / norm) < 10 * 0x1p-23);
    array_free(&y);
    array_free(&whole);
    danaus_stream_destroy(stream);
    conv_free(&c);
}

static void blocks_and_threads_do_not_change_a_bit(void **state)
{
    danaus_device *device = *state;
    for (int round = 0; round < rounds_of(10); round++) {
        rng r = { (uint64_t)round };
        conv_case c = random_stream(&r, 2000, 2500);
        danaus_stream *stream = stream_of(device, &c);
        array one = stream_all(device, &c, stream, &r, 1);
        static const int64_t blocks[] = { 64, 977, -100, 100000 };
        for (int i = 0; i < 4; i++) {
            assert_ok(danaus_stream_reset(stream));
            if (device->backend->on_host)
                assert_ok(danaus_device_set_threads(device, 1 + i));
            array other = stream_all(device, &c, stream, &r, blocks[i]);
            assert_true(array_same(&one, &other));
            array_free(&other);
        }
        if (device->backend->on_host)
            assert_ok(danaus_device_set_threads(device, 0));
        array_free(&one);
        danaus_stream_destroy(stream);
        conv_free(&c);
    }
}

static void streams_refuse_what_they_cannot_do(void **state)
{
    danaus_device *device = *state;
    danaus_stream_desc good = { .channels = 2, .filter_length = 3 }, bad;
    float k[6] = { 1 }, u[4] = { 0 }, y[4];
    danaus_stream *stream = NULL;
    bad = good, bad.channels = 0;
    assert_status(danaus_stream_create(device, &bad, k, &stream), DANAUS_ERR_ARGUMENT);
    bad = good, bad.filters = 3;
    assert_status(danaus_stream_create(device, &bad, k, &stream), DANAUS_ERR_SHAPE);
    bad = good, bad.dtype = DANAUS_F16;
    assert_status(danaus_stream_create(device, &bad, k, &stream), DANAUS_ERR_ARGUMENT);
    bad = good, bad.reserved[7] = 1;
    assert_status(danaus_stream_create(device, &bad, k, &stream), DANAUS_ERR_ARGUMENT);
    bad = good, bad.filter_length = INT64_MAX;
    assert_status(danaus_stream_create(device, &bad, k, &stream), DANAUS_ERR_SHAPE);
    bad = good, bad.channels = INT64_MAX / 2;
    assert_status(danaus_stream_create(device, &bad, k, &stream), DANAUS_ERR_SHAPE);
    assert_null(stream);
    assert_ok(danaus_stream_create(device, &good, k, &stream));
    assert_status(danaus_stream_run(stream, device, -1, u, y), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_stream_run(stream, device, 2, u, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_stream_run(stream, device, 2, u, u + 1), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_stream_run(NULL, device, 2, u, y), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_stream_reset(NULL), DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_stream_run(stream, device, 0, NULL, NULL));
    danaus_stream_destroy(stream);
    danaus_stream_destroy(NULL);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(a_stream_is_the_convolution, device),
        cmocka_unit_test_prestate(long_filters_have_all_their_parts, device),
        cmocka_unit_test_prestate(blocks_and_threads_do_not_change_a_bit, device),
        cmocka_unit_test_prestate(streams_refuse_what_they_cannot_do, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
