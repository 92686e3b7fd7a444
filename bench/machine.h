/* The limits of a machine, measured: multiply-adds per second and bytes copied
   per second, on all threads together. */
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include "bench/team.h"

#include <stdint.h>

typedef struct machine_limits {
    double f32, f64; /* operations per second: an FMA is two */
    double copy;     /* bytes per second, read and written */
} machine_limits;

/* instructions: what may be used, "avx512", "avx2", ...; cache: bytes of the last
   cache, 0 when unknown. Takes about two seconds. Returns 0 when memory is out. */
int machine_measure(
    team *t, const char *instructions, int64_t cache, machine_limits *limits);

#endif
