/* Small random encoders, compressed: gradients of a block against differences, budgets, what a
   saved model is, and that failure leaves the model alone. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "model/bert/bert_steps.h"
#include "support/bert.h"
#include "support/device.h"
#include "support/files.h"
#include "support/losses.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 80, MOST_LAYERS_HERE = 60 };

#define RIDGE 0.05

static danaus_device *device;

/* A model, and sequences to embed. */
typedef struct scene {
    small_bert m;
    danaus_model *model;
    int64_t offsets[SEQUENCES + 1];
    int32_t ids[SEQUENCES * 10];
} scene;

static scene *make(uint64_t seed)
{
    rng r = { seed };
    scene *s = calloc(1, sizeof *s);
    do {
        bert_free(&s->m);
        s->m = bert_random_dense(&r);
    } while (s->m.width < 6 || s->m.inner < 6 || s->m.vocabulary < 5);
    s->model = bert_load(&s->m, device);
    int64_t longest = s->m.positions < 10 ? s->m.positions : 10;
    for (int i = 0; i < SEQUENCES; i++) {
        s->offsets[i + 1] = s->offsets[i] + rng_int(&r, 1, longest);
        for (int64_t t = s->offsets[i]; t < s->offsets[i + 1]; t++)
            s->ids[t] = (int32_t)rng_int(&r, 0, s->m.vocabulary - 1);
    }
    return s;
}

static void end(scene *s)
{
    danaus_model_destroy(s->model);
    bert_free(&s->m);
    free(s);
}

static float *embed(scene *s, danaus_model *model)
{
    float *y = calloc((size_t)(SEQUENCES * s->m.width), sizeof *y);
    assert_ok(danaus_model_embed(model, device, SEQUENCES, s->offsets, s->ids, y));
    return y;
}

static danaus_status compress(scene *s, const danaus_model_compression *how)
{
    return danaus_model_compress(s->model, device, SEQUENCES, s->offsets, s->ids, how);
}

/* ---- a block, back ---- */

/* The sum of dh2 times h2. */
static double loss_of(
    const transformer *m, const bert_layers *layers, const bert_pass *p,
    const float *dh2)
{
    double sum = 0;
    assert_ok(dn_pass_run(m, device, m->blocks, layers, STAGE_DOWN, 1, p));
    for (int64_t i = 0; i < p->tokens * m->width; i++)
        sum += (double)dh2[i] * p->h2[i];
    return sum;
}

static void blocks_go_back(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        scene *s = make(seed);
        rng r = { seed };
        const transformer *m = s->model->blocks;
        const int64_t offsets[] = { 0, 2, 5 };
        bert_pass p;
        bert_gradients g;
        bert_layers layers = { .makes_u = 1 };
        linear dense[BLOCK_LINEARS], adjoint[BLOCK_LINEARS];
        assert_ok(dn_pass_make(m, 5, &p));
        assert_ok(dn_gradients_make(m, 5, &g));
        p.sequences = (nn_sequences){ 2, offsets };
        p.tokens = 5;
        for (int i = 0; i < BLOCK_LINEARS; i++) {
            danaus_tensor weight, bias;
            char name[160];
            snprintf(
                name, sizeof name, "%s%s.weight", s->m.arrays.prefix,
                s->model->linear[i].name);
            assert_ok(danaus_file_find(s->model->file, name, &weight));
            snprintf(
                name, sizeof name, "%s%s.bias", s->m.arrays.prefix,
                s->model->linear[i].name);
            assert_ok(danaus_file_find(s->model->file, name, &bias));
            assert_ok(dn_linear_dense(&dense[i], device, &weight, &bias, 0, 5));
            assert_ok(dn_linear_dense(&adjoint[i], device, &weight, &bias, 1, 5));
            layers.of[i] = &dense[i];
        }
        int64_t numbers = 5 * m->width;
        float *dh2 = calloc((size_t)numbers, sizeof *dh2);
        double size = 0, error = 0;
        for (int64_t i = 0; i < numbers; i++) {
            p.h[i] = (float)rng_sign(&r);
            dh2[i] = (float)rng_sign(&r);
        }
        loss_of(m, &layers, &p, dh2);
        memcpy(g.of[DOWN], dh2, (size_t)numbers * sizeof *dh2);
        assert_ok(dn_pass_go_back(m, device, m->blocks, adjoint, &p, &g));
        float *found = calloc((size_t)numbers, sizeof *found);
        memcpy(found, g.h, (size_t)numbers * sizeof *found);
        for (int64_t i = 0; i < numbers; i++) {
            float before = p.h[i];
            p.h[i] = before + 0.004f;
            double up = loss_of(m, &layers, &p, dh2);
            p.h[i] = before - 0.004f;
            double slope = (up - loss_of(m, &layers, &p, dh2)) / 0.008;
            p.h[i] = before;
            size += slope * slope;
            error += (slope - found[i]) * (slope - found[i]);
        }
        /* Differences of f32 err by some 1e-6 / 0.004; relu has corners. */
        assert_true(sqrt(error) <= 0.02 * sqrt(size));
        for (int i = 0; i < BLOCK_LINEARS; i++) {
            dn_linear_close(&dense[i]);
            dn_linear_close(&adjoint[i]);
        }
        free(found);
        free(dh2);
        dn_gradients_free(&g);
        dn_pass_free(&p);
        end(s);
    }
}

/* ---- whole models ---- */

static void read_all(scene *s, reader *of)
{
    assert_in_range(s->model->linears, 1, MOST_LAYERS_HERE);
    readers_start(s->model, of);
    free(embed(s, s->model));
    readers_stop(s->model);
}

/* What parts of residual sums are to make is no output of a dense layer. */
static int is_part_of_sum(const linear *layer)
{
    return strstr(layer->name, "output.dense") != NULL;
}

static void expect_losses(
    scene *s, const danaus_model_compression *how,
    void (*expect)(const linear *layer, const loss *found))
{
    reader dense[MOST_LAYERS_HERE] = { 0 }, here[MOST_LAYERS_HERE] = { 0 };
    read_all(s, dense);
    assert_ok(compress(s, how));
    read_all(s, here);
    for (int i = 0; i < s->model->linears; i++) {
        const linear *layer = &s->model->linear[i];
        if (layer->fitted.basis && !is_part_of_sum(layer)) {
            loss found = layer_loss(s->model, layer, &dense[i], &here[i]);
            expect(layer, &found);
        }
        free(dense[i].x);
        free(here[i].x);
    }
}

static void budgets_are_kept_and_errors_told(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(12); round++) {
        scene *s = make((uint64_t)round);
        const danaus_model_compression how = { .share = 0.6, .seed = 3 };
        expect_losses(s, &how, expect_told_loss);
        danaus_model_info info;
        assert_ok(danaus_model_describe(s->model, &info));
        int64_t sum = 0, dense = 0;
        danaus_model_layer layer;
        for (int i = 0; !danaus_model_layer_at(s->model, i, &layer); i++) {
            sum += layer.parameters;
            dense += layer.rows * layer.cols;
        }
        assert_int_equal(info.linear_parameters, sum);
        assert_int_equal(info.dense_parameters, dense);
        assert_true((double)sum <= 0.6 * (double)dense);
        end(s);
    }
}

/* The first block's attention reads the same rows before and after, so that what its last layer
   is to make is what the dense one does. */
static void parts_of_sums_have_bounds(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(4); round++) {
        scene *s = make((uint64_t)(20 + round));
        const danaus_model_compression how = {
            .share = 0.5, .layers = "\\.0\\.attention\\.output\\.dense"
        };
        reader dense[MOST_LAYERS_HERE] = { 0 };
        read_all(s, dense);
        assert_ok(compress(s, &how));
        int found = 0;
        for (int i = 0; i < s->model->linears; i++) {
            const linear *layer = &s->model->linear[i];
            if (layer->fitted.basis) {
                loss lost = layer_loss(s->model, layer, &dense[i], &dense[i]);
                expect_told_loss(layer, &lost);
                found++;
            }
            free(dense[i].x);
        }
        assert_int_equal(found, 1);
        end(s);
    }
}

static void expect_good(const linear *layer, const loss *found)
{
    expect_as_good_as_dense(layer, found, RIDGE);
}

/* With all weights, least squares find the dense layers again, on what they were fitted to. */
static void all_weights_are_as_good_as_the_dense_ones(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(6); round++) {
        scene *s = make((uint64_t)(1 + round));
        const danaus_model_compression how = { .share = 1, .ridge = RIDGE };
        expect_losses(s, &how, expect_good);
        end(s);
    }
}

static void the_same_call_gives_the_same_bits(void **state)
{
    (void)state;
    float *first = NULL;
    for (int threads = 1; threads <= 2; threads++) {
        scene *s = make(2);
        assert_ok(danaus_device_set_threads(device, threads));
        const danaus_model_compression how = { .share = 0.5, .seed = 9 };
        assert_ok(compress(s, &how));
        float *found = embed(s, s->model);
        if (first)
            assert_memory_equal(
                first, found, (size_t)(SEQUENCES * s->m.width) * sizeof *found);
        free(first);
        first = found;
        end(s);
    }
    assert_ok(danaus_device_set_threads(device, 0));
    free(first);
}

/* Files of another model that this one lacks would count as its own. */
static void expect_refusal_of_other_folder(const scene *s, const char *folder)
{
    char path[200];
    assert_ok(danaus_model_save(s->model, folder)); /* once more is fine */
    snprintf(path, sizeof path, "%s/vocab.txt", folder);
    file_write(path, "a", 1);
    assert_status(danaus_model_save(s->model, folder), DANAUS_ERR_ARGUMENT);
    remove(path);
}

static void saved_models_are_the_same(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(12); round++) {
        scene *s = make((uint64_t)(40 + round));
        /* Some layers stay as they are. */
        const danaus_model_compression how = {
            .share = 0.7, .layers = round % 2 ? "layer\\.0\\..*(query|dense)" : NULL
        };
        char folder[160];
        danaus_model *saved;
        assert_ok(compress(s, &how));
        snprintf(folder, sizeof folder, "%s", scratch_path("saved"));
        assert_ok(danaus_model_save(s->model, folder));
        assert_ok(danaus_model_load(device, folder, &saved));
        danaus_model_info a, b;
        assert_ok(danaus_model_describe(s->model, &a));
        assert_ok(danaus_model_describe(saved, &b));
        assert_int_equal(a.linear_parameters, b.linear_parameters);
        for (int i = 0; i < s->model->linears; i++)
            expect_rounded(&saved->linear[i], &s->model->linear[i]);
        assert_status(danaus_model_save(saved, folder), DANAUS_ERR_ARGUMENT);
        danaus_model_destroy(saved);
        expect_refusal_of_other_folder(s, folder);
        bert_remove_saved();
        end(s);
    }
}

static int give_up(void *user, double done)
{
    (void)user;
    return done > 0.5;
}

static void failure_leaves_the_model_alone(void **state)
{
    (void)state;
    scene *s = make(7);
    float *before = embed(s, s->model);
    danaus_model_compression how = { .share = 0.5, .progress = give_up };
    assert_status(compress(s, &how), DANAUS_ERR_CANCELLED);
    how = (danaus_model_compression){ .share = 0.5, .layers = "(" };
    assert_status(compress(s, &how), DANAUS_ERR_ARGUMENT);
    how.layers = "nothing";
    assert_status(compress(s, &how), DANAUS_ERR_ARGUMENT);
    how = (danaus_model_compression){ .share = 1e-9 };
    assert_status(compress(s, &how), DANAUS_ERR_ARGUMENT);
    for (double share = -1; share < 3; share += 2.5) {
        how = (danaus_model_compression){ .share = share };
        assert_status(compress(s, &how), DANAUS_ERR_ARGUMENT);
    }
    how = (danaus_model_compression){ .share = NAN };
    assert_status(compress(s, &how), DANAUS_ERR_ARGUMENT);
    how = (danaus_model_compression){ .share = 0.5, .ridge = NAN };
    assert_status(compress(s, &how), DANAUS_ERR_ARGUMENT);
    how = (danaus_model_compression){ .share = 0.5, .reserved = { 1 } };
    assert_status(compress(s, &how), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_model_compress(s->model, device, 1, s->offsets, s->ids, &how),
        DANAUS_ERR_ARGUMENT);
    float *after = embed(s, s->model);
    assert_memory_equal(
        before, after, (size_t)(SEQUENCES * s->m.width) * sizeof *after);
    how = (danaus_model_compression){ .share = 0.5 };
    assert_ok(compress(s, &how));
    assert_status(compress(s, &how), DANAUS_ERR_UNSUPPORTED);
    free(before);
    free(after);
    end(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_go_back),
        cmocka_unit_test(budgets_are_kept_and_errors_told),
        cmocka_unit_test(parts_of_sums_have_bounds),
        cmocka_unit_test(all_weights_are_as_good_as_the_dense_ones),
        cmocka_unit_test(the_same_call_gives_the_same_bits),
        cmocka_unit_test(saved_models_are_the_same),
        cmocka_unit_test(failure_leaves_the_model_alone),
    };
    device = device_from_arguments(argc, argv);
    int failed = cmocka_run_group_tests(tests, scratch_setup, bert_teardown);
    danaus_device_close(device);
    return failed;
}
