/* Rows of numbers as 8-bit integers and a scale. */
// SPDX-License-Identifier: Apache-2.0
#include "base/int8.h"

#include "base/numbers.h"

#include <math.h>

#define SCALE_BITS 17

float dn_int8_scale(float magnitude)
{
    int exponent;
    if (!isfinite(magnitude))
        return NAN;
    float fraction = frexpf(magnitude / DN_INT8_MOST, &exponent);
    return ldexpf(rintf(ldexpf(fraction, SCALE_BITS)), exponent - SCALE_BITS);
}

int8_t dn_int8_round(float number, float scale)
{
    double n = scale > 0 ? rint((double)number / scale) : 0;
    return (int8_t)CLAMP(n, -DN_INT8_MOST, DN_INT8_MOST);
}
