/* Text of ids, token by token:

   - plain: tokens with spaces between;
   - WordPiece: a space before each token but the first, or the token's prefix removed; then it
     undoes in each token alone what WordPiece separates, by the replacements below in order;
   - spaces (Metaspace): a letter stands for a space;
   - bytes (ByteLevel): letters stand for bytes. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/status.h"
#include "tokens/byte_letters.h"
#include "tokens/letters.h"
#include "tokens/tokens.h"

#include <inttypes.h>

danaus_status dn_decode_plain(
    const danaus_tokenizer *t, span token, int is_first, growing *to)
{
    (void)t;
    if (!is_first)
        TRY(dn_growing_add(to, (span){ " ", 1 }));
    return dn_growing_add(to, token);
}

/* ---- WordPiece ---- */

static const char *const cleanups[][2] = {
    { " .", "." },   { " ?", "?" },     { " !", "!" },     { " ,", "," },
    { " ' ", "'" },  { " n't", "n't" }, { " 'm", "'m" },   { " do not", " don't" },
    { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
};

/* Replaces in text[0 .. length); the new words are no longer than the old ones. Returns the
   new length. */
static size_t replace(char *string, size_t length, const char *old, const char *new)
{
    size_t old_length = strlen(old), new_length = strlen(new), to = 0;
    for (size_t at = 0; at < length;) {
        if (length - at >= old_length && !memcmp(string + at, old, old_length)) {
            memcpy(string + to, new, new_length);
            to += new_length;
            at += old_length;
        } else {
            string[to++] = string[at++];
        }
    }
    return to;
}

danaus_status dn_decode_wordpiece(
    const danaus_tokenizer *t, span token, int is_first, growing *to)
{
    const decoder *d = &t->decoder;
    size_t from = to->length, prefix = d->prefix.length;
    int is_within = token.length >= prefix &&
                    (!prefix || !memcmp(token.text, d->prefix.text, prefix));
    if (!is_first && is_within)
        token = span_cut(token, prefix, token.length);
    else if (!is_first)
        TRY(dn_growing_add(to, (span){ " ", 1 }));
    TRY(dn_growing_add(to, token));
    int cleanup = d->cleanup && to->length > from;
    for (size_t i = 0; cleanup && i < sizeof cleanups / sizeof *cleanups; i++) {
        size_t length = to->length - from;
        length = replace(to->text + from, length, cleanups[i][0], cleanups[i][1]);
        to->length = from + length;
    }
    return DANAUS_OK;
}

/* ---- the others ---- */

danaus_status dn_decode_spaces(
    const danaus_tokenizer *t, span token, int is_first, growing *to)
{
    const decoder *d = &t->decoder;
    for (size_t at = 0; at < token.length;) {
        size_t from = at;
        if (dn_letter(token, &at) != d->space)
            TRY(dn_growing_add(to, span_cut(token, from, at)));
        else if (!is_first || !d->drops_spaces)
            TRY(dn_growing_add(to, (span){ " ", 1 }));
    }
    return DANAUS_OK;
}

danaus_status dn_decode_bytes(
    const danaus_tokenizer *t, span token, int is_first, growing *to)
{
    (void)t, (void)is_first;
    return dn_put_letter_bytes(token, to);
}

/* ---- all of them ---- */

static danaus_status put_all(
    const danaus_tokenizer *t, const int32_t *ids, size_t count, int skip_special,
    growing *to)
{
    int is_first = 1;
    for (size_t i = 0; i < count; i++) {
        const decoded *token = dn_decoded(t, ids[i]);
        if (!token)
            return dn_fail(
                DANAUS_ERR_ARGUMENT,
                "id %" PRId32 " at %zu is no token; there are %" PRId32, ids[i], i,
                danaus_tokenizer_vocabulary(t));
        if (skip_special && token->skip)
            continue;
        TRY(t->decoder.put(t, token->text, is_first, to));
        is_first = 0;
    }
    return DANAUS_OK;
}

danaus_status dn_decode_ids(
    const danaus_tokenizer *t, const int32_t *ids, size_t count, int skip_special,
    growing *to)
{
    growing bytes = { 0 };
    if (!t->decoder.is_bytes)
        return put_all(t, ids, count, skip_special, to);
    danaus_status status = put_all(t, ids, count, skip_special, &bytes);
    if (status == DANAUS_OK)
        status = dn_put_utf8(growing_span(&bytes), to);
    dn_free(bytes.text);
    return status;
}
