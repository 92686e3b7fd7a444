/* Copies the windows of packed sequences to the device, as tables that are arguments of launches.
   So nothing waits, host memory may be freed at once, and graphs keep them. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/conv/engine.h"

#include "base/status.h"

#include <string.h>

#define MOST    84  /* in a table */
#define THREADS 128 /* as in texts/conv_packed.cu */

typedef struct packed_table {
    void *to;
    int64_t count;
    packed_window of[MOST];
    int64_t unused[2];
} packed_table;

_Static_assert(
    sizeof(packed_table) == GPU_TABLE_BYTES, "a table that kernels are given");

danaus_status dn_gpu_conv_put_packed(
    gpu_device *d, gpu_function function, const packed_window *windows, int64_t count,
    void *to)
{
    gpu_launch launch = dn_gpu_line(1, THREADS);
    packed_table table = { 0 };
    for (int64_t i = 0; i < count; i += MOST) {
        table.to = (packed_window *)to + i;
        table.count = MIN(MOST, count - i);
        memcpy(table.of, windows + i, (size_t)table.count * sizeof *windows);
        const gpu_argument arguments[] = { ARG_TABLE(table), { 0 } };
        TRY(dn_gpu_launch(d, function, &launch, arguments));
    }
    return DANAUS_OK;
}
