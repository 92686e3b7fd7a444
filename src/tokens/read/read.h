/* Reading the parts of tokenizer.json, whose kinds the package `tokenizers` names by "type". */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_READ_H
#define DN_TOKENS_READ_H

#include "io/json.h"
#include "tokens/tokens.h"

typedef danaus_status read_part_fn(const json_t *part, danaus_tokenizer *t);

typedef struct part_kind {
    const char *type;
    read_part_fn *read;
} part_kind;

#define KIND_COUNT(kinds) (sizeof(kinds) / sizeof *(kinds))

/* Reads a part by its kind; DANAUS_ERR_UNSUPPORTED if it is none of these. */
danaus_status dn_read_kind(
    const json_t *part, const char *name, const part_kind *kinds, size_t count,
    danaus_tokenizer *t);

/* Reads all parts of part[field], which is an array. */
danaus_status dn_read_each(
    const json_t *part, const char *field, read_part_fn *read, danaus_tokenizer *t);

/* A flag that has to be there, a text likewise, and an id; -1: it is none. */
danaus_status dn_read_flag(const json_t *object, const char *field, int *flag);
danaus_status dn_read_text(const json_t *object, const char *field, span *string);
int32_t dn_json_id(const json_t *number);

/* The text of a string that is one code point; -1: it is none. */
int32_t dn_single_letter(span string);

/* The fields of Metaspace and of Replace, which are also decoders. */
danaus_status dn_read_metaspace(const json_t *part, pre_tokenizer *p);
danaus_status dn_read_replace(const json_t *part, normalizer *n);

/* read_normalizer.c and so on. A part is there; a decoder may be NULL. */
read_part_fn dn_read_normalizer, dn_read_pre_tokenizer, dn_read_model, dn_read_template,
    dn_read_decoder;

#endif
