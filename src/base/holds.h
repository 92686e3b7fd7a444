/* Conversions between element types that lose no more than rounding does. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_HOLDS_H
#define DN_BASE_HOLDS_H

#include "danaus/base.h"

/* Refuses a conversion that loses more than rounding: a finite number that becomes infinite,
   or numbers so small that their norm changes by more than the unit roundoff of to_type. The
   sentence names `name`. */
danaus_status dn_check_holds(
    danaus_dtype from_type, const void *from, danaus_dtype to_type, int64_t count,
    const char *name);

/* What dn_check_stored() refuses, added up. */
enum {
    DN_STORED_INFINITE = 1, /* numbers that are, or would become, infinite or NaN */
    DN_STORED_ZERO = 2      /* numbers that would all become 0 though some are not */
};

/* Refuses to store wide numbers: f64, or c128 where to_type is complex. The sentence names
   `name`. */
danaus_status dn_check_stored(
    danaus_dtype to_type, const double *from, int64_t count, int refused,
    const char *name);

/* True if all numbers are finite. */
int dn_all_finite(danaus_dtype dtype, const void *from, int64_t count);

/* The sentences of both. */
danaus_status dn_fail_too_large(int64_t lost, const char *name, danaus_dtype dtype);
danaus_status dn_fail_too_small(const char *name, danaus_dtype dtype);

#endif
