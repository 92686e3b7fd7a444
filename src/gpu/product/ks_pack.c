/* Rows that pack: gathering numbers into a row's order by a map (pack_map.h), and
   multiplying factors out, where weights lie in the device's memory.

   Their problem has the type of the result and, as its batch, the number of results; its
   pattern is not used. A problem with an inner factor multiplies two factors out. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "base/dtype.h"

#define THREADS 256 /* of both texts; each makes one number */
/* Seconds; beside them entries and numbers are read, and numbers written. */
#define LAUNCH 3e-6

static int gathers(const kernel *k, const problem *p)
{
    (void)k;
    return !p->inner.a;
}

static int merges(const kernel *k, const problem *p)
{
    (void)k;
    return p->inner.a != 0;
}

static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    double moved = 4 + 2 * (double)danaus_dtype_size(k->dtype);
    return LAUNCH + moved * (double)p->batch / dn_gpu_facts(dev)->bandwidth;
}

static void launch(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *l)
{
    (void)k, (void)p, (void)f;
    *l = dn_gpu_line(CEIL_DIV(call->batch, THREADS), THREADS);
}

const gpu_family dn_gpu_pack_gather = {
    .kernel = { .operation = DN_PACK, .fits = gathers, .cost = cost },
    .text = "ks_pack.cu",
    .defines = dn_gpu_define_type,
    .launch = launch,
};

const gpu_family dn_gpu_pack_merge = {
    .kernel = { .operation = DN_PACK, .fits = merges, .cost = cost },
    .text = "ks_merge.cu",
    .defines = dn_gpu_define_type,
    .launch = launch,
};
