/* Reads the decoder of tokenizer.json. */
// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"
#include "tokens/read/read.h"

#define DEFAULT_PREFIX "##"

static danaus_status read_wordpiece_decoder(const json_t *part, danaus_tokenizer *t)
{
    span prefix = { DEFAULT_PREFIX, strlen(DEFAULT_PREFIX) };
    t->decoder.put = dn_decode_wordpiece;
    TRY(dn_read_flag(part, "cleanup", &t->decoder.cleanup));
    TRY(dn_json_text(part, "prefix", &prefix));
    return dn_growing_add(&t->decoder.prefix, prefix);
}

static danaus_status read_metaspace_decoder(const json_t *part, danaus_tokenizer *t)
{
    pre_tokenizer fields;
    TRY(dn_read_metaspace(part, &fields));
    t->decoder.put = dn_decode_spaces;
    t->decoder.space = fields.space;
    t->decoder.drops_spaces = fields.scheme != PREPEND_NEVER;
    return DANAUS_OK;
}

static danaus_status read_byte_decoder(const json_t *part, danaus_tokenizer *t)
{
    (void)part;
    t->decoder.put = dn_decode_bytes;
    t->decoder.is_bytes = 1;
    return DANAUS_OK;
}

danaus_status dn_read_decoder(const json_t *part, danaus_tokenizer *t)
{
    static const part_kind kinds[] = {
        { "WordPiece", read_wordpiece_decoder },
        { "Metaspace", read_metaspace_decoder },
        { "ByteLevel", read_byte_decoder },
    };
    t->decoder.put = dn_decode_plain;
    return part ? dn_read_kind(part, "decoder", kinds, KIND_COUNT(kinds), t)
                : DANAUS_OK;
}
