/* Element types: the table, and conversions against the definition of the formats. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/dtype.h"
#include "support/element.h"

#include <math.h>
#include <string.h>

static const danaus_dtype all[] = {
    DANAUS_F32, DANAUS_F16, DANAUS_BF16, DANAUS_F64, DANAUS_C64, DANAUS_C128,
};

static void names_and_sizes_agree(void **state)
{
    (void)state;
    static const size_t sizes[] = { 4, 2, 2, 8, 8, 16 };
    for (int i = 0; i < 6; i++) {
        assert_int_equal(danaus_dtype_size(all[i]), sizes[i]);
        assert_int_equal(dn_dtype_from_name(danaus_dtype_name(all[i])), all[i]);
        assert_int_equal(
            dn_dtype_from_safetensors(dn_dtype(all[i])->safetensors), all[i]);
        assert_int_equal(dn_is_complex(all[i]), precision_of(all[i]).complex);
        assert_int_equal(dn_sum_type(all[i]), sum_type(all[i]));
    }
}

static void what_is_no_type_has_no_facts(void **state)
{
    (void)state;
    assert_int_equal(danaus_dtype_size((danaus_dtype)0), 0);
    assert_string_equal(danaus_dtype_name((danaus_dtype)77), "unknown");
    assert_null(dn_dtype((danaus_dtype)77));
    assert_int_equal(dn_dtype_from_name("f33"), 0);
    assert_int_equal(dn_dtype_from_safetensors("f32"), 0);
}

static void every_16_bit_number_is_read_right(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 65536; bits++) {
        uint16_t h = (uint16_t)bits;
        double f16 = element_get(DANAUS_F16, &h, 0).re, got = dn_f16_to_f32(h);
        double bf16 = element_get(DANAUS_BF16, &h, 0).re, found = dn_bf16_to_f32(h);
        assert_true(isnan(f16) ? isnan(got) : f16 == got);
        assert_true(isnan(bf16) ? isnan(found) : bf16 == found);
        assert_true(isnan(f16) || dn_f32_to_f16((float)f16) == h);
        assert_true(isnan(bf16) || dn_f32_to_bf16((float)bf16) == h);
    }
}

/* Between neighbours h and h + 1 of one sign: below the middle rounds to h, above
   to h + 1, the middle to the even one. The next number after the largest counts
   as infinity. */
static void check_rounding(danaus_dtype dtype, unsigned h, uint16_t (*round)(float))
{
    uint16_t low = (uint16_t)h, high = (uint16_t)(h + 1);
    double a = element_get(dtype, &low, 0).re, b = element_get(dtype, &high, 0).re;
    if (isnan(a) || isinf(a) || isnan(b))
        return;
    if (isinf(b)) { /* as if the format went on */
        uint16_t before = (uint16_t)(h - 1);
        b = a + (a - element_get(dtype, &before, 0).re);
    }
    float middle = (float)((a + b) / 2);
    double away = fabs(b);
    assert_true((double)middle == (a + b) / 2 || dtype == DANAUS_BF16);
    assert_int_equal(round(middle), h % 2 ? high : low);
    assert_int_equal(round(nextafterf(middle, 0.0f)), low);
    assert_int_equal(
        round(nextafterf(middle, (float)(2 * (b < 0 ? -away : away)))), high);
}

static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65535; h++) {
        if (h % 32768 == 32767)
            continue;
        check_rounding(DANAUS_F16, h, dn_f32_to_f16);
        check_rounding(DANAUS_BF16, h, dn_f32_to_bf16);
    }
}

static void nan_stays_nan(void **state)
{
    (void)state;
    assert_true(isnan(dn_f16_to_f32(dn_f32_to_f16(NAN))));
    assert_true(isnan(dn_bf16_to_f32(dn_f32_to_bf16(-NAN))));
    uint32_t bits = 0x7f800001; /* a signalling NaN whose upper half is infinity */
    float x;
    memcpy(&x, &bits, sizeof x);
    assert_true(isnan(dn_bf16_to_f32(dn_f32_to_bf16(x))));
    assert_true(isnan(dn_f16_to_f32(dn_f32_to_f16(x))));
}

/* A double just above the middle of two f16 numbers rounds to the middle in f32;
   rounding twice would then go down to the even one. */
static void doubles_are_rounded_once(void **state)
{
    (void)state;
    uint16_t h;
    double above[2] = { 1 + 0x1p-11 + 0x1p-40, 0 };
    dn_store(DANAUS_F16, &h, 0, above);
    assert_true(dn_f16_to_f32(h) == 1 + 0x1p-10f);
    double below[2] = { 1 + 3 * 0x1p-11 - 0x1p-40, 0 };
    dn_store(DANAUS_F16, &h, 0, below);
    assert_true(dn_f16_to_f32(h) == 1 + 0x1p-10f);
    double coarse[2] = { -(1 + 0x1p-8 + 0x1p-40), 0 };
    dn_store(DANAUS_BF16, &h, 0, coarse);
    assert_true(dn_bf16_to_f32(h) == -(1 + 0x1p-7f));
}

static void every_pair_of_types_converts(void **state)
{
    (void)state;
    rng r = { 1 };
    for (int from = 0; from < 6; from++)
        for (int to = 0; to < 6; to++) {
            array x = array_random(&r, all[from], 17), y = array_make(all[to], 17);
            dn_convert(all[from], x.data, all[to], y.data, 17);
            array_expect_guards(&y);
            precision p = precision_of(all[to]);
            for (int64_t i = 0; i < 17; i++) {
                value v = element_get(all[from], x.data, i);
                value w = element_get(all[to], y.data, i);
                assert_true(fabs(v.re - w.re) <= p.unit * fabs(v.re) + p.tiny);
                double im = p.complex ? v.im : 0;
                assert_true(fabs(im - w.im) <= p.unit * fabs(im) + p.tiny);
            }
            array_free(&x);
            array_free(&y);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes_agree),
        cmocka_unit_test(what_is_no_type_has_no_facts),
        cmocka_unit_test(every_16_bit_number_is_read_right),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(doubles_are_rounded_once),
        cmocka_unit_test(every_pair_of_types_converts),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
