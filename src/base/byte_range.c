// SPDX-License-Identifier: Apache-2.0
#include "base/byte_range.h"

#include "base/status.h"

#include <stdint.h>

static danaus_status check_pair(const byte_range *y, const byte_range *x)
{
    uintptr_t a = (uintptr_t)x->data, b = (uintptr_t)y->data;
    if (x->data && y->data && a < b + y->bytes && b < a + x->bytes)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%s overlaps %s", y->name, x->name);
    return DANAUS_OK;
}

danaus_status dn_check_apart(
    int outputs, const byte_range *out, int inputs, const byte_range *in)
{
    for (int i = 0; i < outputs; i++) {
        for (int j = 0; j < inputs; j++)
            TRY(check_pair(&out[i], &in[j]));
        for (int j = 0; j < i; j++)
            TRY(check_pair(&out[i], &out[j]));
    }
    return DANAUS_OK;
}
