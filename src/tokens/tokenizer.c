/* danaus/tokenizer.h: encoding and decoding.

   The decoder puts a space before each token but the first, or removes the token's prefix. Then
   it undoes in each token alone what WordPiece separates, by the replacements below in order. */
// SPDX-License-Identifier: Apache-2.0
#include "danaus/tokenizer.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/letters.h"
#include "tokens/tokens.h"

#include <inttypes.h>
#include <string.h>

int32_t danaus_tokenizer_vocabulary(const danaus_tokenizer *tokenizer)
{
    if (!tokenizer)
        return 0;
    return tokenizer->decoded[tokenizer->decoded_count - 1].id + 1;
}

danaus_status danaus_tokenizer_id(
    const danaus_tokenizer *tokenizer, const char *token, int32_t *id)
{
    if (!tokenizer || !token || !id)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a tokenizer, a token and a place for an id are needed");
    int32_t found = dn_find_id(tokenizer, (span){ token, strlen(token) });
    if (found < 0)
        return dn_fail(DANAUS_ERR_ARGUMENT, "there is no token \"%.100s\"", token);
    *id = found;
    return DANAUS_OK;
}

danaus_status danaus_tokenizer_around(
    const danaus_tokenizer *tokenizer, size_t *before, size_t *after)
{
    if (!tokenizer || !before || !after)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a tokenizer and places for two numbers are needed");
    *before = tokenizer->before;
    *after = tokenizer->after;
    return DANAUS_OK;
}

/* ---- encoding ---- */

static danaus_status put_normalized(encoding *e, span part)
{
    const danaus_tokenizer *t = e->tokenizer;
    if (e->count >= e->most)
        return DANAUS_OK;
    if (t->characters)
        return dn_put_characters(e, part);
    e->normal.length = 0;
    TRY(dn_normalize(&t->normalizer, part, &e->normal));
    return dn_match(e, &t->normalized, growing_span(&e->normal), dn_put_words);
}

static danaus_status copy_ids(
    const encoding *e, size_t skip, size_t middle, int32_t *ids, size_t capacity,
    size_t *count)
{
    const danaus_tokenizer *t = e->tokenizer;
    *count = t->before + middle + t->after;
    if (*count > capacity)
        return dn_fail(
            DANAUS_ERR_SHAPE, "the text has %zu tokens, and there is room for %zu",
            *count, capacity);
    if (t->before)
        memcpy(ids, t->around, t->before * sizeof *ids);
    if (middle)
        memcpy(ids + t->before, e->ids + skip, middle * sizeof *ids);
    if (t->after)
        memcpy(ids + t->before + middle, t->around + t->before, t->after * sizeof *ids);
    return DANAUS_OK;
}

static danaus_status check_text(
    const danaus_tokenizer *tokenizer, span string, int64_t most, const int32_t *ids,
    size_t capacity, const size_t *count)
{
    if (!tokenizer || !count || (!string.text && string.length) || (!ids && capacity))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a tokenizer, text and places for ids and their number are needed");
    int64_t around = (int64_t)(tokenizer->before + tokenizer->after);
    if (most < 0 || (most > 0 && most < around))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "%" PRId64 " tokens at most are asked for; %" PRId64 " are around any text",
            most, around);
    size_t right = dn_utf8_length(string);
    if (right < string.length)
        return dn_fail(
            DANAUS_ERR_FORMAT, "the text is not UTF-8 at byte %zu, which is 0x%02x",
            right, (unsigned char)string.text[right]);
    return DANAUS_OK;
}

danaus_status danaus_tokenizer_encode(
    const danaus_tokenizer *tokenizer, const char *string, size_t bytes, int64_t most,
    int32_t *ids, size_t capacity, size_t *count)
{
    span whole = { string, bytes };
    TRY(check_text(tokenizer, whole, most, ids, capacity, count));
    size_t room = most ? (size_t)most - tokenizer->before - tokenizer->after : SIZE_MAX;
    encoding e = { .tokenizer = tokenizer,
                   .most = tokenizer->keep_end ? SIZE_MAX : room };
    danaus_status status = dn_match(&e, &tokenizer->as_is, whole, put_normalized);
    if (status == DANAUS_OK) {
        size_t middle = MIN(e.count, room);
        size_t skip = tokenizer->keep_end ? e.count - middle : 0;
        status = copy_ids(&e, skip, middle, ids, capacity, count);
    }
    dn_free(e.ids);
    dn_free(e.normal.text);
    dn_free(e.pieces);
    return status;
}

/* ---- decoding ---- */

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

static danaus_status put_decoded(
    const danaus_tokenizer *t, span token, int is_first, growing *to)
{
    size_t from = to->length;
    size_t prefix = t->decoder_prefix.length;
    int is_within = token.length >= prefix &&
                    (!prefix || !memcmp(token.text, t->decoder_prefix.text, prefix));
    if (!is_first && is_within)
        token = (span){ token.text + prefix, token.length - prefix };
    else if (!is_first)
        TRY(dn_growing_add(to, (span){ " ", 1 }));
    TRY(dn_growing_add(to, token));
    int cleanup = t->cleanup && to->length > from;
    for (size_t i = 0; cleanup && i < sizeof cleanups / sizeof *cleanups; i++) {
        size_t length = to->length - from;
        length = replace(to->text + from, length, cleanups[i][0], cleanups[i][1]);
        to->length = from + length;
    }
    return DANAUS_OK;
}

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
        TRY(put_decoded(t, token->text, is_first, to));
        is_first = 0;
    }
    return DANAUS_OK;
}

static danaus_status copy_text(
    const growing *from, char *string, size_t capacity, size_t *bytes)
{
    *bytes = from->length;
    if (from->length >= capacity)
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "the text has %zu bytes and a zero, and there is room for %zu",
            from->length, capacity);
    if (from->length)
        memcpy(string, from->text, from->length);
    string[from->length] = 0;
    return DANAUS_OK;
}

danaus_status danaus_tokenizer_decode(
    const danaus_tokenizer *tokenizer, const int32_t *ids, size_t count,
    int skip_special, char *string, size_t capacity, size_t *bytes)
{
    growing whole = { 0 };
    if (!tokenizer || (!ids && count) || (!string && capacity) || !bytes)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a tokenizer, ids and places for text and its length are needed");
    danaus_status status = put_all(tokenizer, ids, count, skip_special, &whole);
    if (status == DANAUS_OK)
        status = copy_text(&whole, string, capacity, bytes);
    dn_free(whole.text);
    return status;
}
