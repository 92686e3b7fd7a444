/* SentencePiece's map of characters: reading it, and what is in it. */
// SPDX-License-Identifier: Apache-2.0
#include "tokens/normalizers/charsmap.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/growing.h"
#include "tokens/letters.h"

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

int dn_charsmap_find(const charsmap *map, span string, span *with)
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
static danaus_status check_nodes(
    const charsmap *map, unsigned char *seen, size_t *stack)
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
        map->plain[(unsigned char)c] = !dn_charsmap_find(map, (span){ &c, 1 }, &with);
    return status;
}

void dn_charsmap_free(charsmap *map)
{
    dn_free(map->units);
    dn_free(map->strings);
    *map = (charsmap){ 0 };
}
