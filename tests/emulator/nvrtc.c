/* A stand-in for NVRTC: compiles portable texts with the C compiler of this machine into
   shared libraries, which the stand-in for the driver (driver.c) runs, and all others into
   images that do nothing there. What was compiled once stays in a folder of the build, by a
   hash of all that made it, since tests compile the same texts again and again. Every function
   can be told to fail, once or (number 0) always. */
// SPDX-License-Identifier: Apache-2.0
#include "emulator.h"

#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

EXPORT int emulator_compilations; /* since the start */
EXPORT const char
    *emulator_refused; /* sources with this in them do not compile; or NULL */
EXPORT emulator_control emulator_nvrtc_control;

static int fails(const char *function)
{
    emulator_control *c = &emulator_nvrtc_control;
    if (!c->function || strcmp(c->function, function))
        return 0;
    int call = __atomic_add_fetch(&c->calls, 1, __ATOMIC_SEQ_CST);
    return !c->number || call == c->number ? c->error : 0;
}

#define BEGIN FAIL_OR_GO_ON(fails)

#define COMPILE                                                                        \
    EMULATOR_CC " -std=gnu17 -Og -ffp-contract=off -w -fPIC -shared "                  \
                "-fsanitize=bounds -fsanitize-undefined-trap-on-error "                \
                "-include signature.h -include " EMULATOR_WORDS                        \
                " text.c -o text.so -lm"

#define MOST_FILES 64
#define MOST_PATH  512

typedef struct program {
    char *name[MOST_FILES], *text[MOST_FILES]; /* what is compiled, "text.c" first */
    int count;
    char *image;
    size_t bytes;
    char log[4096];
    int refused;
} program;

static int add_file(program *p, const char *name, const char *text)
{
    if (p->count == MOST_FILES)
        return 1;
    p->name[p->count] = strdup(name);
    p->text[p->count++] = strdup(text);
    return !p->name[p->count - 1] || !p->text[p->count - 1];
}

static int write_file(const char *folder, const char *name, const char *text)
{
    char path[MOST_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (!f)
        return 1;
    fputs(text, f);
    return fclose(f);
}

static char *read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    char *data = NULL;
    if (f && !fseek(f, 0, SEEK_END)) {
        *bytes = (size_t)ftell(f);
        rewind(f);
        data = calloc(*bytes + 1, 1);
        if (data && fread(data, 1, *bytes, f) != *bytes)
            *bytes = 0;
    }
    if (f)
        fclose(f);
    return data;
}

/* How wide each argument of the kernel is, for the launch: 'i' for an int, 't' for a table,
   which is alone. */
static int add_signature(program *p, const char *source)
{
    const char *at = strstr(source, "\nKERNEL");
    char signature[64] = "";
    size_t count = 0;
    for (at = at ? strchr(at, '(') : NULL; at && *at != ')'; at = strpbrk(at, ",)")) {
        at += strspn(at + 1, " \n") + 1;
        signature[count++] = !strncmp(at, "int ", 4)     ? 'i'
                             : !strncmp(at, "TABLE(", 6) ? 't'
                                                         : 'l';
    }
    char text[128];
    snprintf(
        text, sizeof text, "const char emulator_signature[] = \"%s\";\n", signature);
    return add_file(p, "signature.h", text);
}

EXPORT int nvrtcGetNumSupportedArchs(int *count);
int nvrtcGetNumSupportedArchs(int *count)
{
    BEGIN;
    *count = 2;
    return 0;
}

EXPORT int nvrtcGetSupportedArchs(int *archs);
int nvrtcGetSupportedArchs(int *archs)
{
    BEGIN;
    archs[0] = 75;
    archs[1] = 90;
    return 0;
}

static void free_program(program *p)
{
    for (int i = 0; i < p->count; i++) {
        free(p->name[i]);
        free(p->text[i]);
    }
    free(p->image);
    free(p);
}

EXPORT int nvrtcDestroyProgram(program **p);
int nvrtcDestroyProgram(program **p)
{
    free_program(*p);
    BEGIN;
    __atomic_sub_fetch(&emulator_nvrtc_control.handles, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int nvrtcCreateProgram(
    program **made, const char *source, const char *name, int headers,
    const char *const *header, const char *const *header_name);
int nvrtcCreateProgram(
    program **made, const char *source, const char *name, int headers,
    const char *const *header, const char *const *header_name)
{
    BEGIN;
    (void)name;
    program *p = calloc(1, sizeof *p);
    if (!p)
        return 1;
    int failed = add_file(p, "text.c", source) || add_signature(p, source);
    for (int i = 0; i < headers; i++)
        failed = failed || add_file(p, header_name[i], header[i]);
    if (failed) {
        free_program(p);
        return 1;
    }
    p->refused = emulator_refused && strstr(source, emulator_refused);
    __atomic_add_fetch(&emulator_nvrtc_control.handles, 1, __ATOMIC_SEQ_CST);
    *made = p;
    return 0;
}

/* An image for another machine. */
static int make_idle(program *p)
{
    Elf64_Ehdr head = { .e_ident = ELFMAG, .e_machine = EM_CUDA };
    p->bytes = sizeof head;
    p->image = malloc(sizeof head);
    if (p->image)
        memcpy(p->image, &head, sizeof head);
    return p->image ? 0 : 1;
}

/* FNV-1a. */
static uint64_t hash_of(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash * 0x100000001b3u;
}

/* Where the program's library is kept. */
static void name_library(const program *p, char path[MOST_PATH])
{
    uint64_t hash = 0xcbf29ce484222325u;
    size_t bytes;
    char *words = read_file(EMULATOR_WORDS, &bytes);
    hash = hash_of(hash_of(hash, words ? words : ""), COMPILE);
    free(words);
    for (int i = 0; i < p->count; i++)
        hash = hash_of(hash_of(hash, p->name[i]), p->text[i]);
    snprintf(path, MOST_PATH, "%s/%016llx.so", EMULATOR_KEPT, (unsigned long long)hash);
}

/* In a folder that goes when it is done. */
static int compile(program *p, const char *library)
{
    char folder[] = "/tmp/danaus-emulator-XXXXXX", command[4 * MOST_PATH];
    char log[MOST_PATH];
    int failed = !mkdtemp(folder);
    for (int i = 0; i < p->count; i++)
        failed = failed || write_file(folder, p->name[i], p->text[i]);
    /* Others may be at it, too: the library appears as a whole. */
    snprintf(
        command, sizeof command,
        "cd %s && " COMPILE " >log 2>&1 && mkdir -p " EMULATOR_KEPT
        " && cp text.so %s.%d && mv %s.%d %s",
        folder, library, getpid(), library, getpid(), library);
    failed = failed || system(command);
    snprintf(log, sizeof log, "%s/log", folder);
    size_t bytes = 0;
    char *text = read_file(log, &bytes);
    snprintf(p->log, sizeof p->log, "%s", text ? text : "");
    free(text);
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command))
        fprintf(stderr, "cannot remove %s\n", folder);
    return failed;
}

EXPORT int nvrtcCompileProgram(program *p, int count, const char *const *options);
int nvrtcCompileProgram(program *p, int count, const char *const *options)
{
    BEGIN;
    __atomic_add_fetch(&emulator_compilations, 1, __ATOMIC_SEQ_CST);
    if (p->refused) {
        strcpy(p->log, "text.c(1): error: not this one\n");
        return 6;
    }
    if (count && !strstr(options[0], "_75"))
        return make_idle(p);
    char library[MOST_PATH];
    name_library(p, library);
    p->image = read_file(library, &p->bytes);
    if (!p->image && !compile(p, library))
        p->image = read_file(library, &p->bytes);
    return p->image ? 0 : 6;
}

EXPORT int nvrtcGetCUBINSize(const program *p, size_t *bytes);
int nvrtcGetCUBINSize(const program *p, size_t *bytes)
{
    BEGIN;
    *bytes = p->bytes;
    return 0;
}

EXPORT int nvrtcGetCUBIN(const program *p, char *image);
int nvrtcGetCUBIN(const program *p, char *image)
{
    BEGIN;
    memcpy(image, p->image, p->bytes);
    return 0;
}

EXPORT int nvrtcGetPTXSize(const program *p, size_t *bytes);
int nvrtcGetPTXSize(const program *p, size_t *bytes)
{
    BEGIN;
    return nvrtcGetCUBINSize(p, bytes);
}

EXPORT int nvrtcGetPTX(const program *p, char *image);
int nvrtcGetPTX(const program *p, char *image)
{
    BEGIN;
    return nvrtcGetCUBIN(p, image);
}

EXPORT int nvrtcGetProgramLogSize(const program *p, size_t *bytes);
int nvrtcGetProgramLogSize(const program *p, size_t *bytes)
{
    BEGIN;
    *bytes = strlen(p->log) + 1;
    return 0;
}

EXPORT int nvrtcGetProgramLog(const program *p, char *log);
int nvrtcGetProgramLog(const program *p, char *log)
{
    BEGIN;
    strcpy(log, p->log);
    return 0;
}
