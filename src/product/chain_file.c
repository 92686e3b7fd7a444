/* Chain files: safetensors with tensors factor.0, factor.1, ... of shape
   [a, b, c, d], all of one type, and perhaps bias of shape [M]; metadata
   "format": "danaus chain 1". The shapes are the patterns. Factors of 8 bits
   have scales beside them, factor.0_scale, .... */
// SPDX-License-Identifier: Apache-2.0
#include "product/chain_file.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "io/file.h"
#include "io/int8.h"
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

/* Factors of 8 bits become f32 by their scales. */
static danaus_status view_scale(
    const danaus_file *file, danaus_tensor *t, danaus_tensor *scale)
{
    char name[DN_MOST_NAME + sizeof DN_SCALE];
    snprintf(name, sizeof name, "%s" DN_SCALE, t->name);
    if (!dn_has_tensor(file, name))
        return dn_fail(
            DANAUS_ERR_FORMAT, "%s has 8 bits, and there is no %s", t->name, name);
    TRY(danaus_file_find(file, name, scale));
    if (!dn_int8_fits(t, scale))
        return dn_fail(DANAUS_ERR_FORMAT, "%s is no scale for %s", name, t->name);
    t->dtype = DANAUS_F32;
    return DANAUS_OK;
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
    if (t.dtype == DANAUS_I8)
        TRY(view_scale(file, &t, &view->scales[view->count]));
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

static void copy_factor(const chain_view *view, int factor, void *to)
{
    danaus_pattern p = view->patterns[factor];
    danaus_tensor t = { .data = view->weights[factor],
                        .dtype = DANAUS_I8,
                        .ndim = 4,
                        .shape = { p.a, p.b, p.c, p.d } };
    if (view->scales[factor].data)
        dn_int8_widen(&t, &view->scales[factor], to);
    else
        memcpy(
            to, t.data, (size_t)dn_pattern_weights(p) * danaus_dtype_size(view->dtype));
}

danaus_status dn_chain_of_view(
    const chain_view *view, int from, int to, danaus_chain **chain)
{
    TRY(danaus_chain_create(view->patterns + from, to - from, view->dtype, chain));
    for (int i = from; i < to; i++)
        copy_factor(view, i, danaus_chain_weights(*chain, i - from));
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

static danaus_status write_chain(
    const char *path, const danaus_tensor *tensors, int count)
{
    static const char *const metadata[] = { DN_CHAIN_FORMAT_KEY, DN_CHAIN_FORMAT };
    return danaus_file_write_safetensors(path, tensors, count, metadata, 1);
}

danaus_status danaus_chain_save(const danaus_chain *chain, const char *path)
{
    if (!chain || !path)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a chain and a path are needed");
    danaus_tensor tensors[DANAUS_MAX_FACTORS + 1];
    char names[DANAUS_MAX_FACTORS][DN_MOST_NAME];
    int count = danaus_chain_count(chain);
    for (int i = 0; i < count; i++)
        tensors[i] = dn_factor_tensor(chain, i, "", i, names[i]);
    const void *bias = danaus_chain_bias(chain);
    if (bias)
        tensors[count++] =
            dn_bias_tensor(bias, danaus_chain_dtype(chain), danaus_chain_rows(chain));
    return write_chain(path, tensors, count);
}

/* ---- saving in 8 bits ---- */

/* Numbers of a chain: integers of all weights; scales, and the bias behind them. */
typedef struct int8_numbers {
    int8_t *integers;
    float *others;
} int8_numbers;

static int64_t count_scales(const danaus_chain *chain)
{
    int64_t count = 0;
    for (int i = 0; i < danaus_chain_count(chain); i++) {
        danaus_pattern p = danaus_chain_pattern(chain, i);
        count += p.a * p.b * p.d;
    }
    return count;
}

static danaus_tensor narrow_bias(const danaus_chain *chain, float *to)
{
    int64_t rows = danaus_chain_rows(chain);
    for (int64_t i = 0; i < rows; i++) {
        double value[2];
        dn_load(danaus_chain_dtype(chain), danaus_chain_bias(chain), i, value);
        to[i] = (float)value[0];
    }
    return dn_bias_tensor(to, DANAUS_F32, rows);
}

static danaus_status save_int8(
    const danaus_chain *chain, const char *path, int8_numbers n)
{
    danaus_tensor tensors[2 * DANAUS_MAX_FACTORS + 1];
    char names[2 * DANAUS_MAX_FACTORS][DN_MOST_NAME];
    int count = 0;
    for (int i = 0; i < danaus_chain_count(chain); i++) {
        danaus_tensor t = dn_factor_tensor(chain, i, "", i, names[count]);
        danaus_tensor scale = t;
        snprintf(names[count + 1], DN_MOST_NAME, DN_FACTOR "%d" DN_SCALE, i);
        scale.name = names[count + 1];
        scale.dtype = DANAUS_F32;
        scale.data = n.others;
        scale.shape[2] = 1;
        dn_int8_narrow(&t, &scale, n.integers);
        t.dtype = DANAUS_I8;
        t.data = n.integers;
        n.integers += dn_int8_count(&t);
        n.others += dn_int8_count(&scale);
        tensors[count++] = t;
        tensors[count++] = scale;
    }
    if (danaus_chain_bias(chain))
        tensors[count++] = narrow_bias(chain, n.others);
    return write_chain(path, tensors, count);
}

danaus_status danaus_chain_save_int8(const danaus_chain *chain, const char *path)
{
    if (!chain || !path)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a chain and a path are needed");
    if (dn_is_complex(danaus_chain_dtype(chain)))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "weights of 8 bits are real numbers; the chain is %s",
            danaus_dtype_name(danaus_chain_dtype(chain)));
    size_t weights = (size_t)danaus_chain_parameters(chain);
    int64_t others = count_scales(chain) + danaus_chain_rows(chain);
    int8_numbers n = { dn_alloc(weights), dn_calloc((size_t)others, sizeof(float)) };
    danaus_status status = n.integers && n.others
                               ? save_int8(chain, path, n)
                               : dn_fail_memory(weights, "weights of 8 bits");
    dn_free(n.integers);
    dn_free(n.others);
    return status;
}
