/* Chain files of any format. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/operators.h"

#include "common/args.h"
#include "common/facts.h"
#include "common/finite.h"

#include <stdio.h>
#include <stdlib.h>
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

int64_t any_chain_parameters(const any_chain *any)
{
    return any->made ? danaus_operator_parameters(any->made)
                     : danaus_chain_parameters(any->chain);
}

static int64_t operator_non_finite(const danaus_operator *made)
{
    int64_t lost = count_non_finite(
        danaus_operator_dtype(made), danaus_operator_bias(made),
        danaus_operator_rows(made));
    for (int i = 0; i < danaus_operator_count(made); i++)
        lost += chain_non_finite(danaus_operator_chain(made, i));
    return lost;
}

int64_t any_chain_non_finite(const any_chain *any)
{
    return any->made ? operator_non_finite(any->made) : chain_non_finite(any->chain);
}

static danaus_status check_chain(
    const danaus_chain *chain, danaus_dtype dtype, const char *term)
{
    danaus_dtype from = danaus_chain_dtype(chain);
    danaus_status status = DANAUS_OK;
    for (int l = 0; l < danaus_chain_count(chain) && !status; l++) {
        danaus_pattern p = danaus_chain_pattern(chain, l);
        char name[80];
        snprintf(name, sizeof name, "factor %d%s", l, term);
        status = danaus_convert_check(
            from, danaus_chain_weights_const(chain, l), dtype, p.a * p.b * p.c * p.d,
            name);
    }
    return status;
}

danaus_status any_chain_check(const any_chain *any, danaus_dtype dtype)
{
    const danaus_operator *made = any->made;
    int terms = made ? danaus_operator_count(made) : 1;
    const void *bias =
        made ? danaus_operator_bias(made) : danaus_chain_bias(any->chain);
    danaus_status status = DANAUS_OK;
    for (int i = 0; i < terms && !status; i++) {
        char term[40] = "";
        if (made && terms > 1)
            snprintf(term, sizeof term, " of chain %d", i);
        status = check_chain(
            made ? danaus_operator_chain(made, i) : any->chain, dtype, term);
    }
    if (!status && bias)
        status = danaus_convert_check(
            any_chain_dtype(any), bias, dtype, any_chain_rows(any), "the bias");
    return status;
}

int any_chain_write(const any_chain *any, output *o, int64_t operands_lost)
{
    output_judge(
        o, any_chain_dtype(any), any_chain_non_finite(any), any_chain_parameters(any),
        operands_lost);
    return library(
        any->made ? danaus_operator_save(any->made, o->path)
                  : danaus_chain_save(any->chain, o->path));
}

json_t *any_chain_facts(
    const any_chain *any, const char *key, const char *how, const output *o)
{
    char members[100];
    snprintf(
        members, sizeof members, "%s:t rows:i cols:i dtype:t parameters:i output:t",
        key);
    return facts_of(
        members, how, any_chain_rows(any), any_chain_cols(any),
        danaus_dtype_name(any_chain_dtype(any)), any_chain_parameters(any), o->name);
}

danaus_status any_chain_to_dense(const any_chain *any, void *dense)
{
    return any->made ? danaus_operator_to_dense(any->made, dense)
                     : danaus_chain_to_dense(any->chain, dense);
}

int any_chain_drop_bias(any_chain *any)
{
    int had = any->made ? danaus_operator_bias(any->made) != NULL
                        : danaus_chain_bias(any->chain) != NULL;
    if (any->made)
        danaus_operator_set_bias(any->made, NULL);
    else
        danaus_chain_set_bias(any->chain, NULL);
    return had;
}

/* An operator of a chain, which belongs to it. */
static danaus_status make_operator(any_chain *any)
{
    if (any->made)
        return DANAUS_OK;
    int64_t cols = danaus_chain_cols(any->chain);
    danaus_status status =
        danaus_operator_create(&any->chain, 1, NULL, NULL, cols, &any->made);
    if (status == DANAUS_OK)
        any->chain = NULL;
    return status;
}

danaus_status any_chains_add(any_chain *all, int count, danaus_operator **sum)
{
    danaus_operator **terms = calloc((size_t)count, sizeof(danaus_operator *));
    danaus_status status = terms ? DANAUS_OK : DANAUS_ERR_MEMORY;
    for (int n = 0; n < count && status == DANAUS_OK; n++) {
        status = make_operator(&all[n]);
        terms[n] = all[n].made;
    }
    if (status == DANAUS_OK)
        status = danaus_operator_add(terms, count, sum);
    for (int n = 0; n < count && status == DANAUS_OK; n++)
        all[n].made = NULL;
    free(terms);
    return status;
}
