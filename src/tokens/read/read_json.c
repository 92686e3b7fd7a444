/* Reads tokenizer.json as the package `tokenizers` writes it. The caller does truncation and
   padding; the file only says which end is cut off. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/letters.h"
#include "tokens/read/read.h"

/* ---- helpers of all parts ---- */

static danaus_status fail_kind(
    const char *name, span type, const part_kind *kinds, size_t count)
{
    char has[512];
    text t = { has, sizeof has, 0 };
    for (size_t i = 0; i < count; i++)
        dn_text(&t, "%s%s", i ? ", " : "", kinds[i].type);
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED, "the %s is of type %.*s; danaus has %s", name,
        (int)MIN(type.length, 100), type.text, has);
}

danaus_status dn_read_kind(
    const json_t *part, const char *name, const part_kind *kinds, size_t count,
    danaus_tokenizer *t)
{
    span type = { "none", strlen("none") };
    TRY(dn_json_text(part, "type", &type));
    for (size_t i = 0; i < count; i++)
        if (dn_span_is(type, kinds[i].type))
            return kinds[i].read(part, t);
    return fail_kind(name, type, kinds, count);
}

danaus_status dn_read_each(
    const json_t *part, const char *field, read_part_fn *read, danaus_tokenizer *t)
{
    size_t i;
    json_t *parts, *each;
    TRY(dn_json_array(part, field, &parts));
    if (!parts)
        return dn_fail(DANAUS_ERR_FORMAT, "no \"%s\" are there", field);
    json_array_foreach(parts, i, each) { TRY(read(each, t)); }
    return DANAUS_OK;
}

danaus_status dn_read_flag(const json_t *object, const char *field, int *flag)
{
    *flag = -1;
    TRY(dn_json_flag(object, field, flag));
    return *flag >= 0 ? DANAUS_OK
                      : dn_fail(DANAUS_ERR_FORMAT, "no \"%s\" is there", field);
}

danaus_status dn_read_text(const json_t *object, const char *field, span *string)
{
    *string = (span){ 0 };
    TRY(dn_json_text(object, field, string));
    return string->text ? DANAUS_OK
                        : dn_fail(DANAUS_ERR_FORMAT, "no \"%s\" is there", field);
}

int32_t dn_json_id(const json_t *number)
{
    json_int_t id = json_is_integer(number) ? json_integer_value(number) : -1;
    return id < 0 || id >= INT32_MAX ? -1 : (int32_t)id;
}

int32_t dn_single_letter(span string)
{
    size_t end = 0;
    int32_t c = string.length ? dn_letter(string, &end) : -1;
    return end == string.length ? c : -1;
}

/* ---- the file ---- */

static danaus_status read_token(const json_t *object, danaus_tokenizer *t)
{
    span string = { 0 };
    int64_t id = -1;
    added_token token = { 0 };
    TRY(dn_json_text(object, "content", &string));
    TRY(dn_json_integer(object, "id", &id));
    TRY(dn_read_flag(object, "single_word", &token.single_word));
    TRY(dn_read_flag(object, "lstrip", &token.lstrip));
    TRY(dn_read_flag(object, "rstrip", &token.rstrip));
    TRY(dn_read_flag(object, "special", &token.special));
    TRY(dn_read_flag(object, "normalized", &token.normalized));
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

/* Reads file[name], if it is there. */
static danaus_status read_part(
    const json_t *file, const char *name, read_part_fn *read, danaus_tokenizer *t)
{
    const json_t *part = json_object_get(file, name);
    return part && !json_is_null(part) ? read(part, t) : DANAUS_OK;
}

static danaus_status read_all(const json_t *file, danaus_tokenizer *t)
{
    span direction = { 0 };
    const json_t *back = json_object_get(file, "decoder");
    if (!json_is_object(file))
        return dn_fail(DANAUS_ERR_FORMAT, "tokenizer.json is not an object");
    TRY(dn_json_text(json_object_get(file, "truncation"), "direction", &direction));
    t->keep_end = direction.text && dn_span_is(direction, "Left");
    TRY(read_part(file, "pre_tokenizer", dn_read_pre_tokenizer, t));
    TRY(read_part(file, "model", dn_read_model, t));
    if (!t->model.put)
        return dn_fail(DANAUS_ERR_FORMAT, "there is no model");
    TRY(read_part(file, "normalizer", dn_read_normalizer, t));
    TRY(read_tokens(file, t));
    TRY(read_part(file, "post_processor", dn_read_template, t));
    TRY(dn_read_decoder(json_is_null(back) ? NULL : back, t));
    return dn_finish_tokenizer(t);
}

danaus_status dn_tokenizer_read(span json, danaus_tokenizer **tokenizer)
{
    json_t *file = NULL;
    danaus_tokenizer *t = dn_tokenizer_new();
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
