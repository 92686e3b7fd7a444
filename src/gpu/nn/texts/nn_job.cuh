/* What texts for models' operations share. */
// SPDX-License-Identifier: Apache-2.0
#include "nn_table.cuh"

/* ---- rows, 16 bytes at a time where they lie so ---- */

#define WIDE (16 / (int)sizeof(X)) /* numbers */

typedef struct ALIGNED(16) {
    X v[WIDE];
} wide;

typedef struct ALIGNED(16) {
    unsigned v[4];
} words; /* of a piece, as it lies in memory */

FN void numbers_of(words w, S *to)
{
    UNROLL
    for (int n = 0; n < 4; n++) {
        unsigned v = w.v[n];
        if (sizeof(X) == 2) {
            to[n * WIDE / 4] = load((X)v);
            to[n * WIDE / 4 + WIDE / 8] = load((X)(v >> 16));
        } else
            to[n % WIDE] = UNBITS(v);
    }
}

/* True if rows from p on consist of whole chunks of 16 bytes. */
FN int is_whole(const GLOBAL void *p, int64 width)
{
    return ((int64)p | width * (int64)sizeof(X)) % 16 == 0;
}

/* Numbers i to i + WIDE - 1 of a row; behind it come zeros. */
FN void fetch(const GLOBAL X *x, int64 i, int64 width, int whole, S *to)
{
    if (whole) {
        wide w = *(const GLOBAL wide *)(x + i);
        UNROLL
        for (int e = 0; e < WIDE; e++)
            to[e] = load(w.v[e]);
        return;
    }
    UNROLL
    for (int e = 0; e < WIDE; e++)
        to[e] = i + e < width ? load(x[i + e]) : 0;
}

FN void put(GLOBAL X *y, int64 i, int64 width, int whole, const S *from)
{
    wide w;
    UNROLL
    for (int e = 0; e < WIDE; e++)
        w.v[e] = store(from[e]);
    if (whole) {
        *(GLOBAL wide *)(y + i) = w;
        return;
    }
    UNROLL
    for (int e = 0; e < WIDE; e++)
        if (i + e < width)
            y[i + e] = w.v[e];
}

/* v += x; x may be NULL. */
FN void add(const GLOBAL X *x, int64 i, int64 width, int whole, S *v)
{
    S added[WIDE];
    if (!x)
        return;
    fetch(x, i, width, whole, added);
    UNROLL
    for (int e = 0; e < WIDE; e++)
        v[e] += added[e];
}

/* ---- rows of S or of X, by a choice ---- */

FN S load_any(const GLOBAL void *x, int is_wide, int64 i)
{
    return is_wide ? ((const GLOBAL S *)x)[i] : load(((const GLOBAL X *)x)[i]);
}

FN void store_any(GLOBAL void *y, int is_wide, int64 i, S v)
{
    if (is_wide)
        ((GLOBAL S *)y)[i] = v;
    else
        ((GLOBAL X *)y)[i] = store(v);
}

/* Like fetch() and put(), for row r. */
FN void fetch_any(
    const GLOBAL void *x, int is_wide, int64 r, int64 i, int64 width, int whole, S *to)
{
    const GLOBAL S *row = (const GLOBAL S *)x + r * width;
    if (!is_wide) {
        fetch((const GLOBAL X *)x + r * width, i, width, whole, to);
        return;
    }
    UNROLL
    for (int e = 0; e < WIDE; e++)
        to[e] = i + e < width ? row[i + e] : 0;
}

FN void put_any(
    GLOBAL void *y, int is_wide, int64 r, int64 i, int64 width, int whole, const S *from)
{
    GLOBAL S *row = (GLOBAL S *)y + r * width;
    if (!is_wide) {
        put((GLOBAL X *)y + r * width, i, width, whole, from);
        return;
    }
    UNROLL
    for (int e = 0; e < WIDE; e++)
        if (i + e < width)
            row[i + e] = from[e];
}
