/* Arrays in Fortran's order (first index fastest) turned into C's. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_IO_TRANSPOSE_H
#define DN_IO_TRANSPOSE_H

#include "danaus/file.h"

/* to[i0][i1]...[in] = from[in]...[i1][i0] for an array of at least two dimensions
   and one element; elements have 2, 4, 8 or 16 bytes. */
void dn_turn_row_major(
    void *to, const void *from, size_t element, int ndim, const int64_t *shape);

#endif
