/* The program danaus: a table of commands. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"

const command danaus_commands[] = {
#define X(name, help) { #name, cmd_##name, help },
#include "cli/commands.def"
#undef X
    { 0 },
};

int main(int argc, char **argv)
{
    static const program danaus = {
        .name = "danaus",
        .about =
            "products with Kronecker-sparse matrices, butterfly\n"
            "factorization and long convolutions, from file to file. Files are .npy "
            "or\n"
            "safetensors, and sound for convolutions; - is standard input or output.\n",
        .commands = danaus_commands,
    };
    return program_main(&danaus, argc, argv);
}
