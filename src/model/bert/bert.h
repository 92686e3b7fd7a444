/* The inside of an encoder of BERT's shape, for the files that run and compress it. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_BERT_BERT_H
#define DN_MODEL_BERT_BERT_H

#include "model/arch.h"
#include "model/transformer.h"
#include "model/words.h"

/* danaus_model.own */
typedef struct bert {
    encoder_config config;
    words words;
    int whole; /* the file's pooler takes the mean of all rows */
} bert;

/* Reads the sizes of words and blocks; fields: or NULL. */
danaus_status dn_bert_configure(
    danaus_model *model, const json_t *config, const block_fields *fields,
    double usual_epsilon);

/* Reads those of a transformer with learned positions. */
danaus_status dn_bert_configure_blocks(
    danaus_model *model, const json_t *config, const block_fields *fields);

/* Reads words and blocks. */
danaus_status dn_bert_bind_blocks(
    danaus_model *model, binder *b, const word_names *names,
    const transformer_names *blocks);

/* The head of masked language models, whose names begin with `heads`. names NULL: there is
   none. */
danaus_status dn_bert_open_head(
    danaus_model *model, binder *b, const char *heads, const head_names *names,
    const head_form *form);

/* That of models whose `own` begins with a bert. */
extern const encoder dn_bert_encoder;

danaus_status dn_bert_compress(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, const danaus_model_compression *how);

#endif
