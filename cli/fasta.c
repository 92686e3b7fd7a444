/* Records of a FASTA file. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/fasta.h"

#include "common/args.h"
#include "common/lines.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

int fasta_open(fasta *f, const char *path, const int32_t *tokens)
{
    *f = (fasta){ .path = path, .tokens = tokens, .line = 1, .at_start = 1 };
    f->file = fopen(path, "rb");
    if (f->file)
        skip_mark(f->file);
    return f->file ? STATUS_OK : failure("cannot read %s: %s", path, strerror(errno));
}

void fasta_close(fasta *f)
{
    if (f->file)
        fclose(f->file);
    f->file = NULL;
}

/* The next byte, or EOF. */
static int next(fasta *f)
{
    int c = next_byte(f->file);
    if (c == '\n')
        f->line++;
    f->at_start = c == '\n';
    return c;
}

static void skip_line(fasta *f)
{
    int c;
    do
        c = next(f);
    while (c != '\n' && c != EOF);
}

/* What next_letter() says of > at the start of a line. */
enum { RECORD = 256 };

/* The next byte that is no blank, outside of comments. */
static int next_letter(fasta *f)
{
    for (;;) {
        int starts = f->at_start, c = next(f);
        if (starts && c == ';')
            skip_line(f);
        else if (starts && c == '>')
            return RECORD;
        else if (c == EOF || !isspace(c))
            return c;
    }
}

/* 0, unless the file could not be read. */
static int end_of_file(const fasta *f)
{
    if (!ferror(f->file))
        return 0;
    failure("cannot read %s: %s", f->path, strerror(errno));
    return -1;
}

static int refuse(const fasta *f, int c, const char *why)
{
    char letter[8];
    snprintf(letter, sizeof letter, isprint(c) ? "%c" : "0x%02x", (unsigned)c);
    failure("%s, line %" PRId64 ": \"%s\" %s", f->path, f->line, letter, why);
    return -1;
}

static void read_name(fasta *f)
{
    size_t length = 0;
    int c = next(f);
    for (; c != EOF && !isspace(c); c = next(f))
        if (length + 1 < sizeof f->name)
            f->name[length++] = (char)c;
    f->name[length] = '\0';
    if (c != '\n' && c != EOF)
        skip_line(f);
}

int fasta_next(fasta *f)
{
    while (!f->found) {
        int c = next_letter(f);
        if (c == EOF)
            return end_of_file(f);
        if (c != RECORD && !f->any)
            return refuse(f, c, "is before the first record, which begins with \">\"");
        f->found = c == RECORD;
    }
    f->found = 0;
    f->any = 1;
    read_name(f);
    return 1;
}

int64_t fasta_read(fasta *f, int32_t *tokens, int64_t room)
{
    int64_t count = 0;
    while (count < room && !f->found) {
        int c = next_letter(f);
        if (c == EOF)
            return count ? count : end_of_file(f);
        f->found = c == RECORD;
        if (f->found)
            break;
        if (f->tokens[c] < 0)
            return refuse(f, c, "is no letter that the model has a token for");
        tokens[count++] = f->tokens[c];
    }
    return count;
}
