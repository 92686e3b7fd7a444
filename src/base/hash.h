/* A hash of 128 bits that tells pieces of data apart. It finds damage, not intent. Start with
   DN_HASH_START and add piece after piece; the lengths of pieces count. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_HASH_H
#define DN_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Upper half first. */
typedef struct hash128 {
    uint64_t part[2];
} hash128;

#define DN_HASH_START ((hash128){ { 0x6c62272e07bb0142u, 0x62b821756295c58du } })

hash128 dn_hash(hash128 hash, const void *data, size_t bytes);
hash128 dn_hash_text(hash128 hash, const char *words);

static inline int dn_hash_equal(hash128 a, hash128 b)
{
    return a.part[0] == b.part[0] && a.part[1] == b.part[1];
}

#endif
