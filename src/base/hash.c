/* A hash h of words v_0, v_1, ... of 128 bits. v_0 is the number of bytes; the others are
   the bytes, 16 at a time, little-endian, with zeros after the last:

       h <- (h xor v) G mod 2^128,  then  h <- h xor floor(h / 2^64),

   where G is the odd number at the golden ratio of 2^128. Each step is one to one in h and
   in v, so no change of a single word is lost. 4 bytes a nanosecond. */
// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <string.h>

__extension__ typedef unsigned __int128 wide;

#define WORD   sizeof(wide)
#define GOLDEN ((wide)0x9e3779b97f4a7c15u << 64 | 0xf39cc0605cedc835u)

static wide step(wide hash, wide word)
{
    hash = (hash ^ word) * GOLDEN;
    return hash ^ hash >> 64;
}

hash128 dn_hash(hash128 hash, const void *data, size_t bytes)
{
    wide h = step((wide)hash.part[0] << 64 | hash.part[1], bytes), word = 0;
    size_t at = 0;
    for (; bytes - at >= WORD; at += WORD) {
        memcpy(&word, (const char *)data + at, WORD);
        h = step(h, word);
    }
    if (at < bytes) {
        word = 0;
        memcpy(&word, (const char *)data + at, bytes - at);
        h = step(h, word);
    }
    return (hash128){ { (uint64_t)(h >> 64), (uint64_t)h } };
}

hash128 dn_hash_text(hash128 hash, const char *words)
{
    return dn_hash(hash, words, strlen(words));
}
