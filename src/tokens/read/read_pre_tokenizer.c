/* Reads the pre-tokenizer of tokenizer.json. */
// SPDX-License-Identifier: Apache-2.0
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/read/read.h"

static danaus_status add_step(danaus_tokenizer *t, pre_tokenizer step)
{
    pre_tokenizer *p;
    TRY(dn_add_pre_tokenizer(t, &p));
    *p = step;
    return DANAUS_OK;
}

static danaus_status read_bert(const json_t *part, danaus_tokenizer *t)
{
    (void)part;
    return add_step(t, (pre_tokenizer){ .run = dn_split_bert });
}

static danaus_status read_spaces(const json_t *part, danaus_tokenizer *t)
{
    (void)part;
    return add_step(t, (pre_tokenizer){ .run = dn_split_spaces });
}

static danaus_status read_words(const json_t *part, danaus_tokenizer *t)
{
    (void)part;
    return add_step(t, (pre_tokenizer){ .run = dn_split_words });
}

/* ---- Metaspace ---- */

static danaus_status read_scheme(const json_t *part, prepend_scheme *scheme)
{
    static const char *const schemes[] = { "always", "first", "never" };
    span name = { 0 };
    int prefix = 1;
    TRY(dn_json_text(part, "prepend_scheme", &name));
    TRY(dn_json_flag(part, "add_prefix_space", &prefix));
    *scheme = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    for (int i = 0; name.text && i < 3; i++)
        if (dn_span_is(name, schemes[i])) {
            *scheme = (prepend_scheme)i;
            name.text = NULL;
        }
    if (name.text || (!prefix && *scheme != PREPEND_NEVER))
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "Metaspace has a prepend_scheme that is none, or another one than "
            "add_prefix_space says");
    return DANAUS_OK;
}

danaus_status dn_read_metaspace(const json_t *part, pre_tokenizer *p)
{
    span letter = { 0 };
    TRY(dn_read_text(part, "replacement", &letter));
    p->space = dn_single_letter(letter);
    if (p->space < 0)
        return dn_fail(
            DANAUS_ERR_FORMAT, "the replacement of Metaspace is not one character");
    return read_scheme(part, &p->scheme);
}

static danaus_status read_metaspace(const json_t *part, danaus_tokenizer *t)
{
    pre_tokenizer step = { .run = dn_mark_spaces };
    int splits = 1;
    TRY(dn_read_metaspace(part, &step));
    TRY(dn_json_flag(part, "split", &splits));
    TRY(add_step(t, step));
    step.run = dn_split_marked;
    return splits ? add_step(t, step) : DANAUS_OK;
}

/* ---- ByteLevel and Split ---- */

static danaus_status read_bytes(const json_t *part, danaus_tokenizer *t)
{
    int prefix = 0, splits = 1;
    TRY(dn_read_flag(part, "add_prefix_space", &prefix));
    TRY(dn_json_flag(part, "use_regex", &splits));
    if (prefix)
        TRY(add_step(t, (pre_tokenizer){ .run = dn_begin_with_space }));
    if (splits)
        TRY(add_step(
            t, (pre_tokenizer){ .run = dn_split_pattern, .pattern = dn_gpt2_pattern }));
    return add_step(t, (pre_tokenizer){ .run = dn_put_bytes });
}

/* The known patterns match everything, so that what they match stays either way. */
static danaus_status read_split(const json_t *part, danaus_tokenizer *t)
{
    span expression = { 0 }, behavior = { 0 };
    int invert = 0;
    pre_tokenizer step = { .run = dn_split_pattern };
    TRY(dn_json_text(json_object_get(part, "pattern"), "Regex", &expression));
    TRY(dn_read_text(part, "behavior", &behavior));
    TRY(dn_read_flag(part, "invert", &invert));
    if (!expression.text || !dn_find_pattern(expression, &step.pattern))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "the pre_tokenizer splits at the pattern \"%.*s\"; danaus has those of "
            "GPT-2, "
            "GPT-4 and Qwen",
            (int)MIN(expression.length, 100), expression.text ? expression.text : "");
    if (!dn_span_is(behavior, invert ? "Removed" : "Isolated"))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "Split has the behavior %.*s; danaus has Isolated, and Removed inverted",
            (int)MIN(behavior.length, 100), behavior.text);
    return add_step(t, step);
}

/* ---- all of them ---- */

static danaus_status read_sequence(const json_t *part, danaus_tokenizer *t)
{
    return dn_read_each(part, "pretokenizers", dn_read_pre_tokenizer, t);
}

danaus_status dn_read_pre_tokenizer(const json_t *part, danaus_tokenizer *t)
{
    static const part_kind kinds[] = {
        { "BertPreTokenizer", read_bert }, { "WhitespaceSplit", read_spaces },
        { "Whitespace", read_words },      { "Metaspace", read_metaspace },
        { "ByteLevel", read_bytes },       { "Split", read_split },
        { "Sequence", read_sequence },
    };
    return dn_read_kind(part, "pre_tokenizer", kinds, KIND_COUNT(kinds), t);
}
