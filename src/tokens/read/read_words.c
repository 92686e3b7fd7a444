/* Reads vocab.txt, where each line is a word and its number is the word's id, and
   tokenizer_config.json, like BERT's tokenizers of transformers. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "io/json.h"
#include "tokens/letters.h"
#include "tokens/tokens.h"

#include <stdlib.h>
#include <string.h>

#define PREFIX       "##"
#define LONGEST_WORD 100

static span span_of(const char *words) { return (span){ words, strlen(words) }; }

/* ---- vocab.txt ---- */

static span without_spaces_behind(span line)
{
    while (line.length) {
        char bytes[LETTER_BYTES];
        int32_t c = dn_letter_before(line, line.length);
        if (!dn_is_space(c))
            break;
        line.length -= dn_put_letter(c, bytes);
    }
    return line;
}

/* The id of a word is the number of its last line. */
static danaus_status read_lines(span words, danaus_tokenizer *t)
{
    int32_t id = 0;
    size_t right = dn_utf8_length(words);
    if (right < words.length)
        return dn_fail(
            DANAUS_ERR_FORMAT, "the vocabulary is not UTF-8 at byte %zu", right);
    if (words.length >= 3 && !memcmp(words.text, "\xef\xbb\xbf", 3))
        words = (span){ words.text + 3, words.length - 3 }; /* a byte order mark */
    if (!words.length)
        return dn_fail(DANAUS_ERR_FORMAT, "the vocabulary has no word");
    for (; words.length; id++)
        TRY(dn_add_word(t, without_spaces_behind(dn_next_line(&words)), id));
    return DANAUS_OK;
}

/* ---- tokenizer_config.json ---- */

static danaus_status check_class(const json_t *config)
{
    static const char *const classes[] = { "BertTokenizer", "BertTokenizerFast",
                                           "DistilBertTokenizer",
                                           "DistilBertTokenizerFast" };
    int basic = 1;
    span class = span_of(classes[0]);
    const json_t *never = json_object_get(config, "never_split");
    TRY(dn_json_text(config, "tokenizer_class", &class));
    TRY(dn_json_flag(config, "do_basic_tokenize", &basic));
    if (!basic || json_array_size(never))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "danaus has neither never_split nor do_basic_tokenize = false");
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (dn_span_is(class, classes[i]))
            return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED, "the tokenizer is a %.*s; danaus has %s",
        (int)MIN(class.length, 100), class.text, classes[0]);
}

static danaus_status read_normalizer(const json_t *config, danaus_tokenizer *t)
{
    normalizer *n;
    pre_tokenizer *p;
    TRY(dn_add_pre_tokenizer(t, &p));
    TRY(dn_add_normalizer(t, &n));
    p->run = dn_split_bert;
    n->run = dn_normalize_bert;
    n->bert.clean = n->bert.chinese = n->bert.lower = 1;
    TRY(dn_json_flag(config, "tokenize_chinese_chars", &n->bert.chinese));
    TRY(dn_json_flag(config, "do_lower_case", &n->bert.lower));
    n->bert.strip_accents = n->bert.lower;
    return dn_json_flag(config, "strip_accents", &n->bert.strip_accents);
}

/* Flags that are not there are 0. */
static danaus_status read_flags(const json_t *object, added_token *token)
{
    TRY(dn_json_flag(object, "single_word", &token->single_word));
    TRY(dn_json_flag(object, "lstrip", &token->lstrip));
    TRY(dn_json_flag(object, "rstrip", &token->rstrip));
    TRY(dn_json_flag(object, "special", &token->special));
    return dn_json_flag(object, "normalized", &token->normalized);
}

/* {"103": {"content": "[MASK]", "lstrip": false, ...}, ...}, in whatever order. */
static danaus_status read_tokens(const json_t *config, danaus_tokenizer *t)
{
    const char *number;
    json_t *tokens = json_object_get(config, "added_tokens_decoder"), *object;
    json_object_foreach(tokens, number, object)
    {
        span string = { 0 };
        int64_t id = 0;
        added_token token = { 0 };
        TRY(dn_json_text(object, "content", &string));
        TRY(read_flags(object, &token));
        if (!string.text || !dn_span_integer(span_of(number), &id) || id >= INT32_MAX)
            return dn_fail(
                DANAUS_ERR_FORMAT, "added token \"%.100s\" has no content and id",
                number);
        token.id = (int32_t)id;
        TRY(dn_add_token(t, string, &token));
    }
    return DANAUS_OK;
}

/* A special token is a string or an object with content and flags. */
static danaus_status read_special(
    const json_t *config, const char *field, span *string, danaus_tokenizer *t)
{
    const json_t *found = json_object_get(config, field);
    added_token token = { .special = 1 };
    if (json_is_object(found)) {
        TRY(dn_json_text(found, "content", string));
        TRY(read_flags(found, &token));
    } else {
        TRY(dn_json_text(config, field, string));
    }
    token.id = dn_find_id(t, *string);
    if (token.id < 0)
        return dn_fail(
            DANAUS_ERR_FORMAT, "%s \"%.*s\" is no word of the vocabulary", field,
            (int)MIN(string->length, 100), string->text);
    token.special = 1;
    if (dn_vocabulary_find_word(&t->added_texts, *string))
        return DANAUS_OK;
    return dn_add_token(t, *string, &token);
}

static danaus_status read_specials(
    const json_t *config, danaus_tokenizer *t, span *unknown)
{
    span cls = span_of("[CLS]"), sep = span_of("[SEP]");
    span pad = span_of("[PAD]"), mask = span_of("[MASK]");
    *unknown = span_of("[UNK]");
    TRY(read_special(config, "unk_token", unknown, t));
    TRY(read_special(config, "cls_token", &cls, t));
    TRY(read_special(config, "sep_token", &sep, t));
    TRY(read_special(config, "pad_token", &pad, t));
    TRY(read_special(config, "mask_token", &mask, t));
    TRY(dn_add_before(t, dn_find_id(t, cls)));
    return dn_add_after(t, dn_find_id(t, sep));
}

static danaus_status read_all(
    span words, const json_t *config, danaus_tokenizer *t, int *in_words)
{
    span unknown, side = span_of("right");
    decode_step *d;
    if (!json_is_object(config))
        return dn_fail(DANAUS_ERR_FORMAT, "this is not an object");
    TRY(check_class(config));
    TRY(dn_json_text(config, "truncation_side", &side));
    t->keep_end = dn_span_is(side, "left");
    t->model.put = dn_put_wordpiece;
    t->model.longest_word = LONGEST_WORD;
    TRY(dn_add_decode_step(t, &d));
    d->put = dn_decode_wordpiece;
    d->cleanup = 1;
    TRY(dn_growing_add(&t->model.prefix, span_of(PREFIX)));
    TRY(dn_growing_add(&d->prefix, span_of(PREFIX)));
    TRY(read_normalizer(config, t));
    *in_words = 1;
    TRY(read_lines(words, t));
    *in_words = 0;
    TRY(read_tokens(config, t));
    TRY(read_specials(config, t, &unknown));
    TRY(dn_set_unknown(t, unknown));
    return dn_finish_tokenizer(t);
}

danaus_status dn_tokenizer_read_words(
    span words, span config, danaus_tokenizer **tokenizer, int *in_words)
{
    json_t *object = NULL;
    danaus_tokenizer *t = dn_tokenizer_new();
    if (!t)
        return dn_fail_memory(sizeof *t, "a tokenizer");
    *in_words = 0;
    danaus_status status = dn_json_parse(config, &object);
    if (status == DANAUS_OK)
        status = read_all(words, object, t, in_words);
    json_decref(object);
    if (status == DANAUS_OK)
        *tokenizer = t;
    else
        danaus_tokenizer_destroy(t);
    return status;
}
