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

#endif
