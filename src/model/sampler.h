/* The next token by a model's logits. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_SAMPLER_H
#define DN_MODEL_SAMPLER_H

#include "danaus/model.h"

typedef struct sampler {
    danaus_sampling how;
    int64_t vocabulary;
    uint64_t random;
    double *weight; /* [vocabulary]: exp((logit - the largest) / temperature) */
    int32_t
        *order; /* [vocabulary]: a heap of tokens; those taken from it stand behind */
} sampler;

/* On failure there is nothing to close. */
danaus_status dn_sampler_open(
    sampler *s, const danaus_sampling *how, int64_t vocabulary);
void dn_sampler_close(sampler *s);

/* A token by logits[vocabulary]; -1: some are not finite. With temperature 0 the likeliest.
   Else, of tokens with probabilities softmax(logits / temperature), the top_k likeliest are
   kept, of these the fewest likeliest that have at least the share top_p of their
   probability, and one is drawn. Of equal tokens the first one is the likelier. */
int32_t dn_sampler_pick(sampler *s, const float *logits);

#endif
