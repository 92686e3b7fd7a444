/* Arrays in Fortran's order turned into C's.

   For fixed indices between the first and the last, this is a transposition of rows x
   cols elements: `from` runs along the first index, `to` along the last. It is done in
   tiles that stay in the first cache. */
// SPDX-License-Identifier: Apache-2.0
#include "io/transpose.h"

#include "base/numbers.h"

#include <string.h>

#define TILE 16 /* elements: two tiles of 16 x 16 c128 are 8 KiB */

/* One plane: rows are from_row... apart in bytes, as the next two say. */
typedef struct plane {
    int64_t rows, cols;
    int64_t to_row;   /* bytes between rows of `to`; its columns are dense */
    int64_t from_col; /* bytes between columns of `from`; its rows are dense */
} plane;

static inline __attribute__((always_inline)) void turn_plane(
    char *to, const char *from, const plane *p, size_t element)
{
    int64_t size = (int64_t)element;
    for (int64_t i0 = 0; i0 < p->rows; i0 += TILE)
        for (int64_t j0 = 0; j0 < p->cols; j0 += TILE)
            for (int64_t i = i0; i < MIN(i0 + TILE, p->rows); i++)
                for (int64_t j = j0; j < MIN(j0 + TILE, p->cols); j++)
                    memcpy(
                        to + i * p->to_row + j * size,
                        from + i * size + j * p->from_col, element);
}

static void turn_plane_of(char *to, const char *from, const plane *p, size_t element)
{
    switch (element) {
    case 2: turn_plane(to, from, p, 2); break;
    case 4: turn_plane(to, from, p, 4); break;
    case 8: turn_plane(to, from, p, 8); break;
    default: turn_plane(to, from, p, 16); break;
    }
}

void dn_turn_row_major(
    void *to, const void *from, size_t element, int ndim, const int64_t *shape)
{
    int last = ndim - 1;
    int64_t from_step[DANAUS_MAX_DIMS], to_step[DANAUS_MAX_DIMS]; /* bytes */
    int64_t index[DANAUS_MAX_DIMS] = { 0 };
    from_step[0] = to_step[last] = (int64_t)element;
    for (int i = 1; i < ndim; i++)
        from_step[i] = from_step[i - 1] * shape[i - 1];
    for (int i = last; i > 0; i--)
        to_step[i - 1] = to_step[i] * shape[i];
    plane p = { shape[0], shape[last], to_step[0], from_step[last] };

    int64_t planes = 1;
    for (int i = 1; i < last; i++)
        planes *= shape[i];
    char *out = to;
    const char *in = from;
    for (int64_t n = 0; n < planes; n++) {
        turn_plane_of(out, in, &p, element);
        for (int i = last - 1; i > 0; i--) { /* the next setting of the indices */
            out += to_step[i];
            in += from_step[i];
            if (++index[i] < shape[i])
                break;
            out -= to_step[i] * shape[i];
            in -= from_step[i] * shape[i];
            index[i] = 0;
        }
    }
}
