/* Short depthwise causal filters, as PyTorch's Conv1d stores them:
   y[t][i] = bias[i] + sum over j < taps of weight[i][0][j] x[t - taps + 1 + j][i]. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_HYENA_SHORT_CONV_H
#define DN_MODEL_HYENA_SHORT_CONV_H

#include "device/nn.h"
#include "model/bind.h"

typedef struct short_conv {
    int64_t width, taps;
    const float *k;     /* [taps][width], k[0] meets the newest row */
    const float *shift; /* [width] */
    danaus_dtype dtype; /* of rows */
} short_conv;

/* Reads NAME.weight [width][1][taps] and NAME.bias. */
danaus_status dn_short_conv_bind(
    short_conv *f, binder *b, const char *name, int64_t width, int64_t taps);

/* Turns `rows` rows x, from row `first` of some sequences on, into channels y[width][stride];
   before x lie taps - 1 rows more, as far as their sequence has them. */
danaus_status dn_short_conv_run(
    const short_conv *f, danaus_device *device, const nn_sequences *sequences,
    int64_t first, int64_t rows, const void *x, void *y, int64_t stride);

#endif
