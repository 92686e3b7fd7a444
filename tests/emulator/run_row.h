/* Rows of the table, run as run_text.h runs texts. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_EMULATOR_RUN_ROW_H
#define TEST_EMULATOR_RUN_ROW_H

#include "emulator/run_text.h"

typedef void launch_function(
    unsigned blocks, unsigned shared, const void *x, const void *w, const float *bias,
    const void *residual, void *y, int64_t batch, int activation, danaus_pattern p);

/* Entry points leave out arguments from the end. */
static const char launch_row[] =
    "#include \"defines.h\"\n"
    "#include TEXT\n"
    "struct pattern { i64 a, b, c, d; };\n"
    "template <class X, class W, class... sizes> void call(\n"
    "    void ks(const X *, const W *, const float *, const X *, X *, i64, int,\n"
    "            sizes...),\n"
    "    const void *x, const void *w, const float *bias, const void *residual,\n"
    "    void *y, i64 batch, int activation, pattern p)\n"
    "{\n"
    "    auto run = [&](auto... sizes_and_maps) {\n"
    "        ks((const X *)x, (const W *)w, bias, (const X *)residual, (X *)y, batch,\n"
    "           activation, sizes_and_maps...);\n"
    "    };\n"
    "    if constexpr (sizeof...(sizes) == 0)\n"
    "        run();\n"
    "    else if constexpr (sizeof...(sizes) == 4)\n"
    "        run(p.a, p.b, p.c, p.d);\n"
    "    else\n"
    "        ks((const X *)x, (const W *)w, bias, (const X *)residual, (X *)y, batch,\n"
    "           activation, p.a, p.b, p.c, p.d, {}, {}, {});\n"
    "}\n"
    "extern \"C\" void launch(unsigned blocks, unsigned shared, const void *x,\n"
    "    const void *w, const float *bias, const void *residual, void *y, i64 batch,\n"
    "    int activation, pattern p)\n"
    "{\n"
    "    run_blocks(blocks, THREADS, shared, [=] {\n"
    "        call(ks, x, w, bias, residual, y, batch, activation, p);\n"
    "    });\n"
    "}\n";

/* A row's text with the defines of a problem. */
static void *load(const kernel *k, const problem *p, int variant, int number)
{
    char defines[4096];
    text t = { defines, sizeof defines, 0 };
    dn_text(&t, "#define TEXT \"%s\"\n", dn_gpu_family(k)->text);
    dn_gpu_family(k)->defines(k, p, variant, &t);
    return load_program(launch_row, defines, number);
}

/* Runs the text with weights that are packed; no copies through maps. residual: or NULL. */
static void run_text(
    const kernel *k, const problem *asked, const void *x, const void *packed,
    const float *bias, const void *residual, void *y, danaus_activation activation,
    int number)
{
    const gpu_family *f = dn_gpu_family(k);
    problem activated = *asked, *p = &activated;
    p->activation = (int)activation;
    p->residual = residual != NULL;
    gpu_facts facts = { .arch = 80, .units = 1 + number % 3 };
    gpu_call call = { p->batch, x, y, residual };
    gpu_launch l;
    int variant = f->maps ? 1 : f->variant ? f->variant(k, p, &call) : 0;
    void *library = load(k, p, variant, number), *symbol;
    launch_function *launch;
    f->launch(k, p, &facts, &call, &l);
    symbol = dlsym(library, "launch");
    assert_non_null(symbol);
    memcpy(&launch, &symbol, sizeof launch);
    launch(
        (unsigned)l.blocks[0], (unsigned)l.shared, x, packed, bias, residual, y,
        p->batch, (int)activation, p->pattern);
    dlclose(library);
}

#endif
