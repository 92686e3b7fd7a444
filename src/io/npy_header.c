/* The dictionary in the head of a .npy file: the small part of Python's syntax that
   NumPy writes, in any order, with any spaces and commas at the end. */
// SPDX-License-Identifier: Apache-2.0
#include "io/npy_header.h"

#include "base/dtype.h"
#include "base/status.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* Text that is being read: at <= end. */
typedef struct cursor {
    const char *at, *end;
} cursor;

static void skip_spaces(cursor *c)
{
    while (c->at < c->end && memchr(" \t\r\n", *c->at, 4))
        c->at++;
}

/* Skips spaces and then `mark`; 0 if it is not there. */
static int take(cursor *c, char mark)
{
    skip_spaces(c);
    if (c->at == c->end || *c->at != mark)
        return 0;
    c->at++;
    return 1;
}

static int take_word(cursor *c, const char *word)
{
    size_t length = strlen(word);
    skip_spaces(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length))
        return 0;
    c->at += length;
    return 1;
}

/* A string in either kind of quotes, without escapes. */
static int take_string(cursor *c, span *s)
{
    if (!take(c, '\'') && !take(c, '"'))
        return 0;
    char quote = c->at[-1];
    const char *end = memchr(c->at, quote, (size_t)(c->end - c->at));
    if (!end || memchr(c->at, '\\', (size_t)(end - c->at)))
        return 0;
    *s = (span){ c->at, (size_t)(end - c->at) };
    c->at = end + 1;
    return 1;
}

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static danaus_status bad_header(const char *what)
{
    return dn_fail(DANAUS_ERR_FORMAT, "the .npy header is malformed: %s", what);
}

/* A size, with the L that Python 2 wrote behind it. */
static danaus_status take_size(cursor *c, int64_t *size)
{
    skip_spaces(c);
    if (c->at < c->end && *c->at == '-')
        return bad_header("a size is negative");
    if (c->at == c->end || !is_digit(*c->at))
        return bad_header("the shape is not a tuple of sizes");
    span digits = { c->at, 0 };
    while (c->at < c->end && is_digit(*c->at))
        c->at++;
    digits.length = (size_t)(c->at - digits.text);
    if (!dn_span_integer(digits, size))
        return bad_header("a size does not fit in 63 bits");
    if (c->at < c->end && *c->at == 'L')
        c->at++;
    return DANAUS_OK;
}

/* "()", "(3,)", "(3, 4)" or "(3, 4,)". */
static danaus_status take_shape(cursor *c, npy_header *h)
{
    if (!take(c, '('))
        return bad_header("the shape is not a tuple of sizes");
    int commas = 0, most = h->any ? NPY_MOST_DIMS : DANAUS_MAX_DIMS;
    for (h->ndim = 0; !take(c, ')'); h->ndim++) {
        if (h->ndim == most)
            return dn_fail(
                DANAUS_ERR_UNSUPPORTED, "the array has more than %d dimensions", most);
        if (h->ndim > commas)
            return bad_header("a comma is missing in the shape");
        TRY(take_size(c, &h->shape[h->ndim]));
        commas += take(c, ',');
    }
    if (h->ndim == 1 && !commas)
        return bad_header("the shape is a number, not a tuple");
    return DANAUS_OK;
}

static danaus_status bad_descr(span d, danaus_status status, const char *why)
{
    return dn_fail(
        status, "the .npy element type '%.*s' %s", d.length < 40 ? (int)d.length : 40,
        d.text, why);
}

/* The type with this kind and size ("f4"); 0 if danaus has none. */
static danaus_dtype find_dtype(span kind_size)
{
    for (int i = DANAUS_F32; dn_is_computed((danaus_dtype)i); i++) {
        const dtype_facts *f = dn_dtype((danaus_dtype)i);
        char expected[16];
        snprintf(expected, sizeof expected, "%c%d", f->npy_kind, f->npy_size);
        if (dn_span_is(kind_size, expected))
            return f->dtype;
    }
    return (danaus_dtype)0;
}

/* Byte order, kind and size. bf16, which NumPy lacks, is two raw bytes: 'V2', for
   which NumPy writes the order '|' (none). */
static danaus_status read_descr(span d, danaus_dtype *dtype)
{
    danaus_dtype found = DANAUS_BF16;
    if (!dn_span_is(d, "bfloat16")) {
        if (d.length < 2 || !memchr("<>|=", d.text[0], 4))
            return bad_descr(d, DANAUS_ERR_FORMAT, "has no byte order");
        found = find_dtype((span){ d.text + 1, d.length - 1 });
        if (!found && d.text[1] == 'O')
            return bad_descr(
                d, DANAUS_ERR_UNSUPPORTED,
                "is Python objects, which danaus does not read");
        if (!found)
            return bad_descr(
                d, DANAUS_ERR_UNSUPPORTED,
                "is not one that danaus reads: convert it to floating-point numbers");
        if (d.text[0] == '>')
            return bad_descr(
                d, DANAUS_ERR_UNSUPPORTED, "is big-endian, which danaus does not read");
        if (d.text[0] == '|' && found != DANAUS_BF16)
            return bad_descr(d, DANAUS_ERR_FORMAT, "has no byte order");
    }
    *dtype = found;
    return DANAUS_OK;
}

/* Skips what a bracket began: lists, tuples and strings. */
static danaus_status skip_list(cursor *c)
{
    span skipped;
    for (int depth = 1; depth;) {
        if (take_string(c, &skipped))
            continue;
        if (c->at == c->end)
            return bad_header("a list does not end");
        depth += *c->at == '[' || *c->at == '(';
        depth -= *c->at == ']' || *c->at == ')';
        c->at++;
    }
    return DANAUS_OK;
}

/* A type as it is written, with its dtype if danaus has it. */
static danaus_status take_any_descr(cursor *c, npy_header *h)
{
    skip_spaces(c);
    const char *from = c->at;
    if (take(c, '[')) {
        TRY(skip_list(c));
        h->type = (span){ from, (size_t)(c->at - from) };
        return DANAUS_OK;
    }
    if (!take_string(c, &h->type))
        return bad_header("descr is not a string");
    if (read_descr(h->type, &h->dtype) != DANAUS_OK)
        h->dtype = (danaus_dtype)0;
    return DANAUS_OK;
}

static danaus_status take_descr(cursor *c, npy_header *h)
{
    if (h->any)
        return take_any_descr(c, h);
    if (take(c, '['))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "the .npy array has records as elements, which danaus does not read");
    if (!take_string(c, &h->type))
        return bad_header("descr is not a string");
    return read_descr(h->type, &h->dtype);
}

static danaus_status take_order(cursor *c, npy_header *h)
{
    h->fortran = take_word(c, "True");
    if (!h->fortran && !take_word(c, "False"))
        return bad_header("fortran_order is neither True nor False");
    return DANAUS_OK;
}

static const struct key {
    const char *name;
    danaus_status (*take)(cursor *c, npy_header *h);
} keys[] = {
    { "descr", take_descr },
    { "fortran_order", take_order },
    { "shape", take_shape },
};

#define KEYS (sizeof keys / sizeof *keys)

/* 'key': value; `seen` has a bit for each key. */
static danaus_status take_entry(cursor *c, npy_header *h, unsigned *seen)
{
    span name;
    if (!take_string(c, &name) || !take(c, ':'))
        return bad_header("it is not a dictionary of strings");
    for (size_t i = 0; i < KEYS; i++) {
        if (!dn_span_is(name, keys[i].name))
            continue;
        if (*seen & (1u << i))
            return bad_header("a key is there twice");
        *seen |= 1u << i;
        return keys[i].take(c, h);
    }
    return bad_header("it has a key other than descr, fortran_order and shape");
}

danaus_status dn_npy_header_read(const char *header, size_t length, npy_header *h)
{
    cursor c = { header, header + length };
    unsigned seen = 0;
    if (!take(&c, '{'))
        return bad_header("it is not a dictionary");
    for (int more = 1; !take(&c, '}'); more = take(&c, ',')) {
        if (!more)
            return bad_header("a comma is missing between its entries");
        TRY(take_entry(&c, h, &seen));
    }
    for (size_t i = 0; i < KEYS; i++)
        if (!(seen & (1u << i)))
            return dn_fail(
                DANAUS_ERR_FORMAT, "the .npy header lacks the key %s", keys[i].name);
    skip_spaces(&c);
    if (c.at != c.end)
        return bad_header("something follows the dictionary");
    return DANAUS_OK;
}
