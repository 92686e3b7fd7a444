/* The commands of danaus-bench: each gets its own arguments, with its name as argv[0], and
   returns the exit status. */
// SPDX-License-Identifier: Apache-2.0
#ifndef PROGRAM_COMMANDS_H
#define PROGRAM_COMMANDS_H

int bench_ks(int argc, char **argv);
int bench_conv(int argc, char **argv);
int bench_stream(int argc, char **argv);
int bench_calls(int argc, char **argv);

#endif
