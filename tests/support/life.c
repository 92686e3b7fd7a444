// SPDX-License-Identifier: Apache-2.0
#include "support/life.h"

#include "support/test.h"

#include "device/backend.h"
#include "device/tuning.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const story plain = { .patterns = { { 1, 6, 3, 2 }, { 2, 3, 6, 1 } }, .batch = 5 };

const story by_library = { { { 1, 6, 3, 2 }, { 2, 3, 6, 1 } },
                           5,
                           { { { 1, 6, 3, 2 }, "ks.dense.f32" },
                             { { 1, 3, 6, 2 }, "ks.turned.f32.128x128" },
                             { { 2, 3, 6, 1 }, "ks.blas.f32" },
                             { { 2, 6, 3, 1 }, "ks.blas.f32" } },
                           DANAUS_MATH_F32 };

const story turned = { { { 1, 16, 16, 2 }, { 2, 16, 16, 1 } },
                       64,
                       { { { 1, 16, 16, 2 }, "ks.turned.f32.128x128" },
                         { { 2, 16, 16, 1 }, "ks.blas.f32" } },
                       DANAUS_MATH_F32 };

const story hopper = { { { 1, 16, 16, 16 }, { 16, 16, 16, 1 } },
                       64,
                       { { { 1, 16, 16, 16 }, "ks.wgmma_lanes.tf32.1x2" },
                         { { 16, 16, 16, 1 }, "ks.wgmma.tf32.64x64.1" } },
                       DANAUS_MATH_TF32 };

int64_t vector_of(const story *s) { return rows_of(s->patterns[0]) * s->batch; }

int64_t results_of(const story *s)
{
    return 2 * vector_of(s) + weights_of(s->patterns[0]) + weights_of(s->patterns[1]) +
           rows_of(s->patterns[0]);
}

static void name_row(
    danaus_device *device, danaus_math math, danaus_pattern p, const char *name)
{
    problem q = { .pattern = p, .dtype = DANAUS_F32, .math = math, .batch = 4096 };
    for (const kernel *k = device->kernels; k->name; k++)
        if (!strcmp(k->name, name) && dn_fits(k, &q))
            dn_tuning_add(device->tuning, &q, k, 1e-6);
}

static danaus_status open_device(
    const story *s, const char *name, danaus_device **device)
{
    danaus_status status = danaus_device_open(name, device);
    for (int i = 0; status == DANAUS_OK && i < 4 && s->named[i].row; i++)
        name_row(*device, s->math, s->named[i].pattern, s->named[i].row);
    return status;
}

danaus_status execute(const story *s, const life *l)
{
    return danaus_ks_execute(
        l->plan, l->device, l->weights, s->batch, l->memory, l->memory + vector_of(s));
}

danaus_status go_back(const story *s, const life *l)
{
    float *y = l->memory + vector_of(s), *dx = y + vector_of(s);
    float *dw = dx + vector_of(s);
    void *both[] = { dw, dw + weights_of(s->patterns[0]) };
    float *dbias = (float *)both[1] + weights_of(s->patterns[1]);
    danaus_ks_gradients g = { .dx = dx, .dw = both, .dbias = dbias };
    return danaus_ks_gradient(
        l->plan, l->device, l->weights, s->batch, l->memory, y, &g);
}

/* The chain's numbers again, from behind the results. */
static danaus_status update(const story *s, const life *l, const random_chain *c)
{
    float *at = l->memory + vector_of(s) + results_of(s);
    const void *w[2];
    for (int i = 0; i < 2; i++) {
        size_t bytes = (size_t)c->w[i].count * sizeof *at;
        danaus_status status = danaus_upload(l->device, at, c->w[i].data, bytes);
        if (status != DANAUS_OK)
            return status;
        w[i] = at;
        at += c->w[i].count;
    }
    return danaus_ks_weights_update_from(l->weights, l->device, DANAUS_F32, w, NULL);
}

danaus_status try_life(
    const story *s, const char *name, life *l, const random_chain *c, const float *x,
    float *results)
{
    danaus_ks_desc desc = {
        .gradients = 1, .keep_factors = 1, .math = s->math, .bias = 1
    };
    danaus_device_info info;
    size_t bytes = (size_t)vector_of(s) * sizeof *x, all = (size_t)results_of(s) * 4;
    size_t weights = (size_t)(c->w[0].count + c->w[1].count) * sizeof *x;
    void *memory = NULL;
    danaus_status status = open_device(s, name, &l->device);
    status = status ? status : danaus_device_describe(l->device, &info);
    status = status ? status
                    : danaus_ks_plan_create(l->device, s->patterns, 2, &desc, &l->plan);
    status = status
                 ? status
                 : danaus_ks_weights_create(l->plan, l->device, c->chain, &l->weights);
    status = status ? status : danaus_alloc(l->device, bytes + all + weights, &memory);
    l->memory = memory;
    status = status ? status : danaus_upload(l->device, l->memory, x, bytes);
    status = status ? status : update(s, l, c);
    for (int i = 0; i < 2; i++) {
        status = status ? status : execute(s, l);
        status = status ? status : go_back(s, l);
    }
    status = status ? status : danaus_device_sync(l->device);
    return status ? status
                  : danaus_download(l->device, results, l->memory + vector_of(s), all);
}

void end_life(life *l)
{
    danaus_free(l->device, l->memory);
    danaus_ks_weights_destroy(l->weights);
    danaus_ks_plan_destroy(l->plan);
    danaus_device_close(l->device);
}

emulator_control *find_emulator(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver ? dlsym(driver, "emulator_control_block") : NULL;
}

emulator_control *need_emulator(void)
{
    emulator_control *control = find_emulator();
    if (!control) {
        fprintf(stderr, "this test needs the emulated driver\n");
        exit(77);
    }
    return control;
}

void expect_nothing_lost(
    const emulator_control *control, const char *function, int number)
{
    if (control->contexts || control->modules || control->allocations ||
        control->pushed || control->handles || control->events || control->graphs)
        fail_msg(
            "call %d of %s fails and %d contexts, %d modules, %d blocks of memory, %d "
            "places on the stack, %d handles, %d events, %d graphs and streams are "
            "lost",
            number, function, control->contexts, control->modules, control->allocations,
            control->pushed, control->handles, control->events, control->graphs);
}
