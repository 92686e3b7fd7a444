/* Gradients of convolutions: number by number those of support/exact.h; and of sparse spectra,
   by algebra: y is linear in each of u, the gates and the filters, so for any v in place of one
   of them <y(v), dy> = <v, gradient>, a line that needs no reference values. Threads, batches,
   hosts and calls change no bit. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/exact.h"
#include "support/planes.h"

#include "device/backend.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_F16, DANAUS_BF16 };

static const danaus_dtype complex_types[] = { DANAUS_C64, DANAUS_C128 };

static danaus_conv_desc random_desc(rng *r, int64_t most)
{
    int64_t filters = rng_int(r, 1, 3), group = rng_int(r, 1, 3);
    danaus_conv_desc desc = {
        .channels = filters * group,
        .filters = filters,
        .length = rng_int(r, 1, most),
        .kind = (danaus_conv_kind)rng_int(r, 0, 2),
        .dtype = types[rng_int(r, 0, 3)],
    };
    if (rng_next(r) % 3 == 0) /* as long as a transform */
        desc.length = (desc.length + 63) / 64 * 64;
    desc.filter_length = rng_int(r, 1, rng_next(r) % 2 ? 2 * desc.length : 20);
    return desc;
}

/* Keeps a random box of the spectrum, 2^16 frequencies at most. */
static void make_sparse(rng *r, danaus_conv_desc *desc)
{
    desc->kind = rng_next(r) % 2 ? DANAUS_CAUSAL : DANAUS_BIDIRECTIONAL;
    desc->dtype = rng_next(r) % 2 ? DANAUS_F32 : DANAUS_F64;
    for (int i = 0; i < 4; i++) {
        desc->axes[i] = 1 << rng_int(r, 0, 4);
        desc->keep[i] = (int32_t)rng_int(r, 1, desc->axes[i]);
    }
}

static array like(const array *a)
{
    return a->data ? array_make(a->dtype, a->count) : (array){ 0 };
}

static double dot(const array *a, const array *b)
{
    double sum = 0;
    for (int64_t i = 0; i < a->count; i++)
        sum +=
            element_get(a->dtype, a->data, i).re * element_get(b->dtype, b->data, i).re;
    return sum;
}

/* <y(v), dy>, with v in place of one member of the case, from the device: products of
   sparse spectra are what test_conv of tests/kernel compares. */
static double should_be(
    danaus_device *device, conv_case *c, array *member, const array *v, const array *dy)
{
    array kept = *member;
    *member = *v;
    array y = conv_run(device, c);
    *member = kept;
    double sum = dot(dy, &y);
    array_free(&y);
    return sum;
}

/* Norms of all rows at once bound those of each: the error of a number is at most
   15 u log2 n |k|_1 |p| |dy| with every factor at most 1 in size (conv.h), and v has
   no number above 1 either. n is at most 2^16, and both sides err. */
static void expect_gradient(
    danaus_device *device, conv_case *c, array *member, const array *gradient,
    const array *dy, rng *r)
{
    if (!member->data)
        return;
    precision f = precision_of(c->desc.dtype);
    array v = array_random(r, member->dtype, member->count);
    double is = 0, rounding = 0, length = (double)c->desc.length;
    for (int64_t i = 0; i < v.count; i++) {
        double g = element_get(gradient->dtype, gradient->data, i).re;
        is += element_get(v.dtype, v.data, i).re * g;
        rounding += fabs(g) * precision_of(gradient->dtype).unit;
    }
    double should = should_be(device, c, member, &v, dy);
    double rest = (double)c->desc.filter_length * 2 + 1;
    double n = 4 * (length + (double)c->desc.filter_length) + 65536;
    double each = 30 * f.sum_unit * log2(n) * fmin(rest, 2 * length) * sqrt(length);
    double bound = each * (double)c->u.count + rounding + 1e-6 * f.sum_unit;
    if (!(fabs(is - should) <= bound))
        fail_msg(
            "kind %d, %s, length %d, %d taps: <v, gradient> is %.9g, not %.9g +- %.2g",
            c->desc.kind, danaus_dtype_name(c->desc.dtype), (int)c->desc.length,
            (int)c->desc.filter_length, is, should, bound);
    array_free(&v);
}

static void gradients_are_those_of_sums(void **state)
{
    for (int round = 0; round < rounds_of(300); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, round % 8 ? 60 : 2000);
        conv_case c = conv_random(&r, &desc, rng_int(&r, 1, 4), (int)rng_int(&r, 0, 7));
        array dy = array_random(&r, desc.dtype, c.u.count);
        conv_outcome o = conv_compute(*state, &c, &dy);
        conv_exact exact = conv_exactly(&c, &dy);
        conv_exact_expect(&c, &o, &exact);
        conv_exact_free(&exact);
        conv_outcome_free(&o);
        array_free(&dy);
        conv_free(&c);
    }
}

static void gradients_of_sparse_spectra_move_across_the_dot_product(void **state)
{
    for (int round = 0; round < rounds_of(75); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, round % 8 ? 60 : 600);
        make_sparse(&r, &desc);
        conv_case c = conv_random(&r, &desc, rng_int(&r, 1, 4), (int)rng_int(&r, 0, 7));
        array dy = array_random(&r, desc.dtype, c.u.count);
        conv_outcome o = conv_compute(*state, &c, &dy);
        expect_gradient(*state, &c, &c.u, &o.of[CONV_DU], &dy, &r);
        expect_gradient(*state, &c, &c.gate_in, &o.of[CONV_DGATE_IN], &dy, &r);
        expect_gradient(*state, &c, &c.gate_out, &o.of[CONV_DGATE_OUT], &dy, &r);
        /* The filters are together what y is linear in: one at a time, others zero. */
        array *filters[] = { &c.k, &c.k_reverse, &c.skip };
        for (int i = 0; i < 3; i++) {
            array kept[3] = { c.k, c.k_reverse, c.skip }, zero[3];
            for (int j = 0; j < 3; j++) {
                zero[j] = like(&kept[j]);
                if (zero[j].data)
                    memset(
                        zero[j].data, 0,
                        (size_t)zero[j].count * danaus_dtype_size(zero[j].dtype));
                if (j != i)
                    *filters[j] = zero[j];
            }
            expect_gradient(*state, &c, filters[i], &o.of[CONV_DK + i], &dy, &r);
            for (int j = 0; j < 3; j++) {
                *filters[j] = kept[j];
                array_free(&zero[j]);
            }
        }
        conv_outcome_free(&o);
        array_free(&dy);
        conv_free(&c);
    }
}

/* Makes a description one of complex numbers, and maybe of a correlation. */
static void make_complex(rng *r, danaus_conv_desc *desc)
{
    desc->dtype = complex_types[rng_int(r, 0, 1)];
    desc->correlate = (int32_t)rng_int(r, 0, 1);
}

static void backwards(void *user, int count, void (*task)(void *arg, int i), void *arg)
{
    *(int *)user += 1;
    for (int i = count - 1; i >= 0; i--)
        task(arg, i);
}

static void threads_do_not_change_a_bit(void **state)
{
    danaus_device *device = *state;
    if (!device->backend->on_host)
        skip();
    for (int round = 0; round < rounds_of(24); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, round % 3 ? 3000 : 80000);
        if (round % 4 == 3)
            conv_make_planes(&r, &desc, 6);
        if (round % 5 == 2)
            make_complex(&r, &desc);
        if (round % 2) /* a plan for one row, made anew for each number of threads */
            desc.channels = desc.filters = desc.batch = 1;
        conv_case c = conv_random(
            &r, &desc, round % 2 ? 1 : rng_int(&r, 1, 4), (int)rng_int(&r, 0, 7));
        array dy = array_random(&r, desc.dtype, c.u.count);
        assert_ok(danaus_device_set_threads(device, 1));
        conv_outcome one = conv_compute(device, &c, &dy);
        for (int threads = 2; threads < 8; threads += 5) {
            assert_ok(danaus_device_set_threads(device, threads));
            conv_outcome more = conv_compute(device, &c, &dy);
            assert_true(conv_outcome_same(&one, &more));
            conv_outcome_free(&more);
        }
        int calls = 0;
        assert_ok(danaus_device_set_parallel(device, backwards, &calls));
        conv_outcome hosted = conv_compute(device, &c, &dy);
        assert_true(conv_outcome_same(&one, &hosted));
        assert_ok(danaus_device_set_parallel(device, NULL, NULL));
        assert_ok(danaus_device_set_threads(device, 0));
        conv_outcome_free(&hosted);
        conv_outcome_free(&one);
        array_free(&dy);
        conv_free(&c);
    }
}

/* The same call gives the same bits, and spectra of the same filters. */
static void nothing_changes_from_call_to_call(void **state)
{
    for (int round = 0; round < rounds_of(24); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, round % 3 ? 3000 : 40000);
        if (round % 4 == 3)
            conv_make_planes(&r, &desc, 6);
        if (round % 5 == 2)
            make_complex(&r, &desc);
        conv_case c = conv_random(&r, &desc, rng_int(&r, 1, 4), (int)rng_int(&r, 0, 7));
        array dy = array_random(&r, desc.dtype, c.u.count);
        conv_outcome one = conv_compute(*state, &c, &dy);
        for (int i = 0; i < 2; i++) {
            conv_outcome again = conv_compute(*state, &c, &dy);
            assert_true(conv_outcome_same(&one, &again));
            conv_outcome_free(&again);
        }
        conv_outcome_free(&one);
        array_free(&dy);
        conv_free(&c);
    }
}

/* ---- scratch ---- */

static danaus_status update(const conv_scene *s)
{
    const conv_case *c = s->c;
    return danaus_spectrum_update(
        s->spectrum, s->device, c->k.data, c->k_reverse.data, c->skip.data);
}

/* Memory full of NaN. */
static void *poisoned(danaus_device *device, size_t bytes)
{
    void *memory = NULL, *nothing = malloc(bytes + 1);
    assert_non_null(nothing);
    memset(nothing, 0xff, bytes);
    assert_ok(danaus_alloc(device, bytes + 1, &memory));
    assert_ok(danaus_upload(device, memory, nothing, bytes));
    free(nothing);
    return memory;
}

static void expect_results(const conv_scene *s, const conv_outcome *expected)
{
    conv_outcome o = conv_scene_results(s);
    assert_true(conv_outcome_same(&o, expected));
    conv_outcome_free(&o);
}

static void expect_untouched(const conv_scene *s)
{
    conv_outcome o = conv_scene_results(s);
    for (int i = 0; i < CONV_RESULTS; i++)
        assert_true(!o.of[i].data || array_untouched(&o.of[i]));
    conv_outcome_free(&o);
}

/* All that a plan does, with so much less scratch than it says, which is full of NaN. */
static void run_with(conv_scene *s, const conv_outcome *expected, size_t less)
{
    danaus_status want = less ? DANAUS_ERR_MEMORY : DANAUS_OK;
    size_t forward, gradient;
    conv_scene_forget(s);
    assert_ok(danaus_conv_scratch_bytes(
        s->plan, s->device, s->c->batch, &forward, &gradient));
    void *memory = poisoned(s->device, forward + gradient);
    assert_ok(danaus_device_set_scratch(s->device, memory, forward - less));
    danaus_status status = update(s);
    status = status ? status : conv_scene_run(s, s->device);
    assert_status(status, want);
    assert_ok(danaus_device_set_scratch(s->device, memory, gradient - less));
    assert_status(conv_scene_go_back(s, s->device), want);
    if (less)
        expect_untouched(s);
    else
        expect_results(s, expected);
    conv_scene_forget(s);
    one_block b = { .memory = memory, .most = forward > gradient ? forward : gradient };
    scratch_from(s->device, less ? NULL : &b);
    assert_ok(update(s));
    assert_ok(conv_scene_run(s, s->device));
    assert_ok(conv_scene_go_back(s, s->device));
    expect_results(s, expected);
    assert_true(less || b.calls > 0);
    assert_int_equal(b.taken, 0);
    scratch_from(s->device, NULL);
    danaus_free(s->device, memory);
}

/* So much is enough; with one byte less nothing is written. */
static void scratch_is_what_a_plan_says(void **state)
{
    danaus_device *device = *state;
    int on_host = device->backend->on_host;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, round % 3 ? 3000 : 80000);
        if (round % 4 == 3)
            conv_make_planes(&r, &desc, 6);
        conv_case c = conv_random(&r, &desc, rng_int(&r, 1, 4), (int)rng_int(&r, 0, 7));
        if (on_host)
            assert_ok(danaus_device_set_threads(device, 1 + round % 4));
        conv_scene s = conv_scene_make(device, &c, &c.u);
        assert_ok(conv_scene_run(&s, device));
        assert_ok(conv_scene_go_back(&s, device));
        conv_outcome expected = conv_scene_results(&s);
        run_with(&s, &expected, 0);
        run_with(&s, &expected, 1);
        conv_outcome_free(&expected);
        conv_scene_end(&s);
        if (on_host)
            assert_ok(danaus_device_set_threads(device, 0));
        conv_free(&c);
    }
}

/* A case whose batch rows are copies of the first gives copies of its y; where circular rows may
   be pairs (docs/conv.md, 'Pairs'), those in the same place of a pair are copies. */
static void a_row_does_not_know_its_batch(void **state)
{
    int is_host = ((danaus_device *)*state)->backend->on_host;
    for (int round = 0; round < rounds_of(30); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, 2000);
        conv_case c = conv_random(&r, &desc, 5, 0);
        size_t bytes =
            (size_t)(desc.channels * desc.length) * danaus_dtype_size(desc.dtype);
        for (size_t b = 1; b < 5; b++)
            memcpy((char *)c.u.data + b * bytes, c.u.data, bytes);
        array y = conv_run(*state, &c);
        size_t rows = is_host || desc.kind != DANAUS_CIRCULAR ? 1 : 2;
        for (size_t b = rows; b < 6 - rows; b++)
            assert_memory_equal(
                (char *)y.data + b * bytes, (char *)y.data + b % rows * bytes, bytes);
        array_free(&y);
        conv_free(&c);
    }
}

/* What comes later changes earlier y by no more than the errors of both. */
static void causal_means_causal(void **state)
{
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = { .channels = 1, .length = rng_int(&r, 2, 400) };
        conv_case c = conv_random(&r, &desc, 1, 0);
        array before = conv_run(*state, &c);
        conv_result expected = conv_direct(&c);
        int64_t from = rng_int(&r, 1, desc.length - 1);
        for (int64_t t = from; t < desc.length; t++)
            element_put(c.desc.dtype, c.u.data, t, element_random(&r, c.desc.dtype));
        array after = conv_run(*state, &c);
        conv_result other = conv_direct(&c);
        for (int64_t t = 0; t < from; t++) {
            double a = element_get(before.dtype, before.data, t).re;
            double b = element_get(after.dtype, after.data, t).re;
            assert_true(fabs(a - b) <= expected.e[t] + other.e[t]);
        }
        conv_result_free(&expected);
        conv_result_free(&other);
        array_free(&before);
        array_free(&after);
        conv_free(&c);
    }
}

#define SHARERS 16

static void *share(void *arg)
{
    const conv_scene *s = arg;
    danaus_device *device = NULL;
    danaus_device_info info;
    int wrong = danaus_device_describe(s->device, &info) ||
                danaus_device_open(info.name, &device);
    if (!wrong && device->backend->on_host)
        wrong = danaus_device_set_threads(device, 2) != DANAUS_OK;
    for (int i = 0; i < 3 && !wrong; i++)
        wrong = conv_scene_run(s, device) || conv_scene_go_back(s, device) ||
                danaus_device_sync(device);
    danaus_device_close(device);
    return wrong ? arg : NULL;
}

static void sixteen_threads_share_a_plan(void **state)
{
    danaus_device *device = *state;
    rng r = { 3 };
    danaus_conv_desc desc = { .channels = 3, .length = 500 + 20000 / share_of_cases() };
    conv_case c = conv_random(&r, &desc, 2, 7);
    conv_scene s = conv_scene_make(device, &c, &c.u), own[SHARERS];
    assert_ok(conv_scene_run(&s, device));
    assert_ok(conv_scene_go_back(&s, device));
    conv_outcome one = conv_scene_results(&s);
    pthread_t threads[SHARERS];
    for (int i = 0; i < SHARERS; i++)
        own[i] = conv_scene_like(&s);
    for (int i = 0; i < SHARERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, share, &own[i]), 0);
    for (int i = 0; i < SHARERS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
        conv_outcome o = conv_scene_results(&own[i]);
        assert_true(conv_outcome_same(&o, &one));
        conv_outcome_free(&o);
        conv_scene_end(&own[i]);
    }
    conv_scene_end(&s);
    conv_outcome_free(&one);
    conv_free(&c);
}

/* ---- filters of the device ---- */

/* y of a spectrum that is made without filters, and then takes those of the device's
   memory, if there are any. */
static array run_from(
    danaus_device *device, const conv_case *c, const array *k, const array *k_reverse,
    const array *skip)
{
    conv_scene s = conv_scene_make(device, c, NULL);
    danaus_spectrum_destroy(s.spectrum);
    assert_ok(danaus_spectrum_create(s.plan, device, NULL, NULL, NULL, &s.spectrum));
    const array *filters[] = { k, k_reverse, skip };
    void *on[3];
    for (int i = 0; k && i < 3; i++)
        on[i] = to_device(device, filters[i]);
    if (k)
        assert_ok(danaus_spectrum_update_from(
            s.spectrum, device, k->dtype, on[0], on[1], on[2]));
    assert_ok(conv_scene_run(&s, device));
    conv_outcome o = conv_scene_results(&s);
    for (int i = 0; k && i < 3; i++)
        from_device(device, filters[i], on[i]);
    conv_scene_end(&s);
    return o.of[CONV_Y];
}

/* Filters of another type, and as the type of sums holds them. */
static array given_in(rng *r, danaus_dtype type, array *sums)
{
    array given = { 0 };
    if (!sums->data)
        return given;
    given = array_random(r, type, sums->count);
    assert_ok(danaus_convert(type, given.data, sums->dtype, sums->data, sums->count));
    return given;
}

static void spectra_take_filters_of_every_type(void **state)
{
    for (int round = 0; round < rounds_of(200); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, 300);
        danaus_dtype type = types[rng_next(&r) % 4];
        if (round % 3 == 2) {
            make_complex(&r, &desc);
            type = complex_types[rng_int(&r, 0, 1)];
        }
        conv_case c = conv_random(&r, &desc, rng_int(&r, 1, 3), round % 8);
        array k = given_in(&r, type, &c.k), skip = given_in(&r, type, &c.skip);
        array k_reverse = given_in(&r, type, &c.k_reverse);
        array expected = conv_run(*state, &c);
        array y = run_from(*state, &c, &k, &k_reverse, &skip);
        array zeros = run_from(*state, &c, NULL, NULL, NULL);
        assert_true(array_same(&y, &expected));
        for (int64_t i = 0; i < zeros.count; i++)
            assert_true(element_get(zeros.dtype, zeros.data, i).re == 0);
        array *all[] = { &k, &k_reverse, &skip, &y, &expected, &zeros };
        for (int i = 0; i < 6; i++)
            array_free(all[i]);
        conv_free(&c);
    }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(gradients_are_those_of_sums, device),
        cmocka_unit_test_prestate(
            gradients_of_sparse_spectra_move_across_the_dot_product, device),
        cmocka_unit_test_prestate(threads_do_not_change_a_bit, device),
        cmocka_unit_test_prestate(nothing_changes_from_call_to_call, device),
        cmocka_unit_test_prestate(scratch_is_what_a_plan_says, device),
        cmocka_unit_test_prestate(sixteen_threads_share_a_plan, device),
        cmocka_unit_test_prestate(spectra_take_filters_of_every_type, device),
        cmocka_unit_test_prestate(a_row_does_not_know_its_batch, device),
        cmocka_unit_test_prestate(causal_means_causal, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
