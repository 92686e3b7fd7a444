/* A block of an encoder step by step, forward and backward. */
// SPDX-License-Identifier: Apache-2.0
#include "model/bert/bert_steps.h"

#include "base/mem.h"
#include "base/status.h"

#include <string.h>

/* Arrays of so many numbers a token, one after the other in one block. */
static danaus_status make_arrays(
    int64_t tokens, int count, float **const *arrays, const int64_t *widths)
{
    int64_t numbers = 0;
    for (int i = 0; i < count; i++)
        numbers += tokens * widths[i];
    float *at = dn_alloc((size_t)numbers * sizeof *at);
    if (!at)
        return dn_fail_memory((size_t)numbers * sizeof *at, "activations");
    for (int i = 0; i < count; i++) {
        *arrays[i] = at;
        at += tokens * widths[i];
    }
    return DANAUS_OK;
}

danaus_status dn_pass_make(const transformer *m, int64_t tokens, bert_pass *p)
{
    int64_t w = m->width, n = m->inner;
    float **const arrays[] = { &p->h,  &p->q, &p->k,     &p->v,  &p->mixed, &p->s1,
                               &p->h1, &p->u, &p->inner, &p->s2, &p->h2 };
    const int64_t widths[] = { w, w, w, w, w, w, w, n, n, w, w };
    return make_arrays(tokens, 11, arrays, widths);
}

void dn_pass_free(bert_pass *p) { dn_free(p->h); }

danaus_status dn_gradients_make(const transformer *m, int64_t tokens, bert_gradients *g)
{
    int64_t w = m->width, n = m->inner;
    float **const arrays[] = { &g->h,         &g->of[QUERY],  &g->of[KEY],
                               &g->of[VALUE], &g->of[OUTPUT], &g->of[UP],
                               &g->of[DOWN],  &g->mixed,      &g->inner };
    const int64_t widths[] = { w, w, w, w, w, n, w, w, n };
    return make_arrays(tokens, 9, arrays, widths);
}

void dn_gradients_free(bert_gradients *g) { dn_free(g->h); }

const float *dn_pass_input(const bert_pass *p, bert_stage stage)
{
    const float *const inputs[STAGES] = { p->h, p->mixed, p->h1, p->inner };
    return inputs[stage];
}

const float *dn_pass_output(const bert_pass *p, int layer)
{
    const float *const outputs[BLOCK_LINEARS] = {
        p->q, p->k, p->v, p->s1, p->u, p->s2
    };
    return outputs[layer];
}

static void add(int64_t count, const float *x, float *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += x[i];
}

static nn_attention attention_of(const transformer *m, const bert_pass *p)
{
    return (nn_attention){ .sequences = p->sequences,
                           .width = m->width,
                           .heads = m->heads,
                           .q = p->q,
                           .k = p->k,
                           .v = p->v,
                           .y = p->mixed,
                           .bias = m->bias,
                           .reach = m->reach };
}

static danaus_status run_up(
    const transformer *m, danaus_device *device, const bert_layers *layers,
    const bert_pass *p)
{
    float *to = layers->makes_u ? p->u : p->inner;
    TRY(dn_linear_run(layers->of[UP], device, p->tokens, p->h1, to));
    if (!layers->makes_u)
        return DANAUS_OK;
    return device->backend->nn->activate(
        device,
        &(nn_activation){ p->tokens * m->inner, m->activation, p->u, p->inner });
}

danaus_status dn_pass_run(
    const transformer *m, danaus_device *device, const transformer_block *b,
    const bert_layers *layers, bert_stage stage, int whole, const bert_pass *p)
{
    int64_t n = p->tokens;
    int last = (int)stage * 2 + whole; /* steps to make */
    if (last >= 1)
        for (int i = QUERY; i <= VALUE; i++)
            TRY(dn_linear_run(
                layers->of[i], device, n, p->h,
                i == QUERY ? p->q
                : i == KEY ? p->k
                           : p->v));
    nn_attention mixing = attention_of(m, p);
    if (last >= 2)
        TRY(device->backend->nn->attention(device, &mixing));
    if (last >= 3) {
        TRY(dn_linear_run(layers->of[OUTPUT], device, n, p->mixed, p->s1));
        add(n * m->width, p->h, p->s1);
    }
    if (last >= 4)
        TRY(dn_affine_run(&b->middle, device, n, m->width, p->s1, NULL, p->h1));
    if (last >= 5)
        TRY(run_up(m, device, layers, p));
    if (last < 7)
        return DANAUS_OK;
    TRY(dn_linear_run(layers->of[DOWN], device, n, p->inner, p->s2));
    add(n * m->width, p->h1, p->s2);
    return dn_affine_run(&b->outer, device, n, m->width, p->s2, NULL, p->h2);
}

static danaus_status norm_back(
    const transformer *m, danaus_device *device, int64_t tokens, const float *x,
    affine norm, float *dy)
{
    return device->backend->nn->norm_gradient(
        device,
        &(nn_norm_gradient){ tokens, m->width, x, dy, norm.scale, norm.epsilon, dy });
}

danaus_status dn_pass_go_back(
    const transformer *m, danaus_device *device, const transformer_block *b,
    const linear *adjoint, const bert_pass *p, const bert_gradients *g)
{
    const nn_backend *nn = device->backend->nn;
    int64_t n = p->tokens, numbers = n * m->width;
    TRY(norm_back(m, device, n, p->s2, b->outer, g->of[DOWN]));
    TRY(dn_linear_run(&adjoint[DOWN], device, n, g->of[DOWN], g->inner));
    TRY(nn->activation_gradient(
        device, &(nn_activation_gradient){ n * m->inner, m->activation, p->u, g->inner,
                                           g->of[UP] }));
    TRY(dn_linear_run(&adjoint[UP], device, n, g->of[UP], g->of[OUTPUT]));
    add(numbers, g->of[DOWN], g->of[OUTPUT]);
    TRY(norm_back(m, device, n, p->s1, b->middle, g->of[OUTPUT]));
    TRY(dn_linear_run(&adjoint[OUTPUT], device, n, g->of[OUTPUT], g->mixed));
    nn_attention_gradient mixing = { attention_of(m, p), g->mixed, g->of[QUERY],
                                     g->of[KEY], g->of[VALUE] };
    TRY(nn->attention_gradient(device, &mixing));
    memcpy(g->h, g->of[OUTPUT], (size_t)numbers * sizeof *g->h);
    for (int i = QUERY; i <= VALUE; i++) {
        TRY(dn_linear_run(&adjoint[i], device, n, g->of[i], g->mixed));
        add(numbers, g->mixed, g->h);
    }
    return DANAUS_OK;
}
