/* Scores as the reference reads them. */
// SPDX-License-Identifier: Apache-2.0
#include "tokens/models/scores.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define DIGITS     17 /* that any double needs */
#define EXPONENT   22 /* of the largest power of ten that is a double */
#define MOST_EXACT ((uint64_t)1 << 53)

static const double powers[EXPONENT + 1] = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
};

/* A number is digits times ten to the exponent. */
typedef struct decimal {
    uint64_t digits;
    int exponent;
} decimal;

static decimal decimal_of(double number)
{
    char string[40], *s = string;
    decimal d = { 0, 1 - DIGITS };
    snprintf(string, sizeof string, "%.*e", DIGITS - 1, number);
    for (; *s != 'e'; s++)
        if (*s >= '0' && *s <= '9') /* the point depends on the locale */
            d.digits = 10 * d.digits + (uint64_t)(*s - '0');
    d.exponent += atoi(s + 1);
    return d;
}

/* Without the last digits, rounded. */
static decimal shorter(decimal d, int by)
{
    d.digits += by > 1 ? 50 : 5;
    for (int i = 0; i < by; i++, d.exponent++)
        d.digits /= 10;
    return d;
}

/* Exact numbers of digits and powers have an exact quotient but for one rounding. */
static int is_number(decimal d, double number)
{
    if (d.digits < MOST_EXACT && d.exponent <= 0 && -d.exponent <= EXPONENT)
        return (double)d.digits / powers[-d.exponent] == number;
    char string[32];
    snprintf(
        string, sizeof string, "%llue%d", (unsigned long long)d.digits, d.exponent);
    return strtod(string, NULL) == number;
}

double dn_reference_score(double score)
{
    double number = fabs(score);
    if (number == 0 || !isfinite(number))
        return score;
    decimal all = decimal_of(number), best = all;
    for (int by = 2; by > 0 && best.digits == all.digits; by--)
        if (is_number(shorter(all, by), number))
            best = shorter(all, by);
    for (; best.digits % 10 == 0; best.exponent++)
        best.digits /= 10;
    if (abs(best.exponent) > EXPONENT)
        return score;
    double read = (double)best.digits;
    read = best.exponent < 0 ? read / powers[-best.exponent]
                             : read * powers[best.exponent];
    return score < 0 ? -read : read;
}
