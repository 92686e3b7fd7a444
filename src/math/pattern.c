/* Algebra of patterns: sizes with checked arithmetic, products, parsing. */
// SPDX-License-Identifier: Apache-2.0
#include "math/pattern.h"

#include "base/mem.h"
#include "base/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int64_t dn_pattern_rows(danaus_pattern p) { return p.a * p.b * p.d; }

int64_t dn_pattern_cols(danaus_pattern p) { return p.a * p.c * p.d; }

int64_t dn_pattern_weights(danaus_pattern p) { return p.a * p.b * p.c * p.d; }

danaus_pattern dn_pattern_adjoint(danaus_pattern p)
{
    return (danaus_pattern){ p.a, p.c, p.b, p.d };
}

int dn_pattern_equal(danaus_pattern p, danaus_pattern q)
{
    return p.a == q.a && p.b == q.b && p.c == q.c && p.d == q.d;
}

static int64_t gcd(int64_t x, int64_t y)
{
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}

danaus_pattern dn_pattern_product(danaus_pattern p, danaus_pattern q)
{
    int64_t g = gcd(p.a, q.a), h = gcd(p.d, q.d);
    return (danaus_pattern){ g, p.a / g * p.b * (p.d / h), q.a / g * q.c * (q.d / h),
                             h };
}

/* a b c d and therefore every smaller product fits in 63 bits, 16 times over:
   the bytes of the weights are a size too. */
static danaus_status check_one(danaus_pattern p, int number)
{
    if (p.a < 1 || p.b < 1 || p.c < 1 || p.d < 1)
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "factor %d has pattern " PATTERN "; every entry must be at least 1", number,
            ENTRIES_OF(p));
    int64_t n;
    if (dn_mul_overflows(p.a, p.b, &n) || dn_mul_overflows(n, p.c, &n) ||
        dn_mul_overflows(n, p.d, &n) || dn_mul_overflows(n, 16, &n))
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "factor %d has pattern " PATTERN ", whose number of weights overflows",
            number, ENTRIES_OF(p));
    return DANAUS_OK;
}

danaus_status danaus_patterns_check(const danaus_pattern *patterns, int count)
{
    if (!patterns || count < 1 || count > DANAUS_MAX_FACTORS)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a chain has 1 to %d factors, not %d",
            DANAUS_MAX_FACTORS, patterns ? count : 0);
    for (int i = 0; i < count; i++)
        TRY(check_one(patterns[i], i));
    for (int i = 0; i + 1 < count; i++) {
        int64_t cols = dn_pattern_cols(patterns[i]);
        int64_t rows = dn_pattern_rows(patterns[i + 1]);
        if (cols != rows)
            return dn_fail(
                DANAUS_ERR_SHAPE,
                "factor %d has %" PRId64 " columns but factor %d has %" PRId64 " rows",
                i, cols, i + 1, rows);
    }
    return DANAUS_OK;
}

/* Reads one positive integer at *text and moves past it; 0 if there is none. */
static int64_t parse_size(const char **text)
{
    if (**text < '0' || **text > '9')
        return 0;
    char *end;
    errno = 0;
    long long value = strtoll(*text, &end, 10);
    *text = end;
    return errno ? 0 : (int64_t)value;
}

static const char *skip_spaces(const char *text)
{
    return text + strspn(text, " \t\n");
}

danaus_status danaus_patterns_parse(
    const char *text, danaus_pattern *patterns, int capacity, int *count)
{
    if (!text || !patterns || !count)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a pattern text and a place for it are needed");
    danaus_pattern found[DANAUS_MAX_FACTORS];
    int n = 0;
    for (const char *at = skip_spaces(text); *at; at = skip_spaces(at)) {
        int64_t entry[4];
        const char *start = at;
        for (int e = 0; e < 4; e++) {
            entry[e] = parse_size(&at);
            char expected = e < 3 ? ',' : '\0';
            int ends = expected ? *at == expected : strchr(" \t\n", *at) != NULL;
            if (entry[e] < 1 || !ends)
                return dn_fail(
                    DANAUS_ERR_ARGUMENT,
                    "\"%.40s\" is not a pattern: write a,b,c,d with four positive "
                    "integers",
                    start);
            at += expected != 0;
        }
        if (n == DANAUS_MAX_FACTORS || n >= capacity)
            return dn_fail(
                DANAUS_ERR_ARGUMENT, "more than %d factors",
                capacity < DANAUS_MAX_FACTORS ? capacity : DANAUS_MAX_FACTORS);
        found[n++] = (danaus_pattern){ entry[0], entry[1], entry[2], entry[3] };
    }
    TRY(danaus_patterns_check(found, n));
    memcpy(patterns, found, (size_t)n * sizeof *found);
    *count = n;
    return DANAUS_OK;
}
