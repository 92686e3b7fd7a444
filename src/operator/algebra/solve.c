/* Solves W x = b factor by factor, from the left. The blocks of a factor solve for the rows of x
   that they act on, a slab of columns at a time. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/algebra/square.h"

#include "product/chain.h"
#include "base/dtype.h"
#include "base/holds.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/lapack.h"

#include <inttypes.h>

enum { SLAB = 128 }; /* columns that are solved for at once */

/* Numbers in f64 or c128: row n of column s is at n * row + s * column. */
typedef struct unknowns {
    double *z;
    int64_t batch, row, column;
    int wants_condition;
} unknowns;

/* Columns [from, from + count) of the block's rows to rows[count][b], or back. */
static void move(
    const square_job *job, int64_t block, int64_t from, int64_t count, double *rows,
    int back)
{
    const unknowns *u = job->arg;
    danaus_pattern p = job->p;
    int64_t parts = job->complex ? 2 : 1;
    for (int64_t s = 0; s < count; s++)
        for (int64_t r = 0; r < p.b; r++, rows += parts) {
            int64_t row = (block / p.d * p.b + r) * p.d + block % p.d;
            double *z = u->z + (row * u->row + (from + s) * u->column) * parts;
            dn_square_copy(job->complex, back ? rows : z, back ? z : rows);
        }
}

static void solve_block(const square_job *job, const square_block *b, square_facts *f)
{
    const unknowns *u = job->arg;
    int64_t n = job->p.b;
    if (u->wants_condition)
        dn_square_condition(
            b, dn_lu_inverse_norm(job->complex, n, b->a, b->norm, b->scratch), f);
    for (int64_t from = 0; from < u->batch; from += SLAB) {
        int64_t count = MIN(SLAB, u->batch - from);
        move(job, b->number, from, count, b->scratch, 0);
        dn_lu_solve(job->complex, n, b->a, b->pivots, count, b->scratch);
        move(job, b->number, from, count, b->scratch, 1);
    }
}

static danaus_status solve(
    const danaus_chain *chain, int threads, unknowns *u, danaus_condition *condition)
{
    square_job job;
    danaus_condition c = { .bound = 1 };
    TRY(dn_square_begin(&job, chain, threads, solve_block));
    int64_t columns = CLAMP(u->batch, 1, SLAB);
    job.scratch = MAX(job.most * columns * (job.complex ? 2 : 1), 6 * job.most);
    job.arg = u;
    danaus_status status = DANAUS_OK;
    for (int l = 0; l < chain->count && status == DANAUS_OK; l++)
        status = dn_square_run(&job, l, u->wants_condition ? &c : NULL);
    if (status == DANAUS_OK && condition)
        *condition = c;
    dn_square_end(&job);
    return status;
}

static danaus_status check(
    const danaus_chain *chain, danaus_layout layout, int64_t batch, const void *b,
    const void *x, int64_t *count)
{
    int64_t bytes;
    if (!chain || (batch && (!b || !x)))
        return dn_fail(DANAUS_ERR_ARGUMENT, "a chain, b and x are needed");
    if (layout != DANAUS_BATCH_FIRST && layout != DANAUS_BATCH_LAST)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no layout", (int)layout);
    if (batch < 0 || dn_mul_overflows(danaus_chain_rows(chain), batch, count) ||
        dn_mul_overflows(*count, 2 * sizeof(double), &bytes))
        return dn_fail(DANAUS_ERR_SHAPE, "a batch of %" PRId64, batch);
    return DANAUS_OK;
}

danaus_status danaus_chain_solve(
    const danaus_chain *chain, int threads, danaus_layout layout, int64_t batch,
    const void *b, void *x, danaus_condition *condition)
{
    int64_t count;
    TRY(check(chain, layout, batch, b, x, &count));
    int last = layout == DANAUS_BATCH_LAST;
    danaus_dtype wide = dn_is_complex(chain->dtype) ? DANAUS_C128 : DANAUS_F64;
    unknowns u = { .z = dn_calloc((size_t)count + 1, danaus_dtype_size(wide)),
                   .batch = batch,
                   .row = last ? batch : 1,
                   .column = last ? 1 : danaus_chain_rows(chain),
                   .wants_condition = condition != NULL };
    if (!u.z)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for %" PRId64 " numbers", count);
    if (count)
        dn_convert(chain->dtype, b, wide, u.z, count);
    danaus_status status = solve(chain, threads, &u, condition);
    if (status == DANAUS_OK)
        status = dn_check_stored(chain->dtype, u.z, count, DN_STORED_ZERO, "x");
    if (status == DANAUS_OK && count)
        dn_convert(wide, u.z, chain->dtype, x, count);
    dn_free(u.z);
    return status;
}
