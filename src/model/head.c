/* The head of masked language models. */
// SPDX-License-Identifier: Apache-2.0
#include "model/head.h"

#include "base/dtype.h"
#include "base/status.h"
#include "model/chunk.h"

/* BERT keeps the bias once or twice, under one of two names. */
static danaus_status bind_bias(head *h, binder *b)
{
    static const char own[] = "cls.predictions.bias",
                      decoder[] = "cls.predictions.decoder.bias";
    danaus_tensor t;
    int is_there = dn_binder_find(b, own, &t);
    return dn_bind(
        b, dn_binder_find(b, decoder, &t) || !is_there ? decoder : own, 1, &h->words,
        &h->bias);
}

danaus_status dn_head_open(
    head *h, binder *b, const words *w, danaus_activation activation, double epsilon)
{
    static const char dense[] = "cls.predictions.transform.dense",
                      table[] = "cls.predictions.decoder.weight";
    danaus_tensor t;
    if (!dn_binder_find(b, "cls.predictions.transform.dense.weight", &t))
        return DANAUS_OK;
    h->words = w->vocabulary;
    h->width = w->width;
    h->table = w->word;
    linear_shape shape = { .rows = w->width,
                           .cols = w->width,
                           .activation = activation,
                           .tokens = HEAD_ROWS,
                           .dtype = b->dtype };
    TRY(dn_linear_open(&h->dense, b, dense, &shape));
    b->parameters += h->dense.parameters;
    TRY(dn_affine_bind(
        &h->norm, b, "cls.predictions.transform.LayerNorm", w->width, epsilon));
    if (dn_binder_find(b, table, &t))
        TRY(dn_bind_rows(
            b, table, 2, (const int64_t[]){ h->words, h->width }, &h->table));
    return bind_bias(h, b);
}

void dn_head_close(head *h) { dn_linear_close(&h->dense); }

/* Lays out x, the numbers between the layers, and scores. */
static uintptr_t lay(const head *h, uintptr_t at, void **x, void **dense, float **y)
{
    int64_t rows = HEAD_ROWS * h->width * dn_size_of(h->norm.dtype);
    *x = dn_cut(&at, rows);
    *dense = dn_cut(&at, rows);
    *y = dn_cut(&at, HEAD_ROWS * h->words * (int64_t)sizeof **y);
    return at;
}

size_t dn_head_bytes(const head *h)
{
    void *x, *dense;
    float *y;
    return lay(h, 0, &x, &dense, &y);
}

danaus_status dn_head_run(
    const head *h, danaus_device *device, int64_t rows, void *memory, float *scores)
{
    void *x, *dense;
    float *y;
    lay(h, (uintptr_t)memory, &x, &dense, &y);
    TRY(dn_linear_run(&h->dense, device, rows, x, dense));
    TRY(dn_affine_run(&h->norm, device, rows, h->width, dense, NULL, dense));
    TRY(device->backend->nn->score(
        device, &(nn_score){ .rows = rows,
                             .width = h->width,
                             .words = h->words,
                             .x = dense,
                             .table = h->table,
                             .bias = h->bias,
                             .y = y,
                             .dtype = h->norm.dtype }));
    return danaus_download(
        device, scores, y, (size_t)(rows * h->words) * sizeof *scores);
}
