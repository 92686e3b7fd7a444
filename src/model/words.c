/* Words, positions and types of BERT's family. */
// SPDX-License-Identifier: Apache-2.0
#include "model/words.h"

#include "base/numbers.h"
#include "base/status.h"
#include "model/chunk.h"

danaus_status dn_encoder_config(const json_t *config, encoder_config *c)
{
    c->types = 2;
    TRY(dn_config_blocks(config, &c->blocks));
    TRY(dn_config_size(config, "vocab_size", INT32_MAX, &c->vocabulary));
    TRY(dn_config_size(
        config, c->blocks.fields->positions, MOST_TOKENS, &c->positions));
    return dn_config_size(config, "type_vocab_size", MOST_TOKENS, &c->types);
}

const char *dn_words_prefix(binder *b, const word_names *names)
{
    const encoder_prefix *p = names->prefixes;
    danaus_tensor t;
    for (b->prefix = p->encoder; *p->encoder; b->prefix = (++p)->encoder)
        if (dn_binder_find(b, names->word, &t))
            break;
    return p->heads;
}

/* The table's rows from `first` on; no name: there is no table. */
static danaus_status bind_table(
    binder *b, const char *name, int64_t first, int64_t rows, int64_t width,
    const void **numbers)
{
    *numbers = NULL;
    if (!name)
        return DANAUS_OK;
    TRY(dn_bind_rows(b, name, 2, (const int64_t[]){ rows, width }, numbers));
    if (*numbers)
        *numbers = dn_at(*numbers, b->dtype, first * width);
    return DANAUS_OK;
}

danaus_status dn_words_bind(
    words *w, binder *b, const word_names *names, const encoder_config *c)
{
    danaus_tensor t;
    int64_t width = c->blocks.width;
    *w = (words){ .width = width,
                  .vocabulary = c->vocabulary,
                  .positions = c->positions - c->first };
    /* Some files pad the words to a multiple of 8. */
    int64_t padded = ROUND_UP(w->vocabulary, 8);
    if (dn_binder_find(b, names->word, &t) && t.ndim == 2 && t.shape[0] == padded)
        w->vocabulary = padded;
    TRY(bind_table(b, names->word, 0, w->vocabulary, width, &w->word));
    TRY(bind_table(b, names->position, c->first, c->positions, width, &w->position));
    TRY(bind_table(b, names->type, 0, c->types, width, &w->type));
    return dn_affine_bind(&w->norm, b, names->norm, width, c->blocks.epsilon);
}

danaus_status dn_words_run(
    const words *w, danaus_device *device, int64_t tokens, const int32_t *ids,
    const int32_t *positions, void *h)
{
    TRY(device->backend->nn->lookup(
        device, &(nn_lookup){ .rows = tokens,
                              .width = w->width,
                              .ids = ids,
                              .positions = positions,
                              .word = w->word,
                              .position = w->position,
                              .type = w->type,
                              .y = h,
                              .dtype = w->norm.dtype }));
    return dn_affine_run(&w->norm, device, tokens, w->width, h, NULL, h);
}
