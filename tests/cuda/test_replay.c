/* Calls that come again, on the emulated driver: what they may not do, and that they become
   graphs which give the same. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/life.h"

#include <string.h>

static emulator_control *control;

typedef danaus_status (*again)(const story *s, const life *l);

static int calls_of(const char *function, again call, const story *s, const life *l)
{
    control->function = function;
    control->number = control->calls = 0;
    assert_ok(call(s, l));
    control->function = NULL;
    return control->calls;
}

/* Makes a call once more: a graph of so many launches and products of a library, some of
   which end with what follows. */
static void expect_only(
    const story *s, again call, int launches, int products, int ended)
{
    rng r = { 1 };
    random_chain c = chain_random(&r, s->patterns, 2, DANAUS_F32, 1);
    array x = array_random(&r, DANAUS_F32, vector_of(s));
    array results = array_make(DANAUS_F32, results_of(s));
    life l = { 0 };
    *control = (emulator_control){ 0 };
    assert_ok(try_life(s, "cuda:0", &l, &c, x.data, results.data));
    static const char *const never[] = {
        "cuMemAlloc_v2",         "cuMemFree_v2",
        "cuStreamSynchronize",   "cuModuleLoadData",
        "cuMemcpyAsync",         "cuFuncSetAttribute",
        "cuMemsetD8Async",       "cuGraphInstantiateWithFlags",
        "cublasCreate_v2",       "cublasDestroy_v2",
        "cublasSetWorkspace_v2", "cuLaunchKernel",
    };
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        assert_int_equal(calls_of(never[i], call, s, &l), 0);
    control->launches = control->products = 0;
    assert_int_equal(calls_of("cuGraphLaunch", call, s, &l), 1);
    assert_int_equal(control->launches, launches);
    assert_int_equal(control->products, products);
    /* What is captured by the caller is launched. */
    control->capturing = 1;
    assert_int_equal(calls_of("cuLaunchKernel", call, s, &l), launches);
    assert_int_equal(
        calls_of("cublasGemmStridedBatchedEx_64", call, s, &l), products - ended);
    assert_int_equal(calls_of("cublasLtMatmul", call, s, &l), ended);
    control->capturing = 0;
    end_life(&l);
    expect_nothing_lost(control, "nothing", 0);
    array_free(&x);
    array_free(&results);
    chain_free(&c);
}

static void executing_again_neither_allocates_nor_waits(void **state)
{
    (void)state;
    expect_only(&plain, execute, 2, 0, 0);
    /* One product is of many, the other of one, with the bias. */
    expect_only(&by_library, execute, 0, 2, 1);
    expect_only(&turned, execute, 3, 1, 0); /* with x and y turned */
}

static void gradients_neither_allocate_nor_wait_again(void **state)
{
    (void)state;
    /* parts of both dw, three products, and what adds up parts and makes dbias */
    expect_only(&plain, go_back, 6, 0, 0);
    /* a product forward, one back, two for dw, one of them of all lanes; three turns, and
       what adds up parts and makes dbias */
    expect_only(&turned, go_back, 4, 4, 0);
}

/* More calls than the device remembers, each often enough to be captured and to come from
   the graph: the first column of all is the same. */
static void calls_that_come_again_give_the_same(void **state)
{
    (void)state;
    rng r = { 1 };
    story s = by_library;
    random_chain c = chain_random(&r, s.patterns, 2, DANAUS_F32, 1);
    size_t line = (size_t)rows_of(s.patterns[0]) * 4;
    s.batch = 20;
    array x = array_random(&r, DANAUS_F32, vector_of(&s));
    array results = array_make(DANAUS_F32, results_of(&s));
    array found = array_make(DANAUS_F32, rows_of(s.patterns[0]));
    life l = { 0 };
    *control = (emulator_control){ 0 };
    assert_ok(try_life(&s, "cuda:0", &l, &c, x.data, results.data));
    for (int i = 0; i < 3 * rounds_of(400); i++) {
        int64_t batch = 1 + i / 3 % 20;
        float *y = l.memory + vector_of(&s) + i / 60;
        assert_ok(danaus_ks_execute(l.plan, l.device, l.weights, batch, l.memory, y));
        assert_ok(danaus_download(l.device, found.data, y, line));
        assert_memory_equal(found.data, results.data, line);
    }
    assert_in_range(control->graphs, 1, 400);
    end_life(&l);
    expect_nothing_lost(control, "nothing", 0);
    array_free(&x);
    array_free(&results);
    array_free(&found);
    chain_free(&c);
}

/* ---- calls whose operands are others each time ---- */

#define CALLS 12 /* more than a form takes to become a graph */

/* One factor whose x lies first in memory, and what it makes of it. */
typedef struct mover {
    life l;
    random_chain c;
    array x, expected, found;
    int64_t batch;
} mover;

static void open_mover(mover *m)
{
    rng r = { 1 };
    danaus_pattern p = { 2, 3, 4, 2 };
    danaus_ks_desc desc = { .batch = 5 };
    void *memory = NULL;
    *m = (mover){ .batch = 5 };
    m->c = chain_random(&r, &p, 1, DANAUS_F32, 1);
    m->x = array_random(&r, DANAUS_F32, cols_of(p) * m->batch);
    m->expected = array_make(DANAUS_F32, rows_of(p) * m->batch);
    m->found = array_make(DANAUS_F32, rows_of(p) * m->batch);
    assert_ok(danaus_device_open("cuda:0", &m->l.device));
    assert_ok(danaus_ks_plan_create(m->l.device, &p, 1, &desc, &m->l.plan));
    assert_ok(
        danaus_ks_weights_create(m->l.plan, m->l.device, m->c.chain, &m->l.weights));
    assert_ok(danaus_alloc(m->l.device, 1 << 16, &memory));
    m->l.memory = memory;
    assert_ok(danaus_upload(
        m->l.device, memory, m->x.data, (size_t)(cols_of(p) * m->batch) * 4));
}

/* Makes y, `shift` numbers behind x; the first time it is what is expected later. */
static void move(mover *m, int shift, int is_first)
{
    float *y = m->l.memory + 256 + shift;
    array *to = is_first ? &m->expected : &m->found;
    assert_ok(danaus_ks_execute(
        m->l.plan, m->l.device, m->l.weights, m->batch, m->l.memory, y));
    assert_ok(danaus_download(m->l.device, to->data, y, 12 * 5 * 4));
    assert_true(is_first || array_same(&m->found, &m->expected));
}

static void close_mover(mover *m)
{
    end_life(&m->l);
    expect_nothing_lost(control, "nothing", 0);
    array_free(&m->x);
    array_free(&m->expected);
    array_free(&m->found);
    chain_free(&m->c);
}

static void one_launch_becomes_a_graph_when_it_has_come_often(void **state)
{
    (void)state;
    mover m;
    *control = (emulator_control){ .function = "cuGraphExecKernelNodeSetParams_v2" };
    open_mover(&m);
    for (int i = 1; i <= 40; i++) {
        move(&m, 0, i == 1);
        assert_int_equal(control->launches, i);
    }
    assert_int_equal(control->calls, 32 - 8); /* before it has a graph of its own */
    close_mover(&m);
}

static void other_operands_are_given_to_the_same_graph(void **state)
{
    (void)state;
    mover m;
    *control = (emulator_control){ .function = "cuLaunchKernel" };
    open_mover(&m);
    for (int i = 0; i < CALLS; i++)
        move(&m, 64 * i, i == 0);
    assert_int_equal(control->calls, 8); /* one of them to be captured */
    control->function = "cuGraphLaunch";
    control->calls = 0;
    for (int i = CALLS; i < 2 * CALLS; i++)
        move(&m, 64 * i, 0);
    assert_int_equal(control->calls, CALLS);
    /* Unaligned operands need another function, and with it another graph. */
    for (int i = 0; i < 2 * CALLS; i++)
        move(&m, 64 * i + i % 2, 0);
    assert_int_equal(control->launches, 4 * CALLS);
    close_mover(&m);
}

static void what_goes_wrong_with_a_graph_is_launched(void **state)
{
    (void)state;
    static const char *const functions[] = {
        "cuStreamCreate",
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuStreamGetCaptureInfo_v2",
        "cuGraphInstantiateWithFlags",
        "cuGraphGetNodes",
        "cuGraphExecKernelNodeSetParams_v2",
    };
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        /* A device creates two streams when it opens. */
        for (int n = f ? 1 : 3, reached = 1; reached; n++) {
            mover m;
            *control = (emulator_control){ .function = functions[f], .error = 719 };
            control->number = n;
            open_mover(&m);
            for (int i = 0; i < CALLS; i++)
                move(&m, 64 * i, i == 0);
            reached = control->calls >= n;
            close_mover(&m);
        }
}

/* Lent scratch that is too small does not grow, captured or not. */
static void a_captured_product_has_scratch(void **state)
{
    (void)state;
    rng r = { 1 };
    const story *s = &plain;
    random_chain c = chain_random(&r, s->patterns, 2, DANAUS_F32, 0);
    danaus_ks_desc desc = { .keep_factors = 1 };
    life l = { 0 };
    void *lent = NULL, *memory = NULL;
    *control = (emulator_control){ .capturing = 1 };
    assert_ok(danaus_device_open("cuda:0", &l.device));
    assert_ok(danaus_ks_plan_create(l.device, s->patterns, 2, &desc, &l.plan));
    assert_ok(danaus_ks_weights_create(l.plan, l.device, c.chain, &l.weights));
    assert_ok(danaus_alloc(l.device, (size_t)vector_of(s) * 8, &memory));
    l.memory = memory;
    assert_ok(danaus_alloc(l.device, 4096, &lent));
    assert_ok(execute(s, &l));
    assert_status(
        danaus_device_set_scratch(l.device, (char *)lent + 64, 512),
        DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_device_set_scratch(l.device, lent, 16));
    assert_status(execute(s, &l), DANAUS_ERR_MEMORY);
    assert_ok(danaus_device_set_scratch(l.device, lent, 4096));
    assert_ok(execute(s, &l));
    assert_ok(danaus_device_set_scratch(l.device, NULL, 0));
    assert_ok(execute(s, &l));
    control->capturing = 0;
    assert_ok(execute(s, &l));
    control->capturing = 1;
    assert_ok(execute(s, &l));
    int stream;
    assert_ok(danaus_device_set_stream(l.device, &stream));
    assert_ok(execute(s, &l));
    assert_ptr_equal(control->stream, &stream);
    danaus_free(l.device, lent);
    end_life(&l);
    expect_nothing_lost(control, "nothing", 0);
    chain_free(&c);
}

int main(void)
{
    control = need_emulator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(executing_again_neither_allocates_nor_waits),
        cmocka_unit_test(gradients_neither_allocate_nor_wait_again),
        cmocka_unit_test(calls_that_come_again_give_the_same),
        cmocka_unit_test(one_launch_becomes_a_graph_when_it_has_come_often),
        cmocka_unit_test(other_operands_are_given_to_the_same_graph),
        cmocka_unit_test(what_goes_wrong_with_a_graph_is_launched),
        cmocka_unit_test(a_captured_product_has_scratch),
    };
    return cmocka_run_group_tests_name("replay", tests, NULL, NULL);
}
