/* What a plan makes ready, with the emulated compiler that counts what it compiles and
   refuses texts: aligned operands of any batch compile nothing while running, others once
   and never while a graph is captured; a row that does not compile is passed over. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "cuda/cuda.h"
#include "gpu/run/program.h"
#include "emulator/emulator.h"
#include "support/cache.h"
#include "support/chains.h"
#include "support/life.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int *compilations;
static const char **refused; /* by the compiler: sources with this in them */
static emulator_control *driver;

static const danaus_pattern pattern = { 2, 4, 5, 40 };

/* A device of its own for each test: what it refuses ends with it. */
static int begin(void **state)
{
    danaus_device *device = NULL;
    assert_ok(danaus_device_open("cuda:0", &device));
    *state = device;
    return 0;
}

static int end(void **state)
{
    *refused = NULL;
    driver->capturing = 0;
    danaus_device_close(*state);
    return unsetenv("EMULATED_ARCH");
}

static int begin_hopper(void **state)
{
    return setenv("EMULATED_ARCH", "90", 1) || begin(state);
}

/* The row that makes the first step. */
typedef struct row_name {
    char of[64];
} row_name;

/* A product with a random factor is right; the row that makes it. */
static row_name row_of(danaus_device *device, const danaus_ks_desc *desc)
{
    rng r = { 3 };
    danaus_ks_plan *plan = NULL;
    char words[256];
    row_name row;
    random_chain c = chain_random(&r, &pattern, 1, DANAUS_F32, 0);
    assert_ok(danaus_ks_plan_create(device, &pattern, 1, desc, &plan));
    danaus_ks_plan_describe(plan, words, sizeof words);
    assert_non_null(strstr(words, " by "));
    assert_int_equal(sscanf(strstr(words, " by "), " by %63[^ \n,]", row.of), 1);
    danaus_ks_plan_destroy(plan);
    check_product(&r, device, &c, desc, desc->batch);
    chain_free(&c);
    return row;
}

static void expect_row(
    danaus_device *device, const danaus_ks_desc *desc, row_name row, int is_so)
{
    assert_int_equal(!strcmp(row_of(device, desc).of, row.of), is_so);
}

/* A device of its own, which refuses nothing yet; returns the row that it takes. */
static row_name begin_again(void **state, const danaus_ks_desc *desc)
{
    row_name row = row_of(*state, desc);
    end(state);
    begin(state);
    return row;
}

static void a_row_that_does_not_compile_is_passed_over(void **state)
{
    danaus_ks_desc desc = { .dtype = DANAUS_F32, .batch = 1 };
    row_name row = begin_again(state, &desc);
    *refused = "#define SPAN"; /* of that family alone */
    expect_row(*state, &desc, row, 0);
    int before = *compilations;
    expect_row(*state, &desc, row, 0); /* it is not tried again */
    assert_int_equal(*compilations, before);
    end(state);
    begin(state);
    expect_row(*state, &desc, row, 1);
}

static void a_measurement_passes_it_over_too(void **state)
{
    danaus_ks_desc desc = { .dtype = DANAUS_F32, .batch = 1, .effort = DANAUS_MEASURE };
    *refused = "#define SPAN";
    assert_null(strstr(row_of(*state, &desc).of, "ks.thin"));
}

/* What an older compiler makes of instructions that it does not know, the driver refuses. */
static void a_row_that_does_not_load_is_passed_over(void **state)
{
    danaus_ks_desc desc = { .dtype = DANAUS_F32, .batch = 1 };
    row_name row = begin_again(state, &desc);
    *driver =
        (emulator_control){ .function = "cuModuleLoadData", .number = 1, .error = 218 };
    expect_row(*state, &desc, row, 0);
    end(state);
    begin(state);
    *driver =
        (emulator_control){ .function = "cuModuleLoadData", .number = 1, .error = 2 };
    danaus_ks_plan *plan = NULL;
    assert_status(
        danaus_ks_plan_create(*state, &pattern, 1, &desc, &plan), DANAUS_ERR_MEMORY);
    expect_row(*state, &desc, row, 1);
}

/* The compiler refuses every row of the type. */
static void without_any_row_the_compiler_says_why(void **state)
{
    static const danaus_pattern p = { 3, 4, 5, 6 };
    danaus_ks_desc desc = { .dtype = DANAUS_C64, .batch = 7 };
    danaus_ks_plan *plan = NULL;
    *refused = "#define";
    assert_status(
        danaus_ks_plan_create(*state, &p, 1, &desc, &plan), DANAUS_ERR_DEVICE);
    assert_non_null(strstr(danaus_error_detail(), "error: not this one"));
    assert_null(plan);
}

/* Two entry points of a text with the same defines are two uses. */
static void an_entry_point_is_part_of_a_use(void **state)
{
    cuda_device *d = *state;
    gpu_use use = { .text = "ks_turn.cu", .entry = "ks" };
    gpu_function first, again, other;
    int refused_here = 0, pushed;
    strcpy(use.defines, "#define TYPE_f32 1\n");
    assert_ok(dn_cuda_enter(d, &pushed));
    dn_gpu_hash_use(&dn_cuda_gpu_driver, &use, d->gpu.facts.arch);
    hash128 image = use.image;
    assert_ok(dn_gpu_load_use(&d->gpu, &use, NULL, 0, &refused_here, &first));
    assert_ok(dn_gpu_load_use(&d->gpu, &use, NULL, 0, &refused_here, &again));
    assert_ptr_equal(first, again);
    use.entry = "nothing";
    dn_gpu_hash_use(&dn_cuda_gpu_driver, &use, d->gpu.facts.arch);
    assert_true(dn_hash_equal(use.image, image));
    assert_status(
        dn_gpu_load_use(&d->gpu, &use, NULL, 0, &refused_here, &other),
        DANAUS_ERR_DEVICE);
    assert_int_equal(refused_here, 0);
    dn_cuda_leave(d, pushed);
}

/* A plan with its weights, and memory for x and y. */
typedef struct layer {
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    char *x, *y;
} layer;

#define MOST_BATCH 200

static layer open_layer(
    danaus_device *device, danaus_pattern p, const danaus_ks_desc *desc)
{
    rng r = { 7 };
    layer l = { 0 };
    void *x, *y;
    random_chain c = chain_random(&r, &p, 1, desc->dtype, 0);
    assert_ok(danaus_ks_plan_create(device, &p, 1, desc, &l.plan));
    assert_ok(danaus_ks_weights_create(l.plan, device, c.chain, &l.weights));
    assert_ok(danaus_alloc(device, (size_t)(c.cols * MOST_BATCH * 8 + 16), &x));
    assert_ok(danaus_alloc(device, (size_t)(c.rows * MOST_BATCH * 8 + 16), &y));
    l.x = x;
    l.y = y;
    chain_free(&c);
    return l;
}

static void close_layer(danaus_device *device, layer *l)
{
    danaus_free(device, l->x);
    danaus_free(device, l->y);
    danaus_ks_weights_destroy(l->weights);
    danaus_ks_plan_destroy(l->plan);
}

static danaus_status run(
    danaus_device *device, const layer *l, int64_t batch, int64_t offset)
{
    return danaus_ks_execute(
        l->plan, device, l->weights, batch, l->x + offset, l->y + offset);
}

static void aligned_operands_compile_nothing_while_running(void **state)
{
    static const danaus_pattern patterns[] = { { 1, 64, 64, 1 }, { 2, 24, 40, 8 } };
    static const int64_t batches[] = { 1, 2, 3, 8, 33, 64, 128, 199 };
    danaus_device *device = *state;
    for (int form = 0; form < 12; form++) {
        danaus_ks_desc desc = { .dtype = form / 4 ? DANAUS_F16 : DANAUS_F32,
                                .layout = (danaus_layout)(form % 2),
                                .math = form / 8 ? DANAUS_MATH_TF32 : DANAUS_MATH_F32,
                                .batch = form % 3 ? 128 : 1 };
        layer l = open_layer(device, patterns[form / 2 % 2], &desc);
        int before = *compilations;
        for (int i = 0; i < 8; i++)
            assert_ok(run(device, &l, batches[i], 0));
        assert_int_equal(*compilations, before);
        close_layer(device, &l);
    }
}

/* Rows for 9.0 have another text for operands that do not begin at 16 bytes. */
static void other_operands_compile_once_and_never_in_a_capture(void **state)
{
    danaus_device *device = *state;
    danaus_ks_desc desc = { .dtype = DANAUS_F16, .batch = 25088 };
    layer l = open_layer(device, (danaus_pattern){ 1, 1024, 1024, 1 }, &desc);
    char words[256];
    danaus_ks_plan_describe(l.plan, words, sizeof words);
    assert_non_null(strstr(words, "ks.wgmma"));
    int before = *compilations;
    driver->capturing = 1;
    assert_ok(run(device, &l, 128, 0));
    assert_status(run(device, &l, 128, 2), DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "while a graph is captured"));
    assert_int_equal(*compilations, before);
    driver->capturing = 0;
    assert_ok(run(device, &l, 128, 2));
    assert_ok(run(device, &l, 127, 2));
    assert_int_equal(*compilations, before + 1);
    driver->capturing = 1;
    assert_ok(run(device, &l, 128, 2));
    assert_int_equal(*compilations, before + 1);
    close_layer(device, &l);
}

/* Batch-last, columns that do not begin at 16 bytes have another text. */
static void what_others_run_is_loaded_when_it_is_met(void **state)
{
    danaus_ks_desc desc = { .dtype = DANAUS_F16,
                            .layout = DANAUS_BATCH_LAST,
                            .batch = 25088 };
    const danaus_pattern p = { 1, 1024, 1024, 1 };
    assert_int_equal(cache_setup(state), 0);
    begin_hopper(state);
    layer l = open_layer(*state, p, &desc);
    int both = driver->modules, compiled = *compilations;
    close_layer(*state, &l);
    danaus_device_close(*state);
    assert_int_equal(driver->modules, 0);

    begin(state);
    l = open_layer(*state, p, &desc);
    assert_int_equal(driver->modules, both - 1);
    assert_ok(run(*state, &l, 64, 0));
    assert_int_equal(driver->modules, both - 1);
    driver->capturing = 1;
    assert_ok(run(*state, &l, 127, 0));
    assert_int_equal(driver->modules, both);
    assert_ok(run(*state, &l, 63, 0));
    assert_int_equal(driver->modules, both);
    assert_int_equal(*compilations, compiled);
    close_layer(*state, &l);
    assert_int_equal(cache_teardown(state), 0);
    setenv("DANAUS_CACHE", "", 1);
}

int main(void)
{
    void *compiler = dlopen("libnvrtc.so.13", RTLD_NOW);
    driver = need_emulator();
    compilations = compiler ? dlsym(compiler, "emulator_compilations") : NULL;
    refused = compiler ? dlsym(compiler, "emulator_refused") : NULL;
    if (!compilations || !refused)
        return 77;
    setenv("DANAUS_CACHE", "", 1);
#define TEST(name, begin) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(a_row_that_does_not_compile_is_passed_over, begin),
        TEST(a_measurement_passes_it_over_too, begin),
        TEST(a_row_that_does_not_load_is_passed_over, begin),
        TEST(without_any_row_the_compiler_says_why, begin),
        TEST(an_entry_point_is_part_of_a_use, begin),
        TEST(aligned_operands_compile_nothing_while_running, begin),
        TEST(aligned_operands_compile_nothing_while_running, begin_hopper),
        TEST(other_operands_compile_once_and_never_in_a_capture, begin_hopper),
        TEST(what_others_run_is_loaded_when_it_is_met, NULL),
    };
    return cmocka_run_group_tests_name("prepare", tests, NULL, NULL);
}
