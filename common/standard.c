/* Standard input and output in place of files. */
// SPDX-License-Identifier: Apache-2.0
#include "common/standard.h"

#include "common/args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int copy(FILE *from, FILE *to)
{
    char block[1 << 16];
    size_t got;
    while ((got = fread(block, 1, sizeof block, from)) > 0)
        if (fwrite(block, 1, got, to) != got)
            return 0;
    return !ferror(from) && !fflush(to);
}

int standard_input(const char **name)
{
    static int taken;
    struct stat s;
    if (strcmp(*name, "-"))
        return STATUS_OK;
    TRY(refuse_if(taken++, "standard input can be read once: only one file may be -"));
    *name = "/dev/stdin";
    if (!fstat(STDIN_FILENO, &s) && S_ISREG(s.st_mode))
        return STATUS_OK;
    FILE *kept = tmpfile();
    if (!kept || !copy(stdin, kept) || dup2(fileno(kept), STDIN_FILENO) < 0)
        return usage_error("cannot read standard input: %s", strerror(errno));
    fclose(kept);
    return STATUS_OK;
}

/* The folder must be there and let files be made in it; what is replaced must be a file. */
static int check_place(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    int length = slash ? (int)(slash - path) + 1 : 1;
    struct stat s;
    if (snprintf(folder, sizeof folder, "%.*s", length, slash ? path : ".") >=
            PATH_MAX - 64 ||
        strlen(path) >= PATH_MAX)
        return failure("the name %.40s... is too long", path);
    if (!stat(path, &s) && !S_ISREG(s.st_mode))
        return failure("cannot write %s: it is not a regular file", path);
    if (access(folder, W_OK) || (!access(path, F_OK) && access(path, W_OK)))
        return failure("cannot write %s: %s", path, strerror(errno));
    return STATUS_OK;
}

int output_is_standard(const output *o) { return o->name && !strcmp(o->name, "-"); }

int output_open(output *o, const char *name)
{
    TRY(refuse_if(!name, "-o FILE is needed (try --help)"));
    if (strcmp(name, "-")) {
        TRY(check_place(name));
        o->name = name;
        snprintf(o->path, sizeof o->path, "%s", name);
        return STATUS_OK;
    }
    TRY(args_refuse("json", "and -o - cannot both have standard output"));
    if (isatty(STDOUT_FILENO))
        return failure("standard output is a terminal: name a file, or lead it to one");
    const char *place = getenv("TMPDIR");
    snprintf(o->path, sizeof o->path, "%s/danaus-XXXXXX", place ? place : "/tmp");
    int fd = mkstemp(o->path);
    TRY(fail_if(fd < 0, "cannot make %s: %s", o->path, strerror(errno)));
    close(fd);
    o->name = name;
    return STATUS_OK;
}

int output_maybe(output *o, const char *name)
{
    return name ? output_open(o, name) : STATUS_OK;
}

int output_close(output *o, int status)
{
    if (!output_is_standard(o))
        return status;
    FILE *file = status ? NULL : fopen(o->path, "rb");
    unlink(o->path); /* before a reader that goes away ends the program */
    if (!status && (!file || !copy(file, stdout)))
        status = failure("cannot write to standard output: %s", strerror(errno));
    if (file)
        fclose(file);
    return status;
}
