/* What chain files and files of operators have in common: the factors. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_KS_CHAIN_FILE_H
#define DN_KS_CHAIN_FILE_H

#include "danaus/file.h"
#include "danaus/ks.h"

#define DN_CHAIN_FORMAT_KEY  "format"
#define DN_CHAIN_FORMAT_KIND "danaus chain "
#define DN_CHAIN_FORMAT      DN_CHAIN_FORMAT_KIND "1"
#define DN_OPERATOR_FORMAT   DN_CHAIN_FORMAT_KIND "2"
#define DN_FACTOR            "factor."

/* What a chain file says, checked; data stay in the file. */
typedef struct chain_view {
    int count;
    danaus_dtype dtype;
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    const void *weights[DANAUS_MAX_FACTORS];
    const void *bias; /* or NULL */
} chain_view;

int dn_has_tensor(const danaus_file *file, const char *name);

/* Reads factor.0, factor.1, ...; whether neighbours can be multiplied is not checked. */
danaus_status dn_view_factors(const danaus_file *file, chain_view *view);

/* A chain of the factors [from, to), without bias. */
danaus_status dn_chain_of_view(
    const chain_view *view, int from, int to, danaus_chain **chain);

/* Describes factor l of a file as its tensor, with a name in name[32]. */
danaus_tensor dn_factor_tensor(
    const danaus_chain *chain, int factor, int number, char *name);

#endif
