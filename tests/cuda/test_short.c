/* Convolutions of few taps on CUDA: on the caller's streams, in graphs of the caller's and
   of the device's own. What they compute is kernel/test_short*.c's. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/caller.h"
#include "support/device.h"
#include "support/short.h"

#include <stdlib.h>
#include <string.h>

/* A convolution and its gradients, on the device. */
typedef struct scene {
    danaus_device *device;
    short_case c;
    array dy, y, du, dk, dbias;
    short_operand on[8]; /* k, bias, u, dy, y, du, dk, dbias */
} scene;

enum { K, BIAS, U, DY, Y, DU, DK, DBIAS, OPERANDS };

static const array *operand(const scene *s, int i)
{
    const array *all[OPERANDS] = { &s->c.k, &s->c.bias, &s->c.u, &s->dy,
                                   &s->y,   &s->du,     &s->dk,  &s->dbias };
    return all[i];
}

static void scene_make(scene *s, danaus_device *device, danaus_short_desc desc)
{
    rng r = { 5 };
    danaus_dtype sums = sum_type(desc.dtype);
    *s = (scene){ .device = device, .c = { .desc = desc, .batch = 2 } };
    int64_t count = 2 * desc.channels * desc.length;
    s->c.k = array_random(&r, sums, desc.channels * desc.taps);
    s->c.bias = array_random(&r, sums, desc.channels);
    s->c.u = array_random(&r, desc.dtype, count);
    s->dy = array_random(&r, desc.dtype, count);
    s->y = array_make(desc.dtype, count);
    s->du = array_make(desc.dtype, count);
    s->dk = array_make(sums, s->c.k.count);
    s->dbias = array_make(sums, desc.channels);
    for (int i = 0; i < OPERANDS; i++)
        s->on[i] = short_put(device, operand(s, i), 1);
}

static danaus_status scene_run(const scene *s)
{
    return danaus_short_conv(
        s->device, &s->c.desc, s->c.batch, s->on[K].at, s->on[BIAS].at, s->on[U].at,
        s->on[Y].at);
}

static danaus_status scene_go_back(const scene *s)
{
    danaus_short_gradients g = { .du = s->on[DU].at,
                                 .dk = s->on[DK].at,
                                 .dbias = s->on[DBIAS].at };
    return danaus_short_conv_gradient(
        s->device, &s->c.desc, s->c.batch, s->on[K].at, s->on[U].at, s->on[DY].at, &g);
}

/* Results are as they were made: NaN. */
static void scene_forget(const scene *s)
{
    for (int i = Y; i < OPERANDS; i++) {
        const array *a = operand(s, i);
        array nothing = array_make(a->dtype, a->count);
        assert_ok(danaus_upload(
            s->device, s->on[i].at, nothing.data,
            (size_t)a->count * danaus_dtype_size(a->dtype)));
        array_free(&nothing);
    }
}

static array scene_result(const scene *s, int i)
{
    const array *a = operand(s, i);
    array found = array_make(a->dtype, a->count);
    assert_ok(danaus_download(
        s->device, found.data, s->on[i].at,
        (size_t)a->count * danaus_dtype_size(a->dtype)));
    assert_false(array_untouched(&found));
    return found;
}

static void scene_expect(const scene *s, const array *expected)
{
    for (int i = Y; i < OPERANDS; i++) {
        array found = scene_result(s, i);
        assert_true(array_same(&found, &expected[i]));
        array_free(&found);
    }
}

static void scene_free(scene *s)
{
    for (int i = 0; i < OPERANDS; i++) {
        short_take(s->device, &s->on[i]);
        array_expect_guards(operand(s, i));
        array_free((array *)(uintptr_t)operand(s, i));
    }
}

static danaus_short_desc desc_of(int form)
{
    return (danaus_short_desc){ .channels = 12 + form,
                                .length = 70,
                                .taps = 4,
                                .layout = (danaus_channels)(form % 2),
                                .dtype = form / 2 ? DANAUS_F32 : DANAUS_F16 };
}

/* ---- the caller's streams and graphs ---- */

/* The same bits on a stream of the caller's, or from a graph that runs three times. */
static void run_elsewhere(scene *s, int captured)
{
    void *stream, *graph, *made;
    array expected[OPERANDS] = { 0 };
    assert_ok(scene_run(s));
    assert_ok(scene_go_back(s));
    for (int i = Y; i < OPERANDS; i++)
        expected[i] = scene_result(s, i);
    assert_int_equal(d.stream_create(&stream, 1), 0);
    assert_ok(danaus_device_set_stream(s->device, stream));
    scene_forget(s);
    if (captured)
        assert_int_equal(d.begin_capture(stream, 0), 0);
    assert_ok(scene_run(s));
    assert_ok(scene_go_back(s));
    if (captured) {
        assert_int_equal(d.end_capture(stream, &graph), 0);
        assert_int_equal(d.instantiate(&made, graph, 0), 0);
        for (int i = 0; i < 3; i++)
            assert_int_equal(d.graph_launch(made, stream), 0);
    }
    assert_ok(danaus_device_sync(s->device));
    scene_expect(s, expected);
    if (captured) {
        assert_int_equal(d.made_destroy(made), 0);
        assert_int_equal(d.graph_destroy(graph), 0);
    }
    assert_ok(danaus_device_set_stream(s->device, NULL));
    assert_int_equal(d.stream_destroy(stream), 0);
    for (int i = Y; i < OPERANDS; i++)
        array_free(&expected[i]);
}

/* Enters the device's context, for what is asked of the driver here, or leaves it. */
static void use_context(int used)
{
    void *context;
    if (used) {
        assert_int_equal(d.primary_retain(&context, 0), 0);
        assert_int_equal(d.context_push(context), 0);
    } else {
        assert_int_equal(d.context_pop(&context), 0);
        assert_int_equal(d.primary_release(0), 0);
    }
}

static void the_same_bits_on_streams_and_from_graphs(void **state)
{
    use_context(1);
    for (int form = 0; form < 8; form++) {
        scene s;
        scene_make(&s, *state, desc_of(form / 2));
        run_elsewhere(&s, form % 2);
        scene_free(&s);
    }
    use_context(0);
}

/* Nothing is compiled while a graph is captured: the call says so, writes nothing, and
   works once it has been made before. */
static void what_is_not_compiled_yet_is_not_captured(void **state)
{
    void *stream, *graph;
    use_context(1);
    assert_int_equal(d.stream_create(&stream, 1), 0);
    for (int layout = 0; layout < 2; layout++) {
        danaus_short_desc desc = desc_of(layout);
        desc.taps = 6;
        scene s;
        scene_make(&s, *state, desc);
        assert_ok(danaus_device_set_stream(s.device, stream));
        assert_int_equal(d.begin_capture(stream, 0), 0);
        assert_status(scene_run(&s), DANAUS_ERR_UNSUPPORTED);
        assert_non_null(strstr(danaus_error_detail(), "run the call once before"));
        assert_status(scene_go_back(&s), DANAUS_ERR_UNSUPPORTED);
        assert_int_equal(d.end_capture(stream, &graph), 0);
        assert_int_equal(d.graph_destroy(graph), 0);
        for (int i = Y; i < OPERANDS; i++)
            short_take(s.device, &s.on[i]),
                assert_true(array_untouched(operand(&s, i)));
        for (int i = Y; i < OPERANDS; i++)
            s.on[i] = short_put(s.device, operand(&s, i), 1);
        run_elsewhere(&s, 1);
        scene_free(&s);
    }
    assert_int_equal(d.stream_destroy(stream), 0);
    use_context(0);
}

/* ---- the device's graphs ---- */

/* The same call again and again is a graph of the device's own, and so are calls that
   differ in their operands alone. */
static void calls_that_come_again_give_the_same(void **state)
{
    for (int form = 0; form < 4; form++) {
        scene s[3];
        array expected[3][OPERANDS] = { 0 };
        for (int i = 0; i < 3; i++) {
            scene_make(&s[i], *state, desc_of(form));
            assert_ok(scene_run(&s[i]));
            assert_ok(scene_go_back(&s[i]));
            for (int j = Y; j < OPERANDS; j++)
                expected[i][j] = scene_result(&s[i], j);
        }
        for (int round = 0; round < 40; round++) {
            scene *one = &s[round % 3];
            scene_forget(one);
            assert_ok(scene_run(one));
            assert_ok(scene_go_back(one));
            scene_expect(one, expected[round % 3]);
        }
        for (int i = 0; i < 3; i++) {
            for (int j = Y; j < OPERANDS; j++)
                array_free(&expected[i][j]);
            scene_free(&s[i]);
        }
    }
}

int main(int argc, char **argv)
{
    setenv("DANAUS_CACHE", "", 1); /* what is compiled is new */
    danaus_device *device = device_from_arguments(argc, argv);
    open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(the_same_bits_on_streams_and_from_graphs, device),
        cmocka_unit_test_prestate(what_is_not_compiled_yet_is_not_captured, device),
        cmocka_unit_test_prestate(calls_that_come_again_give_the_same, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
