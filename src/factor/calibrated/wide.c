/* Products of large matrices: tasks of ROWS rows, each a call of BLAS. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/calibrated/wide.h"

#include "base/numbers.h"
#include "math/lapack_library.h"

enum { ROWS = 96 };

typedef struct wide {
    dn_gemm g;
    int solve; /* c becomes c b^-1, or c b^-H with adjoint_b */
    dn_matrix a, b, c;
} wide;

static dn_matrix from_row(const wide *w, dn_matrix x, int64_t row)
{
    return (dn_matrix){ x.at + row * x.ld * (w->g.complex ? 2 : 1), x.ld };
}

static void do_rows(void *arg, int task)
{
    const wide *w = arg;
    int64_t row = (int64_t)task * ROWS;
    dn_gemm g = w->g;
    g.m = MIN(ROWS, g.m - row);
    dn_matrix c = from_row(w, w->c, row);
    if (w->solve)
        dn_triangle_solve(g.complex, g.adjoint_b, g.m, g.n, c, w->b);
    else
        dn_gemm_run(&g, from_row(w, w->a, row), w->b, c);
}

static void run(thread_pool *pool, wide *w)
{
    dn_lapack_alone();
    dn_pool_run(pool, (int)CEIL_DIV(w->g.m, ROWS), do_rows, w);
    dn_lapack_as_before();
}

void dn_wide_times(
    thread_pool *pool, const dn_gemm *g, dn_matrix a, dn_matrix b, dn_matrix c)
{
    wide w = { .g = *g, .a = a, .b = b, .c = c };
    run(pool, &w);
}

void dn_wide_solve(
    thread_pool *pool, int complex, int adjoint, int64_t m, int64_t n, dn_matrix x,
    dn_matrix lower)
{
    wide w = { .g = { .complex = complex, .adjoint_b = adjoint, .m = m, .n = n },
               .solve = 1,
               .b = lower,
               .c = x };
    run(pool, &w);
}
