/* Reads the decoder of tokenizer.json. */
// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"
#include "tokens/read/read.h"

#define DEFAULT_PREFIX "##"

static danaus_status add_put(danaus_tokenizer *t, decode_fn *put)
{
    decode_step *d;
    TRY(dn_add_decode_step(t, &d));
    d->put = put;
    return DANAUS_OK;
}

static danaus_status read_wordpiece_decoder(const json_t *part, danaus_tokenizer *t)
{
    decode_step *d;
    span prefix = { DEFAULT_PREFIX, strlen(DEFAULT_PREFIX) };
    TRY(dn_add_decode_step(t, &d));
    d->put = dn_decode_wordpiece;
    TRY(dn_read_flag(part, "cleanup", &d->cleanup));
    TRY(dn_json_text(part, "prefix", &prefix));
    return dn_growing_add(&d->prefix, prefix);
}

static danaus_status read_metaspace_decoder(const json_t *part, danaus_tokenizer *t)
{
    decode_step *d;
    pre_tokenizer fields;
    TRY(dn_read_metaspace(part, &fields));
    TRY(dn_add_decode_step(t, &d));
    d->put = dn_decode_spaces;
    d->letter = fields.space;
    d->drops_spaces = fields.scheme != PREPEND_NEVER;
    return DANAUS_OK;
}

static danaus_status read_replace_decoder(const json_t *part, danaus_tokenizer *t)
{
    decode_step *d;
    TRY(dn_add_decode_step(t, &d));
    d->put = dn_decode_replace;
    return dn_read_replace(part, &d->replace);
}

static danaus_status read_strip_decoder(const json_t *part, danaus_tokenizer *t)
{
    decode_step *d;
    span letter = { 0 };
    int64_t left = -1, right = -1;
    TRY(dn_add_decode_step(t, &d));
    d->put = dn_decode_strip;
    TRY(dn_read_text(part, "content", &letter));
    TRY(dn_json_integer(part, "start", &left));
    TRY(dn_json_integer(part, "stop", &right));
    d->letter = dn_single_letter(letter);
    d->left = (size_t)left;
    d->right = (size_t)right;
    if (d->letter >= 0 && left >= 0 && right >= 0)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_FORMAT,
        "the decoder Strip needs one character as content, a start and a stop");
}

/* ---- steps that see all tokens ---- */

static danaus_status add_all(danaus_tokenizer *t, decode_all_fn *all)
{
    decode_step *d;
    TRY(dn_add_decode_step(t, &d));
    d->all = all;
    return DANAUS_OK;
}

static danaus_status read_byte_decoder(const json_t *part, danaus_tokenizer *t)
{
    (void)part;
    return add_all(t, dn_decode_bytes);
}

static danaus_status read_fallback(const json_t *part, danaus_tokenizer *t)
{
    (void)part;
    return add_all(t, dn_decode_byte_tokens);
}

static danaus_status read_fuse(const json_t *part, danaus_tokenizer *t)
{
    (void)part;
    return add_all(t, dn_decode_fuse);
}

static danaus_status read_sequence(const json_t *part, danaus_tokenizer *t)
{
    return dn_read_each(part, "decoders", dn_read_decoder, t);
}

danaus_status dn_read_decoder(const json_t *part, danaus_tokenizer *t)
{
    static const part_kind kinds[] = {
        { "WordPiece", read_wordpiece_decoder },
        { "Metaspace", read_metaspace_decoder },
        { "ByteLevel", read_byte_decoder },
        { "ByteFallback", read_fallback },
        { "Replace", read_replace_decoder },
        { "Strip", read_strip_decoder },
        { "Fuse", read_fuse },
        { "Sequence", read_sequence },
    };
    return part ? dn_read_kind(part, "decoder", kinds, KIND_COUNT(kinds), t)
                : add_put(t, dn_decode_plain);
}
