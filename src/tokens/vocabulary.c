/* A hash table of words with open addressing, at most half full. The hash is that of Fowler,
   Noll and Vo (1a, 64 bits); its upper bits, after a multiplication, give the place. */
// SPDX-License-Identifier: Apache-2.0
#include "tokens/vocabulary.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

#include <string.h>

#define LEAST_SLOTS 64

void dn_vocabulary_free(vocabulary *v)
{
    dn_free(v->text);
    dn_free(v->words);
    dn_free(v->slots);
    *v = (vocabulary){ 0 };
}

uint64_t dn_word_hash(uint64_t hash, span more)
{
    for (size_t i = 0; i < more.length; i++)
        hash = dn_word_hash_add(hash, more.text[i]);
    return hash;
}

static int is_word(
    const vocabulary *v, const vocabulary_word *word, span head, span tail)
{
    const char *string = v->text + word->start;
    return word->length == head.length + tail.length &&
           (!head.length || !memcmp(string, head.text, head.length)) &&
           (!tail.length || !memcmp(string + head.length, tail.text, tail.length));
}

/* The slot of the word, or the free one where it belongs. */
static size_t slot_of(const vocabulary *v, uint64_t hash, span head, span tail)
{
    size_t mask = v->slot_count - 1;
    size_t slot = (size_t)(hash * 0x9e3779b97f4a7c15u >> 32) & mask;
    while (v->slots[slot] && !is_word(v, &v->words[v->slots[slot] - 1], head, tail))
        slot = (slot + 1) & mask;
    return slot;
}

const vocabulary_word *dn_vocabulary_find(
    const vocabulary *v, uint64_t hash, span head, span tail)
{
    if (!v->count)
        return NULL;
    size_t found = v->slots[slot_of(v, hash, head, tail)];
    return found ? &v->words[found - 1] : NULL;
}

const vocabulary_word *dn_vocabulary_find_word(const vocabulary *v, span word)
{
    uint64_t hash = dn_word_hash(WORD_HASH_START, word);
    return dn_vocabulary_find(v, hash, (span){ 0 }, word);
}

static size_t *place(const vocabulary *v, span word)
{
    uint64_t hash = dn_word_hash(WORD_HASH_START, word);
    return &v->slots[slot_of(v, hash, (span){ 0 }, word)];
}

static danaus_status grow_slots(vocabulary *v)
{
    if (v->slot_count > 2 * (v->count + 1))
        return DANAUS_OK;
    size_t count = v->slot_count ? 2 * v->slot_count : LEAST_SLOTS;
    size_t *slots = dn_calloc(count, sizeof *slots);
    if (!slots)
        return dn_fail_memory(count * sizeof *slots, "a table of words");
    dn_free(v->slots);
    v->slots = slots;
    v->slot_count = count;
    for (size_t i = 0; i < v->count; i++)
        *place(v, dn_vocabulary_text(v, &v->words[i])) = i + 1;
    return DANAUS_OK;
}

danaus_status dn_vocabulary_add(vocabulary *v, span word, int32_t id, size_t *index)
{
    TRY(grow_slots(v));
    size_t *slot = place(v, word);
    if (!*slot) {
        TRY(dn_reserve(&v->words, v->count, &v->capacity, sizeof *v->words, "words"));
        TRY(dn_reserve_many(
            &v->text, v->text_bytes, word.length + 1, &v->text_capacity, 1, "words"));
        if (word.length)
            memcpy(v->text + v->text_bytes, word.text, word.length);
        v->words[v->count++] = (vocabulary_word){ v->text_bytes, word.length, id };
        v->text_bytes += word.length;
        v->longest = MAX(v->longest, word.length);
        *slot = v->count;
    }
    *index = *slot - 1;
    return DANAUS_OK;
}
