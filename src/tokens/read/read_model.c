/* Reads the model of tokenizer.json. */
// SPDX-License-Identifier: Apache-2.0
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/read/read.h"
#include "tokens/models/scores.h"

static danaus_status read_words(const json_t *part, danaus_tokenizer *t)
{
    const char *word;
    json_t *words = json_object_get(part, "vocab"), *id;
    if (!json_is_object(words))
        return dn_fail(DANAUS_ERR_FORMAT, "the model has no vocabulary");
    json_object_foreach(words, word, id)
    {
        int32_t number = dn_json_id(id);
        if (number < 0)
            return dn_fail(
                DANAUS_ERR_FORMAT, "word \"%.100s\" has no id from 0 to %d", word,
                INT32_MAX - 1);
        TRY(dn_add_word(t, (span){ word, strlen(word) }, number));
    }
    return DANAUS_OK;
}

static danaus_status read_wordpiece(const json_t *part, danaus_tokenizer *t)
{
    span prefix = { 0 }, unknown = { 0 };
    model *m = &t->model;
    m->put = dn_put_wordpiece;
    m->longest_word = -1;
    TRY(dn_json_text(part, "unk_token", &unknown));
    TRY(dn_json_text(part, "continuing_subword_prefix", &prefix));
    TRY(dn_json_integer(part, "max_input_chars_per_word", &m->longest_word));
    if (!unknown.text || !prefix.text || m->longest_word < 0)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "the model needs unk_token, continuing_subword_prefix and "
            "max_input_chars_per_word");
    TRY(dn_growing_add(&m->prefix, prefix));
    TRY(read_words(part, t));
    return dn_set_unknown(t, unknown);
}

/* ---- Unigram ---- */

/* [word, score]; the id is the number of words before. */
static danaus_status read_scored(const json_t *pair, danaus_tokenizer *t)
{
    model *m = &t->model;
    const json_t *word = json_array_get(pair, 0), *score = json_array_get(pair, 1);
    size_t index, id = m->score_count;
    if (!json_is_string(word) || !json_is_number(score) || json_array_size(pair) != 2 ||
        id >= INT32_MAX)
        return dn_fail(
            DANAUS_ERR_FORMAT, "entry %zu of the vocabulary is no word with a score",
            id);
    span string = dn_json_span(word);
    TRY(dn_vocabulary_add(&t->words, string, (int32_t)id, &index));
    if (index != id)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "word \"%.*s\" is in the vocabulary twice",
            (int)MIN(string.length, 100), string.text);
    TRY(dn_reserve(&m->scores, id, &m->score_capacity, sizeof *m->scores, "scores"));
    m->scores[m->score_count++] = dn_reference_score(json_number_value(score));
    return DANAUS_OK;
}

static danaus_status read_unigram(const json_t *part, danaus_tokenizer *t)
{
    json_t *words = NULL;
    int64_t unknown = -1;
    t->model.put = dn_put_unigram;
    TRY(dn_json_array(part, "vocab", &words));
    if (!words)
        return dn_fail(DANAUS_ERR_FORMAT, "the model has no vocabulary");
    TRY(dn_read_each(part, "vocab", read_scored, t));
    TRY(dn_json_flag(part, "byte_fallback", &t->model.byte_fallback));
    TRY(dn_json_integer(part, "unk_id", &unknown));
    if (unknown >= (int64_t)t->words.count)
        return dn_fail(
            DANAUS_ERR_FORMAT, "the unknown token has an id that no word has");
    t->unknown = (int32_t)unknown;
    return DANAUS_OK;
}

/* ---- BPE ---- */

static danaus_status bad_merge(size_t rank, const char *what)
{
    return dn_fail(DANAUS_ERR_FORMAT, "merge %zu %s", rank, what);
}

/* The two tokens of a merge: "a b", or ["a", "b"]. */
static int read_pair(const json_t *pair, span *left, span *right)
{
    span both = dn_json_span(pair);
    const char *space = both.text ? memchr(both.text, ' ', both.length) : NULL;
    if (json_is_array(pair)) {
        *left = dn_json_span(json_array_get(pair, 0));
        *right = dn_json_span(json_array_get(pair, 1));
        return left->text && right->text && json_array_size(pair) == 2;
    }
    if (!space)
        return 0;
    *left = span_cut(both, 0, (size_t)(space - both.text));
    *right = span_cut(both, left->length + 1, both.length);
    return !memchr(right->text, ' ', right->length);
}

static danaus_status add_merge(
    danaus_tokenizer *t, uint32_t rank, span left, span right, growing *both)
{
    size_t prefix = t->model.prefix.length;
    if (right.length < prefix)
        return bad_merge(rank, "has a right side that is shorter than the prefix");
    both->length = 0;
    TRY(dn_growing_add(both, left));
    TRY(dn_growing_add(both, span_cut(right, prefix, right.length)));
    const vocabulary_word *words[] = {
        dn_vocabulary_find_word(&t->words, left),
        dn_vocabulary_find_word(&t->words, right),
        dn_vocabulary_find_word(&t->words, growing_span(both)),
    };
    if (!words[0] || !words[1] || !words[2])
        return bad_merge(rank, "names a token that is not in the vocabulary");
    return dn_merges_add(
        &t->model.merges, (merge){ words[0]->id, words[1]->id, words[2]->id, rank });
}

static danaus_status read_merges(const json_t *all, danaus_tokenizer *t, growing *both)
{
    size_t i;
    uint32_t rank = 0;
    json_t *pair;
    json_array_foreach(all, i, pair)
    {
        span left, right, line = dn_json_span(pair);
        if (line.length >= 8 && !memcmp(line.text, "#version", 8))
            continue;
        if (!read_pair(pair, &left, &right))
            return bad_merge(i, "is no pair of tokens");
        TRY(add_merge(t, rank++, left, right, both));
    }
    return DANAUS_OK;
}

static danaus_status read_bpe_fields(const json_t *part, danaus_tokenizer *t)
{
    span prefix = { 0 }, suffix = { 0 };
    const json_t *dropout = json_object_get(part, "dropout");
    model *m = &t->model;
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "the model has a dropout; danaus has none");
    TRY(dn_json_text(part, "continuing_subword_prefix", &prefix));
    TRY(dn_json_text(part, "end_of_word_suffix", &suffix));
    TRY(dn_json_flag(part, "fuse_unk", &m->fuse_unknown));
    TRY(dn_json_flag(part, "byte_fallback", &m->byte_fallback));
    TRY(dn_json_flag(part, "ignore_merges", &m->ignore_merges));
    TRY(dn_growing_add(&m->prefix, prefix));
    return dn_growing_add(&m->suffix, suffix);
}

static danaus_status read_bpe(const json_t *part, danaus_tokenizer *t)
{
    span unknown = { 0 };
    json_t *all;
    growing both = { 0 };
    t->model.put = dn_put_bpe;
    TRY(read_bpe_fields(part, t));
    TRY(read_words(part, t));
    TRY(dn_json_array(part, "merges", &all));
    if (!all)
        return dn_fail(DANAUS_ERR_FORMAT, "the model has no merges");
    danaus_status status = read_merges(all, t, &both);
    dn_free(both.text);
    TRY(status);
    TRY(dn_json_text(part, "unk_token", &unknown));
    const vocabulary_word *found =
        unknown.text ? dn_vocabulary_find_word(&t->words, unknown) : NULL;
    t->model.skips_unknown = !unknown.text;
    t->unknown = found ? found->id : -1;
    return DANAUS_OK;
}

/* ---- all of them ---- */

/* A model of older files has no type. */
static read_part_fn *older_kind(const json_t *part)
{
    if (json_object_get(part, "merges"))
        return read_bpe;
    return json_is_array(json_object_get(part, "vocab")) ? read_unigram
                                                         : read_wordpiece;
}

danaus_status dn_read_model(const json_t *part, danaus_tokenizer *t)
{
    static const part_kind kinds[] = {
        { "WordPiece", read_wordpiece },
        { "Unigram", read_unigram },
        { "BPE", read_bpe },
    };
    if (json_is_object(part) && !json_object_get(part, "type"))
        return older_kind(part)(part, t);
    return dn_read_kind(part, "model", kinds, KIND_COUNT(kinds), t);
}
