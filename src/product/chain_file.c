/* Chain files: safetensors with tensors factor.0, factor.1, ... of shape
   [a, b, c, d], all of one type, and perhaps bias of shape [M]; metadata
   "format": "danaus chain 1". The shapes are the patterns. */
// SPDX-License-Identifier: Apache-2.0
#include "product/chain_file.h"

#include "base/status.h"
#include "io/file.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- loading ---- */

/* Other programs write other formats, or none, into the same place. */
static danaus_status check_format(const danaus_file *file)
{
    const char *format = danaus_file_metadata(file, DN_CHAIN_FORMAT_KEY),
               *kind = DN_CHAIN_FORMAT_KIND;
    if (!format || strncmp(format, kind, strlen(kind)) ||
        !strcmp(format, DN_CHAIN_FORMAT))
        return DANAUS_OK;
    if (!strcmp(format, DN_OPERATOR_FORMAT))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "the file is \"%s\": its factors stand between orders, which a chain would "
            "lose; it is read as an operator",
            format);
    if (!strcmp(format, DN_SUM_FORMAT))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "the file is \"%s\": a sum, which is no single chain; it is read as an "
            "operator",
            format);
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED, "the file is \"%.40s\"; this library reads \"%s\"",
        format, DN_CHAIN_FORMAT);
}

int dn_has_tensor(const danaus_file *file, const char *name)
{
    const char *other;
    for (int i = 0; (other = dn_file_name(file, i)); i++)
        if (!strcmp(other, name))
            return 1;
    return 0;
}

static danaus_status view_factor(
    const danaus_file *file, const char *name, chain_view *view)
{
    danaus_tensor t;
    TRY(danaus_file_find(file, name, &t));
    if (t.ndim != 4)
        return dn_fail(
            DANAUS_ERR_FORMAT, "%s has %d dimensions instead of the four of a pattern",
            name, t.ndim);
    if (view->count && t.dtype != view->dtype)
        return dn_fail(
            DANAUS_ERR_FORMAT, "%s is %s and the factors before it are %s", name,
            danaus_dtype_name(t.dtype), danaus_dtype_name(view->dtype));
    view->dtype = t.dtype;
    view->patterns[view->count] =
        (danaus_pattern){ t.shape[0], t.shape[1], t.shape[2], t.shape[3] };
    view->weights[view->count++] = t.data;
    return DANAUS_OK;
}

/* Factors count from 0 without gaps: a name factor.N that was not read tells that
   one before it is missing. */
static danaus_status check_all_read(
    const danaus_file *file, const char *prefix, int count)
{
    int numbered = 0;
    const char *name;
    size_t before = strlen(prefix);
    for (int i = 0; (name = dn_file_name(file, i)); i++) {
        if (strncmp(name, prefix, before) ||
            strncmp(name + before, DN_FACTOR, strlen(DN_FACTOR)))
            continue;
        const char *number = name + before + strlen(DN_FACTOR);
        size_t digits = strspn(number, "0123456789");
        numbered += digits > 0 && number[digits] == '\0';
    }
    if (numbered == count)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_FORMAT,
        "%s" DN_FACTOR "%d is missing, though the file has %d numbered factors", prefix,
        count, numbered);
}

danaus_status dn_view_bias(const danaus_file *file, int64_t rows, chain_view *view)
{
    danaus_tensor t;
    if (!dn_has_tensor(file, DN_BIAS))
        return DANAUS_OK;
    TRY(danaus_file_find(file, DN_BIAS, &t));
    if (t.dtype != view->dtype)
        return dn_fail(
            DANAUS_ERR_FORMAT, DN_BIAS " is %s and the factors are %s",
            danaus_dtype_name(t.dtype), danaus_dtype_name(view->dtype));
    if (t.ndim != 1 || t.shape[0] != rows)
        return dn_fail(
            DANAUS_ERR_SHAPE,
            DN_BIAS " does not have the shape [%" PRId64 "] of the output", rows);
    view->bias = t.data;
    return DANAUS_OK;
}

danaus_status dn_view_factors(
    const danaus_file *file, const char *prefix, chain_view *view)
{
    char name[DN_MOST_NAME];
    snprintf(name, sizeof name, "%s" DN_FACTOR "0", prefix);
    if (!dn_has_tensor(file, name))
        return dn_fail(
            DANAUS_ERR_FORMAT, "this is no chain: there is no tensor %s", name);
    do {
        if (view->count == DANAUS_MAX_FACTORS)
            return dn_fail(
                DANAUS_ERR_FORMAT, "the chain has more than %d factors",
                DANAUS_MAX_FACTORS);
        TRY(view_factor(file, name, view));
        snprintf(name, sizeof name, "%s" DN_FACTOR "%d", prefix, view->count);
    } while (dn_has_tensor(file, name));
    return check_all_read(file, prefix, view->count);
}

static danaus_status view_chain(const danaus_file *file, chain_view *view)
{
    TRY(check_format(file));
    TRY(dn_view_factors(file, "", view));
    TRY(danaus_patterns_check(view->patterns, view->count));
    return dn_view_bias(file, dn_pattern_rows(view->patterns[0]), view);
}

danaus_status dn_chain_of_view(
    const chain_view *view, int from, int to, danaus_chain **chain)
{
    TRY(danaus_chain_create(view->patterns + from, to - from, view->dtype, chain));
    size_t element = danaus_dtype_size(view->dtype);
    for (int i = from; i < to; i++) {
        size_t bytes = (size_t)dn_pattern_weights(view->patterns[i]) * element;
        memcpy(danaus_chain_weights(*chain, i - from), view->weights[i], bytes);
    }
    return DANAUS_OK;
}

static danaus_status make_chain(const chain_view *view, danaus_chain **chain)
{
    danaus_chain *made;
    TRY(dn_chain_of_view(view, 0, view->count, &made));
    danaus_status status =
        view->bias ? danaus_chain_set_bias(made, view->bias) : DANAUS_OK;
    if (status != DANAUS_OK)
        danaus_chain_destroy(made);
    else
        *chain = made;
    return status;
}

danaus_status danaus_chain_load(const char *path, danaus_chain **chain)
{
    if (!path || !chain)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a path and a place for the chain are needed");
    danaus_file *file;
    TRY(danaus_file_open(path, &file));
    chain_view view = { 0 };
    danaus_status status = view_chain(file, &view);
    if (status == DANAUS_OK)
        status = make_chain(&view, chain);
    danaus_file_close(file);
    return status == DANAUS_OK ? status : dn_fail_in(status, path);
}

/* ---- saving ---- */

danaus_tensor dn_factor_tensor(
    const danaus_chain *chain, int factor, const char *prefix, int number, char *name)
{
    danaus_pattern p = danaus_chain_pattern(chain, factor);
    snprintf(name, DN_MOST_NAME, "%s" DN_FACTOR "%d", prefix, number);
    return (danaus_tensor){ .name = name,
                            .data = danaus_chain_weights_const(chain, factor),
                            .dtype = danaus_chain_dtype(chain),
                            .ndim = 4,
                            .shape = { p.a, p.b, p.c, p.d } };
}

danaus_tensor dn_bias_tensor(const void *bias, danaus_dtype dtype, int64_t rows)
{
    return (danaus_tensor){
        .name = DN_BIAS, .data = bias, .dtype = dtype, .ndim = 1, .shape = { rows }
    };
}

danaus_status danaus_chain_save(const danaus_chain *chain, const char *path)
{
    if (!chain || !path)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a chain and a path are needed");
    static const char *const metadata[] = { DN_CHAIN_FORMAT_KEY, DN_CHAIN_FORMAT };
    danaus_tensor tensors[DANAUS_MAX_FACTORS + 1];
    char names[DANAUS_MAX_FACTORS][DN_MOST_NAME];
    int count = danaus_chain_count(chain);
    for (int i = 0; i < count; i++)
        tensors[i] = dn_factor_tensor(chain, i, "", i, names[i]);
    const void *bias = danaus_chain_bias(chain);
    if (bias)
        tensors[count++] =
            dn_bias_tensor(bias, danaus_chain_dtype(chain), danaus_chain_rows(chain));
    return danaus_file_write_safetensors(path, tensors, count, metadata, 1);
}
