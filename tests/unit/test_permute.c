/* Permutations in which a matrix is near to a chain, against the errors of blocks by plain
   loops; and exchanges between groups against all that there are. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "factor/exchange.h"
#include "support/device.h"
#include "support/factors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const danaus_dtype types[] = { DANAUS_F64, DANAUS_C128, DANAUS_F32, DANAUS_C64 };

/* ---- matrices and their permutations ---- */

/* (1, m, p r, q) (p, q r, n, 1): q groups of m rows, p of n columns. */
static void pair_of(
    int64_t m, int64_t q, int64_t n, int64_t p, int64_t r, danaus_pattern made[2])
{
    made[0] = (danaus_pattern){ 1, m, p * r, q };
    made[1] = (danaus_pattern){ p, q * r, n, 1 };
}

static void shuffle(rng *r, int64_t n, int64_t *order)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = rng_int(r, 0, i), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

static matrix permuted(matrix w, const int64_t *rows, const int64_t *cols)
{
    matrix to = matrix_make(w.rows, w.cols);
    for (int64_t i = 0; i < w.rows; i++)
        for (int64_t j = 0; j < w.cols; j++)
            to.at[i * w.cols + j] = w.at[rows[i] * w.cols + cols[j]];
    return to;
}

static void assert_permutation(const int64_t *order, int64_t n)
{
    char *seen = calloc((size_t)n, 1);
    for (int64_t i = 0; i < n; i++) {
        assert_in_range(order[i], 0, n - 1);
        assert_int_equal(seen[order[i]]++, 0);
    }
    free(seen);
}

typedef struct found {
    int64_t *rows, *cols;
    double errors[2];
} found;

static found find(
    matrix w, danaus_dtype dtype, const danaus_pattern p[2],
    const danaus_permute_desc *desc)
{
    found f = { malloc((size_t)w.rows * sizeof(int64_t)),
                malloc((size_t)w.cols * sizeof(int64_t)),
                { -1, -1 } };
    void *packed = matrix_pack(w, dtype);
    assert_ok(
        danaus_find_permutations(packed, dtype, p, 2, desc, f.rows, f.cols, f.errors));
    free(packed);
    assert_permutation(f.rows, w.rows);
    assert_permutation(f.cols, w.cols);
    return f;
}

static void found_free(found *f)
{
    free(f->rows);
    free(f->cols);
}

/* ---- the search ---- */

static void shuffled_chains_are_found_again(void **state)
{
    (void)state;
    static const struct {
        int64_t m, q, n, p, r;
    } cases[] = {
        { 8, 8, 8, 8, 1 },   { 12, 5, 15, 4, 2 }, { 16, 4, 16, 4, 4 },
        { 20, 2, 15, 3, 2 }, { 30, 1, 12, 4, 3 }, { 24, 3, 24, 1, 6 },
    };
    for (uint64_t round = 0; round < 24; round++) {
        rng r = { round };
        danaus_dtype dtype = types[round % 4];
        int complex = dtype == DANAUS_C64 || dtype == DANAUS_C128;
        size_t c = round % (sizeof cases / sizeof *cases);
        danaus_pattern p[2];
        pair_of(cases[c].m, cases[c].q, cases[c].n, cases[c].p, cases[c].r, p);
        matrix product = product_random(&r, p, 2, complex);
        int64_t rows[256], cols[256];
        shuffle(&r, product.rows, rows);
        shuffle(&r, product.cols, cols);
        matrix w = permuted(product, rows, cols);
        danaus_permute_desc desc = { .threads = 1 + (int)(round % 3) };
        found f = find(w, dtype, p, &desc);
        assert_true(f.errors[0] > 0.05);
        assert_true(
            f.errors[1] < (dtype == DANAUS_F64 || dtype == DANAUS_C128 ? 1e-7 : 1e-5));
        matrix again = permuted(w, f.rows, f.cols);
        assert_true(split_error(again, p, 2, 1) / matrix_norm(w) < 1e-5);
        found_free(&f);
        matrix_free(&again);
        matrix_free(&w);
        matrix_free(&product);
    }
}

/* Any matrix: the errors are those of the blocks, and the second is not larger. */
static void errors_are_those_of_the_blocks(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(60); round++) {
        rng r = { round };
        int complex = (int)(round % 2);
        danaus_pattern p[2];
        pair_of(
            rng_int(&r, 1, 7), rng_int(&r, 1, 4), rng_int(&r, 1, 7), rng_int(&r, 1, 4),
            rng_int(&r, 1, 3), p);
        matrix w = matrix_gauss(&r, p[0].b * p[0].d, p[1].a * p[1].c, complex);
        found f = find(w, complex ? DANAUS_C128 : DANAUS_F64, p, NULL);
        matrix after = permuted(w, f.rows, f.cols);
        double norm = matrix_norm(w), slack = 1e-9;
        assert_true(fabs(f.errors[0] - split_error(w, p, 2, 1) / norm) < slack);
        assert_true(fabs(f.errors[1] - split_error(after, p, 2, 1) / norm) < slack);
        assert_true(f.errors[1] <= f.errors[0] + slack);
        found_free(&f);
        matrix_free(&after);
        matrix_free(&w);
    }
}

/* The least error of any permutation, by trying all labels of rows of two groups. */
static double least_error(matrix w, const danaus_pattern p[2])
{
    int64_t rows[16], cols[16], n = w.rows;
    double least = INFINITY;
    for (int64_t j = 0; j < w.cols; j++)
        cols[j] = j;
    for (unsigned set = 0; set < 1U << n; set++) {
        int64_t count[2] = { 0, 0 };
        for (int64_t i = 0; i < n; i++) {
            int64_t g = set >> i & 1;
            if (count[g] < n / 2)
                rows[2 * count[g] + g] = i;
            count[g]++;
        }
        if (count[0] != count[1])
            continue;
        matrix to = permuted(w, rows, cols);
        least = fmin(least, split_error(to, p, 2, 1));
        matrix_free(&to);
    }
    return least / matrix_norm(w);
}

/* It may end beside the best, but not often, and never below it. */
static void small_cases_end_at_the_best_of_all_permutations(void **state)
{
    (void)state;
    int best = 0, rounds = 30;
    for (uint64_t round = 0; round < (uint64_t)rounds; round++) {
        rng r = { round };
        danaus_pattern p[2];
        pair_of(4, 2, 3, 2, 1, p);
        matrix w = matrix_gauss(&r, 8, 6, 0);
        danaus_permute_desc desc = { .keep_cols = 1 };
        found f = find(w, DANAUS_F64, p, &desc);
        double least = least_error(w, p);
        assert_true(f.errors[1] >= least - 1e-9);
        best += f.errors[1] < least + 1e-9;
        found_free(&f);
        matrix_free(&w);
    }
    assert_true(best >= rounds / 2);
}

static void what_is_kept_stays_and_classes_trade_among_themselves(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(20); round++) {
        rng r = { round };
        danaus_pattern p[2];
        pair_of(6, 3, 5, 4, 1, p);
        matrix w = matrix_gauss(&r, 18, 20, 0);
        int64_t row_classes[18], col_classes[20];
        for (int64_t i = 0; i < 18; i++)
            row_classes[i] = rng_int(&r, -1, 1);
        for (int64_t j = 0; j < 20; j++)
            col_classes[j] = j / 10;
        danaus_permute_desc desc = { .row_classes = row_classes,
                                     .col_classes = col_classes,
                                     .keep_rows = round % 4 == 1,
                                     .keep_cols = round % 4 == 2 };
        found f = find(w, DANAUS_F64, p, &desc);
        for (int64_t i = 0; i < 18; i++) {
            assert_int_equal(row_classes[f.rows[i]], row_classes[i]);
            assert_true(!desc.keep_rows || f.rows[i] == i);
        }
        for (int64_t j = 0; j < 20; j++) {
            assert_int_equal(col_classes[f.cols[j]], col_classes[j]);
            assert_true(!desc.keep_cols || f.cols[j] == j);
        }
        assert_true(f.errors[1] < f.errors[0]);
        found_free(&f);
        matrix_free(&w);
    }
}

static void threads_do_not_change_what_is_found(void **state)
{
    (void)state;
    rng r = { 5 };
    danaus_pattern p[2];
    pair_of(9, 4, 8, 5, 2, p);
    matrix w = matrix_gauss(&r, 36, 40, 0);
    danaus_permute_desc one = { .threads = 1 }, four = { .threads = 4 };
    found a = find(w, DANAUS_F64, p, &one), b = find(w, DANAUS_F64, p, &four);
    assert_memory_equal(a.rows, b.rows, 36 * sizeof(int64_t));
    assert_memory_equal(a.cols, b.cols, 40 * sizeof(int64_t));
    assert_memory_equal(a.errors, b.errors, sizeof a.errors);
    found_free(&a);
    found_free(&b);
    matrix_free(&w);
}

static void numbers_near_the_ends_of_the_range_are_scaled(void **state)
{
    (void)state;
    rng r = { 6 };
    danaus_pattern p[2];
    pair_of(6, 2, 6, 2, 1, p);
    matrix w = matrix_gauss(&r, 12, 12, 0);
    found a = find(w, DANAUS_F64, p, NULL);
    for (int64_t at = 0; at < 144; at++)
        w.at[at] *= 0x1p-600;
    found b = find(w, DANAUS_F64, p, NULL);
    assert_memory_equal(a.rows, b.rows, 12 * sizeof(int64_t));
    assert_true(fabs(a.errors[1] - b.errors[1]) < 1e-12);
    memset(w.at, 0, 144 * sizeof *w.at);
    found zero = find(w, DANAUS_F64, p, NULL);
    assert_true(zero.errors[0] == 0 && zero.errors[1] == 0);
    found_free(&a);
    found_free(&b);
    found_free(&zero);
    matrix_free(&w);
}

/* ---- what is refused ---- */

static void bad_requests_are_refused(void **state)
{
    (void)state;
    double w[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, errors[2] = { -1, -1 };
    int64_t rows[4] = { -1 }, cols[3] = { -1 };
    danaus_pattern p[2], three[3] = { { 1, 2, 2, 2 }, { 2, 2, 2, 1 }, { 1, 4, 3, 1 } };
    danaus_pattern zeros[2] = { { 2, 2, 2, 1 }, { 2, 2, 2, 1 } };
    danaus_permute_desc bad = { .rounds = -1 }, odd = { .reserved = { 1 } };
    pair_of(2, 2, 3, 1, 1, p);
#define FIND(w, dtype, p, count, desc, rows)                                           \
    danaus_find_permutations(w, dtype, p, count, desc, rows, cols, errors)
    assert_status(FIND(NULL, DANAUS_F64, p, 2, NULL, rows), DANAUS_ERR_ARGUMENT);
    assert_status(FIND(w, DANAUS_F64, p, 2, NULL, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(FIND(w, DANAUS_F64, NULL, 2, NULL, rows), DANAUS_ERR_ARGUMENT);
    assert_status(FIND(w, DANAUS_F64, p, 2, &bad, rows), DANAUS_ERR_ARGUMENT);
    assert_status(FIND(w, DANAUS_F64, p, 2, &odd, rows), DANAUS_ERR_ARGUMENT);
    assert_status(FIND(w, DANAUS_F16, p, 2, NULL, rows), DANAUS_ERR_UNSUPPORTED);
    assert_status(FIND(w, DANAUS_F64, three, 3, NULL, rows), DANAUS_ERR_SHAPE);
    assert_status(FIND(w, DANAUS_F64, three, 1, NULL, rows), DANAUS_ERR_UNSUPPORTED);
    assert_status(FIND(w, DANAUS_F64, zeros, 2, NULL, rows), DANAUS_ERR_UNSUPPORTED);
    w[7] = NAN;
    assert_status(FIND(w, DANAUS_F64, p, 2, NULL, rows), DANAUS_ERR_ARGUMENT);
    assert_non_null(strstr(danaus_error_detail(), "NaN"));
    assert_int_equal(rows[0], -1);
    assert_int_equal(cols[0], -1);
    assert_true(errors[0] == -1);
}

static void missing_memory_is_reported(void **state)
{
    (void)state;
    rng r = { 7 };
    danaus_pattern p[2];
    pair_of(4, 2, 4, 2, 1, p);
    matrix w = matrix_gauss(&r, 8, 8, 0);
    void *packed = matrix_pack(w, DANAUS_F64);
    int64_t rows[8] = { -1 }, cols[8] = { -1 };
    danaus_permute_desc desc = { .threads = 1, .rounds = 1 };
    danaus_status status = DANAUS_ERR_MEMORY;
    for (long n = 1; status != DANAUS_OK; n++) {
        assert_int_equal(rows[0], -1);
        dn_alloc_fail_at(n);
        status =
            danaus_find_permutations(packed, DANAUS_F64, p, 2, &desc, rows, cols, NULL);
        dn_alloc_fail_at(0);
        assert_true(status == DANAUS_OK || status == DANAUS_ERR_MEMORY);
        assert_true(n < 1000);
    }
    free(packed);
    matrix_free(&w);
}

/* ---- exchanges ---- */

static double cost_of(const ks_members *m, const double *cost)
{
    double sum = 0;
    for (int64_t i = 0; i < m->n; i++)
        sum += cost[i * m->groups + m->label[i]];
    return sum;
}

/* The least cost of labels with groups of the same sizes in every class. */
static double least_cost(const ks_members *like, const double *cost, int64_t n)
{
    int64_t label[8];
    double least = INFINITY;
    ks_members m = *like;
    m.label = label;
    for (unsigned set = 0; set < 1U << n; set++) {
        int64_t surplus[3] = { 0, 0, 0 };
        for (int64_t i = 0; i < n; i++) {
            label[i] = set >> i & 1;
            surplus[like->classes[i]] += label[i] - like->label[i];
        }
        if (!surplus[0] && !surplus[1] && !surplus[2])
            least = fmin(least, cost_of(&m, cost));
    }
    return least;
}

static void exchanges_of_two_groups_are_the_best(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 200; round++) {
        rng r = { round };
        int64_t label[8], classes[8], sizes[2] = { 0, 0 };
        double cost[16];
        ks_trader room[8];
        for (int64_t i = 0; i < 8; i++) {
            label[i] = rng_int(&r, 0, 1);
            classes[i] = rng_int(&r, 0, 2);
            sizes[label[i]]++;
            cost[2 * i] = rng_gauss(&r);
            cost[2 * i + 1] = rng_gauss(&r);
        }
        ks_members m = { 8, 2, label, classes };
        double before = cost_of(&m, cost), least = least_cost(&m, cost, 8);
        int64_t traded = dn_exchange(&m, cost, 0, room);
        assert_true(fabs(cost_of(&m, cost) - least) < 1e-12);
        assert_int_equal(traded > 0, before > least + 1e-12);
        for (int64_t i = 0; i < 8; i++)
            sizes[label[i]]--;
        assert_true(sizes[0] == 0 && sizes[1] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shuffled_chains_are_found_again),
        cmocka_unit_test(errors_are_those_of_the_blocks),
        cmocka_unit_test(small_cases_end_at_the_best_of_all_permutations),
        cmocka_unit_test(what_is_kept_stays_and_classes_trade_among_themselves),
        cmocka_unit_test(threads_do_not_change_what_is_found),
        cmocka_unit_test(numbers_near_the_ends_of_the_range_are_scaled),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(missing_memory_is_reported),
        cmocka_unit_test(exchanges_of_two_groups_are_the_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
