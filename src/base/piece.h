/* Arrays of the caller that must not overlap. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_PIECE_H
#define DN_BASE_PIECE_H

#include "danaus/base.h"

#include <stddef.h>

/* An operand's memory; data may be NULL. */
typedef struct piece {
    const char *name;
    const void *data;
    size_t bytes;
} piece;

/* No output has a byte in common with an input or another output. */
danaus_status dn_check_apart(
    int outputs, const piece *out, int inputs, const piece *in);

#endif
