/* Chain files: safetensors with tensors factor.0, factor.1, ... of shape
   [a, b, c, d], all of one type, and perhaps bias of shape [M]; metadata
   "format": "danaus chain 1". The shapes are the patterns. */
// SPDX-License-Identifier: Apache-2.0
#include "danaus/ks.h"

#include "base/status.h"
#include "io/file.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FORMAT_KEY  "format"
#define FORMAT_KIND "danaus chain "
#define FORMAT      FORMAT_KIND "1"
#define FACTOR      "factor."
#define BIAS        "bias"

/* ---- loading ---- */

/* What a chain file says, checked; data stay in the file. */
typedef struct chain_view {
    int count;
    danaus_dtype dtype;
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    const void *weights[DANAUS_MAX_FACTORS];
    const void *bias; /* or NULL */
} chain_view;

/* Other programs write other formats, or none, into the same place. */
static danaus_status check_format(const danaus_file *file)
{
    const char *format = danaus_file_metadata(file, FORMAT_KEY);
    if (format && !strncmp(format, FORMAT_KIND, strlen(FORMAT_KIND)) &&
        strcmp(format, FORMAT))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "the file is \"%.40s\"; this library reads \"%s\"",
            format, FORMAT);
    return DANAUS_OK;
}

static int has_tensor(const danaus_file *file, const char *name)
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
static danaus_status check_all_read(const danaus_file *file, int count)
{
    int numbered = 0;
    const char *name;
    for (int i = 0; (name = dn_file_name(file, i)); i++) {
        if (strncmp(name, FACTOR, strlen(FACTOR)))
            continue;
        const char *number = name + strlen(FACTOR);
        size_t digits = strspn(number, "0123456789");
        numbered += digits > 0 && number[digits] == '\0';
    }
    if (numbered == count)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_FORMAT,
        FACTOR "%d is missing, though the file has %d numbered factors", count,
        numbered);
}

static danaus_status view_bias(const danaus_file *file, chain_view *view)
{
    danaus_tensor t;
    int64_t rows = dn_pattern_rows(view->patterns[0]);
    if (!has_tensor(file, BIAS))
        return DANAUS_OK;
    TRY(danaus_file_find(file, BIAS, &t));
    if (t.dtype != view->dtype)
        return dn_fail(
            DANAUS_ERR_FORMAT, BIAS " is %s and the factors are %s",
            danaus_dtype_name(t.dtype), danaus_dtype_name(view->dtype));
    if (t.ndim != 1 || t.shape[0] != rows)
        return dn_fail(
            DANAUS_ERR_SHAPE,
            BIAS " does not have the shape [%" PRId64 "] of the output", rows);
    view->bias = t.data;
    return DANAUS_OK;
}

static danaus_status view_chain(const danaus_file *file, chain_view *view)
{
    TRY(check_format(file));
    char name[32] = FACTOR "0";
    if (!has_tensor(file, name))
        return dn_fail(
            DANAUS_ERR_FORMAT, "this is no chain: there is no tensor " FACTOR "0");
    do {
        if (view->count == DANAUS_MAX_FACTORS)
            return dn_fail(
                DANAUS_ERR_FORMAT, "the chain has more than %d factors",
                DANAUS_MAX_FACTORS);
        TRY(view_factor(file, name, view));
        snprintf(name, sizeof name, FACTOR "%d", view->count);
    } while (has_tensor(file, name));
    TRY(check_all_read(file, view->count));
    TRY(danaus_patterns_check(view->patterns, view->count));
    return view_bias(file, view);
}

static danaus_status make_chain(const chain_view *view, danaus_chain **chain)
{
    danaus_chain *made;
    TRY(danaus_chain_create(view->patterns, view->count, view->dtype, &made));
    size_t element = danaus_dtype_size(view->dtype);
    for (int i = 0; i < view->count; i++) {
        size_t bytes = (size_t)dn_pattern_weights(view->patterns[i]) * element;
        memcpy(danaus_chain_weights(made, i), view->weights[i], bytes);
    }
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

danaus_status danaus_chain_save(const danaus_chain *chain, const char *path)
{
    if (!chain || !path)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a chain and a path are needed");
    static const char *const metadata[] = { FORMAT_KEY, FORMAT };
    danaus_tensor tensors[DANAUS_MAX_FACTORS + 1];
    char names[DANAUS_MAX_FACTORS][32];
    danaus_dtype dtype = danaus_chain_dtype(chain);
    int count = danaus_chain_count(chain);
    for (int i = 0; i < count; i++) {
        danaus_pattern p = danaus_chain_pattern(chain, i);
        snprintf(names[i], sizeof names[i], FACTOR "%d", i);
        const void *weights = danaus_chain_weights_const(chain, i);
        tensors[i] = (danaus_tensor){
            names[i], weights, dtype, 4, { p.a, p.b, p.c, p.d }, { 0 }
        };
    }
    const void *bias = danaus_chain_bias(chain);
    if (bias)
        tensors[count++] = (danaus_tensor){
            BIAS, bias, dtype, 1, { danaus_chain_rows(chain) }, { 0 }
        };
    return danaus_file_write_safetensors(path, tensors, count, metadata, 1);
}
