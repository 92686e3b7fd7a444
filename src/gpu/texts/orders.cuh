/* Orders of rows, batch-last. With READS row n of a product's operand is row x_order[n] of x, or
   zeros where that is -1. With WRITES row n of its result becomes row y_order[n] of y, or is
   dropped. Only half of a place is read, because there are fewer than 2^31 rows. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "words.cuh"

#define ORDERED (READS || WRITES)

/* Arguments of an entry point behind sizes that it takes, and with sizes that it does not; and
   what it does with them. */
#if ORDERED
  #define ORDERS           , const i64 *x_order, const i64 *y_order
  #define SIZES_AND_ORDERS , i64, i64, i64, i64 ORDERS
  #define X_ORDER          x_order
  #define Y_ORDER          y_order
#else
  #define ORDERS
  #define SIZES_AND_ORDERS
  #define X_ORDER nullptr
  #define Y_ORDER nullptr
#endif

/* Which row of x is row `row`, and which of y; negative: none. */
INLINE i64 row_of_x(const i64 *order, i64 row) { return READS ? (int)order[row] : row; }
INLINE i64 row_of_y(const i64 *order, i64 row) { return WRITES ? (int)order[row] : row; }
