/* Products of small dense matrices: the two element types behind one name. */
// SPDX-License-Identifier: Apache-2.0
#include "math/dense.h"

#include <math.h>
#include <string.h>

#define LANES 4

#define COMPLEX  0
#define FN(name) name##_real
#include "math/dense.inc"
#define COMPLEX  1
#define FN(name) name##_complex
#include "math/dense.inc"

typedef double _Complex cplx;

void dn_times(
    int complex, int64_t m, int64_t n, int64_t k, dn_matrix a, dn_matrix b, dn_matrix c)
{
    if (complex)
        times_complex(
            m, n, k, (cplx *)a.at, a.ld, (cplx *)b.at, b.ld, (cplx *)c.at, c.ld);
    else
        times_real(m, n, k, a.at, a.ld, b.at, b.ld, c.at, c.ld);
}

void dn_adjoint_times(
    int complex, int64_t m, int64_t n, int64_t k, dn_matrix a, dn_matrix b, dn_matrix c)
{
    if (complex)
        adjoint_times_complex(
            m, n, k, (cplx *)a.at, a.ld, (cplx *)b.at, b.ld, (cplx *)c.at, c.ld);
    else
        adjoint_times_real(m, n, k, a.at, a.ld, b.at, b.ld, c.at, c.ld);
}

void dn_times_adjoint(
    int complex, int64_t m, int64_t n, int64_t k, dn_matrix a, dn_matrix b, dn_matrix c)
{
    if (complex)
        times_adjoint_complex(
            m, n, k, (cplx *)a.at, a.ld, (cplx *)b.at, b.ld, (cplx *)c.at, c.ld);
    else
        times_adjoint_real(m, n, k, a.at, a.ld, b.at, b.ld, c.at, c.ld);
}

void dn_gram(int complex, int64_t m, int64_t n, dn_matrix a, double *g)
{
    if (complex)
        gram_complex(m, n, (cplx *)a.at, a.ld, (cplx *)g);
    else
        gram_real(m, n, a.at, a.ld, g);
}

double dn_residual(
    int complex, int64_t m, int64_t n, int64_t k, dn_matrix b, dn_matrix u, dn_matrix v,
    double *row)
{
    if (complex)
        return residual_complex(
            m, n, k, (cplx *)b.at, b.ld, (cplx *)u.at, u.ld, (cplx *)v.at, v.ld,
            (cplx *)row);
    return residual_real(m, n, k, b.at, b.ld, u.at, u.ld, v.at, v.ld, row);
}

double dn_energy(int complex, int64_t m, int64_t n, dn_matrix b)
{
    int width = complex ? 2 : 1;
    double sum = 0;
    for (int64_t r = 0; r < m; r++)
        sum += energy_real(n * width, b.at + r * b.ld * width);
    return sum;
}

void dn_solve_lower(int complex, int64_t m, int64_t n, dn_matrix x, dn_matrix lower)
{
    if (complex)
        solve_lower_complex(m, n, (cplx *)x.at, x.ld, (cplx *)lower.at, lower.ld);
    else
        solve_lower_real(m, n, x.at, x.ld, lower.at, lower.ld);
}

void dn_adjoint(int complex, int64_t m, int64_t n, dn_matrix from, dn_matrix to)
{
    if (complex)
        adjoint_complex(m, n, (cplx *)from.at, from.ld, (cplx *)to.at, to.ld);
    else
        adjoint_real(m, n, from.at, from.ld, to.at, to.ld);
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
