/* The Hyena operator and its gradients against the definition; batches and threads change no
   bit; what is refused. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"
#include "support/device.h"
#include "support/operator.h"

#include "base/numbers.h"
#include "device/backend.h"

#include <string.h>

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_F16, DANAUS_BF16 };

static danaus_hyena_desc random_desc(rng *r, int round)
{
    int64_t filters = rng_int(r, 1, 3), group = rng_int(r, 1, 3);
    danaus_hyena_desc d = {
        .channels = filters * group,
        .filters = filters,
        .length = rng_int(r, 1, round % 8 ? 70 : 700),
        .order = round % 3 ? 2 : rng_int(r, 2, 4),
        .taps = rng_int(r, 1, round % 4 ? 4 : DANAUS_SHORT_MOST_TAPS),
        .dtype = types[round % 4],
        .accuracy = DANAUS_CONV_ACCURATE,
    };
    if (rng_next(r) % 3 == 0) /* as long as a transform */
        d.length = (d.length + 63) / 64 * 64;
    d.filter_length = rng_int(r, 1, rng_next(r) % 2 ? 2 * d.length : 20);
    return d;
}

static void the_operator_and_its_gradients_are_those_of_sums(void **state)
{
    for (int round = 0; round < rounds_of(160); round++) {
        rng r = { (uint64_t)round };
        danaus_hyena_desc desc = random_desc(&r, round);
        operator_case c = operator_random(&r, &desc, rng_int(&r, 1, 4));
        operator_outcome o = operator_compute(*state, &c);
        operator_expect(&c, &o);
        operator_outcome_free(&o);
        operator_free(&c);
    }
}

/* Tensor cores compute the windows, in one launch and in several. They round z, gates and
   products to 16 bits a few times. */
static void fast_operators_err_by_little(void **state)
{
    static const int64_t lengths[] = { 256, 509, 1024, 1300, 17000 };
    const danaus_device *device = *state;
    int count = share_of_cases() >= 50 ? 2 : device->backend->on_host ? 4 : 5;
    for (int i = 0; i < count; i++) {
        rng r = { (uint64_t)i };
        danaus_hyena_desc desc = { .channels = 2,
                                   .length = lengths[i],
                                   .order = 2 + i % 2,
                                   .taps = 1 + i,
                                   .dtype = i % 2 ? DANAUS_BF16 : DANAUS_F16,
                                   .accuracy = DANAUS_CONV_FAST };
        double errors[OPERATOR_RESULTS];
        operator_case c = operator_random(&r, &desc, 2);
        operator_outcome o = operator_compute(*state, &c);
        operator_errors(&c, &o, errors);
        for (int n = 0; n < OPERATOR_RESULTS; n++)
            if (!(errors[n] <= (i % 2 ? 4e-2 : 1e-2)))
                fail_msg(
                    "length %d: result %d errs by %g", (int)lengths[i], n, errors[n]);
        operator_outcome_free(&o);
        operator_free(&c);
    }
}

/* A member of a batch has the bits of y and du that it has alone. */
static void members_of_a_batch_do_not_see_each_other(void **state)
{
    for (int round = 0; round < rounds_of(24); round++) {
        rng r = { (uint64_t)round };
        danaus_hyena_desc desc = random_desc(&r, round);
        operator_case all = operator_random(&r, &desc, 3), one = all;
        operator_outcome both = operator_compute(*state, &all);
        size_t y = (size_t)all.dy.count / 3 * danaus_dtype_size(all.dy.dtype);
        size_t u = (size_t)all.u.count / 3 * danaus_dtype_size(all.u.dtype);
        one.batch = 1;
        one.u = array_make(all.u.dtype, all.u.count / 3);
        one.dy = array_make(all.dy.dtype, all.dy.count / 3);
        memcpy(one.u.data, (char *)all.u.data + 2 * u, u);
        memcpy(one.dy.data, (char *)all.dy.data + 2 * y, y);
        operator_outcome own = operator_compute(*state, &one);
        const char *y_of_all = both.of[OPERATOR_Y].data;
        const char *du_of_all = both.of[OPERATOR_DU].data;
        assert_memory_equal(own.of[OPERATOR_Y].data, y_of_all + 2 * y, y);
        assert_memory_equal(own.of[OPERATOR_DU].data, du_of_all + 2 * u, u);
        operator_outcome_free(&own);
        operator_outcome_free(&both);
        array_free(&one.u);
        array_free(&one.dy);
        operator_free(&all);
    }
}

/* ---- packed sequences ---- */

#define MOST_SEQUENCES 200

/* Sequences up to a length, some empty, at least one column. */
static int64_t random_offsets(rng *r, int64_t longest, int64_t *offsets)
{
    int64_t count = rng_int(r, 1, rng_next(r) % 8 ? 6 : MOST_SEQUENCES);
    offsets[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t most = rng_next(r) % 2 ? longest : CLAMP(longest / 4, 1, 9);
        offsets[i + 1] = offsets[i] + (rng_next(r) % 4 ? rng_int(r, 1, most) : 0);
    }
    offsets[count] = MAX(offsets[count], offsets[count - 1] + !offsets[count - 1]);
    return count;
}

static danaus_hyena_desc random_packed(rng *r, int round)
{
    danaus_hyena_desc desc = random_desc(r, round);
    desc.length = rng_int(r, 1, round % 8 ? 40 : 300);
    return desc;
}

static void sequences_and_their_gradients_are_those_of_sums(void **state)
{
    for (int round = 0; round < rounds_of(120); round++) {
        rng r = { 1000 + (uint64_t)round };
        int64_t offsets[MOST_SEQUENCES + 1];
        danaus_hyena_desc desc = random_packed(&r, round);
        int64_t count = random_offsets(&r, desc.length, offsets);
        operator_case c = operator_random_packed(&r, &desc, count, offsets);
        operator_outcome o = operator_compute(*state, &c);
        operator_expect(&c, &o);
        operator_outcome_free(&o);
        operator_free(&c);
    }
}

static void expect_columns(
    const array *all, const array *own, int64_t rows, int64_t first)
{
    size_t size = danaus_dtype_size(all->dtype), n = (size_t)(own->count / rows) * size;
    for (int64_t row = 0; row < rows; row++) {
        size_t at = (size_t)(row * (all->count / rows) + first) * size;
        assert_memory_equal(
            (const char *)own->data + (size_t)row * n, (const char *)all->data + at, n);
    }
}

/* y and du of a sequence are those that a call has for it alone. */
static void sequences_do_not_see_each_other(void **state)
{
    for (int round = 0; round < rounds_of(24); round++) {
        rng r = { 2000 + (uint64_t)round };
        danaus_hyena_desc desc = random_packed(&r, round);
        int64_t n = rng_int(&r, 1, desc.length), m = rng_int(&r, 1, desc.length);
        const int64_t offsets[] = { 0, n, n + m, n + m + 1 }, alone[] = { 0, m };
        operator_case all = operator_random_packed(&r, &desc, 3, offsets);
        operator_case one = operator_sequence(&all, 1);
        one.desc = all.desc;
        one.offsets = alone;
        operator_outcome whole = operator_compute(*state, &all);
        operator_outcome own = operator_compute(*state, &one);
        int64_t order = all.desc.order, channels = desc.channels;
        expect_columns(
            &whole.of[OPERATOR_Y], &own.of[OPERATOR_Y], channels, offsets[1]);
        expect_columns(
            &whole.of[OPERATOR_DU], &own.of[OPERATOR_DU], (order + 1) * channels,
            offsets[1]);
        operator_outcome_free(&own);
        operator_outcome_free(&whole);
        operator_sequence_free(&one);
        operator_free(&all);
    }
}

static void fast_sequences_err_by_little(void **state)
{
    static const int64_t offsets[] = { 0, 130, 130, 1000, 1003, 1512 };
    for (int i = 0; i < 2; i++) {
        rng r = { 3000 + (uint64_t)i };
        danaus_hyena_desc desc = { .channels = 2,
                                   .length = 1024,
                                   .order = 2 + i,
                                   .taps = 3,
                                   .dtype = i ? DANAUS_BF16 : DANAUS_F16,
                                   .accuracy = DANAUS_CONV_FAST };
        double errors[OPERATOR_RESULTS];
        operator_case c = operator_random_packed(&r, &desc, 5, offsets);
        operator_outcome o = operator_compute(*state, &c);
        operator_errors(&c, &o, errors);
        for (int n = 0; n < OPERATOR_RESULTS; n++)
            if (!(errors[n] <= (i ? 4e-2 : 1e-2)))
                fail_msg("result %d errs by %g", n, errors[n]);
        operator_outcome_free(&o);
        operator_free(&c);
    }
}

/* ---- what is refused ---- */

static void wrong_offsets_are_refused(void **state)
{
    danaus_device *device = *state;
    danaus_hyena_desc desc = { .channels = 1, .length = 8, .taps = 2, .packed = 1 };
    const int64_t good[] = { 0, 3, 8 };
    static const struct {
        int64_t offsets[3];
        danaus_status status;
        const char *said;
    } wrong[] = {
        { { 1, 3, 8 }, DANAUS_ERR_ARGUMENT, "offsets begin with 1, not with 0" },
        { { 0, 3, 2 }, DANAUS_ERR_ARGUMENT, "less than the 3 before it" },
        { { 0, 3, 12 }, DANAUS_ERR_SHAPE, "sequence 1 has 9 numbers" },
    };
    danaus_hyena_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    void *memory = NULL;
    size_t forward, back;
    assert_ok(danaus_hyena_plan_create(device, &desc, &plan));
    assert_ok(danaus_spectrum_create(
        danaus_hyena_plan_conv(plan), device, NULL, NULL, NULL, &spectrum));
    assert_status(
        danaus_hyena_workspace_bytes_packed(plan, 0, &forward, &back),
        DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_hyena_workspace_bytes_packed(plan, 8, &forward, &back));
    assert_ok(danaus_alloc(device, back + 4096, &memory));
    char *at = (char *)memory + 2048;
    const danaus_spectrum *spectra[] = { spectrum };
    danaus_hyena_operands o = { at, at + 512, NULL, spectra, { NULL } };
    danaus_hyena_gradients g = { .du = at + 1024 };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_status(
            danaus_hyena_execute_packed(
                plan, device, 2, wrong[i].offsets, &o, at + 2048, memory),
            wrong[i].status);
        assert_non_null(strstr(danaus_error_detail(), wrong[i].said));
        assert_status(
            danaus_hyena_gradient_packed(
                plan, device, 2, wrong[i].offsets, &o, memory, at + 2048, &g),
            wrong[i].status);
    }
    assert_status(
        danaus_hyena_execute_packed(plan, device, 2, NULL, &o, at + 2048, memory),
        DANAUS_ERR_ARGUMENT);
    assert_status(/* of a plan for packed ones */
                  danaus_hyena_execute(plan, device, 1, &o, at + 2048, memory),
                  DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_hyena_execute_packed(plan, device, 0, good, &o, NULL, NULL));
    assert_status(
        danaus_hyena_gradient_packed(plan, device, 0, good, &o, memory, at + 2048, &g),
        DANAUS_ERR_ARGUMENT);
    danaus_free(device, memory);
    danaus_spectrum_destroy(spectrum);
    danaus_hyena_plan_destroy(plan);
}

static void wrong_descriptions_are_refused(void **state)
{
    static const danaus_hyena_desc wrong[] = {
        { .channels = 0, .length = 8, .taps = 3 },
        { .channels = 2, .length = 0, .taps = 3 },
        { .channels = 2, .length = 8, .taps = 0 },
        { .channels = 2, .length = 8, .taps = DANAUS_SHORT_MOST_TAPS + 1 },
        { .channels = 2, .length = 8, .taps = 3, .order = 1 },
        { .channels = 2, .length = 8, .taps = 3, .order = DANAUS_HYENA_MOST_ORDER + 1 },
        { .channels = 3, .length = 8, .taps = 3, .filters = 2 },
        { .channels = INT64_MAX / 2, .length = 8, .taps = 3 },
        { .channels = 2, .length = 8, .taps = 3, .dtype = DANAUS_C64 },
        { .channels = 2, .length = 8, .taps = 3, .reserved = { 1 } },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        danaus_hyena_plan *plan = NULL;
        assert_true(danaus_hyena_plan_create(*state, &wrong[i], &plan) != DANAUS_OK);
        assert_true(*danaus_error_detail() != '\0');
        assert_null(plan);
    }
    danaus_hyena_plan_destroy(NULL);
    assert_null(danaus_hyena_plan_conv(NULL));
}

/* A plan with one spectrum, and memory of the device's for everything. */
static void wrong_operands_are_refused(void **state)
{
    danaus_device *device = *state;
    danaus_hyena_desc desc = { .channels = 1, .length = 8, .taps = 1 };
    danaus_hyena_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    void *memory = NULL;
    size_t forward, back;
    assert_ok(danaus_hyena_plan_create(device, &desc, &plan));
    const danaus_conv_plan *conv = danaus_hyena_plan_conv(plan);
    assert_ok(danaus_spectrum_create(conv, device, NULL, NULL, NULL, &spectrum));
    assert_status(
        danaus_hyena_workspace_bytes(plan, 0, &forward, &back), DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_hyena_workspace_bytes(plan, 1, NULL, &back));
    assert_ok(danaus_hyena_workspace_bytes(plan, 1, &forward, NULL));
    assert_ok(danaus_alloc(device, back + 4096, &memory));
    char *at = (char *)memory + 2048;
    const danaus_spectrum *spectra[] = { spectrum }, *none[] = { NULL };
    danaus_hyena_operands o = { at, at + 512, NULL, spectra, { NULL } }, other = o;
    danaus_hyena_gradients g = { .du = at + 1024 };
    assert_ok(danaus_hyena_execute(plan, device, 0, &o, NULL, NULL));
    assert_status(
        danaus_hyena_execute(plan, device, -1, &o, at + 2048, memory),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_hyena_execute(plan, device, 1, &o, at + 2048, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(/* y is a part of u */
                  danaus_hyena_execute(plan, device, 1, &o, at + 2048, at + 32),
                  DANAUS_ERR_ARGUMENT);
    assert_status(/* and of the workspace */
                  danaus_hyena_gradient(plan, device, 1, &o, at + 2048, at + 2048, &g),
                  DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_hyena_gradient(plan, device, 0, &o, memory, at + 2048, &g),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_hyena_gradient(plan, device, 1, &o, NULL, at + 2048, &g),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_hyena_gradient(plan, device, 1, &o, memory, NULL, &g),
        DANAUS_ERR_ARGUMENT);
    other.spectra = none;
    assert_status(
        danaus_hyena_execute(plan, device, 1, &other, at + 2048, memory),
        DANAUS_ERR_ARGUMENT);
    other.spectra = spectra;
    other.taps = NULL;
    assert_status(
        danaus_hyena_execute(plan, device, 1, &other, at + 2048, memory),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_hyena_execute(NULL, device, 1, &o, at + 2048, memory),
        DANAUS_ERR_ARGUMENT);
    danaus_free(device, memory);
    danaus_spectrum_destroy(spectrum);
    danaus_hyena_plan_destroy(plan);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(
            the_operator_and_its_gradients_are_those_of_sums, device),
        cmocka_unit_test_prestate(fast_operators_err_by_little, device),
        cmocka_unit_test_prestate(members_of_a_batch_do_not_see_each_other, device),
        cmocka_unit_test_prestate(
            sequences_and_their_gradients_are_those_of_sums, device),
        cmocka_unit_test_prestate(sequences_do_not_see_each_other, device),
        cmocka_unit_test_prestate(fast_sequences_err_by_little, device),
        cmocka_unit_test_prestate(wrong_offsets_are_refused, device),
        cmocka_unit_test_prestate(wrong_descriptions_are_refused, device),
        cmocka_unit_test_prestate(wrong_operands_are_refused, device),
    };
    int failed = cmocka_run_group_tests_name("operator", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
