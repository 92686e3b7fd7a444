/* The state while an encoder is compressed. */
// SPDX-License-Identifier: Apache-2.0
#include "model/bert/bert_work.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "model/compress/layers.h"

static int64_t width_of(const transformer *m, bert_stage stage)
{
    return stage == STAGE_DOWN ? m->inner : m->width;
}

static danaus_status widen(target *t)
{
    int64_t numbers = t->weight.shape[0] * t->weight.shape[1];
    t->wide = dn_calloc((size_t)numbers, sizeof *t->wide);
    if (!t->wide)
        return dn_fail_memory((size_t)numbers * sizeof *t->wide, "weights");
    return danaus_convert(
        t->weight.dtype, t->weight.data, DANAUS_F64, t->wide, numbers);
}

static danaus_status open_target(bert_work *w, int number)
{
    const linear *layer = &w->model->linear[number];
    target *t = &w->target[number];
    if (layer->factors != 1 || layer->fitted.basis || layer->is_chain ||
        dn_model_tensor(w->model, layer, "weight", &t->weight))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "%s is a chain already: models are compressed "
            "whose linear layers are all dense",
            layer->name);
    TRY(dn_model_tensor(w->model, layer, "bias", &t->bias));
    TRY(dn_linear_dense(&t->dense, w->device, &t->weight, &t->bias, 0, w->texts.most));
    TRY(dn_linear_dense(
        &t->adjoint, w->device, &t->weight, &t->bias, 1, w->texts.most));
    if (!w->chosen[number])
        return DANAUS_OK;
    int64_t rows = t->weight.shape[0];
    t->side = dn_calloc((size_t)(rows * rows), sizeof *t->side);
    if (!t->side)
        return dn_fail_memory((size_t)(rows * rows) * sizeof *t->side, "gradients");
    return widen(t);
}

static danaus_status open_sums(bert_work *w)
{
    for (int i = 0; i < w->m->layers * STAGES; i++) {
        int64_t n = width_of(w->m, (bert_stage)(i % STAGES));
        w->sums[i].x = dn_calloc((size_t)(n * (n + 1)), sizeof *w->sums[i].x);
        if (!w->sums[i].x)
            return dn_fail_memory((size_t)(n * n) * sizeof(double), "moments");
        w->sums[i].xx = w->sums[i].x + n;
    }
    return DANAUS_OK;
}

/* Bytes of all that follows: rows of all texts and of a batch, weights of layers, moments of
   their inputs and outputs. */
static int64_t work_bytes(const bert_work *w)
{
    const transformer *m = w->m;
    int64_t width = m->width, inner = m->inner, most = w->texts.most;
    int64_t rows = (2 * w->texts.tokens + m->layers * most) * width;
    int64_t batch = most * (2 * (9 * width + 2 * inner) + 7 * width + 2 * inner);
    int64_t sums = m->layers * (3 * width * width + inner * inner), layers = 0;
    for (int i = 0; i < w->layers; i++) {
        const linear *layer = &w->model->linear[i];
        layers += layer->rows * (layer->rows + layer->cols);
    }
    return (rows + batch) * (int64_t)sizeof(float) +
           (sums + layers) * (int64_t)sizeof(double);
}

danaus_status dn_work_open(bert_work *w)
{
    const transformer *m = w->m;
    int64_t most = w->texts.most;
    size_t row = (size_t)m->width * sizeof(float);
    TRY(dn_need_memory(w->device, work_bytes(w), "compression"));
    w->target = dn_calloc((size_t)w->layers, sizeof *w->target);
    w->chosen = dn_calloc((size_t)w->layers, sizeof *w->chosen);
    w->sums = dn_calloc((size_t)m->layers * STAGES, sizeof *w->sums);
    w->inputs = dn_calloc((size_t)(m->layers * most), row);
    w->states[0] = dn_calloc((size_t)w->texts.tokens, row);
    w->states[1] = dn_calloc((size_t)w->texts.tokens, row);
    if (!w->target || !w->chosen || !w->sums || !w->inputs || !w->states[0] ||
        !w->states[1])
        return dn_fail_memory((size_t)w->texts.tokens * row, "rows of all texts");
    TRY(dn_match_layers(w->model, w->how->layers, w->chosen));
    for (int i = 0; i < w->layers; i++)
        TRY(open_target(w, i));
    TRY(open_sums(w));
    TRY(dn_outer_open(&w->square[0], w->device, m->width, m->width, most));
    TRY(dn_outer_open(&w->square[1], w->device, m->inner, m->inner, most));
    TRY(dn_outer_open(&w->cross[0], w->device, m->width, m->inner, most));
    TRY(dn_outer_open(&w->cross[1], w->device, m->inner, m->width, most));
    TRY(dn_pass_make(m, most, &w->dense));
    TRY(dn_pass_make(m, most, &w->here));
    return dn_gradients_make(m, most, &w->gradients);
}

void dn_work_close(bert_work *w)
{
    for (int i = 0; w->target && i < w->layers; i++) {
        target *t = &w->target[i];
        dn_linear_close(&t->dense);
        dn_linear_close(&t->adjoint);
        dn_linear_close(&t->made);
        dn_free(t->wide);
        dn_free(t->side);
    }
    for (int i = 0; w->sums && i < w->m->layers * STAGES; i++)
        dn_free(w->sums[i].x);
    for (int i = 0; i < 2; i++) {
        dn_outer_close(&w->square[i]);
        dn_outer_close(&w->cross[i]);
        dn_free(w->states[i]);
    }
    dn_pass_free(&w->dense);
    dn_pass_free(&w->here);
    dn_gradients_free(&w->gradients);
    dn_free(w->inputs);
    dn_free(w->target);
    dn_free(w->chosen);
    dn_free(w->ranks);
    dn_free(w->sums);
    dn_texts_free(&w->texts);
}

/* ---- batches ---- */

void dn_work_batch(const bert_work *w, int64_t batch, int64_t *offsets, bert_pass *p)
{
    const int64_t *at = w->texts.offsets + batch * TEXTS_BATCH;
    int64_t count = MIN(w->texts.count - batch * TEXTS_BATCH, TEXTS_BATCH);
    for (int64_t i = 0; i <= count; i++)
        offsets[i] = at[i] - at[0];
    p->sequences = (nn_sequences){ count, offsets };
    p->tokens = offsets[count];
}

bert_layers dn_work_dense(const bert_work *w, int64_t block_number)
{
    bert_layers found = { .makes_u = 1 };
    for (int i = 0; i < BLOCK_LINEARS; i++)
        found.of[i] = &w->target[block_number * BLOCK_LINEARS + i].dense;
    return found;
}
