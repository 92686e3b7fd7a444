/* A stand-in for NVRTC: compiles portable texts with the C compiler of this machine into
   shared libraries, which the stand-in for the driver (driver.c) runs, and all others into
   images that do nothing there. Every function can be told to fail, once or (number 0)
   always. */
// SPDX-License-Identifier: Apache-2.0
#include "emulator.h"

#include <elf.h>
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

typedef struct program {
    char folder[64];
    char *image;
    size_t bytes;
    char log[4096];
    int refused;
} program;

static int write_file(const program *p, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    FILE *f = fopen(path, "w");
    if (!f)
        return 1;
    fputs(text, f);
    return fclose(f);
}

static char *read_file(const program *p, const char *name, size_t *bytes)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
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
static void write_signature(const program *p, const char *source)
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
    write_file(p, "signature.h", text);
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

EXPORT int nvrtcDestroyProgram(program **p);
int nvrtcDestroyProgram(program **p)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", (*p)->folder);
    if (system(command))
        fprintf(stderr, "cannot remove %s\n", (*p)->folder);
    free((*p)->image);
    free(*p);
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
    strcpy(p->folder, "/tmp/danaus-emulator-XXXXXX");
    if (!mkdtemp(p->folder)) {
        free(p);
        return 1;
    }
    int failed = write_file(p, "text.c", source);
    for (int i = 0; i < headers; i++)
        failed |= write_file(p, header_name[i], header[i]);
    write_signature(p, source);
    p->refused = emulator_refused && strstr(source, emulator_refused);
    __atomic_add_fetch(&emulator_nvrtc_control.handles, 1, __ATOMIC_SEQ_CST);
    *made = p;
    return failed;
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
    char command[1024];
    snprintf(
        command, sizeof command,
        "cd %s && " EMULATOR_CC " -std=gnu17 -O1 -ffp-contract=off -w -fPIC -shared "
        "-include signature.h -include " EMULATOR_WORDS
        " text.c -o text.so -lm >log 2>&1",
        p->folder);
    int failed = system(command);
    size_t bytes = 0;
    char *log = read_file(p, "log", &bytes);
    snprintf(p->log, sizeof p->log, "%s", log ? log : "");
    free(log);
    if (!failed)
        p->image = read_file(p, "text.so", &p->bytes);
    return failed || !p->image ? 6 : 0;
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
