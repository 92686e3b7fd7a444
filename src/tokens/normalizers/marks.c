/* Marks in a row, in the order of their classes: one pass for each class that there is. */
// SPDX-License-Identifier: Apache-2.0
#include "tokens/normalizers/marks.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

#include <limits.h>

danaus_status dn_marks_add(mark_row *row, int32_t c, int order)
{
    TRY(dn_reserve(
        &row->marks, row->count, &row->capacity, sizeof *row->marks, "marks"));
    row->marks[row->count++] = (waiting_mark){ c, order };
    return DANAUS_OK;
}

danaus_status dn_marks_put(mark_row *row, put_mark_fn *put, void *arg)
{
    size_t left = row->count;
    for (int last = 0; left > 0;) {
        int next = INT_MAX;
        for (size_t i = 0; i < row->count; i++)
            if (row->marks[i].order > last)
                next = MIN(next, row->marks[i].order);
        for (size_t i = 0; i < row->count; i++)
            if (row->marks[i].order == next) {
                TRY(put(arg, row->marks[i]));
                left--;
            }
        last = next;
    }
    row->count = 0;
    return DANAUS_OK;
}
