/* Rows of the table, run as run_text.h runs texts. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_EMULATOR_RUN_ROW_H
#define TEST_EMULATOR_RUN_ROW_H

#include "emulator/run_text.h"

/* What every launch has, in this order. */
typedef struct row_arguments {
    const void *x, *w;
    const float *bias;
    const void *residual;
    void *y;
    int64_t batch;
    int64_t activation;
    danaus_pattern p;
    const int64_t *x_order, *y_order;
} row_arguments;

typedef void launch_function(unsigned blocks, unsigned shared, const row_arguments *a);

/* Entry points leave out arguments from the end. */
static const char launch_row[] =
    "#include \"defines.h\"\n"
    "#include TEXT\n"
    "struct arguments {\n"
    "    const void *x, *w;\n"
    "    const float *bias;\n"
    "    const void *residual;\n"
    "    void *y;\n"
    "    i64 batch, activation, a, b, c, d;\n"
    "    const i64 *x_order, *y_order;\n"
    "};\n"
    "template <class X, class W, class... sizes> void call(\n"
    "    void ks(const X *, const W *, const float *, const X *, X *, i64, int,\n"
    "            sizes...),\n"
    "    const arguments &p)\n"
    "{\n"
    "    auto run = [&](auto... sizes_and_maps) {\n"
    "        ks((const X *)p.x, (const W *)p.w, p.bias, (const X *)p.residual, (X "
    "*)p.y,\n"
    "           p.batch, (int)p.activation, sizes_and_maps...);\n"
    "    };\n"
    "    if constexpr (sizeof...(sizes) == 0)\n"
    "        run();\n"
    "    else if constexpr (sizeof...(sizes) == 4)\n"
    "        run(p.a, p.b, p.c, p.d);\n"
    "    else if constexpr (sizeof...(sizes) == 6)\n"
    "        run(p.a, p.b, p.c, p.d, p.x_order, p.y_order);\n"
    "    else\n"
    "        ks((const X *)p.x, (const W *)p.w, p.bias, (const X *)p.residual, (X "
    "*)p.y,\n"
    "           p.batch, (int)p.activation, p.a, p.b, p.c, p.d, {}, {}, {});\n"
    "}\n"
    "extern \"C\" void launch(unsigned blocks, unsigned shared, const arguments *p)\n"
    "{\n"
    "    run_blocks(blocks, THREADS, shared, [=] { call(ks, *p); });\n"
    "}\n";

/* A row's text with the defines of a problem. */
static void *load(
    const kernel *k, const problem *p, int variant, launch_function **launch)
{
    char defines[4096];
    text t = { defines, sizeof defines, 0 };
    dn_text(&t, "#define TEXT \"%s\"\n", dn_gpu_family(k)->text);
    dn_gpu_family(k)->defines(k, p, variant, &t);
    return load_program(launch_row, defines, launch);
}

/* Runs the text of one step; no copies through maps. */
static void run_text(
    const kernel *k, const problem *asked, const ks_operands *o, int number)
{
    const gpu_family *f = dn_gpu_family(k);
    problem activated = *asked, *p = &activated;
    p->activation = (int)o->activation;
    p->residual = o->residual != NULL;
    gpu_facts facts = { .arch = 80, .units = 1 + number % 3 };
    gpu_call call = { o->batch, o->x, o->y, o->residual };
    row_arguments a = { o->x,     o->packed[0],  o->bias,    o->residual, o->y,
                        o->batch, o->activation, p->pattern, o->x_order,  o->y_order };
    gpu_launch l;
    int variant = f->maps ? 1 : f->variant ? f->variant(k, p, &call) : 0;
    launch_function *launch;
    void *library = load(k, p, variant, &launch);
    f->launch(k, p, &facts, &call, &l);
    launch((unsigned)l.blocks[0], (unsigned)l.shared, &a);
    dlclose(library);
}

#endif
