/* Reads the post_processor of tokenizer.json: which ids are put around those of a text. */
// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"
#include "tokens/read/read.h"

/* Ids around the ids around a text are too much. */
static danaus_status check_first(const danaus_tokenizer *t)
{
    if (t->before + t->after)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "two parts of the post_processor put ids around");
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
        int32_t put = dn_json_id(id);
        if (put < 0)
            return dn_fail(DANAUS_ERR_FORMAT, "the template has an id that is none");
        TRY(is_after ? dn_add_after(t, put) : dn_add_before(t, put));
    }
    return DANAUS_OK;
}

static danaus_status read_single(const json_t *part, danaus_tokenizer *t)
{
    size_t i;
    json_t *pieces, *piece;
    int texts = 0;
    TRY(check_first(t));
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

/* ["<s>", 0] */
static int32_t id_of(const json_t *part, const char *field)
{
    return dn_json_id(json_array_get(json_object_get(part, field), 1));
}

/* BERT and RoBERTa. */
static danaus_status read_two(const json_t *part, danaus_tokenizer *t)
{
    int32_t before = id_of(part, "cls"), after = id_of(part, "sep");
    TRY(check_first(t));
    if (before < 0 || after < 0)
        return dn_fail(
            DANAUS_ERR_FORMAT, "the post_processor has no ids of \"cls\" and \"sep\"");
    TRY(dn_add_before(t, before));
    return dn_add_after(t, after);
}

/* It only changes where tokens are in the text. */
static danaus_status read_none(const json_t *part, danaus_tokenizer *t)
{
    (void)part, (void)t;
    return DANAUS_OK;
}

static danaus_status read_sequence(const json_t *part, danaus_tokenizer *t)
{
    return dn_read_each(part, "processors", dn_read_template, t);
}

danaus_status dn_read_template(const json_t *part, danaus_tokenizer *t)
{
    static const part_kind kinds[] = {
        { "TemplateProcessing", read_single }, { "BertProcessing", read_two },
        { "RobertaProcessing", read_two },     { "ByteLevel", read_none },
        { "Sequence", read_sequence },
    };
    return dn_read_kind(part, "post_processor", kinds, KIND_COUNT(kinds), t);
}
