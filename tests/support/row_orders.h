/* Orders of rows around one product (dn_orders), and plain loops that move rows by them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_ROW_ORDERS_H
#define TEST_SUPPORT_ROW_ORDERS_H

#include "support/oracle.h"

#include "device/backend.h"

/* Row k of what a product takes is row x[k] of x_rows; row r of `rows` that it makes becomes
   row y[r] of y_rows; -1: zeros, none. Places lie between guards. */
typedef struct row_orders {
    const problem *p;
    int64_t rows, x_rows, y_rows;
    array x, y;
} row_orders;

/* True if a row does all orders in at least one layout. */
int does_orders(const kernel *k);

/* Random orders of a problem: permutations, choices, zeros and, in x, rows that are read
   twice; the natural order where the problem has none. */
row_orders random_row_orders(rng *r, const problem *p);
void row_orders_free(row_orders *o);
const int64_t *places_of(const array *order);

/* The rows of `from`, of which there are so many, that an order names; zeros at -1. */
array rows_in_order(
    const problem *p, const array *from, int64_t rows, const array *order);

/* What a product wrote to y, in its own rows. Where it wrote none there are zeros, in what is
   expected too; rows of y without a place must be as they were `before`. */
array rows_written(
    const row_orders *o, const array *y, const array *before, signal *expected);

#endif
