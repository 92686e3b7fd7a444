/* Files that tests make, and byte strings. */
// SPDX-License-Identifier: Apache-2.0
#include "support/files.h"

#include "support/test.h"

#include "base/mem.h"
#include "io/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGN 64

/* ---- byte strings ---- */

static unsigned char *block(size_t size)
{
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, ALIGN, size ? size : 1), 0);
    return memory;
}

bytes bytes_of(const void *data, size_t size)
{
    bytes b = { block(size), size };
    if (size)
        memcpy(b.data, data, size);
    return b;
}

bytes bytes_part(const bytes *b, size_t size) { return bytes_of(b->data, size); }

void bytes_append(bytes *b, const void *data, size_t size)
{
    bytes longer = { block(b->size + size), b->size + size };
    if (b->size)
        memcpy(longer.data, b->data, b->size);
    if (size)
        memcpy(longer.data + b->size, data, size);
    bytes_free(b);
    *b = longer;
}

void bytes_free(bytes *b)
{
    free(b->data);
    *b = (bytes){ 0 };
}

static void cut(bytes *b, size_t at, size_t size)
{
    memmove(b->data + at, b->data + at + size, b->size - at - size);
    b->size -= size;
}

static void change(rng *r, bytes *b)
{
    if (b->size == 0)
        return;
    size_t at = (size_t)rng_int(r, 0, (int64_t)b->size - 1);
    size_t other = (size_t)rng_int(r, 0, (int64_t)b->size - 1);
    size_t room = b->size - (at > other ? at : other);
    switch (rng_int(r, 0, 6)) {
    case 0: b->data[at] ^= (unsigned char)(1 << rng_int(r, 0, 7)); break;
    case 1: b->data[at] = (unsigned char)rng_next(r); break;
    case 2: b->data[at] = (unsigned char)('0' + rng_int(r, 0, 9)); break;
    case 3: cut(b, at, 1); break;
    case 4: {
        unsigned char last = b->data[b->size - 1];
        bytes_append(b, &last, 1);
        memmove(b->data + at + 1, b->data + at, b->size - at - 1);
        break;
    }
    case 5:
        memmove(b->data + at, b->data + other, (size_t)rng_int(r, 0, (int64_t)room));
        break;
    default: cut(b, at, b->size - at); break;
    }
}

bytes bytes_mutated(rng *r, const bytes *b)
{
    bytes changed = bytes_of(b->data, b->size);
    for (int64_t n = rng_int(r, 1, 4); n > 0; n--)
        change(r, &changed);
    bytes exact = bytes_of(changed.data, changed.size);
    bytes_free(&changed);
    return exact;
}

/* ---- files ---- */

static char directory[512];

int scratch_setup(void **state)
{
    (void)state;
    const char *where = getenv("TMPDIR");
    snprintf(
        directory, sizeof directory, "%s/danaus-test-XXXXXX", where ? where : "/tmp");
    return mkdtemp(directory) ? 0 : -1;
}

/* Calls each for every file; returns how many there are. */
static int visit(void (*each)(const char *path))
{
    DIR *d = opendir(directory);
    int count = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        count++;
        if (each)
            each(scratch_path(e->d_name));
    }
    if (d)
        closedir(d);
    return count;
}

static void remove_file(const char *path) { remove(path); }

int scratch_teardown(void **state)
{
    (void)state;
    visit(remove_file);
    return rmdir(directory);
}

const char *scratch_directory(void) { return directory; }

const char *scratch_path(const char *name)
{
    static char paths[4][1024];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

int scratch_count(void) { return visit(NULL); }

bytes file_bytes(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("cannot open %s", path);
    bytes b = { 0 };
    unsigned char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;)
        bytes_append(&b, part, n);
    fclose(f);
    return b.data ? b : bytes_of("", 0);
}

void file_write(const char *path, const void *data, size_t size)
{
    remove(path); /* some file systems flush a file that is emptied and written */
    FILE *f = fopen(path, "wb");
    if (!f)
        fail_msg("cannot make %s", path);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* ---- files of tensors ---- */

void expect_cuts_are_refused(const bytes *whole)
{
    for (size_t size = 0; size < whole->size; size++) {
        bytes part = bytes_part(whole, size);
        danaus_file *file = NULL;
        assert_status(dn_file_read(part.data, size, &file), DANAUS_ERR_FORMAT);
        assert_null(file);
        bytes_free(&part);
    }
}

danaus_status file_open_and_close(void *path)
{
    danaus_file *file = NULL;
    danaus_status status = danaus_file_open(path, &file);
    assert_true((status == DANAUS_OK) == (file != NULL));
    danaus_file_close(file);
    return status;
}
