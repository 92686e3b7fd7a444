/* Steps that see all tokens:

   - bytes (ByteLevel): letters stand for bytes, and those of all tokens are UTF-8 together;
   - byte tokens (ByteFallback): "<0x00>" to "<0xFF>" in a row are UTF-8 together; if they are
     not, each one becomes U+FFFD;
   - fuse (Fuse): one text of all. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/status.h"
#include "tokens/byte_letters.h"
#include "tokens/decoders/decoders.h"
#include "tokens/letters.h"

danaus_status dn_decode_bytes(const piece_list *from, piece_list *to)
{
    growing bytes = { 0 };
    danaus_status status = DANAUS_OK;
    for (size_t i = 0; i < from->count && status == DANAUS_OK; i++)
        status = dn_put_letter_bytes(piece_at(from, i), &bytes);
    if (status == DANAUS_OK)
        status = dn_put_utf8(growing_span(&bytes), &to->text);
    dn_free(bytes.text);
    return status == DANAUS_OK ? dn_pieces_end(to) : status;
}

danaus_status dn_decode_fuse(const piece_list *from, piece_list *to)
{
    TRY(dn_growing_add(&to->text, growing_span(&from->text)));
    return dn_pieces_end(to);
}

/* ---- byte tokens ---- */

static int digit_of(char c)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) % 16 : -1;
}

/* The byte of a token "<0xE4>"; -1: it is another one. */
static int byte_of(span token)
{
    const char *s = token.text;
    if (token.length != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    int high = digit_of(s[3]), low = digit_of(s[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* Puts a row of bytes as one text, or as a sign for each. */
static danaus_status put_row(span bytes, piece_list *to)
{
    if (!bytes.length)
        return DANAUS_OK;
    if (dn_utf8_length(bytes) == bytes.length) {
        TRY(dn_growing_add(&to->text, bytes));
        return dn_pieces_end(to);
    }
    for (size_t i = 0; i < bytes.length; i++) {
        TRY(dn_growing_add(&to->text, (span){ "\xef\xbf\xbd", 3 }));
        TRY(dn_pieces_end(to));
    }
    return DANAUS_OK;
}

static danaus_status put_rows(const piece_list *from, growing *row, piece_list *to)
{
    for (size_t i = 0; i < from->count; i++) {
        span token = piece_at(from, i);
        int value = byte_of(token);
        char byte = (char)value;
        if (value >= 0) {
            TRY(dn_growing_add(row, (span){ &byte, 1 }));
            continue;
        }
        TRY(put_row(growing_span(row), to));
        row->length = 0;
        TRY(dn_growing_add(&to->text, token));
        TRY(dn_pieces_end(to));
    }
    return put_row(growing_span(row), to);
}

danaus_status dn_decode_byte_tokens(const piece_list *from, piece_list *to)
{
    growing row = { 0 };
    danaus_status status = put_rows(from, &row, to);
    dn_free(row.text);
    return status;
}
