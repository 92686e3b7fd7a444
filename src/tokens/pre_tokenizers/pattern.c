/* The words of GPT-2's pattern and of those that came after it (GPT-4, Llama 3, Qwen 2).

   All have, in this order: the contractions 's 't 're 've 'm 'll 'd; letters; numbers; other
   signs; and white space, whose last letter is left to the word behind it. */
// SPDX-License-Identifier: Apache-2.0
#include "tokens/pre_tokenizers/pattern.h"

#include "base/numbers.h"
#include "tokens/letters.h"

#define OTHERS "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LATER(numbers)                                                                 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers              \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" OTHERS

static const struct {
    const char *expression;
    word_pattern pattern;
} known[] = {
    { "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
      "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
      { 1, SIZE_MAX } },
    { LATER("\\p{N}{1,3}"), { 0, 3 } },
    { LATER("\\p{N}"), { 0, 1 } },
};

const word_pattern dn_gpt2_pattern = { 1, SIZE_MAX };

int dn_find_pattern(span expression, word_pattern *pattern)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (dn_span_is(expression, known[i].expression)) {
            *pattern = known[i].pattern;
            return 1;
        }
    return 0;
}

/* ---- what letters are ---- */

typedef enum sign { LETTER, NUMBER, SPACE, LINE_END, OTHER } sign;

/* What the code point at `at` is, which is moved behind it. */
static sign sign_at(span string, size_t *at)
{
    unsigned char byte = (unsigned char)string.text[*at];
    int32_t c = byte;
    if (byte >= 0x80)
        c = dn_letter(string, at);
    else
        ++*at;
    if (byte < 0x80) {
        int small = c | ' ';
        if (small >= 'a' && small <= 'z')
            return LETTER;
        if (c >= '0' && c <= '9')
            return NUMBER;
        return c == '\r' || c == '\n' ? LINE_END : dn_is_space(c) ? SPACE : OTHER;
    }
    return dn_is_letter(c)   ? LETTER
           : dn_is_number(c) ? NUMBER
           : dn_is_space(c)  ? SPACE
                             : OTHER;
}

/* Behind at most `most` code points of one kind. */
static size_t row_end(span string, size_t at, sign kind, size_t most)
{
    for (size_t next = at; next < string.length && most > 0; at = next, most--)
        if (sign_at(string, &next) != kind)
            break;
    return at;
}

/* The length of the text at `at` if it is `words`, in small letters of ASCII, in any case if
   asked. The long s is an s in any case. */
static size_t match(span string, size_t at, const char *words, int any_case)
{
    size_t from = at;
    for (; *words; words++) {
        if (at == string.length)
            return 0;
        int32_t c = dn_letter(string, &at);
        if (any_case)
            c = c == 0x17f ? 's' : c >= 'A' && c <= 'Z' ? c | ' ' : c;
        if (c != *words)
            return 0;
    }
    return at - from;
}

static size_t contraction_end(span string, size_t at, int any_case)
{
    static const char *const ends[] = { "s", "t", "re", "ve", "m", "ll", "d" };
    if (string.text[at] != '\'')
        return at;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t length = match(string, at + 1, ends[i], any_case);
        if (length)
            return at + 1 + length;
    }
    return at;
}

/* ---- words ---- */

/* White space: up to the last end of a line in it, if such ends count; else all of it, or all
   but the last letter where a word follows. */
static size_t space_end(span string, size_t at, int by_lines)
{
    size_t end = at, last = at, line = at;
    for (size_t next = at; next < string.length; end = next) {
        sign is = sign_at(string, &next);
        if (is != SPACE && is != LINE_END)
            break;
        last = end;
        if (is == LINE_END)
            line = next;
    }
    if (by_lines && line > at)
        return line;
    return end < string.length && last > at ? last : end;
}

static size_t gpt2_end(span string, size_t at)
{
    size_t end = contraction_end(string, at, 0);
    size_t from = string.text[at] == ' ' && at + 1 < string.length ? at + 1 : at;
    size_t next = from;
    if (end > at)
        return end;
    sign kind = sign_at(string, &next);
    if (kind == SPACE || kind == LINE_END)
        return space_end(string, at, 0);
    return row_end(string, from, kind, SIZE_MAX);
}

static size_t later_end(const word_pattern *p, span string, size_t at)
{
    size_t end = contraction_end(string, at, 1), next = at, behind;
    if (end > at)
        return end;
    sign kind = sign_at(string, &next);
    behind = next;
    int is_word =
        kind == LETTER || ((kind == SPACE || kind == OTHER) && behind < string.length &&
                           sign_at(string, &behind) == LETTER);
    if (is_word)
        return row_end(string, next, LETTER, SIZE_MAX);
    if (kind == NUMBER)
        return row_end(string, at, NUMBER, p->most_digits);
    size_t from = string.text[at] == ' ' ? at + 1 : at;
    end = row_end(string, from, OTHER, SIZE_MAX);
    if (end > from)
        return row_end(string, end, LINE_END, SIZE_MAX);
    return space_end(string, at, 1);
}

size_t dn_pattern_end(const word_pattern *p, span string, size_t at)
{
    return p->is_gpt2 ? gpt2_end(string, at) : later_end(p, string, at);
}
