/* What users are told of errors: of y, and of every gradient, in f32 at most

       1.2 eps sqrt(log2 n),     eps = 2^-23,

   relative to the result, both in Euclidean norm, against the same convolution in f64 by
   support/exact.h, for rows of n numbers; in f64 the same with eps = 2^-52, and in 16 bits with
   results that are rounded. Fast convolutions err by 2e-3 at most; of others each number is
   within the bound that is derived there. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/exact.h"

#include "conv/choose.h"
#include "device/tuning.h"

#include <math.h>

static const char *const names[CONV_RESULTS] = { "y",         "du", "dgate_in",
                                                 "dgate_out", "dk", "dk_reverse",
                                                 "dskip" };

/* The error of products in 16 bits, whose factors are rounded too. */
#define FAST_ERROR 2e-3

/* Numbers may err by their own rounding, and by that of results. */
static void expect_errors(
    const danaus_conv_desc *desc, const conv_outcome *is, const conv_exact *should)
{
    precision f = precision_of(desc->dtype);
    double sums = 1.2 * 2 * f.sum_unit * sqrt(log2((double)desc->length));
    sums *= desc->dtype == DANAUS_F64 ? 2 : 1; /* both sides err */
    if (desc->accuracy == DANAUS_CONV_FAST)
        sums = FAST_ERROR;
    for (int i = 0; i < CONV_RESULTS; i++) {
        const array *a = &is->of[i];
        if (!a->data)
            continue;
        double most = sums + (a->dtype == DANAUS_F32 ? 0 : precision_of(a->dtype).unit);
        if (i == CONV_DSKIP) /* of few numbers, which may be small by chance */
            most *= 4;
        double error = conv_exact_error(should, (conv_name)i, a);
        if (!(error <= most))
            fail_msg(
                "kind %d, %s, length %d, %d taps: %s errs by %.3g, more than %.3g",
                desc->kind, danaus_dtype_name(desc->dtype), (int)desc->length,
                (int)desc->filter_length, names[i], error, most);
    }
}

/* Rows that are not cut have bounds that are smaller than the numbers. */
static void expect_numbers(
    const conv_case *c, const conv_outcome *is, const conv_exact *should)
{
    conv_exact_expect(c, is, should);
    for (int i = 0; i < CONV_DSKIP; i++)
        if (is->of[i].data && c->desc.filter_length == c->desc.length)
            assert_true(conv_exact_doubt(should, (conv_name)i) < 1);
}

static void check(
    danaus_device *device, danaus_conv_desc desc, int64_t batch, int extras)
{
    rng r = { (uint64_t)desc.length };
    conv_case c = conv_random(&r, &desc, batch, extras);
    array dy = array_random(&r, c.desc.dtype, c.u.count);
    conv_outcome is = conv_compute(device, &c, &dy);
    conv_exact should = conv_exactly(&c, &dy);
    expect_errors(&c.desc, &is, &should);
    if (c.desc.accuracy != DANAUS_CONV_FAST)
        expect_numbers(&c, &is, &should);
    conv_outcome_free(&is);
    conv_exact_free(&should);
    array_free(&dy);
    conv_free(&c);
}

static void errors_grow_like_the_root_of_the_logarithm(void **state)
{
    for (int64_t length = 16; length <= 1 << 20; length *= 4) {
        if (length > (1 << 20) / share_of_cases())
            break;
        check(*state, (danaus_conv_desc){ .channels = 1, .length = length }, 1, 0);
    }
    static const int64_t others[] = { 100, 1000, 3000, 44100, 65537 };
    for (int i = 0; i < 5 && others[i] < (1 << 20) / share_of_cases(); i++)
        check(*state, (danaus_conv_desc){ .channels = 1, .length = others[i] }, 1, 0);
}

/* Cases have many channels, so that dskip has a norm. */
static void gates_and_kinds_err_no_more(void **state)
{
    for (int kind = 0; kind < 3; kind++)
        for (int64_t length = 64; length <= 65536 / share_of_cases(); length *= 8)
            for (int part = 0; part < 2; part++) {
                danaus_conv_desc desc = {
                    .channels = length < 10000 ? 64 : 8,
                    .length = length,
                    .filter_length = part ? length / 16 : length,
                    .kind = (danaus_conv_kind)kind,
                };
                check(*state, desc, 2, 7);
            }
}

/* ---- two levels ---- */

/* Points of windows that no block of threads has room for, of each type: rows of a matrix
   and its columns, in shapes of all radices. */
static const int64_t windows[][4] = {
    { 32768, 49152, 35840, 16384 },
    { 65536, 36864, 131072, 20480 },
};
static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F16, DANAUS_BF16, DANAUS_F64 };

/* Rows as the tuning table cuts them into windows of n points: one whose second half is
   zeros or folded, one that is full, and several. */
static void check_windows(
    danaus_device *device, rng *r, danaus_conv_desc desc, int64_t n, int extras)
{
    int first = 0;
    int64_t taps = rng_int(r, 20, 300); /* so that dk has a norm */
    int64_t sizes[][2] = { { n, n }, { 2 * n - 300, taps }, { 5 * n, taps } };
    int64_t form = rng_int(r, 0, 2);
    desc.length = sizes[form][0];
    desc.filter_length = sizes[form][1];
    desc.effort = DANAUS_TABLE_ONLY;
    desc.accuracy = DANAUS_CONV_ACCURATE;
    desc.accuracy = dn_conv_accuracy(device, &desc);
    conv_cut cut = { dn_conv_next_kernel(device, desc.dtype, &first), n, 0 };
    cut.radix = cut.kernel->radix;
    dn_tuning_add_conv(device->tuning, &desc, 0, cut, 1e-6);
    check(device, desc, rng_int(r, 1, 3), extras);
}

/* A processor knows no blocks of threads: it needs few of these rounds, as emulators do. */
static int few_rounds(const danaus_device *device)
{
    return share_of_cases() >= 50 || device->backend->on_host;
}

static void windows_beyond_a_block_of_threads_err_no_more(void **state)
{
    int few = few_rounds(*state);
    int step = few && share_of_cases() > 1 ? 3 : 1; /* every type, and every kind */
    for (int round = 0; round < (few ? 12 : 48); round += step) {
        rng r = { (uint64_t)round };
        int type = round % 4;
        danaus_conv_desc desc = {
            .channels = 4,
            .filters = round % 8 < 4 ? 2 : 4,
            .kind = (danaus_conv_kind)(round / 4 % 3),
            .dtype = types[type],
        };
        check_windows(
            *state, &r, desc, windows[few ? 0 : round / 12 % 2][type], round % 8);
    }
}

/* Where a GPU has them: windows of 256 points and more, whole and in halves, of one row and of
   several, with gates and gradients. */
static void fast_ones_err_as_16_bits_do(void **state)
{
    int few = few_rounds(*state);
    for (int round = 0; round < (few ? 6 : 36); round++) {
        rng r = { (uint64_t)round };
        int64_t most = few ? 600 : round % 2 ? 3000 : 40000;
        danaus_conv_desc desc = {
            .channels = 32,
            .filters = round % 4 ? 32 : 16,
            .length = rng_int(&r, 100, most),
            .kind = (danaus_conv_kind)(round / 3 % 3),
            .dtype = types[round % 3],
            .accuracy = DANAUS_CONV_FAST,
        };
        desc.filter_length = round % 5 ? desc.length : rng_int(&r, 20, 100);
        check(*state, desc, rng_int(&r, 1, 3), round % 8);
    }
}

/* So many filters, and so many windows of each, that sums are made of some at a time where
   a device has little memory. */
static void sums_of_many_filters_and_windows_err_no_more(void **state)
{
    static const int64_t sizes[][4] = { { 1100, 1100, 250, 1 },
                                        { 3, 3, 9000, 40 },
                                        { 2, 1, 9000, 10 },
                                        { 520, 4, 60, 3 } };
    for (int i = 0; i < 4; i++)
        for (int kind = 0; kind < 3; kind += 2) {
            danaus_conv_desc desc = {
                .channels = sizes[i][0],
                .filters = sizes[i][1],
                .length = sizes[i][2],
                .kind = (danaus_conv_kind)kind,
            };
            check(*state, desc, sizes[i][3], kind ? 7 : 0);
        }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(errors_grow_like_the_root_of_the_logarithm, device),
        cmocka_unit_test_prestate(gates_and_kinds_err_no_more, device),
        cmocka_unit_test_prestate(
            windows_beyond_a_block_of_threads_err_no_more, device),
        cmocka_unit_test_prestate(fast_ones_err_as_16_bits_do, device),
        cmocka_unit_test_prestate(sums_of_many_filters_and_windows_err_no_more, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
