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

typedef struct machine machine;

/* Finds and measures the best way to each limit. instructions: what may be used,
   "avx512", "avx2", ...; cache: bytes of the last cache, 0 when unknown. Takes about
   two seconds. The team is not its own. NULL when memory is out. */
machine *machine_create(team *t, const char *instructions, int64_t cache);
void machine_destroy(machine *m); /* NULL is fine */
const machine_limits *machine_best(const machine *m);

/* One way to a limit, made again for some hundred microseconds beside what it
   bounds: another program may leave a shared machine half of its speed for seconds. */
void machine_run_f32(machine *m);
void machine_run_f64(machine *m);
void machine_run_copy(machine *m);
/* Operations of a run of f32 or f64, bytes of a run of copies. */
machine_limits machine_work(const machine *m);

#endif
