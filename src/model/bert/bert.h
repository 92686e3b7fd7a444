/* The inside of an encoder of BERT's shape, for the files that run and compress it. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_BERT_BERT_H
#define DN_MODEL_BERT_BERT_H

#include "model/transformer.h"
#include "model/words.h"

/* danaus_model.own */
typedef struct bert {
    encoder_config config;
    words words;
    int whole; /* the file's pooler takes the mean of all rows */
} bert;

danaus_status dn_bert_compress(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, const danaus_model_compression *how);

#endif
