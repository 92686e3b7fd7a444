/* One product with an installed library: y = 2 x. */
// SPDX-License-Identifier: Apache-2.0
#include <danaus/danaus.h>

#include <stdio.h>

int main(void)
{
    danaus_pattern p = { 3, 1, 1, 1 };
    danaus_device *device = NULL;
    danaus_chain *chain = NULL;
    float x[3] = { 1, 2, 3 }, y[3] = { 0, 0, 0 };
    danaus_status status = danaus_device_open("cpu", &device);
    if (status == DANAUS_OK)
        status = danaus_chain_create(&p, 1, DANAUS_F32, &chain);
    if (status == DANAUS_OK) {
        float *w = danaus_chain_weights(chain, 0);
        w[0] = w[1] = w[2] = 2;
        status = danaus_ks_apply(device, chain, DANAUS_BATCH_FIRST, 1, x, y);
    }
    if (status != DANAUS_OK)
        fprintf(stderr, "%s\n", danaus_error_detail());
    danaus_chain_destroy(chain);
    danaus_device_close(device);
    return y[0] != 2 || y[1] != 4 || y[2] != 6;
}
