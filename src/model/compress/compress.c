/* Replaces linear layers by layers of lower rank, or by chains, in any model:

   1. The dense model runs on all samples, and watchers collect moments of each layer's inputs.
   2. These give the value of each rank for the layer's own output. Replacing one layer alone
      shows how far the model's output moves, and so the value for the model. Both give the
      budgets.
   3. Layer after layer is fitted. Inputs come from the model as compressed so far, targets from
      the dense model. */
// SPDX-License-Identifier: Apache-2.0
#include "model/compress/compress.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "danaus/factorize.h"
#include "math/lapack_library.h"
#include "model/compress/layers.h"

#include <string.h>

#define USUAL_RIDGE 0.05
/* Parts of the progress. */
#define WATCHED  0.1
#define BUDGETED 0.4

double dn_ridge_of(const danaus_model_compression *how)
{
    return how->ridge > 0 ? how->ridge : USUAL_RIDGE;
}

danaus_status dn_compression_check(const danaus_model_compression *how)
{
    const uint32_t kinds = 2 * DANAUS_TRY_SUM - 1;
    if (!(how->share > 0 && how->share <= 1))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "the share of the weights is %g and has to be above 0 and at most 1",
            how->share);
    if (how->candidates & ~kinds)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%#x has bits that are no candidates for a layer",
            (unsigned)how->candidates);
    return dn_check_reserved(how->reserved, sizeof how->reserved);
}

danaus_status dn_compression_report(const danaus_model_compression *how, double done)
{
    if (how->progress && how->progress(how->user, done))
        return dn_fail(DANAUS_ERR_CANCELLED, "compression was cancelled");
    return DANAUS_OK;
}

/* ---- budgets of all layers ---- */

static danaus_status share_out(
    const danaus_model *model, double share, choices_maker *list, void *user,
    choices *c)
{
    int64_t total = 0;
    for (int i = 0; i < model->linears; i++) {
        TRY(list(user, i, &c[i]));
        total += c[i].count ? model->linear[i].rows * model->linear[i].cols : 0;
    }
    return dn_share_out((int64_t)(share * (double)total), model->linears, c);
}

danaus_status dn_find_budgets(
    const danaus_model *model, double share, choices_maker *list, void *user,
    int64_t **ranks)
{
    size_t layers = (size_t)model->linears;
    choices *c = dn_calloc(layers, sizeof *c);
    *ranks = dn_calloc(layers, sizeof **ranks);
    danaus_status status = c && *ranks ? share_out(model, share, list, user, c)
                                       : dn_fail_memory(layers * sizeof *c, "choices");
    for (size_t i = 0; c && i < layers; i++) {
        if (status == DANAUS_OK && c[i].count)
            (*ranks)[i] = dn_chosen_rank(&c[i]);
        dn_choices_free(&c[i]);
    }
    dn_free(c);
    return status;
}

/* ---- a layer ---- */

danaus_status dn_replace_layer(
    const linear *old, danaus_device *device, const fit_problem *p, int64_t rank,
    uint32_t candidates, int int8, linear *made)
{
    fit f;
    linear_shape shape = old->shape;
    shape.int8 |= int8;
    TRY(dn_problem_best(p, rank, candidates, &f));
    danaus_status status = shape.int8 ? dn_fit_round(p, &f) : DANAUS_OK;
    if (status == DANAUS_OK)
        status = dn_linear_fitted(made, device, old->name, &f, &shape);
    dn_fit_free(&f);
    return status;
}

danaus_status dn_rate_layer(const linear *old, targets *t, linear *made)
{
    made->speedup = danaus_ks_plan_seconds(old->plan) / dn_linear_seconds(made);
    return dn_targets_bound(t, &made->fitted);
}

/* ---- moments ---- */

/* Sums over the rows x that layers read now, and over the dense model's x' with them. */
typedef struct inputs {
    const double *x, *xx, *dx; /* [N], x x^T, x' x^T [N][N] */
} inputs;

/* The dense layer's outputs W x' + bias beside x. */
static danaus_status make_moments(const watched_layer *p, const inputs *in, moments *m)
{
    int64_t rows = p->layer->rows, cols = p->layer->cols;
    size_t square = (size_t)(cols * cols) * sizeof *m->xx;
    double n = (double)p->rows;
    TRY(dn_moments_make(rows, cols, m));
    m->count = p->rows;
    memcpy(m->x, p->x, (size_t)cols * sizeof *m->x);
    memcpy(m->xx, p->xx, square);
    dn_moments_map(p->weight, m);
    for (int64_t i = 0; i < rows * cols; i++)
        m->energy += m->yx[i] * p->weight[i];
    for (int64_t i = 0; i < rows; i++)
        m->energy += p->bias[i] * (2 * m->y[i] + n * p->bias[i]);
    memcpy(m->xx, in->dx, square);
    dn_moments_map(p->weight, m);
    memcpy(m->xx, in->xx, square);
    memcpy(m->x, in->x, (size_t)cols * sizeof *m->x);
    for (int64_t i = 0; i < rows; i++) {
        m->y[i] += n * p->bias[i];
        for (int64_t j = 0; j < cols; j++)
            m->yx[i * cols + j] += p->bias[i] * m->x[j];
    }
    return DANAUS_OK;
}

static danaus_status make_problem(
    const compress_work *w, const watched_layer *p, const inputs *in, fit_problem *task)
{
    moments m;
    TRY(make_moments(p, in, &m));
    danaus_status status =
        dn_problem_make(&m, p->weight, NULL, dn_ridge_of(w->how), task);
    dn_moments_free(&m);
    return status;
}

/* ---- what a layer is worth ---- */

/* The rank to try a layer with: that of its share of the weights, or a smaller one, without
   which nothing is lost. */
static int64_t rank_to_try(const compress_work *w, const choices *c)
{
    double whole = w->how->share * (double)c->costs[c->count - 1];
    int64_t rank = 1;
    while (rank + 1 < c->count && (double)c->costs[rank] <= whole)
        rank++;
    while (rank > 1 && c->losses[rank - 1] < 1e-6 * c->losses[0])
        rank /= 2;
    return rank;
}

static double distance(int64_t count, const float *x, const float *y)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    return sum;
}

/* Losses of a layer become what the model's output loses. */
static danaus_status weigh(
    compress_work *w, watched_layer *p, const fit_problem *task, choices *c)
{
    const samples *s = w->samples;
    if (!s->count || c->count < 2)
        return DANAUS_OK;
    int64_t rank = rank_to_try(w, c), n = dn_samples_batch(s, 0);
    TRY(dn_replace_layer(p->layer, w->device, task, rank, 0, w->how->int8, &p->other));
    dn_layer_swap(p);
    danaus_status status = dn_samples_run(w->model, w->device, s, 0, n, w->found);
    dn_layer_swap(p);
    dn_linear_close(&p->other);
    TRY(status);
    double moved = distance(dn_samples_numbers(w->model, s, 0, n), w->found, w->wanted);
    double scale = moved / MAX(c->losses[rank - 1], 1e-300);
    for (int64_t i = 0; i < c->count; i++)
        c->losses[i] *= scale;
    return DANAUS_OK;
}

static danaus_status list_choices(void *user, int number, choices *c)
{
    compress_work *w = user;
    watched_layer *p = &w->layers[number];
    fit_problem task;
    if (!p->layer)
        return DANAUS_OK;
    TRY(make_problem(w, p, &(inputs){ p->x, p->xx, p->xx }, &task));
    danaus_status status = dn_choices_make(&task, c);
    if (status == DANAUS_OK)
        status = weigh(w, p, &task, c);
    dn_problem_free(&task);
    TRY(status);
    return dn_compression_report(
        w->how, WATCHED + (BUDGETED - WATCHED) * (number + 1) / w->count);
}

/* ---- fits ---- */

/* True if two layers that follow each other read the same rows. */
static int reads_the_same(const watched_layer *p, const watched_layer *q)
{
    return p->layer && q->layer && p->layer->cols == q->layer->cols &&
           p->rows == q->rows &&
           !memcmp(p->x, q->x, (size_t)p->layer->cols * sizeof *p->x);
}

/* Sums over all samples, in the model as it has been compressed so far. */
static danaus_status add_inputs(
    compress_work *w, watched_layer *p, double *x, double *xx, double *dx)
{
    const samples *s = w->samples;
    outer *o;
    TRY(dn_layers_outer(w, p->layer->cols, &o));
    w->batch = 0;
    for (int64_t i = 0; i < s->count; i += dn_samples_batch(s, i), w->batch++) {
        TRY(dn_layer_record(w, p, i, &w->dense));
        dn_layers_swap(w);
        danaus_status status = dn_layer_record(w, p, i, &w->here);
        dn_layers_swap(w);
        TRY(status);
        TRY(dn_outer_add(o, w->here.rows, w->here.x, w->here.x, xx, x));
        TRY(dn_outer_add(o, w->here.rows, w->here.x, w->dense.x, dx, NULL));
    }
    return DANAUS_OK;
}

/* By the layer's inputs in the dense model. */
static danaus_status rate_layer(watched_layer *p)
{
    const linear *layer = p->layer;
    targets t;
    TRY(dn_targets_map(layer->rows, layer->cols, p->weight, p->rows, p->x, p->xx, &t));
    danaus_status status = dn_rate_layer(layer, &t, &p->other);
    dn_targets_free(&t);
    return status;
}

/* Fits layers that read the same rows. */
static danaus_status fit_layers(
    compress_work *w, int first, int count, const inputs *in)
{
    for (int i = first; i < first + count; i++) {
        watched_layer *p = &w->layers[i];
        fit_problem task;
        TRY(make_problem(w, p, in, &task));
        danaus_status status = dn_replace_layer(
            p->layer, w->device, &task, w->ranks[i], w->how->candidates, w->how->int8,
            &p->other);
        dn_problem_free(&task);
        TRY(status);
        TRY(rate_layer(p));
        TRY(dn_compression_report(w->how, BUDGETED + (1 - BUDGETED) * i / w->count));
    }
    return DANAUS_OK;
}

static danaus_status fit_seen(compress_work *w, int first, int count)
{
    watched_layer *p = &w->layers[first];
    int64_t n = p->layer->cols;
    double *x = dn_calloc((size_t)(n + 2 * n * n), sizeof *x);
    if (!x)
        return dn_fail_memory((size_t)(n * n) * sizeof *x, "moments");
    danaus_status status = add_inputs(w, p, x, x + n, x + n + n * n);
    if (status == DANAUS_OK)
        status = fit_layers(w, first, count, &(inputs){ x, x + n, x + n + n * n });
    dn_free(x);
    return status;
}

static danaus_status fit_all(compress_work *w)
{
    for (int i = 0, n; i < w->count; i += n) {
        watched_layer *p = &w->layers[i];
        n = 1;
        if (!p->layer)
            continue;
        while (i + n < w->count && reads_the_same(p, p + n))
            n++;
        if (w->samples->count)
            TRY(fit_seen(w, i, n));
        else
            TRY(fit_layers(w, i, n, &(inputs){ p->x, p->xx, p->xx }));
    }
    return DANAUS_OK;
}

danaus_status dn_compress(
    danaus_model *model, danaus_device *device, const samples *s,
    const danaus_model_compression *how)
{
    compress_work w = { .model = model, .device = device, .samples = s, .how = how };
    TRY(dn_lapack_begin(1));
    danaus_status status = dn_layers_open(&w);
    if (status == DANAUS_OK)
        status = dn_layers_watch(&w);
    if (status == DANAUS_OK)
        status = dn_compression_report(how, WATCHED);
    dn_lapack_alone();
    if (status == DANAUS_OK)
        status = dn_find_budgets(model, how->share, list_choices, &w, &w.ranks);
    if (status == DANAUS_OK)
        status = fit_all(&w);
    if (status == DANAUS_OK)
        status = dn_compression_report(how, 1);
    dn_lapack_as_before();
    if (status == DANAUS_OK)
        dn_layers_swap(&w);
    dn_layers_close(&w);
    dn_lapack_end(1);
    return status;
}
