/* Layers fitted to moments: losses are those of the definition, none near by is better, ranks
   are what they say; budgets against all ways to share a few weights out. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "math/lapack_library.h"
#include "model/compress/fit.h"
#include "danaus/factorize.h"
#include "support/device.h"
#include "support/losses.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST 24

/* A random layer, samples and weights of errors. */
typedef struct scene {
    int64_t rows, cols, samples;
    double weight[MOST * MOST], side[MOST * MOST], x[200 * MOST], y[200 * MOST];
    double ridge;
    moments m;
    fit_problem p;
} scene;

static scene *make(rng *r, double ridge)
{
    scene *s = calloc(1, sizeof *s);
    s->rows = rng_int(r, 2, MOST);
    s->cols = rng_int(r, 2, MOST);
    s->samples = rng_int(r, 60, 200);
    s->ridge = ridge;
    for (int64_t i = 0; i < s->rows * s->cols; i++)
        s->weight[i] = rng_sign(r);
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = 0; j <= i; j++)
            s->side[i * s->rows + j] = i == j ? 1 + rng_unit(r) : rng_sign(r);
    assert_ok(dn_moments_make(s->rows, s->cols, &s->m));
    s->m.count = s->samples;
    for (int64_t n = 0; n < s->samples; n++) {
        double *x = s->x + n * s->cols, *y = s->y + n * s->rows;
        for (int64_t j = 0; j < s->cols; j++)
            x[j] = 0.5 + rng_sign(r) * (double)(1 + j % 3);
        for (int64_t i = 0; i < s->rows; i++) {
            y[i] = rng_sign(r);
            for (int64_t j = 0; j < s->cols; j++)
                y[i] += s->weight[i * s->cols + j] * x[j];
            s->m.y[i] += y[i];
            s->m.energy += y[i] * y[i];
            for (int64_t j = 0; j < s->cols; j++)
                s->m.yx[i * s->cols + j] += y[i] * x[j];
        }
        for (int64_t i = 0; i < s->cols; i++) {
            s->m.x[i] += x[i];
            for (int64_t j = 0; j < s->cols; j++)
                s->m.xx[i * s->cols + j] += x[i] * x[j];
        }
    }
    assert_ok(dn_problem_make(&s->m, s->weight, s->side, ridge, &s->p));
    return s;
}

static void end(scene *s)
{
    dn_problem_free(&s->p);
    dn_moments_free(&s->m);
    free(s);
}

/* || S^T e ||^2 */
static double weighed(const scene *s, const double *e)
{
    double total = 0;
    for (int64_t j = 0; j < s->rows; j++) {
        double part = 0;
        for (int64_t i = j; i < s->rows; i++)
            part += s->side[i * s->rows + j] * e[i];
        total += part * part;
    }
    return total;
}

/* The loss of fit.h, over all samples. */
static double loss_of(const scene *s, const double *k, const double *bias)
{
    double total = 0, e[MOST];
    for (int64_t n = 0; n < s->samples; n++) {
        for (int64_t i = 0; i < s->rows; i++) {
            e[i] = s->y[n * s->rows + i] - bias[i];
            for (int64_t j = 0; j < s->cols; j++)
                e[i] -= k[i * s->cols + j] * s->x[n * s->cols + j];
        }
        total += weighed(s, e) / (double)s->samples;
    }
    for (int64_t j = 0; j < s->cols; j++) {
        for (int64_t i = 0; i < s->rows; i++)
            e[i] = s->weight[i * s->cols + j] - k[i * s->cols + j];
        total += s->p.lambda * weighed(s, e);
    }
    return total;
}

static void multiply_out(const fit *f, double *k)
{
    for (int64_t i = 0; i < f->rows; i++)
        fit_row(f, i, k + i * f->cols);
}

/* Moves a number of the factors or the bias either way: the loss never falls. */
static void expect_least(const scene *s, fit *f, double least)
{
    double k[MOST * MOST];
    double *const parts[] = { f->left, f->basis, f->bias };
    const int64_t sizes[] = { f->dense ? 0 : f->rows * f->rank, f->rank * f->cols,
                              f->rows };
    for (int part = 0; part < 3; part++)
        for (int64_t i = 0; i < sizes[part]; i++)
            for (int way = -1; way <= 1; way += 2) {
                double before = parts[part][i];
                parts[part][i] += way * 1e-4 * (fabs(before) + 0.1);
                multiply_out(f, k);
                assert_true(loss_of(s, k, f->bias) >= least * (1 - 1e-12));
                parts[part][i] = before;
            }
}

static void fits_have_the_least_loss_of_their_rank(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        scene *s = make(&r, rng_int(&r, 0, 1) ? 1e-6 : 0.3);
        int64_t least = s->rows < s->cols ? s->rows : s->cols;
        double gains[MOST], k[MOST * MOST];
        assert_ok(dn_problem_gains(&s->p, gains));
        fit dense;
        assert_ok(dn_problem_fit(&s->p, 0, &dense));
        multiply_out(&dense, k);
        double rest = loss_of(s, k, dense.bias);
        expect_least(s, &dense, rest);
        for (int64_t rank = least - 1; rank > 0; rank--) {
            fit f;
            rest += gains[rank];
            assert_ok(dn_problem_fit(&s->p, rank, &f));
            multiply_out(&f, k);
            double found = loss_of(s, k, f.bias);
            if (!(fabs(found - rest) <= 1e-8 * rest))
                fail_msg(
                    "%d x %d of rank %d: the loss is %.12g, not %.12g", (int)s->rows,
                    (int)s->cols, (int)rank, found, rest);
            expect_least(s, &f, found);
            for (int64_t t = 0; t < rank; t++)
                for (int64_t u = 0; u < rank; u++)
                    assert_true(f.left[f.kept[t] * rank + u] == (t == u));
            dn_fit_free(&f);
        }
        dn_fit_free(&dense);
        end(s);
    }
}

/* ---- chains ---- */

#define ALL_CANDIDATES (2 * DANAUS_TRY_SUM - 1)

static int64_t weights_of_fit(const fit *f)
{
    int64_t sum = 0;
    for (int n = 0; n < 2 && f->chain[n]; n++)
        for (int l = 0; l < danaus_chain_count(f->chain[n]); l++) {
            danaus_pattern p = danaus_chain_pattern(f->chain[n], l);
            sum += p.a * p.b * p.c * p.d;
        }
    return f->chain[0] ? sum : dn_fit_parameters(f->rows, f->cols, f->rank);
}

/* The loss and the error that are told are those of all samples. */
static void expect_rated(const scene *s, const fit *f)
{
    double k[MOST * MOST], error = 0, energy = 0;
    fit dense;
    assert_ok(dn_problem_fit(&s->p, 0, &dense));
    multiply_out(&dense, k);
    double least = loss_of(s, k, dense.bias);
    multiply_out(f, k);
    double found = loss_of(s, k, f->bias);
    if (!(fabs(least + f->loss - found) <= 1e-8 * found + 1e-20 * s->m.energy))
        fail_msg("the loss is %.12g, not %.12g", found, least + f->loss);
    for (int64_t n = 0; n < s->samples; n++)
        for (int64_t i = 0; i < s->rows; i++) {
            double y = s->y[n * s->rows + i], e = y - f->bias[i];
            for (int64_t j = 0; j < s->cols; j++)
                e -= k[i * s->cols + j] * s->x[n * s->cols + j];
            error += e * e;
            y -= s->m.y[i] / (double)s->samples;
            energy += y * y;
        }
    assert_true(fabs(f->error * f->error - error / energy) < 1e-12);
    dn_fit_free(&dense);
}

/* The layer becomes block-diagonal, or that and a matrix of rank 1; targets are W x. */
static void plant(scene *s, rng *r, int64_t parts, int low_rank)
{
    int64_t rows = s->rows, cols = s->cols;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            s->weight[i * cols + j] =
                (i * parts / rows == j * parts / cols) * rng_sign(r) +
                low_rank * (double)((i % 3 - 1) * (j % 5 - 2));
    dn_moments_map(s->weight, &s->m);
    s->m.energy = 0;
    for (int64_t n = 0; n < s->samples; n++)
        for (int64_t i = 0; i < rows; i++) {
            double y = 0;
            for (int64_t j = 0; j < cols; j++)
                y += s->weight[i * cols + j] * s->x[n * cols + j];
            s->y[n * rows + i] = y;
            s->m.energy += y * y;
        }
    dn_problem_free(&s->p);
    assert_ok(dn_problem_make(&s->m, s->weight, s->side, s->ridge, &s->p));
}

static scene *make_divisible(rng *r, int64_t by, double ridge)
{
    for (;;) {
        scene *s = make(r, ridge);
        if (s->rows % by == 0 && s->cols % by == 0 && s->rows > by && s->cols > by)
            return s;
        end(s);
    }
}

static void chains_lose_no_more_than_low_rank(void **state)
{
    (void)state;
    int chains = 0;
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)(500 + round) };
        scene *s = round % 2 ? make(&r, 0.05) : make_divisible(&r, 2, 0.05);
        if (round % 2 == 0)
            plant(s, &r, 2, 0);
        int64_t least = s->rows < s->cols ? s->rows : s->cols;
        int64_t rank = rng_int(&r, 1, least - 1);
        fit plain, f;
        assert_ok(dn_problem_fit(&s->p, rank, &plain));
        assert_ok(dn_problem_best(&s->p, rank, ALL_CANDIDATES, &f));
        assert_true(f.loss <= plain.loss && (f.chain[0] || f.loss == plain.loss));
        assert_true(weights_of_fit(&f) <= dn_fit_parameters(s->rows, s->cols, rank));
        expect_rated(s, &f);
        chains += f.chain[0] != NULL;
        dn_fit_free(&f);
        dn_fit_free(&plain);
        end(s);
    }
    assert_true(chains > 0);
}

/* Whatever weighs errors of outputs. The terms of a sum take turns, and come near slowly. */
static void structure_is_found_again(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        rng r = { (uint64_t)round };
        scene *s = make_divisible(&r, 4, 1e-6);
        plant(s, &r, 4, round % 2);
        int64_t rank = 1, needed = s->rows * s->cols / 4 + s->rows + s->cols;
        while (dn_fit_parameters(s->rows, s->cols, rank) < needed)
            rank++;
        fit plain, f;
        assert_ok(dn_problem_fit(&s->p, rank, &plain));
        assert_ok(dn_problem_best(&s->p, rank, DANAUS_TRY_SUM, &f));
        assert_true(f.chain[0] && f.chain[1]);
        assert_true(f.error < plain.error / (round % 2 ? 5 : 1000));
        dn_fit_free(&f);
        dn_fit_free(&plain);
        end(s);
    }
}

static void errors_are_those_of_a_recomputation(void **state)
{
    (void)state;
    rng r = { 17 };
    scene *s = make(&r, 0.05);
    fit f;
    assert_ok(dn_problem_fit(&s->p, 1, &f));
    expect_rated(s, &f);
    dn_fit_free(&f);
    end(s);
}

static void sides_are_roots(void **state)
{
    (void)state;
    rng r = { 4 };
    enum { N = 7 };
    double g[N * N] = { 0 }, s[N * N], level = 0;
    for (int sample = 0; sample < 3;
         sample++) { /* of rank 3: the share makes it whole */
        double v[N];
        for (int i = 0; i < N; i++)
            v[i] = rng_sign(&r);
        for (int i = 0; i < N * N; i++)
            g[i] += v[i / N] * v[i % N];
    }
    memcpy(s, g, sizeof s);
    assert_ok(dn_side_make(N, 3, s));
    for (int i = 0; i < N; i++)
        level += g[i * N + i] / 3 / N;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double product = 0, wanted = g[i * N + j] / 3 + (i == j) * 1e-3 * level;
            for (int k = 0; k < N; k++)
                product += s[i * N + k] * s[j * N + k];
            assert_true(fabs(product - wanted) < 1e-14);
            assert_true(j <= i || s[i * N + j] == 0);
        }
}

/* The least loss of all ways to choose for layers from `l` on with so many weights left. */
static double best_of(const choices *c, int layers, int l, int64_t left)
{
    if (l == layers)
        return 0;
    double best = INFINITY;
    for (int64_t i = 0; i < c[l].count && c[l].costs[i] <= left; i++)
        best = fmin(
            best, c[l].losses[i] + best_of(c, layers, l + 1, left - c[l].costs[i]));
    return c[l].count ? best : best_of(c, layers, l + 1, left);
}

static void budgets_are_kept_and_hardly_to_be_beaten(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        rng r = { (uint64_t)round };
        enum { LAYERS = 4, CHOICES = 6 };
        double losses[LAYERS][CHOICES], whole = 0, found = 0, step = 0;
        int64_t costs[LAYERS][CHOICES], total = 0, spent = 0, least = 0;
        choices c[LAYERS] = { { 0 } };
        for (int l = 0; l < LAYERS; l++) {
            /* Convex: each weight more gains less, as singular values do. */
            double gain = 1 + rng_unit(&r);
            c[l] = (choices){ rng_int(&r, 0, 3) ? CHOICES : 0, losses[l], costs[l], 0 };
            for (int i = CHOICES - 1; i >= 0; i--)
                losses[l][i] = i == CHOICES - 1
                                   ? 0
                                   : losses[l][i + 1] + 1e-3 * pow(gain, CHOICES - i);
            for (int i = 0; i < CHOICES; i++)
                costs[l][i] = i ? costs[l][i - 1] + 7 : rng_int(&r, 1, 9);
            if (!c[l].count)
                continue;
            least += costs[l][0];
            total += costs[l][CHOICES - 1];
            whole += losses[l][0];
            step = fmax(step, losses[l][0] - losses[l][1]);
        }
        if (!total)
            continue;
        int64_t budget = rng_int(&r, least, total);
        assert_ok(dn_share_out(budget, LAYERS, c));
        for (int l = 0; l < LAYERS; l++)
            if (c[l].count) {
                found += losses[l][c[l].chosen];
                spent += costs[l][c[l].chosen];
            }
        assert_in_range(spent, least, budget);
        assert_true(found <= whole);
        /* Lagrange's choice misses at most the gain of one step. */
        assert_true(found <= best_of(c, LAYERS, 0, budget) + step + 1e-15);
        assert_status(dn_share_out(least - 1, LAYERS, c), DANAUS_ERR_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fits_have_the_least_loss_of_their_rank),
        cmocka_unit_test(errors_are_those_of_a_recomputation),
        cmocka_unit_test(chains_lose_no_more_than_low_rank),
        cmocka_unit_test(structure_is_found_again),
        cmocka_unit_test(sides_are_roots),
        cmocka_unit_test(budgets_are_kept_and_hardly_to_be_beaten),
    };
    if (dn_lapack_begin(1) != DANAUS_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dn_lapack_end(1);
    return failed;
}
