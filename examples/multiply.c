/* A layer of 384 x 384 as two Kronecker-sparse factors, times a batch of 8. */
// SPDX-License-Identifier: Apache-2.0
#include <danaus/danaus.h>
#include <stdio.h>

int main(void)
{
    danaus_pattern patterns[2] = { { 1, 192, 48, 2 }, { 2, 48, 192, 1 } };
    danaus_ks_desc desc = { .layout = DANAUS_BATCH_FIRST, .batch = 8 };
    danaus_device *device = NULL;
    danaus_chain *chain = NULL;
    danaus_ks_plan *plan = NULL;
    danaus_ks_weights *weights = NULL;
    static float x[8][384], y[8][384];
    int failed = danaus_device_open("cpu", &device) ||
                 danaus_chain_create(patterns, 2, DANAUS_F32, &chain);
    for (int f = 0; !failed && f < 2; f++) {
        float *w = danaus_chain_weights(chain, f); /* w[a][b][c][d] */
        for (int i = 0; i < 1 * 192 * 48 * 2; i++) /* as many in either factor */
            w[i] = 1.0f / (float)patterns[f].c;
    }
    for (int s = 0; s < 8; s++)
        for (int i = 0; i < 384; i++)
            x[s][i] = (float)s;

    failed = failed || danaus_ks_plan_create(device, patterns, 2, &desc, &plan) ||
             danaus_ks_weights_create(plan, device, chain, &weights) ||
             danaus_ks_execute(plan, device, weights, 8, x, y); /* again and again */
    if (failed)
        fprintf(stderr, "%s\n", danaus_error_detail());
    else
        printf("y[3] = %g ... %g\n", y[3][0], y[3][383]); /* averages of x[3]: 3 */
    danaus_ks_weights_destroy(weights);
    danaus_ks_plan_destroy(plan);
    danaus_chain_destroy(chain);
    danaus_device_close(device);
    return failed;
}
