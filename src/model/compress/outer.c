/* Sums of outer products over tokens. */
// SPDX-License-Identifier: Apache-2.0
#include "model/compress/outer.h"

#include "base/mem.h"
#include "base/status.h"

danaus_status dn_outer_open(
    outer *o, danaus_device *device, int64_t rows, int64_t cols, int64_t tokens)
{
    const danaus_pattern dense = { 1, rows, cols, 1 };
    danaus_ks_desc desc = { .gradients = 1, .batch = tokens };
    *o = (outer){ .device = device, .rows = rows, .cols = cols };
    danaus_status status = danaus_ks_plan_create(device, &dense, 1, &desc, &o->plan);
    if (status == DANAUS_OK)
        status = danaus_ks_weights_create(o->plan, device, NULL, &o->weights);
    if (status == DANAUS_OK) {
        o->products = dn_calloc((size_t)(rows * (cols + 1)), sizeof *o->products);
        o->sums = o->products + rows * cols;
        if (!o->products)
            status = dn_fail_memory(
                (size_t)(rows * cols) * sizeof *o->products, "sums of products");
    }
    if (status != DANAUS_OK)
        dn_outer_close(o);
    return status;
}

void dn_outer_close(outer *o)
{
    dn_free(o->products);
    danaus_ks_weights_destroy(o->weights);
    danaus_ks_plan_destroy(o->plan);
    *o = (outer){ 0 };
}

danaus_status dn_outer_add(
    outer *o, int64_t tokens, const float *x, const float *y, double *yx, double *sum_y)
{
    void *products = o->products;
    danaus_ks_gradients g = { .dw = &products, .dbias = sum_y ? o->sums : NULL };
    TRY(danaus_ks_gradient(o->plan, o->device, o->weights, tokens, x, y, &g));
    for (int64_t i = 0; i < o->rows * o->cols; i++)
        yx[i] += o->products[i];
    for (int64_t i = 0; i < o->rows && sum_y; i++)
        sum_y[i] += o->sums[i];
    return DANAUS_OK;
}
