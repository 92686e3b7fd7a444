/* Products of conv_mma.cu over the first index, through shared memory. */
// SPDX-License-Identifier: Apache-2.0

/* Rows g and g + 8 of 8 columns as pairs, into D. */
INLINE void put_pairs(const work *k, int r, int q, int half, u32 upper, u32 lower)
{
    int g = k->lane / 4, t = k->lane % 4;
    store_shared32(place_in_d(k, r + g, q, half) + t * 4, upper);
    store_shared32(place_in_d(k, r + g + 8, q, half) + t * 4, lower);
}

/* Row tile `mt` of a matrix, of `count` column tiles, times 16 columns. */
INLINE void product(
    const work *k, int matrix, int mt, int count, const u32 (*b)[4], float d[2][4])
{
    UNROLL for (int kt = 0; kt < TILES(BOTH); kt++)
    {
        if (kt >= count)
            continue;
        uint4 a4 = table(k, matrix + (mt * count + kt) * 32);
        const u32 a[] = { a4.x, a4.y, a4.z, a4.w };
        mma16(d[0], a, b[kt][0], b[kt][1]);
        mma16(d[1], a, b[kt][2], b[kt][3]);
    }
}

/* In place: a warp has all rows of 16 columns. */
INLINE void first_forward(const work *k)
{
    ROLL for (int q = k->warp; q < 16; q += WARPS)
    {
        u32 b[TILES(BOTH)][4];
        UNROLL for (int kt = 0; kt < TILES(IN); kt++)
        {
            int row = kt * 16 + k->lane % 16;
            row = row < IN ? row : 0;
            load_matrices_turned(b[kt], place_in_d(k, row, q, k->lane / 16));
        }
        FEW for (int mt = 0; mt < TILES(BOTH); mt++)
        {
            float d[2][4] = {};
            product(k, FIRST_AT, mt, TILES(IN), b, d);
            UNROLL for (int n = 0; n < 2; n++)
            {
                u32 upper = pack_pair(d[n][0], d[n][1]);
                u32 lower = pack_pair(d[n][2], d[n][3]);
                put_pairs(k, mt * 16, q, n, upper, lower);
            }
        }
    }
}

INLINE void first_back(const work *k, const sinks *s)
{
    ROLL for (int q = k->warp; q < 16; q += WARPS)
    {
        u32 b[TILES(BOTH)][4];
        UNROLL for (int kt = 0; kt < TILES(BOTH); kt++)
        {
            int row = kt * 16 + k->lane % 16;
            row = row < BOTH ? row : 0;
            load_matrices_turned(b[kt], place_in_d(k, row, q, k->lane / 16));
        }
        FEW for (int mt = 0; mt < TILES(IN); mt++)
        {
            float d[2][4] = {};
            if (!is_row_made(k, mt * 16, 16))
                continue;
            product(k, BACK_AT, mt, TILES(BOTH), b, d);
            UNROLL for (int half = 0; half < 2; half++)
            {
                int row = mt * 16 + half * 8 + k->lane / 4;
                int part = (ROOT % 16 ? row : mt * 16) >= ROOT;
                spot a = spot_of(part, row - part * ROOT, q, 0);
                put_row_of(k, s, a, d, half, ROOT % 16 == 0 || row < IN);
            }
        }
    }
}
