/* Known transforms as exact chains, against their definitions. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "operator/transforms/transforms.h"
#include "support/element.h"
#include "support/failing.h"
#include "support/operators.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *name_of(danaus_transform_desc desc)
{
    static char text[100];
    snprintf(
        text, sizeof text, "%s of %lld in %s%s%s", danaus_transform_name(desc.kind),
        (long long)desc.n, desc.dtype ? danaus_dtype_name(desc.dtype) : "its type",
        desc.orthonormal ? ", orthonormal" : "", desc.inverse ? ", inverse" : "");
    return text;
}

/* ||A - exact|| / ||exact|| within the bound; where A is to be the inverse, ||A exact - I||
   over ||I||, whose condition is at most 2 here. */
static void expect_near(
    danaus_transform_desc desc, const danaus_operator *made, matrix exact, double times)
{
    matrix a = operator_matrix(made);
    double error, bound = operator_bound(made) * times;
    assert_int_equal(danaus_operator_rows(made), desc.n);
    assert_int_equal(danaus_operator_cols(made), desc.n);
    if (desc.inverse) {
        matrix product = matrix_times(a, exact), one = matrix_make(desc.n, desc.n);
        for (int64_t x = 0; x < desc.n; x++)
            one.at[x * desc.n + x] = 1;
        error = relative_distance(product, one);
        bound *= 4;
        matrix_free(&product);
        matrix_free(&one);
    } else {
        error = relative_distance(a, exact);
    }
    if (!(error <= bound))
        fail_msg("%s errs by %g, more than %g", name_of(desc), error, bound);
    matrix_free(&a);
}

static void check_transform(danaus_transform_desc desc)
{
    int toeplitz = desc.kind == DANAUS_TOEPLITZ;
    int values = toeplitz || desc.kind == DANAUS_CIRCULANT;
    int complex = desc.dtype == DANAUS_C64 || desc.dtype == DANAUS_C128;
    rng r = { (uint64_t)desc.n };
    matrix v = matrix_gauss(&r, toeplitz ? 2 * desc.n - 1 : desc.n, 1, complex);
    if (desc.inverse && values) /* far from singular */
        v.at[0] += 6 * sqrt((double)desc.n);
    void *packed = matrix_pack(v, desc.dtype);
    matrix rounded = matrix_unpack(desc.dtype, packed, v.rows, 1);
    desc.values = values ? packed : NULL;
    danaus_operator *made = NULL;
    assert_ok(danaus_operator_transform(&desc, &made));
    matrix exact = transform_by_definition(&desc, rounded.at);
    if (desc.orthonormal)
        make_orthonormal(desc.kind, &exact);
    expect_near(desc, made, exact, values ? 4 : 1);
    matrix_free(&exact);
    matrix_free(&v);
    matrix_free(&rounded);
    free(packed);
    danaus_operator_destroy(made);
}

static int has_length(danaus_transform kind, int64_t n)
{
    int64_t size = kind == DANAUS_DCT1 ? n - 1 : kind == DANAUS_DST1 ? n + 1 : n;
    int power = kind == DANAUS_WALSH_HADAMARD || kind == DANAUS_NOISELET;
    if (power || size < 1)
        return power && !(n & (n - 1));
    for (int64_t prime = 2; prime <= 61; prime++)
        while (size % prime == 0)
            size /= prime;
    return size == 1;
}

/* T9.9 to T9.11, T9.14 to T9.16 */
static void every_transform_is_what_it_says(void **state)
{
    (void)state;
    int64_t lengths[] = { 1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 12,
                          15, 16, 18, 20, 24, 30, 32, 45, 61, 62, 64 };
    for (size_t x = 0; x < sizeof lengths / sizeof *lengths; x++)
        for (int t = DANAUS_DFT; t <= DANAUS_TOEPLITZ; t++) {
            danaus_transform_desc desc = { .kind = (danaus_transform)t,
                                           .n = lengths[x] };
            int complex = t == DANAUS_DFT || t == DANAUS_NOISELET;
            if (t == DANAUS_GIVENS || t == DANAUS_WAVELET ||
                !has_length(desc.kind, desc.n))
                continue;
            for (desc.dtype = DANAUS_F32; desc.dtype <= DANAUS_C128; desc.dtype++) {
                int is_complex = precision_of(desc.dtype).complex;
                int half = desc.dtype == DANAUS_F16 || desc.dtype == DANAUS_BF16;
                if (half || (complex && !is_complex))
                    continue;
                desc.orthonormal = desc.inverse = 0;
                check_transform(desc);
                desc.orthonormal = t < DANAUS_NOISELET;
                if (desc.orthonormal)
                    check_transform(desc);
                desc.inverse = t != DANAUS_TOEPLITZ;
                if (desc.inverse)
                    check_transform(desc);
                desc.orthonormal = 0;
                if (desc.inverse)
                    check_transform(desc);
            }
        }
}

/* The families that inverses stay in. */
static void inverses_are_of_the_family(void **state)
{
    (void)state;
    static const danaus_transform pairs[][2] = {
        { DANAUS_DCT2, DANAUS_DCT3 },
        { DANAUS_DST2, DANAUS_DST3 },
        { DANAUS_DCT1, DANAUS_DCT1 },
        { DANAUS_DCT4, DANAUS_DCT4 },
        { DANAUS_DST1, DANAUS_DST1 },
        { DANAUS_DST4, DANAUS_DST4 },
        { DANAUS_HARTLEY, DANAUS_HARTLEY },
        { DANAUS_WALSH_HADAMARD, DANAUS_WALSH_HADAMARD }
    };
    for (size_t x = 0; x < sizeof pairs / sizeof *pairs; x++) {
        danaus_transform_desc to = { .kind = pairs[x][0], .n = 16, .orthonormal = 1 };
        danaus_transform_desc back = { .kind = pairs[x][1], .n = 16, .orthonormal = 1 };
        to.n += to.kind == DANAUS_DCT1 ? 1 : to.kind == DANAUS_DST1 ? -1 : 0;
        back.n = to.n;
        danaus_operator *one, *other;
        assert_ok(danaus_operator_transform(&to, &one));
        assert_ok(danaus_operator_transform(&back, &other));
        matrix exact = operator_matrix(one);
        to.inverse = 1;
        expect_near(to, other, exact, 1);
        matrix_free(&exact);
        danaus_operator_destroy(one);
        danaus_operator_destroy(other);
    }
}

static danaus_operator *fourier_of(int64_t n, const int64_t *radices, int count)
{
    danaus_transform_desc desc = { .kind = DANAUS_DFT, .dtype = DANAUS_C128, .n = n };
    danaus_operator *made;
    assert_ok(dn_fourier(&desc, radices, count, &made));
    assert_int_equal(danaus_chain_count(danaus_operator_chain(made, 0)), count);
    return made;
}

/* T9.1, T9.18: the digit reversal must use the radices in the chain's order. */
static void any_radices_make_the_fourier_matrix(void **state)
{
    (void)state;
    int64_t radices[][10] = { { 2, 2, 2, 2, 2, 2 }, { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 },
                              { 4, 4, 4 },          { 8, 8, 16 },
                              { 3, 4, 5 },          { 2, 3, 5, 7 },
                              { 32, 32 },           { 6, 10 },
                              { 5, 4, 3 } };
    for (size_t x = 0; x < sizeof radices / sizeof *radices; x++) {
        int count = 0;
        int64_t n = 1;
        while (count < 10 && radices[x][count])
            n *= radices[x][count++];
        danaus_transform_desc desc = { .kind = DANAUS_DFT, .n = n };
        danaus_operator *made = fourier_of(n, radices[x], count);
        matrix exact = transform_by_definition(&desc, NULL);
        expect_near(desc, made, exact, 1);
        matrix_free(&exact);
        danaus_operator_destroy(made);
    }
}

/* ---- rotations, wavelets ---- */

static void rotations_turn_by_their_angles(void **state)
{
    (void)state;
    for (int levels = 0; levels <= 7; levels++) {
        rng r = { (uint64_t)levels };
        int64_t n = INT64_C(1) << levels;
        double angles[7 * 64] = { 0 };
        for (int64_t x = 0; x < levels * n / 2; x++)
            angles[x] = 4 * rng_sign(&r);
        danaus_transform_desc desc = { .kind = DANAUS_GIVENS,
                                       .n = n,
                                       .angles = angles };
        matrix exact = transform_by_definition(&desc, NULL);
        for (int way = 0; way < 4; way++) {
            danaus_operator *made;
            desc.dtype = way % 2 ? DANAUS_F32 : DANAUS_F64;
            desc.inverse = way / 2;
            assert_ok(danaus_operator_transform(&desc, &made));
            expect_near(desc, made, exact, 1);
            assert_int_equal(
                danaus_operator_parameters(made), levels ? 2 * n * levels : 1);
            danaus_operator_destroy(made);
        }
        matrix_free(&exact);
    }
}

/* Orthonormal with its even shifts, K vanishing moments, the energy as early as it can
   be; and the closed forms of the shortest. The filter has been rounded to f64 once; sums
   of 2 K numbers of modulus at most 1 err by 2 K units. */
static void filters_are_those_of_daubechies(void **state)
{
    (void)state;
    double h[2 * DANAUS_MOST_MOMENTS], unit = 0x1p-53;
    for (int moments = 1; moments <= DANAUS_MOST_MOMENTS; moments++) {
        int taps = 2 * moments;
        double early = 0, late = 0, bound = 2 * taps * unit;
        assert_ok(danaus_wavelet_filter(moments, h));
        for (int shift = 0; shift < taps; shift += 2) {
            double sum = 0;
            for (int m = 0; m + shift < taps; m++)
                sum += h[m] * h[m + shift];
            assert_true(fabs(sum - (shift == 0)) <= bound);
        }
        for (int power = 0; power < moments; power++) {
            double sum = 0, size = 0;
            for (int m = 0; m < taps; m++) {
                double term = h[m] * pow(m, power);
                sum += m % 2 ? -term : term;
                size += fabs(term);
            }
            assert_true(fabs(sum) <= bound * size);
        }
        for (int m = 0; m < taps; m++) {
            early += h[m] * h[m];
            late += h[taps - 1 - m] * h[taps - 1 - m];
            assert_true(early >= late - bound);
        }
    }
    assert_ok(danaus_wavelet_filter(1, h));
    assert_true(h[0] == sqrt(0.5) && h[1] == sqrt(0.5));
    assert_ok(danaus_wavelet_filter(2, h));
    for (int m = 0; m < 4; m++) {
        double entry = (m % 3 ? 3 : 1) + (m < 2 ? sqrt(3) : -sqrt(3));
        assert_true(fabs(h[m] - entry / (4 * sqrt(2))) <= 4 * unit);
    }
    assert_ok(danaus_wavelet_filter(3, h));
    double first = (1 + sqrt(10) + sqrt(5 + 2 * sqrt(10))) / (16 * sqrt(2));
    assert_true(fabs(h[0] - first) <= 4 * unit);
    assert_status(danaus_wavelet_filter(0, h), DANAUS_ERR_UNSUPPORTED);
    assert_status(
        danaus_wavelet_filter(DANAUS_MOST_MOMENTS + 1, h), DANAUS_ERR_UNSUPPORTED);
    assert_status(danaus_wavelet_filter(2, NULL), DANAUS_ERR_ARGUMENT);
}

static void wavelets_are_filters_level_by_level(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 2, 4, 6, 8, 12, 20, 32, 48, 62 };
    static const int moments[] = { 0, 2, 3, 4, 10, DANAUS_MOST_MOMENTS };
    for (size_t x = 0; x < sizeof lengths / sizeof *lengths; x++)
        for (size_t m = 0; m < sizeof moments / sizeof *moments; m++)
            for (int levels = 0; levels == 0 || lengths[x] % (1 << levels) == 0;
                 levels++) {
                danaus_transform_desc desc = { .kind = DANAUS_WAVELET,
                                               .n = lengths[x],
                                               .moments = moments[m],
                                               .levels = levels };
                matrix exact = transform_by_definition(&desc, NULL);
                for (int way = 0; way < 4; way++) {
                    danaus_operator *made;
                    desc.dtype = way % 2 ? DANAUS_F32 : DANAUS_C128;
                    desc.inverse = way / 2;
                    assert_ok(danaus_operator_transform(&desc, &made));
                    expect_near(desc, made, exact, 1);
                    danaus_operator_destroy(made);
                }
                matrix_free(&exact);
            }
}

/* ---- refusals ---- */

static void what_no_chain_serves_is_refused(void **state)
{
    (void)state;
    static const double v[512] = { 1 }, bad[12] = { 0, 0, NAN };
    static const double ones[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    const struct {
        danaus_transform_desc desc;
        danaus_status status;
        const char *words;
    } cases[] = {
        { { .n = 67 }, DANAUS_ERR_UNSUPPORTED, "67 has a prime factor" },
        { { .n = 64, .dtype = DANAUS_F32 }, DANAUS_ERR_UNSUPPORTED, "complex type" },
        { { .n = 0 }, DANAUS_ERR_SHAPE, "0 is no length" },
        { { .n = -5 }, DANAUS_ERR_SHAPE, "-5 is no length" },
        { { .n = INT64_MAX }, DANAUS_ERR_SHAPE, "is no length" },
        { { .n = 8, .values = v }, DANAUS_ERR_ARGUMENT, "values belong" },
        { { .n = 8, .angles = v }, DANAUS_ERR_ARGUMENT, "angles belong" },
        { { .n = 8, .levels = 1 }, DANAUS_ERR_ARGUMENT, "only wavelets" },
        { { .n = 8, .reserved = { 1 } }, DANAUS_ERR_ARGUMENT, "reserved" },
        { { .n = 8, .dtype = (danaus_dtype)77 }, DANAUS_ERR_ARGUMENT, "77 is no" },
        { { .kind = (danaus_transform)77, .n = 8 }, DANAUS_ERR_ARGUMENT, "77 is no" },
        { { .kind = (danaus_transform)-1, .n = 8 }, DANAUS_ERR_ARGUMENT, "-1 is no" },
        { { .kind = DANAUS_WALSH_HADAMARD, .n = 12 }, DANAUS_ERR_UNSUPPORTED, "12" },
        { { .kind = DANAUS_DCT1, .n = 1 }, DANAUS_ERR_SHAPE, "at least two" },
        { { .kind = DANAUS_DCT1, .n = 68 }, DANAUS_ERR_UNSUPPORTED, "prime factor" },
        { { .kind = DANAUS_DST1, .n = 66 }, DANAUS_ERR_UNSUPPORTED, "prime factor" },
        { { .kind = DANAUS_NOISELET, .n = 6 }, DANAUS_ERR_UNSUPPORTED, "power of two" },
        { { .kind = DANAUS_GIVENS, .n = 6, .angles = v }, DANAUS_ERR_UNSUPPORTED, "6" },
        { { .kind = DANAUS_GIVENS, .n = 8, .angles = bad },
          DANAUS_ERR_ARGUMENT,
          "angle 2 is" },
        { { .kind = DANAUS_GIVENS, .n = 8 }, DANAUS_ERR_ARGUMENT, "angles belong" },
        { { .kind = DANAUS_WAVELET, .n = 12, .levels = 3 },
          DANAUS_ERR_UNSUPPORTED,
          "a multiple of 2^3 numbers, not 12" },
        { { .kind = DANAUS_WAVELET, .n = 7 }, DANAUS_ERR_UNSUPPORTED, "not 7" },
        { { .kind = DANAUS_WAVELET, .n = 8, .moments = DANAUS_MOST_MOMENTS + 1 },
          DANAUS_ERR_UNSUPPORTED,
          "vanishing moments" },
        { { .kind = DANAUS_WAVELET, .n = 8, .moments = -1 },
          DANAUS_ERR_ARGUMENT,
          "-1 moments" },
        { { .kind = DANAUS_CIRCULANT, .n = 8 }, DANAUS_ERR_ARGUMENT, "values belong" },
        { { .kind = DANAUS_CIRCULANT, .n = 8, .values = v, .orthonormal = 1 },
          DANAUS_ERR_ARGUMENT,
          "no orthonormal form" },
        { { .kind = DANAUS_CIRCULANT, .n = 8, .values = ones, .inverse = 1 },
          DANAUS_ERR_ARGUMENT,
          "has no inverse" },
        { { .kind = DANAUS_CIRCULANT, .n = 8, .values = bad, .inverse = 1 },
          DANAUS_ERR_ARGUMENT,
          "has no inverse" },
        { { .kind = DANAUS_TOEPLITZ, .n = 8, .values = v, .inverse = 1 },
          DANAUS_ERR_UNSUPPORTED,
          "inverse of a Toeplitz" },
    };
    danaus_operator *made = NULL;
    for (size_t x = 0; x < sizeof cases / sizeof *cases; x++) {
        assert_status(
            danaus_operator_transform(&cases[x].desc, &made), cases[x].status);
        if (!strstr(danaus_error_detail(), cases[x].words))
            fail_msg("case %zu: %s", x, danaus_error_detail());
        assert_null(made);
    }
    assert_status(danaus_operator_transform(NULL, &made), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_operator_transform(&cases[0].desc, NULL), DANAUS_ERR_ARGUMENT);
    assert_null(danaus_transform_name((danaus_transform)(DANAUS_TOEPLITZ + 1)));
}

static danaus_status make_one(void *arg)
{
    danaus_operator *made = NULL;
    danaus_status status = danaus_operator_transform(arg, &made);
    assert_int_equal(status == DANAUS_OK, made != NULL);
    danaus_operator_destroy(made);
    return status;
}

static void missing_memory_is_reported(void **state)
{
    (void)state;
    double v[64] = { 1, 2, 3 };
    for (int t = DANAUS_DFT; t <= DANAUS_TOEPLITZ; t++)
        for (int inverse = 0; inverse < 2 - (t == DANAUS_TOEPLITZ); inverse++) {
            danaus_transform_desc desc = { .kind = (danaus_transform)t,
                                           .dtype = DANAUS_C128,
                                           .n = 16,
                                           .inverse = inverse };
            desc.values = t >= DANAUS_CIRCULANT ? v : NULL;
            desc.angles = t == DANAUS_GIVENS ? v : NULL;
            assert_in_range(expect_memory_errors(make_one, &desc), 3, 60);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_transform_is_what_it_says),
        cmocka_unit_test(inverses_are_of_the_family),
        cmocka_unit_test(any_radices_make_the_fourier_matrix),
        cmocka_unit_test(rotations_turn_by_their_angles),
        cmocka_unit_test(filters_are_those_of_daubechies),
        cmocka_unit_test(wavelets_are_filters_level_by_level),
        cmocka_unit_test(what_no_chain_serves_is_refused),
        cmocka_unit_test(missing_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
