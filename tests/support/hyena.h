/* Small causal models of Hyena's kind: as a folder that danaus loads, and as plain loops of f64
   that share no code with the library. Bounds of errors are measured on the loops as in
   support/bert.h. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_HYENA_H
#define TEST_SUPPORT_HYENA_H

#include "danaus/danaus.h"
#include "support/filter.h"

#define HYENA_BOUND 8

typedef struct small_hyena {
    int64_t layers, width, inner; /* inner 0: no second half of blocks */
    int64_t order, head, taps;
    int64_t vocabulary, rows;
    int dna;             /* its model_type is "hyenadna" */
    int wrapped;         /* names have ".layer" behind mixer and mlp */
    int own_table;       /* lm_head.weight is there */
    small_filter filter; /* of (order - 1) width / head channels */
    named_arrays arrays;
} small_hyena;

/* A random model of 1 to `length` tokens. */
small_hyena hyena_random(rng *r, int64_t length);

/* The model of the test vectors of a model of HyenaDNA, of this order. */
small_hyena hyena_known(int64_t order);
void hyena_free(small_hyena *m);

/* Writes config.json, tokenizer_config.json and model.safetensors into the folder of files.h;
   and loads what was written. */
void hyena_write(const small_hyena *m);
danaus_model *hyena_load(const small_hyena *m, danaus_device *device);

/* h[length][width] behind the last norm, and log-probabilities scores[length], of which the
   first is 0; noise: or NULL. */
void hyena_states(
    const small_hyena *m, const int32_t *ids, int64_t length, double *h, rng *noise);
void hyena_scores(
    const small_hyena *m, const int32_t *ids, int64_t length, const double *h,
    double *scores, rng *noise);

/* Logits [rows] of what follows a row h. */
void hyena_logits(const small_hyena *m, const double *h, double *logits, rng *noise);

#endif
