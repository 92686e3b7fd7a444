/* Small causal models of Hyena's kind: states and likelihoods are those of plain loops, whatever
   goes through together, whole or token after token; what is later changes nothing that is
   earlier; and what does not fit is refused. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/files.h"
#include "support/hyena.h"
#include "support/scenes.h"

#include "model/hyena/hyena.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static danaus_device *device;

/* ---- what plain loops say of a sequence, and how much it moves ---- */

typedef struct plain {
    int64_t length;
    double *h, *scores;
    double h_moves, scores_move;
} plain;

static double farthest(const double *x, const double *y, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i] - y[i]));
    return most;
}

static plain plain_of(
    const small_hyena *m, const int32_t *ids, int64_t length, int runs)
{
    int64_t n = length * m->width;
    plain p = { .length = length };
    p.h = calloc((size_t)(2 * (n + length)), sizeof *p.h);
    p.scores = p.h + n;
    double *h = p.scores + length, *scores = h + n;
    hyena_states(m, ids, length, p.h, NULL);
    hyena_scores(m, ids, length, p.h, p.scores, NULL);
    for (int run = 0; run < runs; run++) {
        rng noise = { (uint64_t)run };
        hyena_states(m, ids, length, h, &noise);
        hyena_scores(m, ids, length, h, scores, &noise);
        p.h_moves = fmax(p.h_moves, farthest(h, p.h, n));
        p.scores_move = fmax(p.scores_move, farthest(scores, p.scores, length));
    }
    return p;
}

static void expect_close(
    const char *what, int64_t at, double is, double wanted, double moved)
{
    if (!(fabs(is - wanted) <= HYENA_BOUND * moved + 1e-30))
        fail_msg(
            "%s %d is %.9g, not %.9g; %g is allowed", what, (int)at, is, wanted,
            HYENA_BOUND * moved);
}

/* ---- sequences ---- */

static float *score_all(danaus_model *model, const texts *t)
{
    int64_t tokens = t->offsets[t->count];
    float *scores = calloc((size_t)tokens + 1, sizeof *scores);
    scores[tokens] = 17;
    assert_ok(danaus_model_score(
        model, device, t->count, t->offsets, t->ids, NULL, NULL, scores));
    assert_true(scores[tokens] == 17);
    return scores;
}

/* Embeddings are means of states. */
static void expect_texts(danaus_model *model, const small_hyena *m, const texts *t)
{
    float *scores = score_all(model, t);
    float *y = calloc((size_t)(t->count * m->width), sizeof *y);
    assert_ok(danaus_model_embed(model, device, t->count, t->offsets, t->ids, y));
    for (int64_t i = 0; i < t->count; i++) {
        int64_t from = t->offsets[i], length = t->offsets[i + 1] - from;
        plain p = plain_of(m, t->ids + from, length, 4);
        for (int64_t n = 0; n < length; n++)
            expect_close("score", n, scores[from + n], p.scores[n], p.scores_move);
        for (int64_t c = 0; c < m->width; c++) {
            double mean = 0;
            for (int64_t n = 0; n < length; n++)
                mean += p.h[n * m->width + c] / (double)length;
            expect_close("mean", c, y[i * m->width + c], mean, p.h_moves + 1e-7);
        }
        free(p.h);
    }
    free(scores);
    free(y);
}

static void likelihoods_are_those_of_plain_loops(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        int64_t length = rng_int(&r, 1, 120);
        small_hyena m = hyena_random(&r, length);
        danaus_model *model = hyena_load(&m, device);
        texts t = texts_random(&r, rng_int(&r, 1, 5), length, m.vocabulary);
        expect_texts(model, &m, &t);
        texts_free(&t);
        danaus_model_destroy(model);
        hyena_free(&m);
    }
}

/* Calls with lengths that ask for other plans, with few channels together, and with spectra
   that are not kept. */
static void any_way_to_convolve_gives_the_same(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(10); round++) {
        rng r = { 100 + (uint64_t)round };
        small_hyena m = hyena_random(&r, 1500);
        danaus_model *model = hyena_load(&m, device);
        hyena *own = model->blocks;
        own->convs.group_numbers = rng_int(&r, 1, 20) * 1024;
        own->convs.most_spectra = round % 2 ? 0 : (size_t)1 << 30;
        for (int call = 0; call < 2; call++) {
            texts t =
                texts_random(&r, rng_int(&r, 1, 3), call ? 300 : 20, m.vocabulary);
            expect_texts(model, &m, &t);
            texts_free(&t);
        }
        danaus_model_destroy(model);
        hyena_free(&m);
    }
}

/* Also where filters are shorter. */
static void long_sequences_have_plans_of_their_own(void **state)
{
    (void)state;
    rng r = { 7 };
    for (int way = 0; way < 4; way++) {
        int kept = way % 2, few = way / 2;
        small_hyena m = hyena_random(&r, few ? 500 : 4200);
        while (m.width * m.layers * m.head * m.order > 12) {
            hyena_free(&m);
            m = hyena_random(&r, few ? 500 : 4200);
        }
        m.filter.taps = few ? 300 : 0;
        danaus_model *model = hyena_load(&m, device);
        hyena *own = model->blocks;
        own->convs.group_numbers = 1 << 14;
        own->convs.most_spectra = kept ? (size_t)1 << 30 : 0;
        texts t = texts_random(&r, 2, 1, m.vocabulary);
        texts_fill(&r, &t, (const int64_t[]){ 4200, 4097 }, m.vocabulary);
        float *scores = score_all(model, &t);
        for (int64_t i = 0; i < 2; i++) {
            int64_t from = t.offsets[i], length = t.offsets[i + 1] - from;
            plain p = plain_of(&m, t.ids + from, length, 1);
            for (int64_t n = 0; n < length; n++)
                expect_close("score", n, scores[from + n], p.scores[n], p.scores_move);
            free(p.h);
        }
        free(scores);
        texts_free(&t);
        danaus_model_destroy(model);
        hyena_free(&m);
    }
}

/* One allocation serves chunks of different sizes. */
static void memory_for_many_tokens_holds_fewer(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(8); round++) {
        rng r = { 300 + (uint64_t)round };
        small_hyena m = hyena_random(&r, 4200);
        danaus_model *model = hyena_load(&m, device);
        int64_t before = 0;
        for (int64_t n = 1; n <= 4200; n++) {
            int64_t room = dn_hyena_mixer.bytes(model->blocks, n, n);
            if (room < before)
                fail_msg(
                    "%d tokens need %d bytes, fewer %d", (int)n, (int)room,
                    (int)before);
            before = room;
        }
        danaus_model_destroy(model);
        hyena_free(&m);
    }
}

/* ---- the vectors of HyenaDNA ---- */

static void known_states_come_out(void **state)
{
    (void)state;
    static const double first[2][8] = {
        { -1.0666790423, -0.5522966168, -1.0575920114, -0.4351237442, -0.9790152623,
          0.4347091609, -0.2920222709, 1.7756540597 },
        { -0.7509841986, -0.8779702131, -1.0007373024, -0.9795248480, -0.6560047943,
          -0.3448396129, 1.6795715079, 2.5511208995 },
    };
    static const double last[2][8] = {
        { -0.5430846997, -0.9033149976, -0.6174865583, -0.9318397873, 0.0683564668,
          -1.0302053388, 1.4787100721, -1.2245373174 },
        { -0.4798207686, -0.9081452697, -0.8316537920, -0.6029740903, -0.9419502293,
          0.5016906547, -1.5815822947, 2.4302855953 },
    };
    int32_t ids[12];
    for (int t = 0; t < 12; t++)
        ids[t] = 7 + (3 * t + 1) % 5;
    for (int order = 2; order <= 3; order++) {
        small_hyena m = hyena_known(order);
        danaus_model *model = hyena_load(&m, device);
        /* Means of the first token, of all but the last, and of all. */
        const int64_t offsets[] = { 0, 1, 12, 24 };
        int32_t three[24];
        memcpy(three, ids, sizeof *ids);
        memcpy(three + 1, ids, 11 * sizeof *ids);
        memcpy(three + 12, ids, 12 * sizeof *ids);
        float y[3][8];
        double h[12 * 8];
        assert_ok(danaus_model_embed(model, device, 3, offsets, three, y[0]));
        hyena_states(&m, ids, 12, h, NULL);
        for (int i = 0; i < 8; i++) {
            assert_true(fabs(y[0][i] - first[order - 2][i]) < 1e-5);
            /* A difference of sums of means, which are within 1e-6 each. */
            double end = 12.0 * y[2][i] - 11.0 * y[1][i];
            assert_true(fabs(end - last[order - 2][i]) < (12 + 11) * 1e-6);
            /* What is left is the rounding of weights to f32. */
            assert_true(fabs(h[i] - first[order - 2][i]) < 1e-6);
            assert_true(fabs(h[88 + i] - last[order - 2][i]) < 1e-6);
        }
        danaus_model_destroy(model);
        hyena_free(&m);
    }
}

/* ---- causality ---- */

static void what_is_later_changes_nothing_earlier(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(20); round++) {
        rng r = { 50 + (uint64_t)round };
        int64_t length = rng_int(&r, 2, 100);
        small_hyena m = hyena_random(&r, length);
        danaus_model *model = hyena_load(&m, device);
        texts t = texts_random(&r, 1, 1, m.vocabulary);
        texts_fill(&r, &t, &length, m.vocabulary);
        plain p = plain_of(&m, t.ids, length, 4);
        float *before = score_all(model, &t);
        int64_t changed = rng_int(&r, 1, length - 1);
        t.ids[changed] = (int32_t)((t.ids[changed] + 1) % m.vocabulary);
        float *after = score_all(model, &t);
        for (int64_t n = 0; n < changed; n++)
            expect_close("score", n, after[n], before[n], 2 * p.scores_move);
        assert_true(fabs(after[changed] - before[changed]) > 100 * p.scores_move);
        free(before);
        free(after);
        free(p.h);
        texts_free(&t);
        danaus_model_destroy(model);
        hyena_free(&m);
    }
}

static void outlines_say_what_models_do(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        rng r = { (uint64_t)round };
        small_hyena m = hyena_random(&r, rng_int(&r, 1, 120));
        danaus_model *model = hyena_load(&m, device);
        expect_outline(model, device);
        danaus_model_destroy(model);
        hyena_free(&m);
    }
}

typedef struct counter {
    watcher watcher;
    int64_t rows;
} counter;

static danaus_status count_rows(
    watcher *of, const struct linear *layer, int64_t rows, const void *x)
{
    (void)layer, (void)x;
    ((counter *)of)->rows += rows;
    return DANAUS_OK;
}

/* Compression needs what layers read, of every token: also where the first block would find
   its products by words. */
static void layers_read_every_token_that_is_watched(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        rng r = { 800 + (uint64_t)round };
        small_hyena m = hyena_random(&r, 200);
        danaus_model *model = hyena_load(&m, device);
        hyena *own = model->blocks;
        texts t = texts_random(&r, 1, 1, m.vocabulary);
        texts_fill(&r, &t, &(int64_t){ 200 }, m.vocabulary);
        float *found = score_all(model, &t);
        counter seen = { .watcher = { count_rows } };
        own->blocks[0].linear[HYENA_IN].watcher = &seen.watcher;
        float *watched = score_all(model, &t);
        own->blocks[0].linear[HYENA_IN].watcher = NULL;
        assert_int_equal(seen.rows, 200);
        plain p = plain_of(&m, t.ids, 200, 1);
        for (int64_t n = 0; n < 200; n++)
            expect_close("score", n, watched[n], found[n], 2 * p.scores_move);
        free(p.h);
        free(found);
        free(watched);
        texts_free(&t);
        danaus_model_destroy(model);
        hyena_free(&m);
    }
}

static void threads_do_not_change_likelihoods(void **state)
{
    (void)state;
    need_threads(device);
    rng r = { 11 };
    small_hyena m = hyena_random(&r, 700);
    danaus_model *model = hyena_load(&m, device);
    texts t = texts_random(&r, 9, 700, m.vocabulary);
    float *one = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        assert_ok(danaus_device_set_threads(device, threads));
        float *found = score_all(model, &t);
        one = one ? one : found;
        assert_memory_equal(found, one, (size_t)t.offsets[9] * sizeof *found);
        if (found != one)
            free(found);
    }
    assert_ok(danaus_device_set_threads(device, 0));
    free(one);
    texts_free(&t);
    danaus_model_destroy(model);
    hyena_free(&m);
}

/* ---- token after token ---- */

/* A text in steps of any size: logits behind each are those of the whole. */
static void expect_steps(
    danaus_model *model, const small_hyena *m, rng *r, const int32_t *ids,
    int64_t length)
{
    plain p = plain_of(m, ids, length, 3);
    hyena_text begun;
    float logits[64];
    double wanted[64], size = 0;
    assert_ok(dn_hyena_text_open(&begun, model->blocks, device, length));
    for (int64_t at = 0, n; at < length; at += n) {
        n = rng_int(r, 0, 3) ? 1 : rng_int(r, 1, length - at);
        assert_ok(dn_hyena_text_go_on(&begun, ids + at, n, logits));
        hyena_logits(m, p.h + (at + n - 1) * m->width, wanted, NULL);
        for (int64_t v = 0; v < m->rows; v++)
            size = fmax(size, fabs(wanted[v]));
        /* An error of h times a row of the table, whose numbers are at most 1. */
        double moved = (double)m->width * p.h_moves + size * 0x1p-22;
        for (int64_t v = 0; v < m->rows; v++)
            expect_close("logit", v, logits[v], wanted[v], moved);
    }
    dn_hyena_text_close(&begun);
    free(p.h);
}

static void steps_give_the_logits_of_the_whole(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { 200 + (uint64_t)round };
        int64_t length = rng_int(&r, 1, 400);
        small_hyena m = hyena_random(&r, length + rng_int(&r, 0, 50));
        danaus_model *model = hyena_load(&m, device);
        int32_t ids[400];
        for (int64_t i = 0; i < length; i++)
            ids[i] = (int32_t)rng_int(&r, 0, m.vocabulary - 1);
        expect_steps(model, &m, &r, ids, length);
        danaus_model_destroy(model);
        hyena_free(&m);
    }
}

/* What lies between layers, and channels, in f16 and bf16. */
static void rows_may_have_sixteen_bits(void **state)
{
    (void)state;
    need_sixteen_bits(device);
    for (int round = 0; round < 2 * rounds_of(10); round++) {
        rng r = { 900 + (uint64_t)round };
        int64_t length = rng_int(&r, 1, 100);
        small_hyena m = hyena_random(&r, length);
        while ((m.head > 1) != round % 2) {
            hyena_free(&m);
            m = hyena_random(&r, length);
        }
        m.filter.taps = rng_int(&r, 0, 1) ? rng_int(&r, 1, length) : 0;
        hyena_write(&m);
        danaus_model *model = sixteen_bits_load(device, round);
        texts t =
            texts_random(&r, 3, m.filter.taps ? 2 * length : length, m.vocabulary);
        expect_texts(model, &m, &t);
        expect_steps(model, &m, &r, t.ids, t.offsets[1]);
        expect_outline(model, device);
        texts_free(&t);
        sixteen_bits_close(model);
        hyena_free(&m);
    }
}

typedef struct written {
    int64_t count, stop;
    int32_t ids[500];
} written;

static int write_token(void *user, int32_t token)
{
    written *w = user;
    w->ids[w->count++] = token;
    return w->count == w->stop;
}

static written written_by(
    danaus_model *model, const int32_t *prompt, int64_t n, danaus_sampling how)
{
    written w = { 0 };
    assert_ok(danaus_model_generate(model, device, prompt, n, &how, write_token, &w));
    return w;
}

/* The likeliest token of the vocabulary, wherever no other is as likely but for rounding. */
static void cold_tokens_are_the_likeliest(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(20); round++) {
        rng r = { 300 + (uint64_t)round };
        small_hyena m = hyena_random(&r, 60);
        danaus_model *model = hyena_load(&m, device);
        int32_t ids[60];
        int64_t n = rng_int(&r, 1, 30);
        for (int64_t i = 0; i < n; i++)
            ids[i] = (int32_t)rng_int(&r, 0, m.vocabulary - 1);
        written w = written_by(model, ids, n, (danaus_sampling){ 0 });
        assert_int_equal(w.count, 60 - n);
        memcpy(ids + n, w.ids, (size_t)w.count * sizeof *ids);
        plain p = plain_of(&m, ids, 60, 2);
        for (int64_t t = n - 1; t + 1 < 60; t++) {
            double logits[64];
            hyena_logits(&m, p.h + t * m.width, logits, NULL);
            for (int64_t v = 0; v < m.vocabulary; v++)
                assert_true(
                    logits[ids[t + 1]] >=
                    logits[v] - 2 * HYENA_BOUND * (double)m.width * p.h_moves - 1e-5);
        }
        free(p.h);
        danaus_model_destroy(model);
        hyena_free(&m);
    }
}

static void the_seed_decides(void **state)
{
    (void)state;
    rng r = { 21 };
    small_hyena m = hyena_random(&r, 90);
    danaus_model *model = hyena_load(&m, device);
    const int32_t prompt[] = { 3, 1 };
    danaus_sampling how = { .temperature = 3, .seed = 5, .max_tokens = 70 };
    written one = written_by(model, prompt, 2, how);
    written two = written_by(model, prompt, 2, how);
    assert_int_equal(one.count, 70);
    assert_memory_equal(one.ids, two.ids, sizeof one.ids);
    how.seed = 6;
    two = written_by(model, prompt, 2, how);
    assert_memory_not_equal(one.ids, two.ids, sizeof one.ids);
    written stopped = { .stop = 4 };
    assert_ok(
        danaus_model_generate(model, device, prompt, 2, &how, write_token, &stopped));
    assert_int_equal(stopped.count, 4);
    danaus_model_destroy(model);
    hyena_free(&m);
}

/* ---- partial filters ---- */

/* Sequences of unequal length, shorter and longer than filters, whatever there are taps. */
static void filters_of_few_taps_read_any_length(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { 1000 + (uint64_t)round };
        int64_t length = rng_int(&r, 1, 100);
        small_hyena m = hyena_random(&r, length);
        m.filter.taps = round % 4 ? rng_int(&r, 1, length) : length;
        danaus_model *model = hyena_load(&m, device);
        hyena *own = model->blocks;
        own->convs.group_numbers = rng_int(&r, 1, 20) * 1024;
        own->convs.most_spectra = round % 2 ? 0 : (size_t)1 << 30;
        texts t = texts_random(&r, rng_int(&r, 1, 4), 3 * length, m.vocabulary);
        expect_texts(model, &m, &t);
        texts_free(&t);
        danaus_model_destroy(model);
        hyena_free(&m);
    }
}

/* The state of a text holds no more than the taps, whatever is still to come. */
static void filters_of_few_taps_go_on_without_end(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(10); round++) {
        rng r = { 1100 + (uint64_t)round };
        int64_t length = rng_int(&r, 1, 100), longer = 3 * length + 20;
        small_hyena m = hyena_random(&r, length);
        m.filter.taps = rng_int(&r, 1, length);
        danaus_model *model = hyena_load(&m, device);
        texts t = texts_random(&r, 1, 1, m.vocabulary);
        texts_fill(&r, &t, &longer, m.vocabulary);
        expect_steps(model, &m, &r, t.ids, longer);
        const danaus_sampling how = { .max_tokens = longer };
        assert_int_equal(written_by(model, t.ids, 3, how).count, longer);
        written endless = { .stop = 4 };
        assert_ok(danaus_model_generate(
            model, device, t.ids, 3, &(danaus_sampling){ 0 }, write_token, &endless));
        assert_int_equal(endless.count, 4);
        texts_free(&t);
        danaus_model_destroy(model);
        hyena_free(&m);
    }
}

/* Filters cost no more for a longer text. */
static void few_taps_cost_less(void **state)
{
    (void)state;
    rng r = { 1300 };
    small_hyena m = hyena_random(&r, 4000);
    danaus_model_cost all, few, longer;
    danaus_model *model = hyena_load(&m, device);
    assert_ok(danaus_model_estimate(model, device, 1, 4000, &all));
    danaus_model_destroy(model);
    m.filter.taps = 100;
    model = hyena_load(&m, device);
    assert_ok(danaus_model_estimate(model, device, 1, 4000, &few));
    assert_ok(danaus_model_estimate(model, device, 1, 8000, &longer));
    assert_true(few.filters == all.filters / 40 && few.mixing < all.mixing);
    assert_true(longer.filters == few.filters && longer.mixing < 2.2 * few.mixing);
    expect_outline(model, device);
    danaus_model_destroy(model);
    hyena_free(&m);
}

/* ---- what is refused ---- */

static void what_does_not_fit_is_named_at_once(void **state)
{
    (void)state;
    small_hyena m = hyena_known(2);
    named_drop(&m.arrays, "backbone.ln_f.bias");
    named_drop(&m.arrays, "backbone.layers.1.mixer.filter_fn.bias");
    named_drop(&m.arrays, "backbone.layers.0.mixer.in_proj.bias");
    named_add(&m.arrays, 0, NULL, "backbone.layers.9.more");
    hyena_write(&m);
    expect_refusal(device, DANAUS_ERR_FORMAT, "4 tensors do not fit");
    expect_refusal(device, DANAUS_ERR_FORMAT, "backbone.ln_f.bias is missing");
    expect_refusal(
        device, DANAUS_ERR_FORMAT, "layers.1.mixer.filter_fn.bias is missing");
    expect_refusal(
        device, DANAUS_ERR_FORMAT,
        "layers.0.mixer.in_proj.bias is missing, of shape [24]");
    expect_refusal(device, DANAUS_ERR_FORMAT, "backbone.layers.9.more has no place");
    hyena_free(&m);
    m = hyena_known(2);
    named_drop(&m.arrays, "backbone.layers.0.mixer.short_filter.weight");
    named_add(
        &m.arrays, 3, (const int64_t[]){ 24, 1, 4 },
        "backbone.layers.0.mixer.short_filter.weight");
    hyena_write(&m);
    expect_refusal(
        device, DANAUS_ERR_FORMAT, "short_filter.weight is [24, 1, 4], not [24, 1, 3]");
    hyena_free(&m);
}

/* One field of config.json is another one. */
static void change_config(const bytes *good, const char *old, const char *new)
{
    char made[1000];
    const char *whole = (const char *)good->data, *at = strstr(whole, old);
    assert_non_null(at);
    snprintf(
        made, sizeof made, "%.*s%s%s", (int)(at - whole), whole, new, at + strlen(old));
    file_write(scratch_path("config.json"), made, strlen(made));
}

static void configurations_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *old, *new;
        danaus_status status;
        const char *said;
    } cases[] = {
        { "\"d_model\": 8", "\"d_mode\": 8", DANAUS_ERR_FORMAT,
          "config.json: \"d_model\" is missing" },
        { "\"d_model\": 8", "\"d_model\": 0", DANAUS_ERR_FORMAT,
          "config.json: \"d_model\" is 0" },
        { "\"d_inner\": 16", "\"d_inne\": 16", DANAUS_ERR_FORMAT, "d_inner" },
        { "\"emb_dim\": 5", "\"emb_dim\": 4", DANAUS_ERR_FORMAT, "has to be odd" },
        { "\"emb_dim\": 5", "\"emb_dim\": 7", DANAUS_ERR_FORMAT, "pos_emb.z is" },
        { "\"n_layer\": 2", "\"n_layer\": 3", DANAUS_ERR_FORMAT,
          "model.safetensors: 23 tensors do not fit" },
        { "\"hyena_order\": 2", "\"hyena_order\": 1", DANAUS_ERR_FORMAT,
          "hyena_order" },
        { "\"hyena_order\": 2", "\"hyena_order\": 3", DANAUS_ERR_FORMAT, "in_proj" },
        { "\"head_dim\": 1", "\"head_dim\": 3", DANAUS_ERR_FORMAT, "no multiple" },
        { "\"max_seq_len\": 14", "\"max_seq_len\": 1e9", DANAUS_ERR_FORMAT, "integer" },
        { "\"max_seq_len\": 14", "\"max_seq_len\": 100000000", DANAUS_ERR_FORMAT,
          "from 1 to" },
        { "\"max_seq_len\": 14", "\"max_seq_len\": 14, \"filter_taps\": 15",
          DANAUS_ERR_FORMAT, "\"filter_taps\" is 15 and has to be from 1 to 14" },
        { "\"max_seq_len\": 14", "\"max_seq_len\": 14, \"filter_taps\": 0",
          DANAUS_ERR_FORMAT, "\"filter_taps\" is 0" },
        { "\"max_seq_len\": 14", "\"max_seq_len\": 14, \"filter_taps\": -3",
          DANAUS_ERR_FORMAT, "\"filter_taps\" is not an integer" },
        { "\"max_seq_len\": 14", "\"max_seq_len\": 14, \"filter_taps\": 7.0",
          DANAUS_ERR_FORMAT, "filter_taps" },
        { "\"max_seq_len\": 14", "\"max_seq_len\": 14, \"filter_taps\": \"7\"",
          DANAUS_ERR_FORMAT, "filter_taps" },
        { "\"num_inner_mlps\": 2", "\"num_inner_mlps\": 99", DANAUS_ERR_FORMAT,
          "num_inner_mlps" },
        { "\"vocab_size\": 12", "\"vocab_size\": 17", DANAUS_ERR_FORMAT,
          "word_embeddings" },
        { "\"short_filter_order\": 3", "\"short_filter_order\": 1000",
          DANAUS_ERR_FORMAT, "short_filter_order" },
        { "hyenadna", "hyenas", DANAUS_ERR_UNSUPPORTED, "\"hyenas\"" },
    };
    small_hyena m = hyena_known(2);
    hyena_write(&m);
    bytes good = file_bytes(scratch_path("config.json"));
    bytes_append(&good, "", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        change_config(&good, cases[i].old, cases[i].new);
        expect_refusal(device, cases[i].status, cases[i].said);
    }
    bytes_free(&good);
    hyena_free(&m);
}

static int give_up(void *user, double done)
{
    (void)user;
    return done > 0;
}

static void calls_are_checked(void **state)
{
    (void)state;
    small_hyena m = hyena_known(2);
    danaus_model *model = hyena_load(&m, device);
    float y[20] = { 0 };
    int32_t ids[20] = { 12, 7, 8 };
    int64_t offsets[] = { 0, 3 };
    const danaus_sampling usual = { 0 };
    written w = { 0 };
    assert_status(
        danaus_model_score(model, device, 1, offsets, ids, NULL, NULL, y),
        DANAUS_ERR_ARGUMENT);
    assert_non_null(strstr(danaus_error_detail(), "the vocabulary has 12"));
    assert_status(
        danaus_model_generate(model, device, ids, 3, &usual, write_token, &w),
        DANAUS_ERR_ARGUMENT);
    ids[0] = 7;
    offsets[1] = 15;
    assert_status(
        danaus_model_score(model, device, 1, offsets, ids, NULL, NULL, y),
        DANAUS_ERR_SHAPE);
    offsets[1] = 3;
    assert_status(
        danaus_model_score(model, device, 1, offsets, ids, NULL, NULL, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_model_score(model, device, 1, offsets, ids, give_up, NULL, y),
        DANAUS_ERR_CANCELLED);
    assert_ok(danaus_model_score(model, device, 0, offsets, NULL, NULL, NULL, NULL));
    static const danaus_sampling wrong[] = {
        { .temperature = -1 }, { .temperature = NAN }, { .top_p = 1.5f },
        { .top_k = -1 },       { .max_tokens = -1 },   { .reserved = { 1 } }
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_status(
            danaus_model_generate(model, device, ids, 3, &wrong[i], write_token, &w),
            DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_model_generate(model, device, ids, 0, &usual, write_token, &w),
        DANAUS_ERR_SHAPE);
    assert_status(
        danaus_model_generate(model, device, ids, 3, &usual, NULL, &w),
        DANAUS_ERR_ARGUMENT);
    if (!device->backend->on_host)
        assert_status(
            danaus_model_compress(
                model, device, 1, offsets, ids,
                &(danaus_model_compression){ .share = 0.5 }),
            DANAUS_ERR_UNSUPPORTED);
    assert_int_equal(w.count, 0);
    danaus_model_info info;
    assert_ok(danaus_model_describe(model, &info));
    assert_string_equal(info.architecture, "hyena");
    assert_int_equal(info.max_length, 14);
    danaus_model_destroy(model);
    hyena_free(&m);
}

/* A partial model has one, too, of all models. */
static void even_few_taps_have_a_limit(void **state)
{
    (void)state;
    const int64_t most = (int64_t)1 << 24, offsets[] = { 0, most + 1 };
    danaus_model_info info;
    danaus_model_cost cost;
    float y;
    small_hyena m = hyena_known(2);
    m.filter.taps = 5;
    danaus_model *model = hyena_load(&m, device);
    assert_ok(danaus_model_describe(model, &info));
    assert_int_equal(info.max_length, most);
    assert_status(
        danaus_model_score(model, device, 1, offsets, &(int32_t){ 7 }, NULL, NULL, &y),
        DANAUS_ERR_SHAPE);
    assert_non_null(strstr(danaus_error_detail(), "1 to 16777216 are possible"));
    assert_status(
        danaus_model_estimate(model, device, 1, most + 1, &cost), DANAUS_ERR_SHAPE);
    danaus_model_destroy(model);
    m.filter.taps = 0;
    hyena_write(&m);
    bytes good = file_bytes(scratch_path("config.json"));
    bytes_append(&good, "", 1);
    change_config(&good, "\"max_seq_len\"", "\"filter_taps\": null, \"max_seq_len\"");
    assert_ok(danaus_model_load(device, scratch_directory(), &model));
    assert_ok(danaus_model_describe(model, &info));
    assert_int_equal(info.max_length, 14);
    danaus_model_destroy(model);
    bytes_free(&good);
    hyena_free(&m);
}

/* Weights that are not finite give no token. */
static void numbers_that_are_not_finite_are_told(void **state)
{
    (void)state;
    small_hyena m = hyena_known(2);
    const danaus_tensor *t = named_find(&m.arrays, "backbone.ln_f.bias");
    *(float *)(uintptr_t)t->data = NAN;
    danaus_model *model = hyena_load(&m, device);
    const int32_t prompt[] = { 7 };
    const danaus_sampling usual = { 0 };
    written w = { 0 };
    assert_status(
        danaus_model_generate(model, device, prompt, 1, &usual, write_token, &w),
        DANAUS_ERR_FORMAT);
    assert_non_null(strstr(danaus_error_detail(), "not finite after 1 tokens"));
    danaus_model_destroy(model);
    hyena_free(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_states_come_out),
        cmocka_unit_test(likelihoods_are_those_of_plain_loops),
        cmocka_unit_test(any_way_to_convolve_gives_the_same),
        cmocka_unit_test(long_sequences_have_plans_of_their_own),
        cmocka_unit_test(memory_for_many_tokens_holds_fewer),
        cmocka_unit_test(filters_of_few_taps_read_any_length),
        cmocka_unit_test(filters_of_few_taps_go_on_without_end),
        cmocka_unit_test(few_taps_cost_less),
        cmocka_unit_test(what_is_later_changes_nothing_earlier),
        cmocka_unit_test(outlines_say_what_models_do),
        cmocka_unit_test(layers_read_every_token_that_is_watched),
        cmocka_unit_test(threads_do_not_change_likelihoods),
        cmocka_unit_test(steps_give_the_logits_of_the_whole),
        cmocka_unit_test(rows_may_have_sixteen_bits),
        cmocka_unit_test(cold_tokens_are_the_likeliest),
        cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(what_does_not_fit_is_named_at_once),
        cmocka_unit_test(configurations_are_checked),
        cmocka_unit_test(calls_are_checked),
        cmocka_unit_test(even_few_taps_have_a_limit),
        cmocka_unit_test(numbers_that_are_not_finite_are_told),
    };
    device = device_from_arguments(argc, argv);
    int failed = cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
    danaus_device_close(device);
    return failed;
}
