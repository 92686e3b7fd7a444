/* The benchmark of streams: "danaus bench stream". */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_BENCH_STREAM_H
#define CLI_BENCH_STREAM_H

/* argv[0] is "stream". Returns the exit status. */
int bench_stream(int argc, char **argv);

#endif
