/* Choosing kernels, on a device whose kernels take the time that a test says: tables,
   neighbours, estimates, measurements; and the tables that come with the library. */
// SPDX-License-Identifier: Apache-2.0
#include "product/planner.h"

#include "device/tuning.h"
#include "device/tuning_table.h"
#include "gpu/gpu.h"
#include "support/files.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PLAIN, QUICK, UNKNOWN, PAIR, KERNELS };

/* What kernels are estimated to take, and take; runs are counted. */
static double estimates[KERNELS], times[KERNELS], for_ending[KERNELS],
    for_alike[KERNELS], for_packing[KERNELS], for_residual[KERNELS];
static int runs[KERNELS];
static int prepared; /* steps, at the last call */

static int number_of(const kernel *k);

static int fits_one(const kernel *k, const problem *p)
{
    (void)k;
    return !p->inner.a;
}

static int fits_two(const kernel *k, const problem *p)
{
    (void)k;
    return p->inner.a > 0;
}

static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    (void)dev;
    int number = number_of(k);
    return estimates[number] + (p->activation || p->bias ? for_ending[number] : 0) +
           (p->alike ? for_alike[number] : 0) +
           (p->residual ? for_residual[number] : 0);
}

static size_t packed_bytes(const kernel *k, const problem *p)
{
    (void)k, (void)p;
    return 8;
}

static void pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    assert_true(!p->inner.a == !w.inner);
    (void)k;
    memset(packed, 0, 8);
}

static const kernel_family one = {
    .fits = fits_one, .cost = cost, .packed_bytes = packed_bytes, .pack = pack
};
static const kernel_family two = {
    .fits = fits_two, .cost = cost, .packed_bytes = packed_bytes, .pack = pack
};
static const kernel kernels[KERNELS + 1] = {
    { "ks.plain", DANAUS_F32, &one, NULL },
    { "ks.quick", DANAUS_F32, &one, NULL },
    { "ks.unknown", DANAUS_F32, &one, NULL },
    { "ks.pair", DANAUS_F32, &two, NULL },
    { 0 },
};

static int number_of(const kernel *k) { return (int)(k - kernels); }

static danaus_status allocate(danaus_device *dev, size_t size, void **memory)
{
    (void)dev;
    *memory = malloc(size);
    return *memory ? DANAUS_OK : DANAUS_ERR_MEMORY;
}

static void release(danaus_device *dev, void *memory)
{
    (void)dev;
    free(memory);
}

static danaus_status copy(danaus_device *dev, void *to, const void *from, size_t size)
{
    (void)dev;
    memcpy(to, from, size);
    return DANAUS_OK;
}

static danaus_status clear(danaus_device *dev, void *memory, size_t size)
{
    (void)dev;
    memset(memory, 0, size);
    return DANAUS_OK;
}

static danaus_status prepare(
    danaus_device *dev, const ks_step *steps, int count, int *refused)
{
    (void)dev, (void)steps, (void)refused;
    prepared = count;
    return DANAUS_OK;
}

static const kernel *latest; /* that was run */

static danaus_status run_step(
    danaus_device *dev, const ks_step *step, int count, const ks_operands *o)
{
    (void)dev;
    assert_int_equal(count, 1);
    assert_int_equal(o->batch, step->p.batch);
    latest = step->kernel;
    return DANAUS_OK;
}

static danaus_status take_time(
    danaus_device *dev, device_run *run, void *arg, double *seconds)
{
    assert_ok(run(dev, arg));
    runs[number_of(latest)]++;
    *seconds = times[number_of(latest)];
    return DANAUS_OK;
}

static danaus_status describe(const danaus_device *dev, danaus_device_info *info)
{
    (void)dev;
    *info =
        (danaus_device_info){ .description = "NVIDIA H200", .instructions = "sm_90" };
    return DANAUS_OK;
}

static danaus_status describe_sister(const danaus_device *dev, danaus_device_info *info)
{
    (void)dev;
    *info = (danaus_device_info){ .description = "NVIDIA GH200 480GB",
                                  .instructions = "sm_90" };
    return DANAUS_OK;
}

/* Some rows of the tables are from there. */
static danaus_status describe_other(const danaus_device *dev, danaus_device_info *info)
{
    (void)dev;
    *info = (danaus_device_info){ .description = "NVIDIA H100 80GB HBM3",
                                  .instructions = "sm_90" };
    return DANAUS_OK;
}

static danaus_status describe_stranger(
    const danaus_device *dev, danaus_device_info *info)
{
    (void)dev;
    *info =
        (danaus_device_info){ .description = "NVIDIA H200", .instructions = "sm_80" };
    return DANAUS_OK;
}

static double packing(const danaus_device *dev, const kernel *k, const problem *p)
{
    (void)dev, (void)p;
    return for_packing[number_of(k)];
}

static const backend place = {
    .name = "cuda",
    .packing = packing,
    .describe = describe,
    .alloc = allocate,
    .free = release,
    .copy = copy,
    .clear = clear,
    .prepare = prepare,
    .ks_run = run_step,
    .time = take_time,
};

static danaus_device device = { &place, "cuda:0", kernels, NULL };

static int begin(void **state)
{
    (void)state;
    static const double usual[KERNELS] = { 10e-6, 11e-6, INFINITY, 5e-6 };
    memcpy(estimates, usual, sizeof estimates);
    memcpy(times, usual, sizeof times);
    times[UNKNOWN] = 1;
    memset(runs, 0, sizeof runs);
    memset(for_ending, 0, sizeof for_ending);
    memset(for_alike, 0, sizeof for_alike);
    memset(for_packing, 0, sizeof for_packing);
    memset(for_residual, 0, sizeof for_residual);
    return dn_tuning_create(&device.tuning) != DANAUS_OK;
}

static int end(void **state)
{
    (void)state;
    dn_tuning_destroy(device.tuning);
    return 0;
}

static const problem base = { .pattern = { 8, 48, 64, 1 },
                              .dtype = DANAUS_F32,
                              .batch = 1024 };

static problem pair_problem(void)
{
    problem p = base;
    p.pattern = (danaus_pattern){ 1, 8, 8, 4 };
    p.inner = (danaus_pattern){ 4, 8, 8, 1 };
    return p;
}

/* The number of the kernel that is chosen; -1: none. */
static int choose(const problem *p, danaus_effort effort, double *seconds)
{
    const kernel *k = NULL;
    assert_ok(dn_choose(&device, p, effort, &k, seconds));
    return k ? number_of(k) : -1;
}

static void expect(const problem *p, danaus_effort effort, int number, double wanted)
{
    double seconds = -1;
    assert_int_equal(choose(p, effort, &seconds), number);
    assert_true(number < 0 || seconds == wanted);
}

static void the_least_estimate_is_taken(void **state)
{
    (void)state;
    expect(&base, DANAUS_ESTIMATE, PLAIN, 10e-6);
    estimates[QUICK] = 9e-6;
    expect(&base, DANAUS_ESTIMATE, QUICK, 9e-6);
    const kernel *k = NULL;
    double seconds;
    assert_status(
        dn_choose(&device, &base, DANAUS_TABLE_ONLY, &k, &seconds),
        DANAUS_ERR_UNSUPPORTED);
}

static void a_measurement_takes_the_fastest_and_is_kept(void **state)
{
    (void)state;
    times[QUICK] = 7e-6;
    expect(&base, DANAUS_MEASURE, QUICK, 7e-6);
    assert_int_equal(prepared, 3);
    expect(&base, DANAUS_MEASURE, QUICK, 7e-6);
    expect(&base, DANAUS_ESTIMATE, QUICK, 7e-6);
    expect(&base, DANAUS_TABLE_ONLY, QUICK, 7e-6);
    assert_int_equal(runs[PLAIN], 1);
    assert_int_equal(runs[UNKNOWN], 1);
}

static void rows_as_fast_give_way_to_the_least_estimate(void **state)
{
    (void)state;
    times[QUICK] = 9.9e-6;
    expect(&base, DANAUS_MEASURE, PLAIN, 10e-6);
}

static void hopeless_rows_are_not_measured(void **state)
{
    (void)state;
    estimates[QUICK] = 41e-6;
    times[QUICK] = times[UNKNOWN] = 1e-6;
    expect(&base, DANAUS_MEASURE, UNKNOWN, 1e-6);
    assert_int_equal(runs[QUICK], 0);
}

static void pairs_are_measured_and_kept(void **state)
{
    (void)state;
    problem p = pair_problem(), other = p;
    expect(&p, DANAUS_MEASURE, PAIR, 5e-6);
    times[PAIR] = 4e-6;
    expect(&p, DANAUS_MEASURE, PAIR, 5e-6);
    expect(&p, DANAUS_TABLE_ONLY, PAIR, 5e-6);
    assert_int_equal(runs[PAIR], 1);
    other.inner.c = 16;
    expect(&other, DANAUS_TABLE_ONLY, -1, 0);
    const char *path = scratch_path("pairs.csv");
    int64_t skipped;
    assert_ok(dn_tuning_save(device.tuning, &device, path));
    tuning *table;
    assert_ok(dn_tuning_create(&table));
    assert_ok(dn_tuning_load(table, &device, path, &skipped));
    double seconds = 0;
    assert_ptr_equal(dn_tuning_find(table, &p, 0, &seconds), &kernels[PAIR]);
    assert_true(fabs(seconds - 5e-6) < 1e-15);
    assert_null(dn_tuning_find(table, &other, 0, &seconds));
    dn_tuning_destroy(table);
    p.dtype = DANAUS_F64; /* which no kernel serves */
    expect(&p, DANAUS_MEASURE, -1, 0);
}

/* A bias, or an activation. A row of the table, which was measured without, is kept as long
   as no other is estimated to be faster. */
static void what_follows_a_product_counts(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        problem p = base;
        p.activation = form == 0;
        p.bias = form == 1;
        for_ending[PLAIN] = for_ending[QUICK] = 0;
        dn_tuning_add(device.tuning, &base, &kernels[QUICK], 1e-6);
        expect(&p, DANAUS_ESTIMATE, QUICK, 1e-6);
        for_ending[QUICK] = 3e-6;
        expect(&p, DANAUS_ESTIMATE, QUICK, 1e-6 + 3e-6);
        for_ending[QUICK] = 9.5e-6;
        expect(&p, DANAUS_ESTIMATE, PLAIN, 10e-6);
        expect(&base, DANAUS_ESTIMATE, QUICK, 1e-6);
        for_ending[PLAIN] = 5e-6;
        expect(&p, DANAUS_ESTIMATE, QUICK, 1e-6 + 9.5e-6);
    }
}

/* The table gets the fastest product all the same. */
static void what_follows_a_product_counts_in_measurements(void **state)
{
    (void)state;
    problem p = base;
    p.bias = 1;
    times[PLAIN] = 10e-6, times[QUICK] = 8e-6;
    for_ending[QUICK] = 5e-6;
    expect(&p, DANAUS_MEASURE, PLAIN, 10e-6);
    expect(&base, DANAUS_TABLE_ONLY, QUICK, 8e-6);
}

/* In all seconds, those of a row of the table too, which is kept: others read it as well,
   and so may one that was measured to be slower than another is estimated to be. */
static void what_a_residual_takes_counts(void **state)
{
    (void)state;
    problem p = base;
    p.residual = 1;
    for_residual[PLAIN] = 4e-6, for_residual[QUICK] = 1e-6;
    expect(&p, DANAUS_ESTIMATE, QUICK, 11e-6 + 1e-6);
    expect(&base, DANAUS_ESTIMATE, PLAIN, 10e-6);
    expect(&p, DANAUS_MEASURE, QUICK, 11e-6 + 1e-6);
    expect(&base, DANAUS_TABLE_ONLY, PLAIN, 10e-6);
    expect(&p, DANAUS_ESTIMATE, PLAIN, 10e-6 + 4e-6);
    p.activation = 1;
    for_ending[PLAIN] = 2e-6;
    expect(&p, DANAUS_ESTIMATE, QUICK, 11e-6 + 1e-6);
}

/* In estimates, in measurements, and for rows of the table, which holds products alone. */
static void packing_counts_where_weights_are_fresh(void **state)
{
    (void)state;
    problem p = base;
    p.fresh = 1;
    for_packing[PLAIN] = 6e-6;
    for_packing[QUICK] = 2e-6;
    expect(&base, DANAUS_ESTIMATE, PLAIN, 10e-6);
    expect(&p, DANAUS_ESTIMATE, QUICK, 11e-6 + 2e-6);
    expect(&p, DANAUS_MEASURE, QUICK, 11e-6 + 2e-6);
    double seconds;
    assert_null(dn_tuning_find(device.tuning, &base, 1, &seconds));
    expect(&base, DANAUS_MEASURE, PLAIN, 10e-6);
    expect(&p, DANAUS_TABLE_ONLY, PLAIN, 10e-6 + 6e-6);
    expect(&p, DANAUS_ESTIMATE, QUICK, 11e-6 + 2e-6); /* 16 are not within 1.2 of 13 */
    for_packing[PLAIN] = 5e-6;
    expect(&p, DANAUS_ESTIMATE, PLAIN, 10e-6 + 5e-6);
    ks_step steps[] = { { p, &kernels[PLAIN], 0 }, { p, &kernels[PLAIN], 0 } };
    steps[0].p.batch = steps[1].p.batch = 8; /* which the table does not know */
    double gain;
    assert_ptr_equal(dn_choose_alike(&device, steps, 2, &gain), &kernels[QUICK]);
}

/* ---- neighbours ---- */

static problem with_sizes(danaus_pattern pattern, int64_t batch)
{
    problem p = base;
    p.pattern = pattern;
    p.batch = batch;
    return p;
}

static void one_kernel_makes_a_chain_if_so_it_is_estimated_faster(void **state)
{
    (void)state;
    ks_step steps[] = { { base, &kernels[PLAIN], 0 }, { base, &kernels[PLAIN], 0 } };
    double gain;
    assert_null(dn_choose_alike(&device, steps, 2, &gain));
    assert_true(gain == 0);
    for_alike[QUICK] = -2e-6;
    assert_ptr_equal(dn_choose_alike(&device, steps, 2, &gain), &kernels[QUICK]);
    assert_true(gain > 0);
    dn_tuning_add(device.tuning, &base, &kernels[PLAIN], 10e-6);
    assert_null(dn_choose_alike(&device, steps, 2, &gain));
}

static void what_was_measured_nearby_is_taken(void **state)
{
    (void)state;
    static const struct {
        danaus_pattern near, far;
    } cases[] = {
        { { 13, 48, 64, 4 }, { 14, 48, 64, 4 } },
        { { 8, 30, 64, 4 }, { 8, 29, 64, 4 } },
        { { 8, 48, 104, 4 }, { 8, 48, 105, 4 } },
        { { 8, 48, 64, 6 }, { 8, 48, 64, 7 } },
        { { 9, 54, 72, 5 }, { 10, 60, 80, 6 } },
    };
    problem p = with_sizes((danaus_pattern){ 8, 48, 64, 4 }, 1024), q;
    dn_tuning_add(device.tuning, &p, &kernels[QUICK], 1e-6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        q = with_sizes(cases[i].near, 1024);
        expect(&q, DANAUS_ESTIMATE, QUICK, 11e-6);
        q = with_sizes(cases[i].far, 1024);
        expect(&q, DANAUS_ESTIMATE, PLAIN, 10e-6);
    }
    q = with_sizes(cases[0].near, 2049);
    expect(&q, DANAUS_ESTIMATE, PLAIN, 10e-6);
    q = with_sizes(cases[0].near, 1024), q.layout = DANAUS_BATCH_LAST;
    expect(&q, DANAUS_ESTIMATE, PLAIN, 10e-6);
    q = with_sizes(cases[0].near, 1024), q.math = DANAUS_MATH_TF32;
    expect(&q, DANAUS_ESTIMATE, PLAIN, 10e-6);
}

static void of_two_neighbours_the_nearest_counts(void **state)
{
    (void)state;
    problem p = base, q = base;
    p.pattern.a = 10;
    dn_tuning_add(device.tuning, &p, &kernels[PLAIN], 1e-6);
    q.pattern.a = 7;
    dn_tuning_add(device.tuning, &q, &kernels[QUICK], 1e-6);
    expect(&base, DANAUS_ESTIMATE, QUICK, 11e-6);
    q = base, q.pattern.a = 9;
    expect(&q, DANAUS_ESTIMATE, PLAIN, 10e-6);
}

static void a_neighbour_of_much_larger_estimate_is_not_taken(void **state)
{
    (void)state;
    problem p = base;
    p.pattern.a = 9;
    dn_tuning_add(device.tuning, &p, &kernels[QUICK], 1e-6);
    estimates[QUICK] = 11.9e-6;
    expect(&base, DANAUS_ESTIMATE, QUICK, 11.9e-6);
    estimates[QUICK] = 12.1e-6;
    expect(&base, DANAUS_ESTIMATE, PLAIN, 10e-6);
    estimates[QUICK] = INFINITY;
    expect(&base, DANAUS_ESTIMATE, PLAIN, 10e-6);
}

/* ---- tables that come with the library ---- */

static void shipped_rows_give_way_to_measurements(void **state)
{
    (void)state;
    const char *path = scratch_path("shipped.csv");
    tuning_row row = { .key = dn_tuning_ks_key(&base, 10), .taken = 1 };
    row.is_shipped = 1;
    row.kernel = &kernels[QUICK];
    row.value = 3e-6;
    assert_ok(dn_tuning_reserve(device.tuning, 1));
    dn_tuning_put(device.tuning, &row, 0);
    expect(&base, DANAUS_ESTIMATE, QUICK, 3e-6);
    expect(&base, DANAUS_TABLE_ONLY, QUICK, 3e-6);
    assert_ok(dn_tuning_save(device.tuning, &device, path));
    tuning *table;
    int64_t skipped;
    double seconds;
    assert_ok(dn_tuning_create(&table));
    assert_ok(dn_tuning_load(table, &device, path, &skipped));
    assert_null(dn_tuning_find(table, &base, 1, &seconds));
    dn_tuning_destroy(table);
    expect(&base, DANAUS_MEASURE, PLAIN, 10e-6);
    expect(&base, DANAUS_ESTIMATE, PLAIN, 10e-6);
}

/* Rows for f16 serve bf16, by kernels of the same name but for the type. */
static size_t expect_twins(const danaus_device *gpu, const tuning *table)
{
    size_t twins = 0;
    for (size_t i = 0; i < table->capacity; i++) {
        const tuning_row *r = &table->rows[i];
        if (!r->taken || r->kernel->dtype != DANAUS_F16)
            continue;
        tuning_row twin;
        double seconds;
        assert_true(dn_tuning_twin(gpu, r, &twin));
        problem p = dn_tuning_problem(&twin.key);
        assert_ptr_equal(dn_tuning_find(table, &p, 1, &seconds), twin.kernel);
        assert_true(seconds == r->value);
        assert_int_equal(strlen(twin.kernel->name), strlen(r->kernel->name) + 1);
        assert_int_equal(p.dtype, DANAUS_BF16);
        twins++;
    }
    return twins;
}

/* Every row of them is of use on the device that it is for, one of two. */
static void shipped_tables_are_right(void **state)
{
    (void)state;
    backend there = { .name = "cuda", .describe = describe_other };
    danaus_device gpu = { &place, "cuda:0", dn_gpu_kernels_for(90, 1), device.tuning };
    danaus_device other = { &there, "cuda:0", gpu.kernels, device.tuning };
    size_t before = 0;
    for (const tuning_shipped *t = dn_tuning_tables; t->name; t++) {
        int64_t skipped = -1, skipped_there = -1;
        size_t length = strlen(t->content);
        assert_ok(dn_tuning_read(gpu.tuning, &gpu, t->content, length, &skipped));
        size_t here = gpu.tuning->count;
        assert_true(here > before);
        assert_ok(
            dn_tuning_read(gpu.tuning, &other, t->content, length, &skipped_there));
        assert_int_equal(gpu.tuning->count - here, skipped);
        assert_in_range(here - before, 1, skipped_there); /* some problems come twice */
        before = gpu.tuning->count;
        assert_in_range(strlen(t->content), 1, 200000);
    }
    tuning *table;
    assert_ok(dn_tuning_create(&table));
    assert_ok(dn_tuning_add_shipped(table, &gpu));
    assert_int_equal(table->count, before + expect_twins(&gpu, table));
    for (size_t i = 0; i < table->capacity; i++)
        assert_true(!table->rows[i].taken || table->rows[i].is_shipped);
    dn_tuning_destroy(table);
    assert_ok(dn_tuning_create(&table));
    assert_int_equal(setenv("DANAUS_TUNING", "", 1), 0);
    assert_ok(dn_tuning_add_shipped(table, &gpu));
    assert_int_equal(unsetenv("DANAUS_TUNING"), 0);
    assert_int_equal(table->count, 0);
    dn_tuning_destroy(table);
}

/* What came with the library serves other machines of the same architecture, and no other. */
static void shipped_tables_serve_an_architecture(void **state)
{
    (void)state;
    backend sister = { .name = "cuda", .describe = describe_sister };
    backend stranger = { .name = "cuda", .describe = describe_stranger };
    danaus_device gpu = { &sister, "cuda:0", dn_gpu_kernels_for(90, 1), device.tuning };
    for (const tuning_shipped *t = dn_tuning_tables; t->name; t++) {
        int64_t skipped = -1;
        assert_ok(
            dn_tuning_read(gpu.tuning, &gpu, t->content, strlen(t->content), &skipped));
        assert_true(skipped > 0);
        assert_int_equal(gpu.tuning->count, 0);
    }
    assert_ok(dn_tuning_add_shipped(gpu.tuning, &gpu));
    size_t count = gpu.tuning->count;
    assert_true(count > 0);
    gpu.backend = &stranger;
    assert_ok(dn_tuning_add_shipped(gpu.tuning, &gpu));
    assert_int_equal(gpu.tuning->count, count);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(the_least_estimate_is_taken),
        TEST(a_measurement_takes_the_fastest_and_is_kept),
        TEST(rows_as_fast_give_way_to_the_least_estimate),
        TEST(hopeless_rows_are_not_measured),
        TEST(pairs_are_measured_and_kept),
        TEST(packing_counts_where_weights_are_fresh),
        TEST(what_follows_a_product_counts),
        TEST(what_follows_a_product_counts_in_measurements),
        TEST(what_a_residual_takes_counts),
        TEST(one_kernel_makes_a_chain_if_so_it_is_estimated_faster),
        TEST(what_was_measured_nearby_is_taken),
        TEST(of_two_neighbours_the_nearest_counts),
        TEST(a_neighbour_of_much_larger_estimate_is_not_taken),
        TEST(shipped_rows_give_way_to_measurements),
        TEST(shipped_tables_are_right),
        TEST(shipped_tables_serve_an_architecture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
