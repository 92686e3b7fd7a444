/* The tuning table: a hash table from a problem, with batch and rows rounded to powers of two,
   to its measured answer. */
// SPDX-License-Identifier: Apache-2.0
#include "device/tuning.h"

#include "base/mem.h"
#include "base/status.h"
#include "device/tuning_table.h"

#include <math.h>
#include <string.h>

#define LEAST_CAPACITY 64
#define NEAR           0.5 /* squared distance of problems that are of use for each other */

danaus_status dn_tuning_create(tuning **table)
{
    tuning *t = dn_calloc(1, sizeof *t);
    if (!t)
        return dn_fail_memory(sizeof *t, "a tuning table");
    danaus_status status = dn_lock_create(&t->lock);
    if (status == DANAUS_OK)
        *table = t;
    else
        dn_free(t);
    return status;
}

void dn_tuning_destroy(tuning *table)
{
    if (!table)
        return;
    dn_lock_destroy(table->lock);
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

/* Only f32 has more than one kind of products. */
tuning_key dn_tuning_ks_key(const problem *p, int exponent)
{
    danaus_pattern q = p->pattern, l = p->inner;
    int64_t math = p->dtype == DANAUS_F32 ? p->math : 0;
    if (p->operation)
        return (tuning_key){ TUNING_OTHER,
                             { p->dtype, math, p->layout, q.a, q.b, q.c, q.d, exponent,
                               p->operation } };
    return (tuning_key){ l.a ? TUNING_PAIR : TUNING_KS,
                         { p->dtype, math, p->layout, q.a, q.b, q.c, q.d, exponent, l.a,
                           l.b, l.c, l.d } };
}

problem dn_tuning_problem(const tuning_key *key)
{
    const int64_t *w = key->word;
    problem p = {
        .dtype = (danaus_dtype)w[0],
        .math = (danaus_math)w[1],
        .layout = (danaus_layout)w[2],
        .pattern = { w[3], w[4], w[5], w[6] },
        .batch = (int64_t)1 << w[7],
    };
    if (key->section == TUNING_OTHER)
        p.operation = (dn_operation)w[8];
    else
        p.inner = (danaus_pattern){ w[8], w[9], w[10], w[11] };
    return p;
}

tuning_key dn_tuning_conv_key(const conv_problem *p, int64_t rows)
{
    int64_t taps = p->filter_length < p->length ? p->filter_length : p->length;
    return (tuning_key){ TUNING_CONV,
                         { p->dtype, p->kind, p->length, taps,
                           rows > 0 ? (int64_t)1 << dn_tuning_exponent(rows) : 0,
                           p->accuracy &&
                               p->accuracy != dn_conv_usual_accuracy(p->dtype) } };
}

tuning_key dn_tuning_model_key(danaus_dtype sums, tuning_constant name, int64_t of)
{
    return (tuning_key){ TUNING_MODEL, { sums, name, of } };
}

static uint64_t hash_of(const tuning_key *key)
{
    uint64_t hash = (uint64_t)key->section;
    for (int i = 0; i < TUNING_WORDS; i++) {
        hash = (hash ^ (uint64_t)key->word[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

static int same_key(const tuning_key *x, const tuning_key *y)
{
    return x->section == y->section && !memcmp(x->word, y->word, sizeof x->word);
}

/* The row with this key, or the empty row where it would be. */
static tuning_row *find_row(tuning_row *rows, size_t capacity, const tuning_key *key)
{
    size_t i = hash_of(key) & (capacity - 1);
    while (rows[i].taken && !same_key(&rows[i].key, key))
        i = (i + 1) & (capacity - 1);
    return &rows[i];
}

/* A copy of the row with this key; taken = 0: there is none. */
static tuning_row find(const tuning *table, tuning_key key)
{
    tuning_row r = { 0 };
    dn_lock(table->lock);
    if (table->count)
        r = *find_row(table->rows, table->capacity, &key);
    dn_unlock(table->lock);
    return r;
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
    for (size_t i = 0; i < table->capacity; i++)
        if (table->rows[i].taken)
            *find_row(rows, capacity, &table->rows[i].key) = table->rows[i];
    dn_free(table->rows);
    table->rows = rows;
    table->capacity = capacity;
    return DANAUS_OK;
}

void dn_tuning_put(tuning *table, const tuning_row *row, int keep_faster)
{
    tuning_row *r = find_row(table->rows, table->capacity, &row->key);
    table->count += !r->taken;
    if (!r->taken || !keep_faster || row->value < r->value)
        *r = *row;
}

static void add(tuning *table, tuning_row row)
{
    row.taken = 1;
    dn_lock(table->lock);
    if (isfinite(row.value) && row.value > 0 &&
        dn_tuning_reserve(table, 1) == DANAUS_OK)
        dn_tuning_put(table, &row, 0);
    dn_unlock(table->lock);
}

void dn_tuning_add(tuning *table, const problem *p, const kernel *k, double seconds)
{
    tuning_key key = dn_tuning_ks_key(p, dn_tuning_exponent(p->batch));
    add(table, (tuning_row){ .key = key, .kernel = k, .value = seconds });
}

const kernel *dn_tuning_find(
    const tuning *table, const problem *p, int shipped_too, double *seconds)
{
    int nearest = dn_tuning_exponent(p->batch);
    double power = ldexp(1, nearest), batch = (double)(p->batch > 1 ? p->batch : 1);
    const int exponents[] = { nearest, nearest + 1, nearest - 1 };
    const int near[] = { 1, batch >= power, batch <= power };
    for (int i = 0; i < 3; i++) {
        if (!near[i])
            continue;
        tuning_row r = find(table, dn_tuning_ks_key(p, exponents[i]));
        if (r.taken && (shipped_too || !r.is_shipped)) {
            *seconds = r.value;
            return r.kernel;
        }
    }
    return NULL;
}

/* The square of log2 of how the sizes and the batch differ. */
static double distance(const problem *p, const problem *q)
{
    const danaus_pattern s[] = { p->pattern, q->pattern, p->inner, q->inner };
    double sum = pow(log2((double)p->batch / (double)q->batch), 2);
    for (int i = 0; i < (p->inner.a ? 4 : 2); i += 2) {
        const int64_t x[] = { s[i].a, s[i].b, s[i].c, s[i].d };
        const int64_t y[] = { s[i + 1].a, s[i + 1].b, s[i + 1].c, s[i + 1].d };
        for (int j = 0; j < 4; j++)
            sum += pow(log2((double)x[j] / (double)y[j]), 2);
    }
    return sum;
}

/* Rows of equal distance are compared by their keys, so that the order in which they came
   does not matter. */
static const tuning_row *find_near(const tuning *table, const problem *p)
{
    tuning_key key = dn_tuning_ks_key(p, 0);
    const tuning_row *best = NULL;
    double least = NEAR;
    for (size_t i = 0; i < table->capacity; i++) {
        const tuning_row *r = &table->rows[i];
        problem q = dn_tuning_problem(&r->key);
        if (!r->taken || r->key.section != key.section || q.operation != p->operation ||
            memcmp(r->key.word, key.word, 3 * sizeof *key.word) ||
            !dn_fits(r->kernel, p))
            continue;
        double far = distance(p, &q);
        if (far < least || (best && far == least &&
                            memcmp(r->key.word, best->key.word, sizeof key.word) < 0)) {
            least = far;
            best = r;
        }
    }
    return best;
}

const kernel *dn_tuning_near(const tuning *table, const problem *p)
{
    dn_lock(table->lock);
    const tuning_row *best = find_near(table, p);
    const kernel *k = best ? best->kernel : NULL;
    dn_unlock(table->lock);
    return k;
}

void dn_tuning_add_conv(
    tuning *table, const conv_problem *p, int64_t rows, conv_cut cut, double seconds)
{
    tuning_key key = dn_tuning_conv_key(p, rows);
    add(table, (tuning_row){ .key = key, .cut = cut, .value = seconds });
}

int dn_tuning_find_conv(
    const tuning *table, const conv_problem *p, int64_t rows, conv_cut *cut,
    double *seconds)
{
    tuning_row r = find(table, dn_tuning_conv_key(p, rows));
    if (r.taken) {
        *cut = r.cut;
        *seconds = r.value;
    }
    return r.taken;
}

void dn_tuning_add_constant(
    tuning *table, danaus_dtype sums, tuning_constant name, int64_t of, double value)
{
    tuning_key key = dn_tuning_model_key(sums, name, of);
    if (value >= TUNING_LEAST && value <= TUNING_MOST)
        add(table, (tuning_row){ .key = key, .value = value });
}

double dn_tuning_constant(
    const tuning *table, danaus_dtype sums, tuning_constant name, int64_t of)
{
    return find(table, dn_tuning_model_key(sums, name, of)).value;
}
