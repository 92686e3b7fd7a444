/* Many files of tensors as one. */
// SPDX-License-Identifier: Apache-2.0
#include "io/file.h"

#include "base/mem.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

/* Tensors that cannot be read count, too. */
static danaus_status check_names(const danaus_file *file)
{
    int count = file->count + file->foreign_count;
    const char **names = dn_alloc(((size_t)count + 1) * sizeof *names);
    if (!names)
        return dn_fail_memory((size_t)count * sizeof *names, "names of tensors");
    for (int i = 0; i < count; i++)
        names[i] = dn_file_name(file, i);
    qsort(names, (size_t)count, sizeof *names, by_name);
    danaus_status status = DANAUS_OK;
    for (int i = 0; i + 1 < count && status == DANAUS_OK; i++)
        if (!strcmp(names[i], names[i + 1]))
            status = dn_fail(
                DANAUS_ERR_FORMAT, "two files have a tensor \"%.80s\"", names[i]);
    dn_free(names);
    return status;
}

static danaus_status fill(danaus_file *file, danaus_file **parts, int count)
{
    size_t tensors = 0, foreign = 0;
    for (int i = 0; i < count; i++) {
        tensors += (size_t)parts[i]->count;
        foreign += (size_t)parts[i]->foreign_count;
    }
    file->tensors = dn_calloc(tensors + 1, sizeof *file->tensors);
    file->foreign = dn_calloc(foreign + 1, sizeof *file->foreign);
    if (!file->tensors || !file->foreign)
        return dn_fail_memory(tensors * sizeof *file->tensors, "a table of tensors");
    for (int i = 0; i < count; i++) {
        const danaus_file *part = parts[i];
        for (int t = 0; t < part->count; t++)
            file->tensors[file->count++] = part->tensors[t];
        for (int t = 0; t < part->foreign_count; t++)
            file->foreign[file->foreign_count++] = part->foreign[t];
    }
    return check_names(file);
}

danaus_status dn_file_join(danaus_file **parts, int count, danaus_file **file)
{
    danaus_file *joined = dn_calloc(1, sizeof *joined);
    if (!joined)
        return dn_fail_memory(sizeof *joined, "a file");
    danaus_status status = fill(joined, parts, count);
    if (status != DANAUS_OK) {
        danaus_file_close(joined);
        return status;
    }
    joined->parts = parts;
    joined->part_count = count;
    *file = joined;
    return DANAUS_OK;
}
