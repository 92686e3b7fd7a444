/* Filters of streams that are replaced, against the definition: every number of the signal is
   shared among the filters of its time, and each convolves its share. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"
#include "support/device.h"

#include "device/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FILTERS = 5, MOST_TAPS = 700 };

/* A signal of some channels, and filters that take the place of others. */
typedef struct fading {
    int64_t channels, length;
    danaus_dtype dtype;
    array u, k[MOST_FILTERS]; /* [channels][length], [channels][taps] */
    int64_t taps[MOST_FILTERS], from[MOST_FILTERS], fade[MOST_FILTERS];
    int filters;
} fading;

static fading random_fading(rng *r)
{
    fading f = { .channels = rng_int(r, 1, 3), .length = rng_int(r, 1, 3000) };
    f.dtype = rng_int(r, 0, 1) ? DANAUS_F64 : DANAUS_F32;
    f.u = array_random(r, f.dtype, f.channels * f.length);
    f.filters = (int)rng_int(r, 1, MOST_FILTERS);
    for (int i = 0; i < f.filters; i++) {
        f.taps[i] = rng_int(r, 1, rng_int(r, 0, 1) ? MOST_TAPS : 20);
        f.k[i] = array_random(r, f.dtype, f.channels * f.taps[i]);
        f.from[i] = i ? rng_int(r, f.from[i - 1], f.length) : 0;
        f.fade[i] = rng_int(r, 0, 2) ? rng_int(r, 0, 400) : 0;
    }
    return f;
}

static void fading_free(fading *f)
{
    array_free(&f->u);
    for (int i = 0; i < f->filters; i++)
        array_free(&f->k[i]);
}

static double get(const array *a, int64_t i)
{
    return element_get(a->dtype, a->data, i).re;
}

static double share_of(const fading *f, int i, int64_t t)
{
    double share = 1;
    for (int j = i; j < f->filters; j++) {
        double own = (double)(t - f->from[j] + 1) / (double)(f->fade[j] + 1);
        own = j == 0 || own > 1 ? 1 : own < 0 ? 0 : own;
        share *= j == i ? own : 1 - own;
    }
    return share;
}

/* y[t] of a channel, and what transforms of its filters may err by (test_stream.c). */
static double exact(const fading *f, int64_t channel, int64_t t, double *error)
{
    double y = 0, units = precision_of(f->dtype).sum_unit;
    *error = 1e-300;
    for (int i = 0; i < f->filters; i++) {
        double k1 = 0;
        for (int64_t s = 0; s < f->taps[i]; s++) {
            double k = get(&f->k[i], channel * f->taps[i] + s);
            k1 += fabs(k);
            if (s <= t)
                y +=
                    k * share_of(f, i, t - s) * get(&f->u, channel * f->length + t - s);
        }
        double norm = sqrt((double)(f->length < 4096 ? f->length : 4096));
        *error += 3 * (15 * log2(8192) + 24) * units * k1 * norm;
    }
    return y;
}

static danaus_stream *stream_of(danaus_device *device, const fading *f, int i)
{
    danaus_stream_desc desc = { .channels = f->channels,
                                .filter_length = f->taps[i],
                                .dtype = f->dtype };
    danaus_stream *stream = NULL;
    assert_ok(danaus_stream_create(device, &desc, f->k[i].data, &stream));
    return stream;
}

static void copy_columns(
    const fading *f, const array *from, int64_t from_length, int64_t from_at, array *to,
    int64_t to_length, int64_t to_at, int64_t n)
{
    size_t size = danaus_dtype_size(f->dtype);
    for (int64_t h = 0; h < f->channels; h++)
        memcpy(
            (char *)to->data + (size_t)(h * to_length + to_at) * size,
            (const char *)from->data + (size_t)(h * from_length + from_at) * size,
            (size_t)n * size);
}

/* In blocks of at most `most` numbers, random ones; filters are replaced between blocks. */
static array run_in_blocks(danaus_device *device, const fading *f, rng *r, int64_t most)
{
    danaus_stream *stream = stream_of(device, f, 0);
    array y = array_make(f->dtype, f->u.count);
    int next = 1;
    for (int64_t at = 0, n; at < f->length; at += n) {
        for (; next < f->filters && f->from[next] == at; next++)
            assert_ok(danaus_stream_replace(
                stream, stream_of(device, f, next), f->fade[next]));
        n = rng_int(r, 1, most);
        n = n < f->length - at ? n : f->length - at;
        n = next < f->filters && f->from[next] < at + n ? f->from[next] - at : n;
        array in = array_make(f->dtype, f->channels * n);
        array out = array_make(f->dtype, f->channels * n);
        copy_columns(f, &f->u, f->length, at, &in, n, 0, n);
        assert_ok(danaus_stream_run(stream, device, n, in.data, out.data));
        array_expect_guards(&out);
        copy_columns(f, &out, n, 0, &y, f->length, at, n);
        array_free(&in);
        array_free(&out);
    }
    danaus_stream_destroy(stream);
    return y;
}

static int is_on_host(danaus_device *device) { return device->backend->on_host; }

static void shares_of_the_signal_are_convolved(void **state)
{
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        fading f = random_fading(&r);
        array y = run_in_blocks(*state, &f, &r, 500);
        for (int64_t i = 0; i < y.count; i += 1 + (int64_t)(rng_next(&r) % 7)) {
            double error, should = exact(&f, i / f.length, i % f.length, &error);
            if (!(fabs(get(&y, i) - should) <= error))
                fail_msg(
                    "number %d of %d is %.9g, not %.9g +- %.2g", (int)i, (int)y.count,
                    get(&y, i), should, error);
        }
        array_free(&y);
        fading_free(&f);
    }
}

static void blocks_do_not_change_a_bit(void **state)
{
    for (int round = 0; round < rounds_of(15); round++) {
        rng r = { (uint64_t)round };
        fading f = random_fading(&r);
        array one = run_in_blocks(*state, &f, &r, 1);
        array other = run_in_blocks(*state, &f, &r, 3000);
        assert_true(array_same(&one, &other));
        array_free(&one);
        array_free(&other);
        fading_free(&f);
    }
}

/* What is replaced by itself sounds as before; what was reset has forgotten old filters. */
static void old_filters_are_forgotten(void **state)
{
    danaus_device *device = *state;
    rng r = { 3 };
    fading f = random_fading(&r);
    danaus_stream *stream = stream_of(device, &f, 0);
    array y = array_make(f.dtype, f.u.count), again = array_make(f.dtype, f.u.count);
    assert_ok(danaus_stream_run(stream, device, f.length, f.u.data, y.data));
    for (int i = 0; i < 3; i++)
        assert_ok(danaus_stream_replace(stream, stream_of(device, &f, 0), 100));
    assert_ok(danaus_stream_reset(stream));
    assert_ok(danaus_stream_run(stream, device, f.length, f.u.data, again.data));
    assert_true(array_same(&y, &again));
    danaus_stream_destroy(stream);
    array_free(&y);
    array_free(&again);
    fading_free(&f);
}

static void streams_refuse_other_streams(void **state)
{
    danaus_device *device = *state;
    danaus_stream_desc desc = { .channels = 2, .filter_length = 3 }, other = desc;
    float k[6] = { 1 }, u[4] = { 0 }, y[4];
    danaus_stream *stream = NULL, *next = NULL, *wide = NULL;
    assert_ok(danaus_stream_create(device, &desc, k, &stream));
    assert_ok(danaus_stream_create(device, &desc, k, &next));
    if (!is_on_host(device)) {
        danaus_status unsupported = DANAUS_ERR_UNSUPPORTED;
        assert_status(danaus_stream_replace(stream, next, 0), unsupported);
        danaus_stream_destroy(next);
        danaus_stream_destroy(stream);
        return;
    }
    other.channels = 1;
    assert_ok(danaus_stream_create(device, &other, k, &wide));
    danaus_status bad = DANAUS_ERR_ARGUMENT;
    assert_status(danaus_stream_replace(NULL, next, 0), bad);
    assert_status(danaus_stream_replace(stream, NULL, 0), bad);
    assert_status(danaus_stream_replace(stream, stream, 0), bad);
    assert_status(danaus_stream_replace(stream, next, -1), bad);
    assert_status(danaus_stream_replace(stream, next, INT64_MAX), bad);
    assert_status(danaus_stream_replace(stream, wide, 0), bad);
    assert_ok(danaus_stream_run(next, device, 2, u, y));
    assert_status(danaus_stream_replace(stream, next, 0), bad);
    danaus_stream_destroy(next);
    danaus_stream_destroy(wide);
    for (int i = 0; i <= DANAUS_STREAM_MOST_FADING; i++) {
        danaus_status wanted =
            i < DANAUS_STREAM_MOST_FADING ? DANAUS_OK : DANAUS_ERR_UNSUPPORTED;
        assert_ok(danaus_stream_create(device, &desc, k, &next));
        assert_status(danaus_stream_replace(stream, next, 1000), wanted);
    }
    danaus_stream_destroy(next);
    danaus_stream_destroy(stream);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(shares_of_the_signal_are_convolved, device),
        cmocka_unit_test_prestate(blocks_do_not_change_a_bit, device),
        cmocka_unit_test_prestate(old_filters_are_forgotten, device),
        cmocka_unit_test_prestate(streams_refuse_other_streams, device),
    };
    const struct CMUnitTest refusals[] = {
        cmocka_unit_test_prestate(streams_refuse_other_streams, device),
    };
    int failed = is_on_host(device) ? cmocka_run_group_tests(tests, NULL, NULL)
                                    : cmocka_run_group_tests(refusals, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
