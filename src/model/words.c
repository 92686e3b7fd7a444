/* Words, positions and types of BERT's family, and fields of its configuration. */
// SPDX-License-Identifier: Apache-2.0
#include "model/words.h"

#include "base/numbers.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

danaus_status dn_config_activation(const json_t *config, danaus_activation *activation)
{
    static const struct {
        const char *name;
        danaus_activation activation;
    } known[] = {
        { "gelu", DANAUS_GELU },          { "relu", DANAUS_RELU },
        { "silu", DANAUS_SILU },          { "swish", DANAUS_SILU },
        { "gelu_new", DANAUS_GELU_TANH }, { "gelu_pytorch_tanh", DANAUS_GELU_TANH }
    };
    span name = { "gelu", strlen("gelu") };
    TRY(dn_json_text(config, "hidden_act", &name));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (dn_span_is(name, known[i].name)) {
            *activation = known[i].activation;
            return DANAUS_OK;
        }
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED,
        "hidden_act \"%.*s\" is not one of gelu, relu, silu, gelu_new",
        (int)MIN(name.length, 40), name.text);
}

danaus_status dn_encoder_config(const json_t *config, encoder_config *c)
{
    *c = (encoder_config){ .types = 2, .epsilon = 1e-12 };
    TRY(dn_config_size(config, "hidden_size", MOST_WIDTH, &c->width));
    TRY(dn_config_size(config, "intermediate_size", MOST_WIDTH, &c->inner));
    TRY(dn_config_size(config, "num_hidden_layers", MOST_LAYERS, &c->layers));
    TRY(dn_config_size(config, "vocab_size", INT32_MAX, &c->vocabulary));
    TRY(dn_config_size(config, "max_position_embeddings", MOST_TOKENS, &c->positions));
    TRY(dn_config_size(config, "type_vocab_size", MOST_TOKENS, &c->types));
    TRY(dn_json_number(config, "layer_norm_eps", &c->epsilon));
    return dn_config_activation(config, &c->activation);
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
    binder *b, const char *name, int64_t rows, int64_t width, const void **numbers)
{
    char path[160];
    snprintf(path, sizeof path, "embeddings.%s_embeddings.weight", name);
    return dn_bind_rows(b, path, 2, (const int64_t[]){ rows, width }, numbers);
}

danaus_status dn_words_bind(words *w, binder *b, const encoder_config *c)
{
    danaus_tensor t;
    *w = (words){ .width = c->width,
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
    return dn_affine_bind(&w->norm, b, "embeddings.LayerNorm", w->width, c->epsilon);
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
