/* Models of every kind, compressed by what their layers read: with all weights they are the
   dense ones, errors are those that are told, layers of low rank are found again, and what
   cannot be is refused. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "model/arch.h"
#include "support/device.h"
#include "support/files.h"
#include "support/hyena.h"
#include "support/losses.h"
#include "support/m2_bert.h"
#include "support/mixer_vit.h"
#include "support/scenes.h"
#include "support/vit.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { SAMPLES = 60, LONGEST = 12, MOST_LAYERS_HERE = 24 };

#define RIDGE  0.05
#define CHAINS (DANAUS_TRY_MONARCH | DANAUS_TRY_COLUMN_GROUPS | DANAUS_TRY_SUM)

typedef enum kind { M2, HYENA, VIT, HYENA_VIT, M2_VIT, KINDS } kind;

static danaus_device *device;

/* A model, and what it is compressed with. */
typedef struct scene {
    kind kind;
    small_m2 m2;
    small_hyena hyena;
    small_mixer_vit mixer;
    danaus_model *model;
    texts t;
    float *pixels;
} scene;

/* The structure of layers. The last two are for layers whose sizes are divisible by 4. */
typedef enum planted { NOTHING, RANK_2, MONARCH_1, FOUR_BLOCKS } planted;

/* Numbers of a layer become a product of this rank. */
static void fill_rank(rng *r, int64_t rank, int64_t rows, int64_t cols, float *w)
{
    memset(w, 0, (size_t)(rows * cols) * sizeof *w);
    for (int64_t k = 0; k < rank; k++) {
        double left[256], right[256];
        for (int64_t n = 0; n < rows; n++)
            left[n] = rng_sign(r);
        for (int64_t n = 0; n < cols; n++)
            right[n] = rng_sign(r) / sqrt((double)cols);
        for (int64_t n = 0; n < rows * cols; n++)
            w[n] += (float)(left[n / cols] * right[n % cols]);
    }
}

/* Those of four blocks on the diagonal, or of a Monarch matrix of four groups and block rank 1. */
static void fill_structure(rng *r, planted what, int64_t rows, int64_t cols, float *w)
{
    float left[4][256], right[4][256];
    for (int64_t n = 0; n < 4 * 256; n++) {
        left[n / 256][n % 256] = (float)rng_sign(r);
        right[n / 256][n % 256] = (float)(rng_sign(r) / sqrt((double)cols));
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            int64_t group = 4 * j / cols;
            w[i * cols + j] = what == MONARCH_1 ? left[group][i] * right[i % 4][j]
                              : 4 * i / rows == group
                                  ? (float)(rng_sign(r) / sqrt((double)cols))
                                  : 0;
        }
}

static void plant(named_arrays *arrays, rng *r, planted what)
{
    for (int i = 0; i < arrays->count; i++) {
        const danaus_tensor *t = &arrays->tensor[i];
        int is_layer = strstr(arrays->name[i], "linear.weight") ||
                       strstr(arrays->name[i], "proj.weight") ||
                       strstr(arrays->name[i], "proj.layer.weight") ||
                       strstr(arrays->name[i], ".fc");
        if (t->ndim != 2 || !is_layer)
            continue;
        float *w = (float *)(uintptr_t)t->data;
        if (what == RANK_2)
            fill_rank(r, 2, t->shape[0], t->shape[1], w);
        else if (t->shape[0] % 4 == 0 && t->shape[1] % 4 == 0)
            fill_structure(r, what, t->shape[0], t->shape[1], w);
    }
}

static void load_tokens(scene *s, rng *r, planted what)
{
    int64_t longest, vocabulary;
    if (s->kind == M2) {
        do {
            m2_free(&s->m2);
            s->m2 = m2_random(r);
        } while (s->m2.width < 10 || s->m2.inner < 10 || s->m2.length < LONGEST ||
                 (what > RANK_2 && s->m2.width % 4));
        if (what)
            plant(&s->m2.arrays, r, what);
        s->model = m2_load(&s->m2, device);
        longest = LONGEST;
        vocabulary = s->m2.vocabulary;
    } else {
        do {
            hyena_free(&s->hyena);
            s->hyena = hyena_random(r, 2 * LONGEST);
        } while (s->hyena.width < 8 || s->hyena.filter.length < LONGEST ||
                 (what > RANK_2 && s->hyena.width % 4));
        if (what)
            plant(&s->hyena.arrays, r, what);
        hyena_write(&s->hyena);
        s->model = hyena_load(&s->hyena, device);
        longest = LONGEST;
        vocabulary = s->hyena.vocabulary;
    }
    s->t = texts_random(r, SAMPLES, longest, vocabulary);
}

static void load_images(scene *s, rng *r)
{
    danaus_model_info info;
    small_mixer_vit *m = &s->mixer;
    if (s->kind == VIT) {
        s->model = vit_load(r, device);
    } else {
        do {
            mixer_vit_free(m);
            *m = mixer_vit_random(r, s->kind == M2_VIT);
        } while (m->width < 8 || m->inner < 10 || m->patches < 4 || !m->classes);
        s->model = mixer_vit_load(m, device);
    }
    assert_ok(danaus_model_describe(s->model, &info));
    int64_t count = SAMPLES * info.image_channels * info.image_size * info.image_size;
    s->pixels = calloc((size_t)count, sizeof *s->pixels);
    assert_non_null(s->pixels);
    for (int64_t i = 0; i < count; i++)
        s->pixels[i] = (float)rng_sign(r);
}

static scene *make(kind of, uint64_t seed, planted what)
{
    rng r = { seed };
    scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->kind = of;
    if (of == M2 || of == HYENA)
        load_tokens(s, &r, what);
    else
        load_images(s, &r);
    return s;
}

static void end(scene *s)
{
    danaus_model_destroy(s->model);
    m2_free(&s->m2);
    hyena_free(&s->hyena);
    mixer_vit_free(&s->mixer);
    texts_free(&s->t);
    free(s->pixels);
    free(s);
}

static danaus_status compress(scene *s, const danaus_model_compression *how)
{
    if (s->pixels)
        return danaus_model_compress_images(s->model, device, SAMPLES, s->pixels, how);
    return danaus_model_compress(
        s->model, device, SAMPLES, s->t.offsets, s->t.ids, how);
}

/* Embeddings, log-probabilities or scores of all samples. */
static float *run(const scene *s, danaus_model *model, int64_t *numbers)
{
    danaus_model_info info;
    assert_ok(danaus_model_describe(model, &info));
    *numbers = s->kind == M2      ? SAMPLES * info.embedding
               : s->kind == HYENA ? s->t.offsets[SAMPLES]
                                  : SAMPLES * info.classes;
    float *y = calloc((size_t)*numbers, sizeof *y);
    if (s->kind == M2)
        assert_ok(
            danaus_model_embed(model, device, SAMPLES, s->t.offsets, s->t.ids, y));
    else if (s->kind == HYENA)
        assert_ok(danaus_model_score(
            model, device, SAMPLES, s->t.offsets, s->t.ids, NULL, NULL, y));
    else
        assert_ok(danaus_model_classify(model, device, SAMPLES, s->pixels, y));
    return y;
}

/* ---- what comes out ---- */

/* What layers read while all samples run. */
static void read_all(const scene *s, reader *of)
{
    int64_t numbers;
    assert_in_range(s->model->linears, 1, MOST_LAYERS_HERE);
    readers_start(s->model, of);
    free(run(s, s->model, &numbers));
    readers_stop(s->model);
}

/* Compresses a model, and calls for each layer that was fitted. */
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
        if (layer->fitted.basis) {
            loss found = layer_loss(s->model, layer, &dense[i], &here[i]);
            expect(layer, &found);
        }
        free(dense[i].x);
        free(here[i].x);
    }
}

static void expect_good(const linear *layer, const loss *found)
{
    expect_as_good_as_dense(layer, found, RIDGE);
}

static void all_weights_are_as_good_as_the_dense_ones(void **state)
{
    (void)state;
    const danaus_model_compression how = { .share = 1, .ridge = RIDGE };
    for (int round = 0; round < 4 * KINDS; round++) {
        scene *s = make((kind)(round % KINDS), (uint64_t)round, NOTHING);
        expect_losses(s, &how, expect_good);
        end(s);
    }
}

/* Layers of low rank cost no more than they are worth, and nothing is lost. */
static void layers_of_low_rank_are_found_again(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        scene *s = make(round % 2 ? M2 : HYENA, (uint64_t)(60 + round), RANK_2);
        const danaus_model_compression how = { .share = 0.8,
                                               .ridge = RIDGE,
                                               .layers = "linear|proj|fc" };
        expect_losses(s, &how, expect_good);
        end(s);
    }
}

static void budgets_are_kept(void **state)
{
    (void)state;
    for (int round = 0; round < 3 * KINDS; round++) {
        scene *s = make((kind)(round % KINDS), (uint64_t)(20 + round), NOTHING);
        const danaus_model_compression how = { .share = 0.6,
                                               .candidates = round % 2 ? CHAINS : 0 };
        danaus_model_layer layer;
        assert_ok(compress(s, &how));
        int64_t kept = 0, dense = 0;
        for (int i = 0; !danaus_model_layer_at(s->model, i, &layer); i++)
            if (layer.patterns->a == 1) {
                kept += layer.parameters;
                dense += layer.rows * layer.cols;
            }
        assert_true((double)kept <= 0.6 * (double)dense);
        end(s);
    }
}

static void errors_are_those_that_are_told(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * KINDS; round++) {
        scene *s = make((kind)(round % KINDS), (uint64_t)(80 + round), NOTHING);
        const danaus_model_compression how = { .share = 0.3,
                                               .candidates =
                                                   round / KINDS ? CHAINS : 0 };
        expect_losses(s, &how, expect_told_loss);
        end(s);
    }
}

/* The first layer alone, which reads the same rows before and after. */
static void no_rank_loses_less_than_can_be_and_more_weights_lose_no_more(void **state)
{
    (void)state;
    for (int round = 0; round < KINDS; round++) {
        double before = INFINITY;
        for (double share = 0.3; share <= 1; share += 0.35) {
            scene *s = make((kind)round, (uint64_t)(120 + round), NOTHING);
            linear *layer = s->model->linear;
            reader dense[MOST_LAYERS_HERE] = { 0 };
            char name[200];
            snprintf(name, sizeof name, "^%s$", layer->name);
            read_all(s, dense);
            assert_ok(compress(
                s, &(danaus_model_compression){ .share = share, .layers = name }));
            loss found = layer_loss(s->model, layer, dense, dense);
            assert_true(
                found.fitted >=
                least_loss(s->model, layer, dense) * (1 - 1e-9) - found.slack);
            assert_true(found.fitted <= before + 2 * found.slack);
            before = found.fitted;
            for (int i = 0; i < s->model->linears; i++)
                free(dense[i].x);
            end(s);
        }
    }
}

/* ---- files ---- */

static void remove_saved(void)
{
    static const char *const names[] = { "saved/model.safetensors", "saved/config.json",
                                         "saved/tokenizer_config.json" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        remove(scratch_path(names[i]));
    remove(scratch_path("saved"));
}

/* The disk is full after 1,000 bytes. */
static void a_folder_that_cannot_be_filled_is_gone(void **state)
{
    (void)state;
    scene *s = make((kind)0, 40, NOTHING);
    char folder[160];
    struct rlimit limit, small;
    struct stat there;
    snprintf(folder, sizeof folder, "%s", scratch_path("saved"));
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 1000;
    for (int older = 0; older < 2; older++) {
        if (older)
            assert_int_equal(mkdir(folder, 0700), 0);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        danaus_status status = danaus_model_save(s->model, folder);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_int_equal(status, DANAUS_ERR_IO);
        assert_int_equal(stat(folder, &there) == 0, older);
    }
    signal(SIGXFSZ, SIG_DFL);
    remove_saved();
    end(s);
}

static void expect_near(const float *y, const float *z, int64_t count)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        error += ((double)y[i] - z[i]) * ((double)y[i] - z[i]);
        size += (double)y[i] * y[i];
    }
    assert_true(error <= 1e-8 * size);
}

static void expect_saved(const scene *s)
{
    char folder[160];
    int64_t numbers;
    danaus_model *saved;
    snprintf(folder, sizeof folder, "%s", scratch_path("saved"));
    assert_ok(danaus_model_save(s->model, folder));
    assert_ok(danaus_model_load(device, folder, &saved));
    for (int i = 0; i < s->model->linears; i++)
        expect_rounded(&saved->linear[i], &s->model->linear[i]);
    float *y = run(s, s->model, &numbers), *z = run(s, saved, &numbers);
    expect_near(y, z, numbers);
    free(y);
    free(z);
    danaus_model_destroy(saved);
    remove_saved();
}

static void saved_models_are_the_same(void **state)
{
    (void)state;
    for (int round = 0; round < 3 * KINDS; round++) {
        scene *s = make((kind)(round % KINDS), (uint64_t)(40 + round), NOTHING);
        const danaus_model_compression how = { .share = 0.7 };
        assert_ok(compress(s, &how));
        expect_saved(s);
        end(s);
    }
}

static void layers_that_are_chains_become_chains(void **state)
{
    (void)state;
    int chains = 0, sums = 0;
    for (int round = 0; round < 4; round++) {
        int is_sum = round / 2;
        scene *s = make(
            round % 2 ? M2 : HYENA, (uint64_t)(204 + round),
            is_sum ? FOUR_BLOCKS : MONARCH_1);
        const danaus_model_compression how = { .share = 0.5,
                                               .layers = "linear|proj|fc",
                                               .candidates = is_sum
                                                                 ? DANAUS_TRY_SUM
                                                                 : DANAUS_TRY_MONARCH };
        expect_losses(s, &how, expect_told_loss);
        for (int i = 0; i < s->model->linears; i++) {
            const fit *f = &s->model->linear[i].fitted;
            chains += f->chain[0] && !f->chain[1];
            sums += f->chain[1] != NULL;
        }
        expect_saved(s);
        end(s);
    }
    assert_true(chains > 0 && sums > 0);
}

/* ---- other ways ---- */

static void weights_alone_are_enough(void **state)
{
    (void)state;
    const int64_t offsets[] = { 0 };
    for (int round = 0; round < 2 * KINDS; round++) {
        scene *s = make((kind)(round % KINDS), (uint64_t)(100 + round), NOTHING);
        const danaus_model_compression how = { .share = round < KINDS ? 1 : 0.5 };
        if (s->pixels)
            assert_ok(danaus_model_compress_images(s->model, device, 0, NULL, &how));
        else
            assert_ok(danaus_model_compress(s->model, device, 0, offsets, NULL, &how));
        for (int i = 0; i < s->model->linears; i++)
            if (s->model->linear[i].fitted.basis)
                expect_best_of_rank(s->model, &s->model->linear[i]);
        end(s);
    }
}

static int give_up(void *user, double done) { return done > *(const double *)user; }

static void failure_leaves_the_model_alone(void **state)
{
    (void)state;
    for (kind of = M2; of < KINDS; of++) {
        scene *s = make(of, 7, NOTHING);
        int64_t numbers;
        float *before = run(s, s->model, &numbers);
        for (double done = -1; done < 0.7; done += 0.27) {
            const danaus_model_compression how = { .share = 0.5,
                                                   .progress = give_up,
                                                   .user = &done };
            assert_status(compress(s, &how), DANAUS_ERR_CANCELLED);
        }
        danaus_model_compression how = { .share = 0.5, .layers = "nothing" };
        assert_status(compress(s, &how), DANAUS_ERR_ARGUMENT);
        how.layers = "(";
        assert_status(compress(s, &how), DANAUS_ERR_ARGUMENT);
        how = (danaus_model_compression){ .share = 1e-9 };
        assert_status(compress(s, &how), DANAUS_ERR_ARGUMENT);
        how = (danaus_model_compression){ .share = 2 };
        assert_status(compress(s, &how), DANAUS_ERR_ARGUMENT);
        how = (danaus_model_compression){ .share = 0.5, .candidates = DANAUS_TRY_SUMS };
        assert_status(compress(s, &how), DANAUS_ERR_ARGUMENT);
        float *after = run(s, s->model, &numbers);
        assert_memory_equal(before, after, (size_t)numbers * sizeof *after);
        how = (danaus_model_compression){ .share = 0.5 };
        assert_ok(compress(s, &how));
        assert_status(compress(s, &how), DANAUS_ERR_UNSUPPORTED);
        free(before);
        free(after);
        end(s);
    }
}

static void samples_are_of_the_kind_of_the_model(void **state)
{
    (void)state;
    const danaus_model_compression how = { .share = 0.5 };
    const int64_t offsets[] = { 0, 1 };
    const int32_t id = 0, other = 1 << 20;
    float pixels[VIT_IMAGE] = { 0 };
    scene *s = make(VIT, 1, NOTHING);
    assert_status(
        danaus_model_compress(s->model, device, 1, offsets, &id, &how),
        DANAUS_ERR_UNSUPPORTED);
    assert_status(
        danaus_model_compress_images(s->model, device, 1, NULL, &how),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_model_compress_images(s->model, device, 1, pixels, NULL),
        DANAUS_ERR_ARGUMENT);
    end(s);
    s = make(M2, 1, NOTHING);
    assert_status(
        danaus_model_compress_images(s->model, device, 1, pixels, &how),
        DANAUS_ERR_UNSUPPORTED);
    assert_status(
        danaus_model_compress(s->model, device, 1, offsets, &other, &how),
        DANAUS_ERR_ARGUMENT);
    assert_status(/* one row */
                  danaus_model_compress(s->model, device, 1, offsets, &id, &how),
                  DANAUS_ERR_ARGUMENT);
    end(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_weights_are_as_good_as_the_dense_ones),
        cmocka_unit_test(layers_of_low_rank_are_found_again),
        cmocka_unit_test(budgets_are_kept),
        cmocka_unit_test(errors_are_those_that_are_told),
        cmocka_unit_test(no_rank_loses_less_than_can_be_and_more_weights_lose_no_more),
        cmocka_unit_test(a_folder_that_cannot_be_filled_is_gone),
        cmocka_unit_test(saved_models_are_the_same),
        cmocka_unit_test(layers_that_are_chains_become_chains),
        cmocka_unit_test(weights_alone_are_enough),
        cmocka_unit_test(failure_leaves_the_model_alone),
        cmocka_unit_test(samples_are_of_the_kind_of_the_model),
    };
    device = device_from_arguments(argc, argv);
    int failed = cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
    danaus_device_close(device);
    return failed;
}
