/* Normalizing by SentencePiece's map, as the reference does: what is one character for a reader
   (an extended grapheme cluster) is replaced as a whole, if it is short and any beginning of it
   is in the map; else each of its code points is. The shortest beginning counts. */
// SPDX-License-Identifier: Apache-2.0
#include "tokens/charsmap.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/letters.h"
#include "tokens/normalizers.h"

#include <inttypes.h>

#define LONGEST_CLUSTER 5 /* bytes */

/* ---- the double array ---- */

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

static int has_value(uint32_t unit) { return unit >> 8 & 1; }

static size_t value_of(uint32_t unit) { return unit & 0x7fffffff; }

/* The unit of a node's child; NULL if there is none. */
static const uint32_t *child_of(const charsmap *map, size_t node, unsigned char byte)
{
    size_t at = node ^ byte;
    if (at >= map->unit_count || (map->units[at] & 0x800000ff) != byte)
        return NULL;
    return &map->units[at];
}

static size_t node_of(const charsmap *map, const uint32_t *unit)
{
    return (size_t)(unit - map->units) ^ offset_of(*unit);
}

/* What replaces the shortest beginning of the text that is in the map; 0: none is. */
static int find(const charsmap *map, span string, span *with)
{
    size_t node = offset_of(map->units[0]);
    for (size_t i = 0; i < string.length && string.text[i]; i++) {
        const uint32_t *unit = child_of(map, node, (unsigned char)string.text[i]);
        if (!unit)
            return 0;
        node = node_of(map, unit);
        if (has_value(*unit)) {
            const char *found = map->strings + value_of(map->units[node]);
            *with = (span){ found, strlen(found) };
            return 1;
        }
    }
    return 0;
}

/* ---- reading ---- */

/* The value of a letter of base64, -1 if it is none. */
static int digit_of(char letter)
{
    if (letter >= 'A' && letter <= 'Z')
        return letter - 'A';
    if (letter >= 'a' && letter <= 'z')
        return letter - 'a' + 26;
    if (letter >= '0' && letter <= '9')
        return letter - '0' + 52;
    return letter == '+' ? 62 : letter == '/' ? 63 : -1;
}

static danaus_status decode(span base64, growing *to)
{
    uint32_t bits = 0;
    size_t length = base64.length, tail = 0;
    while (tail < 2 && tail < length && base64.text[length - 1 - tail] == '=')
        tail++;
    int wrong = length % 4 != 0;
    TRY(dn_growing_reserve(to, length / 4 * 3 + 3));
    for (size_t i = 0; i < length && !wrong; i++) {
        int digit = i < length - tail ? digit_of(base64.text[i]) : 0;
        wrong = digit < 0;
        bits = bits << 6 | (uint32_t)digit;
        for (int shift = 16; i % 4 == 3 && shift >= 0; shift -= 8)
            to->text[to->length++] = (char)(bits >> shift & 0xff);
    }
    if (wrong)
        return dn_fail(DANAUS_ERR_FORMAT, "precompiled_charsmap is no base64");
    to->length -= MIN(tail, to->length);
    return DANAUS_OK;
}

static uint32_t little_endian(const char *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
           (uint32_t)b[3] << 24;
}

/* Four bytes that say how many bytes the trie has, the trie, and the replacements. */
static danaus_status take(span bytes, charsmap *map)
{
    size_t trie = bytes.length >= 4 ? little_endian(bytes.text) / 4 * 4 : 0;
    if (trie == 0 || bytes.length - 4 < trie)
        return dn_fail(
            DANAUS_ERR_FORMAT, "precompiled_charsmap has %zu bytes and no whole trie",
            bytes.length);
    span strings = span_cut(bytes, 4 + trie, bytes.length);
    if (dn_utf8_length(strings) < strings.length)
        return dn_fail(
            DANAUS_ERR_FORMAT, "precompiled_charsmap has replacements that are not "
                               "UTF-8");
    map->unit_count = trie / 4;
    map->string_bytes = strings.length;
    map->units = dn_alloc(trie);
    map->strings = dn_alloc(strings.length + 1);
    if (!map->units || !map->strings)
        return dn_fail_memory(bytes.length, "a map of characters");
    for (size_t i = 0; i < map->unit_count; i++)
        map->units[i] = little_endian(bytes.text + 4 + 4 * i);
    if (strings.length)
        memcpy(map->strings, strings.text, strings.length);
    map->strings[strings.length] = 0;
    return DANAUS_OK;
}

/* True if a unit has no value, or that of a replacement. */
static int is_right(const charsmap *map, const uint32_t *unit)
{
    size_t node = node_of(map, unit);
    if (!has_value(*unit))
        return 1;
    if (node >= map->unit_count)
        return 0;
    size_t value = value_of(map->units[node]);
    return value <= map->string_bytes &&
           ((unsigned char)map->strings[value] & 0xc0) != 0x80;
}

/* Walks over all nodes that texts can reach, each once: a trie of darts shares nodes. */
static danaus_status check_nodes(const charsmap *map, unsigned char *seen, size_t *stack)
{
    size_t count = 1;
    stack[0] = offset_of(map->units[0]);
    while (count > 0) {
        size_t node = stack[--count];
        for (int byte = 1; byte < 256; byte++) {
            const uint32_t *unit = child_of(map, node, (unsigned char)byte);
            if (unit && !is_right(map, unit))
                return dn_fail(
                    DANAUS_ERR_FORMAT,
                    "precompiled_charsmap has a text at unit %zu without replacement",
                    (size_t)(unit - map->units));
            size_t next = unit ? node_of(map, unit) : SIZE_MAX;
            if (next < map->unit_count && !seen[next]) {
                seen[next] = 1;
                stack[count++] = next;
            }
        }
    }
    return DANAUS_OK;
}

static danaus_status check(const charsmap *map)
{
    unsigned char *seen = dn_calloc(map->unit_count, 1);
    size_t *stack = dn_calloc(map->unit_count + 1, sizeof *stack);
    danaus_status status =
        seen && stack
            ? check_nodes(map, seen, stack)
            : dn_fail_memory(map->unit_count * sizeof *stack, "a map of characters");
    dn_free(seen);
    dn_free(stack);
    return status;
}

danaus_status dn_charsmap_read(span base64, charsmap *map)
{
    growing bytes = { 0 };
    span with;
    danaus_status status = decode(base64, &bytes);
    if (status == DANAUS_OK)
        status = take(growing_span(&bytes), map);
    if (status == DANAUS_OK)
        status = check(map);
    dn_free(bytes.text);
    for (char c = ' '; status == DANAUS_OK && c < 127; c++)
        map->plain[(unsigned char)c] = !find(map, (span){ &c, 1 }, &with);
    return status;
}

void dn_charsmap_free(charsmap *map)
{
    dn_free(map->units);
    dn_free(map->strings);
    *map = (charsmap){ 0 };
}

/* ---- normalizing ---- */

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
    if (cluster.length <= LONGEST_CLUSTER && find(map, cluster, &with))
        return dn_growing_add(to, with);
    for (size_t at = 0; at < cluster.length;) {
        size_t from = at;
        dn_letter(cluster, &at);
        span letter = span_cut(cluster, from, at);
        TRY(dn_growing_add(to, find(map, letter, &with) ? with : letter));
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
