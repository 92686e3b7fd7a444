/* Products by cublasLt that compute activation(c + bias), or residual + c + bias, before sums
   are rounded, in the same launch.

   The library is asked once which algorithm computes a product, and a table of the GPU keeps the
   answer. The question names the alignment of operands, at most 16 bytes, so the answer and
   the order of sums do not depend on their addresses otherwise. Parts of a sum are added in f32
   in a workspace, always in the same order. Short sums of small products have no workspace: the
   library would cut them too and be slower. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/blas.h"

#include "base/mem.h"
#include "base/status.h"

#include <string.h>

#define CHOICES 512 /* places of the table */
#define ALIGNED 16  /* bytes */
#define MATRIX  32
#define SHORT   256       /* terms of a sum that is not worth cutting into parts, */
#define SMALL   (1 << 22) /* sums of a product where the library's choice would do so */

/* Attributes and their values, from cublasLt.h. */
enum {
    SET_TRANSPOSE_A = 3,
    SET_TRANSPOSE_B = 4,
    SET_EPILOGUE = 7,
    SET_BIAS = 8,
    SET_BIAS_STEP = 10,

    LAYOUT_COUNT = 5,
    LAYOUT_STEP = 6,

    PREFER_WORKSPACE = 1,
    PREFER_REDUCTION = 3,
    PREFER_ALIGNED_A = 5, /* then b, c, d */

    EPILOGUE_NONE = 1,
    EPILOGUE_RELU = 2,
    EPILOGUE_BIAS = 4,
    EPILOGUE_GELU_TANH = 32,

    REDUCTION_OF_SUMS = 2 /* or none: neither by atomics nor in the type of c */
};

/* What decides which algorithm is chosen. Without padding: it is hashed as bytes. */
typedef struct question {
    int32_t type, compute, transpose_a, transpose_b, epilogue, count, adds, unused;
    int64_t m, n, depth, line[3], step[3]; /* of a, b, c */
    uint32_t aligned[4];                   /* of what is added to, too */
} question;

struct blas_choice {
    hash128 question; /* zeros: an empty place */
    int is_there;     /* there is an algorithm */
    lt_algorithm algorithm;
};

/* Room for the library's descriptions, to spare. */
typedef struct description {
    uint64_t operation[64], wishes[32], matrix[3][MATRIX];
} description;

danaus_status dn_blas_open_choices(cuda_blas *own)
{
    own->choices = dn_calloc(CHOICES, sizeof *own->choices);
    return own->choices ? DANAUS_OK
                        : dn_fail_memory(
                              CHOICES * sizeof *own->choices, "a table of algorithms");
}

/* ---- questions ---- */

static uint32_t aligned_to(const void *p)
{
    uint32_t bits = (uint32_t)((uintptr_t)p % ALIGNED);
    return bits ? bits & (~bits + 1) : ALIGNED;
}

static int32_t epilogue_of(const gpu_ending *e)
{
    int activation = e->activation == DANAUS_RELU        ? EPILOGUE_RELU
                     : e->activation == DANAUS_GELU_TANH ? EPILOGUE_GELU_TANH
                                                         : 0;
    int all = activation | (e->rounded_bias ? EPILOGUE_BIAS : 0);
    return all ? all : EPILOGUE_NONE;
}

static question question_of(const gemm *g, const gpu_ending *e)
{
    return (question){
        .type = g->numbers.type,
        .compute = g->numbers.compute,
        .transpose_a = g->transpose_a,
        .transpose_b = g->transpose_b,
        .epilogue = epilogue_of(e),
        .count = (int32_t)g->count,
        .m = g->m,
        .n = g->n,
        .depth = g->depth,
        .line = { g->to_a.line, g->to_b.line, g->to_c.line },
        .step = { g->to_a.step[0], g->to_b.step[0], g->to_c.step[0] },
        .adds = g->residual != NULL,
        .aligned = { aligned_to(g->a), aligned_to(g->b),
                     aligned_to(g->residual ? g->residual : g->c), aligned_to(g->c) },
    };
}

/* ---- descriptions: these return cuBLAS' errors ---- */

static int describe_matrix(
    const blas_lt *lt, const question *q, int i, int64_t rows, int64_t columns,
    uint64_t matrix[MATRIX])
{
    int error = lt->LtLay(
        matrix, MATRIX * sizeof *matrix, q->type, (uint64_t)rows, (uint64_t)columns,
        q->line[i]);
    if (!error)
        error = lt->LtSetLayout(matrix, LAYOUT_COUNT, &q->count, sizeof q->count);
    return error ? error
                 : lt->LtSetLayout(matrix, LAYOUT_STEP, &q->step[i], sizeof q->step[i]);
}

static int describe_matrices(const blas_lt *lt, const question *q, description *d)
{
    int64_t m = q->m, n = q->n, k = q->depth;
    int ta = q->transpose_a, tb = q->transpose_b;
    int error = describe_matrix(lt, q, 0, ta ? k : m, ta ? m : k, d->matrix[0]);
    if (!error)
        error = describe_matrix(lt, q, 1, tb ? n : k, tb ? k : n, d->matrix[1]);
    return error ? error : describe_matrix(lt, q, 2, m, n, d->matrix[2]);
}

/* Rows of c, and so their bias, follow each other from product to product. */
static int describe_operation(
    const blas_lt *lt, const question *q, const void *bias, description *d)
{
    struct {
        int name;
        const void *value;
        size_t bytes;
    } const all[] = {
        { SET_TRANSPOSE_A, &q->transpose_a, sizeof q->transpose_a },
        { SET_TRANSPOSE_B, &q->transpose_b, sizeof q->transpose_b },
        { SET_EPILOGUE, &q->epilogue, sizeof q->epilogue },
        { SET_BIAS, &bias, sizeof bias },
        { SET_BIAS_STEP, &q->step[2], sizeof q->step[2] },
    };
    int count = q->epilogue & EPILOGUE_BIAS ? 5 : 3;
    int error =
        lt->LtDescribe(d->operation, sizeof d->operation, q->compute, BLAS_R_32F);
    for (int i = 0; i < count && !error; i++)
        error = lt->LtSet(d->operation, all[i].name, all[i].value, all[i].bytes);
    return error ? error : describe_matrices(lt, q, d);
}

static int describe_wishes(
    const blas_lt *lt, const question *q, uint64_t workspace, description *d)
{
    uint32_t reduction = REDUCTION_OF_SUMS;
    int error = lt->LtPrefer(d->wishes, sizeof d->wishes);
    if (!error)
        error = lt->LtSetPreference(
            d->wishes, PREFER_WORKSPACE, &workspace, sizeof workspace);
    if (!error)
        error = lt->LtSetPreference(
            d->wishes, PREFER_REDUCTION, &reduction, sizeof reduction);
    for (int i = 0; i < 4 && !error; i++)
        error = lt->LtSetPreference(
            d->wishes, PREFER_ALIGNED_A + i, &q->aligned[i], sizeof q->aligned[i]);
    return error;
}

/* ---- choices ---- */

/* Asks the library for an algorithm. If it does not support the question, there is no choice. */
static danaus_status ask(
    cuda_device *d, const blas_lt *lt, const question *q, description *to,
    blas_choice *choice)
{
    lt_choice found;
    int count = 0;
    const uint64_t *c = to->matrix[2];
    int is_small = q->depth <= SHORT && q->m <= SMALL / q->n;
    uint64_t workspace = is_small ? 0 : dn_cuda_workspace_bytes(d);
    int error = describe_wishes(lt, q, workspace, to);
    if (!error)
        error = lt->LtChoose(
            d->shared->blas.handle, to->operation, to->matrix[0], to->matrix[1], c, c,
            to->wishes, 1, &found, &count);
    if (error && error != BLAS_NOT_SUPPORTED && error != BLAS_INVALID_VALUE)
        return dn_blas_status(error, "LtMatmulAlgoGetHeuristic");
    choice->is_there = !error && count > 0 && !found.state;
    if (choice->is_there)
        choice->algorithm = found.algorithm;
    return DANAUS_OK;
}

/* The choice for a question, which `to` describes. It may replace another question in its place
   of the table, because asking again gives the same answer. Asking is work of the host, and may
   load modules, which a strict capture forbids. */
static danaus_status choose(
    cuda_device *d, const blas_lt *lt, const question *q, description *to,
    blas_choice **chosen)
{
    hash128 hash = dn_hash(DN_HASH_START, q, sizeof *q);
    blas_choice *place = &d->shared->blas.choices[hash.part[1] % CHOICES];
    *chosen = place;
    if (dn_hash_equal(place->question, hash))
        return DANAUS_OK;
    int mode = dn_cuda_set_capture_mode(d->driver, CAPTURE_RELAXED);
    danaus_status status = ask(d, lt, q, to, place);
    dn_cuda_set_capture_mode(d->driver, mode);
    place->question = status == DANAUS_OK ? hash : (hash128){ { 0 } };
    return status;
}

danaus_status dn_blas_choose_ending(
    cuda_device *d, const blas_lt *lt, const gemm *g, const gpu_ending *ending)
{
    description to;
    blas_choice *choice;
    question q = question_of(g, ending);
    int error = describe_operation(lt, &q, ending->rounded_bias, &to);
    return error ? dn_blas_status(error, "LtMatmulDesc")
                 : choose(d, lt, &q, &to, &choice);
}

danaus_status dn_blas_multiply_and_end(
    cuda_device *d, const blas_lt *lt, const gemm *g, const gpu_ending *ending,
    int *made)
{
    description to;
    blas_choice *choice;
    question q = question_of(g, ending);
    int error = describe_operation(lt, &q, ending->rounded_bias, &to);
    if (error)
        return dn_blas_status(error, "LtMatmulDesc");
    TRY(choose(d, lt, &q, &to, &choice));
    *made = choice->is_there;
    const void *beta = g->residual ? g->numbers.one : g->numbers.zero;
    const char *added = g->residual ? g->residual : g->c;
    if (choice->is_there)
        BLAS_TRY(
            lt, LtMultiply(
                    d->shared->blas.handle, to.operation, g->numbers.one, g->a,
                    to.matrix[0], g->b, to.matrix[1], beta, added, to.matrix[2], g->c,
                    to.matrix[2], &choice->algorithm, d->workspace,
                    dn_cuda_workspace_bytes(d), d->stream));
    return DANAUS_OK;
}
