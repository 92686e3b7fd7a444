// SPDX-License-Identifier: Apache-2.0
#include "support/row_orders.h"

#include "support/test.h"

#include <stdlib.h>
#include <string.h>

const int64_t *places_of(const array *order) { return order->data; }

int does_orders(const kernel *k)
{
    problem p = { .pattern = { 1, 64, 64, 1 },
                  .dtype = k->dtype,
                  .layout = DANAUS_BATCH_LAST,
                  .math = DANAUS_MATH_TF32,
                  .batch = 64,
                  .orders = DN_READS | DN_WRITES };
    return dn_fits(k, &p);
}

/* Numbers of 64 bits that are no floating-point ones lie like those. */
static array natural_order(int64_t count)
{
    array order = array_make(DANAUS_F64, count);
    for (int64_t i = 0; i < count; i++)
        ((int64_t *)order.data)[i] = i;
    return order;
}

/* The places of `count` numbers among others, each but once, or none. */
static void put_apart(rng *r, int64_t count, int64_t places, int64_t *order)
{
    int64_t *at = malloc((size_t)places * sizeof *at);
    assert_non_null(at);
    for (int64_t i = 0; i < places; i++)
        at[i] = i;
    for (int64_t i = 0; i < count; i++) {
        int64_t other = rng_int(r, i, places - 1), chosen = at[other];
        at[other] = at[i];
        order[i] = rng_int(r, 0, 5) ? chosen : -1;
    }
    free(at);
}

row_orders random_row_orders(rng *r, const problem *p)
{
    int64_t cols = cols_of(p->pattern), rows = rows_of(p->pattern);
    row_orders o = { p, rows, cols, rows, natural_order(cols), natural_order(rows) };
    if (p->orders & DN_READS) {
        o.x_rows = rng_int(r, 1, 2 * cols);
        for (int64_t c = 0; c < cols; c++)
            ((int64_t *)o.x.data)[c] = rng_int(r, -1, o.x_rows - 1);
    }
    if (p->orders & DN_WRITES) {
        o.y_rows = rng_int(r, rows, 2 * rows);
        put_apart(r, rows, o.y_rows, o.y.data);
    }
    return o;
}

void row_orders_free(row_orders *o)
{
    array_free(&o->x);
    array_free(&o->y);
}

static char *number_at(
    const problem *p, const array *a, int64_t rows, int64_t row, int64_t s)
{
    int64_t at = p->layout == DANAUS_BATCH_LAST ? row * p->batch + s : s * rows + row;
    return (char *)a->data + (size_t)at * danaus_dtype_size(a->dtype);
}

array rows_in_order(
    const problem *p, const array *from, int64_t rows, const array *order)
{
    array made = array_make(from->dtype, order->count * p->batch);
    size_t size = danaus_dtype_size(from->dtype);
    for (int64_t n = 0; n < order->count; n++)
        for (int64_t s = 0; s < p->batch; s++) {
            int64_t row = places_of(order)[n];
            char *to = number_at(p, &made, order->count, n, s);
            memset(to, 0, size);
            if (row >= 0)
                memcpy(to, number_at(p, from, rows, row, s), size);
        }
    return made;
}

static void expect_kept(const row_orders *o, const array *y, const array *before)
{
    char *named = calloc((size_t)o->y_rows, 1);
    assert_non_null(named);
    for (int64_t n = 0; n < o->rows; n++)
        if (places_of(&o->y)[n] >= 0)
            named[places_of(&o->y)[n]] = 1;
    for (int64_t row = 0; row < o->y_rows; row++)
        for (int64_t s = 0; !named[row] && s < o->p->batch; s++)
            assert_memory_equal(
                number_at(o->p, y, o->y_rows, row, s),
                number_at(o->p, before, o->y_rows, row, s),
                danaus_dtype_size(y->dtype));
    free(named);
}

array rows_written(
    const row_orders *o, const array *y, const array *before, signal *expected)
{
    array_expect_guards(y);
    expect_kept(o, y, before);
    for (int64_t n = 0; n < o->rows; n++)
        for (int64_t s = 0; places_of(&o->y)[n] < 0 && s < o->p->batch; s++)
            expected->v[n * o->p->batch + s] = (value){ 0 };
    return rows_in_order(o->p, y, o->y_rows, &o->y);
}
