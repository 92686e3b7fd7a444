/* Products of a library followed by a bias, an activation or a residual: in one launch if the
   library can, else in two, and right in all layouts and types. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "device/tuning.h"
#include "gpu/gpu.h"
#include "support/chains.h"
#include "support/device.h"
#include "support/life.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static emulator_control *control;

static array copy_of(const array *a)
{
    array copy = array_make(a->dtype, a->count);
    memcpy(copy.data, a->data, (size_t)a->count * danaus_dtype_size(a->dtype));
    return copy;
}

/* One factor by one row, and what follows. */
typedef struct ending_case {
    danaus_pattern p;
    const char *row;
    danaus_dtype dtype;
    danaus_math math;
    danaus_layout layout;
    danaus_activation activation;
    int bias, residual;
    int no_algorithms; /* of cublasLt: its stand-in's */
} ending_case;

/* True if cublasLt's epilogues are enough. */
static int ends(const ending_case *c, int64_t batch)
{
    int known = c->activation == DANAUS_ACTIVATION_NONE ||
                c->activation == DANAUS_RELU || c->activation == DANAUS_GELU_TANH;
    int real =
        c->dtype == DANAUS_F32 || c->dtype == DANAUS_F16 || c->dtype == DANAUS_BF16;
    return (c->bias || c->activation || c->residual) && known && real && batch > 1 &&
           !c->no_algorithms && (!c->bias || c->layout == DANAUS_BATCH_FIRST) &&
           (c->p.a == 1 || c->p.d == 1 || strstr(c->row, "dense"));
}

static danaus_ks_desc desc_of(const ending_case *c, int64_t batch)
{
    return (danaus_ks_desc){ .layout = c->layout,
                             .dtype = c->dtype,
                             .math = c->math,
                             .batch = batch,
                             .activation = c->activation,
                             .bias = c->bias,
                             .residual = c->residual };
}

/* A device that chooses the case's row. */
static danaus_device *open_for(const ending_case *c, int64_t batch)
{
    danaus_device *device = NULL;
    problem p = { .pattern = c->p, .dtype = c->dtype, .math = c->math };
    p.layout = c->layout;
    p.batch = batch;
    assert_ok(danaus_device_open("cuda:0", &device));
    expect_device(device);
    for (const kernel *k = device->kernels; k->name; k++)
        if (!strcmp(k->name, c->row) && dn_fits(k, &p))
            dn_tuning_add(device->tuning, &p, k, 1e-9);
    return device;
}

static void expect_row(
    danaus_device *device, const danaus_ks_desc *desc, const ending_case *c)
{
    danaus_ks_plan *plan = NULL;
    char said[256];
    assert_ok(danaus_ks_plan_create(device, &c->p, 1, desc, &plan));
    danaus_ks_plan_describe(plan, said, sizeof said);
    if (!strstr(said, c->row))
        fail_msg("%s is not by %s", said, c->row);
    danaus_ks_plan_destroy(plan);
}

/* A chain in the plan's type, so that its bias is not rounded. */
static void check_case(uint64_t seed, const ending_case *c, int64_t batch)
{
    rng r = { seed };
    random_chain chain = chain_random(&r, &c->p, 1, c->dtype, c->bias);
    danaus_ks_desc desc = desc_of(c, batch);
    control->no_algorithms = c->no_algorithms; /* also when planning */
    danaus_device *device = open_for(c, batch);
    expect_row(device, &desc, c);
    *control = (emulator_control){ .contexts = control->contexts,
                                   .no_algorithms = c->no_algorithms };
    control->launches = control->endings = control->choices = 0;
    check_product(&r, device, &chain, &desc, batch);
    assert_int_equal(control->endings, ends(c, batch));
    assert_int_equal(control->launches, (c->bias || c->activation) && !ends(c, batch));
    danaus_device_close(device);
    chain_free(&chain);
}

/* Wholes and borders of pieces of 16 bytes, one column and more. */
static void every_ending_is_right_in_every_layout_and_type(void **state)
{
    (void)state;
    static const danaus_pattern patterns[] = {
        { 1, 16, 8, 1 }, { 3, 5, 4, 1 }, { 1, 3, 4, 5 }, { 2, 8, 3, 1 }
    };
    static const int64_t batches[] = { 16, 7, 1 };
    uint64_t n = 0;
    int step = case_step();
    for (int t = 0; t < TEST_DTYPES; t++)
        for (int form = t % step; form < 4 * 2 * 2 * 5 * 3; form += step) {
            danaus_dtype dtype = test_dtypes[t];
            ending_case c = { .p = patterns[form % 4],
                              .dtype = dtype,
                              .layout = (danaus_layout)(form / 4 % 2),
                              .bias = form / 8 % 2,
                              .activation = (danaus_activation)(form / 16 % 5) };
            char row[32];
            int dense = c.p.d > 1 && c.layout == DANAUS_BATCH_FIRST;
            int complex = dtype == DANAUS_C64 || dtype == DANAUS_C128;
            const char *name = danaus_dtype_name(dtype);
            c.math = form % 3 == 0 && dtype == DANAUS_F32 ? DANAUS_MATH_TF32
                                                          : DANAUS_MATH_F32;
            if (complex && c.activation)
                continue;
            snprintf(
                row, sizeof row, "ks.%s.%s", dense ? "dense" : "blas",
                c.math == DANAUS_MATH_TF32 ? "tf32" : name);
            c.row = row;
            check_case(++n, &c, batches[form / 80]);
        }
}

/* Products are added to it by the library, where it does not end them after a copy to y. */
static void every_residual_is_right_in_every_layout_and_type(void **state)
{
    (void)state;
    static const danaus_pattern patterns[] = { { 1, 16, 8, 1 },
                                               { 3, 5, 4, 1 },
                                               { 2, 3, 4, 5 } };
    static const int64_t batches[] = { 16, 7, 1 };
    uint64_t n = 1000;
    for (int t = 0; t < TEST_DTYPES; t++)
        for (int form = 0; form < 3 * 2 * 2 * 2 * 2; form++) {
            ending_case c = { .p = patterns[form % 3],
                              .dtype = test_dtypes[t],
                              .layout = (danaus_layout)(form / 3 % 2),
                              .bias = form / 6 % 2,
                              .no_algorithms = form / 12 % 2,
                              .residual = 1 };
            char row[32];
            int dense = c.p.d > 1 && c.layout == DANAUS_BATCH_FIRST;
            snprintf(
                row, sizeof row, "ks.%s.%s", dense ? "dense" : "blas",
                danaus_dtype_name(c.dtype));
            c.row = row;
            n++;
            check_case(n, &c, batches[n % 3]);
        }
    *control = (emulator_control){ 0 };
}

/* y may be where the residual is. */
static void an_activation_and_a_residual_are_for_other_rows(void **state)
{
    (void)state;
    problem p = { .pattern = { 1, 16, 8, 1 },
                  .dtype = DANAUS_F32,
                  .batch = 16,
                  .activation = DANAUS_RELU,
                  .residual = 1 };
    int rows = 0;
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        if (dn_fits(k, &p)) {
            assert_false(dn_gpu_family(k)->library);
            rows++;
        }
    assert_in_range(rows, 1, 1000);
}

/* What a chain keeps in f32 is rounded to the plan's type once, in either way. */
static void a_bias_is_rounded_where_the_library_adds_it(void **state)
{
    (void)state;
    ending_case c = { .p = { 1, 16, 8, 1 }, .row = "ks.blas.f16", .dtype = DANAUS_F16 };
    rng r = { 5 };
    random_chain chain = chain_random(&r, &c.p, 1, DANAUS_F32, 1);
    array x = array_random(&r, DANAUS_F16, 8 * 16);
    c.bias = 1;
    danaus_ks_desc desc = desc_of(&c, 16);
    danaus_device *device = open_for(&c, 16);
    array y = multiply(device, &chain, &desc, 16, &x);
    signal expected = multiply_exactly(&chain, &desc, 16, &x);
    expect_signal(&y, desc.layout, &expected, "a bias of f32 in f16");
    assert_int_equal(control->endings, 1);
    danaus_device_close(device);
    signal_free(&expected);
    array_free(&x);
    array_free(&y);
    chain_free(&chain);
}

/* The error for every finite number of 16 bits is that of rounding, a sixth of a unit of f16
   more, and less than half of the smallest number of f16. */
static void gelu_of_16_bits_is_almost_exact(void **state)
{
    (void)state;
    static const struct {
        danaus_dtype dtype;
        const char *row;
    } types[] = { { DANAUS_F16, "ks.blas.f16" },
                  { DANAUS_BF16, "ks.blas.bf16" },
                  { DANAUS_F16, "ks.simt.f16.64x64x1" } };
    enum { NUMBERS = 1 << 16, ROWS = 16 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        danaus_dtype dtype = types[i].dtype;
        ending_case c = { .p = { ROWS, 1, 1, 1 },
                          .row = types[i].row,
                          .dtype = dtype,
                          .activation = DANAUS_GELU };
        rng r = { 1 };
        random_chain chain = chain_random(&r, &c.p, 1, dtype, 0);
        array x = array_make(dtype, NUMBERS);
        for (int n = 0; n < NUMBERS; n++) {
            uint16_t bits = (uint16_t)n;
            memcpy((uint16_t *)x.data + n, &bits, sizeof bits);
            if (!isfinite(element_get(dtype, x.data, n).re))
                element_put(dtype, x.data, n, (value){ 0, 0 });
        }
        for (int n = 0; n < ROWS; n++)
            element_put(
                dtype, danaus_chain_weights(chain.chain, 0), n, (value){ 1, 0 });
        danaus_ks_desc desc = desc_of(&c, NUMBERS / ROWS);
        danaus_device *device = open_for(&c, NUMBERS / ROWS);
        array y = multiply(device, &chain, &desc, NUMBERS / ROWS, &x);
        precision q = precision_of(dtype);
        for (int n = 0; n < NUMBERS; n++) {
            double v = element_get(dtype, x.data, n).re;
            double exact = v * erfc(-v * 0.70710678118654752) / 2;
            double found = element_get(dtype, y.data, n).re;
            if (!(fabs(found - exact) <= (q.unit + 9e-5) * fabs(exact) + 0x1.dp-25))
                fail_msg("%s: gelu(%g) is %g, not %g", c.row, v, found, exact);
        }
        danaus_device_close(device);
        array_free(&x);
        array_free(&y);
        chain_free(&chain);
    }
}

/* ---- a plan that runs again and again ---- */

typedef struct runner {
    danaus_device *device;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    random_chain chain;
    array x, y;
    void *dx, *dy;
    int64_t batch;
} runner;

static const ending_case common = {
    .p = { 1, 16, 8, 1 },
    .row = "ks.blas.f16",
    .dtype = DANAUS_F16,
    .activation = DANAUS_GELU_TANH,
    .bias = 1,
};

static runner start(int64_t batch, int64_t most)
{
    rng r = { 3 };
    danaus_ks_desc desc = desc_of(&common, batch);
    runner a = { .device = open_for(&common, batch), .batch = most };
    a.chain = chain_random(&r, &common.p, 1, DANAUS_F16, 1);
    a.x = array_random(&r, DANAUS_F16, 8 * most);
    a.y = array_make(DANAUS_F16, 16 * most);
    assert_ok(danaus_ks_plan_create(a.device, &common.p, 1, &desc, &a.plan));
    assert_ok(danaus_ks_weights_create(a.plan, a.device, a.chain.chain, &a.weights));
    assert_ok(danaus_alloc(a.device, (size_t)(8 * most) * 2 + 16, &a.dx));
    assert_ok(danaus_alloc(a.device, (size_t)(16 * most) * 2 + 16, &a.dy));
    assert_ok(danaus_upload(a.device, a.dx, a.x.data, (size_t)(8 * most) * 2));
    return a;
}

static void end(runner *a)
{
    danaus_free(a->device, a->dx);
    danaus_free(a->device, a->dy);
    danaus_ks_weights_destroy(a->weights);
    danaus_ks_plan_destroy(a->plan);
    danaus_device_close(a->device);
    array_free(&a->x);
    array_free(&a->y);
    chain_free(&a->chain);
}

static danaus_status run(const runner *a, int64_t batch)
{
    return danaus_ks_execute(a->plan, a->device, a->weights, batch, a->dx, a->dy);
}

static void read_results(const runner *a, int64_t batch)
{
    assert_ok(danaus_download(a->device, a->y.data, a->dy, (size_t)(16 * batch) * 2));
}

/* The algorithm for the plan's batch is chosen when it is made, others when they come, each
   once. */
static void algorithms_are_chosen_once_and_before_they_run(void **state)
{
    (void)state;
    *control = (emulator_control){ 0 };
    runner a = start(16, 20);
    assert_int_equal(control->choices, 1);
    for (int i = 0; i < 3; i++)
        assert_ok(run(&a, 16));
    assert_int_equal(control->choices, 1);
    assert_int_equal(
        control->endings, 2); /* the second one is captured, then launched */
    for (int i = 0; i < 2; i++)
        assert_ok(run(&a, 20));
    assert_int_equal(control->choices, 2);
    assert_int_equal(control->launches, 0);
    end(&a);
    expect_nothing_lost(control, "nothing", 0);
}

/* A batch that was not met before may be captured, too; and bits are the same. */
static void captured_products_end_as_others(void **state)
{
    (void)state;
    *control = (emulator_control){ 0 };
    runner a = start(16, 20);
    control->capturing = 1;
    assert_ok(run(&a, 20));
    control->capturing = 0;
    assert_int_equal(control->endings, 1);
    read_results(&a, 20);
    array first = copy_of(&a.y);
    assert_ok(run(&a, 20));
    read_results(&a, 20);
    assert_true(array_same(&first, &a.y));
    array_free(&first);
    end(&a);
}

/* Where x and y lie, down to an element, changes no bit here. */
static void operands_may_lie_anywhere(void **state)
{
    (void)state;
    *control = (emulator_control){ 0 };
    runner a = start(16, 16);
    assert_ok(run(&a, 16));
    read_results(&a, 16);
    array first = copy_of(&a.y);
    for (int at = 1; at < 9; at++) {
        char *x = (char *)a.dx + 2 * at, *y = (char *)a.dy + 2 * at;
        assert_ok(danaus_upload(a.device, x, a.x.data, 8 * 16 * 2));
        assert_ok(danaus_ks_execute(a.plan, a.device, a.weights, 16, x, y));
        assert_ok(danaus_download(a.device, a.y.data, y, 16 * 16 * 2));
        assert_true(array_same(&first, &a.y));
    }
    assert_in_range(control->endings, 9, 10); /* one is captured too */
    assert_int_equal(control->launches, 0);
    array_free(&first);
    end(&a);
}

/* The product, then a launch. */
static void without_an_algorithm_a_launch_follows(void **state)
{
    (void)state;
    for (int way = 1; way <= 2; way++) {
        *control = (emulator_control){ .no_algorithms = way };
        runner a = start(16, 16);
        assert_ok(run(&a, 16));
        assert_int_equal(control->endings, 0);
        assert_int_equal(control->launches, 1);
        assert_int_equal(control->choices, 1);
        read_results(&a, 16);
        danaus_ks_desc desc = desc_of(&common, 16);
        signal expected = multiply_exactly(&a.chain, &desc, 16, &a.x);
        expect_signal(&a.y, desc.layout, &expected, "without an algorithm");
        signal_free(&expected);
        end(&a);
    }
    *control = (emulator_control){ 0 };
}

/* Weights from the device's memory bring a bias in both types. */
static void a_bias_of_the_device_is_rounded_there(void **state)
{
    (void)state;
    *control = (emulator_control){ 0 };
    runner a = start(16, 16);
    rng r = { 8 };
    array bias = array_random(&r, DANAUS_F16, 16);
    void *on = to_device(a.device, &bias);
    assert_ok(danaus_ks_weights_update_from(a.weights, a.device, DANAUS_F16, NULL, on));
    assert_ok(run(&a, 16));
    read_results(&a, 16);
    array_free(&a.chain.bias);
    a.chain.bias = copy_of(&bias);
    danaus_ks_desc desc = desc_of(&common, 16);
    signal expected = multiply_exactly(&a.chain, &desc, 16, &a.x);
    expect_signal(&a.y, desc.layout, &expected, "a bias from the device");
    assert_int_equal(control->endings, 1);
    from_device(a.device, &bias, on);
    array_free(&bias);
    signal_free(&expected);
    end(&a);
}

/* A cuBLAS that brings no cublasLt; a library stays open, so this program is run again. */
static void without_cublaslt_a_launch_follows(void **state)
{
    char command[1024];
    snprintf(
        command, sizeof command,
        "DANAUS_CUBLAS=${LD_LIBRARY_PATH%%%%:*}/alone %s alone", (const char *)*state);
    assert_int_equal(system(command), 0);
}

static int be_alone(void)
{
    runner a = start(16, 16);
    int epilogues = ((gpu_device *)a.device)->facts.epilogues;
    assert_ok(run(&a, 16));
    end(&a);
    return epilogues || control->endings || control->launches != 1;
}

int main(int argc, char **argv)
{
    control = need_emulator();
    if (argc > 1 && !strcmp(argv[1], "alone"))
        return be_alone();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_ending_is_right_in_every_layout_and_type),
        cmocka_unit_test(every_residual_is_right_in_every_layout_and_type),
        cmocka_unit_test(an_activation_and_a_residual_are_for_other_rows),
        cmocka_unit_test(a_bias_is_rounded_where_the_library_adds_it),
        cmocka_unit_test(gelu_of_16_bits_is_almost_exact),
        cmocka_unit_test(algorithms_are_chosen_once_and_before_they_run),
        cmocka_unit_test(captured_products_end_as_others),
        cmocka_unit_test(operands_may_lie_anywhere),
        cmocka_unit_test(without_an_algorithm_a_launch_follows),
        cmocka_unit_test(a_bias_of_the_device_is_rounded_there),
        cmocka_unit_test_prestate(without_cublaslt_a_launch_follows, argv[0]),
    };
    return cmocka_run_group_tests_name("epilogue", tests, NULL, NULL);
}
