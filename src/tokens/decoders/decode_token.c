/* Steps that see one token at a time:

   - plain (no decoder): a space before each token but the first;
   - WordPiece: the same, or the token's prefix removed; then it undoes in each token alone what
     WordPiece separates, by the replacements below in order;
   - spaces (Metaspace): a letter stands for a space;
   - replace (Replace), as a normalizer has it;
   - strip (Strip): a letter is removed from the ends, a number of times at most. */
// SPDX-License-Identifier: Apache-2.0
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/decoders/decoders.h"
#include "tokens/letters.h"

danaus_status dn_decode_plain(
    const decode_step *d, span token, int is_first, growing *to)
{
    (void)d;
    if (!is_first)
        TRY(dn_growing_add(to, (span){ " ", 1 }));
    return dn_growing_add(to, token);
}

/* ---- WordPiece ---- */

static const char *const cleanups[][2] = {
    { " .", "." },   { " ?", "?" },     { " !", "!" },     { " ,", "," },
    { " ' ", "'" },  { " n't", "n't" }, { " 'm", "'m" },   { " do not", " don't" },
    { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
};

/* Replaces in text[0 .. length); the new words are no longer than the old ones. Returns the
   new length. */
static size_t replace(char *string, size_t length, const char *old, const char *new)
{
    size_t old_length = strlen(old), new_length = strlen(new), to = 0;
    for (size_t at = 0; at < length;) {
        if (length - at >= old_length && !memcmp(string + at, old, old_length)) {
            memcpy(string + to, new, new_length);
            to += new_length;
            at += old_length;
        } else {
            string[to++] = string[at++];
        }
    }
    return to;
}

danaus_status dn_decode_wordpiece(
    const decode_step *d, span token, int is_first, growing *to)
{
    size_t from = to->length, prefix = d->prefix.length;
    int is_within = token.length >= prefix &&
                    (!prefix || !memcmp(token.text, d->prefix.text, prefix));
    if (!is_first && is_within)
        token = span_cut(token, prefix, token.length);
    else if (!is_first)
        TRY(dn_growing_add(to, (span){ " ", 1 }));
    TRY(dn_growing_add(to, token));
    int cleanup = d->cleanup && to->length > from;
    for (size_t i = 0; cleanup && i < sizeof cleanups / sizeof *cleanups; i++) {
        size_t length = to->length - from;
        length = replace(to->text + from, length, cleanups[i][0], cleanups[i][1]);
        to->length = from + length;
    }
    return DANAUS_OK;
}

/* ---- the others ---- */

danaus_status dn_decode_spaces(
    const decode_step *d, span token, int is_first, growing *to)
{
    for (size_t at = 0; at < token.length;) {
        size_t from = at;
        if (dn_letter(token, &at) != d->letter)
            TRY(dn_growing_add(to, span_cut(token, from, at)));
        else if (!is_first || !d->drops_spaces)
            TRY(dn_growing_add(to, (span){ " ", 1 }));
    }
    return DANAUS_OK;
}

danaus_status dn_decode_replace(
    const decode_step *d, span token, int is_first, growing *to)
{
    int moved = 0;
    (void)is_first;
    return d->replace.run(&d->replace, token, to, &moved);
}

danaus_status dn_decode_strip(
    const decode_step *d, span token, int is_first, growing *to)
{
    char letter[LETTER_BYTES];
    size_t from = 0, end = token.length, bytes = dn_put_letter(d->letter, letter);
    (void)is_first;
    for (size_t i = 0; i < d->left && end - from >= bytes; i++, from += bytes)
        if (memcmp(token.text + from, letter, bytes) != 0)
            break;
    for (size_t i = 0; i < d->right && end - from >= bytes; i++, end -= bytes)
        if (memcmp(token.text + end - bytes, letter, bytes) != 0)
            break;
    return dn_growing_add(to, span_cut(token, from, end));
}
