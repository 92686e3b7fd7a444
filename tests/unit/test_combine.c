/* Chains combined, transposed, scaled and fused: against dense matrices in plain loops, law
   by law, and what they may cost.

   Results are numbers that were copied, sums of a few that were rounded once, and products
   of factors, which the loops here multiply: so dense results differ by at most 20 units of
   the type times the product of the factors' norms. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "math/pattern.h"
#include "product/chain.h"
#include "support/chains.h"
#include "support/failing.h"
#include "support/matrix.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 150, MOST_TERMS = 3 };

static double size_of(danaus_chain *chain)
{
    double size = 1;
    for (int l = 0; l < danaus_chain_count(chain); l++) {
        danaus_pattern p = danaus_chain_pattern(chain, l);
        matrix w = matrix_unpack(
            danaus_chain_dtype(chain), danaus_chain_weights(chain, l), p.a * p.b,
            p.c * p.d);
        size *= matrix_norm(w);
        matrix_free(&w);
    }
    return size;
}

static double unit_of(danaus_chain *chain)
{
    return precision_of(danaus_chain_dtype(chain)).unit;
}

/* The chain is that matrix, but for rounding of numbers of that size; both are released. */
static void expect_matrix(danaus_chain *chain, matrix expected, double size)
{
    matrix found = chain_matrix(chain);
    assert_int_equal(found.rows, expected.rows);
    assert_int_equal(found.cols, expected.cols);
    double error = matrix_distance(found, expected);
    if (!(error <= 20 * unit_of(chain) * size))
        fail_msg("the error is %g, of numbers of %g", error, size);
    matrix_free(&found);
    matrix_free(&expected);
    danaus_chain_destroy(chain);
}

static danaus_dtype random_type(rng *r)
{
    return test_dtypes[rng_int(r, 0, TEST_DTYPES - 1)];
}

/* ---- terms of sums and stacks ---- */

typedef struct terms {
    int count;
    random_chain c[MOST_TERMS];
    const danaus_chain *chains[MOST_TERMS];
    matrix dense[MOST_TERMS];
    double size;
} terms;

static void add_term(
    rng *r, terms *t, const danaus_pattern *p, int count, danaus_dtype d)
{
    int n = t->count++;
    t->c[n] = chain_random(r, p, count, d, rng_int(r, 0, 1) != 0);
    t->chains[n] = t->c[n].chain;
    t->dense[n] = chain_matrix(t->c[n].chain);
    t->size += size_of(t->c[n].chain);
}

static void terms_free(terms *t)
{
    for (int s = 0; s < t->count; s++) {
        chain_free(&t->c[s]);
        matrix_free(&t->dense[s]);
    }
}

static danaus_chain *combine(danaus_combination how, const terms *t)
{
    danaus_chain *chain = NULL;
    assert_ok(danaus_chain_combine(how, t->chains, t->count, &chain));
    assert_null(danaus_chain_bias(chain));
    return chain;
}

/* Writes x into y with its first entry at (row, col), adding. */
static void put(matrix y, matrix x, int64_t row, int64_t col)
{
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t k = 0; k < x.cols; k++)
            y.at[(row + r) * y.cols + col + k] += x.at[r * x.cols + k];
}

/* All terms in one matrix, each so many rows and columns of itself after the one before. */
static matrix laid_out(const terms *t, int down, int right)
{
    int64_t rows = t->dense[0].rows, cols = t->dense[0].cols, row = 0, col = 0;
    for (int s = 1; s < t->count; s++) {
        rows += down ? t->dense[s].rows : 0;
        cols += right ? t->dense[s].cols : 0;
    }
    matrix all = matrix_make(rows, cols);
    for (int s = 0; s < t->count; s++) {
        put(all, t->dense[s], row, col);
        row += down ? t->dense[s].rows : 0;
        col += right ? t->dense[s].cols : 0;
    }
    return all;
}

static int64_t parameters(const terms *t)
{
    int64_t sum = 0;
    for (int s = 0; s < t->count; s++)
        sum += danaus_chain_parameters(t->chains[s]);
    return sum;
}

static void combinations_of_like_chains_are_those_of_matrices(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        rng r = { round };
        danaus_pattern p[4];
        int count = (int)rng_int(&r, 1, 4), many = (int)rng_int(&r, 1, MOST_TERMS);
        danaus_dtype dtype = random_type(&r);
        terms t = { 0 };
        random_patterns(&r, count, 24, p);
        for (int s = 0; s < many; s++)
            add_term(&r, &t, p, count, dtype);
        int64_t rows = t.dense[0].rows, cols = t.dense[0].cols;
        int64_t ones[] = { many * (rows + cols), many * rows, many * cols, 0 };
        for (int how = DANAUS_SUM; how <= DANAUS_BLOCK_DIAGONAL; how++) {
            danaus_chain *made = combine((danaus_combination)how, &t);
            assert_true(
                danaus_chain_parameters(made) <=
                parameters(&t) + ones[how - DANAUS_SUM]);
            expect_matrix(
                made,
                laid_out(
                    &t, how == DANAUS_VSTACK || how == DANAUS_BLOCK_DIAGONAL,
                    how == DANAUS_HSTACK || how == DANAUS_BLOCK_DIAGONAL),
                sqrt(many) * t.size);
        }
        terms_free(&t);
    }
}

/* Two factors that can be factorised: ranks add up, and nothing else is there. */
static void sums_of_two_factors_add_their_ranks(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        rng r = { round };
        int64_t a = rng_int(&r, 1, 3), x = rng_int(&r, 1, 5), y = rng_int(&r, 1, 5);
        int64_t q = rng_int(&r, 1, 5), p = rng_int(&r, 1, 5), d = rng_int(&r, 1, 3);
        danaus_dtype dtype = random_type(&r);
        terms t = { 0 };
        int64_t rank = 0;
        for (int s = 0; s < MOST_TERMS; s++) {
            int64_t of = rng_int(&r, 1, 4);
            danaus_pattern pair[] = { { a, q, x * of, y * d },
                                      { a * x, y * of, p, d } };
            add_term(&r, &t, pair, 2, dtype);
            rank += of;
        }
        danaus_chain *sum = combine(DANAUS_SUM, &t);
        assert_int_equal(danaus_chain_count(sum), 2);
        assert_int_equal(danaus_chain_pattern(sum, 0).c, x * rank);
        assert_int_equal(danaus_chain_pattern(sum, 1).b, y * rank);
        assert_int_equal(danaus_chain_parameters(sum), parameters(&t));
        expect_matrix(sum, laid_out(&t, 0, 0), t.size);
        terms_free(&t);
    }
}

/* Sides that no ones are put on may differ in size. */
static void stacks_of_unequal_matrices_cost_their_numbers(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        rng r = { round };
        int64_t m = rng_int(&r, 1, 9), b = rng_int(&r, 1, 4), d = rng_int(&r, 1, 3);
        danaus_dtype dtype = random_type(&r);
        terms wide = { 0 }, tall = { 0 };
        for (int s = 0; s < MOST_TERMS; s++) {
            int64_t c = rng_int(&r, 1, 6);
            danaus_pattern across[] = { { 1, m, b * c, d }, { c, b * d, 5, 1 } };
            danaus_pattern down[] = { { c, 5, b * d, 1 }, { 1, b * c, m, d } };
            add_term(&r, &wide, across, 2, dtype);
            add_term(&r, &tall, down, 2, dtype);
        }
        danaus_chain *across = combine(DANAUS_HSTACK, &wide);
        danaus_chain *down = combine(DANAUS_VSTACK, &tall);
        assert_int_equal(danaus_chain_parameters(across), parameters(&wide));
        assert_int_equal(danaus_chain_parameters(down), parameters(&tall));
        expect_matrix(across, laid_out(&wide, 0, 1), 2 * wide.size);
        expect_matrix(down, laid_out(&tall, 1, 0), 2 * tall.size);
        terms_free(&wide);
        terms_free(&tall);
    }
}

/* ---- products ---- */

static void products_associate_and_distribute(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        rng r = { round };
        danaus_pattern p[6];
        danaus_dtype dtype = random_type(&r);
        random_patterns(&r, 6, 20, p);
        terms t = { 0 };
        for (int s = 0; s < 3; s++)
            add_term(&r, &t, p + 2 * s, 2, dtype);
        danaus_chain *all = combine(DANAUS_PRODUCT, &t), *half = NULL, *other = NULL;
        assert_int_equal(danaus_chain_parameters(all), parameters(&t));
        assert_ok(danaus_chain_combine(DANAUS_PRODUCT, t.chains, 2, &half));
        const danaus_chain *two[] = { half, t.chains[2] };
        assert_ok(danaus_chain_combine(DANAUS_PRODUCT, two, 2, &other));
        matrix x = chain_matrix(all), y = chain_matrix(other);
        assert_true(matrix_distance(x, y) == 0);
        matrix left = matrix_times(t.dense[0], t.dense[1]);
        double size = size_of(all);
        expect_matrix(all, matrix_times(left, t.dense[2]), size);

        /* (A + A') B = A B + A' B, of single factors */
        terms like = { 0 };
        add_term(&r, &like, p + 1, 1, dtype);
        add_term(&r, &like, p + 1, 1, dtype);
        danaus_chain *sum = combine(DANAUS_SUM, &like), *product = NULL;
        const danaus_chain *sum_times[] = { sum, t.chains[1] };
        assert_ok(danaus_chain_combine(DANAUS_PRODUCT, sum_times, 2, &product));
        matrix added = laid_out(&like, 0, 0);
        expect_matrix(
            product, matrix_times(added, t.dense[1]),
            like.size * size_of(t.c[1].chain));
        danaus_chain_destroy(sum);
        danaus_chain_destroy(half);
        danaus_chain_destroy(other);
        matrix *each[] = { &x, &y, &left, &added };
        for (int n = 0; n < 4; n++)
            matrix_free(each[n]);
        terms_free(&like);
        terms_free(&t);
    }
}

static matrix kronecker(matrix x, matrix y)
{
    matrix all = matrix_make(x.rows * y.rows, x.cols * y.cols);
    for (int64_t r = 0; r < all.rows; r++)
        for (int64_t k = 0; k < all.cols; k++)
            all.at[r * all.cols + k] = x.at[r / y.rows * x.cols + k / y.cols] *
                                       y.at[r % y.rows * y.cols + k % y.cols];
    return all;
}

static void kronecker_products_are_those_of_matrices(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        rng r = { round };
        danaus_dtype dtype = random_type(&r);
        terms t = { 0 };
        for (int s = 0; s < MOST_TERMS; s++) {
            danaus_pattern p[3];
            int count = (int)rng_int(&r, 1, 3);
            random_patterns(&r, count, 5, p);
            add_term(&r, &t, p, count, dtype);
        }
        matrix two = kronecker(t.dense[0], t.dense[1]);
        matrix all = kronecker(two, t.dense[2]);
        danaus_chain *made = combine(DANAUS_KRONECKER, &t);
        double size = size_of(made);
        expect_matrix(made, all, size);
        matrix_free(&two);
        terms_free(&t);
    }
}

/* The order is that of fewest numbers: a low-rank matrix is small in its middle. */
static void kronecker_products_take_the_cheapest_order(void **state)
{
    (void)state;
    rng r = { 1 };
    terms t = { 0 };
    danaus_pattern low[] = { { 1, 30, 2, 1 }, { 1, 2, 40, 1 } },
                   square = { 1, 7, 7, 1 };
    add_term(&r, &t, low, 2, DANAUS_F64);
    add_term(&r, &t, &square, 1, DANAUS_F64);
    danaus_chain *made = combine(DANAUS_KRONECKER, &t);
    assert_int_equal(danaus_chain_count(made), 3);
    assert_int_equal(danaus_chain_parameters(made), 7 * (60 + 80) + 2 * 49);
    danaus_chain_destroy(made);
    terms_free(&t);
}

/* (A (x) B) (C (x) D) = A C (x) B D */
static void kronecker_products_multiply_one_by_one(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        rng r = { round };
        danaus_pattern p[2], q[2];
        random_patterns(&r, 2, 6, p);
        random_patterns(&r, 2, 6, q);
        terms t = { 0 }, u = { 0 };
        add_term(&r, &t, p, 1, DANAUS_C128);
        add_term(&r, &t, q, 1, DANAUS_C128);
        add_term(&r, &u, p + 1, 1, DANAUS_C128);
        add_term(&r, &u, q + 1, 1, DANAUS_C128);
        danaus_chain *left = combine(DANAUS_KRONECKER, &t);
        danaus_chain *right = combine(DANAUS_KRONECKER, &u), *both = NULL;
        const danaus_chain *two[] = { left, right };
        assert_ok(danaus_chain_combine(DANAUS_PRODUCT, two, 2, &both));
        matrix x = matrix_times(t.dense[0], u.dense[0]);
        matrix y = matrix_times(t.dense[1], u.dense[1]);
        double size = size_of(both);
        expect_matrix(both, kronecker(x, y), size);
        danaus_chain_destroy(left);
        danaus_chain_destroy(right);
        matrix_free(&x);
        matrix_free(&y);
        terms_free(&t);
        terms_free(&u);
    }
}

/* ---- transposes and diagonals ---- */

static void expect_same(danaus_chain *x, danaus_chain *y)
{
    assert_int_equal(danaus_chain_count(x), danaus_chain_count(y));
    for (int l = 0; l < danaus_chain_count(x); l++) {
        danaus_pattern p = danaus_chain_pattern(x, l), q = danaus_chain_pattern(y, l);
        assert_memory_equal(&p, &q, sizeof p);
        assert_memory_equal(
            danaus_chain_weights(x, l), danaus_chain_weights(y, l),
            (size_t)(p.a * p.b * p.c * p.d) * danaus_dtype_size(danaus_chain_dtype(x)));
    }
}

static void transposes_are_those_of_matrices(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        rng r = { round };
        danaus_pattern p[3];
        int count = (int)rng_int(&r, 1, 3);
        random_patterns(&r, count, 24, p);
        random_chain c = chain_random(&r, p, count, random_type(&r), 1);
        for (int conjugate = 0; conjugate < 2; conjugate++) {
            danaus_chain *turned = NULL, *back = NULL;
            assert_ok(danaus_chain_transpose(c.chain, conjugate, &turned));
            assert_ok(danaus_chain_transpose(turned, conjugate, &back));
            assert_null(danaus_chain_bias(turned));
            expect_same(back, c.chain);
            danaus_chain_destroy(back);
            matrix w = chain_matrix(c.chain), t = matrix_transposed(w);
            for (int64_t x = 0; conjugate && x < t.rows * t.cols; x++)
                t.at[x] = conj(t.at[x]);
            expect_matrix(turned, t, size_of(c.chain));
            matrix_free(&w);
        }
        chain_free(&c);
    }
}

static void diagonals_scale_rows_and_columns(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        rng r = { round };
        danaus_pattern p[3];
        int count = (int)rng_int(&r, 1, 3), which = (int)rng_int(&r, 0, 3);
        random_patterns(&r, count, 24, p);
        random_chain c = chain_random(&r, p, count, random_type(&r), 1);
        array rows = array_random(&r, c.dtype, c.rows);
        array cols = array_random(&r, c.dtype, c.cols);
        danaus_chain *scaled = NULL;
        assert_ok(danaus_chain_scale(
            c.chain, which & 1 ? rows.data : NULL, which & 2 ? cols.data : NULL,
            &scaled));
        assert_null(danaus_chain_bias(scaled));
        matrix w = chain_matrix(c.chain);
        for (int64_t x = 0; x < w.rows * w.cols; x++) {
            value u = element_get(c.dtype, rows.data, x / w.cols);
            value v = element_get(c.dtype, cols.data, x % w.cols);
            w.at[x] *= (which & 1 ? CMPLX(u.re, u.im) : 1) *
                       (which & 2 ? CMPLX(v.re, v.im) : 1);
        }
        expect_matrix(scaled, w, 2 * size_of(c.chain) + 1e-5);
        array_free(&rows);
        array_free(&cols);
        chain_free(&c);
    }
}

static void chains_convert_with_their_bias(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        rng r = { round };
        danaus_pattern p[2];
        random_patterns(&r, 2, 20, p);
        danaus_dtype to = random_type(&r);
        random_chain c = chain_random(&r, p, 2, random_type(&r), 1);
        danaus_chain *made = NULL;
        int loses = precision_of(c.dtype).complex && !precision_of(to).complex;
        danaus_status status = danaus_chain_convert(c.chain, to, &made);
        assert_int_equal(status, loses ? DANAUS_ERR_ARGUMENT : DANAUS_OK);
        assert_int_equal(made == NULL, loses);
        if (made) {
            array bias = array_make(to, c.rows);
            assert_ok(danaus_convert(c.dtype, c.bias.data, to, bias.data, c.rows));
            assert_memory_equal(
                danaus_chain_bias(made), bias.data,
                (size_t)c.rows * danaus_dtype_size(to));
            array_free(&bias);
            double unit = fmax(unit_of(made), unit_of(c.chain)) / unit_of(made);
            expect_matrix(made, chain_matrix(c.chain), unit * size_of(c.chain));
        }
        chain_free(&c);
    }
}

/* ---- fusing ---- */

/* Entries that paths through both factors reach. */
static int64_t reached(danaus_pattern p, danaus_pattern q)
{
    int64_t count = 0, middle = p.a * p.c * p.d;
    for (int64_t row = 0; row < p.a * p.b * p.d; row++)
        for (int64_t col = 0; col < q.a * q.c * q.d; col++) {
            int path = 0;
            for (int64_t m = 0; m < middle && !path; m++)
                path = in_support(p, row, m) && in_support(q, m, col);
            count += path;
        }
    return count;
}

static void neighbours_fuse_where_the_product_fills_a_pattern(void **state)
{
    (void)state;
    int fused_pairs = 0, refused = 0;
    for (uint64_t round = 0; round < 400; round++) {
        rng r = { round };
        danaus_pattern p[4];
        random_patterns(&r, 4, 12, p);
        random_chain c = chain_random(&r, p, 4, random_type(&r), 1);
        danaus_chain *fused = NULL;
        int from = (int)rng_int(&r, 0, 2);
        danaus_status status = danaus_chain_fuse(c.chain, from, from + 2, &fused);
        if (status != DANAUS_OK) {
            assert_int_equal(status, DANAUS_ERR_SHAPE);
            assert_non_null(strstr(danaus_error_detail(), "not Kronecker-sparse"));
            assert_null(fused);
            danaus_pattern all = dn_pattern_product(p[from], p[from + 1]);
            assert_true(reached(p[from], p[from + 1]) < dn_pattern_weights(all));
            refused++;
            chain_free(&c);
            continue;
        }
        assert_int_equal(danaus_chain_count(fused), 3);
        danaus_pattern made = danaus_chain_pattern(fused, from);
        assert_int_equal(dn_pattern_weights(made), reached(p[from], p[from + 1]));
        assert_memory_equal(
            danaus_chain_bias(fused), c.bias.data,
            (size_t)c.rows * danaus_dtype_size(c.dtype));
        expect_matrix(fused, chain_matrix(c.chain), size_of(c.chain));
        fused_pairs++;
        chain_free(&c);
    }
    assert_in_range(fused_pairs, 50, 400);
    assert_in_range(refused, 10, 400);
}

static void chainable_chains_fuse_whole(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        rng r = { round };
        danaus_pattern p[5];
        int count = (int)rng_int(&r, 1, 4);
        random_chainable(&r, count, 4, 3, 1, p);
        /* and with a diagonal, which fits anywhere */
        int64_t rows = p[0].a * p[0].b * p[0].d;
        memmove(p + 1, p, (size_t)count * sizeof *p);
        p[0] = (danaus_pattern){ rows, 1, 1, 1 };
        random_chain c = chain_random(&r, p, count + 1, DANAUS_C128, 0);
        danaus_chain *fused = NULL;
        assert_ok(danaus_chain_fuse(c.chain, 0, count + 1, &fused));
        assert_int_equal(danaus_chain_count(fused), 1);
        danaus_pattern made = danaus_chain_pattern(fused, 0);
        assert_int_equal(made.a, p[1].a);
        assert_int_equal(made.d, p[count].d);
        expect_matrix(fused, chain_matrix(c.chain), size_of(c.chain));
        chain_free(&c);
    }
}

/* ---- memory ---- */

static danaus_status make_all(void *arg)
{
    const terms *t = arg;
    danaus_status status = DANAUS_OK;
    for (int how = DANAUS_SUM; status == DANAUS_OK && how <= DANAUS_KRONECKER; how++) {
        danaus_chain *made = NULL;
        status = danaus_chain_combine((danaus_combination)how, t->chains, 2, &made);
        assert_int_equal(made == NULL, status != DANAUS_OK);
        danaus_chain_destroy(made);
    }
    for (int what = 0; status == DANAUS_OK && what < 4; what++) {
        danaus_chain *made = NULL;
        status = what == 0   ? danaus_chain_transpose(t->chains[0], 1, &made)
                 : what == 1 ? danaus_chain_fuse(t->chains[0], 0, 2, &made)
                 : what == 2 ? danaus_chain_scale(t->chains[0], NULL, NULL, &made)
                             : danaus_chain_convert(t->chains[0], DANAUS_C128, &made);
        assert_int_equal(made == NULL, status != DANAUS_OK);
        danaus_chain_destroy(made);
    }
    return status;
}

static void memory_that_runs_out_is_told(void **state)
{
    (void)state;
    rng r = { 3 };
    danaus_pattern p[] = { { 2, 2, 3, 2 }, { 6, 2, 2, 1 } };
    terms t = { 0 };
    add_term(&r, &t, p, 2, DANAUS_C64);
    add_term(&r, &t, p, 2, DANAUS_C64);
    array_free(&t.c[0].bias);
    t.c[0].bias = array_random(&r, DANAUS_C64, t.c[0].rows);
    assert_ok(danaus_chain_set_bias(t.c[0].chain, t.c[0].bias.data));
    assert_in_range(expect_memory_errors(make_all, &t), 20, 200);
    terms_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(combinations_of_like_chains_are_those_of_matrices),
        cmocka_unit_test(sums_of_two_factors_add_their_ranks),
        cmocka_unit_test(stacks_of_unequal_matrices_cost_their_numbers),
        cmocka_unit_test(products_associate_and_distribute),
        cmocka_unit_test(kronecker_products_are_those_of_matrices),
        cmocka_unit_test(kronecker_products_take_the_cheapest_order),
        cmocka_unit_test(kronecker_products_multiply_one_by_one),
        cmocka_unit_test(transposes_are_those_of_matrices),
        cmocka_unit_test(diagonals_scale_rows_and_columns),
        cmocka_unit_test(chains_convert_with_their_bias),
        cmocka_unit_test(neighbours_fuse_where_the_product_fills_a_pattern),
        cmocka_unit_test(chainable_chains_fuse_whole),
        cmocka_unit_test(memory_that_runs_out_is_told),
    };
    return cmocka_run_group_tests_name("combine", tests, NULL, NULL);
}
