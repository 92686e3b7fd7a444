/* Non-uniform Fourier transforms against their sums. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/element.h"
#include "support/failing.h"
#include "support/matrix.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct scene {
    danaus_nufft_desc desc;
    double *x;
    matrix numbers, modes; /* as they are in the type */
    void *packed_numbers, *packed_modes;
} scene;

/* Points are anywhere, some of them the same and some at the ends of the circle. */
static scene scene_make(rng *r, int64_t n, int64_t points, danaus_dtype dtype)
{
    scene s = { .desc = { .n = n, .points = points, .dtype = dtype, .threads = 1 } };
    s.x = malloc((size_t)(points + 1) * sizeof *s.x);
    for (int64_t j = 0; j < points; j++)
        s.x[j] = j % 7 == 3    ? s.x[j - 1]
                 : j % 11 == 5 ? nextafter((double)(j % 3) * 2 * acos(-1), -1)
                               : 20 * rng_sign(r);
    s.desc.x = s.x;
    s.desc.negative = (int)rng_int(r, 0, 1);
    matrix c = matrix_gauss(r, points, 1, 1), f = matrix_gauss(r, n, 1, 1);
    s.packed_numbers = matrix_pack(c, dtype);
    s.packed_modes = matrix_pack(f, dtype);
    s.numbers = matrix_unpack(dtype, s.packed_numbers, points, 1);
    s.modes = matrix_unpack(dtype, s.packed_modes, n, 1);
    matrix_free(&c);
    matrix_free(&f);
    return s;
}

static void scene_free(scene *s)
{
    free(s->x);
    free(s->packed_numbers);
    free(s->packed_modes);
    matrix_free(&s->numbers);
    matrix_free(&s->modes);
}

static double size_of(matrix a)
{
    double sum = 0;
    for (int64_t x = 0; x < a.rows; x++)
        sum += cabs(a.at[x]);
    return sum;
}

/* exp(+-i k x_j). */
static number wave(const scene *s, int64_t mode, int64_t j)
{
    double k = (double)(mode - s->desc.n / 2) * (s->desc.negative ? -1 : 1);
    return CMPLX(cos(k * s->x[j]), sin(k * s->x[j]));
}

/* Times the sum of absolute values: the tolerance; what rounding of x_j, |x_j| < 20, and of
   the reduced angle does to exp(i k x_j), here and there; and three roundings for weights,
   factors and each of the at most log2(4 n) + 5 stages of the grid's transform. */
static double bound_of(const scene *s, double tolerance)
{
    double n = (double)s->desc.n, angle = 20 + 2 * acos(-1);
    return tolerance + 2 * n * angle * 0x1p-53 +
           3 * (log2(4 * n) + 7) * precision_of(s->desc.dtype).unit;
}

static void check_both(const scene *s, double tolerance)
{
    tolerance = bound_of(s, tolerance);
    int64_t n = s->desc.n, points = s->desc.points;
    danaus_nufft_plan *plan;
    danaus_dtype dtype = s->desc.dtype;
    array modes = array_make(dtype, n), numbers = array_make(dtype, points);
    assert_ok(danaus_nufft_plan_create(&s->desc, &plan));
    assert_ok(danaus_nufft_type1(plan, s->packed_numbers, modes.data));
    assert_ok(danaus_nufft_type2(plan, s->packed_modes, numbers.data));
    array_expect_guards(&modes);
    array_expect_guards(&numbers);
    double most1 = 0, most2 = 0;
    for (int64_t k = 0; k < n; k++) {
        value z = element_get(dtype, modes.data, k);
        number sum = -CMPLX(z.re, z.im);
        for (int64_t j = 0; j < points; j++)
            sum += s->numbers.at[j] * wave(s, k, j);
        most1 = fmax(most1, cabs(sum));
    }
    for (int64_t j = 0; j < points; j++) {
        value z = element_get(dtype, numbers.data, j);
        number sum = -CMPLX(z.re, z.im);
        for (int64_t k = 0; k < n; k++)
            sum += s->modes.at[k] * wave(s, k, j);
        most2 = fmax(most2, cabs(sum));
    }
    if (!(most1 <= tolerance * size_of(s->numbers) &&
          most2 <= tolerance * size_of(s->modes)))
        fail_msg(
            "%lld modes, %lld points, %g: errors %g and %g", (long long)n,
            (long long)points, tolerance, most1, most2);
    danaus_nufft_plan_destroy(plan);
    array_free(&modes);
    array_free(&numbers);
}

static void both_types_are_as_near_as_they_say(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 1, 2, 3, 4, 5, 7, 16, 17, 31, 64, 100 };
    for (size_t x = 0; x < sizeof lengths / sizeof *lengths; x++)
        for (double digits = 1; digits <= 13; digits += 1.5)
            for (int single = 0; single < 2 - (digits > 6); single++) {
                rng r = { 100 * x + (uint64_t)digits };
                scene s = scene_make(
                    &r, lengths[x], rng_int(&r, 1, 60),
                    single ? DANAUS_C64 : DANAUS_C128);
                s.desc.tolerance = pow(10, -digits);
                check_both(&s, s.desc.tolerance);
                scene_free(&s);
            }
    rng r = { 1 };
    scene s = scene_make(&r, 3000, 500, DANAUS_C128); /* many blocks of the grid */
    check_both(&s, 1e-6);
    scene_free(&s);
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    rng r = { 2 };
    scene s = scene_make(&r, 9000, 20000, DANAUS_C64);
    void *one[2] = { malloc(9000 * 8), malloc(20000 * 8) },
         *more[2] = { malloc(9000 * 8), malloc(20000 * 8) };
    for (int threads = 1; threads <= 3; threads++) {
        void **to = threads == 1 ? one : more;
        danaus_nufft_plan *plan;
        s.desc.threads = threads;
        assert_ok(danaus_nufft_plan_create(&s.desc, &plan));
        for (int again = 0; again < 2; again++) {
            assert_ok(danaus_nufft_type1(plan, s.packed_numbers, to[0]));
            assert_ok(danaus_nufft_type2(plan, s.packed_modes, to[1]));
        }
        danaus_nufft_plan_destroy(plan);
        if (threads > 1) {
            assert_memory_equal(one[0], more[0], 9000 * 8);
            assert_memory_equal(one[1], more[1], 20000 * 8);
        }
    }
    for (int x = 0; x < 2; x++) {
        free(one[x]);
        free(more[x]);
    }
    scene_free(&s);
}

static void no_points_are_fine(void **state)
{
    (void)state;
    danaus_nufft_desc desc = { .n = 5 };
    danaus_nufft_plan *plan;
    double modes[10] = { 1, 2, 3 };
    assert_ok(danaus_nufft_plan_create(&desc, &plan));
    assert_ok(danaus_nufft_type1(plan, NULL, modes));
    for (int x = 0; x < 10; x++)
        assert_true(modes[x] == 0);
    assert_ok(danaus_nufft_type2(plan, modes, NULL));
    danaus_nufft_plan_destroy(plan);
    danaus_nufft_plan_destroy(NULL);
}

static void what_is_no_transform_is_refused(void **state)
{
    (void)state;
    static const double x[3] = { 0, INFINITY, 1 };
    const struct {
        danaus_nufft_desc desc;
        danaus_status status;
    } cases[] = {
        { { .n = 0 }, DANAUS_ERR_SHAPE },
        { { .n = INT64_MAX }, DANAUS_ERR_SHAPE },
        { { .n = 4, .points = -1, .x = x }, DANAUS_ERR_SHAPE },
        { { .n = 4, .points = 1 }, DANAUS_ERR_SHAPE },
        { { .n = 4, .points = 3, .x = x }, DANAUS_ERR_ARGUMENT },
        { { .n = 4, .tolerance = 1 }, DANAUS_ERR_ARGUMENT },
        { { .n = 4, .tolerance = 1e-14 }, DANAUS_ERR_ARGUMENT },
        { { .n = 4, .tolerance = 1e-7, .dtype = DANAUS_C64 }, DANAUS_ERR_ARGUMENT },
        { { .n = 4, .tolerance = NAN }, DANAUS_ERR_ARGUMENT },
        { { .n = 4, .dtype = DANAUS_F64 }, DANAUS_ERR_UNSUPPORTED },
        { { .n = 4, .threads = -1 }, DANAUS_ERR_ARGUMENT },
        { { .n = 4, .reserved = { 1 } }, DANAUS_ERR_ARGUMENT },
    };
    danaus_nufft_plan *plan = NULL;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        assert_status(danaus_nufft_plan_create(&cases[c].desc, &plan), cases[c].status);
        assert_null(plan);
    }
    assert_status(danaus_nufft_plan_create(NULL, &plan), DANAUS_ERR_ARGUMENT);
    danaus_nufft_desc desc = { .n = 4, .points = 1, .x = x };
    assert_status(danaus_nufft_plan_create(&desc, NULL), DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_nufft_plan_create(&desc, &plan));
    double z[8] = { 0 };
    assert_status(danaus_nufft_type1(NULL, z, z), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_nufft_type1(plan, NULL, z), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_nufft_type1(plan, z, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_nufft_type2(plan, NULL, z), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_nufft_type2(plan, z, NULL), DANAUS_ERR_ARGUMENT);
    danaus_nufft_plan_destroy(plan);
}

static danaus_status make_one(void *arg)
{
    danaus_nufft_plan *plan = NULL;
    danaus_status status = danaus_nufft_plan_create(arg, &plan);
    assert_int_equal(status == DANAUS_OK, plan != NULL);
    danaus_nufft_plan_destroy(plan);
    return status;
}

static void missing_memory_is_reported(void **state)
{
    (void)state;
    static const double x[2] = { 1, 2 };
    danaus_nufft_desc desc = { .n = 4, .points = 2, .x = x, .threads = 2 };
    assert_in_range(expect_memory_errors(make_one, &desc), 8, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_types_are_as_near_as_they_say),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(no_points_are_fine),
        cmocka_unit_test(what_is_no_transform_is_refused),
        cmocka_unit_test(missing_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
