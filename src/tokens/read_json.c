/* Reads tokenizer.json as the package `tokenizers` writes it for BERT, with parts of the kinds
   below and no others. The caller does truncation and padding; the file only says which end is
   cut off. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "io/json.h"
#include "tokens/tokens.h"

#include <string.h>

#define DEFAULT_PREFIX "##"

/* Objects of another type than this are refused; `found` is NULL if there is none. A model
   of older files has no type. */
static danaus_status find_part(
    const json_t *file, const char *part, const char *type, const json_t **found)
{
    span is = { type, strlen(type) };
    *found = json_object_get(file, part);
    if (json_is_null(*found))
        *found = NULL;
    if (!*found)
        return DANAUS_OK;
    if (strcmp(part, "model"))
        is = (span){ "none", strlen("none") };
    TRY(dn_json_text(*found, "type", &is));
    if (!dn_span_is(is, type))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "the %s is of type %.*s; danaus has %s", part,
            (int)MIN(is.length, 100), is.text, type);
    return DANAUS_OK;
}

static danaus_status need_part(
    const json_t *file, const char *part, const char *type, const json_t **found)
{
    TRY(find_part(file, part, type, found));
    return *found ? DANAUS_OK
                  : dn_fail(
                        DANAUS_ERR_UNSUPPORTED, "there is no %s; danaus needs %s", part,
                        type);
}

/* A flag that has to be there. */
static danaus_status read_flag(const json_t *object, const char *field, int *flag)
{
    *flag = -1;
    TRY(dn_json_flag(object, field, flag));
    return *flag >= 0 ? DANAUS_OK
                      : dn_fail(DANAUS_ERR_FORMAT, "no \"%s\" is there", field);
}

static danaus_status read_normalizer(const json_t *file, normalizer *n)
{
    const json_t *part;
    TRY(need_part(file, "normalizer", "BertNormalizer", &part));
    TRY(read_flag(part, "clean_text", &n->clean));
    TRY(read_flag(part, "handle_chinese_chars", &n->chinese));
    TRY(read_flag(part, "lowercase", &n->lower));
    n->strip_accents = n->lower;
    return dn_json_flag(part, "strip_accents", &n->strip_accents);
}

static danaus_status read_words(const json_t *model, danaus_tokenizer *t)
{
    const char *word;
    json_t *words = json_object_get(model, "vocab"), *id;
    if (!json_is_object(words))
        return dn_fail(DANAUS_ERR_FORMAT, "the model has no vocabulary");
    json_object_foreach(words, word, id)
    {
        json_int_t number = json_is_integer(id) ? json_integer_value(id) : -1;
        if (number < 0 || number >= INT32_MAX)
            return dn_fail(
                DANAUS_ERR_FORMAT, "word \"%.100s\" has no id from 0 to %d", word,
                INT32_MAX - 1);
        TRY(dn_add_word(t, (span){ word, strlen(word) }, (int32_t)number));
    }
    return DANAUS_OK;
}

static danaus_status read_model(const json_t *file, danaus_tokenizer *t, span *unknown)
{
    const json_t *part;
    span prefix = { 0 };
    t->longest_word = -1;
    TRY(need_part(file, "model", "WordPiece", &part));
    if (json_object_get(part, "merges"))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "the model is BPE; danaus has WordPiece");
    TRY(dn_json_text(part, "unk_token", unknown));
    TRY(dn_json_text(part, "continuing_subword_prefix", &prefix));
    TRY(dn_json_integer(part, "max_input_chars_per_word", &t->longest_word));
    if (!unknown->text || !prefix.text || t->longest_word < 0)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "the model needs unk_token, continuing_subword_prefix and "
            "max_input_chars_per_word");
    TRY(dn_growing_add(&t->prefix, prefix));
    return read_words(part, t);
}

static danaus_status read_token(const json_t *object, danaus_tokenizer *t)
{
    span string = { 0 };
    int64_t id = -1;
    added_token token = { 0 };
    TRY(dn_json_text(object, "content", &string));
    TRY(dn_json_integer(object, "id", &id));
    TRY(read_flag(object, "single_word", &token.single_word));
    TRY(read_flag(object, "lstrip", &token.lstrip));
    TRY(read_flag(object, "rstrip", &token.rstrip));
    TRY(read_flag(object, "special", &token.special));
    TRY(read_flag(object, "normalized", &token.normalized));
    if (!string.text || id < 0 || id >= INT32_MAX)
        return dn_fail(DANAUS_ERR_FORMAT, "an added token has no content and id");
    token.id = (int32_t)id;
    return dn_add_token(t, string, &token);
}

static danaus_status read_tokens(const json_t *file, danaus_tokenizer *t)
{
    size_t i;
    json_t *tokens, *token;
    TRY(dn_json_array(file, "added_tokens", &tokens));
    json_array_foreach(tokens, i, token) { TRY(read_token(token, t)); }
    return DANAUS_OK;
}

/* {"SpecialToken": {"id": NAME}}, where special_tokens[NAME] has ids. */
static danaus_status read_special(
    const json_t *part, const json_t *special, int is_after, danaus_tokenizer *t)
{
    size_t i;
    span name = { 0 };
    json_t *ids = NULL, *id;
    TRY(dn_json_text(special, "id", &name));
    if (name.text)
        TRY(dn_json_array(
            json_object_get(json_object_get(part, "special_tokens"), name.text), "ids",
            &ids));
    if (!ids)
        return dn_fail(DANAUS_ERR_FORMAT, "a special token of the template has no ids");
    json_array_foreach(ids, i, id)
    {
        json_int_t number = json_is_integer(id) ? json_integer_value(id) : -1;
        if (number < 0 || number >= INT32_MAX)
            return dn_fail(DANAUS_ERR_FORMAT, "the template has an id that is none");
        int32_t put = (int32_t)number;
        TRY(is_after ? dn_add_after(t, put) : dn_add_before(t, put));
    }
    return DANAUS_OK;
}

static danaus_status read_template(const json_t *file, danaus_tokenizer *t)
{
    size_t i;
    const json_t *part;
    json_t *pieces, *piece;
    int texts = 0;
    TRY(find_part(file, "post_processor", "TemplateProcessing", &part));
    if (!part)
        return DANAUS_OK;
    TRY(dn_json_array(part, "single", &pieces));
    json_array_foreach(pieces, i, piece)
    {
        span name = { 0 };
        const json_t *special = json_object_get(piece, "SpecialToken");
        if (special) {
            TRY(read_special(part, special, texts, t));
            continue;
        }
        TRY(dn_json_text(json_object_get(piece, "Sequence"), "id", &name));
        texts += name.text && dn_span_is(name, "A") ? 1 : 2;
    }
    return texts == 1 ? DANAUS_OK
                      : dn_fail(
                            DANAUS_ERR_UNSUPPORTED,
                            "the template for one text does not have it once");
}

static danaus_status read_decoder(const json_t *file, danaus_tokenizer *t)
{
    const json_t *part;
    span prefix = { DEFAULT_PREFIX, strlen(DEFAULT_PREFIX) };
    TRY(need_part(file, "decoder", "WordPiece", &part));
    TRY(read_flag(part, "cleanup", &t->cleanup));
    TRY(dn_json_text(part, "prefix", &prefix));
    return dn_growing_add(&t->decoder_prefix, prefix);
}

static danaus_status read_all(const json_t *file, danaus_tokenizer *t)
{
    const json_t *part;
    span unknown = { 0 }, direction = { 0 };
    if (!json_is_object(file))
        return dn_fail(DANAUS_ERR_FORMAT, "tokenizer.json is not an object");
    TRY(dn_json_text(json_object_get(file, "truncation"), "direction", &direction));
    t->keep_end = direction.text && dn_span_is(direction, "Left");
    TRY(need_part(file, "pre_tokenizer", "BertPreTokenizer", &part));
    TRY(read_model(file, t, &unknown));
    TRY(read_normalizer(file, &t->normalizer));
    TRY(read_tokens(file, t));
    TRY(read_template(file, t));
    TRY(read_decoder(file, t));
    return dn_finish_tokenizer(t, unknown);
}

danaus_status dn_tokenizer_read(span json, danaus_tokenizer **tokenizer)
{
    json_t *file = NULL;
    danaus_tokenizer *t = dn_calloc(1, sizeof *t);
    if (!t)
        return dn_fail_memory(sizeof *t, "a tokenizer");
    danaus_status status = dn_json_parse(json, &file);
    if (status == DANAUS_OK)
        status = read_all(file, t);
    json_decref(file);
    if (status == DANAUS_OK)
        *tokenizer = t;
    else
        danaus_tokenizer_destroy(t);
    return status;
}
