/* Small HyenaViTs and M2-ViTs: embeddings and scores are those of plain loops, however many images
   go through together; and what does not fit is refused. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/files.h"
#include "support/mixer_vit.h"
#include "support/scenes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BOUND 8
/* Runs of the plain loops with noise. */
#define RUNS 4

static danaus_device *device;

static float *random_images(rng *r, const small_mixer_vit *m, int64_t images)
{
    int64_t count = images * mixer_vit_image(m);
    float *pixels = calloc((size_t)count, sizeof *pixels);
    assert_non_null(pixels);
    for (int64_t i = 0; i < count; i++)
        pixels[i] = (float)rng_sign(r);
    return pixels;
}

/* What plain loops say of an image, and how far noise moves it. */
typedef struct plain {
    double embedding[MIXER_VIT_MOST], scores[MIXER_VIT_MOST];
    double embedding_moves, scores_move;
} plain;

static void run_plain(
    const small_mixer_vit *m, const float *pixels, plain *p, rng *noise)
{
    mixer_vit_embed(m, pixels, p->embedding, noise);
    if (m->classes)
        mixer_vit_scores(m, p->embedding, p->scores, noise);
}

static double farthest(const double *x, const double *y, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i] - y[i]));
    return most;
}

static plain plain_of(const small_mixer_vit *m, const float *pixels)
{
    plain p = { .embedding_moves = 0 }, near;
    run_plain(m, pixels, &p, NULL);
    for (uint64_t run = 0; run < RUNS; run++) {
        rng noise = { run };
        run_plain(m, pixels, &near, &noise);
        p.embedding_moves =
            fmax(p.embedding_moves, farthest(p.embedding, near.embedding, m->width));
        p.scores_move =
            fmax(p.scores_move, farthest(p.scores, near.scores, m->classes));
    }
    return p;
}

static void expect_close(
    const char *what, int64_t n, const float *is, const double *wanted, double moved)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(is[i] - wanted[i]) <= BOUND * moved + 1e-30))
            fail_msg(
                "%s %d is %.9g, not %.9g; %g is allowed", what, (int)i, is[i],
                wanted[i], BOUND * moved);
}

/* Images through a model: nothing is written behind what is found. */
static void expect_images(
    danaus_model *model, const small_mixer_vit *m, int64_t images, const float *pixels)
{
    int64_t n = images * m->width, k = images * m->classes;
    float *embeddings = calloc((size_t)(n + k + 2), sizeof *embeddings);
    float *scores = embeddings + n + 1;
    assert_non_null(embeddings);
    embeddings[n] = scores[k] = 17;
    assert_ok(danaus_model_embed_images(model, device, images, pixels, embeddings));
    if (m->classes)
        assert_ok(danaus_model_classify(model, device, images, pixels, scores));
    assert_true(embeddings[n] == 17 && scores[k] == 17);
    for (int64_t i = 0; i < images; i++) {
        plain p = plain_of(m, pixels + i * mixer_vit_image(m));
        expect_close(
            "number", m->width, embeddings + i * m->width, p.embedding,
            p.embedding_moves);
        expect_close(
            "score", m->classes, scores + i * m->classes, p.scores, p.scores_move);
    }
    free(embeddings);
}

static void scores_are_those_of_plain_loops(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        small_mixer_vit m = mixer_vit_random(&r, round % 2);
        int64_t images = rng_int(&r, 1, 5);
        danaus_model *model = mixer_vit_load(&m, device);
        float *pixels = random_images(&r, &m, images);
        expect_images(model, &m, images, pixels);
        danaus_model_destroy(model);
        mixer_vit_free(&m);
        free(pixels);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_of_plain_loops),
    };
    device = device_from_arguments(argc, argv);
    int failed = cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
    danaus_device_close(device);
    return failed;
}
