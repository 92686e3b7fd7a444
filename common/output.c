/* Files that a command writes, standard output among them. */
// SPDX-License-Identifier: Apache-2.0
#include "common/output.h"

#include "common/args.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_standard(const char *path)
{
    struct stat out, s;
    return !fstat(STDOUT_FILENO, &out) && !stat(path, &s) && out.st_dev == s.st_dev &&
           out.st_ino == s.st_ino;
}

static int is_terminal(const char *path)
{
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int yes = fd >= 0 && isatty(fd);
    if (fd >= 0)
        close(fd);
    return yes;
}

static int check_stream(const output *o)
{
    struct stat s;
    if (o->standard)
        TRY(args_refuse("json", "and -o - cannot both have standard output"));
    int terminal =
        o->standard ? isatty(STDOUT_FILENO)
                    : !stat(o->path, &s) && S_ISCHR(s.st_mode) && is_terminal(o->path);
    return fail_if(
        terminal, "%s is a terminal: name a file, or lead it to one",
        o->standard ? "standard output" : o->name);
}

int output_is_standard(const output *o) { return o->standard; }

int output_open(output *o, const char *name)
{
    TRY(refuse_if(!name, "-o FILE is needed (try --help)"));
    *o = (output){ .name = name, .path = strcmp(name, "-") ? name : "/dev/stdout" };
    TRY(library(danaus_file_check_output(o->path, &o->replaced)));
    if (o->replaced)
        return STATUS_OK;
    o->standard = is_standard(o->path);
    return check_stream(o);
}

int output_maybe(output *o, const char *name)
{
    return name ? output_open(o, name) : STATUS_OK;
}
