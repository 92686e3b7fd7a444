/* Toeplitz systems T x = b by elimination in n^2 operations, with pivots.

   With Z_f, which shifts down and brings f times the last number to the top, Z_1 T - T Z_-1
   has rank 2: it is e_0 r^T + c e_(n-1)^T. Fourier's matrices make both shifts diagonal,
   Z_1 = F^H diag(p) F and Z_-1 = W diag(s) W^H, so that C = F T W has entries
       C[k][l] = (G[k] . B[l]) / (p_k - s_l),   p_k = w^(2k), s_l = w^(2l+1), w = e^(pi i / n)
   with G = F [e_0 c] and B = [r e_(n-1)]^T W. A step of elimination leaves a matrix of the same
   kind and changes only G and B. Rows may trade places, so that each pivot is the largest of its
   column.

   Source: Gohberg, Kailath, Olshevsky, Fast Gaussian elimination with partial pivoting for
   matrices with displacement structure, Math. Comp. 64 (1995). */
// SPDX-License-Identifier: Apache-2.0
#include "operator/transforms/transforms.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

typedef struct system {
    int64_t n, batch;
    root *units;     /* e^(pi i m / 2n), 0 <= m < 4n */
    double *halves;  /* 1 / (2 sin(pi m / 2n)), m odd */
    root *g, *b;     /* [n][2] */
    root *upper;     /* rows of what elimination leaves, one behind the other */
    root *column;    /* [n]: of C, then of multipliers */
    root *right, *x; /* [n][batch] */
    int64_t *row;    /* which of p a row has, after exchanges */
} system;

static root add(root x, root y) { return (root){ x.re + y.re, x.im + y.im }; }
static root less(root x, root y) { return (root){ x.re - y.re, x.im - y.im }; }

static root over(root x, root y)
{
    double size = hypot(y.re, y.im);
    root z = dn_times(x, (root){ y.re / size, -y.im / size });
    return (root){ z.re / size, z.im / size };
}

/* Entry of C: 1 / (p_k - s_l) = e^(-i pi (2k+2l+1)/2n) / (2 i sin(pi (2k-2l-1)/2n)). */
static root entry(const system *t, int64_t row, int64_t l)
{
    int64_t k = t->row[row], n = t->n, apart = 2 * k - 2 * l - 1;
    const root *g = t->g + 2 * row, *b = t->b + 2 * l;
    root z = add(dn_times(g[0], b[0]), dn_times(g[1], b[1]));
    double share = apart > 0 ? t->halves[apart] : -t->halves[-apart];
    root phase = t->units[(8 * n - (2 * k + 2 * l + 1) - n) % (4 * n)];
    return dn_times(z, (root){ phase.re * share, phase.im * share });
}

/* to[k] = sum over j of w^(sign (2k + odd) j) from[j] / sqrt(n), or, transposed, sum over k
   for j. */
static void turn(
    const system *t, int sign, int odd, int transposed, const root *from, int64_t step,
    root *to)
{
    int64_t n = t->n;
    for (int64_t y = 0; y < n; y++) {
        root sum = { 0 };
        for (int64_t x = 0; x < n; x++) {
            int64_t k = transposed ? x : y, j = transposed ? y : x;
            int64_t angle = 2 * ((2 * k + odd) * j % (2 * n));
            root unit = t->units[sign > 0 || !angle ? angle : 4 * n - angle];
            sum = add(sum, dn_times(unit, from[x * step]));
        }
        to[y * step] = (root){ sum.re / sqrt((double)n), sum.im / sqrt((double)n) };
    }
}

/* G = F [e_0 c] and B = [r e_(n-1)]^T W, from t_(i-j) = v[i - j + n - 1]. */
static void make_generators(const system *t, danaus_dtype dtype, const void *v)
{
    int64_t n = t->n;
    for (int64_t x = 0; x < n; x++) {
        double plus[2] = { 0 }, minus[2] = { 0 };
        dn_load(dtype, v, n - 1 + x, plus); /* c[x] = t_x + t_(x-n) */
        if (x > 0)
            dn_load(dtype, v, x - 1, minus);
        t->x[2 * x] = (root){ x == 0, 0 };
        t->x[2 * x + 1] =
            x > 0 ? (root){ plus[0] + minus[0], plus[1] + minus[1] } : (root){ 0, 0 };
    }
    turn(t, 1, 0, 0, t->x, 2, t->g);
    turn(t, 1, 0, 0, t->x + 1, 2, t->g + 1);
    for (int64_t x = 0; x < n; x++) {
        double plus[2] = { 0 }, minus[2] = { 0 };
        dn_load(dtype, v, 2 * n - 2 - x, plus); /* r[x] = t_(n-1-x) - t_(-1-x) */
        dn_load(dtype, v, x < n - 1 ? n - 2 - x : n - 1, minus);
        double sign = x < n - 1 ? -1 : 1;
        t->x[2 * x] = (root){ plus[0] + sign * minus[0], plus[1] + sign * minus[1] };
        t->x[2 * x + 1] = (root){ x == n - 1, 0 };
    }
    turn(t, -1, 1, 0, t->x, 2, t->b);
    turn(t, -1, 1, 0, t->x + 1, 2, t->b + 1);
}

static void exchange(root *x, int64_t first, int64_t second, int64_t width)
{
    for (int64_t s = 0; s < width; s++) {
        root turned = x[first * width + s];
        x[first * width + s] = x[second * width + s];
        x[second * width + s] = turned;
    }
}

/* Column k of C with its largest entry brought to row k; returns its modulus. */
static double choose_pivot(const system *t, int64_t k)
{
    int64_t pivot = k;
    double most = -1;
    for (int64_t i = k; i < t->n; i++) {
        t->column[i] = entry(t, i, k);
        double size = hypot(t->column[i].re, t->column[i].im);
        if (size > most) {
            most = size;
            pivot = i;
        }
    }
    int64_t row = t->row[k];
    t->row[k] = t->row[pivot];
    t->row[pivot] = row;
    exchange(t->g, k, pivot, 2);
    exchange(t->column, k, pivot, 1);
    exchange(t->right, k, pivot, t->batch);
    return most;
}

/* Row k of the remaining matrix goes to `upper`, and its share is subtracted from G, B and the
   right sides. */
static void eliminate(const system *t, int64_t k, root *upper)
{
    root pivot = t->column[k], g[2] = { t->g[2 * k], t->g[2 * k + 1] },
         b[2] = { t->b[2 * k], t->b[2 * k + 1] };
    for (int64_t j = k; j < t->n; j++)
        upper[j - k] = j > k ? entry(t, k, j) : pivot;
    for (int64_t i = k + 1; i < t->n; i++) {
        root share = over(t->column[i], pivot), across = over(upper[i - k], pivot);
        for (int s = 0; s < 2; s++) {
            t->g[2 * i + s] = less(t->g[2 * i + s], dn_times(share, g[s]));
            t->b[2 * i + s] = less(t->b[2 * i + s], dn_times(across, b[s]));
        }
        for (int64_t s = 0; s < t->batch; s++) {
            root *to = t->right + i * t->batch + s;
            *to = less(*to, dn_times(share, t->right[k * t->batch + s]));
        }
    }
}

static danaus_status factorize(const system *t)
{
    double largest = 0;
    root *upper = t->upper;
    for (int64_t k = 0; k < t->n; k++) {
        double pivot = choose_pivot(t, k);
        largest = fmax(largest, pivot);
        if (!(pivot > DBL_EPSILON * largest) || !isfinite(pivot))
            return dn_fail(
                DANAUS_ERR_ARGUMENT,
                "the Toeplitz matrix is singular, or not finite: pivot %" PRId64
                " is %g, and the largest before it %g",
                k, pivot, largest);
        eliminate(t, k, upper);
        upper += t->n - k;
    }
    return DANAUS_OK;
}

static void substitute(const system *t)
{
    int64_t n = t->n, batch = t->batch;
    const root *upper = t->upper + n * (n + 1) / 2;
    for (int64_t k = n - 1; k >= 0; k--) {
        upper -= n - k;
        for (int64_t s = 0; s < batch; s++) {
            root sum = t->right[k * batch + s];
            for (int64_t j = k + 1; j < n; j++)
                sum = less(sum, dn_times(upper[j - k], t->right[j * batch + s]));
            t->right[k * batch + s] = over(sum, upper[0]);
        }
    }
}

static danaus_status solve(
    const system *t, danaus_dtype dtype, const void *values, int last, const void *b,
    void *x)
{
    int64_t n = t->n, batch = t->batch;
    for (int64_t m = 0; m < 4 * n; m++) {
        t->units[m] = dn_conjugate(dn_root(m, 4 * n));
        t->halves[m] = m % 2 ? -0.5 / dn_root(m, 4 * n).im : 0;
    }
    for (int64_t k = 0; k < n; k++)
        t->row[k] = k;
    make_generators(t, dtype, values);
    for (int64_t at = 0; at < n * batch; at++) {
        double value[2] = { 0 };
        int64_t k = at / batch, s = at % batch;
        dn_load(dtype, b, last ? at : s * n + k, value);
        t->x[at] = (root){ value[0], value[1] };
    }
    for (int64_t s = 0; s < batch; s++)
        turn(t, 1, 0, 0, t->x + s, batch, t->right + s);
    TRY(factorize(t));
    substitute(t);
    for (int64_t s = 0; s < batch; s++)
        turn(t, -1, 1, 1, t->right + s, batch, t->x + s);
    for (int64_t at = 0; at < n * batch; at++) {
        int64_t k = at / batch, s = at % batch;
        dn_store(
            dtype, x, last ? at : s * n + k, (double[2]){ t->x[at].re, t->x[at].im });
    }
    return DANAUS_OK;
}

/* ---- the door ---- */

static danaus_status allocate(system *t)
{
    int64_t numbers;
    if (t->n < 1 || t->n > INT32_MAX || t->batch < 0 ||
        dn_mul_overflows(t->n, t->batch + 2, &numbers))
        return dn_fail(
            DANAUS_ERR_SHAPE, "%" PRId64 " systems of %" PRId64 " equations", t->batch,
            t->n);
    size_t n = (size_t)t->n, triangle = n * (n + 1) / 2;
    t->units = dn_calloc(4 * n, sizeof *t->units);
    t->halves = dn_calloc(4 * n, sizeof *t->halves);
    t->g = dn_calloc(2 * n, sizeof *t->g);
    t->b = dn_calloc(2 * n, sizeof *t->b);
    t->upper = dn_calloc(triangle, sizeof *t->upper);
    t->column = dn_calloc(n, sizeof *t->column);
    t->right = dn_calloc((size_t)numbers, sizeof *t->right);
    t->x = dn_calloc((size_t)numbers, sizeof *t->x);
    t->row = dn_calloc(n, sizeof *t->row);
    if (t->units && t->halves && t->g && t->b && t->upper && t->column && t->right &&
        t->x && t->row)
        return DANAUS_OK;
    return dn_fail_memory(triangle * sizeof *t->upper, "a triangle of numbers");
}

static void release(system *t)
{
    dn_free(t->units);
    dn_free(t->halves);
    dn_free(t->g);
    dn_free(t->b);
    dn_free(t->upper);
    dn_free(t->column);
    dn_free(t->right);
    dn_free(t->x);
    dn_free(t->row);
}

danaus_status danaus_toeplitz_solve(
    danaus_dtype dtype, int64_t n, const void *values, danaus_layout layout,
    int64_t batch, const void *b, void *x)
{
    if (!values || (batch && (!b || !x)))
        return dn_fail(DANAUS_ERR_ARGUMENT, "values, b and x are needed");
    TRY(dn_check_computed(dtype));
    if (layout != DANAUS_BATCH_FIRST && layout != DANAUS_BATCH_LAST)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no layout", (int)layout);
    system t = { .n = n, .batch = batch };
    danaus_status status = allocate(&t);
    if (status == DANAUS_OK)
        status = solve(&t, dtype, values, layout == DANAUS_BATCH_LAST, b, x);
    release(&t);
    return status;
}
