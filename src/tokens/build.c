/* Builds a tokenizer from the contents of its files, whichever they are. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/tokens.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define QUOTED(s) (int)MIN((s).length, 100), (s).text

/* ---- steps, words and tokens ---- */

danaus_tokenizer *dn_tokenizer_new(void)
{
    danaus_tokenizer *t = dn_calloc(1, sizeof *t);
    if (t)
        t->unknown = -1;
    return t;
}

danaus_status dn_add_normalizer(danaus_tokenizer *t, normalizer **n)
{
    TRY(dn_reserve(
        &t->normalizers, t->normalizer_count, &t->normalizer_capacity,
        sizeof *t->normalizers, "normalizers"));
    *n = &t->normalizers[t->normalizer_count++];
    **n = (normalizer){ 0 };
    return DANAUS_OK;
}

danaus_status dn_add_pre_tokenizer(danaus_tokenizer *t, pre_tokenizer **p)
{
    TRY(dn_reserve(
        &t->pre_tokenizers, t->pre_tokenizer_count, &t->pre_tokenizer_capacity,
        sizeof *t->pre_tokenizers, "pre-tokenizers"));
    *p = &t->pre_tokenizers[t->pre_tokenizer_count++];
    **p = (pre_tokenizer){ 0 };
    return DANAUS_OK;
}

danaus_status dn_add_decode_step(danaus_tokenizer *t, decode_step **d)
{
    TRY(dn_reserve(
        &t->decode_steps, t->decode_count, &t->decode_capacity, sizeof *t->decode_steps,
        "decoders"));
    *d = &t->decode_steps[t->decode_count++];
    **d = (decode_step){ 0 };
    return DANAUS_OK;
}

danaus_status dn_add_word(danaus_tokenizer *t, span word, int32_t id)
{
    size_t index;
    TRY(dn_vocabulary_add(&t->words, word, id, &index));
    t->words.words[index].id = id;
    return DANAUS_OK;
}

int32_t dn_find_id(const danaus_tokenizer *t, span token)
{
    const vocabulary_word *found = dn_vocabulary_find_word(&t->added_texts, token);
    if (found)
        return t->added[found->id].id;
    found = dn_vocabulary_find_word(&t->words, token);
    return found ? found->id : -1;
}

danaus_status dn_add_token(danaus_tokenizer *t, span string, const added_token *token)
{
    size_t index;
    const vocabulary_word *word = dn_vocabulary_find_word(&t->words, string);
    int64_t id = word ? word->id : (int64_t)(t->words.count + t->new_count);
    if (dn_vocabulary_find_word(&t->added_texts, string))
        return dn_fail(
            DANAUS_ERR_FORMAT, "added token \"%.*s\" is there twice", QUOTED(string));
    if (id != token->id)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "added token \"%.*s\" has id %" PRId32 "; by the words it is %" PRId64,
            QUOTED(string), token->id, id);
    TRY(dn_reserve(
        &t->added, t->added_count, &t->added_capacity, sizeof *t->added,
        "added tokens"));
    TRY(dn_vocabulary_add(&t->added_texts, string, (int32_t)t->added_count, &index));
    t->added[t->added_count++] = *token;
    t->new_count += !word;
    return DANAUS_OK;
}

static danaus_status add_around(danaus_tokenizer *t, int32_t id, size_t *count)
{
    size_t all = t->before + t->after;
    TRY(dn_reserve(&t->around, all, &t->around_capacity, sizeof id, "a template"));
    t->around[all] = id;
    ++*count;
    return DANAUS_OK;
}

danaus_status dn_add_before(danaus_tokenizer *t, int32_t id)
{
    return add_around(t, id, &t->before);
}

danaus_status dn_add_after(danaus_tokenizer *t, int32_t id)
{
    return add_around(t, id, &t->after);
}

/* ---- what follows from them ---- */

static danaus_status add_to_matchers(danaus_tokenizer *t)
{
    for (size_t i = 0; i < t->added_count; i++) {
        span string = dn_vocabulary_text(&t->added_texts, &t->added_texts.words[i]);
        normal_text normal = { 0 };
        danaus_status status = DANAUS_OK;
        if (t->added[i].normalized)
            status = dn_normalize(
                t->normalizers, t->normalizer_count, string, &normal, &string);
        matcher *m = t->added[i].normalized ? &t->normalized : &t->as_is;
        if (status == DANAUS_OK)
            status = dn_matcher_add(m, string, (int32_t)i);
        dn_normal_text_free(&normal);
        TRY(status);
    }
    return DANAUS_OK;
}

/* Adds the texts of added tokens, as the matcher finds them. Only this text decides whether the
   token is special, as in the reference. */
static void decode_matcher(danaus_tokenizer *t, const matcher *m)
{
    for (size_t i = 0; i < m->texts.count; i++) {
        const vocabulary_word *word = &m->texts.words[i];
        span string = dn_vocabulary_text(&m->texts, word);
        const vocabulary_word *same = dn_vocabulary_find_word(&t->added_texts, string);
        int skip = same && t->added[same->id].special;
        t->decoded[t->decoded_count++] =
            (decoded){ t->added[word->id].id, skip, string };
    }
}

static int by_id(const void *x, const void *y)
{
    int32_t a = ((const decoded *)x)->id, b = ((const decoded *)y)->id;
    return (a > b) - (a < b);
}

static danaus_status make_decoded(danaus_tokenizer *t)
{
    size_t most = t->words.count + t->added_count;
    t->decoded = dn_calloc(most, sizeof *t->decoded);
    if (!t->decoded)
        return dn_fail_memory(most * sizeof *t->decoded, "a table of tokens");
    decode_matcher(t, &t->as_is);
    decode_matcher(t, &t->normalized);
    for (size_t i = 0; i < t->words.count; i++) {
        span string = dn_vocabulary_text(&t->words, &t->words.words[i]);
        if (!dn_vocabulary_find_word(&t->added_texts, string))
            t->decoded[t->decoded_count++] =
                (decoded){ t->words.words[i].id, 0, string };
    }
    qsort(t->decoded, t->decoded_count, sizeof *t->decoded, by_id);
    for (size_t i = 1; i < t->decoded_count; i++)
        if (t->decoded[i].id == t->decoded[i - 1].id)
            return dn_fail(
                DANAUS_ERR_FORMAT, "\"%.*s\" and \"%.*s\" both have id %" PRId32,
                QUOTED(t->decoded[i - 1].text), QUOTED(t->decoded[i].text),
                t->decoded[i].id);
    return DANAUS_OK;
}

danaus_status dn_set_unknown(danaus_tokenizer *t, span word)
{
    const vocabulary_word *found = dn_vocabulary_find_word(&t->words, word);
    if (!found)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "the unknown token \"%.*s\" is no word of the vocabulary", QUOTED(word));
    t->unknown = found->id;
    return DANAUS_OK;
}

danaus_status dn_finish_tokenizer(danaus_tokenizer *t)
{
    if (!t->words.count)
        return dn_fail(DANAUS_ERR_FORMAT, "the vocabulary has no word");
    TRY(dn_finish_model(t));
    TRY(add_to_matchers(t));
    TRY(make_decoded(t));
    for (size_t i = 0; i < t->before + t->after; i++)
        if (!dn_decoded(t, t->around[i]))
            return dn_fail(
                DANAUS_ERR_FORMAT,
                "the template puts id %" PRId32 ", which is no token", t->around[i]);
    return DANAUS_OK;
}

const decoded *dn_decoded(const danaus_tokenizer *t, int32_t id)
{
    decoded key = { .id = id };
    return bsearch(&key, t->decoded, t->decoded_count, sizeof key, by_id);
}

void danaus_tokenizer_destroy(danaus_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    for (size_t i = 0; i < tokenizer->normalizer_count; i++)
        dn_normalizer_free(&tokenizer->normalizers[i]);
    dn_free(tokenizer->normalizers);
    dn_free(tokenizer->pre_tokenizers);
    dn_model_free(&tokenizer->model);
    dn_vocabulary_free(&tokenizer->words);
    dn_vocabulary_free(&tokenizer->added_texts);
    dn_matcher_free(&tokenizer->as_is);
    dn_matcher_free(&tokenizer->normalized);
    dn_free(tokenizer->added);
    dn_free(tokenizer->around);
    dn_free(tokenizer->decoded);
    for (size_t i = 0; i < tokenizer->decode_count; i++)
        dn_decode_step_free(&tokenizer->decode_steps[i]);
    dn_free(tokenizer->decode_steps);
    dn_free(tokenizer);
}
