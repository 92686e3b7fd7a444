/* What chain files and files of operators share: the factors. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_PRODUCT_CHAIN_FILE_H
#define DN_PRODUCT_CHAIN_FILE_H

#include "danaus/file.h"
#include "danaus/ks.h"

#define DN_CHAIN_FORMAT_KEY  "format"
#define DN_CHAIN_FORMAT_KIND "danaus chain "
#define DN_CHAIN_FORMAT      DN_CHAIN_FORMAT_KIND "1"
#define DN_OPERATOR_FORMAT   DN_CHAIN_FORMAT_KIND "2"
#define DN_SUM_FORMAT        DN_CHAIN_FORMAT_KIND "3"
#define DN_FACTOR            "factor."
#define DN_BIAS              "bias"
#define DN_SCALE             "_scale" /* behind the name of a factor of 8 bits */
#define DN_MOST_NAME         48       /* bytes of a tensor's name */

/* What a chain file says, checked; data stay in the file. */
typedef struct chain_view {
    int count;
    danaus_dtype dtype; /* f32 for weights of 8 bits */
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    const void *weights[DANAUS_MAX_FACTORS];
    danaus_tensor scales[DANAUS_MAX_FACTORS]; /* without data: not of 8 bits */
    const void *bias;                         /* or NULL */
} chain_view;

int dn_has_tensor(const danaus_file *file, const char *name);

/* Reads factor.0, factor.1, ... whose names have the prefix before; whether neighbours can be
   multiplied is not checked. */
danaus_status dn_view_factors(
    const danaus_file *file, const char *prefix, chain_view *view);

/* Reads the bias, if there is one, of so many rows and the factors' type. */
danaus_status dn_view_bias(const danaus_file *file, int64_t rows, chain_view *view);

/* A chain of the factors [from, to), without bias. */
danaus_status dn_chain_of_view(
    const chain_view *view, int from, int to, danaus_chain **chain);

/* Describes a factor as its tensor, whose name in name[DN_MOST_NAME] has the number and the
   prefix. */
danaus_tensor dn_factor_tensor(
    const danaus_chain *chain, int factor, const char *prefix, int number, char *name);

/* Describes a bias as its tensor. */
danaus_tensor dn_bias_tensor(const void *bias, danaus_dtype dtype, int64_t rows);

#endif
