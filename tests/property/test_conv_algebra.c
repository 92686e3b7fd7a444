/* Algebra of long convolutions, at lengths at which the definition would take too long:
   what impulses, shifts, sums and reversals give; where kinds agree; what causality
   leaves alone; gradients as differences. Rounding may change a row by

       2 eps sqrt(log2 n + 1) |k| |p|

   in norm, with the Euclidean norms of filter and signal: the growth of errors that
   users are told (conv.h here has the bound that holds without assumptions). */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"
#include "support/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const danaus_conv_kind kinds[] = { DANAUS_CAUSAL, DANAUS_CIRCULAR,
                                          DANAUS_BIDIRECTIONAL };

static double get(const array *a, int64_t i)
{
    return element_get(a->dtype, a->data, i).re;
}

static void put(array *a, int64_t i, double x)
{
    element_put(a->dtype, a->data, i, (value){ x, 0 });
}

static double norm(const array *a)
{
    double sum = 0;
    for (int64_t i = 0; i < a->count; i++)
        sum += get(a, i) * get(a, i);
    return sqrt(sum);
}

static array zeros(const array *like)
{
    array a = array_make(like->dtype, like->count);
    memset(a.data, 0, (size_t)a.count * danaus_dtype_size(a.dtype));
    return a;
}

/* One row with one filter, or more; f32 and f64 in turns. */
static conv_case one_row(rng *r, int round, int64_t most, int kind)
{
    danaus_conv_desc desc = {
        .channels = 1,
        .length = rng_int(r, 1, round % 4 ? most / 20 : most),
        .kind = kinds[kind],
        .dtype = round % 2 ? DANAUS_F64 : DANAUS_F32,
    };
    desc.filter_length = rng_int(r, 1, round % 3 ? desc.length : 2 * desc.length);
    if (round % 5 == 0)
        desc.filter_length = rng_int(r, 1, 30);
    return conv_random(r, &desc, 1, 0);
}

/* What rounding may do to y of this case, in norm. */
static double allowed(const conv_case *c)
{
    double n = (double)(c->desc.length + c->desc.filter_length);
    double k = norm(&c->k) + (c->k_reverse.data ? norm(&c->k_reverse) : 0);
    double eps = 2 * precision_of(c->desc.dtype).sum_unit;
    return 2 * eps * sqrt(log2(n) + 1) * k * norm(&c->u);
}

/* Fails unless numbers [from, from + count) of a are those of `should`, in norm. */
static void expect_near(
    const conv_case *c, const array *a, int64_t from, int64_t count,
    const double *should, double most)
{
    double error = 0;
    for (int64_t i = 0; i < count; i++) {
        double difference = get(a, from + i) - should[i];
        error += difference * difference;
    }
    if (!(sqrt(error) <= most))
        fail_msg(
            "kind %d, %s, length %d, %d taps: off by %.3g, not %.3g", c->desc.kind,
            danaus_dtype_name(c->desc.dtype), (int)c->desc.length,
            (int)c->desc.filter_length, sqrt(error), most);
}

static double *copy_of(const array *a)
{
    double *x = malloc((size_t)a->count * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < a->count; i++)
        x[i] = get(a, i);
    return x;
}

/* y of an impulse at `at` from the filters themselves. */
static double *response(const conv_case *c, int64_t at)
{
    int64_t length = c->desc.length, taps = c->desc.filter_length;
    double *y = calloc((size_t)length, sizeof *y);
    assert_non_null(y);
    for (int64_t s = 0; s < taps; s++) {
        if (c->desc.kind == DANAUS_CIRCULAR)
            y[(at + s) % length] += get(&c->k, s);
        else if (at + s < length)
            y[at + s] += get(&c->k, s);
        if (c->k_reverse.data && at - 1 - s >= 0)
            y[at - 1 - s] += get(&c->k_reverse, s);
    }
    return y;
}

/* The same filters with an impulse as their signal; frees c. */
static void expect_response(danaus_device *device, conv_case *c, int64_t at)
{
    memset(c->u.data, 0, (size_t)c->u.count * danaus_dtype_size(c->u.dtype));
    put(&c->u, at, 1);
    array y = conv_run(device, c);
    double *should = response(c, at);
    expect_near(c, &y, 0, y.count, should, allowed(c));
    free(should);
    array_free(&y);
    conv_free(c);
}

static void impulses_give_the_filter(void **state)
{
    for (int round = 0; round < rounds_of(150); round++) {
        rng r = { (uint64_t)round };
        conv_case c = one_row(&r, round, 100000 / share_of_cases() + 20, round % 3);
        expect_response(*state, &c, rng_int(&r, 0, c.desc.length - 1));
    }
}

/* More than 2^24 numbers, with as many taps: longer than every cache. */
static void the_longest_rows_are_no_exception(void **state)
{
    rng r = { 24 };
    danaus_conv_desc desc = { .channels = 1, .dtype = DANAUS_F32 };
    desc.length = desc.filter_length = (1 << 24) / share_of_cases() + 1;
    conv_case c = conv_random(&r, &desc, 1, 0);
    expect_response(*state, &c, desc.length / 3);
}

/* The signal later by some numbers, and what leaves the row put where the kind has it. */
static array delayed(const conv_case *c, int64_t by)
{
    array u = zeros(&c->u);
    for (int64_t t = 0; t < u.count; t++)
        if (c->desc.kind == DANAUS_CIRCULAR)
            put(&u, (t + by) % u.count, get(&c->u, t));
        else if (t + by < u.count)
            put(&u, t + by, get(&c->u, t));
    return u;
}

static void what_comes_later_goes_later(void **state)
{
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        conv_case c = one_row(&r, round, 20000, round % 2);
        int64_t length = c.desc.length, by = rng_int(&r, 0, length - 1);
        array first = conv_run(*state, &c), u = delayed(&c, by), kept = c.u;
        double *y = copy_of(&first), *should = calloc((size_t)length, sizeof *should);
        assert_non_null(should);
        for (int64_t t = 0; t < length; t++)
            if (c.desc.kind == DANAUS_CIRCULAR)
                should[(t + by) % length] = y[t];
            else if (t + by < length)
                should[t + by] = y[t];
        c.u = u;
        array later = conv_run(*state, &c);
        c.u = kept;
        expect_near(&c, &later, 0, length, should, 2 * allowed(&c));
        free(y);
        free(should);
        array_free(&u);
        array_free(&first);
        array_free(&later);
        conv_free(&c);
    }
}

static void sums_give_sums(void **state)
{
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        conv_case c = one_row(&r, round, 20000, round % 3), d = c, sum = c;
        d.u = array_random(&r, c.desc.dtype, c.u.count);
        sum.u = zeros(&c.u);
        int wide = c.desc.dtype == DANAUS_F64;
        for (int64_t t = 0; t < c.u.count; t++) {
            double x = 0.5 * get(&c.u, t) + 0.25 * get(&d.u, t);
            put(&sum.u, t, wide ? x : (double)(float)x);
        }
        array y = conv_run(*state, &c), z = conv_run(*state, &d);
        array both = conv_run(*state, &sum);
        double *should = copy_of(&y);
        for (int64_t t = 0; t < y.count; t++)
            should[t] = 0.5 * should[t] + 0.25 * get(&z, t);
        /* The signal was rounded once: each number of it by at most this. */
        double k = norm(&c.k) + (c.k_reverse.data ? norm(&c.k_reverse) : 0);
        double rounding = precision_of(c.desc.dtype).sum_unit * k * (double)c.u.count;
        expect_near(
            &c, &both, 0, y.count, should, 2 * (allowed(&c) + allowed(&d)) + rounding);
        free(should);
        array_free(&y);
        array_free(&z);
        array_free(&both);
        array_free(&d.u);
        array_free(&sum.u);
        conv_free(&c);
    }
}

/* The gradient du of dy, alone. */
static array gradient_of(danaus_device *device, const conv_case *c, const array *dy)
{
    conv_scene s = conv_scene_make(device, c, dy);
    danaus_conv_gradients g = { .du = s.to[CONV_DU] };
    assert_ok(danaus_conv_gradient(
        s.plan, device, s.spectrum, c->batch, s.u, s.gate_in, s.gate_out, s.on_dy, &g));
    conv_outcome o = conv_scene_results(&s);
    array du = o.of[CONV_DU];
    o.of[CONV_DU] = (array){ 0 };
    conv_outcome_free(&o);
    conv_scene_end(&s);
    return du;
}

static array reversed(const array *a)
{
    array b = zeros(a);
    for (int64_t i = 0; i < a->count; i++)
        put(&b, a->count - 1 - i, get(a, i));
    return b;
}

/* Conjugate symmetry: for real rows the conjugate of a spectrum is that of the reversed
   row, so what goes back is what goes forward, reversed before and after. */
static void going_back_is_going_forward_reversed(void **state)
{
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        conv_case c = one_row(&r, round, 30000, round % 3);
        array du = gradient_of(*state, &c, &c.u);
        array u = c.u, turned = reversed(&c.u);
        c.u = turned;
        array y = conv_run(*state, &c), back = reversed(&y);
        double *should = copy_of(&back);
        expect_near(&c, &du, 0, du.count, should, 2 * allowed(&c));
        free(should);
        c.u = u;
        array_free(&turned);
        array_free(&back);
        array_free(&du);
        array_free(&y);
        conv_free(&c);
    }
}

/* The case as another kind on a row with `before` and `after` zeros around it. */
static conv_case padded(
    const conv_case *c, danaus_conv_kind kind, int64_t before, int64_t after)
{
    conv_case d = *c;
    d.desc.kind = kind;
    d.desc.length += before + after;
    d.u = array_make(c->desc.dtype, d.desc.length);
    memset(d.u.data, 0, (size_t)d.u.count * danaus_dtype_size(d.u.dtype));
    for (int64_t t = 0; t < c->u.count; t++)
        put(&d.u, before + t, get(&c->u, t));
    return d;
}

/* Nothing wraps on a circle of length + 2 taps; lags below zero are at its end. */
static void a_large_circle_is_a_line(void **state)
{
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        conv_case c = one_row(&r, round, 12000, round % 2 ? 0 : 2);
        int64_t taps = c.desc.filter_length, circle = c.desc.length + 2 * taps;
        conv_case d = padded(&c, DANAUS_CIRCULAR, taps, taps);
        d.desc.filter_length = circle;
        d.k = array_make(c.desc.dtype, circle);
        d.k_reverse = (array){ 0 };
        memset(d.k.data, 0, (size_t)circle * danaus_dtype_size(d.k.dtype));
        for (int64_t s = 0; s < taps; s++) {
            put(&d.k, s, get(&c.k, s));
            if (c.k_reverse.data)
                put(&d.k, circle - 1 - s, get(&c.k_reverse, s));
        }
        array line = conv_run(*state, &c), round_it = conv_run(*state, &d);
        double *should = copy_of(&line);
        expect_near(&c, &round_it, taps, line.count, should, allowed(&c) + allowed(&d));
        free(should);
        array_free(&line);
        array_free(&round_it);
        array_free(&d.u);
        array_free(&d.k);
        conv_free(&c);
    }
}

/* Reverse filters of zeros make a bidirectional convolution causal; taps that are zero
   change nothing. */
static void zeros_in_filters_change_nothing(void **state)
{
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        conv_case c = one_row(&r, round, 12000, 0), d = c;
        int64_t taps = c.desc.filter_length;
        d.desc.filter_length = taps + rng_int(&r, 0, 3000);
        d.k = array_make(c.desc.dtype, d.desc.filter_length);
        memset(d.k.data, 0, (size_t)d.k.count * danaus_dtype_size(d.k.dtype));
        memcpy(d.k.data, c.k.data, (size_t)taps * danaus_dtype_size(d.k.dtype));
        if (round % 2) {
            d.desc.kind = DANAUS_BIDIRECTIONAL;
            d.k_reverse = zeros(&d.k);
        }
        array one = conv_run(*state, &c), other = conv_run(*state, &d);
        double *should = copy_of(&one);
        expect_near(&c, &other, 0, one.count, should, allowed(&c) + allowed(&d));
        free(should);
        array_free(&one);
        array_free(&other);
        array_free(&d.k);
        array_free(&d.k_reverse);
        conv_free(&c);
    }
}

/* Long rows and rows of several windows: a later input changes earlier y by rounding
   alone, and du looks only forward. */
static void later_inputs_leave_earlier_outputs(void **state)
{
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        conv_case c = one_row(&r, round, 40000, 0);
        int64_t length = c.desc.length, from = rng_int(&r, 0, length - 1);
        array before = conv_run(*state, &c), dbefore = gradient_of(*state, &c, &c.u);
        double *y = copy_of(&before), *du = copy_of(&dbefore), error = allowed(&c);
        array u = zeros(&c.u), kept = c.u;
        memcpy(u.data, kept.data, (size_t)u.count * danaus_dtype_size(u.dtype));
        for (int64_t t = from; t < length; t++)
            element_put(u.dtype, u.data, t, element_random(&r, u.dtype));
        c.u = u;
        array after = conv_run(*state, &c);
        expect_near(&c, &after, 0, from, y, error + allowed(&c));
        for (int64_t t = 0; t < length; t++) /* now what is before `from` */
            put(&u, t, t < from ? -get(&kept, t) : get(&kept, t));
        array dafter = gradient_of(*state, &c, &u);
        expect_near(&c, &dafter, from, length - from, du + from, 2 * error);
        c.u = kept;
        free(y);
        free(du);
        array_free(&u);
        array_free(&before);
        array_free(&dbefore);
        array_free(&after);
        array_free(&dafter);
        conv_free(&c);
    }
}

/* y in windows that end before the change keeps its bits: with two windows or more,
   the first length / windows numbers do not know of the last one. */
static void earlier_windows_keep_their_bits(void **state)
{
    for (int round = 0; round < rounds_of(8); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = { .channels = 1,
                                  .length = 1 << 17,
                                  .filter_length = rng_int(&r, 1, 300) };
        conv_case c = conv_random(&r, &desc, 1, 0);
        danaus_conv_plan *plan = NULL;
        char text[256];
        assert_ok(danaus_conv_plan_create(*state, &c.desc, &plan));
        danaus_conv_plan_describe(plan, text, sizeof text);
        danaus_conv_plan_destroy(plan);
        long windows = atol(strchr(text, ':') + 1);
        array before = conv_run(*state, &c);
        put(&c.u, desc.length - 1, 0.5 - get(&c.u, desc.length - 1));
        array after = conv_run(*state, &c);
        if (windows > 1)
            assert_memory_equal(
                before.data, after.data,
                (size_t)(desc.length / windows) * sizeof(float));
        array_free(&before);
        array_free(&after);
        conv_free(&c);
    }
}

/* ---- differences ---- */

/* <y, dy>. */
static double loss(danaus_device *device, const conv_case *c, const array *dy)
{
    array y = conv_run(device, c);
    double sum = 0;
    for (int64_t i = 0; i < y.count; i++)
        sum += get(&y, i) * get(dy, i);
    array_free(&y);
    return sum;
}

/* The loss is linear in every number, so its central difference is its derivative at
   any step; 1 is taken. */
static void expect_difference(
    danaus_device *device, conv_case *c, array *member, const array *gradient,
    const array *dy, rng *r)
{
    for (int i = 0; member->data && i < 3; i++) {
        int64_t at = rng_int(r, 0, member->count - 1);
        double x = get(member, at), two[2];
        for (int side = 0; side < 2; side++) {
            put(member, at, x + 2 * side - 1);
            two[side] = loss(device, c, dy);
        }
        put(member, at, x);
        double is = get(gradient, at), should = (two[1] - two[0]) / 2;
        /* A bound for two sums of rows of `length` numbers, with every operand at most 2. */
        double size = 8 * (double)(c->desc.length + c->desc.filter_length);
        double most = 100 * 0x1p-53 * size * (double)c->u.count;
        if (!(fabs(is - should) <= most))
            fail_msg(
                "kind %d, length %d, %d taps: the gradient is %.15g, not %.15g",
                c->desc.kind, (int)c->desc.length, (int)c->desc.filter_length, is,
                should);
    }
}

static void gradients_are_differences(void **state)
{
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        int64_t filters = rng_int(&r, 1, 2);
        danaus_conv_desc desc = {
            .channels = 2 * filters,
            .filters = filters,
            .length = rng_int(&r, 1, 50),
            .filter_length = rng_int(&r, 1, 60),
            .kind = kinds[round % 3],
            .dtype = DANAUS_F64,
        };
        conv_case c = conv_random(&r, &desc, rng_int(&r, 1, 3), 7);
        array *members[] = {
            &c.u, &c.gate_in, &c.gate_out, &c.k, &c.k_reverse, &c.skip
        };
        array dy = array_random(&r, DANAUS_F64, c.u.count);
        conv_outcome o = conv_compute(*state, &c, &dy);
        for (int m = 0; m < 6; m++)
            expect_difference(*state, &c, members[m], &o.of[CONV_DU + m], &dy, &r);
        conv_outcome_free(&o);
        array_free(&dy);
        conv_free(&c);
    }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(impulses_give_the_filter, device),
        cmocka_unit_test_prestate(the_longest_rows_are_no_exception, device),
        cmocka_unit_test_prestate(what_comes_later_goes_later, device),
        cmocka_unit_test_prestate(sums_give_sums, device),
        cmocka_unit_test_prestate(going_back_is_going_forward_reversed, device),
        cmocka_unit_test_prestate(a_large_circle_is_a_line, device),
        cmocka_unit_test_prestate(zeros_in_filters_change_nothing, device),
        cmocka_unit_test_prestate(later_inputs_leave_earlier_outputs, device),
        cmocka_unit_test_prestate(earlier_windows_keep_their_bits, device),
        cmocka_unit_test_prestate(gradients_are_differences, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
