/* Long convolutions of Monarch Mixers for signals of different lengths: plans, and spectra of all
   blocks if they can stay in memory, otherwise of one block at a time. */
// SPDX-License-Identifier: Apache-2.0
#include "model/m2/m2.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

/* 32, 48, 64, 96, 128, ... */
static int64_t nominal(int i) { return (int64_t)(i % 2 ? 48 : 32) << (i / 2); }

static int index_of(const m2 *m, int64_t tokens)
{
    int i = 0;
    while (i + 1 < M2_LENGTHS && nominal(i) < MIN(tokens, m->taken))
        i++;
    return i;
}

int64_t dn_m2_padded(const m2 *m, int64_t tokens)
{
    return MIN(nominal(index_of(m, tokens)), m->taken);
}

m2_length *dn_m2_length(m2 *m, int64_t tokens)
{
    return &m->lengths[index_of(m, tokens)];
}

const danaus_spectrum *dn_m2_spectrum(
    const m2_length *length, int64_t block, int filter)
{
    return length->kept ? length->kept[block * M2_FILTERS + filter]
                        : length->shared[filter];
}

/* ---- spectra ---- */

static danaus_status make_spectrum(
    const m2_length *to, danaus_device *device, const hyena_filter *f,
    danaus_spectrum *spectrum, float *k)
{
    int64_t n = to->length, numbers = n * f->shape.channels;
    float *reverse = f->shape.reverse ? k + numbers : NULL;
    TRY(dn_hyena_filter_run(f, device, 0, n, k, n));
    if (reverse)
        TRY(dn_hyena_filter_run(f, device, 1, n, reverse, n));
    return danaus_spectrum_update_from(
        spectrum, device, DANAUS_F32, k, reverse, f->skip);
}

static void forget_kept(const m2 *m, m2_length *length)
{
    for (int64_t i = 0; length->kept && i < m->layers * M2_FILTERS; i++)
        danaus_spectrum_destroy(length->kept[i]);
    dn_free(length->kept);
    length->kept = NULL;
}

static danaus_status make_kept(
    const m2 *m, danaus_device *device, m2_length *length, float *k)
{
    length->kept = dn_calloc((size_t)m->layers * M2_FILTERS, sizeof *length->kept);
    if (!length->kept)
        return dn_fail_memory((size_t)m->layers, "a table of spectra");
    for (int64_t i = 0; i < m->layers; i++)
        for (int f = 0; f < dn_m2_filters(m); f++) {
            danaus_spectrum **to = &length->kept[i * M2_FILTERS + f];
            TRY(danaus_spectrum_create(length->plan, device, NULL, NULL, NULL, to));
            TRY(make_spectrum(length, device, &m->blocks[i].filter[f], *to, k));
        }
    return DANAUS_OK;
}

int64_t dn_m2_spectra_bytes(const m2 *m, const danaus_conv_plan *plan)
{
    size_t bytes = 0;
    danaus_spectrum_bytes(plan, &bytes);
    return (int64_t)bytes * dn_m2_filters(m);
}

int64_t dn_m2_keeps(const m2 *m, const danaus_conv_plan *plan, int64_t kept)
{
    int64_t bytes = m->layers * dn_m2_spectra_bytes(m, plan);
    return kept + bytes <= m->most_kept ? bytes : 0;
}

/* ---- lengths ---- */

danaus_status dn_m2_plan(
    const m2 *m, danaus_device *device, int64_t length, danaus_conv_plan **plan)
{
    const danaus_conv_desc desc = {
        .channels = m->width,
        .length = length,
        .kind = m->filter.reverse ? DANAUS_BIDIRECTIONAL : DANAUS_CAUSAL,
        .dtype = m->dtype,
        .batch = m->packed ? CEIL_DIV(M2_GPU_TOKENS, length) : 1,
        .packed = m->packed
    };
    return danaus_conv_plan_create(device, &desc, plan);
}

static danaus_status open_length(
    m2 *m, danaus_device *device, m2_length *length, float *k)
{
    if (!length->plan)
        TRY(dn_m2_plan(m, device, length->length, &length->plan));
    length->used = 1;
    if (length->kept)
        return DANAUS_OK;
    int64_t bytes = dn_m2_keeps(m, length->plan, m->kept);
    if (bytes) {
        danaus_status status = make_kept(m, device, length, k);
        if (status != DANAUS_OK)
            forget_kept(m, length);
        else
            m->kept += bytes;
        return status;
    }
    for (int f = 0; f < dn_m2_filters(m); f++)
        TRY(danaus_spectrum_create(
            length->plan, device, NULL, NULL, NULL, &length->shared[f]));
    return DANAUS_OK;
}

danaus_status dn_m2_open_lengths(
    m2 *m, danaus_device *device, const nn_sequences *sequences, float *k)
{
    for (int64_t i = 0; i < sequences->count; i++) {
        int64_t tokens = sequences->offsets[i + 1] - sequences->offsets[i];
        m2_length *length = dn_m2_length(m, tokens);
        length->length = dn_m2_padded(m, tokens);
        if (!length->used)
            TRY(open_length(m, device, length, k));
    }
    return DANAUS_OK;
}

void dn_m2_close_lengths(m2 *m)
{
    for (int i = 0; i < M2_LENGTHS; i++) {
        m2_length *length = &m->lengths[i];
        for (int f = 0; f < M2_FILTERS; f++) {
            danaus_spectrum_destroy(length->shared[f]);
            length->shared[f] = NULL;
        }
        length->used = 0;
    }
}

void dn_m2_forget(m2 *m)
{
    for (int i = 0; i < M2_LENGTHS; i++) {
        forget_kept(m, &m->lengths[i]);
        danaus_conv_plan_destroy(m->lengths[i].plan);
    }
}

danaus_status dn_m2_make_spectra(m2 *m, danaus_device *device, int64_t block, float *k)
{
    for (int i = 0; i < M2_LENGTHS; i++)
        for (int f = 0; f < dn_m2_filters(m); f++) {
            const m2_length *length = &m->lengths[i];
            if (length->shared[f])
                TRY(make_spectrum(
                    length, device, &m->blocks[block].filter[f], length->shared[f], k));
        }
    return DANAUS_OK;
}
