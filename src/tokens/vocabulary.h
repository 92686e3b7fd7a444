/* Words and their numbers, found by a hash that grows byte by byte: the beginnings of a word
   cost no more than the word. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_VOCABULARY_H
#define DN_TOKENS_VOCABULARY_H

#include "base/text.h"
#include "danaus/base.h"

/* A word is text[start .. start + length) of its vocabulary. */
typedef struct vocabulary_word {
    size_t start, length;
    int32_t id;
} vocabulary_word;

/* Zeros are an empty one. */
typedef struct vocabulary {
    char *text;
    size_t text_bytes, text_capacity;
    vocabulary_word *words;
    size_t count, capacity;
    size_t *slots;     /* 1 + a word, 0: free */
    size_t slot_count; /* 0 or a power of two, more than twice the words */
    size_t longest;    /* word, in bytes */
} vocabulary;

void dn_vocabulary_free(vocabulary *v);

/* *index is the place of the word among v->words; a word that is there keeps its id. */
danaus_status dn_vocabulary_add(vocabulary *v, span word, int32_t id, size_t *index);

/* The hash of a text is WORD_HASH_START with all of its bytes added. */
#define WORD_HASH_START 0xcbf29ce484222325u

static inline uint64_t dn_word_hash_add(uint64_t hash, char byte)
{
    return (hash ^ (unsigned char)byte) * 0x100000001b3u;
}

uint64_t dn_word_hash(uint64_t hash, span more);

/* The word that is `tail` behind `head`, whose hash is `hash`; NULL if there is none. */
const vocabulary_word *dn_vocabulary_find(
    const vocabulary *v, uint64_t hash, span head, span tail);
const vocabulary_word *dn_vocabulary_find_word(const vocabulary *v, span word);

static inline span dn_vocabulary_text(const vocabulary *v, const vocabulary_word *word)
{
    return (span){ v->text + word->start, word->length };
}

#endif
