/* Tuning tables as files: CSV text with one row for each problem.

   A row begins with what was measured where: backend, machine, instruction set and
   threads. Fields hold neither commas nor quotes. Numbers are read and written
   without the locale. */
// SPDX-License-Identifier: Apache-2.0
#include "backend/tuning_table.h"

#include "base/dtype.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/replace.h"
#include "base/status.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE "# danaus tuning 1"
#define COLUMNS                                                                        \
    "device,machine,instructions,threads,a,b,c,d,dtype,layout,batch,kernel,seconds"
#define SIZE_LIMIT ((size_t)16 << 20) /* bytes of a file */

enum {
    DEVICE,
    MACHINE,
    INSTRUCTIONS,
    THREADS,
    A,
    B,
    C,
    D,
    DTYPE,
    LAYOUT,
    BATCH,
    KERNEL,
    SECONDS,
    FIELDS
};

#define TF32 "tf32" /* as a type: f32 with products of 10 bits */

static const char *const layout_names[] = { "first", "last" };

/* ---- which device ---- */

typedef struct place {
    const char *device; /* its backend */
    danaus_device_info info;
} place;

static void make_field(char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == ',' || *name == '"' || *name == 127)
            *name = ' ';
}

static danaus_status place_of(const danaus_device *dev, place *here)
{
    TRY(dev->backend->describe(dev, &here->info));
    here->device = dev->backend->name;
    make_field(here->info.description);
    make_field(here->info.instructions);
    return DANAUS_OK;
}

/* ---- reading ---- */

static int read_size(span s, int64_t *value)
{
    return dn_span_integer(s, value) && *value > 0;
}

/* What follows the e of a number: perhaps a sign, then digits. */
static int read_exponent(span s, double *exponent)
{
    int64_t value;
    int sign = s.length > 0 && (s.text[0] == '-' || s.text[0] == '+');
    if (!dn_span_integer((span){ s.text + sign, s.length - (size_t)sign }, &value))
        return 0;
    *exponent = sign && s.text[0] == '-' ? -(double)value : (double)value;
    return 1;
}

/* Digits, perhaps with a point, then perhaps e and an exponent; positive. */
static int read_seconds(span s, double *seconds)
{
    double value = 0, power = 0;
    int digits = 0, point = 0;
    size_t e = 0;
    while (e < s.length && s.text[e] != 'e' && s.text[e] != 'E')
        e++;
    if (e < s.length &&
        !read_exponent((span){ s.text + e + 1, s.length - e - 1 }, &power))
        return 0;
    for (size_t i = 0; i < e; i++) {
        if (s.text[i] == '.' && !point) {
            point = 1;
        } else if (s.text[i] >= '0' && s.text[i] <= '9') {
            value = 10 * value + (s.text[i] - '0');
            power -= point;
            digits++;
        } else {
            return 0;
        }
    }
    *seconds = value * pow(10, power);
    return digits > 0 && isfinite(*seconds) && *seconds > 0;
}

static int read_layout(span s, danaus_layout *layout)
{
    for (int i = 0; i < 2; i++)
        if (dn_span_is(s, layout_names[i])) {
            *layout = (danaus_layout)i;
            return 1;
        }
    return 0;
}

/* Cuts a line at its commas; 0 unless there are FIELDS fields. */
static int split(span line, span fields[FIELDS])
{
    const char *end = line.text + line.length;
    for (int i = 0; i < FIELDS; i++) {
        const char *comma = memchr(line.text, ',', (size_t)(end - line.text));
        if ((comma == NULL) != (i == FIELDS - 1))
            return 0;
        const char *stop = comma ? comma : end;
        fields[i] = (span){ line.text, (size_t)(stop - line.text) };
        line.text = comma ? comma + 1 : end;
    }
    return 1;
}

static const kernel *find_kernel(
    const danaus_device *dev, span name, span dtype, const problem *p)
{
    for (const kernel *k = dev->kernels; k->name; k++)
        if (dn_span_is(name, k->name) &&
            dn_span_is(dtype, danaus_dtype_name(k->dtype))) {
            problem q = *p;
            q.dtype = k->dtype;
            return k->fits(k, &q) ? k : NULL;
        }
    return NULL;
}

/* Reads a row. Its kernel is NULL when it is well-formed but of no use here: from
   another device, or about a kernel or type that there is not. */
static danaus_status read_row(
    span line, const danaus_device *dev, const place *here, tuning_row *row)
{
    span f[FIELDS];
    int64_t threads;
    problem p = { 0 };
    if (!split(line, f))
        return dn_fail(DANAUS_ERR_FORMAT, "there are not %d fields", FIELDS);
    if (!dn_span_integer(f[THREADS], &threads))
        return dn_fail(DANAUS_ERR_FORMAT, "the threads are not a number");
    if (!read_size(f[A], &p.pattern.a) || !read_size(f[B], &p.pattern.b) ||
        !read_size(f[C], &p.pattern.c) || !read_size(f[D], &p.pattern.d) ||
        danaus_patterns_check(&p.pattern, 1) != DANAUS_OK)
        return dn_fail(DANAUS_ERR_FORMAT, "a, b, c, d are no pattern");
    if (dn_span_is(f[DTYPE], TF32)) {
        p.math = DANAUS_MATH_TF32;
        f[DTYPE] = (span){ "f32", 3 };
    }
    if (!read_layout(f[LAYOUT], &p.layout))
        return dn_fail(DANAUS_ERR_FORMAT, "the layout is neither first nor last");
    if (!read_size(f[BATCH], &p.batch))
        return dn_fail(DANAUS_ERR_FORMAT, "the batch is not a positive number");
    if (!read_seconds(f[SECONDS], &row->seconds))
        return dn_fail(DANAUS_ERR_FORMAT, "the seconds are not a positive number");
    row->kernel = NULL;
    if (dn_span_is(f[DEVICE], here->device) &&
        dn_span_is(f[MACHINE], here->info.description) &&
        dn_span_is(f[INSTRUCTIONS], here->info.instructions) &&
        threads == here->info.threads)
        row->kernel = find_kernel(dev, f[KERNEL], f[DTYPE], &p);
    row->pattern = p.pattern;
    row->dtype = row->kernel ? row->kernel->dtype : (danaus_dtype)0;
    row->layout = p.layout;
    row->math = p.math;
    row->exponent = dn_tuning_exponent(p.batch);
    return DANAUS_OK;
}

/* Moves *at behind the next line; the line comes without its end. */
static span next_line(const char **at, const char *end)
{
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    span line = { *at, (size_t)((newline ? newline : end) - *at) };
    *at = newline ? newline + 1 : end;
    if (line.length > 0 && line.text[line.length - 1] == '\r')
        line.length--;
    return line;
}

/* One line: nothing, a remark or a row. Of rows for one problem the fastest stays. */
static danaus_status read_line(
    span line, const danaus_device *dev, const place *here, tuning *table,
    int64_t *skipped)
{
    tuning_row row;
    if (line.length == 0 || line.text[0] == '#')
        return DANAUS_OK;
    TRY(read_row(line, dev, here, &row));
    if (!row.kernel) {
        ++*skipped;
        return DANAUS_OK;
    }
    TRY(dn_tuning_reserve(table, 1));
    dn_tuning_put(table, &row, 1);
    return DANAUS_OK;
}

static danaus_status read_table(
    tuning *table, const danaus_device *dev, const char *content, size_t size,
    int64_t *skipped)
{
    place here;
    TRY(place_of(dev, &here));
    if (size > SIZE_LIMIT)
        return dn_fail(
            DANAUS_ERR_FORMAT, "a tuning table has at most %zu bytes", SIZE_LIMIT);
    const char *at = content, *end = content + size;
    if (size == 0 || !dn_span_is(next_line(&at, end), FIRST_LINE))
        return dn_fail(DANAUS_ERR_FORMAT, "line 1 is not \"" FIRST_LINE "\"");
    if (!dn_span_is(next_line(&at, end), COLUMNS))
        return dn_fail(DANAUS_ERR_FORMAT, "line 2 is not \"" COLUMNS "\"");
    for (int64_t number = 3; at < end; number++) {
        danaus_status status =
            read_line(next_line(&at, end), dev, &here, table, skipped);
        if (status == DANAUS_ERR_FORMAT) {
            char where[32];
            snprintf(where, sizeof where, "line %" PRId64, number);
            return dn_fail_in(status, where);
        }
        TRY(status);
    }
    return DANAUS_OK;
}

static danaus_status merge(tuning *table, const tuning *from)
{
    TRY(dn_tuning_reserve(table, from->count));
    for (size_t i = 0; i < from->capacity; i++)
        if (from->rows[i].kernel)
            dn_tuning_put(table, &from->rows[i], 0);
    return DANAUS_OK;
}

danaus_status dn_tuning_read(
    tuning *table, const danaus_device *dev, const char *content, size_t size,
    int64_t *skipped)
{
    tuning fresh = { 0 };
    int64_t others = 0;
    danaus_status status = read_table(&fresh, dev, content, size, &others);
    if (status == DANAUS_OK)
        status = merge(table, &fresh);
    if (status == DANAUS_OK)
        *skipped = others;
    dn_free(fresh.rows);
    return status;
}

danaus_status dn_tuning_load(
    tuning *table, const danaus_device *dev, const char *path, int64_t *skipped)
{
    map m;
    TRY(dn_map_open(path, &m));
    danaus_status status =
        dn_tuning_read(table, dev, (const char *)m.data, m.size, skipped);
    dn_map_close(&m);
    return status == DANAUS_OK ? status : dn_fail_in(status, path);
}

/* ---- writing ---- */

static int compare(int64_t x, int64_t y) { return (x > y) - (x < y); }

/* By type, layout, pattern and batch. */
static int by_problem(const void *x, const void *y)
{
    const tuning_row *r = *(const tuning_row *const *)x;
    const tuning_row *s = *(const tuning_row *const *)y;
    const int orders[] = {
        compare(r->dtype, s->dtype),         compare(r->math, s->math),
        compare(r->layout, s->layout),       compare(r->pattern.a, s->pattern.a),
        compare(r->pattern.b, s->pattern.b), compare(r->pattern.c, s->pattern.c),
        compare(r->pattern.d, s->pattern.d), compare(r->exponent, s->exponent),
    };
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (orders[i])
            return orders[i];
    return 0;
}

/* Times are whole picoseconds, at least one. */
static void write_row(text *t, const place *here, const tuning_row *r)
{
    double picoseconds = r->seconds * 1e12;
    int64_t whole = picoseconds < 1      ? 1
                    : picoseconds > 9e18 ? INT64_MAX
                                         : llround(picoseconds);
    dn_text(
        t, "%s,%s,%s,%d,", here->device, here->info.description,
        here->info.instructions, here->info.threads);
    dn_text(
        t, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",", r->pattern.a,
        r->pattern.b, r->pattern.c, r->pattern.d);
    dn_text(
        t, "%s,%s,%" PRId64 ",%s,%" PRId64 "e-12\n",
        r->math == DANAUS_MATH_TF32 ? TF32 : danaus_dtype_name(r->dtype),
        layout_names[r->layout], (int64_t)1 << r->exponent, r->kernel->name, whole);
}

static void write_table(
    text *t, const place *here, const tuning_row *const *rows, size_t count)
{
    dn_text(t, FIRST_LINE "\n" COLUMNS "\n");
    for (size_t i = 0; i < count; i++)
        write_row(t, here, rows[i]);
}

static danaus_status write_rows(
    const place *here, const tuning_row *const *rows, size_t count, const char *path)
{
    text measured = { NULL, 0, 0 };
    write_table(&measured, here, rows, count);
    text t = { dn_alloc(measured.length + 1), measured.length + 1, 0 };
    if (!t.to)
        return dn_fail_memory(t.size, "the text of a tuning table");
    write_table(&t, here, rows, count);
    file_part part = { t.to, t.length };
    danaus_status status = dn_replace_file(path, &part, 1);
    dn_free(t.to);
    return status;
}

danaus_status dn_tuning_save(
    const tuning *table, const danaus_device *dev, const char *path)
{
    place here;
    TRY(place_of(dev, &here));
    const tuning_row **rows = dn_calloc(table->count + 1, sizeof *rows);
    if (!rows)
        return dn_fail_memory(
            table->count * sizeof *rows, "the rows of a tuning table");
    size_t count = 0;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->rows[i].kernel)
            rows[count++] = &table->rows[i];
    qsort(rows, count, sizeof *rows, by_problem);
    danaus_status status = write_rows(&here, rows, count, path);
    dn_free(rows);
    return status;
}
