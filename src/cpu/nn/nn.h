/* What the driver of models' operations (run.c) and their kernels (kernels.c, compiled
   once for each instruction set) share. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_NN_NN_H
#define DN_CPU_NN_NN_H

#include "base/numbers.h"
#include "device/nn.h"

/* Keys are padded to a multiple of this, in scratch. */
#define NN_KEYS_UNIT 16
/* Rows and channels that are turned together: runs of a channel are long enough to be worth
   the page that they lie in. */
#define NN_TURN_ROWS     64
#define NN_TURN_CHANNELS 16
/* Rows of queries that are worked on together. */
#define NN_QUERIES 12

/* Numbers of scratch for a head of a sequence. */
static inline int64_t dn_nn_attention_scratch(int64_t length, int64_t head)
{
    return ROUND_UP(length, NN_KEYS_UNIT) * (head + NN_QUERIES) + NN_QUERIES * head;
}

/* The same for its gradients: keys, values and three matrices of a number for each pair of
   rows. */
static inline int64_t dn_nn_gradient_scratch(int64_t length, int64_t head)
{
    return ROUND_UP(length, NN_KEYS_UNIT) * (2 * head + 3 * length);
}

extern const nn_backend dn_cpu_nn;

/* cayley.c */
danaus_status dn_cpu_cayley(danaus_device *dev, const nn_cayley *o);

struct nn_code {
    void (*norm)(const nn_norm *o, range rows);
    void (*lookup)(const nn_lookup *o, range rows);
    /* One head of the rows from `first` on. */
    void (*attention)(
        const nn_attention *o, int64_t first, int64_t length, int64_t head,
        float *scratch);
    void (*rotary)(const nn_rotary *o, range rows);
    void (*pool)(const nn_pool *o, int64_t sequence);
    void (*sine)(const nn_sine *o, range rows);
    void (*turn)(const nn_turn *o, range rows);
    void (*short_conv)(const nn_short *o, range rows);
    void (*multiply)(const nn_multiply *o, range numbers);
    void (*outer)(const nn_heads *o, range channels);
    void (*contract)(const nn_heads *o, range channels);
    void (*likelihood)(const nn_likelihood *o, range rows);
    /* The first half, activated, lies in y already. */
    void (*gate)(const nn_gate *o, range rows);
    void (*score)(const nn_score *o, range words);
    void (*norm_gradient)(const nn_norm_gradient *o, range rows);
    void (*attention_gradient)(
        const nn_attention_gradient *o, int64_t first, int64_t length, int64_t head,
        float *scratch);
    void (*activation_gradient)(const nn_activation_gradient *o, range numbers);
    void (*patches)(const nn_patches *o, range rows);
};

#endif
