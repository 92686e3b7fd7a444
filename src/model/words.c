/* Words, positions and types of BERT's family. */
// SPDX-License-Identifier: Apache-2.0
#include "model/words.h"

#include "base/numbers.h"
#include "base/status.h"

danaus_status dn_encoder_config(const json_t *config, encoder_config *c)
{
    *c = (encoder_config){ .types = 2, .blocks = { .epsilon = 1e-12 } };
    TRY(dn_config_blocks(config, &c->blocks));
    TRY(dn_config_size(config, "vocab_size", INT32_MAX, &c->vocabulary));
    TRY(dn_config_size(config, "max_position_embeddings", MOST_TOKENS, &c->positions));
    return dn_config_size(config, "type_vocab_size", MOST_TOKENS, &c->types);
}

void dn_words_prefix(binder *b, const char **heads)
{
    static const struct {
        const char *encoder, *heads;
    } known[] = { { "bert.", "" },
                  { "model.bert.", "model." },
                  { "module.bert.", "module." },
                  { "model.", "model." } };
    danaus_tensor t;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        b->prefix = known[i].encoder;
        *heads = known[i].heads;
        if (dn_binder_find(b, "embeddings.word_embeddings.weight", &t))
            return;
    }
    b->prefix = *heads = "";
}

static danaus_status bind_table(
    binder *b, const char *table, int64_t rows, int64_t width, const void **numbers)
{
    const tensor_name path = dn_name("embeddings.%s_embeddings.weight", table);
    return dn_bind_rows(b, path.text, 2, (const int64_t[]){ rows, width }, numbers);
}

danaus_status dn_words_bind(words *w, binder *b, const encoder_config *c)
{
    danaus_tensor t;
    *w = (words){ .width = c->blocks.width,
                  .vocabulary = c->vocabulary,
                  .positions = c->positions,
                  .types = c->types };
    /* Some files pad the words to a multiple of 8. */
    int64_t padded = ROUND_UP(w->vocabulary, 8);
    if (dn_binder_find(b, "embeddings.word_embeddings.weight", &t) && t.ndim == 2 &&
        t.shape[0] == padded)
        w->vocabulary = padded;
    TRY(bind_table(b, "word", w->vocabulary, w->width, &w->word));
    TRY(bind_table(b, "position", w->positions, w->width, &w->position));
    TRY(bind_table(b, "token_type", w->types, w->width, &w->type));
    return dn_affine_bind(
        &w->norm, b, "embeddings.LayerNorm", w->width, c->blocks.epsilon);
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
