/* A stand-in for libcublasLt.so.13: products with a bias and an activation. An algorithm is for
   the description that it was chosen for, and for operands that are aligned as was said. */
// SPDX-License-Identifier: Apache-2.0
#include "products.h"

#include "base/dtype.h"
#include "base/hash.h"

#include <string.h>

#define BEGIN       FAIL_OR_GO_ON(products_fail)
#define INVALID     7
#define UNSUPPORTED 15

enum { IS_OPERATION = 0x6f70, IS_MATRIX = 0x6d61, IS_PREFERENCE = 0x7072 };

typedef struct operation {
    int is, compute, scale_type, turned[2];
    unsigned epilogue;
    const char *bias;
    int64_t bias_step;
} operation;

typedef struct matrix {
    int is, type, count;
    uint64_t rows, columns;
    int64_t line, step;
} matrix;

typedef struct preference {
    int is;
    uint64_t workspace;
    unsigned reduction, aligned[4];
} preference;

typedef struct algorithm {
    hash128 description;
    unsigned aligned[4];
    uint64_t workspace, rest[3];
} algorithm;

typedef struct choice {
    algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} choice;

_Static_assert(sizeof(algorithm) == 64 && sizeof(choice) == 96, "of cublasLt.h");

/* Sets one of `count` attributes, which are known by their numbers. */
typedef struct attribute {
    int name;
    void *place;
    size_t bytes;
} attribute;

static int set(const attribute *all, int count, int name, const void *from, size_t size)
{
    for (int i = 0; i < count; i++)
        if (all[i].name == name && all[i].bytes == size && from) {
            memcpy(all[i].place, from, size);
            return 0;
        }
    return INVALID;
}

EXPORT int cublasLtMatmulDescInit_internal(operation *o, size_t bytes, int, int);
int cublasLtMatmulDescInit_internal(
    operation *o, size_t bytes, int compute, int scale_type)
{
    BEGIN;
    if (bytes < 256)
        return 3;
    *o = (operation){ IS_OPERATION, compute, scale_type, { 0, 0 }, 1, NULL, 0 };
    return 0;
}

EXPORT int cublasLtMatmulDescSetAttribute(operation *o, int, const void *, size_t);
int cublasLtMatmulDescSetAttribute(
    operation *o, int name, const void *value, size_t bytes)
{
    BEGIN;
    const attribute all[] = {
        { 3, &o->turned[0], 4 }, { 4, &o->turned[1], 4 },  { 7, &o->epilogue, 4 },
        { 8, &o->bias, 8 },      { 10, &o->bias_step, 8 },
    };
    return o->is == IS_OPERATION ? set(all, 5, name, value, bytes) : INVALID;
}

EXPORT int cublasLtMatrixLayoutInit_internal(
    matrix *m, size_t bytes, int type, uint64_t rows, uint64_t columns, int64_t line);
int cublasLtMatrixLayoutInit_internal(
    matrix *m, size_t bytes, int type, uint64_t rows, uint64_t columns, int64_t line)
{
    BEGIN;
    if (bytes < 64)
        return 3;
    *m = (matrix){ IS_MATRIX, type, 1, rows, columns, line, 0 };
    return 0;
}

EXPORT int cublasLtMatrixLayoutSetAttribute(matrix *m, int, const void *, size_t);
int cublasLtMatrixLayoutSetAttribute(
    matrix *m, int name, const void *value, size_t bytes)
{
    BEGIN;
    const attribute all[] = { { 5, &m->count, 4 }, { 6, &m->step, 8 } };
    return m->is == IS_MATRIX ? set(all, 2, name, value, bytes) : INVALID;
}

EXPORT int cublasLtMatmulPreferenceInit_internal(preference *p, size_t bytes);
int cublasLtMatmulPreferenceInit_internal(preference *p, size_t bytes)
{
    BEGIN;
    if (bytes < 64)
        return 3;
    *p = (preference){ IS_PREFERENCE, 0, 7, { 256, 256, 256, 256 } };
    return 0;
}

EXPORT int cublasLtMatmulPreferenceSetAttribute(
    preference *p, int, const void *, size_t);
int cublasLtMatmulPreferenceSetAttribute(
    preference *p, int name, const void *value, size_t bytes)
{
    BEGIN;
    const attribute all[] = {
        { 1, &p->workspace, 8 },  { 3, &p->reduction, 4 },  { 5, &p->aligned[0], 4 },
        { 6, &p->aligned[1], 4 }, { 7, &p->aligned[2], 4 }, { 8, &p->aligned[3], 4 },
    };
    return p->is == IS_PREFERENCE ? set(all, 6, name, value, bytes) : INVALID;
}

/* ---- products ---- */

/* True if the description is consistent. */
static int is_sound(
    const operation *o, const matrix *a, const matrix *b, const matrix *c)
{
    uint64_t m = a->rows, k = a->columns, n = b->columns, depth = b->rows;
    if (o->turned[0])
        m = a->columns, k = a->rows;
    if (o->turned[1])
        n = b->rows, depth = b->columns;
    int has_bias = (o->epilogue & 4) != 0, rest = (int)o->epilogue & ~4;
    int computes = o->compute == 68 || (a->type == 0 && o->compute == 77);
    return o->is == IS_OPERATION && a->is == IS_MATRIX && b->is == IS_MATRIX &&
           c->is == IS_MATRIX && a->type == b->type && a->type == c->type &&
           (a->type == 0 || a->type == 2 || a->type == 14) && computes &&
           o->scale_type == 0 && m == c->rows && n == c->columns && k == depth &&
           a->line >= (int64_t)a->rows && b->line >= (int64_t)b->rows &&
           c->line >= (int64_t)c->rows && a->count == b->count &&
           a->count == c->count && a->count > 0 && has_bias == (o->bias != NULL) &&
           (rest == 0 || rest == 2 || rest == 32 || (rest == 1 && !has_bias));
}

static hash128 hash_of(
    const operation *o, const matrix *a, const matrix *b, const matrix *c)
{
    const matrix *all[] = { a, b, c };
    const int words[] = { o->compute, o->turned[0], o->turned[1], (int)o->epilogue };
    hash128 hash = dn_hash(DN_HASH_START, words, sizeof words);
    for (int i = 0; i < 3; i++) {
        const int64_t numbers[] = { all[i]->type,          all[i]->count,
                                    (int64_t)all[i]->rows, (int64_t)all[i]->columns,
                                    all[i]->line,          all[i]->step };
        hash = dn_hash(hash, numbers, sizeof numbers);
    }
    return hash;
}

static int is_aligned(const void *p, unsigned bytes)
{
    return bytes && (uintptr_t)p % bytes == 0;
}

/* Sums must meet in their own type, or not at all. */
EXPORT int cublasLtMatmulAlgoGetHeuristic(
    context *h, const operation *o, const matrix *a, const matrix *b, const matrix *c,
    const matrix *d, const preference *p, int wanted, choice *choices, int *count);
int cublasLtMatmulAlgoGetHeuristic(
    context *h, const operation *o, const matrix *a, const matrix *b, const matrix *c,
    const matrix *d, const preference *p, int wanted, choice *choices, int *count)
{
    BEGIN;
    *count = 0;
    if (!is_sound(o, a, b, c) || memcmp(c, d, sizeof *c) || wanted < 1 ||
        p->is != IS_PREFERENCE || p->reduction & 5 || !is_aligned(o->bias, 16))
        return INVALID;
    products_control()->choices++;
    if (products_control()->no_algorithms)
        return products_control()->no_algorithms == 1 ? UNSUPPORTED : 0;
    *choices = (choice){ .workspace = p->workspace };
    choices->algorithm.description = hash_of(o, a, b, c);
    choices->algorithm.workspace = p->workspace;
    memcpy(choices->algorithm.aligned, p->aligned, sizeof p->aligned);
    choices->state = h->place == products_place() ? 0 : INVALID;
    *count = 1;
    return 0;
}

EXPORT int cublasLtMatmul(
    context *h, const operation *o, const float *alpha, const void *a, const matrix *am,
    const void *b, const matrix *bm, const float *beta, const void *c, const matrix *cm,
    void *d, const matrix *dm, const algorithm *algo, void *workspace, size_t bytes,
    void *stream);
int cublasLtMatmul(
    context *h, const operation *o, const float *alpha, const void *a, const matrix *am,
    const void *b, const matrix *bm, const float *beta, const void *c, const matrix *cm,
    void *d, const matrix *dm, const algorithm *algo, void *workspace, size_t bytes,
    void *stream)
{
    BEGIN;
    if (!is_sound(o, am, bm, cm) || memcmp(cm, dm, sizeof *cm) ||
        !dn_hash_equal(algo->description, hash_of(o, am, bm, cm)) || *alpha != 1 ||
        (*beta != 0 && *beta != 1) || (*beta == 0 && c != d) ||
        !is_aligned(a, algo->aligned[0]) || !is_aligned(b, algo->aligned[1]) ||
        !is_aligned(c, algo->aligned[2]) || !is_aligned(d, algo->aligned[3]) ||
        !is_aligned(workspace, 256) || !workspace || bytes < algo->workspace ||
        h->place != products_place())
        return INVALID;
    danaus_dtype type = products_type(am->type);
    products p = {
        .type = type,
        .to = type,
        .ta = o->turned[0],
        .tb = o->turned[1],
        .m = (int64_t)cm->rows,
        .n = (int64_t)cm->columns,
        .k = (int64_t)(o->turned[0] ? am->rows : am->columns),
        .lda = am->line,
        .ldb = bm->line,
        .ldc = cm->line,
        .a_step = am->step,
        .b_step = bm->step,
        .c_step = cm->step,
        .count = cm->count,
        .a = a,
        .b = b,
        .old = c,
        .c = d,
        .add = *beta,
        .workspace = workspace,
        .bias = o->bias,
        .bias_step = o->bias_step,
        .activation = o->epilogue & 2    ? DANAUS_RELU
                      : o->epilogue & 32 ? DANAUS_GELU_TANH
                                         : DANAUS_ACTIVATION_NONE,
    };
    products_enqueue(stream, &p);
    products_control()->endings++;
    return 0;
}
