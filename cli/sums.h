/* Sums of chains: terms by options, their fit, and its facts and files. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_SUMS_H
#define CLI_SUMS_H

#include "danaus/danaus.h"
#include <jansson.h>

typedef struct sums {
    int count;                    /* of terms; 0: no sum is asked for */
    int counts[DANAUS_MAX_TERMS]; /* of patterns of each, one after the other */
    danaus_pattern patterns[DANAUS_MAX_TERMS * DANAUS_MAX_FACTORS];
    danaus_chain *chain[DANAUS_MAX_TERMS]; /* the first one has the bias */
    danaus_factorize_result step[DANAUS_MAX_TERMS];
    int steps; /* nonzero: step has the terms' errors */
} sums;

/* The value of --terms; with `choose` "auto" is as many as are tried. Both return a status of
   the program. */
int sums_terms(const char *text, int choose, int *terms);

/* Reads "LIST + LIST ..", terms of patterns. */
int sums_parse(const char *text, sums *s);

/* `count` terms of the same patterns. */
void sums_repeat(const danaus_pattern *patterns, int factors, int count, sums *s);

danaus_status sums_fit(
    const void *w, danaus_dtype dtype, const danaus_factorize_desc *fit, sums *s,
    danaus_factorize_result *result);

/* The chain that is the sum, or NULL where the terms' patterns do not agree. */
danaus_chain *sums_combined(const sums *s);

/* Writes all terms, with the bias that the first one has, as one file. */
int sums_save(const sums *s, const char *path);

json_t *sums_json(const sums *s);
void sums_print(const json_t *terms); /* of sums_json() */
void sums_free(sums *s);

#endif
