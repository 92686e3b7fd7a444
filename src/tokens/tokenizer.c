/* danaus/tokenizer.h: encoding and decoding. */
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

danaus_status dn_put_id(encoding *e, int32_t id)
{
    if (e->count == e->capacity)
        TRY(dn_reserve(&e->ids, e->count, &e->capacity, sizeof *e->ids, "ids"));
    e->ids[e->count++] = id;
    return DANAUS_OK;
}

danaus_status dn_put_unknown(encoding *e, span what)
{
    if (e->tokenizer->unknown >= 0)
        return dn_put_id(e, e->tokenizer->unknown);
    return dn_fail(
        DANAUS_ERR_FORMAT,
        "the text has \"%.*s\", which is no token, and there is no unknown token",
        (int)MIN(what.length, 40), what.text);
}

static danaus_status put_part(encoding *e, span part)
{
    return dn_put_part(e, 0, part);
}

static danaus_status put_normalized(encoding *e, span part)
{
    const danaus_tokenizer *t = e->tokenizer;
    span normal;
    if (e->count >= e->most)
        return DANAUS_OK;
    TRY(dn_normalize(t->normalizers, t->normalizer_count, part, &e->normal, &normal));
    int begins = part.text == e->whole.text && !e->normal.moved;
    e->start = begins ? normal.text : NULL;
    return dn_match(e, &t->normalized, normal, put_part);
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

static danaus_status put_whole(encoding *e)
{
    const danaus_tokenizer *t = e->tokenizer;
    size_t count = t->pre_tokenizer_count;
    if (count && !(e->parts = dn_calloc(count, sizeof *e->parts)))
        return dn_fail_memory(count * sizeof *e->parts, "parts of a text");
    return dn_match(e, &t->as_is, e->whole, put_normalized);
}

static void free_encoding(encoding *e)
{
    for (size_t i = 0; e->parts && i < e->tokenizer->pre_tokenizer_count; i++)
        dn_free(e->parts[i].text);
    dn_free(e->parts);
    dn_free(e->ids);
    dn_normal_text_free(&e->normal);
    dn_model_work_free(&e->work);
}

danaus_status danaus_tokenizer_encode(
    const danaus_tokenizer *tokenizer, const char *string, size_t bytes, int64_t most,
    int32_t *ids, size_t capacity, size_t *count)
{
    span whole = { string, bytes };
    TRY(check_text(tokenizer, whole, most, ids, capacity, count));
    size_t room = most ? (size_t)most - tokenizer->before - tokenizer->after : SIZE_MAX;
    encoding e = { .tokenizer = tokenizer,
                   .whole = whole,
                   .most = tokenizer->keep_end ? SIZE_MAX : room };
    danaus_status status = put_whole(&e);
    if (status == DANAUS_OK) {
        size_t middle = MIN(e.count, room);
        size_t skip = tokenizer->keep_end ? e.count - middle : 0;
        status = copy_ids(&e, skip, middle, ids, capacity, count);
    }
    free_encoding(&e);
    return status;
}

/* ---- decoding ---- */

static danaus_status gather(
    const danaus_tokenizer *t, const int32_t *ids, size_t count, int skip_special,
    piece_list *to)
{
    for (size_t i = 0; i < count; i++) {
        const decoded *token = dn_decoded(t, ids[i]);
        if (!token)
            return dn_fail(
                DANAUS_ERR_ARGUMENT,
                "id %" PRId32 " at %zu is no token; there are %" PRId32, ids[i], i,
                danaus_tokenizer_vocabulary(t));
        if (skip_special && token->skip)
            continue;
        TRY(dn_growing_add(&to->text, token->text));
        TRY(dn_pieces_end(to));
    }
    return DANAUS_OK;
}

static danaus_status decode(
    const danaus_tokenizer *t, const int32_t *ids, size_t count, int skip_special,
    growing *to)
{
    piece_list tokens = { 0 };
    danaus_status status = gather(t, ids, count, skip_special, &tokens);
    if (status == DANAUS_OK)
        status = dn_decode(t->decode_steps, t->decode_count, &tokens, to);
    dn_pieces_free(&tokens);
    return status;
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
    danaus_status status = decode(tokenizer, ids, count, skip_special, &whole);
    if (status == DANAUS_OK)
        status = copy_text(&whole, string, capacity, bytes);
    dn_free(whole.text);
    return status;
}
