/* JSON: parsing, and the fields of an object. */
// SPDX-License-Identifier: Apache-2.0
#include "io/json.h"

#include "base/mem.h"
#include "base/status.h"

#include <string.h>

#define LARGEST        "9223372036854775807"
#define LARGEST_DIGITS (sizeof LARGEST - 1)

static int is_digit(char letter) { return letter >= '0' && letter <= '9'; }

/* Puts LARGEST and spaces for an integer beyond it. */
static void clamp_integer(char *digits, size_t count)
{
    if (count < LARGEST_DIGITS ||
        (count == LARGEST_DIGITS && memcmp(digits, LARGEST, count) <= 0))
        return;
    memset(digits, ' ', count);
    memcpy(digits, LARGEST, LARGEST_DIGITS);
}

/* Clamps all integers; strings, fractions and exponents stay as they are. */
static void clamp_integers(char *json, size_t length)
{
    int in_string = 0;
    for (size_t i = 0, end; i < length; i = end) {
        end = i + 1;
        if (in_string && json[i] == '\\')
            end++;
        else if (json[i] == '"')
            in_string = !in_string;
        if (in_string || !is_digit(json[i]))
            continue;
        while (end < length && is_digit(json[end]))
            end++;
        char before = i ? json[i - 1] : ' ', after = end < length ? json[end] : ' ';
        if (!strchr(".eE+", before) && !strchr(".eE", after))
            clamp_integer(json + i, end - i);
    }
}

json_t *dn_json_load(span string, json_error_t *error)
{
    json_t *json =
        json_loadb(string.text, string.length, JSON_REJECT_DUPLICATES, error);
    if (json || json_error_code(error) != json_error_numeric_overflow)
        return json;
    char *copy = dn_alloc(string.length);
    if (!copy) {
        *error = (json_error_t){ 0 };
        return NULL;
    }
    memcpy(copy, string.text, string.length);
    clamp_integers(copy, string.length);
    json = json_loadb(copy, string.length, JSON_REJECT_DUPLICATES, error);
    dn_free(copy);
    return json;
}

danaus_status dn_json_parse(span string, json_t **json)
{
    json_error_t error = { 0 };
    *json = NULL;
    if (!string.length)
        return dn_fail(DANAUS_ERR_FORMAT, "no proper JSON: it is empty");
    *json = dn_json_load(string, &error);
    if (*json)
        return DANAUS_OK;
    if (!error.text[0] || json_error_code(&error) == json_error_out_of_memory)
        return dn_fail_memory(string.length, "JSON");
    return dn_fail(
        DANAUS_ERR_FORMAT, "no proper JSON: %s at byte %d", error.text, error.position);
}

static danaus_status bad_field(const char *field, const char *what)
{
    return dn_fail(DANAUS_ERR_FORMAT, "\"%s\" is not %s", field, what);
}

/* The field's value; NULL if it is left out or null. */
static json_t *get(const json_t *object, const char *field)
{
    json_t *value = json_object_get(object, field);
    return json_is_null(value) ? NULL : value;
}

danaus_status dn_json_flag(const json_t *object, const char *field, int *value)
{
    const json_t *found = get(object, field);
    if (found && !json_is_boolean(found))
        return bad_field(field, "true or false");
    if (found)
        *value = json_is_true(found);
    return DANAUS_OK;
}

danaus_status dn_json_integer(const json_t *object, const char *field, int64_t *value)
{
    const json_t *found = get(object, field);
    if (found && (!json_is_integer(found) || json_integer_value(found) < 0))
        return bad_field(field, "an integer, 0 or more");
    if (found)
        *value = (int64_t)json_integer_value(found);
    return DANAUS_OK;
}

danaus_status dn_json_number(const json_t *object, const char *field, double *value)
{
    const json_t *found = get(object, field);
    if (found && !(json_is_number(found) && json_number_value(found) >= 0))
        return bad_field(field, "a number, 0 or more");
    if (found)
        *value = json_number_value(found);
    return DANAUS_OK;
}

danaus_status dn_json_text(const json_t *object, const char *field, span *value)
{
    const json_t *found = get(object, field);
    if (found && !json_is_string(found))
        return bad_field(field, "a string");
    if (found)
        *value = dn_json_span(found);
    return DANAUS_OK;
}

danaus_status dn_json_array(const json_t *object, const char *field, json_t **array)
{
    *array = get(object, field);
    return *array && !json_is_array(*array) ? bad_field(field, "an array") : DANAUS_OK;
}
