/* Points of windows of conv_mma.cu in global memory, between launches. */
// SPDX-License-Identifier: Apache-2.0
/* Bytes of a window between launches. The points of all windows come first, then the largest
   magnitudes of their rows, real and imaginary. */
#define WINDOW_BYTES ((int64)KEPT_ROWS * COLUMNS * 4)

/* The place of eight or four points of a row's real or imaginary parts; a task is a kept row. */
INLINE u16 *point_of(const work *k, int row, int part, int column)
{
    int place = FORWARD && INVERSE ? row : place_of_row(row);
    return (u16 *)k->points + (place * 2 + part) * COLUMNS + column;
}

INLINE uint4 load_eight_points(const work *k, int row, int part, int column, int wanted)
{
    return load_once_if(point_of(k, row, part, column), wanted);
}

INLINE void put_four_points(const work *k, int row, int part, int column, uint2 words)
{
    *(uint2 *)point_of(k, row, part, column) = words;
}
