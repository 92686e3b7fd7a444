/* An element type holds numbers x of another type if the stored numbers fl(x) satisfy

       ||x - fl(x)|| <= u ||x||   and every fl(x) is finite where x is,

   where u is the type's unit roundoff. Each number in the normal range satisfies this. A
   number below the range may lose more, which matters only if few numbers are larger. */
// SPDX-License-Identifier: Apache-2.0
#include "base/holds.h"

#include "base/dtype.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>

static double unit_roundoff(danaus_dtype dtype)
{
    return ldexp(1, -dn_dtype(dtype)->digits);
}

/* True if every number of one type is one of the other. */
static int holds_all(danaus_dtype from, danaus_dtype to)
{
    return from == to || (to != DANAUS_F16 && unit_roundoff(to) <= unit_roundoff(from));
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
    int parts = dn_is_complex(to_type) ? 2 : 1;
    if (holds_all(from_type, to_type))
        return DANAUS_OK;
    for (int64_t n = 0; n < count; n++) {
        dn_load(from_type, from, n, x);
        stored(to_type, x, y);
        for (int part = 0; part < parts; part++) {
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
        for (int part = 0; part < parts; part++) {
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

int dn_all_finite(danaus_dtype dtype, const void *from, int64_t count)
{
    double x[2];
    int finite = 1;
    for (int64_t n = 0; n < count && finite; n++) {
        dn_load(dtype, from, n, x);
        finite = isfinite(x[0]) && isfinite(x[1]);
    }
    return finite;
}

danaus_status dn_fail_too_large(int64_t lost, const char *name, danaus_dtype dtype)
{
    return dn_fail(
        DANAUS_ERR_ARGUMENT,
        "%" PRId64 " numbers of %s exceed the range of %s: scale the operands, or take "
        "a wider type",
        lost, name, danaus_dtype_name(dtype));
}

danaus_status dn_fail_too_small(const char *name, danaus_dtype dtype)
{
    return dn_fail(
        DANAUS_ERR_ARGUMENT,
        "all numbers of %s are too small for %s, in which they would be 0: scale the "
        "operands, or take a wider type",
        name, danaus_dtype_name(dtype));
}

danaus_status dn_check_stored(
    danaus_dtype to_type, const double *from, int64_t count, int refused,
    const char *name)
{
    danaus_dtype wide = dn_is_complex(to_type) ? DANAUS_C128 : DANAUS_F64;
    int64_t lost = 0;
    int some = 0, kept = 0;
    double x[2], y[2];
    for (int64_t n = 0; n < count; n++) {
        dn_load(wide, from, n, x);
        stored(to_type, x, y);
        lost += !isfinite(y[0]) || !isfinite(y[1]);
        some |= x[0] != 0 || x[1] != 0;
        kept |= y[0] != 0 || y[1] != 0;
    }
    if ((refused & DN_STORED_INFINITE) && lost)
        return dn_fail_too_large(lost, name, to_type);
    return (refused & DN_STORED_ZERO) && some && !kept
               ? dn_fail_too_small(name, to_type)
               : DANAUS_OK;
}

danaus_status danaus_convert_check(
    danaus_dtype from_type, const void *from, danaus_dtype to_type, int64_t count,
    const char *name)
{
    if (!dn_is_computed(from_type) || !dn_is_computed(to_type))
        return dn_fail(DANAUS_ERR_ARGUMENT, "there is no such element type");
    if (count < 0 || (count > 0 && !from))
        return dn_fail(DANAUS_ERR_ARGUMENT, "nothing to convert from");
    return dn_check_holds(from_type, from, to_type, count, name ? name : "the array");
}
