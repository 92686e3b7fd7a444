/* Gradients on the emulated driver: all that they can run is compiled when they are planned,
   and where operands lie changes neither what runs nor what comes out. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/life.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static emulator_control *driver;
static const int *compilations;

/* A plan with gradients of one factor, and what they are made of. */
typedef struct gradient_case {
    danaus_device *device;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    random_chain c;
    danaus_dtype dtype;
    int64_t batch;
    array x, dy, dw, dbias;
} gradient_case;

static gradient_case begin(
    rng *r, danaus_pattern p, danaus_dtype dtype, danaus_layout layout, int64_t batch)
{
    gradient_case g = { .dtype = dtype, .batch = batch };
    danaus_ks_desc desc = { .dtype = dtype, .layout = layout, .gradients = 1 };
    g.c = chain_random(r, &p, 1, dtype, 0);
    assert_ok(danaus_device_open("cuda:0", &g.device));
    assert_ok(danaus_ks_plan_create(g.device, &p, 1, &desc, &g.plan));
    assert_ok(danaus_ks_weights_create(g.plan, g.device, g.c.chain, &g.weights));
    g.x = array_random(r, dtype, g.c.cols * batch);
    g.dy = array_random(r, dtype, g.c.rows * batch);
    g.dw = array_make(sum_type(dtype), weights_of(p));
    g.dbias = array_make(sum_type(dtype), g.c.rows);
    return g;
}

static void end(gradient_case *g)
{
    array *all[] = { &g->x, &g->dy, &g->dw, &g->dbias };
    for (int i = 0; i < 4; i++)
        array_free(all[i]);
    danaus_ks_weights_destroy(g->weights);
    danaus_ks_plan_destroy(g->plan);
    danaus_device_close(g->device);
    chain_free(&g->c);
}

/* A copy on the device, so many elements from where allocations begin. */
static char *put(const gradient_case *g, const array *a, int64_t offset, void **memory)
{
    size_t size = danaus_dtype_size(a->dtype), bytes = (size_t)a->count * size;
    assert_ok(danaus_alloc(g->device, bytes + 64, memory));
    char *at = (char *)*memory + (size_t)offset * size;
    assert_ok(danaus_upload(g->device, at, a->data, bytes));
    return at;
}

/* Gradients of all but x, whose operands lie so many elements from an allocation's begin. */
static void make(gradient_case *g, int64_t offset)
{
    void *memory[4];
    char *x = put(g, &g->x, offset, &memory[0]),
         *dy = put(g, &g->dy, offset, &memory[1]);
    void *dw = put(g, &g->dw, 0, &memory[2]), *dbias = put(g, &g->dbias, 0, &memory[3]);
    danaus_ks_gradients wanted = { .dw = &dw, .dbias = dbias };
    assert_ok(
        danaus_ks_gradient(g->plan, g->device, g->weights, g->batch, x, dy, &wanted));
    size_t bytes = (size_t)g->dw.count * danaus_dtype_size(g->dw.dtype);
    assert_ok(danaus_download(g->device, g->dw.data, dw, bytes));
    for (int i = 0; i < 4; i++)
        danaus_free(g->device, memory[i]);
}

static const danaus_pattern patterns[] = { { 2, 32, 32, 1 },
                                           { 1, 16, 32, 4 },
                                           { 4, 64, 64, 1 },
                                           { 2, 32, 32, 16 },
                                           { 1, 3, 5, 2 } };

typedef void each_case(gradient_case *g);

/* Types and layouts, a GPU that is emulated, and one of 9.0 whose kernels do nothing. */
static void for_cases(each_case *check, int64_t batch)
{
    static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F16 };
    static const char *const archs[] = { "75", "90" };
    for (int arch = 0; arch < 2; arch++)
        for (int i = 0; i < 5; i++)
            for (int form = 0; form < 4; form++) {
                rng r = { (uint64_t)(i * 4 + form) };
                setenv("EMULATED_ARCH", archs[arch], 1);
                gradient_case g = begin(
                    &r, patterns[i], types[form / 2], (danaus_layout)(form % 2), batch);
                check(&g);
                end(&g);
            }
    unsetenv("EMULATED_ARCH");
}

static void expect_no_compilation(gradient_case *g)
{
    int before = *compilations;
    make(g, 0);
    make(g, 1);
    assert_int_equal(*compilations, before);
}

static void nothing_is_compiled_while_gradients_are_made(void **state)
{
    (void)state;
    for_cases(expect_no_compilation, 200);
}

static void nothing_is_compiled_for_few_columns(void **state)
{
    (void)state;
    for_cases(expect_no_compilation, 16);
}

/* What was launched, copies left out. */
typedef struct work {
    long launches, products;
    unsigned long functions;
} work;

static work work_of(gradient_case *g, int64_t offset)
{
    work before = { driver->launches, driver->products, driver->functions };
    make(g, offset);
    return (work){ driver->launches - before.launches,
                   driver->products - before.products,
                   driver->functions - before.functions };
}

/* The same functions, and with the emulated kernels the same bits. */
static void expect_the_same(gradient_case *g)
{
    size_t bytes = (size_t)g->dw.count * danaus_dtype_size(g->dw.dtype);
    void *aligned = malloc(bytes);
    work expected = work_of(g, 0);
    memcpy(aligned, g->dw.data, bytes);
    for (int64_t offset = 1; offset < 4; offset += 2) {
        work found = work_of(g, offset);
        assert_int_equal(found.launches, expected.launches);
        assert_int_equal(found.products, expected.products);
        assert_true(found.functions == expected.functions);
        assert_memory_equal(aligned, g->dw.data, bytes);
    }
    free(aligned);
}

static void where_operands_lie_changes_nothing(void **state)
{
    (void)state;
    for_cases(expect_the_same, 200);
}

/* A measured plan leaves the row of its weight gradient in the table. */
static void rows_are_measured_and_kept(void **state)
{
    (void)state;
    danaus_pattern p = { 2, 16, 32, 1 };
    danaus_ks_desc desc = { .gradients = 1, .batch = 100, .effort = DANAUS_MEASURE };
    danaus_device *device = NULL;
    danaus_ks_plan *plan = NULL;
    char path[] = "/tmp/danaus-tuning-XXXXXX", content[8192] = "";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_ok(danaus_device_open("cuda:0", &device));
    assert_ok(danaus_ks_plan_create(device, &p, 1, &desc, &plan));
    assert_ok(danaus_device_save_tuning(device, path));
    danaus_ks_plan_destroy(plan);
    danaus_device_close(device);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(content, 1, sizeof content - 1, f) > 0);
    fclose(f);
    close(file);
    unlink(path);
    assert_non_null(strstr(content, "weight_gradient,2,16,32,1,f32,first,128,dw."));
}

int main(void)
{
    char folder[] = "/tmp/danaus-gradient-XXXXXX", command[64];
    driver = need_emulator();
    void *compiler = dlopen("libnvrtc.so.13", RTLD_NOW);
    compilations = compiler ? dlsym(compiler, "emulator_compilations") : NULL;
    if (!compilations || !mkdtemp(folder))
        return 77;
    setenv("DANAUS_CACHE", folder, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_compiled_while_gradients_are_made),
        cmocka_unit_test(nothing_is_compiled_for_few_columns),
        cmocka_unit_test(where_operands_lie_changes_nothing),
        cmocka_unit_test(rows_are_measured_and_kept),
    };
    int failed = cmocka_run_group_tests_name("gradient", tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) || failed;
}
