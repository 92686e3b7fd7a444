/* Rows of a model of Hyena's kind through the layers before and after its long convolutions. */
// SPDX-License-Identifier: Apache-2.0
#include "model/hyena/hyena.h"

#include "base/status.h"

void dn_hyena_rows_lay(const hyena *m, int64_t rows, uintptr_t *at, hyena_rows *r)
{
    const int64_t size = dn_size_of(m->dtype), before = m->taps - 1;
    r->u = dn_cut(at, rows * m->width * size);
    r->more = dn_cut(at, rows * m->width * size);
    r->p = dn_cut(at, (before + rows) * dn_hyena_planes(m) * size);
    r->inner = dn_cut(at, rows * m->inner * size);
    r->past = dn_cut(at, m->layers * before * dn_hyena_planes(m) * size);
    r->words = NULL;
    if (m->rows && 2 * m->rows < rows)
        r->words = dn_cut(at, m->rows * dn_hyena_planes(m) * size);
}

/* True if the first block finds W_i norm(r) by words: not where somebody is to see what its
   layer reads. */
static int goes_by_words(const hyena *m, const hyena_rows *rows)
{
    return rows->words && !m->blocks->linear[HYENA_IN].watcher;
}

danaus_status dn_hyena_words(
    const hyena *m, danaus_device *device, const hyena_rows *rows)
{
    const hyena_block *first = m->blocks;
    if (!goes_by_words(m, rows))
        return DANAUS_OK;
    TRY(dn_affine_run(
        &first->before, device, m->rows, m->width, m->word, NULL, rows->u));
    return dn_linear_run(
        &first->linear[HYENA_IN], device, m->rows, rows->u, rows->words);
}

/* p = W_i norm(r). */
static danaus_status enter(
    const hyena *m, danaus_device *device, int64_t number, const hyena_place *at,
    const hyena_rows *rows, float *r, void *p)
{
    const hyena_block *b = &m->blocks[number];
    if (number == 0 && goes_by_words(m, rows))
        return device->backend->nn->lookup(
            device, &(nn_lookup){ .rows = at->rows,
                                  .width = dn_hyena_planes(m),
                                  .ids = at->ids,
                                  .word = rows->words,
                                  .y = p,
                                  .dtype = m->dtype });
    TRY(dn_affine_add(
        &b->before, device, at->rows, m->width, r, number ? rows->more : NULL,
        rows->u));
    return dn_linear_run(&b->linear[HYENA_IN], device, at->rows, rows->u, p);
}

danaus_status dn_hyena_front(
    const hyena *m, danaus_device *device, int64_t number, const hyena_place *at,
    const hyena_rows *rows, float *r, void *planes)
{
    const backend *on = device->backend;
    int64_t width = dn_hyena_planes(m), before = (m->taps - 1) * width;
    size_t kept = (size_t)(before * dn_size_of(m->dtype));
    void *past = dn_at(rows->past, m->dtype, number * before);
    void *p = dn_at(rows->p, m->dtype, before);
    TRY(on->copy(device, rows->p, past, kept));
    TRY(enter(m, device, number, at, rows, r, p));
    TRY(dn_short_conv_run(
        &m->blocks[number].short_filter, device, &at->sequences, at->first, at->rows, p,
        planes, at->stride));
    return on->copy(device, past, dn_at(rows->p, m->dtype, at->rows * width), kept);
}

danaus_status dn_hyena_back(
    const hyena *m, danaus_device *device, int64_t number, const hyena_place *at,
    const hyena_rows *rows, const void *mixed, float *r)
{
    const hyena_block *b = &m->blocks[number];
    TRY(device->backend->nn->turn(
        device, &(nn_turn){ .rows = m->width,
                            .width = at->rows,
                            .stride = m->width,
                            .pitch = at->stride,
                            .x = mixed,
                            .y = rows->u,
                            .dtype = m->dtype }));
    TRY(dn_linear_run(&b->linear[HYENA_OUT], device, at->rows, rows->u, rows->more));
    if (!m->inner)
        return DANAUS_OK;
    TRY(dn_affine_add(&b->middle, device, at->rows, m->width, r, rows->more, rows->u));
    TRY(dn_linear_run(&b->linear[HYENA_UP], device, at->rows, rows->u, rows->inner));
    return dn_linear_run(
        &b->linear[HYENA_DOWN], device, at->rows, rows->inner, rows->more);
}

danaus_status dn_hyena_last(
    const hyena *m, danaus_device *device, int64_t count, const hyena_rows *rows,
    float *r)
{
    return dn_affine_run(&m->last, device, count, m->width, r, rows->more, r);
}
