/* The head of masked language models. */
// SPDX-License-Identifier: Apache-2.0
#include "model/head.h"

#include "base/dtype.h"
#include "base/status.h"
#include "model/chunk.h"

/* The bias may be in the file once or twice, under one of two names. */
static danaus_status bind_bias(head *h, binder *b, const head_names *names)
{
    danaus_tensor t;
    int is_there = dn_binder_find(b, names->other, &t);
    const char *name =
        dn_binder_find(b, names->bias, &t) || !is_there ? names->bias : names->other;
    return dn_bind(b, name, 1, &h->words, &h->bias);
}

danaus_status dn_head_open(
    head *h, binder *b, const words *w, const head_names *names, const head_form *form,
    double epsilon)
{
    danaus_tensor t;
    if (!dn_binder_find(b, dn_name("%s.weight", names->dense).text, &t))
        return DANAUS_OK;
    h->words = w->vocabulary;
    h->width = w->width;
    h->table = w->word;
    linear_shape shape = { .rows = w->width,
                           .cols = w->width,
                           .activation = form->activation,
                           .no_bias = form->no_dense_bias,
                           .tokens = HEAD_ROWS,
                           .dtype = b->dtype };
    TRY(dn_linear_open(&h->dense, b, names->dense, &shape));
    b->parameters += h->dense.parameters;
    TRY(dn_affine_bind(&h->norm, b, names->norm, w->width, epsilon));
    if (dn_binder_find(b, names->table, &t))
        TRY(dn_bind_rows(
            b, names->table, 2, (const int64_t[]){ h->words, h->width }, &h->table));
    return form->no_bias ? DANAUS_OK : bind_bias(h, b, names);
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
