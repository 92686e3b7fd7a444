/* Drawing tokens: how often each comes, counted; what top_k and top_p keep; equal tokens. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "model/sampler.h"
#include "support/device.h"
#include "support/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST  40
#define DRAWS 40000

typedef struct case_of {
    int64_t count;
    float logits[MOST];
    danaus_sampling how;
} case_of;

static case_of random_case(rng *r)
{
    case_of c = { .count = rng_int(r, 1, MOST) };
    for (int64_t i = 0; i < c.count; i++)
        c.logits[i] = (float)rng_int(r, -12, 12) / 4; /* some are equal */
    c.how.temperature = (float)(0.3 + 2 * rng_unit(r));
    c.how.top_k = rng_int(r, 0, 1) ? (int32_t)rng_int(r, 1, MOST + 3) : 0;
    c.how.top_p = rng_int(r, 0, 1) ? (float)rng_unit(r) : 0;
    c.how.seed = rng_next(r);
    return c;
}

/* Probabilities by sorting: tokens by likelihood, cut twice, made to add up to 1. */
static void expected(const case_of *c, double *p)
{
    int64_t order[MOST];
    double weight[MOST], kept = 0, sum = 0;
    for (int64_t i = 0; i < c->count; i++) {
        weight[i] = exp((double)c->logits[i] / c->how.temperature);
        int64_t at = i;
        for (; at > 0 && weight[order[at - 1]] < weight[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    int64_t most = c->count;
    if (c->how.top_k && c->how.top_k < most)
        most = c->how.top_k;
    for (int64_t i = 0; i < most; i++)
        kept += weight[order[i]];
    double share = c->how.top_p > 0 ? c->how.top_p : 1;
    int64_t n = 0;
    while (n < most && (n == 0 || sum < share * kept))
        sum += weight[order[n++]];
    memset(p, 0, (size_t)c->count * sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[order[i]] = weight[order[i]] / sum;
}

/* A count of DRAWS is normal with variance DRAWS p (1 - p): five deviations, and one. */
static void tokens_come_as_often_as_is_likely(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(60) + 4; round++) {
        rng r = { round };
        case_of c = random_case(&r);
        double p[MOST];
        int64_t counts[MOST] = { 0 };
        sampler s;
        assert_ok(dn_sampler_open(&s, &c.how, c.count));
        for (int i = 0; i < DRAWS; i++) {
            int32_t token = dn_sampler_pick(&s, c.logits);
            assert_in_range(token, 0, c.count - 1);
            counts[token]++;
        }
        dn_sampler_close(&s);
        expected(&c, p);
        for (int64_t i = 0; i < c.count; i++) {
            double wanted = DRAWS * p[i], spread = sqrt(wanted * (1 - p[i]));
            if (!(fabs((double)counts[i] - wanted) <= (p[i] > 0 ? 5 * spread + 1 : 0)))
                fail_msg(
                    "round %d, token %d of %d: %d times, not %g", (int)round, (int)i,
                    (int)c.count, (int)counts[i], wanted);
        }
    }
}

static void without_temperature_the_first_likeliest_comes(void **state)
{
    (void)state;
    const float logits[] = { -3, 2, 7, 7, 1 };
    const danaus_sampling how = { .top_k = 3, .top_p = 0.5f };
    sampler s;
    assert_ok(dn_sampler_open(&s, &how, 5));
    for (int i = 0; i < 9; i++)
        assert_int_equal(dn_sampler_pick(&s, logits), 2);
    dn_sampler_close(&s);
}

static void of_equal_tokens_the_first_are_kept(void **state)
{
    (void)state;
    const float logits[] = { 1, 4, 4, 4, 0 };
    const danaus_sampling how = { .temperature = 1, .top_k = 2 };
    int seen[5] = { 0 };
    sampler s;
    assert_ok(dn_sampler_open(&s, &how, 5));
    for (int i = 0; i < 200; i++)
        seen[dn_sampler_pick(&s, logits)]++;
    assert_true(seen[1] > 50 && seen[2] > 50 && seen[1] + seen[2] == 200);
    dn_sampler_close(&s);
}

/* With the same seed: no limit, limits that keep all tokens, and a limit that keeps all
   likely tokens where the others have no weight. */
static void limits_that_keep_all_tokens_change_no_draw(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(60); round++) {
        rng r = { round };
        case_of c = random_case(&r);
        float top_p = c.how.top_p;
        int64_t likely = rng_int(&r, 1, c.count);
        for (int64_t i = 0; i < c.count && round % 2; i++)
            if (i >= likely)
                c.logits[i] = -1e6f;
        const struct {
            int32_t top_k;
            float top_p;
        } limits[] = { { 0, top_p },
                       { (int32_t)c.count, top_p },
                       { (int32_t)c.count + 5, top_p },
                       { (int32_t)(round % 2 ? likely : c.count), top_p },
                       { (int32_t)c.count, top_p > 0 ? top_p : 1 } };
        sampler s[5];
        for (int n = 0; n < 5; n++) {
            c.how.top_k = limits[n].top_k;
            c.how.top_p = limits[n].top_p;
            assert_ok(dn_sampler_open(&s[n], &c.how, c.count));
        }
        for (int i = 0; i < 200; i++) {
            int32_t token = dn_sampler_pick(&s[0], c.logits);
            for (int n = 1; n < 5; n++)
                assert_int_equal(dn_sampler_pick(&s[n], c.logits), token);
        }
        for (int n = 0; n < 5; n++)
            dn_sampler_close(&s[n]);
    }
}

static void logits_have_to_be_finite(void **state)
{
    (void)state;
    float logits[] = { 1, INFINITY, 2 };
    const danaus_sampling how = { .temperature = 1 };
    sampler s;
    assert_ok(dn_sampler_open(&s, &how, 3));
    assert_int_equal(dn_sampler_pick(&s, logits), -1);
    logits[1] = NAN;
    assert_int_equal(dn_sampler_pick(&s, logits), -1);
    logits[1] = 3e38f;
    assert_int_equal(dn_sampler_pick(&s, logits), 1);
    dn_sampler_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_come_as_often_as_is_likely),
        cmocka_unit_test(without_temperature_the_first_likeliest_comes),
        cmocka_unit_test(of_equal_tokens_the_first_are_kept),
        cmocka_unit_test(limits_that_keep_all_tokens_change_no_draw),
        cmocka_unit_test(logits_have_to_be_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
