/* What a tuning table chooses among rows of problems nearby. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/tuning.h"

enum { ROWS = 4 };

static int fits(const kernel *k, const problem *p)
{
    (void)k, (void)p;
    return 1;
}

static const kernel_family family = { .fits = fits };
static const kernel kernels[ROWS] = {
    { .name = "a", .dtype = DANAUS_F32, .family = &family },
    { .name = "b", .dtype = DANAUS_F32, .family = &family },
    { .name = "c", .dtype = DANAUS_F32, .family = &family },
    { .name = "d", .dtype = DANAUS_F32, .family = &family },
};

static const problem asked = { .pattern = { 8, 8, 8, 8 },
                               .dtype = DANAUS_F32,
                               .layout = DANAUS_BATCH_LAST,
                               .batch = 1024 };

/* One of the sizes is 10 instead of 8: all are as far away. */
static problem neighbour(int number)
{
    problem p = asked;
    int64_t *sizes[] = { &p.pattern.a, &p.pattern.b, &p.pattern.c, &p.pattern.d };
    *sizes[number] = 10;
    return p;
}

/* Number n of the orders in which rows may come. */
static void order_of(int n, int order[ROWS])
{
    int left[ROWS] = { 0, 1, 2, 3 };
    for (int i = 0; i < ROWS; i++) {
        int at = n % (ROWS - i);
        n /= ROWS - i;
        order[i] = left[at];
        for (; at + 1 < ROWS - i; at++)
            left[at] = left[at + 1];
    }
}

/* The first by their sizes in the order a, b, c, d. */
static void of_rows_as_near_the_first_is_taken_however_they_came(void **state)
{
    (void)state;
    for (int n = 0; n < 24; n++) {
        tuning *table = NULL;
        int order[ROWS];
        order_of(n, order);
        assert_ok(dn_tuning_create(&table));
        for (int i = 0; i < ROWS; i++) {
            problem p = neighbour(order[i]);
            dn_tuning_add(table, &p, &kernels[order[i]], 1e-6);
        }
        assert_ptr_equal(dn_tuning_near(table, &asked), &kernels[3]);
        dn_tuning_destroy(table);
    }
}

static void the_nearest_of_all_is_taken(void **state)
{
    (void)state;
    for (int n = 0; n < ROWS; n++) {
        tuning *table = NULL;
        assert_ok(dn_tuning_create(&table));
        for (int i = 0; i < ROWS; i++) {
            problem p = neighbour(i);
            if (i == n)
                p = asked, p.pattern.a = 9;
            dn_tuning_add(table, &p, &kernels[i], 1e-6);
        }
        assert_ptr_equal(dn_tuning_near(table, &asked), &kernels[n]);
        dn_tuning_destroy(table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_rows_as_near_the_first_is_taken_however_they_came),
        cmocka_unit_test(the_nearest_of_all_is_taken),
    };
    return cmocka_run_group_tests_name("near rows", tests, NULL, NULL);
}
