/* The first index of conv_mma.cu where it is at most 8: vector units do layers of radix 2 and one
   of radix 3, 5 or 7 (conv_points.cuh), because a product would fill only a part of what tensor
   cores multiply at a time. The compiler knows the constants.

   A lane has four columns of all rows of D. It loads them from shared memory and stores them
   back, or to where results go. Factors 1 / sqrt(ROOT) are in the matrices of the second
   index. */
// SPDX-License-Identifier: Apache-2.0

/* ROOT = EVEN x REST: a power of two and an odd rest. */
#define EVEN (ROOT & -(ROOT))
#define REST (ROOT / EVEN)

/* e^(2 pi i num / den) by the sums of Taylor over a quarter of a turn; num and den are known when
   this is compiled, and then so is this. */
FN C unit(int num, int den)
{
    int quarter = 4 * (num % den) / den, rest = 4 * (num % den) - quarter * den;
    double x = 1.57079632679489661923 * rest / den, term = 1, re = 0, im = 0;
    UNROLL for (int i = 1; i < 26; i += 2)
    {
        re += term;
        term *= x / i;
        im += term;
        term *= -x / (i + 1);
    }
    C z = point((S)re, (S)im);
    z = quarter % 2 ? times_i(z) : z;
    return quarter / 2 ? point(-z.re, -z.im) : z;
}

/* Where block p of all is: first its layers of radix 2, then the rest. */
INLINE int place_of_block(int p) { return child(EVEN, p % EVEN) * REST + p / EVEN; }

/* Constant q of a block that is split by `radix`, number `group` of as many as `groups`. */
INLINE C constant_of(int group, int groups, int radix, int q)
{
    return unit((PHASE + 4 * child(groups, group)) * q, 4 * groups * radix);
}

INLINE int is_one(C c) { return c.re == 1; }
INLINE int is_i(C c) { return c.im == 1; }

/* z times c, or the way back; by 1 and i nothing is multiplied. */
INLINE C turned(C z, C c, int back)
{
    if (is_one(c))
        return z;
    if (is_i(c))
        return back ? point(z.im, -z.re) : times_i(z);
    return back ? times_conjugate(z, c) : times(z, c);
}

/* split() of two points by c; back: join(). */
INLINE void both_points(C *a, C *b, C c, int back)
{
    if (!is_one(c) && !is_i(c) && !back) {
        split(a, b, c);
        return;
    }
    C second = back ? *b : turned(*b, c, 0), d = difference(*a, second);
    *a = sum(*a, second);
    *b = back ? turned(d, c, 1) : d;
}

INLINE void all_pairs(C *v, int back)
{
    UNROLL for (int step = 1; step < EVEN; step *= 2)
    {
        int groups = back ? EVEN / 2 / step : step, half = ROOT / 2 / groups;
        UNROLL for (int b = 0; b < ROOT / 2; b++)
        {
            int group = b / half, at = 2 * half * group + b % half;
            both_points(&v[at], &v[at + half], constant_of(group, groups, 2, 1), back);
        }
    }
}

INLINE void all_rests(C *v, int back)
{
    UNROLL for (int i = 0; i < ROOT && REST > 1; i += REST)
    {
        if (back)
            odd_transform(v + i, REST, 1);
        UNROLL for (int q = 1; q < REST; q++)
            v[i + q] = turned(v[i + q], constant_of(i / REST, EVEN, REST, q), back);
        if (!back)
            odd_transform(v + i, REST, 0);
    }
}

/* Blocks of points, or the way back, times ROOT. */
INLINE void all_layers(C *v, int back)
{
    if (!back)
        all_pairs(v, 0);
    all_rests(v, back);
    if (back)
        all_pairs(v, 1);
}

INLINE u32 place_of_four(const work *k, int row, int column)
{
    return place_in_d(k, row, column / 16, column / 8 % 2) + column % 8 * 2;
}

/* The first of the columns of a lane, and how far it is to the next ones. */
INLINE int own_columns(const work *k) { return (k->warp * 32 + k->lane) * 4; }
#define COLUMNS_STEP (TEAM * 4)

/* Reads four columns of rows of D, or of x before it; a word has two columns. */
INLINE void read_columns(const work *k, int column, int rows, u32 words[2][BOTH])
{
    UNROLL for (int row = 0; row < BOTH; row++)
    {
        uint2 four = {};
        if (row < rows)
            four = load_shared64(place_of_four(k, row, column));
        words[0][row] = four.x;
        words[1][row] = four.y;
    }
}

/* Turns both columns of words into points and transforms them; backward, words are blocks. */
INLINE void points_of(const u32 words[BOTH], int rows, int back, C v[2][ROOT])
{
    UNROLL for (int p = 0; p < ROOT; p++)
    {
        int at = back ? place_of_block(p) : p;
        u32 re = words[p], im = words[ROOT + p];
        v[0][at] = point(low_of(re), rows > ROOT ? low_of(im) : 0);
        v[1][at] = point(high_of(re), rows > ROOT ? high_of(im) : 0);
    }
    UNROLL for (int n = 0; n < 2; n++) all_layers(v[n], back);
}

/* Turns rows of x into D, for two columns. */
INLINE void blocks_of(u32 words[BOTH])
{
    C v[2][ROOT];
    points_of(words, LOADED, 0, v);
    UNROLL for (int p = 0; p < ROOT; p++)
    {
        int at = place_of_block(p);
        words[p] = pack_pair(v[0][at].re, v[1][at].re);
        words[ROOT + p] = pack_pair(v[0][at].im, v[1][at].im);
    }
}

INLINE void first_forward(const work *k)
{
    ROLL for (int column = own_columns(k); column < 256; column += COLUMNS_STEP)
    {
        u32 words[2][BOTH];
        read_columns(k, column, LOADED, words);
        UNROLL for (int n = 0; n < 2; n++) blocks_of(words[n]);
        UNROLL for (int row = 0; row < BOTH; row++)
            store_shared64(place_of_four(k, row, column), words[0][row], words[1][row]);
    }
}

/* D from chunks, where a lane has those of all rows. */
INLINE void put_blocks(const work *k, const uint4 chunks[EACH])
{
    u32 words[4][BOTH];
    UNROLL for (int row = 0; row < BOTH; row++)
    {
        uint4 chunk = {};
        if (row < EACH)
            chunk = chunks[row];
        words[0][row] = chunk.x, words[1][row] = chunk.y;
        words[2][row] = chunk.z, words[3][row] = chunk.w;
    }
    UNROLL for (int n = 0; n < 4; n++) blocks_of(words[n]);
    UNROLL for (int row = 0; row < BOTH; row++)
        store_shared128(
            place_in_d(k, row, k->lane / 2, k->lane % 2),
            make_uint4(words[0][row], words[1][row], words[2][row], words[3][row]));
}

INLINE spot spot_of_columns(int row, int column)
{
    return spot_of(row / ROOT, row % ROOT, column / 16, column % 16);
}

INLINE void put_columns_of_points(const work *k, int column, const float v[IN][4])
{
    UNROLL for (int row = 0; row < IN; row++)
    {
        spot a = spot_of_columns(row, column);
        uint2 words = {};
        words.x = pack_pair(v[row][0], v[row][1]);
        words.y = pack_pair(v[row][2], v[row][3]);
        put_four_points(k, row_of_point(k, a), a.part, column_of_point(k, a), words);
    }
}

/* Rows of four results of a lane, where D was (conv_mma_in_order.cuh). */
INLINE void keep_columns(const work *k, const sinks *s, int column, const float v[IN][4])
{
    UNROLL for (int row = 0; row < IN; row++)
        store_shared64(
            place_of_four(k, row, column), kept_pair(s, v[row][0], v[row][1]),
            kept_pair(s, v[row][2], v[row][3]));
}

/* Stores rows of a lane's four results, all of them computed, as they are; or times numbers
   of a factor, which are read for all rows of a part before any is stored. */
INLINE void put_bare(const work *k, X *y, int column, const float v[IN][4])
{
    UNROLL for (int row = 0; row < IN; row++)
    {
        spot a = spot_of_columns(row, column);
        X *to = y + base_of(k, a.part) + number_in_window(k, a);
        if (is_row(k, a.part))
            put_plain(k, 0, to, 0, 0, v[row]);
    }
}

INLINE void put_products(
    const work *k, X *y, const X *factor, int column, const float v[IN][4])
{
    const int step = 16 * (TILED ? COLUMNS : 16);
    UNROLL for (int part = 0; part < PARTS; part++)
    {
        const int64 at =
            base_of(k, part) + number_in_window(k, spot_of_columns(part * ROOT, column));
        float of[ROOT][4];
        UNROLL for (int row = 0; row < ROOT; row++)
            load_four(factor + at + row * step, of[row]);
        UNROLL for (int row = 0; row < ROOT; row++)
        {
            UNROLL for (int n = 0; n < 4; n++) of[row][n] *= v[part * ROOT + row][n];
            if (is_row(k, part))
                put_plain(k, 0, y + at + row * step, 0, 0, of[row]);
        }
    }
}

/* Where there is one result and all of it is made, rows need no check. */
INLINE void put_columns(const work *k, const sinks *s, int column, float v[IN][4])
{
    int is_made = TAPS && s->factor[0] && s->few.is_on;
    UNROLL for (int i = 0; i < 4 * IN; i++)
        v[i / 4][i % 4] *= i / 4 < ROOT ? s->scale.of[0] : s->scale.of[1];
    if (s->is_plain && !s->y[1] && !is_made) {
        if (s->factor[0])
            put_products(k, s->y[0], s->factor[0], column, v);
        else
            put_bare(k, s->y[0], column, v);
        return;
    }
    ROLL for (int n = 0; n < 2; n++)
    {
        if (n ? s->y[1] : s->y[0])
            UNROLL for (int row = 0; row < IN; row++)
                put_four_of(k, s, n, spot_of_columns(row, column), v[row]);
    }
}

INLINE void first_back(const work *k, const sinks *s)
{
    ROLL for (int column = own_columns(k); column < 256; column += COLUMNS_STEP)
    {
        u32 words[2][BOTH];
        float of[IN][4];
        read_columns(k, column, BOTH, words);
        UNROLL for (int n = 0; n < 2; n++)
        {
            C v[2][ROOT];
            points_of(words[n], BOTH, 1, v);
            UNROLL for (int i = 0; i < 2 * IN; i++)
            {
                const C *z = &v[i % 2][i / 2 % ROOT];
                of[i / 2][2 * n + i % 2] = i / 2 < ROOT ? z->re : z->im;
            }
        }
        if (STORE)
            put_columns_of_points(k, column, of);
        else if (IN_ORDER)
            keep_columns(k, s, column, of);
        else
            put_columns(k, s, column, of);
    }
}
