// SPDX-License-Identifier: Apache-2.0
#include "cli/permuted.h"

#include "common/args.h"
#include "common/room.h"

#include <stdlib.h>
#include <string.h>

static void gather(const void *w, size_t size, permuted *p)
{
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++)
            memcpy(
                (char *)p->matrix + (size_t)(i * p->n + j) * size,
                (const char *)w + (size_t)(p->rows[i] * p->n + p->cols[j]) * size,
                size);
}

int permuted_find(
    const void *w, danaus_dtype dtype, const danaus_pattern *patterns, int count,
    int threads, permuted *p)
{
    danaus_permute_desc desc = { .threads = threads };
    danaus_pattern left = patterns[0], right = patterns[count - 1];
    size_t size = danaus_dtype_size(dtype);
    double errors[2];
    p->m = left.a * left.b * left.d;
    p->n = right.a * right.c * right.d;
    int made = (p->rows = room_make(1, p->m, sizeof *p->rows, "orders")) &&
               (p->cols = room_make(1, p->n, sizeof *p->cols, "orders")) &&
               (p->matrix = room_make(p->m, p->n, size, "W in another order"));
    if (!made)
        return STATUS_FAILURE;
    TRY(library(danaus_find_permutations(
        w, dtype, patterns, count, &desc, p->rows, p->cols, errors)));
    p->before = errors[0];
    gather(w, size, p);
    return STATUS_OK;
}

void permuted_free(permuted *p)
{
    free(p->rows);
    free(p->cols);
    free(p->matrix);
}

int permuted_save(const permuted *p, danaus_chain **chain, const char *path)
{
    int64_t *back = room_make(1, p->m, sizeof *back, "an order"); /* of outputs */
    const int64_t *orders[] = { back, p->cols }, lengths[] = { p->m, p->n };
    danaus_operator *made;
    if (!back)
        return STATUS_FAILURE;
    for (int64_t i = 0; i < p->m; i++)
        back[p->rows[i]] = i;
    danaus_status status =
        danaus_operator_create(chain, 1, orders, lengths, p->n, &made);
    free(back);
    TRY(library(status));
    *chain = NULL; /* it is the operator's */
    status = danaus_operator_save(made, path);
    danaus_operator_destroy(made);
    return library(status);
}
