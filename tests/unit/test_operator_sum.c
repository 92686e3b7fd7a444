/* Sums of operators: what they are made of, their files, what is refused, missing memory. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/status.h"
#include "support/element.h"
#include "support/failing.h"
#include "support/files.h"
#include "support/operators.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const danaus_dtype types[] = { DANAUS_F32,  DANAUS_F64, DANAUS_C64,
                                      DANAUS_C128, DANAUS_F16, DANAUS_BF16 };

static void expect_same(const danaus_operator *x, const danaus_operator *y)
{
    assert_int_equal(danaus_operator_terms(x), danaus_operator_terms(y));
    assert_int_equal(danaus_operator_count(x), danaus_operator_count(y));
    assert_int_equal(danaus_operator_rows(x), danaus_operator_rows(y));
    assert_int_equal(danaus_operator_cols(x), danaus_operator_cols(y));
    assert_int_equal(danaus_operator_dtype(x), danaus_operator_dtype(y));
    assert_int_equal(danaus_operator_parameters(x), danaus_operator_parameters(y));
    matrix a = operator_matrix(x), b = operator_matrix(y);
    assert_memory_equal(a.at, b.at, (size_t)(a.rows * a.cols) * sizeof *a.at);
    matrix_free(&a);
    matrix_free(&b);
    const void *p = danaus_operator_bias(x), *q = danaus_operator_bias(y);
    assert_int_equal(p != NULL, q != NULL);
    if (p)
        assert_memory_equal(
            p, q,
            (size_t)danaus_operator_rows(x) *
                danaus_dtype_size(danaus_operator_dtype(x)));
}

/* ---- what a sum is ---- */

static void a_sum_is_the_sum_of_its_terms(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        rng r = { seed };
        danaus_dtype dtype = types[seed % 4];
        int64_t rows = rng_int(&r, 1, 9), cols = rng_int(&r, 1, 9);
        danaus_operator *terms[2] = { random_sum(&r, dtype, rows, cols),
                                      random_sum(&r, dtype, rows, cols) };
        matrix a = operator_matrix(terms[0]), b = operator_matrix(terms[1]);
        int count = danaus_operator_terms(terms[0]) + danaus_operator_terms(terms[1]);
        danaus_operator *sum;
        matrix_add(&a, 1, b);
        assert_ok(danaus_operator_add(terms, 2, &sum));
        assert_int_equal(danaus_operator_terms(sum), count); /* sums of sums are flat */
        array dense = array_make(dtype, rows * cols);
        assert_ok(danaus_operator_to_dense(sum, dense.data));
        array_expect_guards(&dense);
        matrix found = matrix_unpack(dtype, dense.data, rows, cols);
        double unit = precision_of(dtype).unit + 400 * 0x1p-53;
        assert_true(matrix_distance(a, found) <= 2 * unit * (matrix_norm(a) + 1));
        array_free(&dense);
        matrix_free(&found);
        matrix_free(&a);
        matrix_free(&b);
        danaus_operator_destroy(sum);
    }
}

static danaus_operator *one_number(double w, double bias)
{
    danaus_pattern p = { 1, 1, 1, 1 };
    danaus_chain *chain;
    danaus_operator *made;
    assert_ok(danaus_chain_create(&p, 1, DANAUS_F64, &chain));
    *(double *)danaus_chain_weights(chain, 0) = w;
    assert_ok(danaus_operator_create(&chain, 1, NULL, NULL, 1, &made));
    if (bias != 0)
        assert_ok(danaus_operator_set_bias(made, &bias));
    return made;
}

static void biases_are_added(void **state)
{
    (void)state;
    danaus_operator *terms[3] = { one_number(1, 2), one_number(3, 0),
                                  one_number(5, 7) };
    danaus_operator *sum, *alone = one_number(2, 1), *same;
    danaus_device *device;
    double x = 10, y;
    assert_ok(danaus_operator_add(terms, 3, &sum));
    assert_ok(danaus_operator_add(&alone, 1, &same));
    assert_ptr_equal(same, alone);
    assert_ptr_equal(danaus_operator_term(alone, 0), alone);
    assert_int_equal(danaus_operator_terms(alone), 1);
    assert_null(danaus_operator_term(sum, 3));
    assert_null(danaus_operator_term(NULL, 0));
    assert_null(danaus_operator_order(sum, 0, NULL));
    assert_non_null(danaus_operator_chain(sum, 2));
    assert_true(*(const double *)danaus_operator_bias(sum) == 9);
    assert_ok(danaus_device_open("cpu", &device));
    assert_ok(danaus_operator_apply(device, sum, 0, DANAUS_BATCH_FIRST, 1, &x, &y));
    assert_true(y == 99);
    assert_ok(danaus_operator_apply(device, sum, 1, DANAUS_BATCH_LAST, 1, &x, &y));
    assert_true(y == 90);
    assert_ok(danaus_operator_apply(device, alone, 0, DANAUS_BATCH_LAST, 1, &x, &y));
    assert_true(y == 21);
    danaus_device_close(device);
    danaus_operator_destroy(sum);
    danaus_operator_destroy(alone);
}

/* ---- files ---- */

static void a_saved_sum_loads_again(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("sum.safetensors"));
    for (uint64_t seed = 0; seed < 60; seed++) {
        rng r = { seed };
        danaus_operator *made = random_sum(&r, types[seed % 6], 5, 7), *loaded = NULL;
        danaus_chain *chain = NULL;
        assert_ok(danaus_operator_save(made, path));
        assert_ok(danaus_operator_load(path, &loaded));
        expect_same(made, loaded);
        if (danaus_operator_terms(made) > 1) {
            assert_status(danaus_chain_load(path, &chain), DANAUS_ERR_UNSUPPORTED);
            assert_non_null(strstr(danaus_error_detail(), "read as an operator"));
        }
        danaus_operator_destroy(made);
        danaus_operator_destroy(loaded);
    }
}

static void cut_and_changed_files_do_no_harm(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("damaged"));
    rng start = { 5 };
    danaus_operator *terms[2] = { random_term(&start, DANAUS_F32, 3, 4, 2),
                                  random_term(&start, DANAUS_F32, 3, 4, 2) };
    danaus_operator *whole;
    assert_ok(danaus_operator_add(terms, 2, &whole));
    assert_ok(danaus_operator_set_bias(whole, (float[3]){ 1, 2, 3 }));
    assert_ok(danaus_operator_save(whole, path));
    expect_damage_is_refused(path);
    danaus_operator_destroy(whole);
}

/* A file of factors (1, 2, 2, 1) and arrays of two places, with these names. */
static const char *file_of(const char *const *names, int count)
{
    static const double w[4] = { 1, 2, 3, 4 }, places[2] = { 1, 0 };
    const char *const metadata[] = { "format", "danaus chain 3", "danaus cols", "2" };
    danaus_tensor tensors[4];
    for (int i = 0; i < count; i++) {
        int factor = strstr(names[i], "factor") != NULL;
        tensors[i] = (danaus_tensor){ .name = names[i],
                                      .data = factor ? w : places,
                                      .dtype = DANAUS_F64,
                                      .ndim = factor ? 4 : 1,
                                      .shape = { factor ? 1 : 2, 2, 2, 1 } };
    }
    const char *path = scratch_path("case.safetensors");
    assert_ok(danaus_file_write_safetensors(path, tensors, count, metadata, 2));
    return path;
}

static void files_that_are_no_sum_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *names[4];
        danaus_status status;
        const char *words;
    } cases[] = {
        { { "term.0.factor.0" }, DANAUS_OK, "" },
        { { "term.0.factor.0", "bias" }, DANAUS_OK, "" },
        { { "term.0.factor.0", "term.1.factor.0" }, DANAUS_OK, "" },
        { { "term.0.factor.0", "term.0.order.0", "term.0.order.1" }, DANAUS_OK, "" },
        { { "factor.0" }, DANAUS_ERR_FORMAT, "a sum of 0 terms" },
        { { "term.1.factor.0" }, DANAUS_ERR_FORMAT, "no tensor term.0.factor.0" },
        { { "term.0.factor.0", "term.2.factor.0" },
          DANAUS_ERR_FORMAT,
          "no tensor term.1.factor.0" },
        { { "term.0.factor.0", "term.0.factor.2" },
          DANAUS_ERR_FORMAT,
          "term.0.factor.1 is missing" },
        { { "term.0.factor.0", "term.0.order.0" },
          DANAUS_ERR_FORMAT,
          "term.0.order.1 is missing" },
        { { "term.0.factor.0", "term.0.order.1" },
          DANAUS_ERR_FORMAT,
          "not those of its ends" },
    };
    for (size_t x = 0; x < sizeof cases / sizeof *cases; x++) {
        danaus_operator *made = NULL;
        int count = 0;
        while (count < 4 && cases[x].names[count])
            count++;
        danaus_status status =
            danaus_operator_load(file_of(cases[x].names, count), &made);
        if (status != cases[x].status ||
            (status && !strstr(danaus_error_detail(), cases[x].words)))
            fail_msg(
                "case %zu: %s: %s", x, danaus_status_name(status),
                danaus_error_detail());
        assert_int_equal(made != NULL, status == DANAUS_OK);
        danaus_operator_destroy(made);
    }
}

/* ---- bad input ---- */

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    rng r = { 3 };
    danaus_operator *terms[3] = { random_term(&r, DANAUS_F32, 3, 4, 1),
                                  random_term(&r, DANAUS_F64, 3, 4, 1),
                                  random_term(&r, DANAUS_F32, 4, 4, 1) };
    danaus_operator *twice[2] = { terms[0], terms[0] },
                    *sizes[2] = { terms[0], terms[2] }, *none[2] = { terms[0], NULL };
    danaus_operator *sum = NULL, *many[65];
    assert_status(danaus_operator_add(NULL, 1, &sum), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_operator_add(terms, 0, &sum), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_operator_add(terms, 1, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_operator_add(terms, 2, &sum), DANAUS_ERR_ARGUMENT);
    assert_non_null(strstr(danaus_error_detail(), "term 1 is f64"));
    assert_status(danaus_operator_add(twice, 2, &sum), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_operator_add(none, 2, &sum), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_operator_add(sizes, 2, &sum), DANAUS_ERR_SHAPE);
    assert_status(danaus_operator_set_bias(NULL, NULL), DANAUS_ERR_ARGUMENT);
    for (int i = 0; i < 65; i++)
        many[i] = one_number(i, 0);
    assert_status(danaus_operator_add(many, 65, &sum), DANAUS_ERR_UNSUPPORTED);
    assert_null(sum);
    for (int i = 0; i < 65; i++)
        danaus_operator_destroy(many[i]);
    for (int i = 0; i < 3; i++)
        danaus_operator_destroy(terms[i]);
}

static void plans_refuse_what_they_cannot(void **state)
{
    (void)state;
    danaus_device *device, *other;
    danaus_operator *made = one_number(2, 1);
    danaus_operator_plan *plan = NULL, *back;
    double x = 1, y = 0;
    void *dw[1] = { &y };
    danaus_ks_gradients g = { .dw = dw }, reserved = { .reserved = { &y } },
                        bias = { .dbias = &y };
    assert_ok(danaus_device_open("cpu", &device));
    assert_ok(danaus_device_open("cpu:scalar", &other));
    const struct {
        danaus_ks_desc desc;
        danaus_status status;
    } cases[] = {
        { { .layout = (danaus_layout)7 }, DANAUS_ERR_ARGUMENT },
        { { .dtype = (danaus_dtype)99 }, DANAUS_ERR_ARGUMENT },
        { { .dtype = DANAUS_C64 }, DANAUS_ERR_ARGUMENT },
        { { .batch = -1 }, DANAUS_ERR_ARGUMENT },
        { { .activation = DANAUS_GELU, .gradients = 1 }, DANAUS_ERR_UNSUPPORTED },
        { { .reserved = { 1 } }, DANAUS_ERR_ARGUMENT },
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        assert_status(
            danaus_operator_plan_create(device, made, &cases[n].desc, &plan),
            cases[n].status);
    assert_status(
        danaus_operator_plan_create(NULL, made, NULL, &plan), DANAUS_ERR_ARGUMENT);
    assert_null(plan);
    assert_ok(danaus_operator_plan_create(device, made, NULL, &plan));
    assert_status(
        danaus_operator_execute(NULL, device, 1, &x, &y), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_execute(plan, device, 1, NULL, &y), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_operator_execute(plan, device, -1, &x, &y), DANAUS_ERR_SHAPE);
    assert_status(
        danaus_operator_execute(plan, device, INT64_MAX / 4, &x, &y), DANAUS_ERR_SHAPE);
    assert_status(danaus_operator_execute(plan, other, 1, &x, &y), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_gradient(plan, device, 1, &x, &y, &g), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_plan_update(NULL, device, DANAUS_F64, NULL, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_plan_update(plan, device, DANAUS_C64, NULL, NULL),
        DANAUS_ERR_ARGUMENT);
    danaus_ks_desc desc = { .gradients = 1, .adjoint = 1 };
    assert_ok(danaus_operator_plan_create(device, made, &desc, &back));
    assert_status(
        danaus_operator_gradient(back, device, 1, &x, &y, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_gradient(back, device, 1, &x, &y, &reserved),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_operator_gradient(back, device, 1, &x, &y, &bias), DANAUS_ERR_ARGUMENT);
    danaus_operator_plan_destroy(back);
    danaus_operator_plan_destroy(plan);
    danaus_operator_plan_destroy(NULL);
    danaus_operator_destroy(made);
    danaus_device_close(device);
    danaus_device_close(other);
}

/* The sentence says so, whether an operator is one chain or a sum; what is no scale at all is
   another mistake, and a scale of 1 is none. */
static void plans_have_neither_scale_nor_residual(void **state)
{
    (void)state;
    danaus_device *device;
    danaus_operator *made = one_number(2, 1);
    danaus_operator *terms[2] = { one_number(3, 0), one_number(4, 0) };
    danaus_operator_plan *plan = NULL;
    const danaus_ks_desc refused[] = {
        { .residual = 1 },
        { .scale = 0.5 },
        { .scale = -1, .adjoint = 1 },
        { .scale = 1, .residual = 1, .activation = DANAUS_RELU },
    };
    const danaus_ks_desc no_number = { .scale = NAN }, one = { .scale = 1 };
    assert_ok(danaus_device_open("cpu", &device));
    for (int sum = 0; sum < 2; sum++) {
        if (sum) {
            danaus_operator_destroy(made);
            assert_ok(danaus_operator_add(terms, 2, &made));
        }
        for (size_t n = 0; n < sizeof refused / sizeof *refused; n++) {
            assert_status(
                danaus_operator_plan_create(device, made, &refused[n], &plan),
                DANAUS_ERR_UNSUPPORTED);
            assert_non_null(
                strstr(danaus_error_detail(), "neither scale nor residual"));
        }
        assert_status(
            danaus_operator_plan_create(device, made, &no_number, &plan),
            DANAUS_ERR_ARGUMENT);
        assert_null(plan);
        assert_ok(danaus_operator_plan_create(device, made, &one, &plan));
        danaus_operator_plan_destroy(plan);
        plan = NULL;
    }
    danaus_operator_destroy(made);
    danaus_device_close(device);
}

static void a_plan_says_what_runs(void **state)
{
    (void)state;
    rng r = { 2 };
    danaus_device *device;
    danaus_operator_plan *plan;
    danaus_operator *terms[2] = { random_operator(&r, DANAUS_F32), NULL }, *sum;
    terms[1] = random_term(
        &r, DANAUS_F32, danaus_operator_rows(terms[0]), danaus_operator_cols(terms[0]),
        1);
    assert_ok(danaus_operator_add(terms, 2, &sum));
    assert_ok(danaus_device_open("cpu", &device));
    assert_ok(danaus_operator_plan_create(device, sum, NULL, &plan));
    char text[8192];
    size_t length = danaus_operator_plan_describe(plan, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, "term 1:\n"));
    assert_non_null(strstr(text, "order: "));
    assert_non_null(strstr(text, "step 0: ("));
    assert_int_equal(danaus_operator_plan_describe(plan, NULL, 0), length);
    assert_int_equal(danaus_operator_plan_describe(NULL, text, 8), 0);
    assert_true(danaus_operator_plan_seconds(plan) > 0);
    assert_true(danaus_operator_plan_seconds(NULL) == 0);
    danaus_operator_plan_destroy(plan);
    danaus_device_close(device);
    danaus_operator_destroy(sum);
}

/* ---- missing memory ---- */

static danaus_status load_use_and_save(void *path)
{
    enum { BATCH = 200 };
    static float x[4 * BATCH], y[3 * BATCH], dense[12];
    danaus_operator *made = NULL;
    danaus_operator_plan *plan = NULL;
    danaus_device *device = NULL;
    danaus_ks_desc desc = { .gradients = 1 };
    danaus_ks_gradients g = { .dx = x };
    TRY(danaus_operator_load(path, &made));
    danaus_status status = danaus_device_open("cpu", &device);
    if (status == DANAUS_OK)
        status = danaus_device_set_threads(device, 1);
    if (status == DANAUS_OK)
        status = danaus_operator_plan_create(device, made, &desc, &plan);
    if (status == DANAUS_OK)
        status = danaus_operator_execute(plan, device, BATCH, x, y);
    if (status == DANAUS_OK)
        status = danaus_operator_gradient(plan, device, 2, x, y, &g);
    if (status == DANAUS_OK)
        status = danaus_operator_to_dense(made, dense);
    if (status == DANAUS_OK)
        status = danaus_operator_save(made, path);
    danaus_operator_plan_destroy(plan);
    danaus_device_close(device);
    danaus_operator_destroy(made);
    return status;
}

static danaus_status add_two(void *terms)
{
    danaus_operator *sum;
    TRY(danaus_operator_add(terms, 2, &sum));
    danaus_operator_destroy(sum);
    return DANAUS_OK;
}

static void memory_may_be_missing_at_any_time(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s", scratch_path("memory"));
    rng r = { 8 };
    danaus_operator *terms[2] = { random_term(&r, DANAUS_F32, 3, 4, 2),
                                  random_term(&r, DANAUS_F32, 3, 4, 2) };
    danaus_operator *numbers[2] = { one_number(1, 1), one_number(2, 0) }, *sum;
    assert_ok(danaus_operator_add(terms, 2, &sum));
    assert_ok(danaus_operator_set_bias(sum, (float[3]){ 1, 2, 3 }));
    assert_ok(danaus_operator_save(sum, path));
    danaus_operator_destroy(sum);
    assert_in_range(expect_memory_errors(load_use_and_save, path), 40, 400);
    assert_int_equal(expect_memory_errors(add_two, numbers), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_is_the_sum_of_its_terms),
        cmocka_unit_test(biases_are_added),
        cmocka_unit_test(a_saved_sum_loads_again),
        cmocka_unit_test(cut_and_changed_files_do_no_harm),
        cmocka_unit_test(files_that_are_no_sum_are_refused),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(plans_refuse_what_they_cannot),
        cmocka_unit_test(plans_have_neither_scale_nor_residual),
        cmocka_unit_test(a_plan_says_what_runs),
        cmocka_unit_test(memory_may_be_missing_at_any_time),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
