/* Texts for the instructions of warps, executed by threads of the processor
   (emulator/warps.h): a folder with the texts, and programs made of them for problems. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_EMULATOR_RUN_TEXT_H
#define TEST_EMULATOR_RUN_TEXT_H

#include "support/test.h"

#include "base/mem.h"
#include "gpu/rows.h"
#include "support/oracle.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void launch_function(
    unsigned blocks, unsigned shared, const void *x, const void *w, const float *bias,
    void *y, int64_t batch, int activation);

static char folder[64];

static void write_file(const char *name, const char *content)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(content, f) >= 0 && fclose(f) == 0);
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
    write_file("ptx.cuh", "#include \"" EMULATOR_WARPS "\"\n");
    write_file(
        "launch.cpp",
        "#include \"defines.h\"\n"
        "#include TEXT\n"
        "template <class X, class W> void call(\n"
        "    void ks(const X *, const W *, const float *, X *, i64, int), const void "
        "*x,\n"
        "    const void *w, const float *bias, void *y, i64 batch, int activation)\n"
        "{\n"
        "    ks((const X *)x, (const W *)w, bias, (X *)y, batch, activation);\n"
        "}\n"
        "extern \"C\" void launch(unsigned blocks, unsigned shared, const void *x,\n"
        "    const void *w, const float *bias, void *y, i64 batch, int activation)\n"
        "{\n"
        "    run_blocks(blocks, THREADS, shared, [=] {\n"
        "        call(ks, x, w, bias, y, batch, activation);\n"
        "    });\n"
        "}\n");
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* The text with the defines of a problem, compiled and loaded. */
static void *load(const kernel *k, const problem *p, int variant, int number)
{
    char defines[4096], path[128], command[512];
    text t = { defines, sizeof defines, 0 };
    dn_text(&t, "#define TEXT \"%s\"\n", dn_gpu_code(k)->text);
    dn_gpu_code(k)->defines(k, p, variant, &t);
    write_file("defines.h", defines);
    snprintf(path, sizeof path, "%s/%d.so", folder, number);
    snprintf(
        command, sizeof command,
        "%s -std=c++20 -O1 -w -shared -fPIC -pthread %s/launch.cpp -o %s", EMULATOR_CXX,
        folder, path);
    assert_int_equal(system(command), 0);
    void *library = dlopen(path, RTLD_NOW);
    assert_non_null(library);
    return library;
}

/* Runs the text with weights that are packed. */
static void run_text(
    const kernel *k, const problem *p, const void *x, const void *packed,
    const float *bias, void *y, danaus_activation activation, int number)
{
    const gpu_code *code = dn_gpu_code(k);
    gpu_facts facts = { .arch = 80, .units = 1 + number % 3 };
    gpu_call call = { p->batch, x, y };
    gpu_launch l;
    int variant = code->variant ? code->variant(k, p, &call) : 0;
    void *library = load(k, p, variant, number), *symbol;
    launch_function *launch;
    code->launch(k, p, &facts, &call, &l);
    symbol = dlsym(library, "launch");
    assert_non_null(symbol);
    memcpy(&launch, &symbol, sizeof launch);
    launch(
        (unsigned)l.blocks[0], (unsigned)l.shared, x, packed, bias, y, p->batch,
        (int)activation);
    dlclose(library);
}

static void *aligned_copy(const array *a)
{
    size_t bytes = (size_t)a->count * danaus_dtype_size(a->dtype);
    void *copy = dn_alloc(bytes);
    assert_non_null(copy);
    return memcpy(copy, a->data, bytes);
}

static int has_compiler(void)
{
    int failed = system(EMULATOR_CXX " --version > /dev/null 2>&1");
    if (failed)
        fprintf(stderr, "this test needs a C++ compiler\n");
    return !failed;
}

#endif
