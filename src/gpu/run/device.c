/* What devices of all drivers answer alike. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/run.h"

#include "base/dtype.h"
#include "base/status.h"

#include <limits.h>

danaus_status dn_gpu_ordinal(const char *name, const backend *b, int *ordinal)
{
    const size_t length = strlen(b->name);
    int64_t number = 0;
    const char *digits = name[length] == ':' ? name + length + 1 : "0";
    span s = { digits, strlen(digits) };
    if (!dn_span_integer(s, &number) || number >= INT_MAX)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "\"%.40s\" is no %s device: %s:0 is the first", name,
            b->name, b->name);
    *ordinal = (int)number;
    return DANAUS_OK;
}

danaus_status dn_gpu_set_threads(danaus_device *dev, int threads)
{
    (void)dev;
    return threads == 0 ? DANAUS_OK
                        : dn_fail(
                              DANAUS_ERR_UNSUPPORTED,
                              "a GPU's threads are not counted; 0 is its default");
}

danaus_status dn_gpu_set_parallel(danaus_device *dev, danaus_parallel_fn fn, void *user)
{
    (void)dev;
    (void)user;
    return fn ? dn_fail(DANAUS_ERR_UNSUPPORTED, "a GPU runs no tasks of the host")
              : DANAUS_OK;
}

danaus_status dn_gpu_check_type(const gpu_device *d, danaus_dtype type)
{
    danaus_dtype sums = dn_sum_type(type);
    return d->facts.no_f64 && (sums == DANAUS_F64 || sums == DANAUS_C128)
               ? dn_fail(
                     DANAUS_ERR_UNSUPPORTED, "%s has no f64, and so no %s",
                     d->base.name, danaus_dtype_name(type))
               : DANAUS_OK;
}
