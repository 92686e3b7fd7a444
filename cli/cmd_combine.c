/* danaus combine: chain files to one: products, sums, stacks, Kronecker products. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/operators.h"
#include "common/standard.h"

#include <stdlib.h>

/* In the order of danaus_combination. */
#define HOW "product|sum|hstack|vstack|diagonal|kronecker"

enum { MOST_FILES = 256 };

static const usage use = {
    .synopsis = HOW " FILE [FILE]...\n       -o OUT.safetensors [OPTION]...",
    .about =
        "Combines several chains into one, without multiplying factors out. A file\n"
        "is a chain, or one matrix (.npy, or safetensors with one tensor), which\n"
        "counts as a chain of one factor. Kronecker products take their files from\n"
        "left to right, hstack puts them side by side, vstack one above the other and\n"
        "diagonal as blocks on the diagonal. Sums, stacks and diagonals are one\n"
        "chain if the files have equally many factors, and patterns with the same b,\n"
        "c and d. Other sums are written as a file of their terms, for danaus\n"
        "apply and dense; a term may be such a file or a transform. Biases are left\n"
        "out. A file - is standard input or output.\n",
    .number = { 2, 1 + MOST_FILES },
    .operands = HOW " and one file or more",
    .words = HOW,
};

typedef struct job {
    danaus_dtype dtype;
    int json;
    const char *how;
    int count;
    any_chain files[MOST_FILES];
    any_chain made; /* a sum, where no chain is one */
    int64_t operands_lost;
    output output;
} job;

/* A matrix as a chain of one factor (1, M, N, 1). */
static int chain_of_matrix(
    const char *path, const danaus_tensor *w, danaus_chain **chain)
{
    if (w->ndim != 2) {
        char shape[200];
        format_shape(w, shape, sizeof shape);
        return failure("%s is no chain and no matrix, but %s", path, shape);
    }
    danaus_pattern p = { 1, w->shape[0], w->shape[1], 1 };
    TRY(library(danaus_chain_create(&p, 1, w->dtype, chain)));
    memcpy(
        danaus_chain_weights(*chain, 0), w->data,
        (size_t)tensor_elements(w) * danaus_dtype_size(w->dtype));
    return STATUS_OK;
}

static int load(const char *path, any_chain *any)
{
    danaus_file *file;
    danaus_tensor w;
    TRY(library(danaus_file_open(path, &file)));
    const char *format = danaus_file_metadata(file, "format");
    int is_chain = (format && !strncmp(format, "danaus chain", 12)) ||
                   danaus_file_find(file, "factor.0", &w) == DANAUS_OK;
    danaus_file_close(file);
    if (is_chain)
        return library(any_chain_load(path, any));
    file = NULL;
    int status = open_array(path, &file, &w);
    status = status ? status : chain_of_matrix(path, &w, &any->chain);
    danaus_file_close(file);
    return status;
}

static int convert(any_chain *any, const char *path, danaus_dtype dtype)
{
    danaus_chain *converted;
    if (any->made)
        return failure("%s has terms or orders: --dtype is for single chains", path);
    TRY(library(danaus_chain_convert(any->chain, dtype, &converted)));
    danaus_chain_destroy(any->chain);
    any->chain = converted;
    return STATUS_OK;
}

static int load_all(job *j, char **paths)
{
    for (int n = 0; n < j->count; n++) {
        any_chain *any = &j->files[n];
        const char *path = paths[n];
        int status = standard_input(&path);
        status = status ? status : load(path, any);
        if (status)
            return status;
        j->operands_lost += any_chain_non_finite(any);
        if (any_chain_drop_bias(any))
            warning("the bias of %s is left out", paths[n]);
        if (j->dtype)
            status = convert(any, paths[n], j->dtype);
        if (status)
            return status;
    }
    return STATUS_OK;
}

/* Patterns of the chain, or lists of them, of a sum's terms. */
static json_t *patterns_of(const any_chain *made)
{
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    if (made->chain)
        return json_patterns(patterns, chain_patterns(made->chain, patterns));
    json_t *terms = json_array();
    for (int i = 0; i < danaus_operator_count(made->made); i++) {
        int count = chain_patterns(danaus_operator_chain(made->made, i), patterns);
        json_array_append_new(terms, json_patterns(patterns, count));
    }
    return terms;
}

static int report(const job *j)
{
    const any_chain *made = &j->made;
    json_t *facts = any_chain_facts(made, "how", j->how, &j->output);
    json_object_set_new(facts, made->chain ? "patterns" : "terms", patterns_of(made));
    return facts_report(
        facts, j->json, &j->output,
        "{output}: {rows} x {cols}, {dtype}, {parameters} parameters"
        "[: {patterns}| in {terms:#term}]\n");
}

/* True if all files are of one size and type. */
static int are_alike(const job *j)
{
    int alike = 1;
    const any_chain *first = j->files;
    for (int n = 1; n < j->count; n++)
        alike &= any_chain_rows(&j->files[n]) == any_chain_rows(first) &&
                 any_chain_cols(&j->files[n]) == any_chain_cols(first) &&
                 any_chain_dtype(&j->files[n]) == any_chain_dtype(first);
    return alike;
}

/* The sum of all files as terms of their own. */
static int add_terms(job *j)
{
    return library(any_chains_add(j->files, j->count, &j->made.made));
}

/* The library's sentence, with files in place of the chains' numbers. */
static int named_failure(char **paths, int count)
{
    char text[1024];
    size_t length = 0;
    const char *from = danaus_error_detail();
    while (*from && length + 1 < sizeof text) {
        char *end = NULL;
        long n = strncmp(from, "chain ", 6) ? -1 : strtol(from + 6, &end, 10);
        int is_number = n >= 0 && n < count && end > from + 6;
        const char *part = is_number ? paths[n] : from;
        size_t bytes = is_number ? strlen(part) : 1;
        snprintf(text + length, sizeof text - length, "%.*s", (int)bytes, part);
        length += bytes;
        from = is_number ? end : from + 1;
    }
    return failure("%s", text);
}

/* One chain, or, where patterns do not agree, the sum of several. */
static int combine(job *j, char **paths)
{
    danaus_combination how = (danaus_combination)args_word(HOW, j->how);
    const danaus_chain *chains[MOST_FILES];
    for (int n = 0; n < j->count; n++) {
        chains[n] = j->files[n].chain;
        if (!chains[n] && how == DANAUS_SUM)
            return add_terms(j);
        if (!chains[n])
            return failure(
                "%s has terms or orders: it can be part of a sum, of no %s", paths[n],
                j->how);
    }
    danaus_status status = danaus_chain_combine(how, chains, j->count, &j->made.chain);
    if (status == DANAUS_ERR_SHAPE && how == DANAUS_SUM && are_alike(j))
        return add_terms(j);
    return status ? named_failure(paths, j->count) : STATUS_OK;
}

static int run(job *j, char **paths)
{
    TRY(output_open(&j->output, j->output.name));
    TRY(load_all(j, paths));
    TRY(combine(j, paths));
    TRY(any_chain_write(&j->made, &j->output, j->operands_lost));
    return report(j);
}

int cmd_combine(int argc, char **argv)
{
    job j = { 0 };
    int operands;
    const arg table[] = {
        { "output", 'o', ARG_OUTPUT, &j.output.name, "FILE",
          "the chain file to write" },
        { "dtype", 0, ARG_DTYPE, &j.dtype, "TYPE",
          "convert all files to f32, f64, c64, c128, f16 or\n"
          "bf16; without it they are of one type" },
        { "json", 0, ARG_FLAG, &j.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, &operands));
    TRY(refuse_if(args_word(HOW, argv[1]) < 0, "\"%s\" is none of " HOW, argv[1]));
    j.how = argv[1];
    j.count = operands - 1;
    int status = run(&j, argv + 2);
    for (int n = 0; n < j.count; n++)
        any_chain_free(&j.files[n]);
    any_chain_free(&j.made);
    return status;
}
