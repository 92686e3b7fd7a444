// SPDX-License-Identifier: Apache-2.0
#include "cli/sums.h"

#include "cli/operators.h"
#include "common/args.h"
#include "common/facts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sums_terms(const char *text, int choose, int *terms)
{
    int most = choose ? DANAUS_CANDIDATE_TERMS : DANAUS_MAX_TERMS;
    char *end;
    long count = strtol(text, &end, 10);
    if (choose && !strcmp(text, "auto"))
        count = most;
    else if (*end || end == text || count < 1 || count > most)
        return usage_error(
            "--terms is 1 to %d%s, not \"%s\"", most,
            choose ? " or auto" : ", or auto with --params", text);
    *terms = (int)count;
    return STATUS_OK;
}

static int parse_term(const char *text, size_t length, sums *s, int *factors)
{
    char *term = strndup(text, length);
    TRY(fail_if(!term, "no memory for patterns"));
    int *count = &s->counts[s->count++];
    danaus_status status =
        danaus_patterns_parse(term, s->patterns + *factors, DANAUS_MAX_FACTORS, count);
    free(term);
    *factors += *count;
    TRY(refuse_if(
        status == DANAUS_ERR_ARGUMENT, "--pattern: %s", danaus_error_detail()));
    return fail_if(status != DANAUS_OK, "--pattern: %s", danaus_error_detail());
}

int sums_parse(const char *text, sums *s)
{
    int factors = 0, status = STATUS_OK;
    for (const char *at = text; at && !status;) {
        const char *end = strchr(at, '+');
        if (s->count == DANAUS_MAX_TERMS)
            return usage_error(
                "--pattern takes 1 to %d terms with + between them, not more",
                DANAUS_MAX_TERMS);
        status = parse_term(at, end ? (size_t)(end - at) : strlen(at), s, &factors);
        at = end ? end + 1 : NULL;
    }
    return status;
}

void sums_repeat(const danaus_pattern *patterns, int factors, int count, sums *s)
{
    for (int n = 0; n < count; n++) {
        memcpy(s->patterns + n * factors, patterns, (size_t)factors * sizeof *patterns);
        s->counts[n] = factors;
    }
    s->count = count;
}

danaus_status sums_fit(
    const void *w, danaus_dtype dtype, const danaus_factorize_desc *fit, sums *s,
    danaus_factorize_result *result)
{
    danaus_sum_desc desc = { .lower_bound = !fit->fast, .fit = fit };
    s->steps = 1;
    return danaus_factorize_sum(
        w, dtype, s->patterns, s->counts, s->count, &desc, s->chain, result, s->step);
}

danaus_chain *sums_combined(const sums *s)
{
    danaus_chain *made;
    const danaus_chain *const *terms = (const danaus_chain *const *)s->chain;
    if (danaus_chain_combine(DANAUS_SUM, terms, s->count, &made))
        return NULL;
    if (danaus_chain_set_bias(made, danaus_chain_bias(s->chain[0])) == DANAUS_OK)
        return made;
    danaus_chain_destroy(made);
    return NULL;
}

/* Copies of the terms without a bias, added up. */
static danaus_status add_copies(const sums *s, danaus_operator **made)
{
    any_chain copies[DANAUS_MAX_TERMS] = { { NULL, NULL } };
    danaus_status status = DANAUS_OK;
    for (int n = 0; n < s->count && status == DANAUS_OK; n++) {
        danaus_dtype dtype = danaus_chain_dtype(s->chain[n]);
        status = danaus_chain_convert(s->chain[n], dtype, &copies[n].chain);
        if (status == DANAUS_OK)
            any_chain_drop_bias(&copies[n]);
    }
    if (status == DANAUS_OK)
        status = any_chains_add(copies, s->count, made);
    for (int n = 0; n < s->count; n++)
        any_chain_free(&copies[n]);
    return status;
}

int sums_save(const sums *s, const char *path)
{
    danaus_operator *made;
    const void *bias = danaus_chain_bias(s->chain[0]);
    danaus_status status = add_copies(s, &made);
    TRY(library(status));
    if (bias)
        status = danaus_operator_set_bias(made, bias);
    if (status == DANAUS_OK)
        status = danaus_operator_save(made, path);
    danaus_operator_destroy(made);
    return library(status);
}

void sums_print(const json_t *terms)
{
    for (size_t n = 0; n < json_array_size(terms); n++) {
        printf("term %-2zu     ", n + 1);
        facts_print(
            json_array_get(terms, n), "{patterns}[; greedy error {error:.3e}]\n");
    }
}

json_t *sums_json(const sums *s)
{
    json_t *list = json_array();
    for (int n = 0; n < s->count; n++) {
        danaus_pattern p[DANAUS_MAX_FACTORS];
        int count = chain_patterns(s->chain[n], p);
        json_array_append_new(
            list, facts_of(
                      "patterns:o parameters:i error:n", json_patterns(p, count),
                      danaus_chain_parameters(s->chain[n]),
                      s->steps ? s->step[n].error : NAN));
    }
    return list;
}

void sums_free(sums *s)
{
    for (int n = 0; n < s->count; n++)
        danaus_chain_destroy(s->chain[n]);
}
