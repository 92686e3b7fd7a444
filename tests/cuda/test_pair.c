/* Two factors at once. The texts, executed by threads of the processor
   (emulator/warps.h), against the oracle: rows of every type, shapes in which both
   factors' blocks divide each other in every way, ragged batches, operands that are and
   are not aligned, bias, activations. Plans for a GPU of compute capability 9.0 that
   there is not: which chains take such a step, what they say, and that its results are
   right. */
// SPDX-License-Identifier: Apache-2.0
#include "emulator/run_row.h"
#include "device/tuning.h"
#include "product/ks_plan.h"
#include "support/chains.h"
#include "support/device.h"
#include "support/pairs.h"

#define MOST_WEIGHTS 70000

/* Inner blocks of 16, 32, ... rows cover one k of the outer factor, a part of it, or
   several. */
static problem random_problem(rng *r, const kernel *k)
{
    static const int64_t rows[] = { 16, 32, 48, 64 }, columns[] = { 32, 64 };
    problem p = { .dtype = k->dtype, .batch = rng_int(r, 1, 120) };
    p.math = k->dtype == DANAUS_F32 ? DANAUS_MATH_TF32 : DANAUS_MATH_F32;
    danaus_pattern l, w;
    do {
        w = (danaus_pattern){ rng_int(r, 1, 2), rows[rng_int(r, 0, 3)],
                              columns[rng_int(r, 0, 1)], 16 * rng_int(r, 1, 5) };
        int64_t mid = w.c * w.d, most = mid / 16, block = rng_int(r, 1, most);
        while (mid % (16 * block))
            block = rng_int(r, 1, most);
        l = (danaus_pattern){ w.a * mid / (16 * block), 16 * block,
                              8 * rng_int(r, 1, 8), 1 };
        p.pattern = w;
        p.inner = l;
    } while (weights_of(w) > MOST_WEIGHTS || weights_of(l) > MOST_WEIGHTS ||
             !dn_fits(k, &p));
    return p;
}

static void check(const kernel *k, int number)
{
    rng r = { (uint64_t)number };
    problem p = random_problem(&r, k);
    pair_case c = pair_random(&r, &p);
    array y = array_make(k->dtype, rows_of(p.pattern) * p.batch);
    int aligned = number % 3 > 0;
    void *packed = dn_alloc(dn_packed_bytes(k, &p));
    void *places[] = { aligned_copy(&c.x), aligned_copy(&y),
                       c.bias.count ? aligned_copy(&c.bias) : NULL,
                       c.residual.count ? aligned_copy(&c.residual) : NULL };
    const void *residual = number % 2 ? places[3] : c.residual.data;
    if (c.residual.count && number % 4 == 0) { /* in place */
        residual = aligned ? places[1] : y.data;
        memcpy(
            aligned ? places[1] : y.data, c.residual.data,
            (size_t)y.count * danaus_dtype_size(y.dtype));
    }
    assert_non_null(packed);
    pair_pack(&c, k, packed);
    const void *all[] = { packed };
    const ks_operands o = { .batch = p.batch,
                            .x = aligned ? places[0] : c.x.data,
                            .packed = all,
                            .bias = places[2],
                            .y = aligned ? places[1] : y.data,
                            .activation = c.activation,
                            .residual = residual };
    run_text(k, &p, &o, number);
    if (aligned)
        memcpy(y.data, places[1], (size_t)y.count * danaus_dtype_size(y.dtype));
    pair_expect(&c, k, &y);
    array_free(&y);
    pair_free(&c);
    dn_free(packed);
    for (int n = 0; n < 4; n++)
        dn_free(places[n]);
}

static void rows_are_right_on_random_shapes(void **state)
{
    (void)state;
    int number = 0;
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        if (k->family == &dn_gpu_pair.kernel &&
            number++ % 2 == (k->dtype == DANAUS_BF16))
            check(k, number);
    assert_true(number > 0);
}

/* ---- plans ---- */

static danaus_status alloc(danaus_device *dev, size_t bytes, void **memory)
{
    (void)dev;
    *memory = dn_alloc(bytes);
    return *memory ? DANAUS_OK : DANAUS_ERR_MEMORY;
}

static void release(danaus_device *dev, void *memory)
{
    (void)dev;
    dn_free(memory);
}

static danaus_status copy(danaus_device *dev, void *to, const void *from, size_t bytes)
{
    (void)dev;
    memcpy(to, from, bytes);
    return DANAUS_OK;
}

static danaus_status sync(danaus_device *dev)
{
    (void)dev;
    return DANAUS_OK;
}

static danaus_status run_step(
    danaus_device *dev, const ks_step *step, int count, const ks_operands *o)
{
    static int number = 1000;
    (void)dev;
    assert_int_equal(count, 1);
    problem p = step->p;
    p.batch = o->batch;
    run_text(step->kernel, &p, o, number++);
    return DANAUS_OK;
}

/* An H200 that can run the text of pairs alone. */
static gpu_device open_device(void)
{
    static const backend emulated = { .name = "cuda",
                                      .sync = sync,
                                      .alloc = alloc,
                                      .free = release,
                                      .copy = copy,
                                      .ks_run = run_step };
    gpu_device d = { .base = { .backend = &emulated,
                               .name = "cuda:0",
                               .kernels = dn_gpu_kernels_for(90, 1) },
                     .facts = { .arch = 90,
                                .units = 132,
                                .shared = 227 << 10,
                                .l2 = 50 << 20,
                                .bandwidth = 4.917e12 } };
    dn_gpu_fill_rates(&d.facts, 1.98e9);
    assert_ok(dn_tuning_create(&d.base.tuning));
    expect_device(&d.base);
    return d;
}

#define LARGE 25088 /* the batch that plans are made for */

static danaus_ks_plan *plan_for(
    gpu_device *d, const danaus_pattern *p, const danaus_ks_desc *desc)
{
    danaus_ks_plan *plan;
    assert_ok(danaus_ks_plan_create(&d->base, p, 2, desc, &plan));
    return plan;
}

static void large_pairs_are_made_at_once(void **state)
{
    (void)state;
    static const struct {
        danaus_pattern pair[2];
        danaus_dtype dtype;
        const char *row;
    } cases[] = {
        { { { 1, 32, 32, 16 }, { 16, 32, 32, 1 } }, DANAUS_F16, "by ks.pair.f16." },
        { { { 1, 32, 32, 32 }, { 32, 32, 32, 1 } }, DANAUS_F16, "by ks.pair.f16." },
        { { { 1, 64, 64, 16 }, { 16, 64, 64, 1 } }, DANAUS_F16, "by ks.pair.f16." },
        { { { 1, 32, 32, 64 }, { 64, 32, 32, 1 } }, DANAUS_F16, "by ks.pair.f16." },
        { { { 1, 64, 64, 32 }, { 32, 64, 64, 1 } }, DANAUS_F16, "by ks.pair.f16." },
        { { { 1, 32, 32, 128 }, { 128, 32, 32, 1 } }, DANAUS_F16, "by ks.pair.f16." },
        { { { 1, 64, 64, 64 }, { 64, 64, 64, 1 } }, DANAUS_F16, "by ks.pair.f16." },
        { { { 1, 32, 32, 32 }, { 32, 32, 32, 1 } }, DANAUS_F32, "by ks.pair.tf32." },
        { { { 1, 32, 32, 64 }, { 64, 32, 32, 1 } }, DANAUS_F32, "by ks.pair.tf32." },
        { { { 1, 64, 64, 32 }, { 32, 64, 64, 1 } }, DANAUS_F32, "by ks.pair.tf32." },
    };
    gpu_device d = open_device();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        danaus_ks_desc desc = { .dtype = cases[i].dtype,
                                .math = DANAUS_MATH_TF32,
                                .batch = LARGE };
        danaus_ks_plan *plan = plan_for(&d, cases[i].pair, &desc);
        char said[300];
        danaus_ks_plan_describe(plan, said, sizeof said);
        if (plan->run.count != 1 || !strstr(said, cases[i].row) ||
            !strstr(said, ", factors 0 to 1 at once"))
            fail_msg("pair %d: %s", (int)i, said);
        danaus_ks_plan_destroy(plan);
    }
    dn_tuning_destroy(d.base.tuning);
}

/* Neither the wrong way round, nor in other types and layouts, nor for gradients. */
static void other_steps_have_one_factor(void **state)
{
    (void)state;
    static const danaus_pattern pair[] = { { 1, 32, 32, 32 }, { 32, 32, 32, 1 } };
    const danaus_ks_desc descs[] = {
        { .dtype = DANAUS_F16, .adjoint = 1 },
        { .dtype = DANAUS_F16, .layout = DANAUS_BATCH_LAST },
        { .dtype = DANAUS_F32 },
        { .dtype = DANAUS_BF16, .gradients = 1 },
    };
    gpu_device d = open_device();
    for (size_t i = 0; i < sizeof descs / sizeof *descs; i++) {
        danaus_ks_desc desc = descs[i];
        desc.keep_factors = 1;
        desc.batch = LARGE;
        danaus_ks_plan *plan = plan_for(&d, pair, &desc);
        assert_int_equal(plan->run.count, desc.gradients ? 1 : 2);
        assert_int_equal(plan->forward.count, desc.gradients ? 2 : 0);
        for (int s = 0; s < plan->forward.count; s++) {
            assert_int_equal(plan->forward.step[s].p.inner.a, 0);
            assert_int_equal(plan->back.step[s].p.inner.a, 0);
        }
        danaus_ks_plan_destroy(plan);
    }
    dn_tuning_destroy(d.base.tuning);
}

/* Forward and as the adjoint of a pair that lies the other way round. */
static void chosen_pairs_are_right(void **state)
{
    (void)state;
    static const danaus_pattern pair[] = { { 1, 32, 32, 32 }, { 32, 32, 32, 1 } },
                                turned[] = { { 32, 32, 32, 1 }, { 1, 32, 32, 32 } };
    gpu_device d = open_device();
    for (int adjoint = 0; adjoint < 2; adjoint++) {
        rng r = { (uint64_t)adjoint };
        danaus_ks_desc desc = {
            .dtype = DANAUS_F16, .adjoint = adjoint, .keep_factors = 1, .batch = LARGE
        };
        random_chain c =
            chain_random(&r, adjoint ? turned : pair, 2, DANAUS_F16, !adjoint);
        check_product(&r, &d.base, &c, &desc, 21);
        chain_free(&c);
    }
    dn_tuning_destroy(d.base.tuning);
}

int main(void)
{
    if (!has_compiler())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_right_on_random_shapes),
        cmocka_unit_test(large_pairs_are_made_at_once),
        cmocka_unit_test(other_steps_have_one_factor),
        cmocka_unit_test(chosen_pairs_are_right),
    };
    return cmocka_run_group_tests_name("pair", tests, make_folder, remove_folder);
}
