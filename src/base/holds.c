/* An element type holds numbers of another one if, with fl(x) the number that is stored,

       ||x - fl(x)|| <= u ||x||   and every fl(x) is finite where x is,

   where u is the type's unit roundoff. Numbers in the normal range satisfy that one by one;
   a number below it may lose more, and only counts where larger ones are few. */
// SPDX-License-Identifier: Apache-2.0
#include "base/holds.h"

#include "base/dtype.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>

static double unit_roundoff(danaus_dtype dtype)
{
    switch (dtype) {
    case DANAUS_F16: return 0x1p-11;
    case DANAUS_BF16: return 0x1p-8;
    case DANAUS_F32:
    case DANAUS_C64: return 0x1p-24;
    case DANAUS_F64:
    case DANAUS_C128: break;
    }
    return 0x1p-53;
}

static void stored(danaus_dtype dtype, const double value[2], double back[2])
{
    double room[2];
    dn_store(dtype, room, 0, value);
    dn_load(dtype, room, 0, back);
}

danaus_status dn_check_holds(
    danaus_dtype from_type, const void *from, danaus_dtype to_type, int64_t count,
    const char *name)
{
    double largest = 0, lost = 0, whole = 0, x[2], y[2];
    if (from_type == to_type)
        return DANAUS_OK;
    for (int64_t n = 0; n < count; n++) {
        dn_load(from_type, from, n, x);
        stored(to_type, x, y);
        for (int part = 0; part < 2; part++) {
            if (isfinite(x[part]) && !isfinite(y[part]))
                return dn_fail(
                    DANAUS_ERR_ARGUMENT,
                    "number %" PRId64 " of %s is %g, which is too large for %s", n,
                    name, x[part], danaus_dtype_name(to_type));
            if (isfinite(x[part]))
                largest = fmax(largest, fabs(x[part]));
        }
    }
    if (largest == 0)
        return DANAUS_OK;
    /* The largest number becomes about 1, so that no square overflows. */
    double scale = ldexp(1, -ilogb(largest) / 2),
           again = ldexp(1, -ilogb(largest) - -ilogb(largest) / 2);
    for (int64_t n = 0; n < count; n++) {
        dn_load(from_type, from, n, x);
        stored(to_type, x, y);
        for (int part = 0; part < 2; part++) {
            if (!isfinite(x[part]))
                continue;
            double seen = x[part] * scale * again,
                   less = (x[part] - y[part]) * scale * again;
            whole += seen * seen;
            lost += less * less;
        }
    }
    double unit = unit_roundoff(to_type);
    if (lost <= unit * unit * whole)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_ARGUMENT,
        "the numbers of %s, at most %g, are too small for %s: they would lose %.2g of "
        "their norm; scale them, or take a wider type",
        name, largest, danaus_dtype_name(to_type), sqrt(lost / whole));
}
