/* Operators in plain loops.

   Bound. A stored entry of a factor has been through at most four roundings of numbers of
   modulus 1 (root of unity, phase, scale, the type's): |dK| <= 4 u |K| entry by entry. A
   factor of patterns (a, b, c, d) that is s times an isometry has || |K| || <= sqrt(2 max(b,
   c)) s in the norm of operators, 2 for complex numbers as real blocks; so factor l changes
   the product by at most 4 u sqrt(2 max(b, c)) times its norm. Frobenius norms of the
   matrix are at least half of that of the product before real parts and some rows and columns are
   taken: 8 u sum of sqrt(2 max(b, c)). Definitions here cost another 8 units of f64. */
// SPDX-License-Identifier: Apache-2.0
#include "support/operators.h"

#include "support/element.h"
#include "support/files.h"
#include "support/test.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/* ---- operators ---- */

static matrix reordered(const danaus_operator *made, int order, matrix v)
{
    int64_t length;
    const int64_t *from = danaus_operator_order(made, order, &length);
    matrix u = matrix_make(length, v.cols);
    for (int64_t p = 0; p < length; p++)
        for (int64_t n = 0; n < v.cols && from[p] >= 0; n++)
            u.at[p * v.cols + n] = v.at[from[p] * v.cols + n];
    return u;
}

/* K u for the rows that the chain takes, and the others behind it. */
static matrix with_chain(const danaus_operator *made, int chain, matrix u)
{
    const danaus_chain *k = danaus_operator_chain(made, chain);
    int64_t cols = danaus_chain_cols(k), rows = danaus_chain_rows(k);
    matrix head = { cols, u.cols, u.at }, product = matrix_copy(head);
    for (int l = danaus_chain_count(k) - 1; l >= 0; l--) {
        danaus_pattern p = danaus_chain_pattern(k, l);
        matrix w = matrix_unpack(
            danaus_chain_dtype(k), danaus_chain_weights_const(k, l),
            p.a * p.b * p.c * p.d, 1);
        matrix next = factor_times(p, w.at, product);
        matrix_free(&w);
        matrix_free(&product);
        product = next;
    }
    matrix v = matrix_make(rows + u.rows - cols, u.cols);
    memcpy(v.at, product.at, (size_t)(rows * u.cols) * sizeof *v.at);
    memcpy(
        v.at + rows * u.cols, u.at + cols * u.cols,
        (size_t)((u.rows - cols) * u.cols) * sizeof *v.at);
    matrix_free(&product);
    return v;
}

static matrix term_matrix(const danaus_operator *made)
{
    matrix v = matrix_make(danaus_operator_cols(made), danaus_operator_cols(made));
    for (int64_t n = 0; n < v.cols; n++)
        v.at[n * v.cols + n] = 1;
    for (int i = danaus_operator_count(made); i >= 0; i--) {
        matrix u = reordered(made, i, v);
        matrix_free(&v);
        v = i ? with_chain(made, i - 1, u) : u;
        if (i)
            matrix_free(&u);
    }
    return v;
}

matrix operator_matrix(const danaus_operator *made)
{
    matrix sum = term_matrix(danaus_operator_term(made, 0));
    for (int i = 1; i < danaus_operator_terms(made); i++) {
        matrix more = term_matrix(danaus_operator_term(made, i));
        matrix_add(&sum, 1, more);
        matrix_free(&more);
    }
    return sum;
}

double operator_bound(const danaus_operator *made)
{
    double sum = 0;
    for (int i = 0; i < danaus_operator_count(made); i++) {
        const danaus_chain *chain = danaus_operator_chain(made, i);
        for (int l = 0; l < danaus_chain_count(chain); l++) {
            danaus_pattern p = danaus_chain_pattern(chain, l);
            sum += sqrt(2 * (double)(p.b > p.c ? p.b : p.c));
        }
    }
    double unit = precision_of(danaus_operator_dtype(made)).unit, f64 = 0x1p-53;
    return 8 * (unit > f64 ? unit + f64 : f64) * sum + 8 * f64;
}

static danaus_chain *random_chain_of(rng *r, danaus_dtype dtype)
{
    danaus_pattern p[3] = { { rng_int(r, 1, 2), rng_int(r, 1, 4), rng_int(r, 1, 3),
                              rng_int(r, 1, 2) } };
    int count = (int)rng_int(r, 1, 3);
    for (int l = 1; l < count; l++)
        p[l] = (danaus_pattern){ 1, p[l - 1].a * p[l - 1].c * p[l - 1].d,
                                 rng_int(r, 1, 5), 1 };
    danaus_chain *chain;
    assert_ok(danaus_chain_create(p, count, dtype, &chain));
    for (int l = 0; l < count; l++)
        for (int64_t x = 0; x < p[l].a * p[l].b * p[l].c * p[l].d; x++)
            element_put(
                dtype, danaus_chain_weights(chain, l), x, element_random(r, dtype));
    return chain;
}

/* Places, or none; of some orders none comes twice. */
static void fill_order(rng *r, int64_t *order, int64_t length, int64_t source)
{
    int once = (int)rng_int(r, 0, 1);
    for (int64_t p = 0; p < length; p++) {
        order[p] = rng_int(r, -1, source - 1);
        for (int64_t before = 0; once && before < p; before++)
            if (order[before] == order[p])
                order[p] = -1;
    }
}

enum { MOST_CHAINS = 4 };

static danaus_operator *with_orders(
    rng *r, danaus_dtype dtype, int64_t rows, int64_t cols, int most)
{
    danaus_chain *chains[MOST_CHAINS];
    int64_t *orders[MOST_CHAINS + 1], lengths[MOST_CHAINS + 1];
    int count = (int)rng_int(r, 1, most);
    int64_t source = cols;
    for (int i = count; i >= 0; i--) {
        int64_t takes = 0;
        if (i) {
            chains[i - 1] = random_chain_of(r, dtype);
            takes = danaus_chain_cols(chains[i - 1]);
        }
        lengths[i] = i ? takes + rng_int(r, 0, 4) : rows;
        orders[i] = malloc((size_t)lengths[i] * sizeof **orders);
        fill_order(r, orders[i], lengths[i], source);
        if (i)
            source = danaus_chain_rows(chains[i - 1]) + lengths[i] - takes;
    }
    danaus_operator *made;
    assert_ok(danaus_operator_create(
        chains, count, (const int64_t *const *)orders, lengths, cols, &made));
    for (int i = 0; i <= count; i++)
        free(orders[i]);
    return made;
}

danaus_operator *random_operator(rng *r, danaus_dtype dtype)
{
    int64_t rows = rng_int(r, 1, 12);
    return with_orders(r, dtype, rows, rng_int(r, 1, 12), MOST_CHAINS);
}

/* A random chain of two factors. */
static danaus_operator *chain_alone(
    rng *r, danaus_dtype dtype, int64_t rows, int64_t cols)
{
    int64_t rank = rng_int(r, 1, 4);
    danaus_pattern p[2] = { { 1, rows, rank, 1 }, { 1, rank, cols, 1 } };
    danaus_chain *chain;
    danaus_operator *made;
    assert_ok(danaus_chain_create(p, 2, dtype, &chain));
    for (int l = 0; l < 2; l++)
        for (int64_t x = 0; x < p[l].b * p[l].c; x++)
            element_put(
                dtype, danaus_chain_weights(chain, l), x, element_random(r, dtype));
    assert_ok(danaus_operator_create(&chain, 1, NULL, NULL, cols, &made));
    return made;
}

danaus_operator *random_term(
    rng *r, danaus_dtype dtype, int64_t rows, int64_t cols, int most)
{
    return rng_int(r, 0, 2) ? with_orders(r, dtype, rows, cols, most)
                            : chain_alone(r, dtype, rows, cols);
}

danaus_operator *random_sum(rng *r, danaus_dtype dtype, int64_t rows, int64_t cols)
{
    danaus_operator *terms[3], *sum;
    int count = (int)rng_int(r, 1, 3);
    for (int i = 0; i < count; i++)
        terms[i] = random_term(r, dtype, rows, cols, 2);
    assert_ok(danaus_operator_add(terms, count, &sum));
    if (rng_int(r, 0, 1)) {
        array bias = array_random(r, dtype, rows);
        assert_ok(danaus_operator_set_bias(sum, bias.data));
        array_free(&bias);
    }
    return sum;
}

/* ---- definitions ---- */

/* The cosine and sine of pi num / den, by a remainder that is exact. */
static double cosine(int64_t num, int64_t den)
{
    return cos(pi * (double)(num % (2 * den)) / (double)den);
}

static double sine(int64_t num, int64_t den)
{
    return sin(pi * (double)(num % (2 * den)) / (double)den);
}

static number entry(danaus_transform kind, int64_t n, int64_t k, int64_t m)
{
    switch (kind) {
    case DANAUS_DFT: return CMPLX(cosine(2 * k * m, n), -sine(2 * k * m, n));
    case DANAUS_WALSH_HADAMARD:
        return __builtin_popcountll((unsigned long long)(k & m)) % 2 ? -1 : 1;
    case DANAUS_HARTLEY: return cosine(2 * k * m, n) + sine(2 * k * m, n);
    case DANAUS_DCT1: return cosine(k * m, n - 1);
    case DANAUS_DCT2: return cosine(k * (2 * m + 1), 2 * n);
    case DANAUS_DCT3: return cosine((2 * k + 1) * m, 2 * n);
    case DANAUS_DCT4: return cosine((2 * k + 1) * (2 * m + 1), 4 * n);
    case DANAUS_DST1: return sine((k + 1) * (m + 1), n + 1);
    case DANAUS_DST2: return sine((k + 1) * (2 * m + 1), 2 * n);
    case DANAUS_DST3: return sine((2 * k + 1) * (m + 1), 2 * n);
    case DANAUS_DST4: return sine((2 * k + 1) * (2 * m + 1), 4 * n);
    default: return 0;
    }
}

/* f_1 = 1 and, on the halves of [0, 1), f_2k = (1-i) f_k, (1+i) f_k and f_2k+1 the other
   way round: row k is f_{n+k} at the n places, over n. */
static number noiselet(int64_t n, int64_t k, int64_t m)
{
    number product = 1;
    for (int64_t f = n + k, size = n; f > 1; f /= 2, size /= 2) {
        int second = m % size >= size / 2;
        product *= CMPLX(0.5, (f % 2 == 1) != second ? 0.5 : -0.5);
    }
    return product;
}

/* W x for one column of the butterfly of rotations: the last factor first. */
static void rotate(const danaus_transform_desc *desc, number *x)
{
    int64_t n = desc->n, stride = 1;
    int levels = 0;
    while (n >> (levels + 1))
        levels++;
    for (int l = levels - 1; l >= 0; l--, stride *= 2)
        for (int64_t at = 0; at < n / 2; at++) {
            double angle = desc->angles[l * (n / 2) + at];
            int64_t first = at / stride * 2 * stride + at % stride;
            number u = x[first], v = x[first + stride];
            x[first] = cos(angle) * u - sin(angle) * v;
            x[first + stride] = sin(angle) * u + cos(angle) * v;
        }
}

static void wave(const danaus_transform_desc *desc, number *x)
{
    int taps = 2 * (desc->moments ? desc->moments : 1), levels = desc->levels;
    double h[2 * DANAUS_MOST_MOMENTS];
    assert_ok(danaus_wavelet_filter(taps / 2, h));
    number *y = calloc((size_t)desc->n, sizeof *y);
    int64_t size = desc->n;
    for (int level = 0; levels ? level < levels : size % 2 == 0; level++, size /= 2) {
        for (int64_t k = 0; k < size / 2; k++) {
            number a = 0, d = 0;
            for (int m = 0; m < taps; m++) {
                a += h[m] * x[(2 * k + m) % size];
                d += (m % 2 ? -1 : 1) * h[taps - 1 - m] * x[(2 * k + m) % size];
            }
            y[k] = a;
            y[size / 2 + k] = d;
        }
        memcpy(x, y, (size_t)size * sizeof *x);
    }
    free(y);
}

matrix transform_by_definition(const danaus_transform_desc *desc, const number *values)
{
    int64_t n = desc->n;
    matrix a = matrix_make(n, n);
    number *x = calloc((size_t)n, sizeof *x);
    for (int64_t m = 0; m < n; m++) {
        for (int64_t k = 0; k < n; k++)
            x[k] = k == m;
        if (desc->kind == DANAUS_GIVENS)
            rotate(desc, x);
        else if (desc->kind == DANAUS_WAVELET)
            wave(desc, x);
        else
            for (int64_t k = 0; k < n; k++)
                x[k] = desc->kind == DANAUS_NOISELET    ? noiselet(n, k, m)
                       : desc->kind == DANAUS_CIRCULANT ? values[(k - m + n) % n]
                       : desc->kind == DANAUS_TOEPLITZ  ? values[k - m + n - 1]
                                                        : entry(desc->kind, n, k, m);
        for (int64_t k = 0; k < n; k++)
            a.at[k * n + m] = x[k];
    }
    free(x);
    return a;
}

static void scale(number *first, int64_t stride, int64_t count)
{
    double sum = 0;
    for (int64_t x = 0; x < count; x++)
        sum += creal(first[x * stride] * conj(first[x * stride]));
    for (int64_t x = 0; x < count; x++)
        first[x * stride] /= sqrt(sum);
}

void make_orthonormal(danaus_transform kind, matrix *a)
{
    int64_t n = a->cols;
    for (int64_t k = 0; kind == DANAUS_DCT1 && k < n; k++) {
        a->at[k * n] *= sqrt(0.5);
        a->at[k * n + n - 1] *= sqrt(0.5);
    }
    int columns = kind == DANAUS_DCT3 || kind == DANAUS_DST3;
    for (int64_t k = 0; k < n; k++)
        scale(a->at + (columns ? k : k * n), columns ? n : 1, n);
}

void expect_damage_is_refused(const char *path)
{
    danaus_operator *made = NULL;
    bytes b = file_bytes(path);
    for (size_t size = 0; size < b.size; size++) {
        file_write(path, b.data, size);
        assert_status(danaus_operator_load(path, &made), DANAUS_ERR_FORMAT);
    }
    for (uint64_t round = 0; round < 1000; round++) {
        rng r = { round };
        bytes changed = bytes_mutated(&r, &b);
        file_write(path, changed.data, changed.size);
        if (danaus_operator_load(path, &made) == DANAUS_OK)
            danaus_operator_destroy(made);
        else
            assert_null(made);
        made = NULL;
        bytes_free(&changed);
    }
    bytes_free(&b);
}
