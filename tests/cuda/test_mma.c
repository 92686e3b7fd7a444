/* The texts for tensor cores from compute capability 8.0 on, executed by threads of the
   processor (emulator/warps.h), against the oracle: every row, odd and even sizes, both
   layouts, operands that are and are not aligned, bias, activations. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "gpu/rows.h"
#include "support/chains.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void launch_function(
    unsigned blocks, unsigned shared, const void *x, const void *w, const float *bias,
    void *y, int64_t batch, int activation);

static char folder[64];

/* The texts that the emulator has instructions for. */
static int is_emulated(const char *name) { return !strncmp(name, "ks_mma", 6); }

static void write_file(const char *name, const char *content)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(content, f) >= 0 && fclose(f) == 0);
}

/* The texts' other includes are their own; ptx.cuh is ours. */
static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/danaus-mma-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    for (const gpu_text *t = dn_gpu_texts; t->name; t++)
        if (is_emulated(t->name) || strstr(t->name, ".cuh"))
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
static void *load(const kernel *k, const problem *p, int number)
{
    char defines[4096], path[128], command[512];
    text t = { defines, sizeof defines, 0 };
    dn_text(&t, "#define TEXT \"%s\"\n", dn_gpu_code(k)->text);
    dn_gpu_code(k)->defines(k, p, 0, &t);
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

static problem random_problem(rng *r, const kernel *k)
{
    problem p = { .dtype = k->dtype, .batch = rng_int(r, 1, 150) };
    int64_t unit = rng_next(r) % 2 ? 8 : 1;
    p.math = strstr(k->name, "tf32") ? DANAUS_MATH_TF32 : DANAUS_MATH_F32;
    do {
        p.layout = rng_next(r) % 2 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
        p.pattern =
            (danaus_pattern){ rng_int(r, 1, 3), rng_int(r, 8 / unit, 160 / unit),
                              rng_int(r, 8 / unit, 160 / unit), 1 };
        p.pattern.b *= unit;
        p.pattern.c *= unit;
        p.pattern.d = rng_int(r, 1, 3) << rng_int(r, 0, 4);
    } while (!k->fits(k, &p));
    p.batch = (p.batch + unit - 1) / unit * unit;
    return p;
}

static void run(
    const kernel *k, const problem *p, const void *x, const array *w, const float *bias,
    void *y, danaus_activation activation, int number)
{
    void *packed = dn_alloc(k->packed_bytes(k, p));
    void *library = load(k, p, number), *symbol;
    launch_function *launch;
    gpu_facts facts = { .arch = 80, .units = 1 + number % 3 };
    gpu_call call = { p->batch, x, y };
    gpu_launch l;
    assert_non_null(packed);
    k->pack(k, p, dn_weights_view(w->data, p->dtype, p->pattern), packed);
    dn_gpu_code(k)->launch(k, p, &facts, &call, &l);
    symbol = dlsym(library, "launch");
    assert_non_null(symbol);
    memcpy(&launch, &symbol, sizeof launch);
    launch(
        (unsigned)l.blocks[0], (unsigned)l.shared, x, packed, bias, y, p->batch,
        (int)activation);
    dlclose(library);
    dn_free(packed);
}

static void *aligned_copy(const array *a)
{
    size_t bytes = (size_t)a->count * danaus_dtype_size(a->dtype);
    void *copy = dn_alloc(bytes);
    assert_non_null(copy);
    return memcpy(copy, a->data, bytes);
}

static void check(const kernel *k, int number)
{
    rng r = { (uint64_t)number };
    problem p = random_problem(&r, k);
    danaus_pattern q = p.pattern;
    danaus_activation activation = random_activation(&r, k->dtype);
    int has_bias = (int)(rng_next(&r) % 2);
    array w = array_random(&r, k->dtype, weights_of(q));
    array x = array_random(&r, k->dtype, cols_of(q) * p.batch);
    array y = array_make(k->dtype, rows_of(q) * p.batch);
    array bias = array_random(&r, DANAUS_F32, rows_of(q));
    void *places[] = { aligned_copy(&x), aligned_copy(&y), aligned_copy(&bias) };
    int aligned = number % 2;
    run(k, &p, aligned ? places[0] : x.data, &w, has_bias ? places[2] : NULL,
        aligned ? places[1] : y.data, activation, number);
    if (aligned)
        memcpy(y.data, places[1], (size_t)y.count * danaus_dtype_size(y.dtype));
    signal xs = signal_read(&x, p.layout, cols_of(q), p.batch);
    signal ys = signal_times(q, &w, 0, &xs, k->dtype);
    if (p.math == DANAUS_MATH_TF32) /* which rounds both operands to 11 bits */
        for (int64_t s = 0; s < ys.size * ys.batch; s++)
            ys.e[s] += 0x1.01p-10 * ys.m[s];
    if (has_bias)
        signal_add_bias(&ys, &bias, k->dtype);
    if (activation)
        signal_round(&ys, k->dtype);
    signal_activate(&ys, activation, k->dtype);
    signal_round(&ys, k->dtype);
    char what[200];
    snprintf(
        what, sizeof what,
        "%s, case %d: %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
        " layout %d batch %" PRId64 " bias %d activation %d",
        k->name, number, q.a, q.b, q.c, q.d, (int)p.layout, p.batch, has_bias,
        (int)activation);
    expect_signal(&y, p.layout, &ys, what);
    signal_free(&xs);
    signal_free(&ys);
    array_free(&w);
    array_free(&x);
    array_free(&y);
    array_free(&bias);
    for (int i = 0; i < 3; i++)
        dn_free(places[i]);
}

static void every_row_is_right_on_random_shapes(void **state)
{
    (void)state;
    int number = 0;
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        if (is_emulated(dn_gpu_code(k)->text))
            check(k, number++);
    assert_true(number > 0);
}

int main(void)
{
    if (system(EMULATOR_CXX " --version > /dev/null 2>&1")) {
        fprintf(stderr, "this test needs a C++ compiler\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            every_row_is_right_on_random_shapes, make_folder, remove_folder),
    };
    return cmocka_run_group_tests_name("mma", tests, NULL, NULL);
}
