/* Reads the normalizer of tokenizer.json. */
// SPDX-License-Identifier: Apache-2.0
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/letters.h"
#include "tokens/read/read.h"

static danaus_status read_bert(const json_t *part, danaus_tokenizer *t)
{
    normalizer *n;
    TRY(dn_add_normalizer(t, &n));
    n->run = dn_normalize_bert;
    TRY(dn_read_flag(part, "clean_text", &n->bert.clean));
    TRY(dn_read_flag(part, "handle_chinese_chars", &n->bert.chinese));
    TRY(dn_read_flag(part, "lowercase", &n->bert.lower));
    n->bert.strip_accents = n->bert.lower;
    return dn_json_flag(part, "strip_accents", &n->bert.strip_accents);
}

static danaus_status read_unicode(const json_t *part, danaus_tokenizer *t)
{
    normalizer *n;
    span type = { 0 };
    TRY(dn_json_text(part, "type", &type));
    TRY(dn_add_normalizer(t, &n));
    n->run = dn_normalize_unicode;
    n->compatibility = type.text[2] == 'K';
    n->compose = type.text[type.length - 1] == 'C';
    return DANAUS_OK;
}

static danaus_status add_plain(danaus_tokenizer *t, normalize_fn *run)
{
    normalizer *n;
    TRY(dn_add_normalizer(t, &n));
    n->run = run;
    return DANAUS_OK;
}

static danaus_status read_lower(const json_t *part, danaus_tokenizer *t)
{
    (void)part;
    return add_plain(t, dn_normalize_lower);
}

static danaus_status read_accents(const json_t *part, danaus_tokenizer *t)
{
    (void)part;
    return add_plain(t, dn_normalize_accents);
}

static danaus_status read_nmt(const json_t *part, danaus_tokenizer *t)
{
    (void)part;
    return add_plain(t, dn_normalize_nmt);
}

static danaus_status read_bytes(const json_t *part, danaus_tokenizer *t)
{
    (void)part;
    return add_plain(t, dn_normalize_bytes);
}

static danaus_status read_strip(const json_t *part, danaus_tokenizer *t)
{
    normalizer *n;
    TRY(dn_add_normalizer(t, &n));
    n->run = dn_normalize_strip;
    TRY(dn_read_flag(part, "strip_left", &n->left));
    return dn_read_flag(part, "strip_right", &n->right);
}

static danaus_status read_prepend(const json_t *part, danaus_tokenizer *t)
{
    normalizer *n;
    span content = { 0 };
    TRY(dn_add_normalizer(t, &n));
    n->run = dn_normalize_prepend;
    TRY(dn_read_text(part, "prepend", &content));
    return dn_growing_add(&n->content, content);
}

static danaus_status read_precompiled(const json_t *part, danaus_tokenizer *t)
{
    normalizer *n;
    span base64 = { 0 };
    TRY(dn_add_normalizer(t, &n));
    n->run = dn_normalize_charsmap;
    TRY(dn_read_text(part, "precompiled_charsmap", &base64));
    return dn_charsmap_read(base64, &n->map);
}

/* ---- Replace ---- */

/* Characters that mean something else than themselves. */
static int is_meta(char c) { return c && strchr("\\^$.|?*+()[]{}", c) != NULL; }

/* "+" or "{n,}": that often, or more often. */
static int read_repeats(span string, size_t *least)
{
    int64_t count = 0;
    if (dn_span_is(string, "+")) {
        *least = 1;
        return 1;
    }
    if (string.length < 4 || string.text[0] != '{' ||
        memcmp(string.text + string.length - 2, ",}", 2) != 0)
        return 0;
    int is_right =
        dn_span_integer(span_cut(string, 1, string.length - 2), &count) && count > 0;
    *least = (size_t)count;
    return is_right;
}

/* One letter, or \s, in a row. */
static int read_row(span expression, replaced *r)
{
    size_t at = 0;
    if (!expression.length)
        return 0;
    if (expression.text[0] == '\\') {
        char next = expression.length > 1 ? expression.text[1] : 0;
        if (next != 's' && !is_meta(next))
            return 0;
        r->letter = next == 's' ? -1 : next;
        at = 2;
    } else {
        r->letter = dn_letter(expression, &at);
        if (at == 1 && is_meta((char)r->letter))
            return 0;
    }
    return read_repeats(span_cut(expression, at, expression.length), &r->least);
}

static int is_literal(span expression)
{
    int literal = expression.length > 0;
    for (size_t i = 0; i < expression.length; i++)
        literal &= !is_meta(expression.text[i]);
    return literal;
}

static danaus_status read_replaced(const json_t *pattern, replaced *r)
{
    span literal = { 0 }, expression = { 0 };
    TRY(dn_json_text(pattern, "String", &literal));
    TRY(dn_json_text(pattern, "Regex", &expression));
    if (literal.length)
        return dn_growing_add(&r->text, literal);
    if (is_literal(expression))
        return dn_growing_add(&r->text, expression);
    if (read_row(expression, r))
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED,
        "Replace has the pattern \"%.*s\"; danaus has texts, and one letter or \\s "
        "with "
        "+ or {n,}",
        (int)MIN(expression.length, 100), expression.text ? expression.text : "");
}

danaus_status dn_read_replace(const json_t *part, normalizer *n)
{
    span content = { 0 };
    n->run = dn_normalize_replace;
    TRY(read_replaced(json_object_get(part, "pattern"), &n->replaced));
    TRY(dn_read_text(part, "content", &content));
    return dn_growing_add(&n->content, content);
}

static danaus_status read_replace(const json_t *part, danaus_tokenizer *t)
{
    normalizer *n;
    TRY(dn_add_normalizer(t, &n));
    return dn_read_replace(part, n);
}

/* ---- all of them ---- */

static danaus_status read_sequence(const json_t *part, danaus_tokenizer *t)
{
    return dn_read_each(part, "normalizers", dn_read_normalizer, t);
}

danaus_status dn_read_normalizer(const json_t *part, danaus_tokenizer *t)
{
    static const part_kind kinds[] = {
        { "BertNormalizer", read_bert },
        { "NFC", read_unicode },
        { "NFD", read_unicode },
        { "NFKC", read_unicode },
        { "NFKD", read_unicode },
        { "Lowercase", read_lower },
        { "StripAccents", read_accents },
        { "Strip", read_strip },
        { "Nmt", read_nmt },
        { "Prepend", read_prepend },
        { "Replace", read_replace },
        { "Precompiled", read_precompiled },
        { "ByteLevel", read_bytes },
        { "Sequence", read_sequence },
    };
    return dn_read_kind(part, "normalizer", kinds, KIND_COUNT(kinds), t);
}
