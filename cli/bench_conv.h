/* The benchmark of convolutions: "danaus bench conv". */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_BENCH_CONV_H
#define CLI_BENCH_CONV_H

/* argv[0] is "conv". Returns the exit status. */
int bench_conv(int argc, char **argv);

#endif
