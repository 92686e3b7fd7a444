/* Multiplies a batch by a chain of two Kronecker-sparse factors.

       cc multiply.c $(pkg-config --cflags --libs danaus) */
// SPDX-License-Identifier: Apache-2.0
#include <danaus/danaus.h>
#include <stdio.h>

int main(void)
{
    danaus_pattern patterns[2];
    danaus_device *device = NULL;
    danaus_chain *chain = NULL;
    static float x[8][96], y[8][384]; /* batch-first: x[batch][N], y[batch][M] */
    int count, failed;

    failed = danaus_device_open("cpu", &device) ||
             danaus_patterns_parse("1,192,48,2 2,48,48,1", patterns, 2, &count) ||
             danaus_chain_create(patterns, count, DANAUS_F32, &chain);
    for (int f = 0; !failed && f < count; f++) {
        danaus_pattern p = patterns[f];
        float *w = danaus_chain_weights(chain, f); /* w[a][b][c][d] */
        for (int64_t i = 0; i < p.a * p.b * p.c * p.d; i++)
            w[i] = 1.0f / (float)p.c;
    }
    for (int s = 0; s < 8; s++)
        for (int i = 0; i < 96; i++)
            x[s][i] = (float)s;

    failed = failed || danaus_ks_apply(device, chain, DANAUS_BATCH_FIRST, 8, x, y);
    if (failed)
        fprintf(stderr, "%s\n", danaus_error_detail());
    else
        printf("y[3] = %g ... %g\n", y[3][0], y[3][383]); /* averages of x[3]: 3 */
    danaus_chain_destroy(chain);
    danaus_device_close(device);
    return failed;
}
