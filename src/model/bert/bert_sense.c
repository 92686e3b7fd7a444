/* Gradients of random directions at an encoder's embeddings, and moments of its layers'
   inputs. */
// SPDX-License-Identifier: Apache-2.0
#include "model/bert/bert_work.h"

#include "base/random.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

static const int32_t *ids_of(const bert_work *w, int64_t batch)
{
    return w->texts.ids + w->texts.offsets[batch * TEXTS_BATCH];
}

static const int32_t *positions_of(const bert_work *w, int64_t batch)
{
    return w->texts.positions + w->texts.offsets[batch * TEXTS_BATCH];
}

/* A number of the normal distribution (Box and Muller). */
static double random_normal(uint64_t *state)
{
    double u[2];
    for (int i = 0; i < 2; i++)
        u[i] = ((double)(dn_random(state) >> 11) + 0.5) * 0x1p-53;
    return sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]);
}

/* v[i] = sum over j of normal numbers times (z[j] - the mean of z) / sqrt(count): directions
   with the covariance of the embeddings z. */
static void make_directions(bert_work *w, int64_t count, float *z, float *v)
{
    int64_t n = w->m->width;
    for (int64_t c = 0; c < n; c++) {
        float mean = 0;
        for (int64_t i = 0; i < count; i++)
            mean += z[i * n + c] / (float)count;
        for (int64_t i = 0; i < count; i++)
            z[i * n + c] -= mean;
    }
    memset(v, 0, (size_t)(count * n) * sizeof *v);
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < count; j++) {
            float r = (float)(random_normal(&w->random) / sqrt((double)count));
            for (int64_t c = 0; c < n; c++)
                v[i * n + c] += r * z[j * n + c];
        }
}

/* The gradient at the last rows h of sequence s from that at its embedding, v. */
static void pool_back(
    const bert_work *w, const bert_pass *p, int64_t s, const float *v, float *dh)
{
    const pooling *how = &w->model->pooling;
    int64_t n = w->m->width, first = p->sequences.offsets[s];
    int64_t rows = p->sequences.offsets[s + 1] - first, used = how->first ? 1 : rows;
    double square = 0, along = 0;
    float *to = dh + first * n;
    const float *h = p->h2 + first * n;
    memset(to, 0, (size_t)(rows * n) * sizeof *to);
    /* Row 0 becomes the mean, then the gradient at it. */
    for (int64_t c = 0; c < n; c++) {
        double mean = 0;
        for (int64_t t = 0; t < used; t++)
            mean += h[t * n + c] / (double)used;
        to[c] = (float)mean;
        square += mean * mean;
        along += mean * v[c];
    }
    double length = fmax(sqrt(square), 1e-12);
    for (int64_t c = 0; c < n; c++) {
        double g =
            how->normalize ? (v[c] - to[c] * along / (length * length)) / length : v[c];
        to[c] = (float)(g / (double)used);
    }
    for (int64_t t = 1; t < used; t++)
        memcpy(to + t * n, to, (size_t)n * sizeof *to);
}

static danaus_status start_gradients(bert_work *w, const bert_pass *p)
{
    int64_t count = p->sequences.count, n = w->m->width;
    float *z = w->gradients.mixed, *v = w->gradients.h; /* free until blocks go back */
    nn_pool pooled = { .sequences = p->sequences,
                       .width = n,
                       .first = w->model->pooling.first,
                       .normalize = w->model->pooling.normalize,
                       .x = p->h2,
                       .y = z };
    TRY(w->device->backend->nn->pool(w->device, &pooled));
    make_directions(w, count, z, v);
    for (int64_t s = 0; s < count; s++)
        pool_back(w, p, s, v + s * n, w->gradients.of[DOWN]);
    return DANAUS_OK;
}

static danaus_status add_gradients(bert_work *w, int64_t block_number, int64_t tokens)
{
    for (int i = 0; i < BLOCK_LINEARS; i++) {
        int64_t number = block_number * BLOCK_LINEARS + i;
        const float *g = w->gradients.of[i];
        if (w->chosen[number])
            TRY(dn_outer_add(
                &w->square[i == UP], tokens, g, g, w->target[number].side, NULL));
    }
    return DANAUS_OK;
}

static danaus_status add_inputs(bert_work *w, int64_t block_number, const bert_pass *p)
{
    for (int i = 0; i < STAGES; i++) {
        stage_sums *s = &w->sums[block_number * STAGES + i];
        const float *x = dn_pass_input(p, (bert_stage)i);
        TRY(dn_outer_add(&w->square[i == STAGE_DOWN], p->tokens, x, x, s->xx, s->x));
    }
    return DANAUS_OK;
}

static danaus_status run_dense_block(
    bert_work *w, int64_t number, const float *input, bert_pass *p)
{
    bert_layers layers = dn_work_dense(w, number);
    memcpy(p->h, input, (size_t)(p->tokens * w->m->width) * sizeof *p->h);
    return dn_pass_run(
        w->m, w->device, &w->m->blocks[number], &layers, STAGE_DOWN, 1, p);
}

/* Forward through all blocks, whose inputs are kept, and back again. */
static danaus_status sense_batch(bert_work *w, int64_t batch)
{
    const transformer *m = w->m;
    bert_pass *p = &w->dense;
    int64_t offsets[TEXTS_BATCH + 1], step = w->texts.most * m->width;
    dn_work_batch(w, batch, offsets, p);
    size_t bytes = (size_t)(p->tokens * m->width) * sizeof *p->h;
    TRY(dn_words_run(
        w->words, w->device, p->tokens, ids_of(w, batch), positions_of(w, batch),
        w->inputs));
    for (int64_t b = 0; b < m->layers; b++) {
        TRY(run_dense_block(w, b, w->inputs + b * step, p));
        TRY(add_inputs(w, b, p));
        if (b + 1 < m->layers)
            memcpy(w->inputs + (b + 1) * step, p->h2, bytes);
    }
    TRY(start_gradients(w, p));
    for (int64_t b = m->layers - 1; b >= 0; b--) {
        if (b + 1 < m->layers) {
            TRY(run_dense_block(w, b, w->inputs + b * step, p));
            memcpy(w->gradients.of[DOWN], w->gradients.h, bytes);
        }
        linear adjoint[BLOCK_LINEARS];
        for (int i = 0; i < BLOCK_LINEARS; i++)
            adjoint[i] = w->target[b * BLOCK_LINEARS + i].adjoint;
        TRY(dn_pass_go_back(m, w->device, &m->blocks[b], adjoint, p, &w->gradients));
        TRY(add_gradients(w, b, p->tokens));
    }
    return DANAUS_OK;
}

danaus_status dn_work_sense(bert_work *w)
{
    int64_t batches = dn_texts_batches(&w->texts);
    for (int64_t b = 0; b < batches; b++) {
        TRY(sense_batch(w, b));
        TRY(dn_compression_report(
            w->how, SENSE_PART * (double)(b + 1) / (double)batches));
    }
    for (int i = 0; i < w->layers; i++)
        if (w->chosen[i])
            TRY(dn_side_make(
                w->model->linear[i].rows, w->texts.tokens, w->target[i].side));
    return DANAUS_OK;
}
