/* Bytes as letters, and back. */
// SPDX-License-Identifier: Apache-2.0
#include "tokens/byte_letters.h"

#include "base/numbers.h"
#include "base/status.h"
#include "tokens/letters.h"

/* The bytes that are no printable letters: 0 to 32, 127 to 160, and 173. */
#define LAST_FIRST   32
#define FIRST_SECOND 127
#define LAST_SECOND  160
#define THIRD        173
#define SECOND_SHIFT (256 + LAST_FIRST + 1 - FIRST_SECOND)

static int32_t letter_of(unsigned char byte)
{
    if (byte <= LAST_FIRST)
        return 256 + byte;
    if (byte >= FIRST_SECOND && byte <= LAST_SECOND)
        return byte + SECOND_SHIFT;
    return byte == THIRD ? LAST_SECOND + 1 + SECOND_SHIFT : byte;
}

/* -1: the letter stands for no byte. */
static int byte_of(int32_t c)
{
    int32_t byte = c < 256                           ? c
                   : c <= 256 + LAST_FIRST           ? c - 256
                   : c <= LAST_SECOND + SECOND_SHIFT ? c - SECOND_SHIFT
                                                     : THIRD;
    return byte >= 0 && letter_of((unsigned char)byte) == c ? (int)byte : -1;
}

danaus_status dn_put_byte_letters(span bytes, growing *to)
{
    TRY(dn_growing_reserve(to, 2 * bytes.length));
    char *at = to->text + to->length;
    for (size_t i = 0; i < bytes.length; i++) {
        int32_t c = letter_of((unsigned char)bytes.text[i]);
        if (c >= 0x80)
            *at++ = (char)(0xc0 | c >> 6);
        *at++ = (char)(c < 0x80 ? c : 0x80 | (c & 0x3f));
    }
    to->length = (size_t)(at - to->text);
    return DANAUS_OK;
}

danaus_status dn_put_letter_bytes(span letters, growing *to)
{
    size_t before = to->length;
    TRY(dn_growing_reserve(to, letters.length));
    for (size_t at = 0; at < letters.length;) {
        int byte = byte_of(dn_letter(letters, &at));
        if (byte < 0) {
            to->length = before;
            return dn_growing_add(to, letters);
        }
        to->text[to->length++] = (char)byte;
    }
    return DANAUS_OK;
}

/* How many bytes begin a letter as far as they go, of bytes that are no letter; at least 1. */
static size_t broken_length(const unsigned char *bytes, size_t count)
{
    unsigned char first = bytes[0], low = 0x80, high = 0xbf;
    size_t length = first < 0xc2 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4, i = 1;
    if (first > 0xf4)
        return 1;
    low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : low;
    high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : high;
    for (; i < MIN(length, count) && bytes[i] >= low && bytes[i] <= high; i++) {
        low = 0x80;
        high = 0xbf;
    }
    return i;
}

danaus_status dn_put_utf8(span bytes, growing *to)
{
    while (bytes.length) {
        size_t right = dn_utf8_length(bytes);
        TRY(dn_growing_add(to, span_cut(bytes, 0, right)));
        bytes = span_cut(bytes, right, bytes.length);
        if (!bytes.length)
            break;
        size_t wrong = broken_length((const unsigned char *)bytes.text, bytes.length);
        TRY(dn_growing_add(to, (span){ "\xef\xbf\xbd", 3 }));
        bytes = span_cut(bytes, wrong, bytes.length);
    }
    return DANAUS_OK;
}
