/* Normalizers that change letters one by one, or texts within the text. */
// SPDX-License-Identifier: Apache-2.0
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/byte_letters.h"
#include "tokens/letters.h"
#include "tokens/normalizers/normalizers.h"

danaus_status dn_normalize_lower(
    const normalizer *n, span string, growing *to, int *moved)
{
    (void)n, (void)moved;
    for (size_t at = 0; at < string.length;) {
        int32_t lower[2];
        int count = dn_lower(dn_letter(string, &at), lower);
        for (int i = 0; i < count; i++)
            TRY(dn_add_letter(to, lower[i]));
    }
    return DANAUS_OK;
}

danaus_status dn_normalize_accents(
    const normalizer *n, span string, growing *to, int *moved)
{
    (void)n;
    for (size_t at = 0; at < string.length;) {
        size_t from = at;
        if (!dn_is_accent(dn_letter(string, &at)))
            TRY(dn_growing_add(to, span_cut(string, from, at)));
        else if (from == 0)
            *moved = 1;
    }
    return DANAUS_OK;
}

static int nmt_removes(int32_t c)
{
    return (c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) ||
           c == 0x7f || c == 0x8f || c == 0x9f;
}

static int is_nmt_space(int32_t c)
{
    return c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
           (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xfeff || c == 0xfffd;
}

danaus_status dn_normalize_nmt(
    const normalizer *n, span string, growing *to, int *moved)
{
    (void)n;
    for (size_t at = 0; at < string.length;) {
        size_t from = at;
        int32_t c = dn_letter(string, &at);
        if (!nmt_removes(c))
            TRY(dn_add_letter(to, is_nmt_space(c) ? ' ' : c));
        else if (from == 0)
            *moved = 1;
    }
    return DANAUS_OK;
}

danaus_status dn_normalize_strip(
    const normalizer *n, span string, growing *to, int *moved)
{
    size_t from = 0, end = string.length;
    for (size_t at = 0; n->left && at < end && dn_is_space(dn_letter(string, &at));)
        from = at;
    while (n->right && end > from && dn_is_space(dn_letter_before(string, end)))
        do
            end--;
        while (((unsigned char)string.text[end] & 0xc0) == 0x80);
    *moved |= from > 0;
    return dn_growing_add(to, span_cut(string, from, end));
}

/* The end of letters in a row that Replace looks for. */
static size_t row_end(const replaced *r, span string, size_t at, size_t *count)
{
    *count = 0;
    for (size_t next = at; next < string.length; at = next, ++*count) {
        int32_t c = dn_letter(string, &next);
        if (r->letter < 0 ? !dn_is_space(c) : c != r->letter)
            break;
    }
    return at;
}

/* True if what Replace looks for is at `at`. *end is behind it, or where it may be next. */
static int is_replaced(const replaced *r, span string, size_t at, size_t *end)
{
    size_t length = r->text.length, count = 0;
    *end = at;
    if (length && length <= string.length - at &&
        !memcmp(string.text + at, r->text.text, length)) {
        *end += length;
        return 1;
    }
    if (!length)
        *end = row_end(r, string, at, &count);
    if (*end == at)
        dn_letter(string, end);
    return count > 0 && count >= r->least;
}

/* Where what Replace looks for may be next, at `at` or behind it. */
static size_t next_place(const replaced *r, span string, size_t at)
{
    char first[LETTER_BYTES];
    if (r->letter < 0)
        return at;
    if (r->text.length)
        first[0] = r->text.text[0];
    else
        dn_put_letter(r->letter, first);
    const char *next = memchr(string.text + at, first[0], string.length - at);
    return next ? (size_t)(next - string.text) : string.length;
}

danaus_status dn_normalize_replace(
    const normalizer *n, span string, growing *to, int *moved)
{
    for (size_t at = 0, end, letter; at < string.length; at = end) {
        end = next_place(&n->replaced, string, at);
        TRY(dn_growing_add(to, span_cut(string, at, end)));
        if ((at = letter = end) == string.length)
            break;
        if (!is_replaced(&n->replaced, string, at, &end)) {
            TRY(dn_growing_add(to, span_cut(string, at, end)));
            continue;
        }
        /* What is put instead stands where the last replaced letter was. */
        dn_letter(string, &letter);
        *moved |= at == 0 && (end > letter || !n->content.length);
        TRY(dn_growing_add(to, growing_span(&n->content)));
    }
    return DANAUS_OK;
}

danaus_status dn_normalize_prepend(
    const normalizer *n, span string, growing *to, int *moved)
{
    (void)moved;
    if (string.length)
        TRY(dn_growing_add(to, growing_span(&n->content)));
    return dn_growing_add(to, string);
}

danaus_status dn_normalize_bytes(
    const normalizer *n, span string, growing *to, int *moved)
{
    (void)n, (void)moved;
    return dn_put_byte_letters(string, to);
}
