/* Products of small dense matrices: two element types, compiled for every processor
   and, where it has them, for AVX2 and FMA. */
// SPDX-License-Identifier: Apache-2.0
#include "math/dense.h"

#include <math.h>
#include <string.h>

typedef void product(
    int64_t m, int64_t n, int64_t k, dn_matrix a, dn_matrix b, dn_matrix c);

typedef struct operations {
    product *times, *adjoint_times, *times_adjoint;
    void (*gram)(int64_t m, int64_t n, dn_matrix a, dn_matrix g);
    double (*residual)(
        int64_t m, int64_t n, int64_t k, dn_matrix b, dn_matrix u, dn_matrix v,
        double *room);
    double (*energy)(int64_t m, int64_t n, dn_matrix b);
    void (*adjoint)(int64_t m, int64_t n, dn_matrix from, dn_matrix to);
    void (*solve_lower)(int64_t m, int64_t n, dn_matrix x, dn_matrix lower);
} operations;

int dn_has_avx2(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 0;
#endif
}

#define TEXT  "math/dense.inc"
#define TABLE operations
#include "math/variants.inc"

void dn_times(
    int complex, int64_t m, int64_t n, int64_t k, dn_matrix a, dn_matrix b, dn_matrix c)
{
    table_of(complex)->times(m, n, k, a, b, c);
}

void dn_adjoint_times(
    int complex, int64_t m, int64_t n, int64_t k, dn_matrix a, dn_matrix b, dn_matrix c)
{
    table_of(complex)->adjoint_times(m, n, k, a, b, c);
}

void dn_times_adjoint(
    int complex, int64_t m, int64_t n, int64_t k, dn_matrix a, dn_matrix b, dn_matrix c)
{
    table_of(complex)->times_adjoint(m, n, k, a, b, c);
}

void dn_gram(int complex, int64_t m, int64_t n, dn_matrix a, dn_matrix g)
{
    table_of(complex)->gram(m, n, a, g);
}

double dn_residual(
    int complex, int64_t m, int64_t n, int64_t k, dn_matrix b, dn_matrix u, dn_matrix v,
    double *row)
{
    return table_of(complex)->residual(m, n, k, b, u, v, row);
}

double dn_energy(int complex, int64_t m, int64_t n, dn_matrix b)
{
    return table_of(complex)->energy(m, n, b);
}

void dn_adjoint(int complex, int64_t m, int64_t n, dn_matrix from, dn_matrix to)
{
    table_of(complex)->adjoint(m, n, from, to);
}

void dn_solve_lower(int complex, int64_t m, int64_t n, dn_matrix x, dn_matrix lower)
{
    table_of(complex)->solve_lower(m, n, x, lower);
}

void dn_copy(int complex, int64_t m, int64_t n, dn_matrix from, dn_matrix to)
{
    int64_t width = complex ? 2 : 1;
    for (int64_t r = 0; r < m; r++)
        memcpy(
            to.at + r * to.ld * width, from.at + r * from.ld * width,
            (size_t)(n * width) * sizeof(double));
}

void dn_zero(int complex, int64_t m, int64_t n, dn_matrix to)
{
    int64_t width = complex ? 2 : 1;
    for (int64_t r = 0; r < m; r++)
        memset(to.at + r * to.ld * width, 0, (size_t)(n * width) * sizeof(double));
}
