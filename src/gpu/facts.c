/* Facts about generations of GPUs that the driver does not report. Only this file knows
   generations by number. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu.h"

/* From the makers' tables, sums in f32; where cards of one generation differ (8.6, 8.9 and
   12.0 have half these rates in cards for games), what workstations have. */
typedef struct generation {
    int arch; /* the first one */
    int cores, mma, tensor_f16, tensor_bf16, tensor_tf32;
} generation;

static const generation generations[] = {
    { 0, 64, 512, 512, 64, 64 },          { 80, 64, 1024, 1024, 1024, 512 },
    { 86, 128, 512, 512, 512, 256 },      { 90, 128, 1280, 2048, 2048, 1024 },
    { 100, 128, 1024, 4096, 4096, 2048 }, { 120, 128, 512, 512, 512, 256 },
};

#define GENERATIONS (sizeof generations / sizeof *generations)

void dn_gpu_fill_rates(gpu_facts *f, double clock)
{
    const generation *g = generations;
    while (g + 1 < generations + GENERATIONS && g[1].arch <= f->arch)
        g++;
    f->clock = clock;
    f->flops = 2 * clock * g->cores * f->units;
    f->cores = g->cores;
    f->mma = g->mma;
    f->tensor_f16 = g->tensor_f16;
    f->tensor_bf16 = g->tensor_bf16;
    f->tensor_tf32 = g->tensor_tf32;
}

/* An H200: cost models were fitted to its times. */
const gpu_facts dn_gpu_measured = {
    .units = 132, .clock = 1.98e9, .bandwidth = 4.917e12, .cores = 128, .mma = 1280
};

int64_t dn_gpu_room(int arch, int64_t resident)
{
    const int64_t reserved = 1024; /* for each block */
    int64_t all = (arch == 90 ? 227 : 99) << 10;
    return (all + reserved) / resident - reserved;
}
