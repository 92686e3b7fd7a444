/* Long convolutions on streams and in graphs of the caller's, on a GPU or the emulated one:
   windows that a block of threads has room for, and beyond. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/caller.h"
#include "support/conv.h"
#include "support/device.h"
#include "support/packed.h"

#include <stdlib.h>
#include <string.h>

/* ---- scenes ---- */

static const danaus_conv_desc descs[] = {
    { .channels = 6, .filters = 3, .length = 300, .dtype = DANAUS_F16 },
    { .channels = 4, .length = 70, .filter_length = 90, .kind = DANAUS_CIRCULAR },
    { .channels = 2,
      .length = 33000,
      .filter_length = 33000,
      .kind = DANAUS_BIDIRECTIONAL,
      .dtype = DANAUS_BF16 },
    { .channels = 3, .filters = 1, .length = 9000, .dtype = DANAUS_F64 },
    { .channels = 6, .length = 500, .dtype = DANAUS_F16, .accuracy = DANAUS_CONV_FAST },
};

#define DESCS ((int)(sizeof descs / sizeof *descs))

/* A case, what it gives on the default stream, and filters of the device's memory. */
typedef struct stage {
    conv_case c;
    array dy;
    conv_scene s;
    conv_outcome expected;
    void *k[3];
} stage;

static stage *stage_make(danaus_device *device, int number)
{
    rng r = { (uint64_t)number };
    stage *g = calloc(1, sizeof *g);
    assert_non_null(g);
    g->c = conv_random(&r, &descs[number], 2, 7);
    g->dy = array_random(&r, g->c.desc.dtype, g->c.u.count);
    g->s = conv_scene_make(device, &g->c, &g->dy);
    const array *filters[] = { &g->c.k, &g->c.k_reverse, &g->c.skip };
    for (int i = 0; i < 3; i++)
        g->k[i] = to_device(device, filters[i]);
    assert_ok(conv_scene_run(&g->s, device));
    assert_ok(conv_scene_go_back(&g->s, device));
    g->expected = conv_scene_results(&g->s);
    return g;
}

/* Filters, y and all gradients. */
static void enqueue(const stage *g)
{
    assert_ok(danaus_spectrum_update_from(
        g->s.spectrum, g->s.device, g->c.k.dtype, g->k[0], g->k[1], g->k[2]));
    assert_ok(conv_scene_run(&g->s, g->s.device));
    assert_ok(conv_scene_go_back(&g->s, g->s.device));
}

static void expect_results(const stage *g)
{
    conv_outcome found = conv_scene_results(&g->s);
    assert_true(conv_outcome_same(&found, &g->expected));
    conv_outcome_free(&found);
}

static void stage_end(stage *g)
{
    const array *filters[] = { &g->c.k, &g->c.k_reverse, &g->c.skip };
    for (int i = 0; i < 3; i++)
        from_device(g->s.device, filters[i], g->k[i]);
    conv_scene_end(&g->s);
    conv_outcome_free(&g->expected);
    array_free(&g->dy);
    conv_free(&g->c);
    free(g);
}

/* ---- streams ---- */

/* In the GPU's primary context. */
static void *enter(void **stream)
{
    void *context;
    assert_int_equal(d.primary_retain(&context, 0), 0);
    assert_int_equal(d.context_push(context), 0);
    assert_int_equal(d.stream_create(stream, 1), 0); /* does not wait for others */
    return context;
}

static void leave(danaus_device *device, void *stream)
{
    void *context;
    assert_ok(danaus_device_set_stream(device, NULL));
    assert_int_equal(d.stream_destroy(stream), 0);
    assert_int_equal(d.context_pop(&context), 0);
    assert_int_equal(d.primary_release(0), 0);
}

static void *capture(const stage *g, void *stream)
{
    void *graph, *made;
    assert_int_equal(d.begin_capture(stream, 0), 0);
    enqueue(g);
    assert_int_equal(d.end_capture(stream, &graph), 0);
    assert_int_equal(d.instantiate(&made, graph, 0), 0);
    assert_int_equal(d.graph_destroy(graph), 0);
    return made;
}

/* Other filters, or again those of the case. */
static void put_filters(const stage *g, int others)
{
    array k = array_make(g->c.k.dtype, g->c.k.count);
    size_t bytes = (size_t)k.count * danaus_dtype_size(k.dtype);
    memset(k.data, 0, bytes);
    assert_ok(
        danaus_upload(g->s.device, g->k[0], others ? k.data : g->c.k.data, bytes));
    array_free(&k);
}

static void filters_and_gradients_run_on_the_callers_stream(void **state)
{
    for (int i = 0; i < DESCS; i++) {
        void *stream;
        stage *g = stage_make(*state, i);
        enter(&stream);
        assert_ok(danaus_device_set_stream(*state, stream));
        for (int round = 0; round < 3; round++) {
            conv_scene_forget(&g->s);
            enqueue(g);
            assert_int_equal(d.stream_synchronize(stream), 0);
            expect_results(g);
        }
        leave(*state, stream);
        stage_end(g);
    }
}

/* Launches take the filters that are there then. */
static void filters_and_gradients_are_captured_in_graphs(void **state)
{
    for (int i = 0; i < DESCS; i++) {
        void *stream;
        stage *g = stage_make(*state, i);
        enter(&stream);
        assert_ok(danaus_device_set_stream(*state, stream));
        void *made = capture(g, stream);
        for (int round = 0; round < 4; round++) {
            put_filters(g, round % 2);
            assert_int_equal(d.graph_launch(made, stream), 0);
            assert_int_equal(d.stream_synchronize(stream), 0);
            if (round % 2 == 0)
                expect_results(g);
        }
        assert_int_equal(d.made_destroy(made), 0);
        leave(*state, stream);
        stage_end(g);
    }
}

/* What graphs read of a plan beside operands stays when it has gone. */
static void graphs_outlive_their_plan(void **state)
{
    danaus_device *device = *state;
    for (int i = 0; i < DESCS; i++) {
        void *stream, *memory, *others[8];
        size_t bytes;
        stage *g = stage_make(device, i);
        assert_ok(danaus_spectrum_bytes(g->s.plan, &bytes));
        assert_ok(danaus_alloc(device, bytes, &memory));
        danaus_spectrum_destroy(g->s.spectrum);
        assert_ok(danaus_spectrum_create_in(
            g->s.plan, device, memory, bytes, &g->s.spectrum));
        enter(&stream);
        assert_ok(danaus_device_set_stream(device, stream));
        void *made = capture(g, stream);
        danaus_spectrum_destroy(g->s.spectrum);
        danaus_conv_plan_destroy(g->s.plan);
        g->s.spectrum = NULL;
        g->s.plan = NULL;
        for (int n = 0; n < 8; n++) { /* where something of it may have been */
            assert_ok(danaus_alloc(device, (size_t)64 << n, &others[n]));
            array zeros = array_make(DANAUS_F32, 16 << n);
            memset(zeros.data, 0, (size_t)64 << n);
            assert_ok(danaus_upload(device, others[n], zeros.data, (size_t)64 << n));
            array_free(&zeros);
        }
        assert_int_equal(d.graph_launch(made, stream), 0);
        assert_int_equal(d.stream_synchronize(stream), 0);
        expect_results(g);
        for (int n = 0; n < 8; n++)
            danaus_free(device, others[n]);
        assert_int_equal(d.made_destroy(made), 0);
        leave(device, stream);
        danaus_free(device, memory);
        stage_end(g);
    }
}

/* The capture goes on. */
static void filters_of_the_host_are_refused_while_a_graph_is_captured(void **state)
{
    void *stream, *graph;
    stage *g = stage_make(*state, 0);
    enter(&stream);
    assert_ok(danaus_device_set_stream(*state, stream));
    assert_int_equal(d.begin_capture(stream, 0), 0);
    assert_status(
        danaus_spectrum_update(
            g->s.spectrum, *state, g->c.k.data, g->c.k_reverse.data, NULL),
        DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "danaus_spectrum_update_from"));
    enqueue(g);
    assert_int_equal(d.end_capture(stream, &graph), 0);
    assert_int_equal(d.graph_destroy(graph), 0);
    leave(*state, stream);
    stage_end(g);
}

/* In turns, each with results of its own: as one after the other. */
static void two_streams_do_not_disturb_each_other(void **state)
{
    danaus_device *device = *state;
    for (int i = 0; i < DESCS; i++) {
        void *stream[2];
        stage *g = stage_make(device, i);
        conv_scene s[2] = { conv_scene_like(&g->s), conv_scene_like(&g->s) };
        enter(&stream[0]);
        enter(&stream[1]);
        for (int round = 0; round < 10; round++) {
            assert_ok(danaus_device_set_stream(device, stream[round % 2]));
            assert_ok(conv_scene_run(&s[round % 2], device));
            assert_ok(conv_scene_go_back(&s[round % 2], device));
        }
        for (int n = 0; n < 2; n++) {
            assert_int_equal(d.stream_synchronize(stream[n]), 0);
            conv_outcome found = conv_scene_results(&s[n]);
            assert_true(conv_outcome_same(&found, &g->expected));
            conv_outcome_free(&found);
            conv_scene_end(&s[n]);
        }
        leave(device, stream[1]);
        leave(device, stream[0]);
        stage_end(g);
    }
}

/* ---- packed sequences ---- */

/* y, du and dk of packed sequences, in the device's memory. */
typedef struct packed_scene {
    const packed_case *p;
    packed_plan plan;
    void *u, *dy;
    array result[3];
    void *there[3];
} packed_scene;

static packed_scene packed_scene_make(danaus_device *device, const packed_case *p)
{
    const conv_case *c = &p->c;
    packed_scene s = { .p = p, .plan = packed_open(device, p) };
    s.u = to_device(device, &c->u);
    s.dy = to_device(device, &p->dy);
    s.result[0] = array_make(c->u.dtype, c->u.count);
    s.result[1] = array_make(c->u.dtype, c->u.count);
    s.result[2] = array_make(c->k.dtype, c->k.count);
    for (int i = 0; i < 3; i++)
        s.there[i] = to_device(device, &s.result[i]);
    return s;
}

/* With offsets that are gone afterwards. */
static void packed_scene_enqueue(const packed_scene *s, danaus_device *device)
{
    const packed_case *p = s->p;
    danaus_conv_gradients g = { .du = s->there[1], .dk = s->there[2] };
    size_t bytes = (size_t)(p->sequences + 1) * sizeof *p->offsets;
    int64_t *offsets = malloc(bytes);
    assert_non_null(offsets);
    memcpy(offsets, p->offsets, bytes);
    assert_ok(danaus_conv_execute_packed(
        s->plan.plan, device, s->plan.spectrum, p->sequences, offsets, s->u, NULL, NULL,
        s->there[0]));
    assert_ok(danaus_conv_gradient_packed(
        s->plan.plan, device, s->plan.spectrum, p->sequences, offsets, s->u, NULL, NULL,
        s->dy, &g));
    memset(offsets, 0x55, bytes);
    free(offsets);
}

static void packed_scene_end(packed_scene *s, danaus_device *device)
{
    const packed_outcome expected = packed_run(device, &s->plan, s->p);
    const array *should[] = { &expected.y, &expected.du, &expected.dk };
    from_device(device, &s->p->c.u, s->u);
    from_device(device, &s->p->dy, s->dy);
    for (int i = 0; i < 3; i++) {
        from_device(device, &s->result[i], s->there[i]);
        array_expect_guards(&s->result[i]);
        assert_true(array_same(&s->result[i], should[i]));
        array_free(&s->result[i]);
    }
    packed_outcome_free((packed_outcome *)&expected);
    packed_close(&s->plan);
}

/* More sequences than a launch takes along; other calls use the scratch meanwhile. */
static void graphs_keep_the_offsets_of_packed_sequences(void **state)
{
    danaus_device *device = *state;
    rng r = { 7 };
    danaus_conv_desc desc = { .channels = 2, .length = 300, .filter_length = 200 };
    int64_t lengths[PACKED_MOST];
    void *stream, *graph, *made;
    for (int i = 0; i < PACKED_MOST; i++)
        lengths[i] = rng_int(&r, 0, 300);
    packed_case p = packed_random(&r, &desc, PACKED_MOST, lengths, 0);
    packed_case other = packed_random(&r, &desc, 3, lengths, 0);
    packed_scene s = packed_scene_make(device, &p),
                 t = packed_scene_make(device, &other);
    enter(&stream);
    assert_ok(danaus_device_set_stream(device, stream));
    packed_scene_enqueue(&s, device); /* scratch grows */
    assert_int_equal(d.begin_capture(stream, 0), 0);
    packed_scene_enqueue(&s, device);
    assert_int_equal(d.end_capture(stream, &graph), 0);
    assert_int_equal(d.instantiate(&made, graph, 0), 0);
    assert_int_equal(d.graph_destroy(graph), 0);
    for (int round = 0; round < 2; round++) {
        packed_scene_enqueue(&t, device);
        assert_int_equal(d.graph_launch(made, stream), 0);
    }
    assert_int_equal(d.stream_synchronize(stream), 0);
    assert_int_equal(d.made_destroy(made), 0);
    leave(device, stream);
    packed_scene_end(&s, device);
    packed_scene_end(&t, device);
    packed_free(&p);
    packed_free(&other);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(
            filters_and_gradients_run_on_the_callers_stream, device),
        cmocka_unit_test_prestate(filters_and_gradients_are_captured_in_graphs, device),
        cmocka_unit_test_prestate(graphs_outlive_their_plan, device),
        cmocka_unit_test_prestate(
            filters_of_the_host_are_refused_while_a_graph_is_captured, device),
        cmocka_unit_test_prestate(two_streams_do_not_disturb_each_other, device),
        cmocka_unit_test_prestate(graphs_keep_the_offsets_of_packed_sequences, device),
    };
    int failed = cmocka_run_group_tests_name("convolutions", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
