/* Replaces linear layers of an encoder by layers of lower rank: danaus_model_compress().

   1. The dense model runs on all texts, and random directions at the embeddings go backward
      through it. This gives E g g^T for the gradients g at each layer's outputs, and the moments
      of each layer's inputs.
   2. These give the value of each rank of each layer, and from it the budgets.
   3. Rows of the dense model, and of the model as compressed so far, go through block after
      block. Each stage of layers is fitted to moments of both. */
// SPDX-License-Identifier: Apache-2.0
#include "model/bert/bert_work.h"

#include "base/status.h"
#include "math/lapack_library.h"

#include <inttypes.h>
#include <string.h>

/* The sums over inputs of a layer in the dense model. */
static const stage_sums *sums_of(const bert_work *w, int64_t number)
{
    int64_t block_number = number / BLOCK_LINEARS;
    bert_stage stage = dn_stage_of((int)(number % BLOCK_LINEARS));
    return &w->sums[block_number * STAGES + (int)stage];
}

/* ---- 2: budgets ---- */

/* By the dense layer's own inputs and outputs. */
static danaus_status list_choices(void *user, int number, choices *c)
{
    const bert_work *w = user;
    const linear *layer = &w->model->linear[number];
    const target *t = &w->target[number];
    const stage_sums *s = sums_of(w, number);
    moments m;
    fit_problem p;
    if (!w->chosen[number])
        return DANAUS_OK;
    TRY(dn_moments_make(layer->rows, layer->cols, &m));
    m.count = w->texts.tokens;
    memcpy(m.x, s->x, (size_t)m.cols * sizeof *m.x);
    memcpy(m.xx, s->xx, (size_t)(m.cols * m.cols) * sizeof *m.xx);
    dn_moments_map(t->wide, &m);
    danaus_status status =
        dn_problem_make(&m, t->wide, t->side, dn_ridge_of(w->how), &p);
    dn_moments_free(&m);
    TRY(status);
    status = dn_choices_make(&p, c);
    dn_problem_free(&p);
    return status;
}

/* ---- 3: fits ---- */

static bert_layers layers_here(const bert_work *w, int64_t block_number)
{
    bert_layers found = { 0 };
    for (int i = 0; i < BLOCK_LINEARS; i++) {
        int64_t number = block_number * BLOCK_LINEARS + i;
        const linear *made = &w->target[number].made;
        found.of[i] = dn_linear_is_open(made) ? made : &w->model->linear[number];
    }
    return found;
}

/* Rows of a batch at a block, in one of the states. */
static float *state_of(const bert_work *w, int which, int64_t batch)
{
    return w->states[which] + w->texts.offsets[batch * TEXTS_BATCH] * w->m->width;
}

static danaus_status start_states(bert_work *w)
{
    TRY(dn_words_run(
        w->words, w->device, w->texts.tokens, w->texts.ids, w->texts.positions,
        w->states[0]));
    memcpy(
        w->states[1], w->states[0],
        (size_t)(w->texts.tokens * w->m->width) * sizeof(float));
    return DANAUS_OK;
}

/* Both passes of a batch up to a stage: what dense layers make, what layers here read. */
static danaus_status run_both(
    bert_work *w, int64_t block_number, bert_stage stage, int64_t batch,
    int64_t *offsets)
{
    const transformer_block *b = &w->m->blocks[block_number];
    bert_layers dense = dn_work_dense(w, block_number),
                here = layers_here(w, block_number);
    dn_work_batch(w, batch, offsets, &w->dense);
    w->here.sequences = w->dense.sequences;
    w->here.tokens = w->dense.tokens;
    size_t bytes = (size_t)(w->dense.tokens * w->m->width) * sizeof(float);
    memcpy(w->dense.h, state_of(w, 0, batch), bytes);
    memcpy(w->here.h, state_of(w, 1, batch), bytes);
    TRY(dn_pass_run(w->m, w->device, b, &dense, stage, 1, &w->dense));
    return dn_pass_run(w->m, w->device, b, &here, stage, 0, &w->here);
}

/* A fit to the rows of a stage. */
typedef struct stage_fit {
    moments of[BLOCK_LINEARS];
    targets part; /* of its layer that is part of a residual sum, if it is chosen */
} stage_fit;

static int is_part(int layer) { return layer == OUTPUT || layer == DOWN; }

/* The rows that a layer should make, in `of[layer]` of the gradients, which are free by now:
   for parts of a residual sum what completes it. */
static const float *targets_of(bert_work *w, int layer)
{
    const float *wanted = dn_pass_output(&w->dense, layer);
    if (!is_part(layer))
        return wanted;
    const float *rest = layer == OUTPUT ? w->here.h : w->here.h1;
    float *to = w->gradients.of[layer];
    for (int64_t i = 0; i < w->here.tokens * w->m->width; i++)
        to[i] = wanted[i] - rest[i];
    return to;
}

static outer *cross_of(bert_work *w, int layer)
{
    return layer == UP ? &w->cross[1] : layer == DOWN ? &w->cross[0] : &w->square[0];
}

/* Adds a batch to the moments of the chosen layers of a stage; x^T x is the first's. */
static danaus_status add_moments(
    bert_work *w, int64_t block_number, bert_stage stage, stage_fit *to)
{
    const float *x = dn_pass_input(&w->here, stage);
    moments *of = to->of, *first = NULL;
    for (int i = 0; i < BLOCK_LINEARS; i++) {
        if (dn_stage_of(i) != stage || !w->chosen[block_number * BLOCK_LINEARS + i])
            continue;
        const float *y = targets_of(w, i);
        outer *o = cross_of(w, i);
        TRY(dn_outer_add(o, w->here.tokens, x, y, of[i].yx, of[i].y));
        for (int64_t n = 0; n < w->here.tokens * of[i].rows; n++)
            of[i].energy += (double)y[n] * y[n];
        of[i].count += w->here.tokens;
        to->part.count = of[i].count;
        if (is_part(i))
            TRY(dn_outer_add(
                &w->square[0], w->here.tokens, y, y, to->part.tt, to->part.t));
        if (!first)
            TRY(dn_outer_add(
                &w->square[stage == STAGE_DOWN], w->here.tokens, x, x, of[i].xx,
                of[i].x));
        first = first ? first : &of[i];
    }
    return DANAUS_OK;
}

static danaus_status rate_layer(
    const bert_work *w, int64_t number, int layer, targets *part, linear *made)
{
    const stage_sums *s = sums_of(w, number);
    const linear *old = &w->model->linear[number];
    targets t;
    if (is_part(layer))
        return dn_rate_layer(old, part, made);
    TRY(dn_targets_map(
        old->rows, old->cols, w->target[number].wide, w->texts.tokens, s->x, s->xx,
        &t));
    danaus_status status = dn_rate_layer(old, &t, made);
    dn_targets_free(&t);
    return status;
}

static danaus_status fit_layer(bert_work *w, int64_t number, int layer, stage_fit *from)
{
    target *t = &w->target[number];
    fit_problem p;
    TRY(dn_problem_make(&from->of[layer], t->wide, t->side, dn_ridge_of(w->how), &p));
    danaus_status status = dn_replace_layer(
        &w->model->linear[number], w->device, &p, w->ranks[number], w->how->candidates,
        w->how->int8, &t->made);
    dn_problem_free(&p);
    TRY(status);
    return rate_layer(w, number, layer, &from->part, &t->made);
}

static danaus_status fit_stage(
    bert_work *w, int64_t block_number, bert_stage stage, stage_fit *to)
{
    int64_t offsets[TEXTS_BATCH + 1];
    moments *of = to->of;
    int first = -1;
    for (int i = 0; i < BLOCK_LINEARS; i++) {
        const linear *layer = &w->model->linear[block_number * BLOCK_LINEARS + i];
        if (dn_stage_of(i) != stage || !w->chosen[block_number * BLOCK_LINEARS + i])
            continue;
        TRY(dn_moments_make(layer->rows, layer->cols, &of[i]));
        if (is_part(i))
            TRY(dn_targets_make(layer->rows, 0, &to->part));
        first = first < 0 ? i : first;
    }
    if (first < 0)
        return DANAUS_OK;
    for (int64_t b = 0; b < dn_texts_batches(&w->texts); b++) {
        TRY(run_both(w, block_number, stage, b, offsets));
        TRY(add_moments(w, block_number, stage, to));
    }
    for (int i = first; i < BLOCK_LINEARS; i++) {
        if (!of[i].x)
            continue;
        if (i != first) {
            memcpy(of[i].x, of[first].x, (size_t)of[i].cols * sizeof *of[i].x);
            memcpy(
                of[i].xx, of[first].xx,
                (size_t)(of[i].cols * of[i].cols) * sizeof *of[i].xx);
        }
        TRY(fit_layer(w, block_number * BLOCK_LINEARS + i, i, to));
    }
    return DANAUS_OK;
}

/* Both states go on to the next block. */
static danaus_status advance(bert_work *w, int64_t block_number)
{
    int64_t offsets[TEXTS_BATCH + 1];
    bert_layers here = layers_here(w, block_number);
    for (int64_t b = 0; b < dn_texts_batches(&w->texts); b++) {
        TRY(run_both(w, block_number, STAGE_DOWN, b, offsets));
        TRY(dn_pass_run(
            w->m, w->device, &w->m->blocks[block_number], &here, STAGE_DOWN, 1,
            &w->here));
        size_t bytes = (size_t)(w->here.tokens * w->m->width) * sizeof(float);
        memcpy(state_of(w, 0, b), w->dense.h2, bytes);
        memcpy(state_of(w, 1, b), w->here.h2, bytes);
    }
    return DANAUS_OK;
}

static danaus_status fit_all(bert_work *w)
{
    TRY(start_states(w));
    for (int64_t b = 0; b < w->m->layers; b++) {
        for (int s = 0; s < STAGES; s++) {
            stage_fit to = { 0 };
            danaus_status status = fit_stage(w, b, (bert_stage)s, &to);
            for (int i = 0; i < BLOCK_LINEARS; i++)
                dn_moments_free(&to.of[i]);
            dn_targets_free(&to.part);
            TRY(status);
            double done =
                (double)(b * STAGES + s + 1) / (double)(w->m->layers * STAGES);
            TRY(dn_compression_report(w->how, SENSE_PART + (1 - SENSE_PART) * done));
        }
        if (b + 1 < w->m->layers)
            TRY(advance(w, b));
    }
    return DANAUS_OK;
}

static void install(bert_work *w)
{
    for (int i = 0; i < w->layers; i++) {
        if (!dn_linear_is_open(&w->target[i].made))
            continue;
        dn_linear_close(&w->model->linear[i]);
        w->model->linear[i] = w->target[i].made;
        w->target[i].made = (linear){ 0 };
    }
}

danaus_status dn_bert_compress(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, const danaus_model_compression *how)
{
    bert_work w = { .model = model,
                    .words = &((const bert *)model->own)->words,
                    .m = model->blocks,
                    .device = device,
                    .how = how,
                    .layers = model->linears,
                    .random = how->seed };
    if (sequences < 2)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a model is compressed with 2 sequences or more, not %" PRId64, sequences);
    TRY(dn_lapack_begin(1));
    danaus_status status = dn_texts_make(sequences, offsets, ids, &w.texts);
    if (status == DANAUS_OK)
        status = dn_work_open(&w);
    if (status == DANAUS_OK)
        status = dn_work_sense(&w);
    dn_lapack_alone();
    if (status == DANAUS_OK)
        status = dn_find_budgets(model, how->share, list_choices, &w, &w.ranks);
    if (status == DANAUS_OK)
        status = fit_all(&w);
    dn_lapack_as_before();
    if (status == DANAUS_OK)
        install(&w);
    dn_work_close(&w);
    dn_lapack_end(1);
    return status;
}
