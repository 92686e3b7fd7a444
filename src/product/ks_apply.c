/* A single product, whose plan and weights are made for it and released after it. */
// SPDX-License-Identifier: Apache-2.0
#include "product/chain.h"

#include "base/mem.h"
#include "base/status.h"

#include <inttypes.h>

static danaus_status apply(
    danaus_device *device, const danaus_chain *chain, danaus_ks_plan *plan,
    int64_t batch, const void *x, void *y)
{
    size_t size = danaus_dtype_size(chain->dtype);
    int64_t cols = danaus_chain_cols(chain), rows = danaus_chain_rows(chain), n;
    if (batch < 0 || dn_mul_overflows(rows > cols ? rows : cols, batch, &n) ||
        dn_mul_overflows(n, (int64_t)size, &n))
        return dn_fail(DANAUS_ERR_SHAPE, "a batch of %" PRId64, batch);
    size_t x_bytes = (size_t)(cols * batch) * size,
           y_bytes = (size_t)(rows * batch) * size;
    danaus_ks_weights *weights = NULL;
    void *dx = NULL, *dy = NULL;
    danaus_status status = danaus_ks_weights_create(plan, device, chain, &weights);
    if (status == DANAUS_OK)
        status = danaus_alloc(device, x_bytes, &dx);
    if (status == DANAUS_OK)
        status = danaus_alloc(device, y_bytes, &dy);
    if (status == DANAUS_OK)
        status = danaus_upload(device, dx, x, x_bytes);
    if (status == DANAUS_OK)
        status = danaus_ks_execute(plan, device, weights, batch, dx, dy);
    if (status == DANAUS_OK)
        status = danaus_device_sync(device);
    if (status == DANAUS_OK)
        status = danaus_download(device, y, dy, y_bytes);
    danaus_free(device, dx);
    danaus_free(device, dy);
    danaus_ks_weights_destroy(weights);
    return status;
}

danaus_status danaus_ks_apply(
    danaus_device *device, const danaus_chain *chain, danaus_layout layout,
    int64_t batch, const void *x, void *y)
{
    if (!device || !chain || (batch && (!x || !y)))
        return dn_fail(DANAUS_ERR_ARGUMENT, "a device, a chain, x and y are needed");
    danaus_ks_desc desc = { .layout = layout,
                            .dtype = chain->dtype,
                            .batch = batch,
                            .keep_factors = 1,
                            .bias = danaus_chain_bias(chain) != NULL };
    danaus_ks_plan *plan;
    TRY(danaus_ks_plan_create(device, chain->patterns, chain->count, &desc, &plan));
    danaus_status status = apply(device, chain, plan, batch, x, y);
    danaus_ks_plan_destroy(plan);
    return status;
}
