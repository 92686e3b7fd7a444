/* Characters as tokens, as HyenaDNA's tokenizers have them (Nguyen et al., NeurIPS 2023, arXiv
   2306.15794): a tokenizer_config.json without a vocabulary. Ids are those of the special
   tokens below, then those of the characters, A C G T N unless the file lists others; any other
   character is the unknown token. Small letters of ASCII count as capitals where only the
   capitals are characters: genomes mark repeats by small letters. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "io/json.h"
#include "tokens/letters.h"
#include "tokens/tokens.h"

#include <string.h>

#define UNKNOWN   "[UNK]"
#define SEPARATOR "[SEP]"

static const struct {
    const char *text;
    int is_special; /* found in text, and left out when that is asked */
} firsts[] = {
    { "[CLS]", 1 }, { SEPARATOR, 1 },    { "[BOS]", 1 }, { "[MASK]", 1 },
    { "[PAD]", 1 }, { "[RESERVED]", 0 }, { UNKNOWN, 1 },
};

static span span_of(const char *words) { return (span){ words, strlen(words) }; }

/* ---- making ---- */

static danaus_status add_firsts(danaus_tokenizer *t)
{
    int32_t count = (int32_t)(sizeof firsts / sizeof *firsts);
    for (int32_t i = 0; i < count; i++)
        TRY(dn_add_word(t, span_of(firsts[i].text), i));
    for (int32_t i = 0; i < count; i++) {
        added_token token = { .id = i, .special = 1 };
        if (firsts[i].is_special)
            TRY(dn_add_token(t, span_of(firsts[i].text), &token));
    }
    return DANAUS_OK;
}

static danaus_status add_character(danaus_tokenizer *t, span character)
{
    size_t end = 0;
    if (character.length && dn_utf8_length(character) == character.length)
        dn_letter(character, &end);
    if (!end || end < character.length)
        return dn_fail(
            DANAUS_ERR_FORMAT, "\"%.*s\" of \"characters\" is not one character",
            (int)MIN(character.length, 40), character.text ? character.text : "");
    if (dn_vocabulary_find_word(&t->words, character))
        return dn_fail(
            DANAUS_ERR_FORMAT, "character \"%.*s\" is there twice",
            (int)character.length, character.text);
    return dn_add_word(t, character, (int32_t)t->words.count);
}

static danaus_status add_characters(const json_t *config, danaus_tokenizer *t)
{
    static const char *const usual[] = { "A", "C", "G", "T", "N" };
    json_t *listed = NULL, *character;
    size_t i;
    TRY(dn_json_array(config, "characters", &listed));
    json_array_foreach(listed, i, character)
    {
        TRY(add_character(t, dn_json_span(character)));
    }
    for (i = 0; !listed && i < sizeof usual / sizeof *usual; i++)
        TRY(add_character(t, span_of(usual[i])));
    return DANAUS_OK;
}

static int has_characters(const json_t *config)
{
    span class = { 0 };
    if (dn_json_text(config, "tokenizer_class", &class) != DANAUS_OK || !class.text)
        return 0;
    return dn_span_is(class, "HyenaDNATokenizer") ||
           dn_span_is(class, "CharacterTokenizer");
}

static danaus_status read_all(const json_t *config, danaus_tokenizer *t)
{
    span side = span_of("right");
    decode_step *d;
    if (!has_characters(config))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "tokenizer.json or vocab.txt is needed beside it, or a tokenizer_class "
            "HyenaDNATokenizer or CharacterTokenizer");
    TRY(dn_json_text(config, "truncation_side", &side));
    t->keep_end = dn_span_is(side, "left");
    t->model.put = dn_put_characters;
    TRY(dn_add_decode_step(t, &d));
    d->put = dn_decode_wordpiece;
    TRY(add_firsts(t));
    TRY(add_characters(config, t));
    TRY(dn_add_after(t, dn_find_id(t, span_of(SEPARATOR))));
    TRY(dn_set_unknown(t, span_of(UNKNOWN)));
    return dn_finish_tokenizer(t);
}

danaus_status dn_tokenizer_read_characters(span config, danaus_tokenizer **tokenizer)
{
    json_t *object = NULL;
    danaus_tokenizer *t = dn_tokenizer_new();
    if (!t)
        return dn_fail_memory(sizeof *t, "a tokenizer");
    danaus_status status = dn_json_parse(config, &object);
    if (status == DANAUS_OK)
        status = read_all(object, t);
    json_decref(object);
    if (status == DANAUS_OK)
        *tokenizer = t;
    else
        danaus_tokenizer_destroy(t);
    return status;
}

/* ---- encoding ---- */

static int32_t id_of(const danaus_tokenizer *t, span character)
{
    const vocabulary_word *found = dn_vocabulary_find_word(&t->words, character);
    if (!found && character.text[0] >= 'a' && character.text[0] <= 'z') {
        char capital = (char)(character.text[0] - 'a' + 'A');
        found = dn_vocabulary_find_word(&t->words, (span){ &capital, 1 });
    }
    return found ? found->id : t->unknown;
}

danaus_status dn_put_characters(encoding *e, span string)
{
    for (size_t at = 0; at < string.length && e->count < e->most;) {
        size_t from = at;
        dn_letter(string, &at);
        TRY(dn_put_id(e, id_of(e->tokenizer, (span){ string.text + from, at - from })));
    }
    return DANAUS_OK;
}
