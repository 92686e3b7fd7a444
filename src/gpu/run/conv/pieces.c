/* Copies the pieces of packed sequences to the device, as tables that are arguments of launches.
   So nothing waits, host memory may be freed at once, and graphs keep the pieces. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/conv/engine.h"

#include "base/status.h"

#include <string.h>

#define MOST    84  /* in a table */
#define THREADS 128 /* as in texts/conv_pieces.cu */

typedef struct piece_table {
    void *to;
    int64_t count;
    conv_piece of[MOST];
    int64_t unused[2];
} piece_table;

_Static_assert(
    sizeof(piece_table) == GPU_TABLE_BYTES, "a table that kernels are given");

danaus_status dn_gpu_conv_put_pieces(
    gpu_device *d, gpu_function function, const conv_piece *pieces, int64_t count,
    void *to)
{
    gpu_launch launch = dn_gpu_line(1, THREADS);
    piece_table table = { 0 };
    for (int64_t i = 0; i < count; i += MOST) {
        table.to = (conv_piece *)to + i;
        table.count = MIN(MOST, count - i);
        memcpy(table.of, pieces + i, (size_t)table.count * sizeof *pieces);
        const gpu_argument arguments[] = { ARG(table), { 0 } };
        TRY(dn_gpu_launch(d, function, &launch, arguments));
    }
    return DANAUS_OK;
}
