/* The table of measured choices: a hash table from a problem, its batch rounded to
   a power of two, to a kernel and its time. tuning_file.c reads and writes it. */
// SPDX-License-Identifier: Apache-2.0
#include "backend/tuning.h"

#include "backend/tuning_table.h"
#include "base/mem.h"
#include "base/status.h"

#include <math.h>

#define LEAST_CAPACITY 64

danaus_status dn_tuning_create(tuning **table)
{
    tuning *t = dn_calloc(1, sizeof *t);
    if (!t)
        return dn_fail_memory(sizeof *t, "a tuning table");
    *table = t;
    return DANAUS_OK;
}

void dn_tuning_destroy(tuning *table)
{
    if (!table)
        return;
    dn_free(table->rows);
    dn_free(table);
}

int dn_tuning_exponent(int64_t batch)
{
    int exponent;
    double fraction = frexp((double)(batch > 1 ? batch : 1), &exponent); /* [1/2, 1) */
    exponent -= fraction <= sqrt(0.5);
    return exponent < 62 ? exponent : 62;
}

static uint64_t mix(uint64_t hash, int64_t value)
{
    hash = (hash ^ (uint64_t)value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

/* The row of this problem, or the empty row where it would be. */
static tuning_row *find_row(
    tuning_row *rows, size_t capacity, const problem *p, int exponent)
{
    danaus_pattern q = p->pattern;
    uint64_t hash = mix(mix(mix(mix(0, q.a), q.b), q.c), q.d);
    hash =
        mix(hash, ((int64_t)p->math << 24) + ((int64_t)p->dtype << 16) +
                      ((int64_t)p->layout << 8) + exponent);
    for (size_t i = hash & (capacity - 1);; i = (i + 1) & (capacity - 1)) {
        tuning_row *r = &rows[i];
        if (!r->kernel ||
            (r->pattern.a == q.a && r->pattern.b == q.b && r->pattern.c == q.c &&
             r->pattern.d == q.d && r->dtype == p->dtype && r->layout == p->layout &&
             r->math == p->math && r->exponent == exponent))
            return r;
    }
}

static problem problem_of(const tuning_row *r)
{
    return (problem){ .pattern = r->pattern,
                      .dtype = r->dtype,
                      .layout = r->layout,
                      .math = r->math,
                      .batch = 1 };
}

danaus_status dn_tuning_reserve(tuning *table, size_t more)
{
    size_t needed = 2 * (table->count + more), capacity = table->capacity;
    if (needed <= capacity)
        return DANAUS_OK;
    capacity = capacity ? capacity : LEAST_CAPACITY;
    while (capacity < needed)
        capacity *= 2;
    tuning_row *rows = dn_calloc(capacity, sizeof *rows);
    if (!rows)
        return dn_fail_memory(capacity * sizeof *rows, "a tuning table");
    for (size_t i = 0; i < table->capacity; i++) {
        const tuning_row *r = &table->rows[i];
        problem p = problem_of(r);
        if (r->kernel)
            *find_row(rows, capacity, &p, r->exponent) = *r;
    }
    dn_free(table->rows);
    table->rows = rows;
    table->capacity = capacity;
    return DANAUS_OK;
}

void dn_tuning_put(tuning *table, const tuning_row *row, int keep_faster)
{
    problem p = problem_of(row);
    tuning_row *r = find_row(table->rows, table->capacity, &p, row->exponent);
    table->count += !r->kernel;
    if (!r->kernel || !keep_faster || row->seconds < r->seconds)
        *r = *row;
}

void dn_tuning_add(tuning *table, const problem *p, const kernel *k, double seconds)
{
    tuning_row row = {
        p->pattern, p->dtype, p->layout, p->math, dn_tuning_exponent(p->batch),
        k,          seconds
    };
    if (isfinite(seconds) && seconds > 0 && dn_tuning_reserve(table, 1) == DANAUS_OK)
        dn_tuning_put(table, &row, 0);
}

const kernel *dn_tuning_find(const tuning *table, const problem *p, double *seconds)
{
    if (table->count == 0)
        return NULL;
    int nearest = dn_tuning_exponent(p->batch);
    double power = ldexp(1, nearest), batch = (double)(p->batch > 1 ? p->batch : 1);
    const int exponents[] = { nearest, nearest + 1, nearest - 1 };
    const int near[] = { 1, batch >= power, batch <= power };
    for (int i = 0; i < 3; i++) {
        if (!near[i])
            continue;
        const tuning_row *r = find_row(table->rows, table->capacity, p, exponents[i]);
        if (r->kernel) {
            *seconds = r->seconds;
            return r->kernel;
        }
    }
    return NULL;
}
