/* How windows of convolutions are transformed on GPUs: of every length, in what a block of
   threads has, each pass once; constants where no other's are. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "conv/frame.h"
#include "gpu/conv/conv.h"
#include "gpu/rows.h"
#include "support/device.h"

#include <math.h>
#include <stdlib.h>

#define MOST_THREADS 1024

/* Compute capability, and bytes of shared memory that a block may have. */
static const int gpus[][2] = { { 70, 96 << 10 }, { 75, 64 << 10 },  { 80, 163 << 10 },
                               { 86, 99 << 10 }, { 90, 227 << 10 }, { 120, 99 << 10 } };

#define GPUS ((int)(sizeof gpus / sizeof *gpus))

static gpu_facts facts_of(int i)
{
    return (gpu_facts){ .arch = gpus[i][0], .shared = gpus[i][1] };
}

static int has_small_factors(int64_t n)
{
    static const int factors[] = { 2, 3, 5, 7 };
    for (int i = 0; i < 4; i++)
        while (n % factors[i] == 0)
            n /= factors[i];
    return n == 1;
}

static void check_passes(const gpu_conv_shape *s)
{
    int64_t blocks = 1, constants = 0;
    assert_in_range(s->passes, 1, GPU_CONV_MOST_PASSES);
    for (int i = 0; i < s->passes; i++) {
        const gpu_conv_pass *p = &s->pass[i];
        assert_true(p->radix > 1 && p->blocks == blocks);
        assert_true(p->constants >= constants && p->constants + blocks <= s->constants);
        constants = p->constants + 1; /* in their order, and there is one */
        blocks *= p->radix;
    }
    assert_true(blocks == s->n);
}

static void check_levels(const gpu_facts *f, const gpu_conv_shape *s)
{
    int next = 0;
    assert_in_range(s->levels, 1, GPU_CONV_MOST_LEVELS);
    for (int i = 0; i < s->levels; i++) {
        const gpu_conv_level *l = &s->level[i];
        int64_t made = 1;
        assert_true(l->first == next && l->end > l->first);
        for (int p = l->first; p < l->end; p++)
            made *= s->pass[p].radix;
        next = l->end;
        assert_true(l->tiles * l->points == s->n && l->points % made == 0);
        assert_true(l->points == made || l->points == made * l->columns);
        assert_true(s->levels == 1 || l->tiles > 1);
        gpu_launch launch = dn_gpu_conv_launch(s, i, 5 * l->tiles);
        assert_in_range(launch.threads, 1, MOST_THREADS);
        assert_true(launch.threads == l->team * l->members);
        assert_true(launch.blocks[0] * l->members >= 5 * l->tiles);
        assert_true(launch.shared >= l->points * dn_gpu_point(s) * l->members);
        assert_true(launch.shared <= f->shared);
    }
    assert_int_equal(next, s->passes);
}

static void check_length(int64_t n)
{
    for (int i = 0; i < 2 * GPUS; i++) {
        gpu_facts f = facts_of(i / 2);
        gpu_conv_shape s;
        int made = dn_gpu_conv_shape(&f, i % 2 ? DANAUS_F64 : DANAUS_F32, n, 0, &s);
        if (made && !has_small_factors(n))
            fail_msg("%lld has no such radices", (long long)n);
        if (!made)
            continue;
        check_passes(&s);
        check_levels(&f, &s);
    }
}

static void every_shape_is_whole(void **state)
{
    (void)state;
    for (int64_t n = 16; n <= 1 << 16; n += 16)
        check_length(n);
    for (int64_t n = 1 << 16; n < 1 << 26; n += n / 64 / 512 * 512)
        check_length(n);
}

/* Powers of two, as long as both sides of a matrix fit, and what is 3, 5, 7 and 9 times
   as long as one of an eighth. */
static void lengths_that_matter_have_a_shape(void **state)
{
    (void)state;
    static const int times[] = { 1, 3, 5, 7, 9 };
    for (int i = 0; i < 2 * GPUS; i++) {
        gpu_facts f = facts_of(i / 2);
        danaus_dtype sums = i % 2 ? DANAUS_F64 : DANAUS_F32;
        int64_t side = 16;
        gpu_conv_shape s;
        while (dn_gpu_conv_shape(&f, sums, 2 * side, 0, &s) && s.levels == 1)
            side *= 2;
        for (int64_t n = 16; n <= side * side; n *= 2)
            for (int t = 0; t < 5; t++)
                if ((t == 0 || n <= side * side / 8) &&
                    !dn_gpu_conv_shape(&f, sums, n * times[t], 0, &s))
                    fail_msg(
                        "sm_%d: no shape of %lld", f.arch, (long long)n * times[t]);
    }
}

/* Powers of roots of i. */
static void constants_lie_on_the_circle(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 16, 48, 256, 1120, 4096, 40960, 65536 };
    for (int i = 0; i < 7; i++) {
        gpu_facts f = facts_of(1);
        gpu_conv_shape s;
        assert_true(dn_gpu_conv_shape(&f, DANAUS_F64, lengths[i], 0, &s));
        double *z = calloc((size_t)s.constants, 2 * sizeof *z);
        assert_non_null(z);
        dn_gpu_conv_constants(&s, z);
        for (int64_t c = 0; c < s.constants; c++) {
            double angle = atan2(z[2 * c + 1], z[2 * c]) / 1.57079632679489661923;
            double times = angle * (double)s.n; /* a quarter turn over n */
            assert_true(fabs(hypot(z[2 * c], z[2 * c + 1]) - 1) < 1e-15);
            assert_true(fabs(times - nearbyint(times)) < 1e-9 * (double)s.n);
        }
        free(z);
    }
}

static const conv_kernel slow = { .name = "slow", .dtype = DANAUS_F16 };
static const conv_kernel fast = { .name = "fast", .dtype = DANAUS_F16, .fast = 1 };

/* Windows by tensor cores have filters that other kernels transform, so their lengths are
   such that these can. */
static void every_window_of_tensor_cores_has_filters(void **state)
{
    (void)state;
    gpu_device dev = { .facts = { .arch = 90, .units = 132, .shared = 227 << 10 } };
    int possible = 0;
    for (int64_t n = 256; n <= 1 << 14; n += 256) {
        conv_problem p = {
            .channels = 1, .length = n, .filter_length = n, .filters = 1
        };
        conv_frame reach = dn_conv_reach(&p);
        conv_frame f = dn_conv_cut_rows(&reach, (conv_cut){ &fast, n, 16 });
        conv_work work;
        gpu_conv_shape s;
        int can = dn_gpu_conv_work(&dev.base, &f, 0, &work);
        assert_true(!can || dn_gpu_conv_shape(&dev.facts, DANAUS_F32, n, 0, &s));
        possible += can;
    }
    assert_int_equal(possible, 36); /* 7 is the largest prime of so many up to 64 */
}

static gpu_device h100(void)
{
    gpu_device dev = { .facts = { .arch = 90,
                                  .units = 132,
                                  .shared = 227 << 10,
                                  .l2 = 50 << 20,
                                  .bandwidth = 3.3e12 } };
    dn_gpu_fill_rates(&dev.facts, 1.98e9);
    return dev;
}

/* Seconds of a row that is cut into windows of n points; INFINITY: that cannot be. */
static double cost_of(
    const danaus_device *dev, const conv_kernel *k, const conv_problem *p, int64_t n)
{
    conv_frame reach = dn_conv_reach(p);
    conv_term term[CONV_MOST_TERMS];
    conv_work work;
    double seconds = 0;
    if (!dn_conv_windows(&reach, n))
        return INFINITY;
    conv_frame f = dn_conv_cut_rows(&reach, (conv_cut){ k, n, 16 });
    if (!dn_gpu_conv_work(dev, &f, 0, &work))
        return INFINITY;
    for (int i = dn_gpu_conv_terms(dev, k, term) - 1; i >= 0; i--)
        seconds += work.amount[i] * term[i].second;
    return seconds * work.idle;
}

/* The cost of the best windows. */
static double least_cost(const danaus_device *dev, int64_t length, int64_t taps)
{
    conv_problem p = {
        .channels = 1, .length = length, .filter_length = taps, .filters = 1
    };
    double least = INFINITY;
    for (int64_t n = 256; n <= length * 5 / 4 + 512; n += n < 1 << 14 ? 256 : 4096)
        least = fmin(least, cost_of(dev, &fast, &p, n));
    return least;
}

/* A causal row with a filter of a sixteenth of its length. */
static void filters_of_a_sixteenth_cost_less(void **state)
{
    (void)state;
    gpu_device dev = h100();
    for (int64_t length = 1 << 11; length <= 1 << 21; length *= 2) {
        double whole = least_cost(&dev.base, length, length);
        double part = least_cost(&dev.base, length, length / 16);
        print_message("%d: %.2f times less\n", (int)length, whole / part);
        assert_true(whole >= (length < 1 << 15 ? 1 : 1.1) * part);
    }
}

/* The best windows of any length cost little more for each number than those of the next power
   of two. */
static void any_length_costs_little_more_than_a_power_of_two(void **state)
{
    (void)state;
    gpu_device dev = h100();
    rng r = { 8 };
    double worst = 0;
    for (int i = 0; i < 200; i++) {
        int64_t most = (int64_t)512 << i % 12,
                length = rng_int(&r, most / 2 + 1, most - 1);
        double one = least_cost(&dev.base, length, length) / (double)length;
        double next = least_cost(&dev.base, most, most) / (double)most;
        if (length > most / 2 + 128) /* shorter ones are for vector units */
            worst = fmax(worst, one / next);
    }
    print_message("at most %.2f times\n", worst);
    assert_true(worst <= 1.6);
}

/* Rows that fill no window of vector units, which ask where each number lies. */
static void odd_rows_are_for_tensor_cores(void **state)
{
    (void)state;
    gpu_device dev = h100();
    rng r = { 9 };
    for (int i = 0; i < 60; i++) {
        int64_t length = rng_int(&r, 20, 75) * 16 + rng_int(&r, 1, 15);
        conv_problem p = { .channels = 1,
                           .length = length,
                           .filter_length = length,
                           .filters = 1,
                           .kind = i % 2 ? DANAUS_CIRCULAR : DANAUS_CAUSAL };
        double vector = INFINITY, tensor = INFINITY;
        for (int64_t n = 16; n <= 2 * length; n += 16)
            vector = fmin(vector, cost_of(&dev.base, &slow, &p, n));
        for (int64_t n = 256; n <= length + 512; n += 256)
            tensor = fmin(tensor, cost_of(&dev.base, &fast, &p, n));
        assert_true(tensor < vector);
    }
}

/* A causal row of 2^21 numbers with all of a spectrum, or a box. */
static double cost_of_sparse(const danaus_device *dev, const int32_t *keep)
{
    conv_problem p = {
        .channels = 1, .length = 1 << 21, .filter_length = 1 << 21, .filters = 1
    };
    for (int i = 0; i < CONV_AXES && keep; i++) {
        p.axes[i] = 8;
        p.keep[i] = keep[i];
    }
    return cost_of(dev, &fast, &p, 1 << 21);
}

/* Whatever rows or blocks that are left out, the cost is less, and never less than that of the
   first axes. */
static void what_spectra_leave_out_costs_nothing_on_tensor_cores(void **state)
{
    (void)state;
    static const int32_t keep[][CONV_AXES] = {
        { 8, 8, 8, 8 }, { 8, 8, 4, 4 }, { 5, 6, 4, 3 }, { 4, 4, 4, 4 }, { 2, 3, 8, 8 }
    };
    gpu_device dev = h100();
    double whole = cost_of_sparse(&dev.base, NULL), last = INFINITY;
    for (int i = 0; i < 5; i++) {
        double cost = cost_of_sparse(&dev.base, keep[i]);
        print_message("box %d: %.2f of the whole\n", i, cost / whole);
        assert_true(cost < last && cost > 0.1 * whole && cost <= whole);
        last = cost;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_is_whole),
        cmocka_unit_test(lengths_that_matter_have_a_shape),
        cmocka_unit_test(constants_lie_on_the_circle),
        cmocka_unit_test(every_window_of_tensor_cores_has_filters),
        cmocka_unit_test(filters_of_a_sixteenth_cost_less),
        cmocka_unit_test(any_length_costs_little_more_than_a_power_of_two),
        cmocka_unit_test(odd_rows_are_for_tensor_cores),
        cmocka_unit_test(what_spectra_leave_out_costs_nothing_on_tensor_cores),
    };
    return cmocka_run_group_tests_name("shapes of windows", tests, NULL, NULL);
}
