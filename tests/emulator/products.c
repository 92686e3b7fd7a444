// SPDX-License-Identifier: Apache-2.0
#include "products.h"

#include "base/dtype.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

danaus_dtype products_type(int number)
{
    static const danaus_dtype types[] = {
        [0] = DANAUS_F32, [1] = DANAUS_F64,  [2] = DANAUS_F16,
        [4] = DANAUS_C64, [5] = DANAUS_C128, [14] = DANAUS_BF16,
    };
    return types[number];
}

/* ---- the driver ---- */

static void *find(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, name) : NULL;
    if (!found)
        abort();
    return found;
}

int products_fail(const char *function)
{
    int (*ask)(const char *);
    void *found = find("emulator_fails");
    memcpy(&ask, &found, sizeof ask);
    return ask(function);
}

static void reach_memory(int access)
{
    void (*reach)(int);
    void *found = find("emulator_memory");
    memcpy(&reach, &found, sizeof reach);
    reach(access);
}

static void touch(const void *memory, int writes)
{
    void (*ask)(const void *, int);
    void *found = find("emulator_touch");
    memcpy(&ask, &found, sizeof ask);
    ask(memory, writes);
}

void *products_place(void)
{
    int (*ask)(void **);
    void *found = find("cuCtxGetCurrent"), *place = NULL;
    memcpy(&ask, &found, sizeof ask);
    return ask(&place) ? NULL : place;
}

emulator_control *products_control(void) { return find("emulator_control_block"); }

/* ---- loops ---- */

static double activated(danaus_activation activation, double v)
{
    if (activation == DANAUS_RELU)
        return v < 0 ? 0 : v;
    double t = 0.79788456080286536 * (v + 0.044715 * v * v * v);
    return activation == DANAUS_GELU_TANH ? v * (1 + tanh(t)) / 2 : v;
}

/* Sums of real numbers are rounded to f32 when what follows begins. */
static void finish(const products *p, const char *bias, int64_t row, double sum[2])
{
    double more[2] = { 0, 0 };
    float rounded = (float)sum[0];
    if (!bias && !p->activation)
        return;
    if (bias)
        dn_load(p->to, bias, row, more);
    sum[0] = activated(p->activation, rounded + (float)more[0]);
}

static void multiply(
    const products *p, const char *a, const char *b, const char *old, char *c,
    const char *bias)
{
    for (int64_t column = 0; column < p->n; column++)
        for (int64_t row = 0; row < p->m; row++) {
            double sum[2] = { 0, 0 }, u[2], v[2];
            if (p->add != 0)
                dn_load(p->to, old, column * p->ldc + row, sum);
            for (int64_t i = 0; i < p->k; i++) {
                dn_load(p->type, a, p->ta ? row * p->lda + i : i * p->lda + row, u);
                dn_load(
                    p->type, b, p->tb ? i * p->ldb + column : column * p->ldb + i, v);
                sum[0] += u[0] * v[0] - u[1] * v[1];
                sum[1] += u[0] * v[1] + u[1] * v[0];
            }
            finish(p, bias, row, sum);
            dn_store(p->to, c, column * p->ldc + row, sum);
        }
}

static void run_products(const void *data)
{
    const products *p = data;
    int64_t size = (int64_t)danaus_dtype_size(p->type);
    int64_t cell = (int64_t)danaus_dtype_size(p->to);
    reach_memory(1);
    touch(p->a, 0);
    touch(p->b, 0);
    if (p->add != 0)
        touch(p->old, 0);
    touch(p->c, 1);
    touch(p->workspace, 1);
    if (p->bias)
        touch(p->bias, 0);
    for (int64_t i = 0; i < p->count; i++)
        multiply(
            p, p->a + i * p->a_step * size, p->b + i * p->b_step * size,
            p->old + i * p->c_step * cell, p->c + i * p->c_step * cell,
            p->bias ? p->bias + i * p->bias_step * cell : NULL);
    products_control()->products++;
    reach_memory(0);
}

void products_enqueue(void *stream, const products *p)
{
    void (*ask)(void *, void (*)(const void *), const void *, size_t);
    void *found = find("emulator_enqueue");
    memcpy(&ask, &found, sizeof ask);
    ask(stream, run_products, p, sizeof *p);
}
