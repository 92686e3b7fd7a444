/* Code points as the reference sees them. */
// SPDX-License-Identifier: Apache-2.0
#include "tokens/letters.h"

#include "base/numbers.h"

#include <utf8proc.h>

/* What the reference takes exceptions for. Those that are younger than both of its tables
   have neither a combining class nor a decomposition. */
typedef enum kind { USUAL, PLAIN, YOUNG, PUNCTUATION, MARK } kind;

typedef struct exception {
    int32_t first, last;
    kind kind;
} exception;

static const exception exceptions[] = {
#define X(first, last, kind) { first, last, kind },
#include "tokens/letters.def"
#undef X
};

#define EXCEPTIONS ((int)(sizeof exceptions / sizeof *exceptions))

static kind kind_of(int32_t c)
{
    int low = 0, high = EXCEPTIONS;
    if (c < exceptions[0].first)
        return USUAL;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (c < exceptions[middle].first)
            high = middle;
        else
            low = middle;
    }
    return c <= exceptions[low].last ? exceptions[low].kind : USUAL;
}

static utf8proc_category_t category(int32_t c)
{
    switch (kind_of(c)) {
    case PLAIN:
    case YOUNG: return UTF8PROC_CATEGORY_LO;
    case PUNCTUATION: return UTF8PROC_CATEGORY_PO;
    case MARK: return UTF8PROC_CATEGORY_MN;
    default: return utf8proc_category(c);
    }
}

/* How parts of the reference of other versions of Unicode differ. */
typedef enum difference { SIMPLE, FLIPPED, EXTENDS, LETTER, NUMBER } difference;

/* True if they do so for this code point; rarely asked. */
static int differs(int32_t c, difference how)
{
    static const struct {
        int32_t first, last;
        difference how;
    } all[] = {
#define X(first, last, how) { first, last, how },
#include "tokens/letters_new.def"
#undef X
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (c >= all[i].first && c <= all[i].last && all[i].how == how)
            return 1;
    return 0;
}

/* ---- UTF-8 ---- */

int32_t dn_letter(span string, size_t *at)
{
    int32_t c;
    const char *from = string.text + *at;
    size_t rest = MIN(string.length - *at, LETTER_BYTES);
    *at += (size_t)utf8proc_iterate((const uint8_t *)from, (utf8proc_ssize_t)rest, &c);
    return c;
}

int32_t dn_letter_before(span string, size_t at)
{
    do
        at--;
    while (((unsigned char)string.text[at] & 0xc0) == 0x80);
    return dn_letter(string, &at);
}

size_t dn_put_letter(int32_t c, char *to)
{
    return (size_t)utf8proc_encode_char(c, (uint8_t *)to);
}

size_t dn_utf8_length(span string)
{
    const uint8_t *bytes = (const uint8_t *)string.text;
    size_t at = 0;
    while (at < string.length) {
        int32_t c;
        if (bytes[at] < 0x80) {
            at++;
            continue;
        }
        size_t rest = MIN(string.length - at, LETTER_BYTES);
        utf8proc_ssize_t n = utf8proc_iterate(bytes + at, (utf8proc_ssize_t)rest, &c);
        if (n < 1)
            break;
        at += (size_t)n;
    }
    return at;
}

/* ---- properties ---- */

int dn_is_space(int32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

int dn_is_control(int32_t c)
{
    if (c < 0x80)
        return (c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 127;
    switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO: return 1;
    default: return c == 0xfffd;
    }
}

int dn_is_chinese(int32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0x2f800 && c <= 0x2fa1f);
}

int dn_is_punctuation(int32_t c)
{
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') ||
               (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
    utf8proc_category_t is = category(c);
    return is >= UTF8PROC_CATEGORY_PC && is <= UTF8PROC_CATEGORY_PO;
}

int dn_is_mark(int32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }

/* Alphabetic, a mark, a decimal digit, a connector or a joiner. Alphabetic are letters,
   numbers that are letters, marks, and letters in circles and squares. */
int dn_is_word(int32_t c)
{
    utf8proc_category_t is = utf8proc_category(c);
    return (is >= UTF8PROC_CATEGORY_LU && is <= UTF8PROC_CATEGORY_NL) ||
           is == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d ||
           (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

int dn_is_accent(int32_t c)
{
    utf8proc_category_t is = utf8proc_category(c);
    if (is < UTF8PROC_CATEGORY_MN || is > UTF8PROC_CATEGORY_ME)
        return c == 0x1cf2 || c == 0x1cf3; /* Vedic signs, marks before Unicode 12 */
    return (kind_of(c) != YOUNG) != differs(c, FLIPPED);
}

int dn_is_letter(int32_t c)
{
    utf8proc_category_t is = utf8proc_category(c);
    if (is == UTF8PROC_CATEGORY_CN)
        return differs(c, LETTER);
    return is >= UTF8PROC_CATEGORY_LU && is <= UTF8PROC_CATEGORY_LO;
}

int dn_is_number(int32_t c)
{
    utf8proc_category_t is = utf8proc_category(c);
    if (is == UTF8PROC_CATEGORY_CN)
        return differs(c, NUMBER);
    return is >= UTF8PROC_CATEGORY_ND && is <= UTF8PROC_CATEGORY_NO;
}

size_t dn_cluster_end(span string, size_t at)
{
    utf8proc_int32_t state = 0;
    int32_t c = dn_letter(string, &at);
    for (size_t next = at; next < string.length; at = next) {
        int32_t with = dn_letter(string, &next);
        if (utf8proc_category(with) == UTF8PROC_CATEGORY_CN && differs(with, EXTENDS))
            with = 0x300; /* any mark */
        if (utf8proc_grapheme_break_stateful(c, with, &state))
            break;
        c = with;
    }
    return at;
}

/* ---- decomposition and case ---- */

int dn_decompose(int32_t c, int compatibility, int32_t *parts)
{
    int options = UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0);
    utf8proc_ssize_t n = 1;
    if (kind_of(c) != YOUNG)
        n = utf8proc_decompose_char(
            c, parts, LETTER_PARTS, (utf8proc_option_t)options, NULL);
    int is_one = kind_of(c) == YOUNG || n < 1 || n > LETTER_PARTS;
    if (is_one || (compatibility && parts[0] != c && differs(c, SIMPLE))) {
        parts[0] = c;
        return 1;
    }
    return (int)n;
}

int32_t dn_compose(int32_t c, int32_t next)
{
    utf8proc_int32_t both[2] = { c, next };
    if (utf8proc_normalize_utf32(both, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE) != 1 ||
        kind_of(both[0]) == YOUNG)
        return -1;
    return both[0];
}

int dn_combining_class(int32_t c)
{
    return kind_of(c) == YOUNG ? 0 : utf8proc_get_property(c)->combining_class;
}

int dn_lower(int32_t c, int32_t lower[2])
{
    /* Letters of Unicode 16 and 17: the reference's letters are newer than its categories. */
    static const struct {
        int32_t first, last, lower;
    } younger[] = {
        { 0x1c89, 0x1c89, 0x1c8a },    { 0xa7cb, 0xa7cb, 0x0264 },
        { 0xa7cc, 0xa7cc, 0xa7cd },    { 0xa7ce, 0xa7ce, 0xa7cf },
        { 0xa7d2, 0xa7d2, 0xa7d3 },    { 0xa7d4, 0xa7d4, 0xa7d5 },
        { 0xa7da, 0xa7da, 0xa7db },    { 0xa7dc, 0xa7dc, 0x019b },
        { 0x10d50, 0x10d65, 0x10d70 }, { 0x16ea0, 0x16eb8, 0x16ebb },
    };
    lower[0] = utf8proc_tolower(c);
    if (c == 0x130) { /* I with a dot above */
        lower[0] = 'i';
        lower[1] = 0x307;
        return 2;
    }
    if (c >= younger[0].first)
        for (size_t i = 0; i < sizeof younger / sizeof *younger; i++)
            if (c >= younger[i].first && c <= younger[i].last)
                lower[0] = younger[i].lower + (c - younger[i].first);
    return 1;
}
