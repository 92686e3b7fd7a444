/* The benchmark of what a call costs the host: "danaus bench calls". */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_BENCH_CALLS_H
#define CLI_BENCH_CALLS_H

/* argv[0] is "calls". Returns the exit status. */
int bench_calls(int argc, char **argv);

#endif
