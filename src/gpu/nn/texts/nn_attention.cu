/* Softmax attention: for each sequence and head

       y[t] = sum over s of softmax over s of (q[t] . k[s] / sqrt(head) + bias) v[s],

   with |s - t| < window, unless the window is 0; device/nn.h describes the bias. Heads are slices of `head` numbers of rows. HEAD
   is head, rounded up to a multiple of COLUMNS.

   A block computes QUERIES rows of y for one head. KEYS rows of k are scored at a time. Earlier
   sums are scaled down whenever a greater score comes (Milakov, Gimelshein, arXiv 1805.02867),
   so only tiles are kept. A thread scores ROWS queries with two keys, then sums HEAD / COLUMNS
   numbers of y for ROWS queries. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS  128
#define RESIDENT (HEAD > 128 ? 2 : 4)
#include "simt.h"

#include "nn_job.cuh"

#define QUERIES 32
#define KEYS    32
#define ROWS    4
#define COLUMNS (THREADS / (QUERIES / ROWS)) /* threads that share rows of y */
#define OWN     (HEAD / COLUMNS)
#define LINE    (HEAD + 4)
#define NONE    (-3.0e38f)

typedef struct ALIGNED(16) {
    S v[4];
} four;

/* `rows` rows of a head to lines of HEAD, all that is beyond them zero. */
FN void read_tile(
    const GLOBAL X *RESTRICT x, int64 first, int64 rows, int64 pitch, int head,
    LOCAL S *to)
{
    ROLL for (int i = THREAD; i < KEYS * HEAD; i += THREADS)
    {
        int r = i / HEAD, c = i % HEAD;
        S v = 0;
        if (first + r < rows && c < head)
            v = load(x[(first + r) * pitch + c]);
        to[r * LINE + c] = v;
    }
}

/* True if a query sees key `key` of a tile of `keys`; `place` is where the query would be in that
   tile. */
FN int sees(int64 place, int key, int keys, int64 window)
{
    int64 distance = key > place ? key - place : place - key;
    return key < keys && (!window || distance < window);
}

/* The bias of a key that is so far from the query; `near`: that of distance 0, or NULL. */
FN S bias_at(const GLOBAL S *near, int64 reach, int64 distance)
{
    if (!near)
        return 0;
    return near[distance < -reach ? -reach : distance > reach ? reach : distance];
}

/* p[query][key] of ROWS queries and the keys `key` and `key + COLUMNS`; `from` is where the first
   query of all would be in the tile of keys. */
FN void score(
    const LOCAL S *q, const LOCAL S *k, int query, int key, int keys, int64 from,
    int64 window, S scale, const GLOBAL S *near, int64 reach, LOCAL S *p)
{
    S sum[ROWS][2] = { { 0 } };
    ROLL for (int c = 0; c < HEAD; c += 4)
    {
        four b[2];
        b[0] = *(const LOCAL four *)(k + key * LINE + c);
        b[1] = *(const LOCAL four *)(k + (key + COLUMNS) * LINE + c);
        UNROLL
        for (int r = 0; r < ROWS; r++) {
            four a = *(const LOCAL four *)(q + (query + r) * LINE + c);
            UNROLL
            for (int e = 0; e < 4; e++) {
                sum[r][0] = multiply_add(a.v[e], b[0].v[e], sum[r][0]);
                sum[r][1] = multiply_add(a.v[e], b[1].v[e], sum[r][1]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        int64 place = from + query + r;
        UNROLL
        for (int n = 0; n < 2; n++) {
            int of = key + n * COLUMNS;
            S v = sum[r][n] * scale + bias_at(near, reach, of - place);
            p[(query + r) * KEYS + of] = sees(place, of, keys, window) ? v : NONE;
        }
    }
}

FN S larger(S a, S b) { return a > b ? a : b; }

/* State of a query. Four threads share it; each takes a quarter of the keys. */
typedef struct query {
    S most, sum; /* of scores, and of exp(score - most) */
} query;

KERNEL attention(TABLE(job) t)
{
    SHARED(S, shared, (QUERIES + KEYS) * LINE + QUERIES * KEYS);
    LOCAL S *q = shared, *k = q + QUERIES * LINE; /* k, and then v */
    LOCAL S *p = k + KEYS * LINE;
    IN_BLOCK S some[QUERIES][4], scaled[QUERIES];
    const GLOBAL job *j = WHOLE(t);
    const GLOBAL X *queries = (const GLOBAL X *)j->in[0];
    const GLOBAL X *keys_of = (const GLOBAL X *)j->in[1];
    const GLOBAL X *values = (const GLOBAL X *)j->in[2];
    int64 width = j->size[1], pitch = j->size[3], window = j->size[4];
    int heads = (int)j->size[2], head = (int)(width / heads);
    int64 reach = j->size[0];
    const GLOBAL S *near = (const GLOBAL S *)j->in[3];
    if (near)
        near += BLOCK % heads * (2 * reach + 1) + reach;
    int64 tile = BLOCK / heads, s = 0, length = j->offset[1] - j->offset[0];
    ROLL while (tile >= (length + QUERIES - 1) / QUERIES)
    {
        tile -= (length + QUERIES - 1) / QUERIES;
        s++;
        length = j->offset[s + 1] - j->offset[s];
    }
    int64 from = j->offset[s] * pitch + BLOCK % heads * head, first = tile * QUERIES;
    int64 begin = 0, end = length; /* of keys that some query sees */
    if (window && first + 1 > window)
        begin = (first + 1 - window) / KEYS * KEYS;
    if (window && first + QUERIES + window - 1 < length)
        end = first + QUERIES + window - 1;
    int row = THREAD / 4, quarter = THREAD % 4;
    int rows = THREAD / COLUMNS * ROWS, column = THREAD % COLUMNS;
    S own[ROWS][OWN] = { { 0 } };
    query of = { NONE, 0 };
    read_tile(queries + from, first, length, pitch, head, q);
    ROLL for (int64 at = begin; at < end; at += KEYS)
    {
        int keys = length - at < KEYS ? (int)(length - at) : KEYS;
        read_tile(keys_of + from, at, length, pitch, head, k);
        BARRIER();
        score(
            q, k, rows, column, keys, first - at, window, j->number[0], near, reach, p);
        BARRIER();
        read_tile(values + from, at, length, pitch, head, k);
        LOCAL S *mine = p + row * KEYS + quarter * (KEYS / 4);
        S most = NONE, sum = 0;
        UNROLL
        for (int i = 0; i < KEYS / 4; i++)
            most = larger(most, mine[i]);
        some[row][quarter] = most;
        BARRIER();
        UNROLL
        for (int i = 0; i < 4; i++)
            most = larger(most, some[row][i]);
        most = larger(most, of.most);
        S less = EXP(of.most - most);
        UNROLL
        for (int i = 0; i < KEYS / 4; i++) {
            mine[i] = EXP(mine[i] - most);
            sum += mine[i];
        }
        of.most = most;
        of.sum = of.sum * less + sum; /* of a quarter */
        if (quarter == 0)
            scaled[row] = less;
        BARRIER();
        UNROLL
        for (int r = 0; r < ROWS; r++)
            UNROLL
        for (int c = 0; c < OWN; c++)
            own[r][c] *= scaled[rows + r];
        ROLL for (int n = 0; n < KEYS; n++)
        {
            UNROLL
            for (int c = 0; c < OWN; c++) {
                S v = k[n * LINE + column + c * COLUMNS];
                UNROLL
                for (int r = 0; r < ROWS; r++)
                    own[r][c] = multiply_add(p[(rows + r) * KEYS + n], v, own[r][c]);
            }
        }
        BARRIER();
    }
    some[row][quarter] = of.sum;
    BARRIER();
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        const LOCAL S *parts = some[rows + r];
        S sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
        GLOBAL X *y = (GLOBAL X *)j->out[0] + BLOCK % heads * head +
                      (j->offset[s] + first + rows + r) * width;
        UNROLL
        for (int c = 0; c < OWN; c++)
            if (first + rows + r < length && column + c * COLUMNS < head)
                y[column + c * COLUMNS] = store(own[r][c] / sum);
    }
}
