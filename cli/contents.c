/* What a file holds: its arrays and metadata, and the chain, operator or model that they make. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/contents.h"

#include "cli/models.h"
#include "cli/operators.h"
#include "common/args.h"
#include "common/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- arrays ---- */

static json_t *sizes_of(const danaus_file_entry *entry)
{
    json_t *sizes = json_array();
    for (int64_t i = 0; i < entry->ndim; i++)
        json_array_append_new(sizes, json_integer(entry->shape[i]));
    return sizes;
}

/* "8 x 4"; an array without dimensions is one element. */
static void format_sizes(const danaus_file_entry *entry, char *text, size_t size)
{
    size_t length = (size_t)snprintf(text, size, "%s", entry->ndim ? "" : "1");
    for (int64_t i = 0; i < entry->ndim && length < size; i++)
        length += (size_t)snprintf(
            text + length, size - length, "%s%" PRId64, i ? " x " : "",
            entry->shape[i]);
}

static json_t *arrays_of(const danaus_file *file)
{
    json_t *arrays = json_array();
    danaus_file_entry entry;
    for (int i = 0; i < danaus_file_entry_count(file); i++) {
        danaus_file_entry_at(file, i, &entry);
        char size[200];
        format_sizes(&entry, size, sizeof size);
        json_array_append_new(
            arrays, facts_of(
                        "name:t type:t dtype:t shape:o size:t bytes:i", entry.name,
                        entry.type, entry.dtype ? danaus_dtype_name(entry.dtype) : NULL,
                        sizes_of(&entry), size, entry.bytes));
    }
    return arrays;
}

static json_t *metadata_of(const danaus_file *file)
{
    json_t *metadata = json_array();
    const char *key;
    for (int i = 0; (key = danaus_file_metadata_key(file, i)); i++)
        json_array_append_new(
            metadata, facts_of("key:t value:t", key, danaus_file_metadata(file, key)));
    return metadata;
}

/* ---- chains and operators ---- */

static json_t *chain_facts(const any_chain *any)
{
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    int terms = any->made ? danaus_operator_terms(any->made) : 1;
    json_t *list = json_array();
    int chains = any->made ? danaus_operator_count(any->made) : 1;
    for (int i = 0; i < chains; i++) {
        const danaus_chain *chain =
            any->made ? danaus_operator_chain(any->made, i) : any->chain;
        json_array_append_new(
            list, json_patterns(patterns, chain_patterns(chain, patterns)));
    }
    int biased = any->made ? danaus_operator_bias(any->made) != NULL
                           : danaus_chain_bias(any->chain) != NULL;
    return facts_of(
        "rows:i cols:i dtype:t parameters:i terms:d chains:o bias:b",
        any_chain_rows(any), any_chain_cols(any),
        danaus_dtype_name(any_chain_dtype(any)), any_chain_parameters(any), terms, list,
        biased);
}

/* True if an array is the first factor of a chain or of a sum. */
static int has_factors(const danaus_file *file)
{
    danaus_file_entry entry;
    for (int i = 0; i < danaus_file_entry_count(file); i++) {
        danaus_file_entry_at(file, i, &entry);
        if (!strcmp(entry.name, "factor.0") || !strcmp(entry.name, "term.0.factor.0"))
            return 1;
    }
    return 0;
}

/* The kind of a file, and facts of its chain, or what keeps it from being one. */
static const char *kind_of(
    const char *path, const danaus_file *file, json_t **chain, const char **problem)
{
    any_chain any = { 0 };
    const char *kind = "arrays";
    if (!has_factors(file))
        return kind;
    if (any_chain_load(path, &any)) {
        *problem = danaus_error_detail();
    } else {
        kind = !any.made                             ? "chain"
               : danaus_operator_terms(any.made) > 1 ? "sum"
                                                     : "operator";
        *chain = chain_facts(&any);
    }
    any_chain_free(&any);
    return kind;
}

static json_t *file_facts(const char *path, const danaus_file *file)
{
    json_t *chain = json_null(), *arrays = arrays_of(file);
    const char *problem = NULL, *kind = kind_of(path, file, &chain, &problem);
    int64_t bytes = 0;
    danaus_file_entry entry;
    for (int i = 0; i < danaus_file_entry_count(file); i++) {
        danaus_file_entry_at(file, i, &entry);
        bytes += entry.bytes;
    }
    return facts_of(
        "file:t kind:t bytes:i arrays:o metadata:o chain:o problem:t", path, kind,
        bytes, arrays, metadata_of(file), chain, problem);
}

/* ---- models ---- */

static int model_facts(const char *path, json_t **facts)
{
    open_model m = { 0 };
    int status = model_open(&m, path, 1);
    if (status == STATUS_OK)
        *facts = facts_of(
            "file:t kind:t architecture:t blocks:i width:i parameters:i", path, "model",
            m.info.architecture, m.info.layers, m.info.width, m.info.parameters);
    model_close(&m);
    return status;
}

/* ---- both ---- */

int contents_of(const char *path, json_t **facts)
{
    struct stat s;
    danaus_file *file;
    if (!stat(path, &s) && S_ISDIR(s.st_mode))
        return model_facts(path, facts);
    TRY(library(danaus_file_open_entries(path, &file)));
    *facts = file_facts(path, file);
    danaus_file_close(file);
    return STATUS_OK;
}

static const char model_words[] =
    "{file}: a model, {architecture}, {blocks} blocks of {width}, {parameters} "
    "parameters (danaus model says more)\n";

static const char file_words[] =
    "{file}: [{?chain.rows}{kind} of {chain.rows} x {chain.cols}, {chain.dtype}, "
    "{chain.parameters} parameters, ][{?chain.bias}with a bias, ]{arrays:#array}, "
    "{bytes} bytes\n"
    "[{?problem}  no chain: {problem}\n]"
    "<arrays:  {name:-40} {type:-8} {size:-20} {bytes:12} bytes\n>"
    "<metadata:  \"{key}\": {value}\n>";

void contents_print(const json_t *facts)
{
    int is_model = !strcmp(json_string_value(json_object_get(facts, "kind")), "model");
    facts_print(facts, is_model ? model_words : file_words);
}
