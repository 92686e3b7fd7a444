/* Tuning tables as files: CSV text in sections (tuning_rows.c), each with a line of
   column names and a row for each measurement.

   A row begins with the place of the measurement: backend, machine, instruction set and
   threads. Fields have neither commas nor quotes. */
// SPDX-License-Identifier: Apache-2.0
#include "device/tuning.h"
#include "device/tuning_table.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/replace.h"
#include "base/status.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_LINE "# danaus tuning 1"
#define PLACE      "device,machine,instructions,threads,"
#define SIZE_LIMIT ((size_t)16 << 20) /* bytes of a file */

enum { DEVICE, MACHINE, INSTRUCTIONS, THREADS, PLACE_FIELDS };

/* ---- which device ---- */

typedef struct tuned_place {
    const char *device; /* its backend */
    danaus_device_info info;
} tuned_place;

static void make_field(char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == ',' || *name == '"' || *name == 127)
            *name = ' ';
}

static danaus_status place_of(const danaus_device *dev, tuned_place *here)
{
    TRY(dev->backend->describe(dev, &here->info));
    here->device = dev->backend->name;
    make_field(here->info.description);
    make_field(here->info.instructions);
    return DANAUS_OK;
}

/* ---- reading ---- */

typedef struct reader {
    const danaus_device *dev;
    tuned_place here;
    const tuning_text *text; /* of the section that is being read; NULL: none yet */
    tuning *table;
    int is_shipped; /* its rows */
    int64_t skipped;
} reader;

/* Cuts a line at its commas; 0 unless there are `count` fields. */
static int split(span line, span *fields, int count)
{
    const char *end = line.text + line.length;
    for (int i = 0; i < count; i++) {
        const char *comma = memchr(line.text, ',', (size_t)(end - line.text));
        if ((comma == NULL) != (i == count - 1))
            return 0;
        const char *stop = comma ? comma : end;
        fields[i] = (span){ line.text, (size_t)(stop - line.text) };
        line.text = comma ? comma + 1 : end;
    }
    return 1;
}

/* What came with the library serves all machines of the architecture: more often than not
   another one's order of kernels is nearer to the truth than an estimate. */
static int is_here(const reader *r, const span *f, int64_t threads)
{
    const tuned_place *here = &r->here;
    return dn_span_is(f[DEVICE], here->device) &&
           dn_span_is(f[INSTRUCTIONS], here->info.instructions) &&
           (r->is_shipped || (dn_span_is(f[MACHINE], here->info.description) &&
                              threads == here->info.threads));
}

/* Reads a row. It is not taken when it is well-formed but of no use here: from
   another device, or about a kernel or type that there is not. */
static danaus_status read_row(const reader *r, span line, tuning_row *row)
{
    span f[PLACE_FIELDS + TUNING_FIELDS];
    int64_t threads;
    int count = PLACE_FIELDS + r->text->fields;
    if (!split(line, f, count))
        return dn_fail(DANAUS_ERR_FORMAT, "there are not %d fields", count);
    if (!dn_span_integer(f[THREADS], &threads))
        return dn_fail(DANAUS_ERR_FORMAT, "the threads are not a number");
    TRY(r->text->read(r->dev, f + PLACE_FIELDS, row));
    row->taken &= is_here(r, f, threads);
    return DANAUS_OK;
}

/* The section that begins with this line, or NULL. */
static const tuning_text *find_section(span line)
{
    size_t begin = strlen(PLACE);
    if (line.length < begin || memcmp(line.text, PLACE, begin))
        return NULL;
    span rest = { line.text + begin, line.length - begin };
    for (int i = 0; i < TUNING_SECTIONS; i++)
        if (dn_span_is(rest, dn_tuning_texts[i].columns))
            return &dn_tuning_texts[i];
    return NULL;
}

/* Moves *at behind the next line; the line comes without its end. */
static span next_line(const char **at, const char *end)
{
    span rest = { *at, (size_t)(end - *at) };
    span line = dn_next_line(&rest);
    *at = rest.text;
    return line;
}

/* One line: nothing, a remark, the columns of a section, or a row. Of rows with one key
   the fastest stays. */
static danaus_status read_line(reader *r, span line)
{
    tuning_row row = { 0 };
    if (line.length == 0 || line.text[0] == '#')
        return DANAUS_OK;
    const tuning_text *section = find_section(line);
    if (section) {
        r->text = section;
        return DANAUS_OK;
    }
    TRY(read_row(r, line, &row));
    row.is_shipped = r->is_shipped;
    if (!row.taken) {
        r->skipped++;
        return DANAUS_OK;
    }
    TRY(dn_tuning_reserve(r->table, 2));
    dn_tuning_put(r->table, &row, 1);
    if (r->is_shipped && dn_tuning_twin(r->dev, &row, &row))
        dn_tuning_put(r->table, &row, 1);
    return DANAUS_OK;
}

static danaus_status read_table(reader *r, const char *content, size_t size)
{
    TRY(place_of(r->dev, &r->here));
    if (size > SIZE_LIMIT)
        return dn_fail(
            DANAUS_ERR_FORMAT, "a tuning table has at most %zu bytes", SIZE_LIMIT);
    const char *at = content, *end = content + size;
    if (size == 0 || !dn_span_is(next_line(&at, end), FIRST_LINE))
        return dn_fail(DANAUS_ERR_FORMAT, "line 1 is not \"" FIRST_LINE "\"");
    r->text = find_section(next_line(&at, end));
    if (!r->text)
        return dn_fail(DANAUS_ERR_FORMAT, "line 2 is not the columns of a section");
    for (int64_t number = 3; at < end; number++) {
        danaus_status status = read_line(r, next_line(&at, end));
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
        if (from->rows[i].taken)
            dn_tuning_put(table, &from->rows[i], 0);
    return DANAUS_OK;
}

static danaus_status read_text(
    tuning *table, const danaus_device *dev, const char *content, size_t size,
    int is_shipped, int64_t *skipped)
{
    tuning fresh = { 0 };
    reader r = { .dev = dev, .table = &fresh, .is_shipped = is_shipped };
    danaus_status status = read_table(&r, content, size);
    dn_lock(table->lock);
    if (status == DANAUS_OK)
        status = merge(table, &fresh);
    dn_unlock(table->lock);
    if (status == DANAUS_OK)
        *skipped = r.skipped;
    dn_free(fresh.rows);
    return status;
}

danaus_status dn_tuning_read(
    tuning *table, const danaus_device *dev, const char *content, size_t size,
    int64_t *skipped)
{
    return read_text(table, dev, content, size, 0, skipped);
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

/* ---- what a device begins with ---- */

danaus_status dn_tuning_add_shipped(tuning *table, const danaus_device *dev)
{
    const char *wish = getenv("DANAUS_TUNING");
    int64_t skipped;
    if (wish && !*wish)
        return DANAUS_OK;
    for (const tuning_shipped *t = dn_tuning_tables; t->name; t++)
        TRY(read_text(table, dev, t->content, strlen(t->content), 1, &skipped));
    if (!wish)
        return DANAUS_OK;
    danaus_status status = dn_tuning_load(table, dev, wish, &skipped);
    return status == DANAUS_OK ? status : dn_fail_in(status, "DANAUS_TUNING");
}

danaus_status dn_tuning_open(const danaus_device *dev, tuning **table)
{
    tuning *made;
    TRY(dn_tuning_create(&made));
    danaus_status status = dn_tuning_add_shipped(made, dev);
    if (status == DANAUS_OK)
        *table = made;
    else
        dn_tuning_destroy(made);
    return status;
}

/* ---- writing ---- */

/* By section, then by the words of the key. */
static int by_key(const void *x, const void *y)
{
    const tuning_key *k = &(*(const tuning_row *const *)x)->key;
    const tuning_key *l = &(*(const tuning_row *const *)y)->key;
    if (k->section != l->section)
        return k->section < l->section ? -1 : 1;
    for (int i = 0; i < TUNING_WORDS; i++)
        if (k->word[i] != l->word[i])
            return k->word[i] < l->word[i] ? -1 : 1;
    return 0;
}

static void write_table(
    text *t, const tuned_place *here, const tuning_row *const *rows, size_t count)
{
    tuning_section last = TUNING_SECTIONS;
    dn_text(t, FIRST_LINE "\n");
    if (count == 0)
        dn_text(t, PLACE "%s\n", dn_tuning_texts[0].columns);
    for (size_t i = 0; i < count; i++) {
        const tuning_text *section = &dn_tuning_texts[rows[i]->key.section];
        if (rows[i]->key.section != last)
            dn_text(t, PLACE "%s\n", section->columns);
        last = rows[i]->key.section;
        dn_text(
            t, "%s,%s,%s,%d,", here->device, here->info.description,
            here->info.instructions, here->info.threads);
        section->write(rows[i], t);
        dn_text(t, "\n");
    }
}

/* Rows of a table that are another place's, each behind the columns of its section. */
static void write_others(text *t, const reader *r, const char *at, const char *end)
{
    span columns = { NULL, 0 };
    const tuning_text *section = NULL;
    for (next_line(&at, end); at < end;) {
        span line = next_line(&at, end), f[PLACE_FIELDS + TUNING_FIELDS];
        const tuning_text *other = find_section(line);
        int64_t threads;
        if (other)
            columns = line, section = other;
        if (other || line.length == 0 || line.text[0] == '#' ||
            !split(line, f, PLACE_FIELDS + section->fields) ||
            !dn_span_integer(f[THREADS], &threads) || is_here(r, f, threads))
            continue;
        if (columns.text)
            dn_text(t, "%.*s\n", (int)columns.length, columns.text);
        columns.text = NULL;
        dn_text(t, "%.*s\n", (int)line.length, line.text);
    }
}

/* The rows of this device, then those of others in the file that is replaced. */
typedef struct writer {
    reader others;
    const char *at, *end; /* that file */
    const tuning_row **rows;
    size_t count;
} writer;

static void write_all(text *t, const writer *w)
{
    write_table(t, &w->others.here, w->rows, w->count);
    write_others(t, &w->others, w->at, w->end);
}

static danaus_status write_file(const writer *w, const char *path)
{
    text measured = { NULL, 0, 0 };
    write_all(&measured, w);
    text t = { dn_alloc(measured.length + 1), measured.length + 1, 0 };
    if (!t.to)
        return dn_fail_memory(t.size, "the text of a tuning table");
    write_all(&t, w);
    file_part part = { t.to, t.length };
    danaus_status status = dn_replace_file(path, &part, 1);
    dn_free(t.to);
    return status;
}

static danaus_status save_rows(const tuning *table, writer *w, const char *path)
{
    w->rows = dn_calloc(table->count + 1, sizeof *w->rows);
    if (!w->rows)
        return dn_fail_memory(
            table->count * sizeof *w->rows, "the rows of a tuning table");
    for (size_t i = 0; i < table->capacity; i++)
        if (table->rows[i].taken && !table->rows[i].is_shipped)
            w->rows[w->count++] = &table->rows[i];
    qsort(w->rows, w->count, sizeof *w->rows, by_key);
    danaus_status status = write_file(w, path);
    dn_free(w->rows);
    return status;
}

/* Maps a table that is to be replaced; nothing where there is none, or an empty file, or where
   the new table is written to a pipe. */
static danaus_status open_older(const danaus_device *dev, const char *path, map *older)
{
    int64_t skipped;
    tuning unused = { 0 };
    int replaced;
    *older = (map){ NULL, 0 };
    TRY(dn_check_output(path, &replaced));
    if (!replaced || access(path, F_OK))
        return DANAUS_OK;
    TRY(dn_map_open(path, older));
    danaus_status status = DANAUS_OK;
    if (older->size)
        status = dn_tuning_read(
            &unused, dev, (const char *)older->data, older->size, &skipped);
    dn_free(unused.rows);
    if (status == DANAUS_OK)
        return status;
    dn_map_close(older);
    return dn_fail_in(status, path);
}

danaus_status dn_tuning_save(
    const tuning *table, const danaus_device *dev, const char *path)
{
    map older;
    writer w = { .others = { .dev = dev }, .at = "" };
    TRY(place_of(dev, &w.others.here));
    TRY(open_older(dev, path, &older));
    if (older.size)
        w.at = (const char *)older.data;
    w.end = w.at + older.size;
    dn_lock(table->lock);
    danaus_status status = save_rows(table, &w, path);
    dn_unlock(table->lock);
    dn_map_close(&older);
    return status;
}
