/* Reads numbers of any type in memory as the type that a text is compiled for. A type is a value
   of danaus_dtype, or the type of the parts if it is complex. */
// SPDX-License-Identifier: Apache-2.0
#include "simt.h"

#define F32  1
#define F16  2
#define BF16 3
#define F64  4

#ifdef HAS_F64
/* The nearest f32. If `further`, it will be rounded again to a shorter X. Then the result is
   the f32 that rounds to the same X as v does: its last bit is set if v is between two f32
   numbers ("round to odd"). */
FN float narrow(double v, int further)
{
    float f = (float)v;
#if defined TYPE_f16 || defined TYPE_bf16
    unsigned u = BITS(f);
    double size = f < 0 ? -(double)f : f, exact = v < 0 ? -v : v;
    if (further && size != exact && v - v == 0)
        f = UNBITS((size > exact ? u - 1 : u) | 1);
#endif
    return f;
}
#endif

FN real part_at(const GLOBAL void *from, int type, int64 n, int further)
{
    if (type == F32)
        return ((const GLOBAL float *)from)[n];
    if (type == F16)
        return f16_load(((const GLOBAL unsigned short *)from)[n]);
    if (type == BF16)
        return UNBITS((unsigned)((const GLOBAL unsigned short *)from)[n] << 16);
#if defined TYPE_f64 || defined TYPE_c128
    return ((const GLOBAL double *)from)[n];
#elif defined HAS_F64
    return narrow(((const GLOBAL double *)from)[n], further);
#else
    return 0; /* the host lets nobody ask for it */
#endif
}

/* further: it is to be rounded to X. */
FN S number_at(const GLOBAL void *from, int type, int64 n, int further)
{
#if COMPLEX
    S s = { part_at(from, type, 2 * n, 0), part_at(from, type, 2 * n + 1, 0) };
    return s;
#else
    return part_at(from, type, n, further);
#endif
}
