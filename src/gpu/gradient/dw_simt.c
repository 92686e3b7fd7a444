/* Weight gradients on vector units (ks_dw.cu), for any pattern, type and layout. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/gradient/dw.h"

#include "base/dtype.h"
#include "gpu/rows.h"
#include "math/pattern.h"

/* Shares of f32's peak and of memory's rate that are reached; seconds of the launches. */
#define FLOPS  0.3
#define MEMORY 0.3
#define START  5e-6

/* Lanes are taken together when batch-first memory has them next to each other. */
gpu_vectors dn_gpu_dw_vectors(const problem *p)
{
    danaus_pattern q = p->pattern;
    int wide = danaus_dtype_size(dn_sum_type(p->dtype)) > 4;
    int lanes = p->layout == DANAUS_BATCH_LAST || q.d == 1 ? 1 : q.d == 2 ? 2 : 8;
    if (wide)
        return lanes == 8   ? (gpu_vectors){ 8, 8, 8, 2, 2, 4 }
               : lanes == 2 ? (gpu_vectors){ 16, 16, 2, 2, 2, 8 }
                            : (gpu_vectors){ 32, 32, 1, 2, 2, 8 };
    if (lanes == 8)
        return q.b > 16 && q.c > 16 ? (gpu_vectors){ 32, 32, 8, 8, 4, 4 }
                                    : (gpu_vectors){ 16, 16, 8, 4, 4, 8 };
    if (lanes == 2)
        return (gpu_vectors){ 32, 32, 2, 4, 4, 16 };
    return q.b >= 48 && q.c >= 48 ? (gpu_vectors){ 64, 64, 1, 4, 4, 16 }
                                  : (gpu_vectors){ 32, 32, 1, 4, 4, 16 };
}

int64_t dn_gpu_dw_vector_tiles(const problem *p)
{
    gpu_vectors t = dn_gpu_dw_vectors(p);
    danaus_pattern q = p->pattern;
    return q.a * CEIL_DIV(q.b, t.br) * CEIL_DIV(q.c, t.bc) * CEIL_DIV(q.d, t.bj);
}

static int fits(const kernel *k, const problem *p)
{
    (void)k;
    return !p->inner.a;
}

/* Whole tiles are multiplied; a complex product is four real ones, and f64 has half the
   rate. */
static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    (void)k;
    const gpu_facts *f = dn_gpu_facts(dev);
    gpu_vectors t = dn_gpu_dw_vectors(p);
    danaus_pattern q = p->pattern;
    double work = dn_is_complex(p->dtype) ? 4 : 1, batch = (double)p->batch;
    work *= danaus_dtype_size(dn_sum_type(p->dtype)) > (dn_is_complex(p->dtype) ? 8 : 4)
                ? 2
                : 1;
    double tiles = (double)dn_gpu_dw_vector_tiles(p);
    double products = 2 * work * tiles * t.br * t.bc * t.bj * batch;
    double bytes = (double)(dn_pattern_rows(q) + dn_pattern_cols(q)) * batch *
                   (double)danaus_dtype_size(p->dtype);
    return START + products / (FLOPS * f->flops) + bytes / (MEMORY * f->bandwidth);
}

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    gpu_vectors t = dn_gpu_dw_vectors(p);
    const gpu_define lines[] = {
        { "BR", t.br }, { "BC", t.bc }, { "BJ", t.bj },
        { "TR", t.tr }, { "TC", t.tc }, { "BS", t.bs },
    };
    dn_gpu_define_layout(k, p, variant, to);
    dn_gpu_define(DANAUS_F32, lines, sizeof lines / sizeof *lines, to);
}

const gpu_dw_family dn_gpu_dw_simt = {
    .gpu = { .kernel = { .operation = DN_WEIGHT_GRADIENT, .fits = fits, .cost = cost },
             .text = "ks_dw.cu",
             .entry = "dw",
             .defines = defines,
             .part = dn_gpu_dw_part },
};
