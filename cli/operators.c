/* Chain files of any format. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/operators.h"

#include <string.h>

/* Files of sums, and of chains with orders, say so. */
danaus_status any_chain_load(const char *path, any_chain *any)
{
    danaus_file *file;
    danaus_status status = danaus_file_open(path, &file);
    if (status != DANAUS_OK)
        return status;
    const char *format = danaus_file_metadata(file, "format");
    int is_operator = format && (!strcmp(format, "danaus chain 2") ||
                                 !strcmp(format, "danaus chain 3"));
    danaus_file_close(file);
    return is_operator ? danaus_operator_load(path, &any->made)
                       : danaus_chain_load(path, &any->chain);
}

void any_chain_free(any_chain *any)
{
    danaus_chain_destroy(any->chain);
    danaus_operator_destroy(any->made);
}

int64_t any_chain_rows(const any_chain *any)
{
    return any->made ? danaus_operator_rows(any->made) : danaus_chain_rows(any->chain);
}

int64_t any_chain_cols(const any_chain *any)
{
    return any->made ? danaus_operator_cols(any->made) : danaus_chain_cols(any->chain);
}

danaus_dtype any_chain_dtype(const any_chain *any)
{
    return any->made ? danaus_operator_dtype(any->made)
                     : danaus_chain_dtype(any->chain);
}

danaus_status any_chain_to_dense(const any_chain *any, void *dense)
{
    return any->made ? danaus_operator_to_dense(any->made, dense)
                     : danaus_chain_to_dense(any->chain, dense);
}
