/* Dense complex matrices in plain loops; see matrix.h. */
// SPDX-License-Identifier: Apache-2.0
#include "support/matrix.h"

#include "support/element.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdlib.h>
#include <string.h>

matrix matrix_make(int64_t rows, int64_t cols)
{
    return (matrix){ rows, cols, calloc((size_t)(rows * cols), sizeof(number)) };
}

matrix matrix_copy(matrix a)
{
    matrix b = matrix_make(a.rows, a.cols);
    memcpy(b.at, a.at, (size_t)(a.rows * a.cols) * sizeof(number));
    return b;
}

void matrix_free(matrix *a)
{
    free(a->at);
    *a = (matrix){ 0 };
}

double rng_gauss(rng *r)
{
    double u = 1 - rng_unit(r), v = rng_unit(r);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

matrix matrix_gauss(rng *r, int64_t rows, int64_t cols, int complex)
{
    matrix a = matrix_make(rows, cols);
    for (int64_t x = 0; x < rows * cols; x++) {
        double re = rng_gauss(r);
        a.at[x] = complex ? re + I * rng_gauss(r) : re;
    }
    return a;
}

matrix matrix_times(matrix a, matrix b)
{
    matrix c = matrix_make(a.rows, b.cols);
    for (int64_t r = 0; r < a.rows; r++)
        for (int64_t k = 0; k < a.cols; k++)
            for (int64_t l = 0; l < b.cols; l++)
                c.at[r * c.cols + l] += a.at[r * a.cols + k] * b.at[k * b.cols + l];
    return c;
}

matrix matrix_transposed(matrix a)
{
    matrix b = matrix_make(a.cols, a.rows);
    for (int64_t r = 0; r < a.rows; r++)
        for (int64_t k = 0; k < a.cols; k++)
            b.at[k * a.rows + r] = a.at[r * a.cols + k];
    return b;
}

matrix matrix_kronecker(matrix a, matrix b)
{
    matrix c = matrix_make(a.rows * b.rows, a.cols * b.cols);
    for (int64_t x = 0; x < c.rows; x++)
        for (int64_t y = 0; y < c.cols; y++)
            c.at[x * c.cols + y] = a.at[x / b.rows * a.cols + y / b.cols] *
                                   b.at[x % b.rows * b.cols + y % b.cols];
    return c;
}

void matrix_add(matrix *a, number s, matrix b)
{
    for (int64_t x = 0; x < a->rows * a->cols; x++)
        a->at[x] += s * b.at[x];
}

static double energy(number z) { return creal(z) * creal(z) + cimag(z) * cimag(z); }

double matrix_norm(matrix a)
{
    double sum = 0;
    for (int64_t x = 0; x < a.rows * a.cols; x++)
        sum += energy(a.at[x]);
    return sqrt(sum);
}

double matrix_distance(matrix a, matrix b)
{
    double sum = 0;
    for (int64_t x = 0; x < a.rows * a.cols; x++)
        sum += energy(a.at[x] - b.at[x]);
    return sqrt(sum);
}

double relative_distance(matrix a, matrix b)
{
    return matrix_distance(a, b) / matrix_norm(b);
}

matrix matrix_columns(matrix a, const int64_t *order)
{
    matrix b = matrix_make(a.rows, a.cols);
    for (int64_t r = 0; r < a.rows; r++)
        for (int64_t p = 0; p < a.cols; p++)
            b.at[r * a.cols + p] = a.at[r * a.cols + order[p]];
    return b;
}

/* ---- singular values ---- */

/* Makes rows p and q of `a` orthogonal, unless their product is at most `least`; returns how far
   they were from it. */
static double rotate(matrix a, int64_t p, int64_t q, double least)
{
    number *x = a.at + p * a.cols, *y = a.at + q * a.cols, dot = 0;
    double ex = 0, ey = 0;
    for (int64_t l = 0; l < a.cols; l++) {
        ex += energy(x[l]);
        ey += energy(y[l]);
        dot += x[l] * conj(y[l]);
    }
    double off = cabs(dot);
    double lengths = sqrt(ex) * sqrt(ey);
    if (off <= fmax(least, 1e-300) || off <= 1e-17 * lengths)
        return 0;
    number phase = dot / off;
    double zeta = (ey - ex) / (2 * off);
    double t = (zeta >= 0 ? 1 : -1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    double c = 1 / sqrt(1 + t * t), s = c * t;
    for (int64_t l = 0; l < a.cols; l++) {
        number u = x[l] * conj(phase), v = y[l];
        x[l] = c * u - s * v;
        y[l] = s * u + c * v;
    }
    return off / lengths;
}

static int descending(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a < b) - (a > b);
}

/* Jacobi's method on one side. Products of rows that are left move no value by more than 1e-18
   of the norm: rows of rounding errors, which a matrix of low rank leaves, need no more turns. */
void matrix_singular_values(matrix a, double *s)
{
    matrix w = a.rows <= a.cols ? matrix_copy(a) : matrix_transposed(a);
    double worst = 1, least = 1e-36 * matrix_norm(a) * matrix_norm(a);
    for (int sweep = 0; sweep < 60 && worst > 1e-15; sweep++) {
        worst = 0;
        for (int64_t p = 0; p < w.rows; p++)
            for (int64_t q = p + 1; q < w.rows; q++)
                worst = fmax(worst, rotate(w, p, q, least));
    }
    for (int64_t p = 0; p < w.rows; p++)
        s[p] = matrix_norm((matrix){ 1, w.cols, w.at + p * w.cols });
    qsort(s, (size_t)w.rows, sizeof *s, descending);
    matrix_free(&w);
}

/* ---- elements ---- */

void *matrix_pack(matrix a, danaus_dtype dtype)
{
    int64_t count = a.rows * a.cols;
    char *to = malloc((size_t)count * danaus_dtype_size(dtype) + 1);
    for (int64_t x = 0; x < count; x++) {
        double re = creal(a.at[x]), im = cimag(a.at[x]);
        if (dtype == DANAUS_F32 || dtype == DANAUS_C64)
            element_put(dtype, to, x, (value){ (double)(float)re, (double)(float)im });
        else
            element_put(dtype, to, x, (value){ re, im });
    }
    return to;
}

matrix matrix_unpack(danaus_dtype dtype, const void *from, int64_t rows, int64_t cols)
{
    matrix a = matrix_make(rows, cols);
    for (int64_t x = 0; x < rows * cols; x++) {
        value v = element_get(dtype, from, x);
        a.at[x] = v.re + I * v.im;
    }
    return a;
}

/* ---- factors ---- */

matrix factor_dense(danaus_pattern p, const number *w)
{
    matrix k = matrix_make(p.a * p.b * p.d, p.a * p.c * p.d);
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t l = 0; l < p.c; l++)
                for (int64_t j = 0; j < p.d; j++)
                    k.at[((i * p.b + r) * p.d + j) * k.cols + (i * p.c + l) * p.d + j] =
                        *w++;
    return k;
}

matrix factor_times(danaus_pattern p, const number *w, matrix x)
{
    matrix y = matrix_make(p.a * p.b * p.d, x.cols);
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t l = 0; l < p.c; l++)
                for (int64_t j = 0; j < p.d; j++, w++) {
                    number *to = y.at + ((i * p.b + r) * p.d + j) * x.cols;
                    const number *from = x.at + ((i * p.c + l) * p.d + j) * x.cols;
                    for (int64_t s = 0; s < x.cols; s++)
                        to[s] += *w * from[s];
                }
    return y;
}

matrix chain_product(const danaus_pattern *p, number *const *w, int count)
{
    matrix product = factor_dense(p[count - 1], w[count - 1]);
    for (int l = count - 2; l >= 0; l--) {
        matrix next = factor_times(p[l], w[l], product);
        matrix_free(&product);
        product = next;
    }
    return product;
}

number *factor_random(rng *r, danaus_pattern p, int complex)
{
    matrix w = matrix_gauss(r, p.a * p.b * p.c * p.d, 1, complex);
    return w.at;
}

matrix product_random(rng *r, const danaus_pattern *p, int count, int complex)
{
    number *w[DANAUS_MAX_FACTORS] = { 0 };
    for (int l = 0; l < count; l++)
        w[l] = factor_random(r, p[l], complex);
    matrix product = chain_product(p, w, count);
    for (int l = 0; l < count; l++)
        free(w[l]);
    return product;
}

matrix chain_matrix(danaus_chain *chain)
{
    danaus_pattern p[DANAUS_MAX_FACTORS] = { { 0 } };
    number *w[DANAUS_MAX_FACTORS] = { 0 };
    int count = danaus_chain_count(chain);
    for (int l = 0; l < count; l++) {
        p[l] = danaus_chain_pattern(chain, l);
        w[l] = matrix_unpack(
                   danaus_chain_dtype(chain), danaus_chain_weights(chain, l),
                   p[l].a * p[l].b, p[l].c * p[l].d)
                   .at;
    }
    matrix product = chain_product(p, w, count);
    for (int l = 0; l < count; l++)
        free(w[l]);
    return product;
}

double chain_fit_error(danaus_chain *chain, matrix x, matrix y)
{
    matrix k = chain_matrix(chain), kt = matrix_transposed(k);
    matrix made = matrix_times(x, kt);
    if (danaus_chain_bias(chain)) {
        matrix bias = matrix_unpack(
            danaus_chain_dtype(chain), danaus_chain_bias(chain), 1, y.cols);
        for (int64_t at = 0; at < made.rows * made.cols; at++)
            made.at[at] += bias.at[at % made.cols];
        matrix_free(&bias);
    }
    double error = relative_distance(made, y);
    matrix_free(&k);
    matrix_free(&kt);
    matrix_free(&made);
    return error;
}

int in_support(danaus_pattern p, int64_t row, int64_t col)
{
    return row / (p.b * p.d) == col / (p.c * p.d) && row % p.d == col % p.d;
}

void random_chainable(
    rng *r, int count, int64_t radix, int64_t rank, int ends, danaus_pattern *p)
{
    int64_t rows = 0, cols = 0;
    while (rows < 1 || rows > 150 || cols > 150) {
        int64_t left = 1, before = 1, q[DANAUS_MAX_FACTORS];
        rows = 1;
        for (int l = 0; l < count; l++)
            rows *= q[l] = rng_int(r, 1, radix);
        int64_t rest = rows;
        for (int l = 0; l < count; l++) {
            int64_t right = l + 1 < count ? rng_int(r, 1, rank) : 1;
            int64_t columns = rng_int(r, 1, radix);
            rest /= q[l];
            p[l] = (danaus_pattern){ before, left * q[l], right * columns, rest };
            before *= columns;
            left = right;
        }
        cols = before;
        int64_t copies = 1, interleaved = 1;
        if (ends && rng_unit(r) < 0.3) {
            copies = rng_int(r, 1, 2);
            interleaved = rng_int(r, 1, 2);
        }
        for (int l = 0; l < count; l++) {
            p[l].a *= copies;
            p[l].d *= interleaved;
        }
        rows *= copies * interleaved;
        cols *= copies * interleaved;
    }
}
