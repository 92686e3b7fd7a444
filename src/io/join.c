/* Many files of tensors as one. */
// SPDX-License-Identifier: Apache-2.0
#include "io/file.h"

#include "base/mem.h"
#include "base/status.h"

#include <string.h>

/* Tensors that cannot be read count, too. */
static danaus_status check_names(const danaus_file *file)
{
    const named_place *names = file->by_name;
    for (int i = 0; i + 1 < file->count + file->foreign_count; i++)
        if (!strcmp(names[i].name, names[i + 1].name))
            return dn_fail(
                DANAUS_ERR_FORMAT, "two files have a tensor \"%.80s\"", names[i].name);
    return DANAUS_OK;
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
    TRY(dn_file_sort_names(file));
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
