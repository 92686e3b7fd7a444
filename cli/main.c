/* The program danaus: a table of commands. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/args.h"
#include "cli/commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
#define X(name, help) { #name, cmd_##name, help },
#include "cli/commands.def"
#undef X
};

#define COMMANDS ((int)(sizeof commands / sizeof *commands))

static void print_help(void)
{
    printf(
        "danaus %s: products with Kronecker-sparse matrices, and butterfly\n"
        "factorization, from file to file.\n\n"
        "Usage: danaus COMMAND [OPTION]... [OPERAND]...\n\nCommands:\n",
        danaus_version());
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-11s %s\n", commands[i].name, commands[i].help);
    printf("\n`danaus COMMAND --help` says all about a command. Files are .npy or\n"
           "safetensors. The exit status is 0 after success, 1 after a failure and\n"
           "2 after wrong usage; errors are one sentence on standard error.\n");
}

/* What was printed counts only once it has been written. */
static int finish(int status)
{
    if (fflush(stdout) || ferror(stdout))
        return failure("cannot write to standard output: %s", strerror(errno));
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return usage_error("a command is needed (try danaus --help)");
    const char *word = argv[1];
    if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help")) {
        print_help();
        return finish(STATUS_OK);
    }
    if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
        printf("danaus %s\n", danaus_version());
        return finish(STATUS_OK);
    }
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(word, commands[i].name))
            return finish(commands[i].run(argc - 1, argv + 1));
    return usage_error("there is no command \"%s\" (try danaus --help)", word);
}
