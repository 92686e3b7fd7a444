/* How sentence-transformers' files say that tokens become one vector. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_POOLING_H
#define DN_MODEL_POOLING_H

#include "danaus/base.h"

/* How tokens become one vector. */
typedef struct pooling {
    int given;        /* by modules.json */
    int first;        /* the first token, else the mean of all */
    int normalize;    /* to length 1 */
    char folder[256]; /* of its configuration, in the model's; or "" */
    int64_t most;     /* tokens of a text, special ones included; 0: no limit */
} pooling;

/* Reads modules.json and what it names; without it the mean of tokens, of length 1. */
danaus_status dn_pooling_read(const char *folder, pooling *p);

#endif
