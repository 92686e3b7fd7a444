/* Estimates: on GPUs of every generation each row that runs has one, tensor cores are chosen
   where they are faster, with orders of rows too, and an H200 chooses the kernels that were
   measured to be best there. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "cuda/cuda.h"
#include "device/tuning.h"
#include "gpu/run/run.h"
#include "product/planner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What makers say of a GPU. */
typedef struct card {
    int arch, units;
    double clock, bandwidth; /* Hz, bytes a second */
} card;

static const card cards[] = {
    { 70, 80, 1.53e9, 0.9e12 },    { 75, 40, 1.59e9, 0.32e12 },
    { 80, 108, 1.41e9, 1.555e12 }, { 86, 82, 1.695e9, 0.936e12 },
    { 89, 128, 2.52e9, 1.008e12 }, { 90, 132, 1.98e9, 4.917e12 },
    { 100, 148, 1.85e9, 8e12 },    { 120, 170, 2.407e9, 1.792e12 },
};

#define CARDS ((int)(sizeof cards / sizeof *cards))

static const backend place = { .name = "cuda" };

/* A device without a tuning table, whose table of rows has a library's or not. */
static gpu_device device_of(const card *c, int library)
{
    gpu_device d = {
        .base = { .backend = &place },
        .facts = { .arch = c->arch,
                   .units = c->units,
                   .shared = c->arch == 90 ? 227 << 10 : 99 << 10,
                   .memory = (int64_t)24 << 30,
                   .bandwidth = c->bandwidth },
    };
    dn_gpu_fill_rates(&d.facts, c->clock);
    d.base.kernels = dn_gpu_kernels_for(c->arch, library);
    assert_ok(dn_tuning_create(&d.base.tuning));
    return d;
}

static const kernel *choice_in(gpu_device *d, const problem *p, double *seconds)
{
    const kernel *k = NULL;
    assert_ok(dn_choose(&d->base, p, DANAUS_ESTIMATE, &k, seconds));
    assert_true(*seconds > 0 && *seconds < 1);
    return k;
}

static const kernel *choice(gpu_device *d, const problem *p)
{
    double seconds = 0;
    return choice_in(d, p, &seconds);
}

static void every_row_that_runs_has_an_estimate(void **state)
{
    (void)state;
    static const danaus_pattern patterns[] = {
        { 1, 64, 64, 1 }, { 4, 96, 32, 8 }, { 1, 5, 3, 7 }, { 1, 32, 32, 32 }
    };
    for (int c = 0; c < CARDS; c++) {
        gpu_device d = device_of(&cards[c], 1);
        for (const kernel *k = d.base.kernels; k->name; k++)
            for (int form = 0; form < 32; form++) {
                problem p = { .operation = k->family->operation,
                              .pattern = patterns[form / 8],
                              .dtype = k->dtype,
                              .layout = (danaus_layout)(form % 2),
                              .math = (danaus_math)(form / 2 % 2),
                              .batch = form / 4 % 2 ? 25088 : 1 };
                if (form / 8 == 3)
                    p.inner = (danaus_pattern){ 32, 32, 32, 1 };
                double cost = dn_fits(k, &p) ? dn_cost(&d.base, k, &p) : 1e-6;
                if (!(cost > 1e-7 && cost < 10))
                    fail_msg("%s on %d: %g", k->name, cards[c].arch, cost);
            }
        dn_tuning_destroy(d.base.tuning);
    }
}

/* A row for tensor cores of a generation names it. */
static int uses_tensor_cores(const kernel *k) { return dn_gpu_code(k)->arch >= 80; }

/* Without a library. Of 7.5 no row does, and on 9.0 all of them are its own. */
static void tensor_cores_make_16_bits_from_8_0_on(void **state)
{
    (void)state;
    static const danaus_pattern patterns[] = {
        { 1, 1024, 1024, 1 }, { 4, 64, 64, 8 }, { 16, 64, 128, 1 }, { 1, 256, 256, 16 }
    };
    for (int c = 0; c < CARDS; c++) {
        gpu_device d = device_of(&cards[c], 0);
        for (int form = 0; form < 48; form++) {
            problem p = { .pattern = patterns[form / 12],
                          .dtype = form % 2 ? DANAUS_BF16 : DANAUS_F16,
                          .layout = (danaus_layout)(form / 2 % 2),
                          .batch = form / 4 % 3 == 0   ? 16
                                   : form / 4 % 3 == 1 ? 256
                                                       : 25088 };
            const kernel *k = choice(&d, &p);
            if (uses_tensor_cores(k) != (cards[c].arch >= 80) ||
                (cards[c].arch == 90 && dn_gpu_code(k)->arch != 90))
                fail_msg(
                    "%d makes (%d,%d,%d,%d) of %d columns by %s", cards[c].arch,
                    (int)p.pattern.a, (int)p.pattern.b, (int)p.pattern.c,
                    (int)p.pattern.d, (int)p.batch, k->name);
        }
        dn_tuning_destroy(d.base.tuning);
    }
}

/* Layers with gates are made in one launch from 8.0 on, on 9.0 by its own rows. */
static void gates_are_made_from_8_0_on(void **state)
{
    (void)state;
    for (int c = 0; c < CARDS; c++)
        for (int form = 0; form < 2; form++) {
            gpu_device d = device_of(&cards[c], 1);
            const problem p = { .pattern = { 4, 1536, 192, 1 },
                                .dtype = form ? DANAUS_BF16 : DANAUS_F16,
                                .batch = 16384,
                                .activation = DANAUS_GELU,
                                .gated = 1 };
            const kernel *k = NULL;
            double seconds;
            danaus_status status =
                dn_choose(&d.base, &p, DANAUS_ESTIMATE, &k, &seconds);
            if (cards[c].arch < 80)
                assert_status(status, DANAUS_ERR_UNSUPPORTED);
            else {
                assert_ok(status);
                assert_int_equal(
                    !strncmp(k->name, "ks.wgmma.", 9), cards[c].arch == 90);
            }
            dn_tuning_destroy(d.base.tuning);
        }
}

/* Lines of pattern, type, layout, batch and the row that an H200 chooses without a table. */
static void expect_choices(
    dn_operation operation, const char *const *cases, size_t count)
{
    gpu_device d = device_of(&cards[5], 1);
    for (size_t i = 0; i < count; i++) {
        long a, b, c, lanes, batch;
        char type[8], layout[8], row[64];
        assert_int_equal(
            sscanf(
                cases[i], "%ld,%ld,%ld,%ld %7s %7s %ld %63s", &a, &b, &c, &lanes, type,
                layout, &batch, row),
            8);
        problem p = { .operation = operation,
                      .pattern = { a, b, c, lanes },
                      .dtype = strcmp(type, "f16") ? DANAUS_F32 : DANAUS_F16,
                      .math = strcmp(type, "tf32") ? DANAUS_MATH_F32 : DANAUS_MATH_TF32,
                      .layout = strcmp(layout, "last") ? DANAUS_BATCH_FIRST
                                                       : DANAUS_BATCH_LAST,
                      .batch = batch };
        if (strcmp(choice(&d, &p)->name, row))
            fail_msg("%s: chosen %s", cases[i], choice(&d, &p)->name);
    }
    dn_tuning_destroy(d.base.tuning);
}

/* Without a table: estimates that were fitted there. */
static void an_h200_chooses_as_it_was_measured(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "1,1024,1024,1 f16 first 16 ks.split.f16.1x1.1x8",
        "1,1024,1024,1 f16 first 196 ks.blas.f16",
        "1,1024,1024,1 f16 last 16 ks.split.f16.1x2.1x8",
        "1,1024,1024,1 f32 first 16 ks.split.f32.1x1.1x8",
        "1,1024,1024,1 f32 first 196 ks.blas.f32.columns",
        "1,1024,1024,1 f32 first 25088 ks.wgmma.f32.128x128.1",
        "1,1024,1024,1 tf32 first 16 ks.split.tf32.1x1.1x8",
        "1,1024,1024,1 tf32 first 196 ks.blas.tf32",
        "1,1024,1024,1 tf32 first 25088 ks.wgmma.tf32.256x128.1",
        "1,1024,1024,4 f16 first 196 ks.dense.f16",
        "1,1024,1024,4 f16 first 25088 ks.wgmma_lanes.f16.1x4",
        "1,1024,1024,4 f16 last 16 ks.split.f16.2x2.1x8",
        "1,1024,1024,4 f32 first 16 ks.split.f32.1x2.1x8",
        "1,1024,1024,4 f32 first 25088 ks.wgmma_lanes.f32.1x1",
        "1,1024,1024,4 f32 last 16 ks.split.f32.2x2.1x8",
        "1,1024,1024,4 f32 last 196 ks.wgmma.f32.64x64.1",
        "1,1024,1024,4 tf32 first 16 ks.split.tf32.1x2.1x8",
        "1,1024,1024,4 tf32 first 25088 ks.wgmma_lanes.tf32.1x1",
        "1,1024,1024,4 tf32 last 16 ks.split.tf32.2x2.1x8",
        "1,1024,1024,4 tf32 last 196 ks.wgmma.tf32.64x64.1",
        "1,128,128,3 f16 first 16 ks.vec.f16.2x32",
        "1,128,128,3 f16 last 196 ks.split.f16.2x2.2x4",
        "1,128,128,3 f16 last 25088 ks.wgmma.f16.192x192.1",
        "1,128,128,3 f32 first 196 ks.split.f32.2x2.2x4",
        "1,128,128,3 f32 first 25088 ks.mma_runs.f32.4x2.16.1",
        "1,128,128,3 tf32 first 196 ks.split.tf32.2x2.2x4",
        "1,128,128,3 tf32 first 25088 ks.dense.tf32",
        "1,128,128,3 tf32 last 25088 ks.wgmma.tf32.128x192.1",
        "1,128,128,64 f16 first 25088 ks.mma_lanes.f16.4x3.1.4",
        "1,128,128,64 f16 last 196 ks.wgmma.f16.256x128.1",
        "1,128,128,64 tf32 first 196 ks.mma_lanes.tf32.3x4.2.4",
        "1,128,128,64 tf32 first 25088 ks.wgmma_lanes.tf32.1x2",
        "1,192,48,64 f16 last 16 ks.wgmma.f16.64x64.1",
        "1,192,48,64 f32 last 16 ks.blas.f32",
        "1,192,48,64 tf32 last 25088 ks.wgmma.tf32.256x128.2",
        "1,48,48,64 f16 last 25088 ks.wgmma.f16.128x128.1",
        "1,512,512,16 f16 first 196 ks.wgmma_lanes.f16.1x4",
        "1,512,512,16 f16 first 25088 ks.turned.f16.256x128.2",
        "1,512,512,16 f16 last 25088 ks.wgmma.f16.256x128.2",
        "1,512,512,16 tf32 first 25088 ks.turned.tf32.256x128.2",
        "1,64,256,16 f32 first 16 ks.vec.f32.4x32",
        "2,64,64,64 tf32 first 25088 ks.mma_lanes.tf32.4x3.1.4",
        "4,512,512,1 f32 first 16 ks.split.f32.2x1.1x8",
        "4,512,512,1 tf32 first 16 ks.split.tf32.2x1.1x8",
    };
    expect_choices(DN_PRODUCT, cases, sizeof cases / sizeof *cases);
}

static double cost_of(gpu_device *d, const char *row, const problem *p)
{
    const kernel *k = d->base.kernels;
    while (strcmp(k->name, row))
        k++;
    assert_true(dn_fits(k, p));
    return dn_cost(&d->base, k, p);
}

/* The library's products end with a bias and a GELU by tanh for nothing; for the exact one,
   and batch-last for a bias, it pays for another launch, and our own rows pay for each
   number's instructions. */
static void what_follows_a_product_has_its_cost(void **state)
{
    (void)state;
    static const char *const rows[] = { "ks.blas.f16", "ks.wgmma.f16.192x192.1" };
    gpu_device d = device_of(&cards[5], 1);
    problem p = { .pattern = { 1, 1536, 384, 1 }, .dtype = DANAUS_F16, .batch = 25088 };
    double bare[] = { cost_of(&d, rows[0], &p), cost_of(&d, rows[1], &p) };
    for (int ends = 0; ends < 2; ends++) {
        d.facts.epilogues = ends;
        p.bias = 1;
        p.activation = DANAUS_GELU_TANH;
        double more = cost_of(&d, rows[0], &p) - bare[0];
        assert_true(ends ? fabs(more) < 1e-12 : more > 30e-6 && more < 50e-6);
        p.activation = DANAUS_GELU;
        more = cost_of(&d, rows[0], &p) - bare[0];
        assert_true(more > 30e-6 && more < 50e-6);
        more = cost_of(&d, rows[1], &p) - bare[1];
        assert_true(more > 20e-6 && more < 30e-6);
        assert_string_equal(choice(&d, &p)->name, rows[1]);
    }
    p.activation = DANAUS_ACTIVATION_NONE;
    p.layout = DANAUS_BATCH_LAST;
    double biased = cost_of(&d, rows[0], &p);
    p.bias = 0;
    assert_true(biased > cost_of(&d, rows[0], &p) + 30e-6);
    dn_tuning_destroy(d.base.tuning);
}

/* What a residual adds to an estimate, in times that memory takes to read it. */
static double times_read(const gpu_device *d, const kernel *k, problem p)
{
    double bytes = (double)(p.pattern.a * p.pattern.b * p.pattern.d) * (double)p.batch *
                   (double)danaus_dtype_size(p.dtype);
    double without = dn_cost(&d->base, k, &p);
    p.residual = 1;
    return (dn_cost(&d->base, k, &p) - without) * d->facts.bandwidth / bytes;
}

/* Rows read it beside what they compute, so that some of the time, or next to all, is hidden,
   and never faster than a row moves x and y. Rows for few columns count neither. */
static void a_residual_is_read(void **state)
{
    (void)state;
    static const danaus_pattern patterns[] = {
        { 64, 48, 48, 1 }, { 4, 64, 64, 64 }, { 1, 512, 16, 1 }, { 1, 32, 32, 32 }
    };
    gpu_device d = device_of(&cards[5], 1);
    int seen = 0;
    for (const kernel *k = d.base.kernels; k->name; k++)
        for (int form = 0; form < 16 && k->family->operation == DN_PRODUCT; form++) {
            problem p = { .pattern = patterns[form / 4],
                          .dtype = k->dtype,
                          .layout = (danaus_layout)(form % 2),
                          .math = (danaus_math)(form / 2 % 2),
                          .batch = 25088 };
            if (form / 4 == 3)
                p.inner = (danaus_pattern){ 32, 32, 32, 1 };
            if (!dn_fits(k, &p) || !strncmp(k->name, "ks.vec.", 7))
                continue;
            double times = times_read(&d, k, p);
            if (!(times >= 0 && times < 5))
                fail_msg("%s, form %d: %g", k->name, form, times);
            if (!strncmp(k->name, "ks.turned.", 10) && !p.inner.a)
                assert_true(fabs(times - 1 / 0.8) < 1e-6); /* TURNING of ks_turned.c */
            if (!strncmp(k->name, "ks.wgmma.f16.192x192.", 21))
                assert_true(times > 0.7 && times < 1.2); /* it waits for memory */
            seen++;
        }
    assert_true(seen > 100);
    dn_tuning_destroy(d.base.tuning);
}

/* Batch-last, from 8.0 on, and for less than by launches for the orders; batch-first only
   portable rows do. */
static void tensor_cores_take_orders_of_rows(void **state)
{
    (void)state;
    static const int64_t batches[] = { 16, 4096 };
    for (int form = 0; form < 12; form++) {
        gpu_device d = device_of(&cards[2], 0);
        problem p = { .pattern = form / 6 ? (danaus_pattern){ 4, 64, 64, 8 }
                                          : (danaus_pattern){ 1, 1024, 1024, 1 },
                      .dtype = DANAUS_F16,
                      .layout = DANAUS_BATCH_LAST,
                      .batch = batches[form % 2] },
                with = p;
        double plain = 0, ordered = 0, launches = 0;
        with.orders = form % 6 / 2 + 1;
        choice_in(&d, &p, &plain);
        assert_true(uses_tensor_cores(choice_in(&d, &with, &ordered)));
        for (int order = DN_READS; order <= DN_WRITES; order++)
            if (with.orders & order)
                launches += dn_gpu_picking(
                    &d.base, p.dtype, p.pattern.a * p.pattern.b * p.pattern.d, p.batch);
        if (!(plain < ordered && ordered < plain + launches))
            fail_msg("case %d: %g, %g and %g", form, ordered, plain, launches);
        with.layout = DANAUS_BATCH_FIRST;
        assert_false(uses_tensor_cores(choice(&d, &with)));
        dn_tuning_destroy(d.base.tuning);
    }
}

static void an_h200_makes_weight_gradients_as_it_was_measured(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "1,512,512,16 f16 first 196 dw.blas.turned.f16",
        "1,512,512,16 tf32 first 25088 dw.blas.turned.f32",
        "12,96,96,16 f16 last 25088 dw.blas.f16",
        "128,256,256,1 f32 last 25088 dw.wgmma.f32",
        "128,48,48,4 tf32 first 196 dw.blas.dense.f32",
        "16,48,48,16 f16 first 196 dw.mma_boxes.f16",
        "24,512,512,1 tf32 last 196 dw.blas.f32",
        "24,96,96,4 tf32 first 25088 dw.mma_boxes.f32",
        "3,192,192,16 f32 first 25088 dw.mma_boxes.f32",
        "3,384,96,1 f16 first 196 dw.matrix.f16",
        "3,48,48,4 f32 last 196 dw.mma_boxes.f32",
        "3,512,512,1 f16 first 25088 dw.blas.f16",
        "32,48,48,1 f32 first 25088 dw.wgmma.f32",
        "32,64,64,1 tf32 first 25088 dw.blas.f32",
        "48,192,192,4 f16 first 196 dw.fours.f16",
        "6,768,192,16 f32 first 25088 dw.wgmma.turned.f32",
        "64,48,48,4 f16 first 25088 dw.blas.dense.f16",
    };
    expect_choices(DN_WEIGHT_GRADIENT, cases, sizeof cases / sizeof *cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_that_runs_has_an_estimate),
        cmocka_unit_test(tensor_cores_make_16_bits_from_8_0_on),
        cmocka_unit_test(gates_are_made_from_8_0_on),
        cmocka_unit_test(an_h200_chooses_as_it_was_measured),
        cmocka_unit_test(an_h200_makes_weight_gradients_as_it_was_measured),
        cmocka_unit_test(what_follows_a_product_has_its_cost),
        cmocka_unit_test(a_residual_is_read),
        cmocka_unit_test(tensor_cores_take_orders_of_rows),
    };
    return cmocka_run_group_tests_name("costs", tests, NULL, NULL);
}
