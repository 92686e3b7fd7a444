/* Algebra of convolutions: y is linear in each of u, the gates and the filters, so for
   any v in place of one of them <y(v), dy> = <v, gradient>, a line that needs no
   reference values for gradients. Threads, batches and hosts change no bit. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"
#include "support/device.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_F16, DANAUS_BF16 };

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

typedef struct conv_outcome {
    array y, du, dgate_in, dgate_out, dk, dk_reverse, dskip;
} conv_outcome;

static void outcome_free(conv_outcome *o)
{
    array *all[] = { &o->y,  &o->du,         &o->dgate_in, &o->dgate_out,
                     &o->dk, &o->dk_reverse, &o->dskip };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        array_free(all[i]);
}

static array like(const array *a)
{
    return a->data ? array_make(a->dtype, a->count) : (array){ 0 };
}

static conv_outcome compute(danaus_device *device, const conv_case *c, const array *dy)
{
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    conv_outcome o = { like(&c->u),        like(&c->u), like(&c->gate_in),
                       like(&c->gate_out), like(&c->k), like(&c->k_reverse),
                       like(&c->skip) };
    danaus_conv_gradients g = {
        o.du.data,         o.dgate_in.data, o.dgate_out.data, o.dk.data,
        o.dk_reverse.data, o.dskip.data,    { NULL, NULL },
    };
    assert_ok(danaus_conv_plan_create(device, &c->desc, &plan));
    assert_ok(danaus_spectrum_create(
        plan, device, c->k.data, c->k_reverse.data, c->skip.data, &spectrum));
    assert_ok(danaus_conv_execute(
        plan, device, spectrum, c->batch, c->u.data, c->gate_in.data, c->gate_out.data,
        o.y.data));
    assert_ok(danaus_conv_gradient(
        plan, device, spectrum, c->batch, c->u.data, c->gate_in.data, c->gate_out.data,
        dy->data, &g));
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
    array *all[] = { &o.y,  &o.du,         &o.dgate_in, &o.dgate_out,
                     &o.dk, &o.dk_reverse, &o.dskip };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->data)
            array_expect_guards(all[i]);
    return o;
}

static double dot(const array *a, const double *b)
{
    double sum = 0;
    for (int64_t i = 0; i < a->count; i++)
        sum += element_get(a->dtype, a->data, i).re * b[i];
    return sum;
}

/* <y(v), dy>, with v in place of one member of the case: from the oracle or, of sparse
   spectra, whose products test_conv of tests/kernel compares, from the device. */
static double should_be(
    danaus_device *device, conv_case *c, array *member, const array *v, const array *dy)
{
    array kept = *member;
    *member = *v;
    conv_result y = conv_direct(c);
    if (c->desc.keep[0]) {
        array ran = conv_run(device, c);
        for (int64_t i = 0; i < y.count; i++)
            y.y[i] = element_get(ran.dtype, ran.data, i).re;
        array_free(&ran);
    }
    *member = kept;
    double sum = dot(dy, y.y);
    conv_result_free(&y);
    return sum;
}

/* Norms of all rows at once bound those of each: the error of a number is at most
   15 u log2 n |k|_1 |p| |dy| with every factor at most 1 in size (conv.h), and v has
   no number above 1 either. Of sparse spectra n is at most 2^16, and both sides err. */
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
    int sparse = c->desc.keep[0] != 0;
    double n = 4 * (length + (double)c->desc.filter_length) + (sparse ? 65536 : 1024);
    double each = (sparse ? 30 : 15) * f.sum_unit * log2(n) * fmin(rest, 2 * length) *
                  sqrt(length);
    double bound = each * (double)c->u.count + rounding + 1e-6 * f.sum_unit;
    if (!(fabs(is - should) <= bound))
        fail_msg(
            "kind %d, %s, length %d, %d taps: <v, gradient> is %.9g, not %.9g +- %.2g",
            c->desc.kind, danaus_dtype_name(c->desc.dtype), (int)c->desc.length,
            (int)c->desc.filter_length, is, should, bound);
    array_free(&v);
}

static void gradients_move_across_the_dot_product(void **state)
{
    for (int round = 0; round < rounds_of(300); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, round % 8 ? 60 : 600);
        if (round % 4 == 0)
            make_sparse(&r, &desc);
        conv_case c = conv_random(&r, &desc, rng_int(&r, 1, 4), (int)rng_int(&r, 0, 7));
        array dy = array_random(&r, desc.dtype, c.u.count);
        conv_outcome o = compute(*state, &c, &dy);
        expect_gradient(*state, &c, &c.u, &o.du, &dy, &r);
        expect_gradient(*state, &c, &c.gate_in, &o.dgate_in, &dy, &r);
        expect_gradient(*state, &c, &c.gate_out, &o.dgate_out, &dy, &r);
        /* The filters are together what y is linear in: one at a time, others zero. */
        array *filters[] = { &c.k, &c.k_reverse, &c.skip };
        array *gradients[] = { &o.dk, &o.dk_reverse, &o.dskip };
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
            expect_gradient(*state, &c, filters[i], gradients[i], &dy, &r);
            for (int j = 0; j < 3; j++) {
                *filters[j] = kept[j];
                array_free(&zero[j]);
            }
        }
        outcome_free(&o);
        array_free(&dy);
        conv_free(&c);
    }
}

static void expect_same(const conv_outcome *a, const conv_outcome *b)
{
    assert_true(array_same(&a->y, &b->y));
    assert_true(array_same(&a->du, &b->du));
    assert_true(array_same(&a->dgate_in, &b->dgate_in));
    assert_true(array_same(&a->dgate_out, &b->dgate_out));
    assert_true(array_same(&a->dk, &b->dk));
    assert_true(array_same(&a->dk_reverse, &b->dk_reverse));
    assert_true(array_same(&a->dskip, &b->dskip));
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
    for (int round = 0; round < rounds_of(24); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, round % 3 ? 3000 : 80000);
        if (round % 2) /* a plan for one row, made anew for each number of threads */
            desc.channels = desc.filters = desc.batch = 1;
        conv_case c = conv_random(
            &r, &desc, round % 2 ? 1 : rng_int(&r, 1, 4), (int)rng_int(&r, 0, 7));
        array dy = array_random(&r, desc.dtype, c.u.count);
        assert_ok(danaus_device_set_threads(device, 1));
        conv_outcome one = compute(device, &c, &dy);
        for (int threads = 2; threads < 8; threads += 5) {
            assert_ok(danaus_device_set_threads(device, threads));
            conv_outcome more = compute(device, &c, &dy);
            expect_same(&one, &more);
            outcome_free(&more);
        }
        int calls = 0;
        assert_ok(danaus_device_set_parallel(device, backwards, &calls));
        conv_outcome hosted = compute(device, &c, &dy);
        expect_same(&one, &hosted);
        assert_ok(danaus_device_set_parallel(device, NULL, NULL));
        assert_ok(danaus_device_set_threads(device, 0));
        outcome_free(&hosted);
        outcome_free(&one);
        array_free(&dy);
        conv_free(&c);
    }
}

/* All that a plan does, with so much less scratch than it says. */
static void run_with(
    danaus_device *device, const conv_case *c, const danaus_conv_plan *plan,
    danaus_spectrum *spectrum, size_t less)
{
    danaus_status want = less ? DANAUS_ERR_MEMORY : DANAUS_OK;
    array y = like(&c->u), du = like(&c->u), dk = like(&c->k);
    danaus_conv_gradients g = { .du = du.data, .dk = dk.data };
    size_t forward, gradient;
    void *memory = NULL;
    assert_ok(danaus_conv_scratch_bytes(plan, device, c->batch, &forward, &gradient));
    assert_ok(danaus_alloc(device, forward + gradient, &memory));
    assert_ok(danaus_device_set_scratch(device, memory, forward - less));
    danaus_status s = danaus_spectrum_update(
        spectrum, device, c->k.data, c->k_reverse.data, c->skip.data);
    s = s ? s
          : danaus_conv_execute(
                plan, device, spectrum, c->batch, c->u.data, NULL, NULL, y.data);
    assert_status(s, want);
    assert_ok(danaus_device_set_scratch(device, memory, gradient - less));
    s = danaus_conv_gradient(
        plan, device, spectrum, c->batch, c->u.data, NULL, NULL, c->u.data, &g);
    assert_status(s, want);
    assert_int_equal(array_untouched(&y), less != 0);
    assert_int_equal(array_untouched(&du), less != 0);
    assert_int_equal(array_untouched(&dk), less != 0);
    one_block b = { .memory = memory, .most = forward > gradient ? forward : gradient };
    scratch_from(device, less ? NULL : &b);
    assert_ok(danaus_spectrum_update(
        spectrum, device, c->k.data, c->k_reverse.data, c->skip.data));
    assert_ok(danaus_conv_gradient(
        plan, device, spectrum, c->batch, c->u.data, NULL, NULL, c->u.data, &g));
    assert_true(less || b.calls > 0);
    assert_int_equal(b.taken, 0);
    scratch_from(device, NULL);
    danaus_free(device, memory);
    array_free(&y);
    array_free(&du);
    array_free(&dk);
}

/* So much is enough; with one byte less nothing is written. */
static void scratch_is_what_a_plan_says(void **state)
{
    danaus_device *device = *state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, round % 3 ? 3000 : 80000);
        conv_case c = conv_random(&r, &desc, rng_int(&r, 1, 4), 0);
        danaus_conv_plan *plan = NULL;
        danaus_spectrum *spectrum = NULL;
        assert_ok(danaus_device_set_threads(device, 1 + round % 4));
        assert_ok(danaus_conv_plan_create(device, &c.desc, &plan));
        assert_ok(danaus_spectrum_create(
            plan, device, c.k.data, c.k_reverse.data, NULL, &spectrum));
        run_with(device, &c, plan, spectrum, 0);
        run_with(device, &c, plan, spectrum, 1);
        danaus_spectrum_destroy(spectrum);
        danaus_conv_plan_destroy(plan);
        assert_ok(danaus_device_set_threads(device, 0));
        conv_free(&c);
    }
}

/* A case whose batch rows are copies of the first gives copies of its y. */
static void a_row_does_not_know_its_batch(void **state)
{
    for (int round = 0; round < rounds_of(30); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, 2000);
        conv_case c = conv_random(&r, &desc, 5, 0);
        size_t bytes =
            (size_t)(desc.channels * desc.length) * danaus_dtype_size(desc.dtype);
        for (size_t b = 1; b < 5; b++)
            memcpy((char *)c.u.data + b * bytes, c.u.data, bytes);
        array y = conv_run(*state, &c);
        for (size_t b = 1; b < 5; b++)
            assert_memory_equal((char *)y.data + b * bytes, y.data, bytes);
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

typedef struct shared {
    const conv_case *c;
    const danaus_conv_plan *plan;
    const danaus_spectrum *spectrum;
    const array *expected, *du, *dk;
    const char *name;
} shared;

static int share_once(const shared *s, danaus_device *device)
{
    const conv_case *c = s->c;
    array y = like(&c->u), du = like(&c->u), dk = like(&c->k);
    danaus_conv_gradients g = { .du = du.data, .dk = dk.data };
    int wrong =
        danaus_conv_execute(
            s->plan, device, s->spectrum, c->batch, c->u.data, NULL, NULL, y.data) ||
        danaus_conv_gradient(
            s->plan, device, s->spectrum, c->batch, c->u.data, NULL, NULL, c->u.data,
            &g) ||
        !array_same(&y, s->expected) || !array_same(&du, s->du) ||
        !array_same(&dk, s->dk);
    array_free(&y);
    array_free(&du);
    array_free(&dk);
    return wrong;
}

static void *share(void *arg)
{
    const shared *s = arg;
    danaus_device *device = NULL;
    int wrong =
        danaus_device_open(s->name, &device) || danaus_device_set_threads(device, 2);
    for (int i = 0; i < 3 && !wrong; i++)
        wrong = share_once(s, device);
    danaus_device_close(device);
    return wrong ? arg : NULL;
}

static void sixteen_threads_share_a_plan(void **state)
{
    danaus_device *device = *state;
    danaus_device_info info;
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    rng r = { 3 };
    danaus_conv_desc desc = { .channels = 3, .length = 20000 };
    conv_case c = conv_random(&r, &desc, 2, 0);
    conv_outcome one = compute(device, &c, &c.u);
    assert_ok(danaus_device_describe(device, &info));
    assert_ok(danaus_conv_plan_create(device, &c.desc, &plan));
    assert_ok(danaus_spectrum_create(plan, device, c.k.data, NULL, NULL, &spectrum));
    shared s = { &c, plan, spectrum, &one.y, &one.du, &one.dk, info.name };
    pthread_t threads[SHARERS];
    for (int i = 0; i < SHARERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, share, &s), 0);
    for (int i = 0; i < SHARERS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
    outcome_free(&one);
    conv_free(&c);
}

/* y of a spectrum that is made without filters, and then takes those of the device's
   memory, if there are any. */
static array run_from(
    danaus_device *device, const conv_case *c, const array *k, const array *k_reverse,
    const array *skip)
{
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *s = NULL;
    array y = array_make(c->desc.dtype, conv_rows(c) * c->desc.length);
    assert_ok(danaus_conv_plan_create(device, &c->desc, &plan));
    assert_ok(danaus_spectrum_create(plan, device, NULL, NULL, NULL, &s));
    if (k)
        assert_ok(danaus_spectrum_update_from(
            s, device, k->dtype, k->data, k_reverse->data, skip->data));
    assert_ok(danaus_conv_execute(
        plan, device, s, c->batch, c->u.data, c->gate_in.data, c->gate_out.data,
        y.data));
    danaus_spectrum_destroy(s);
    danaus_conv_plan_destroy(plan);
    return y;
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
        conv_case c = conv_random(&r, &desc, rng_int(&r, 1, 3), round % 8);
        danaus_dtype type = types[rng_next(&r) % 4];
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
        cmocka_unit_test_prestate(gradients_move_across_the_dot_product, device),
        cmocka_unit_test_prestate(threads_do_not_change_a_bit, device),
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
