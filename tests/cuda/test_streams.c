/* Two streams of one device on a real GPU, and a graph of the caller's that is launched after
   scratch has grown: chains whose second factor reads what the first one left in
   scratch, of so many columns that both run at the same time. test_queues.c has the same
   on the emulated driver, which knows the order of work. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/caller.h"
#include "support/chains.h"
#include "support/device.h"

typedef struct pair_run {
    danaus_device *device;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    int64_t batch;
    void *on_x[2], *on_y[2];
    array x[2], expected[2], found;
} pair_run;

static pair_run pair_make(danaus_device *device)
{
    rng r = { 5 };
    danaus_pattern p[] = { { 1, 64, 64, 64 }, { 64, 64, 64, 1 } };
    danaus_ks_desc desc = { .keep_factors = 1 };
    pair_run s = { .device = device, .batch = 40000 };
    random_chain c = chain_random(&r, p, 2, DANAUS_F32, 0);
    assert_ok(danaus_ks_plan_create(device, p, 2, &desc, &s.plan));
    assert_ok(danaus_ks_weights_create(s.plan, device, c.chain, &s.weights));
    s.found = array_make(DANAUS_F32, c.rows * s.batch);
    for (int i = 0; i < 2; i++) {
        size_t bytes = (size_t)(c.rows * s.batch) * 4;
        s.x[i] = array_random(&r, DANAUS_F32, c.cols * s.batch);
        s.expected[i] = array_make(DANAUS_F32, c.rows * s.batch);
        assert_ok(danaus_alloc(device, bytes, &s.on_x[i]));
        assert_ok(danaus_alloc(device, bytes, &s.on_y[i]));
        assert_ok(danaus_upload(device, s.on_x[i], s.x[i].data, bytes));
        assert_ok(danaus_ks_execute(
            s.plan, device, s.weights, s.batch, s.on_x[i], s.on_y[i]));
        assert_ok(danaus_download(device, s.expected[i].data, s.on_y[i], bytes));
    }
    chain_free(&c);
    return s;
}

static void pair_free(pair_run *s)
{
    for (int i = 0; i < 2; i++) {
        danaus_free(s->device, s->on_x[i]);
        danaus_free(s->device, s->on_y[i]);
        array_free(&s->x[i]);
        array_free(&s->expected[i]);
    }
    array_free(&s->found);
    danaus_ks_weights_destroy(s->weights);
    danaus_ks_plan_destroy(s->plan);
}

/* At the same time, each with an x and a y of its own: as one after the other. */
static void two_streams_do_not_disturb_each_other(void **state)
{
    danaus_device *device = *state;
    void *context, *stream[2];
    assert_int_equal(d.primary_retain(&context, 0), 0);
    assert_int_equal(d.context_set(context), 0);
    pair_run s = pair_make(device);
    for (int i = 0; i < 2; i++)
        assert_int_equal(d.stream_create(&stream[i], 1), 0);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 2; i++) {
            assert_ok(danaus_device_set_stream(device, stream[i]));
            assert_ok(danaus_ks_execute(
                s.plan, device, s.weights, s.batch, s.on_x[i], s.on_y[i]));
        }
        assert_ok(danaus_device_sync(device));
        for (int i = 0; i < 2; i++) {
            assert_ok(danaus_download(
                device, s.found.data, s.on_y[i], (size_t)s.found.count * 4));
            assert_true(array_same(&s.found, &s.expected[i]));
        }
    }
    assert_ok(danaus_device_set_stream(device, NULL));
    pair_free(&s);
    for (int i = 0; i < 2; i++)
        assert_int_equal(d.stream_destroy(stream[i]), 0);
    assert_int_equal(d.context_set(NULL), 0);
    assert_int_equal(d.primary_release(0), 0);
}

/* A graph is launched after a larger batch, which needs more scratch, has run. */
static void a_captured_graph_is_right_after_larger_batches(void **state)
{
    danaus_device *device = *state;
    void *context, *stream, *graph, *made, *other;
    assert_int_equal(d.primary_retain(&context, 0), 0);
    assert_int_equal(d.context_set(context), 0);
    pair_run s = pair_make(device);
    size_t bytes = (size_t)s.found.count * 4;
    assert_int_equal(d.stream_create(&stream, 1), 0);
    assert_ok(danaus_device_set_stream(device, stream));
    assert_ok(danaus_ks_execute(
        s.plan, device, s.weights, s.batch / 4, s.on_x[0], s.on_y[0]));
    assert_ok(danaus_download(device, s.expected[0].data, s.on_y[0], bytes / 4));
    assert_int_equal(d.begin_capture(stream, 0), 0);
    assert_ok(danaus_ks_execute(
        s.plan, device, s.weights, s.batch / 4, s.on_x[0], s.on_y[0]));
    assert_int_equal(d.end_capture(stream, &graph), 0);
    assert_int_equal(d.instantiate(&made, graph, 0), 0);
    assert_ok(
        danaus_ks_execute(s.plan, device, s.weights, s.batch, s.on_x[1], s.on_y[1]));
    assert_ok(danaus_alloc(device, bytes / 4, &other)); /* where it may have been */
    assert_ok(danaus_upload(device, other, s.x[1].data, bytes / 4));
    assert_int_equal(d.graph_launch(made, stream), 0);
    assert_int_equal(d.stream_synchronize(stream), 0);
    assert_ok(danaus_download(device, s.found.data, other, bytes / 4));
    assert_memory_equal(s.found.data, s.x[1].data, bytes / 4);
    assert_ok(danaus_download(device, s.found.data, s.on_y[0], bytes / 4));
    assert_memory_equal(s.found.data, s.expected[0].data, bytes / 4);
    danaus_free(device, other);
    assert_int_equal(d.made_destroy(made), 0);
    assert_int_equal(d.graph_destroy(graph), 0);
    assert_ok(danaus_device_set_stream(device, NULL));
    pair_free(&s);
    assert_int_equal(d.stream_destroy(stream), 0);
    assert_int_equal(d.context_set(NULL), 0);
    assert_int_equal(d.primary_release(0), 0);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    if (!open_driver())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(two_streams_do_not_disturb_each_other, device),
        cmocka_unit_test_prestate(
            a_captured_graph_is_right_after_larger_batches, device),
    };
    int failed = cmocka_run_group_tests_name("streams", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
