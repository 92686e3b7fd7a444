/* Texts for the instructions of warps, executed by threads of the processor
   (emulator/warps.h): a folder with the texts, and programs made of them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_EMULATOR_RUN_TEXT_H
#define TEST_EMULATOR_RUN_TEXT_H

#include "support/test.h"

#include "base/hash.h"
#include "base/mem.h"
#include "gpu/rows.h"
#include "support/device.h"
#include "support/oracle.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPILE EMULATOR_CXX " -std=c++20 -O0 -w -fPIC"

/* Programs need nothing of the C++ library. */
#define LIBRARIES " -nodefaultlibs -lm -lc -lgcc"

static char folder[64];

static void write_file(const char *name, const char *content)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(content, f) >= 0 && fclose(f) == 0);
}

/* The C library's part of warps.h, compiled for all programs. */
static int compile_standard(void)
{
    char command[512];
    write_file("standard.h", "#include \"" EMULATOR_SOURCES "/standard.h\"\n");
    snprintf(command, sizeof command, COMPILE " -x c++-header %s/standard.h", folder);
    return system(command);
}

/* All texts, whose other includes are their own; ptx.cuh is ours. */
static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/danaus-text-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    for (const gpu_text *t = dn_gpu_texts; t->name; t++)
        write_file(t->name, t->content);
    write_file("ptx.cuh", "#include \"" EMULATOR_SOURCES "/warps.h\"\n");
    return compile_standard();
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* A program that includes defines.h and texts. */
static void compile_program(const char *program, const char *defines, const char *path)
{
    char command[512];
    write_file("defines.h", defines);
    write_file("launch.cpp", program);
    snprintf(
        command, sizeof command,
        COMPILE " -shared -include %s/standard.h %s/launch.cpp -o %s" LIBRARIES, folder,
        folder, path);
    assert_int_equal(system(command), 0);
}

/* Such a program, compiled if it is the first of its words, and loaded anew. `launch` points to
   a pointer, to its function of that name. */
static void *load_program(const char *program, const char *defines, void *launch)
{
    char path[128];
    hash128 words = dn_hash_text(dn_hash_text(DN_HASH_START, program), defines);
    snprintf(path, sizeof path, "%s/%016" PRIx64 ".so", folder, words.part[0]);
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        compile_program(program, defines, path);
        library = dlopen(path, RTLD_NOW);
    }
    assert_non_null(library);
    void *symbol = dlsym(library, "launch");
    assert_non_null(symbol);
    memcpy(launch, &symbol, sizeof symbol);
    return library;
}

static inline void *aligned_copy(const array *a)
{
    size_t bytes = (size_t)a->count * danaus_dtype_size(a->dtype);
    void *copy = dn_alloc(bytes);
    assert_non_null(copy);
    return memcpy(copy, a->data, bytes);
}

/* Sanitizers see nothing of the texts, and every row is like many others: the least that is
   made is one in twelve. */
static inline int warp_share(void)
{
    int share = share_of_cases();
    return share < 12 ? share : 12;
}

static int has_compiler(void)
{
    int failed = system(EMULATOR_CXX " --version > /dev/null 2>&1");
    if (failed)
        fprintf(stderr, "this test needs a C++ compiler\n");
    return !failed;
}

#endif
