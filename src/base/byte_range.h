/* Arrays of the caller that must not overlap. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_BYTE_RANGE_H
#define DN_BASE_BYTE_RANGE_H

#include "danaus/base.h"

#include <stddef.h>

/* An operand's memory; data may be NULL. */
typedef struct byte_range {
    const char *name;
    const void *data;
    size_t bytes;
} byte_range;

/* No output has a byte in common with an input or another output. */
danaus_status dn_check_apart(
    int outputs, const byte_range *out, int inputs, const byte_range *in);

#endif
