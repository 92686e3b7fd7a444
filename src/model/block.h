/* Linear layers of a transformer's block, which BERT and vision transformers share. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_BLOCK_H
#define DN_MODEL_BLOCK_H

#include "model/linear.h"

enum { QUERY, KEY, VALUE, OUTPUT, UP, DOWN, BLOCK_LINEARS };

typedef struct block_shape {
    int64_t width, inner;
    danaus_activation activation; /* of UP */
    int64_t tokens;               /* rows that layers are planned for */
} block_shape;

/* Reads the layers of block PLACE; q, k and v are PLACE.attention.SELF.query and so on. */
danaus_status dn_block_open(
    linear to[BLOCK_LINEARS], binder *b, const char *place, const char *self,
    const block_shape *shape);

#endif
