/* Layers of a model that is being compressed, and their inputs. */
// SPDX-License-Identifier: Apache-2.0
#include "model/compress/layers.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

#include <regex.h>
#include <string.h>

/* ---- layers ---- */

static danaus_status read_numbers(
    const compress_work *w, const linear *layer, const char *part, int64_t count,
    double *to)
{
    danaus_tensor t;
    TRY(dn_model_tensor(w->model, layer, part, &t));
    return danaus_convert(t.dtype, t.data, DANAUS_F64, to, count);
}

/* A dense matrix of the file. */
static int is_dense(const linear *layer)
{
    return layer->factors == 1 && layer->patterns->a == 1 && !layer->fitted.basis &&
           !layer->is_chain;
}

static danaus_status open_layer(compress_work *w, linear *layer, watched_layer *p)
{
    int64_t m = layer->rows, n = layer->cols;
    int64_t numbers = m * n + m + n + n * n;
    p->work = w;
    p->layer = layer;
    p->weight = dn_calloc((size_t)numbers, sizeof *p->weight);
    p->seen = dn_calloc((size_t)dn_samples_batches(w->samples) + 1, sizeof *p->seen);
    if (!p->weight || !p->seen)
        return dn_fail_memory((size_t)numbers * sizeof *p->weight, "sums of a layer");
    p->bias = p->weight + m * n;
    p->x = p->bias + m;
    p->xx = p->x + n;
    TRY(read_numbers(w, layer, "weight", m * n, p->weight));
    return layer->biased ? read_numbers(w, layer, "bias", m, p->bias) : DANAUS_OK;
}

/* Bytes of all layers, and of what one is fitted with. */
static int64_t bytes_of(const compress_work *w, const int *chosen)
{
    int64_t sum = 0, most = 0;
    for (int i = 0; i < w->count; i++) {
        int64_t m = w->model->linear[i].rows, n = w->model->linear[i].cols;
        sum += chosen[i] ? m * n + n * n : 0;
        most = MAX(most, 8 * (m * n + n * n));
    }
    return (sum + most) * (int64_t)sizeof(double);
}

danaus_status dn_match_layers(
    const danaus_model *model, const char *expression, int *matches)
{
    regex_t pattern;
    char reason[80];
    int found = 0, failed = 0;
    if (expression &&
        (failed = regcomp(&pattern, expression, REG_EXTENDED | REG_NOSUB))) {
        regerror(failed, &pattern, reason, sizeof reason);
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "\"%.40s\" is no regular expression: %s", expression,
            reason);
    }
    for (int i = 0; i < model->linears; i++)
        found += matches[i] =
            !expression || !regexec(&pattern, model->linear[i].name, 0, NULL, 0);
    if (expression)
        regfree(&pattern);
    if (found)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_ARGUMENT, "no layer has a name that matches \"%.80s\"",
        expression ? expression : "");
}

static danaus_status open_layers(compress_work *w, int *chosen)
{
    danaus_model *model = w->model;
    int left = 0;
    TRY(dn_match_layers(model, w->how->layers, chosen));
    for (int i = 0; i < w->count; i++)
        left += chosen[i] &= is_dense(&model->linear[i]);
    if (!left)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "no layer is a dense matrix: the others are "
                                    "chains or block-diagonal already");
    TRY(dn_need_memory(w->device, bytes_of(w, chosen), "compression"));
    for (int i = 0; i < w->count; i++)
        if (chosen[i])
            TRY(open_layer(w, &model->linear[i], &w->layers[i]));
    return DANAUS_OK;
}

static danaus_status open_outputs(compress_work *w)
{
    const samples *s = w->samples;
    if (!s->count)
        return DANAUS_OK;
    int64_t numbers = 0;
    for (int64_t i = 0, n; i < s->count; i += n) {
        n = dn_samples_batch(s, i);
        numbers = MAX(numbers, dn_samples_numbers(w->model, s, i, n));
    }
    w->wanted = dn_calloc((size_t)numbers, sizeof *w->wanted);
    w->found = dn_calloc((size_t)numbers, sizeof *w->found);
    return w->wanted && w->found
               ? DANAUS_OK
               : dn_fail_memory((size_t)numbers * sizeof *w->found, "outputs");
}

danaus_status dn_layers_open(compress_work *w)
{
    w->count = w->model->linears;
    int *chosen = dn_calloc((size_t)w->count + 1, sizeof *chosen);
    w->layers = dn_calloc((size_t)w->count + 1, sizeof *w->layers);
    w->outers = dn_calloc((size_t)w->count + 1, sizeof *w->outers);
    danaus_status status =
        chosen && w->layers && w->outers
            ? open_layers(w, chosen)
            : dn_fail_memory((size_t)w->count * sizeof *w->layers, "a table of layers");
    dn_free(chosen);
    return status == DANAUS_OK ? open_outputs(w) : status;
}

void dn_layers_close(compress_work *w)
{
    for (int i = 0; w->layers && i < w->count; i++) {
        dn_linear_close(&w->layers[i].other);
        dn_free(w->layers[i].weight);
        dn_free(w->layers[i].seen);
    }
    for (int i = 0; i < w->outers_made; i++)
        dn_outer_close(&w->outers[i]);
    dn_free(w->layers);
    dn_free(w->outers);
    dn_free(w->ranks);
    dn_free(w->dense.x);
    dn_free(w->here.x);
    dn_free(w->wanted);
    dn_free(w->found);
}

void dn_layer_swap(watched_layer *p)
{
    linear layer = *p->layer;
    *p->layer = p->other;
    p->other = layer;
}

void dn_layers_swap(compress_work *w)
{
    for (int i = 0; i < w->count; i++)
        if (dn_linear_is_open(&w->layers[i].other))
            dn_layer_swap(&w->layers[i]);
}

/* ---- what they read ---- */

danaus_status dn_layers_outer(compress_work *w, int64_t cols, outer **found)
{
    const int64_t tokens = 1024; /* rows of a call, or so */
    for (int i = 0; i < w->outers_made; i++)
        if (w->outers[i].cols == cols) {
            *found = &w->outers[i];
            return DANAUS_OK;
        }
    *found = &w->outers[w->outers_made];
    TRY(dn_outer_open(*found, w->device, cols, cols, tokens));
    w->outers_made++;
    return DANAUS_OK;
}

static danaus_status add_rows(
    watcher *of, const linear *layer, int64_t rows, const void *x)
{
    watched_layer *p = (watched_layer *)of;
    outer *o;
    TRY(dn_layers_outer(p->work, layer->cols, &o));
    p->seen[p->work->batch] += rows;
    p->rows += rows;
    return dn_outer_add(o, rows, x, x, p->xx, p->x);
}

static void suppose_rows(watched_layer *p)
{
    int64_t n = p->layer->cols;
    p->rows = 2;
    for (int64_t i = 0; i < n; i++)
        p->xx[i * n + i] = (double)p->rows;
}

static danaus_status watch_all(compress_work *w)
{
    const samples *s = w->samples;
    w->batch = 0;
    for (int64_t i = 0, n; i < s->count; i += n, w->batch++) {
        n = dn_samples_batch(s, i);
        TRY(dn_samples_run(w->model, w->device, s, i, n, i ? w->found : w->wanted));
    }
    return DANAUS_OK;
}

danaus_status dn_layers_watch(compress_work *w)
{
    for (int i = 0; i < w->count; i++) {
        watched_layer *p = &w->layers[i];
        p->watcher.see = add_rows;
        if (p->layer && w->samples->count)
            p->layer->watcher = &p->watcher;
        else if (p->layer)
            suppose_rows(p);
    }
    danaus_status status = watch_all(w);
    for (int i = 0; i < w->count; i++)
        if (w->layers[i].layer)
            w->layers[i].layer->watcher = NULL;
    return status;
}

static danaus_status record_rows(
    watcher *of, const linear *layer, int64_t rows, const void *x)
{
    recorder *r = (recorder *)of;
    size_t row = (size_t)layer->cols * sizeof *r->x;
    memcpy(r->x + r->rows * layer->cols, x, (size_t)rows * row);
    r->rows += rows;
    return r->rows < r->wanted ? DANAUS_OK
                               : dn_fail(DANAUS_ERR_CANCELLED, "all rows are there");
}

static danaus_status make_room(recorder *r, int64_t rows, int64_t cols)
{
    size_t bytes = (size_t)(rows * cols) * sizeof *r->x;
    r->rows = 0;
    r->wanted = rows;
    if (bytes <= r->room)
        return DANAUS_OK;
    dn_free(r->x);
    r->x = dn_alloc(bytes);
    r->room = r->x ? bytes : 0;
    return r->x ? DANAUS_OK : dn_fail_memory(bytes, "rows of a layer");
}

danaus_status dn_layer_record(
    compress_work *w, watched_layer *p, int64_t first, recorder *to)
{
    const samples *s = w->samples;
    TRY(make_room(to, p->seen[w->batch], p->layer->cols));
    to->watcher.see = record_rows;
    p->layer->watcher = &to->watcher;
    danaus_status status = dn_samples_run(
        w->model, w->device, s, first, dn_samples_batch(s, first), w->found);
    p->layer->watcher = NULL;
    return to->rows == to->wanted ? DANAUS_OK : status;
}
