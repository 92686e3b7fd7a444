/* Normalizing by SentencePiece's map, as the reference does: what is one character for a reader
   (an extended grapheme cluster) is replaced as a whole, if it is short and any beginning of it
   is in the map; else each of its code points is. The shortest beginning counts. */
// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"
#include "tokens/letters.h"
#include "tokens/normalizers/normalizers.h"

#define LONGEST_CLUSTER 5 /* bytes */

/* Where plain letters in a row end; the one before a letter that is not ASCII may be part of a
   cluster. */
static size_t plain_end(const charsmap *map, span string, size_t at)
{
    size_t from = at;
    while (at < string.length && (unsigned char)string.text[at] < 0x80 &&
           map->plain[(unsigned char)string.text[at]])
        at++;
    int ends = at == string.length || (unsigned char)string.text[at] < 0x80;
    return at > from && !ends ? at - 1 : at;
}

static danaus_status put_cluster(const charsmap *map, span cluster, growing *to)
{
    span with;
    if (cluster.length <= LONGEST_CLUSTER && dn_charsmap_find(map, cluster, &with))
        return dn_growing_add(to, with);
    for (size_t at = 0; at < cluster.length;) {
        size_t from = at;
        dn_letter(cluster, &at);
        span letter = span_cut(cluster, from, at);
        TRY(dn_growing_add(to, dn_charsmap_find(map, letter, &with) ? with : letter));
    }
    return DANAUS_OK;
}

danaus_status dn_normalize_charsmap(
    const normalizer *n, span string, growing *to, int *moved)
{
    (void)moved;
    for (size_t at = 0; at < string.length;) {
        size_t end = plain_end(&n->map, string, at);
        TRY(dn_growing_add(to, span_cut(string, at, end)));
        at = end;
        if (at == string.length)
            break;
        end = dn_cluster_end(string, at);
        TRY(put_cluster(&n->map, span_cut(string, at, end), to));
        at = end;
    }
    return DANAUS_OK;
}
