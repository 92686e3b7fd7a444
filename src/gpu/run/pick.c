/* Moves numbers into another order on a GPU: one launch of pick.cu. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/run.h"
#include "gpu/nn/nn.h"

#include "base/status.h"

#include <string.h>

/* The table of pick.cu. */
typedef union pick_table {
    char bytes[GPU_TABLE_BYTES];
    struct {
        const void *start, *place, *from;
        void *to;
        const void *bias;
        int64_t rows, columns, from_next, from_across, to_next, to_across, add,
            activation;
    } of;
} pick_table;

static danaus_status launch(gpu_device *d, const pick_job *job)
{
    const problem p = { .dtype = job->dtype };
    gpu_launch l = dn_gpu_nn_picks(job->rows * job->columns);
    gpu_function function;
    pick_table t;
    const gpu_argument arguments[] = { ARG_TABLE(t), { 0 } };
    memset(&t, 0, sizeof t);
    t.of.start = job->start;
    t.of.place = job->place;
    t.of.from = job->from.data;
    t.of.to = job->to.data;
    t.of.bias = job->bias;
    t.of.rows = job->rows;
    t.of.columns = job->columns;
    t.of.from_next = job->from.next;
    t.of.from_across = job->from.across;
    t.of.to_next = job->to.next;
    t.of.to_across = job->to.across;
    t.of.add = job->add;
    t.of.activation = job->activation;
    TRY(dn_gpu_function(d, &dn_gpu_nn[GPU_NN_PICK], &p, 0, &function));
    return dn_gpu_launch(d, function, &l, arguments);
}

danaus_status dn_gpu_pick(danaus_device *dev, const pick_job *job)
{
    gpu_device *d = (gpu_device *)dev;
    if (!job->rows || !job->columns)
        return DANAUS_OK;
    RETURN_ENTERED(d, launch(d, job));
}

/* A launch, and moving numbers as the portable rows do, at a third of memory's rate. */
double dn_gpu_picking(
    const danaus_device *dev, danaus_dtype dtype, int64_t rows, int64_t columns)
{
    const gpu_facts *f = &((const gpu_device *)dev)->facts;
    double bytes = (double)rows * (double)columns * (double)danaus_dtype_size(dtype);
    return 5e-6 + 2.6 * 2 * bytes / f->bandwidth;
}
