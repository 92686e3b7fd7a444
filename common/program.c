/* A program that is a table of commands. */
// SPDX-License-Identifier: Apache-2.0
#include "common/program.h"

#include "common/args.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int print_help(const program *p)
{
    printf(
        "%s %s: %s\nUsage: %s COMMAND [OPTION]... [OPERAND]...\n\nCommands:\n", p->name,
        danaus_version(), p->about, p->name);
    for (const command *c = p->commands; c->name; c++)
        printf("  %-11s %s\n", c->name, c->help);
    printf(
        "\n`%s help COMMAND` says all about a command, `%s --version` the version.\n"
        "The exit status is 0 after success, 1 after a failure and 2 after wrong "
        "usage;\n"
        "errors are one sentence on standard error.\n",
        p->name, p->name);
    return STATUS_OK;
}

static int run_command(const program *p, int argc, char **argv)
{
    for (const command *c = p->commands; c->name; c++)
        if (!strcmp(argv[0], c->name))
            return c->run(argc, argv);
    return usage_error("there is no command \"%s\" (try %s --help)", argv[0], p->name);
}

static int choose(const program *p, int argc, char **argv)
{
    if (argc < 2)
        return usage_error("a command is needed (try %s --help)", p->name);
    const char *word = argv[1];
    if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
        printf("%s %s\n", p->name, danaus_version());
        return STATUS_OK;
    }
    int asks = !strcmp(word, "help");
    if ((asks && (argc == 2 || !strcmp(argv[2], "help"))) || !strcmp(word, "--help") ||
        !strcmp(word, "-h"))
        return print_help(p);
    if (!asks)
        return run_command(p, argc - 1, argv + 1);
    if (argc > 3)
        return usage_error("help takes one command, not %d", argc - 2);
    char help[] = "--help", *words[] = { argv[2], help, NULL };
    return run_command(p, 2, words);
}

/* ---- signals ---- */

/* Ends the program as the signal would have done. */
static void clean_up(int number)
{
    danaus_file_abandon();
    raise(number);
}

/* No incomplete file stays after a signal. A file that grows too large is an error of write(). A
   signal that the caller ignores, as nohup does, is ignored. */
static void take_signals(void)
{
    static const int ending[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU };
    struct sigaction old, new = { .sa_handler = clean_up };
    new.sa_flags = (int)SA_RESETHAND;
    sigemptyset(&new.sa_mask);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        if (!sigaction(ending[i], NULL, &old) && old.sa_handler == SIG_DFL)
            sigaction(ending[i], &new, NULL);
    signal(SIGXFSZ, SIG_IGN);
}

int program_main(const program *p, int argc, char **argv)
{
    sentences_begin(p->name);
    take_signals();
    int status = choose(p, argc, argv);
    if (status == ARGS_DONE)
        status = STATUS_OK;
    /* What was printed counts only once it has been written. */
    int lost = fflush(stdout) || ferror(stdout);
    if (lost && status == STATUS_OK)
        return failure("cannot write to standard output: %s", strerror(errno));
    return status;
}
