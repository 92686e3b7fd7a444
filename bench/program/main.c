/* The program danaus-bench, by which danaus is developed: products and convolutions against
   the machine's limits and other methods. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/program/commands.h"
#include "bench/program/rivals.h"
#include "common/program.h"

#include <string.h>

int main(int argc, char **argv)
{
    static const command commands[] = {
        { "ks", bench_ks, "products, against limits and baselines" },
        { "conv", bench_conv, "convolutions, against FFTW" },
        { "stream", bench_stream, "convolutions of signals that come in blocks" },
        { "calls", bench_calls, "what calls cost the host of a GPU" },
        { 0 },
    };
    static const program bench = {
        .name = "danaus-bench",
        .about =
            "measures danaus against the machine's limits and against other methods.\n"
            "Users measure their shapes with `danaus bench`.\n",
        .commands = commands,
    };
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--baselines"))
            rivals_restart(argv);
    return program_main(&bench, argc, argv);
}
