/* Streams of signals on streams of the caller's, on a GPU or the emulated one. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/caller.h"
#include "support/conv.h"
#include "support/device.h"

#include <string.h>

/* A graph would put its block in the same place of the signal whenever it is launched. What was
   refused is no part of the signal, and the capture goes on. */
static void blocks_are_refused_while_a_graph_is_captured(void **state)
{
    danaus_device *device = *state;
    danaus_stream_desc desc = { .channels = 3, .filter_length = 400 };
    rng r = { 1 };
    array k = array_random(&r, DANAUS_F32, 3 * 400);
    array u = array_random(&r, DANAUS_F32, 3 * 300);
    array y = array_make(DANAUS_F32, u.count), again = array_make(DANAUS_F32, u.count);
    void *on_u = to_device(device, &u), *on_y = to_device(device, &y), *queue, *graph;
    void *context;
    danaus_stream *stream;
    assert_ok(danaus_stream_create(device, &desc, k.data, &stream));
    assert_int_equal(d.primary_retain(&context, 0), 0);
    assert_int_equal(d.context_push(context), 0);
    assert_int_equal(d.stream_create(&queue, 1), 0);
    assert_ok(danaus_device_set_stream(device, queue));
    assert_ok(danaus_stream_run(stream, device, 300, on_u, on_y));
    assert_ok(danaus_stream_run(stream, device, 300, on_u, on_y));
    copy_from_device(device, &y, on_y);
    assert_ok(danaus_stream_reset(stream));
    assert_ok(danaus_stream_run(stream, device, 300, on_u, on_y));
    assert_int_equal(d.begin_capture(queue, 0), 0);
    assert_status(
        danaus_stream_run(stream, device, 300, on_u, on_y), DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "captured"));
    assert_int_equal(d.end_capture(queue, &graph), 0);
    assert_int_equal(d.graph_destroy(graph), 0);
    assert_ok(danaus_stream_run(stream, device, 300, on_u, on_y));
    from_device(device, &again, on_y);
    assert_true(array_same(&y, &again));
    assert_ok(danaus_device_set_stream(device, NULL));
    assert_int_equal(d.stream_destroy(queue), 0);
    assert_int_equal(d.context_pop(&context), 0);
    assert_int_equal(d.primary_release(0), 0);
    danaus_free(device, on_u);
    danaus_stream_destroy(stream);
    array_free(&k);
    array_free(&u);
    array_free(&y);
    array_free(&again);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(blocks_are_refused_while_a_graph_is_captured, device),
    };
    int failed = cmocka_run_group_tests_name("streams of signals", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
