/* SentencePiece's map of characters (`precompiled_charsmap`): texts and what replaces them. The
   texts are in a trie of bytes, a double array as darts makes it: a node is a place, and its
   child for a byte is at that place xor the byte. The replacements end with zeros. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_CHARSMAP_H
#define DN_TOKENS_CHARSMAP_H

#include "base/text.h"
#include "danaus/base.h"

/* Zeros are an empty one. */
typedef struct charsmap {
    uint32_t *units;
    size_t unit_count;
    char *strings;
    size_t string_bytes;
    unsigned char plain[128]; /* nonzero: printable, and begins no text of the map */
} charsmap;

/* base64: as in tokenizer.json. DANAUS_ERR_FORMAT if any text of the map has no replacement. */
danaus_status dn_charsmap_read(span base64, charsmap *map);
void dn_charsmap_free(charsmap *map);

/* True if a beginning of the text is in the map; *with replaces the shortest one. */
int dn_charsmap_find(const charsmap *map, span string, span *with);

#endif
