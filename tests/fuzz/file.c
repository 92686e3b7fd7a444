/* Bytes as a file in memory, reached through its descriptor's path; and reading
   whatever the library finds in a file. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "danaus/danaus.h"
#include "io/file.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

const char *fuzz_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int file = -1;
    if (file < 0) {
        file = memfd_create("fuzz", 0);
        expect(file >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    expect(ftruncate(file, 0) == 0);
    expect(pwrite(file, data, size, 0) == (ssize_t)size);
    return path;
}

/* Every byte of the view can be read. */
static void read_tensor(const danaus_tensor *t)
{
    expect(t->name && t->ndim >= 0 && t->ndim <= DANAUS_MAX_DIMS);
    int64_t bytes, sum = 0;
    expect(!dn_array_bytes_overflow(t->dtype, t->ndim, t->shape, &bytes));
    expect(!dn_misaligned(t->data, t->dtype));
    for (int64_t b = 0; b < bytes; b++)
        sum += ((const unsigned char *)t->data)[b];
    expect(sum <= 255 * bytes);
}

/* What is read is listed; more may be listed than is read. */
static int list_entries(const uint8_t *data, size_t size)
{
    danaus_file *file = NULL;
    danaus_file_entry e;
    if (dn_file_read_entries(data, size, &file) != DANAUS_OK) {
        expect(!file && *danaus_error_detail());
        return 0;
    }
    for (int i = 0; i < danaus_file_entry_count(file); i++) {
        expect(danaus_file_entry_at(file, i, &e) == DANAUS_OK && e.name && e.type);
        expect(e.bytes >= 0 && (uint64_t)e.bytes <= size);
        for (int64_t d = 0; d < e.ndim; d++)
            expect(e.shape[d] >= 0);
    }
    for (int i = 0; danaus_file_metadata_key(file, i); i++)
        expect(danaus_file_metadata(file, danaus_file_metadata_key(file, i)) != NULL);
    danaus_file_close(file);
    return 1;
}

void fuzz_read(const uint8_t *data, size_t size)
{
    danaus_file *file = NULL;
    int listed = list_entries(data, size);
    if (dn_file_read(data, size, &file) != DANAUS_OK) {
        expect(!file && *danaus_error_detail());
        return;
    }
    expect(listed);
    danaus_tensor t;
    int count = danaus_file_count(file);
    for (int i = 0; i < count; i++) {
        expect(danaus_file_tensor(file, i, &t) == DANAUS_OK);
        read_tensor(&t);
        expect(danaus_file_find(file, t.name, &t) == DANAUS_OK);
        expect(dn_file_name(file, i) == t.name);
    }
    expect(danaus_file_tensor(file, count, &t) != DANAUS_OK);
    danaus_file_metadata(file, "format");
    danaus_file_close(file);
}
