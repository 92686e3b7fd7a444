/* The algebra that factorization rests on: supports, blocks, products of patterns,
   lattice chains, counts, costs. Supports here are made from the definition alone. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "math/pattern.h"
#include "product/patterns.h"
#include "support/device.h"
#include "support/factors.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdlib.h>
#include <string.h>

static danaus_pattern pattern_number(int n, int ad, int bc)
{
    return (danaus_pattern){ 1 + n % ad, 1 + n / ad % bc, 1 + n / ad / bc % bc,
                             1 + n / ad / bc / bc };
}

/* P of the perfect shuffle: (P x)[i p + j] = x[i + q j]. */
static matrix shuffle(int64_t p, int64_t q)
{
    matrix s = matrix_make(p * q, p * q);
    for (int64_t i = 0; i < q; i++)
        for (int64_t j = 0; j < p; j++)
            s.at[(i * p + j) * p * q + i + q * j] = 1;
    return s;
}

static matrix copies(int64_t a, matrix x)
{
    matrix all = matrix_make(a * x.rows, a * x.cols);
    for (int64_t i = 0; i < a; i++)
        for (int64_t r = 0; r < x.rows; r++)
            memcpy(
                all.at + (i * x.rows + r) * all.cols + i * x.cols, x.at + r * x.cols,
                (size_t)x.cols * sizeof(number));
    return all;
}

static matrix permuted(matrix left, matrix k, matrix right)
{
    matrix half = matrix_times(left, k), all = matrix_times(half, right);
    matrix_free(&half);
    return all;
}

/* T1.1 to T1.6, T1.8, T1.9 for one pattern: P K Q^T = blockdiag of dense blocks. */
static void check_pattern(danaus_pattern p)
{
    rng r = { (uint64_t)(p.a * 64 + p.b * 16 + p.c * 4 + p.d) };
    number *w = factor_random(&r, p, 1);
    matrix k = factor_dense(p, w);
    int64_t rows = p.a * p.b * p.d, cols = p.a * p.c * p.d, inside = 0;
    assert_int_equal(k.rows, dn_pattern_rows(p));
    assert_int_equal(k.cols, dn_pattern_cols(p));
    for (int64_t row = 0; row < rows; row++)
        for (int64_t col = 0; col < cols; col++) {
            assert_int_equal(in_support(p, row, col), k.at[row * cols + col] != 0);
            inside += in_support(p, row, col);
        }
    assert_int_equal(inside, dn_pattern_weights(p));
    assert_int_equal(inside * p.a * p.d, rows * cols);
    assert_int_equal((rows + cols) * p.b * p.c, (p.b + p.c) * inside);

    matrix pb = shuffle(p.b, p.d), pc = shuffle(p.c, p.d);
    matrix left = copies(p.a, pb), right = copies(p.a, pc);
    matrix turned = matrix_transposed(right), block = permuted(left, k, turned);
    ks_factors f = factors_from(&p, &w, 1, 1);
    const double *next = f.w[0];
    for (int64_t n = 0; n < p.a * p.d; n++)
        for (int64_t x = 0; x < p.b; x++)
            for (int64_t y = 0; y < p.c; y++, next += 2) {
                number *at = &block.at[(n * p.b + x) * cols + n * p.c + y];
                assert_true(*at == CMPLX(next[0], next[1]));
                *at = 0;
            }
    assert_true(matrix_norm(block) == 0);

    number *adjoint = calloc((size_t)inside, sizeof *adjoint);
    for (int64_t at = 0; at < inside; at++) {
        int64_t j = at % p.d, l = at / p.d % p.c, x = at / p.d / p.c % p.b;
        int64_t i = at / p.d / p.c / p.b;
        adjoint[((i * p.c + l) * p.b + x) * p.d + j] = conj(w[at]);
    }
    matrix kh = factor_dense(dn_pattern_adjoint(p), adjoint), kt = matrix_transposed(k);
    for (int64_t at = 0; at < rows * cols; at++)
        kt.at[at] = conj(kt.at[at]);
    assert_true(matrix_distance(kh, kt) == 0);

    matrix *each[] = { &k, &pb, &pc, &left, &right, &turned, &block, &kh, &kt };
    for (int x = 0; x < 9; x++)
        matrix_free(each[x]);
    dn_factors_free(&f);
    free(adjoint);
    free(w);
}

static void patterns_are_shuffled_block_diagonals(void **state)
{
    (void)state;
    int printed = 0;
    for (int n = 0; n < 81; n++) {
        danaus_pattern p = pattern_number(n, 3, 3);
        check_pattern(p);
        /* T1.7: the published formula has the transposes on the other side. */
        number ones[81];
        for (int x = 0; x < 81; x++)
            ones[x] = 1;
        matrix support = factor_dense(p, ones);
        danaus_pattern flat = { p.a * p.d, p.b, p.c, 1 };
        matrix blocks = factor_dense(flat, ones), pb = shuffle(p.b, p.d);
        matrix pc = shuffle(p.c, p.d), left = copies(p.a, pb), right = copies(p.a, pc);
        matrix turned = matrix_transposed(right), made = permuted(left, blocks, turned);
        printed += matrix_distance(made, support) == 0;
        matrix *each[] = { &support, &blocks, &pb, &pc, &left, &right, &turned, &made };
        for (int x = 0; x < 8; x++)
            matrix_free(each[x]);
    }
    assert_int_equal(printed, 51);
}

/* S_p S_q = r S_{p q}, entry by entry. */
static int is_multiple_of_a_support(danaus_pattern p, danaus_pattern q)
{
    if (p.a * p.c % q.a || p.b * p.d % q.d || q.a * q.c % p.a)
        return 0;
    danaus_pattern product = { p.a, p.b * p.d / q.d, q.a * q.c / p.a, q.d };
    int64_t rank = p.a * p.c / q.a, inner = p.a * p.c * p.d;
    if (dn_pattern_rows(product) != dn_pattern_rows(p) ||
        dn_pattern_cols(product) != dn_pattern_cols(q))
        return 0;
    for (int64_t row = 0; row < dn_pattern_rows(p); row++)
        for (int64_t col = 0; col < dn_pattern_cols(q); col++) {
            int64_t paths = 0;
            for (int64_t t = 0; t < inner; t++)
                paths += in_support(p, row, t) && in_support(q, t, col);
            if (paths != (in_support(product, row, col) ? rank : 0))
                return 0;
        }
    return 1;
}

/* T2.1, T2.2 */
static void chainable_pairs_are_those_whose_supports_multiply(void **state)
{
    (void)state;
    int pairs = 0, chainable = 0;
    for (int n = 0; n < 144; n++)
        for (int m = 0; m < 144; m++) {
            danaus_pattern p[2] = { pattern_number(n, 4, 3), pattern_number(m, 4, 3) };
            if (dn_pattern_cols(p[0]) != dn_pattern_rows(p[1]))
                continue;
            int transposed;
            int ok =
                dn_patterns_direction(p, 2, &transposed) == DANAUS_OK && !transposed;
            assert_int_equal(ok, is_multiple_of_a_support(p[0], p[1]));
            assert_int_equal(
                p[0].a * p[0].c % p[1].a == 0, p[1].b * p[1].d % p[0].d == 0);
            pairs++;
            chainable += ok;
        }
    assert_int_equal(pairs, 1836);
    assert_true(chainable > 0);
}

/* T2.3 to T2.7 */
static void products_are_associative_and_keep_ranks(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(400); round++) {
        rng r = { round };
        danaus_pattern p[5], back[5], again[5];
        int n = (int)rng_int(&r, 2, 5);
        random_chainable(&r, n, 3, 2, 1, p);
        assert_ok(danaus_patterns_check_chainable(p, n));
        dn_patterns_transpose(p, n, back);
        dn_patterns_transpose(back, n, again);
        assert_memory_equal(p, again, (size_t)n * sizeof *p);
        danaus_pattern all = dn_patterns_product(p, n);
        for (int s = 1; s < n; s++) {
            int64_t rank = dn_pair_rank(p[s - 1], p[s]);
            danaus_pattern x = dn_patterns_product(p, s);
            danaus_pattern y = dn_patterns_product(p + s, n - s);
            danaus_pattern xy = dn_pattern_product(x, y);
            assert_int_equal(rank, p[s].b * p[s].d / p[s - 1].d);
            assert_int_equal(rank, dn_pair_rank(x, p[s]));
            assert_int_equal(rank, dn_pair_rank(p[s - 1], y));
            assert_true(dn_pattern_equal(xy, all));
        }
        if (all.a > 1 || all.d > 1)
            continue;
        for (int l = 0; l < n; l++) /* P, Q and ranks give the chain back */
            for (int k = l + 1; k <= n; k++) {
                int64_t left = l ? dn_pair_rank(p[l - 1], p[l]) : 1;
                int64_t right = k < n ? dn_pair_rank(p[k - 1], p[k]) : 1;
                int64_t q_l = l ? p[l - 1].d : all.b, p_k = k < n ? p[k].a : all.c;
                danaus_pattern part = dn_patterns_product(p + l, k - l);
                assert_int_equal(dn_pattern_weights(part), left * right * q_l * p_k);
                if (k == l + 1)
                    assert_true(dn_pattern_equal(
                        p[l], (danaus_pattern){ p[l].a, left * q_l / p[l].d,
                                                right * p_k / p[l].a, p[l].d }));
                for (int s = l + 1; s < k; s++) {
                    ks_pair pair = dn_pair(
                        dn_patterns_product(p + l, s - l),
                        dn_patterns_product(p + s, k - s));
                    assert_int_equal(
                        pair.p.a * pair.p.d * pair.groups_of_columns *
                            pair.groups_of_rows,
                        p[s].a * p[s - 1].d);
                    assert_int_equal(pair.p1.b, left * q_l / p[s - 1].d);
                    assert_int_equal(pair.p2.c, right * p_k / p[s].a);
                }
            }
    }
}

/* T4.1 */
static void blocks_of_a_split_are_disjoint_and_cover_the_support(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(60); round++) {
        rng r = { round };
        danaus_pattern p[2];
        random_chainable(&r, 2, 3, 2, 1, p);
        int64_t rows = dn_pattern_rows(p[0]), cols = dn_pattern_cols(p[1]);
        int64_t inner = dn_pattern_cols(p[0]), rank = dn_pair_rank(p[0], p[1]);
        danaus_pattern whole = dn_pattern_product(p[0], p[1]);
        for (int64_t row = 0; row < rows; row++)
            for (int64_t col = 0; col < cols; col++) {
                int64_t paths = 0;
                for (int64_t t = 0; t < inner; t++)
                    paths += in_support(p[0], row, t) && in_support(p[1], t, col);
                assert_int_equal(paths, in_support(whole, row, col) ? rank : 0);
            }
    }
}

/* T2.10 */
static void fusing_gives_the_weights_of_the_product(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(100); round++) {
        rng r = { round };
        danaus_pattern p[2];
        int complex = (int)(round % 2);
        random_chainable(&r, 2, 3, 2, 1, p);
        number *w[] = { factor_random(&r, p[0], complex),
                        factor_random(&r, p[1], complex) };
        ks_factors f = factors_from(p, w, 2, complex);
        ks_pair pair = dn_pair(p[0], p[1]);
        ks_factors fused = { .complex = complex, .count = 1, .p = { pair.p } };
        fused.w[0] = dn_work_alloc(complex, pair.p);
        ks_run run = { 0 };
        assert_ok(dn_fuse(&run, &pair, complex, f.w[0], f.w[1], fused.w[0]));
        matrix made = factors_matrix(&fused), exact = chain_product(p, w, 2);
        assert_true(matrix_distance(made, exact) <= 1e-13 * matrix_norm(exact));
        double residual;
        ks_view view = dn_view_work(complex, pair.p, fused.w[0]);
        assert_ok(dn_pair_residual(&run, &pair, &view, f.w[0], f.w[1], &residual));
        assert_true(residual < 1e-24);
        matrix_free(&made);
        matrix_free(&exact);
        dn_factors_free(&f);
        dn_factors_free(&fused);
        free(w[0]);
        free(w[1]);
    }
}

/* T8.4: the rank of the derivative of the product in all weights. */
static void degrees_of_freedom_are_weights_less_gauges(void **state)
{
    (void)state;
    const char *chains[] = { "1,2,2,4 2,2,2,2 4,2,2,1", "1,3,2,4 2,2,2,2 4,2,3,1",
                             "1,4,6,6 3,4,4,3 6,6,4,1" };
    for (int x = 0; x < rounds_of(3); x++) {
        danaus_pattern p[3];
        int count;
        assert_ok(danaus_patterns_parse(chains[x], p, 3, &count));
        rng r = { (uint64_t)x };
        number *w[3];
        int64_t weights = 0, gauges = 0, row = 0;
        for (int l = 0; l < 3; l++) {
            w[l] = factor_random(&r, p[l], 0);
            weights += dn_pattern_weights(p[l]);
        }
        for (int l = 0; l < 2; l++) {
            int64_t rank = dn_pair_rank(p[l], p[l + 1]);
            assert_false(dn_pair_redundant(p[l], p[l + 1]));
            gauges += rank * rank * p[l + 1].a * p[l].d;
        }
        matrix derivative =
            matrix_make(weights, dn_pattern_rows(p[0]) * dn_pattern_cols(p[2]));
        for (int l = 0; l < 3; l++)
            for (int64_t e = 0; e < dn_pattern_weights(p[l]); e++, row++) {
                number *kept = w[l];
                w[l] = calloc((size_t)dn_pattern_weights(p[l]), sizeof *kept);
                w[l][e] = 1;
                matrix d = chain_product(p, w, 3);
                memcpy(
                    derivative.at + row * derivative.cols, d.at,
                    (size_t)derivative.cols * sizeof *d.at);
                matrix_free(&d);
                free(w[l]);
                w[l] = kept;
            }
        double *s = calloc((size_t)weights, sizeof *s);
        matrix_singular_values(derivative, s);
        int64_t rank = 0;
        while (rank < derivative.cols && rank < weights && s[rank] > 1e-9 * s[0])
            rank++;
        assert_int_equal(rank, weights - gauges);
        free(s);
        matrix_free(&derivative);
        for (int l = 0; l < 3; l++)
            free(w[l]);
    }
}

/* ---- costs ---- */

/* Least work over all trees, by recursion. */
static double cheapest_tree(const danaus_pattern *p, int lo, int hi)
{
    double best = hi - lo < 2 ? 0 : INFINITY;
    for (int s = lo + 1; s < hi; s++) {
        ks_pair pair = dn_pair(
            dn_patterns_product(p + lo, s - lo), dn_patterns_product(p + s, hi - s));
        best = fmin(
            best,
            dn_pair_work(&pair) + cheapest_tree(p, lo, s) + cheapest_tree(p, s, hi));
    }
    return best;
}

/* T12.4, T12.5 */
static void the_cheapest_order_for_a_butterfly_is_a_sweep(void **state)
{
    (void)state;
    for (int order = 4; order <= 12; order += 4) {
        danaus_pattern p[12];
        int count, splits[12];
        int64_t n = INT64_C(1) << order, entries = 0;
        danaus_chain_desc desc = { .kind = DANAUS_CHAIN_DYADIC, .rows = n, .cols = n };
        assert_ok(danaus_patterns_make(&desc, p, 12, &count));
        dn_order_splits(DANAUS_ORDER_AUTO, p, count, splits);
        double work = dn_order_work(p, count, splits);
        for (int s = 1; s < count; s++) {
            assert_int_equal(splits[s - 1], s);
            danaus_pattern rest = dn_patterns_product(p + s - 1, count - s + 1);
            entries += dn_pattern_weights(rest);
        }
        assert_true(entries < 2 * n * n && work <= 4 * (double)(n * n));
        if (order < 12)
            assert_true(work == cheapest_tree(p, 0, count));
        dn_order_splits(DANAUS_ORDER_BALANCED, p, count, splits);
        assert_true(dn_order_work(p, count, splits) > work);
    }
    int64_t q[] = { 2, 2, 8 }, w[] = { 8, 2, 2 };
    danaus_chain_desc desc = { .kind = DANAUS_CHAIN_RADICES,
                               .rows = 32,
                               .cols = 32,
                               .order = 3,
                               .row_radices = q,
                               .col_radices = w };
    for (int x = 0; x < 2; x++) {
        danaus_pattern p[3];
        int count, splits[3], other[3];
        assert_ok(danaus_patterns_make(&desc, p, 3, &count));
        dn_order_splits(DANAUS_ORDER_AUTO, p, count, splits);
        double work = dn_order_work(p, count, splits);
        for (int order = DANAUS_ORDER_LEFT_TO_RIGHT;
             order <= DANAUS_ORDER_RIGHT_TO_LEFT; order++) {
            dn_order_splits((danaus_order)order, p, count, other);
            assert_true(work <= dn_order_work(p, count, other));
        }
        desc.row_radices = w;
        desc.col_radices = q;
    }
}

/* T12.3 */
static void gaussian_matrices_err_as_the_null_model_says(void **state)
{
    (void)state;
    int64_t sizes[][2] = { { 16, 16 }, { 32, 32 }, { 8, 64 } };
    for (int x = 0; x < rounds_of(3); x++) {
        int64_t m = sizes[x][0], n = sizes[x][1], size = m * n;
        danaus_pattern p[] = { { 1, m, m, n }, { m, n, n, 1 } };
        ks_pair pair = dn_pair(p[0], p[1]);
        double rows = (double)pair.p1.b, cols = (double)pair.p2.c;
        rng r = { (uint64_t)x };
        matrix w = matrix_gauss(&r, size, size, 0);
        double delta;
        ks_factors f = swept(w, 0, p, 2, &delta);
        double expected = sqrt(1 - pow(sqrt(rows) + sqrt(cols), 2) / (rows * cols));
        assert_true(fabs(delta / matrix_norm(w) / expected - 1) < 0.03);
        dn_factors_free(&f);
        matrix_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_are_shuffled_block_diagonals),
        cmocka_unit_test(chainable_pairs_are_those_whose_supports_multiply),
        cmocka_unit_test(products_are_associative_and_keep_ranks),
        cmocka_unit_test(blocks_of_a_split_are_disjoint_and_cover_the_support),
        cmocka_unit_test(fusing_gives_the_weights_of_the_product),
        cmocka_unit_test(degrees_of_freedom_are_weights_less_gauges),
        cmocka_unit_test(the_cheapest_order_for_a_butterfly_is_a_sweep),
        cmocka_unit_test(gaussian_matrices_err_as_the_null_model_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
