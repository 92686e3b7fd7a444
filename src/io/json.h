/* JSON: parsing, and the fields of an object. DANAUS_ERR_FORMAT if a field has the wrong type. A
   field that is left out or null keeps the present value. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_IO_JSON_H
#define DN_IO_JSON_H

#include "base/text.h"
#include "danaus/base.h"

#include <jansson.h>

/* Integers beyond 63 bits count as the largest one: transformers writes 10^30 for a text of any
   length. NULL: `error` says why, and has no text if memory ran out. */
json_t *dn_json_load(span string, json_error_t *error);
danaus_status dn_json_parse(span string, json_t **json);

danaus_status dn_json_flag(const json_t *object, const char *field, int *value);
danaus_status dn_json_integer(const json_t *object, const char *field, int64_t *value);
danaus_status dn_json_number(const json_t *object, const char *field, double *value);
danaus_status dn_json_text(const json_t *object, const char *field, span *value);

/* An array, NULL if it is left out. */
danaus_status dn_json_array(const json_t *object, const char *field, json_t **array);

static inline span dn_json_span(const json_t *string)
{
    return (span){ json_string_value(string), json_string_length(string) };
}

#endif
