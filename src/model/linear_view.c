/* Finds the tensors of linear layers in a file. */
// SPDX-License-Identifier: Apache-2.0
#include "model/linear_view.h"

#include "math/pattern.h"

#include <inttypes.h>

int dn_view_matrix(binder *b, const char *name, layer_view *v)
{
    const tensor_name path = dn_name("%s.weight", name);
    danaus_tensor *t = v->weights;
    int widened = b->widened_count;
    if (!dn_binder_find(b, path.text, t) || dn_is_placeholder(t))
        return 0;
    if (b->widened_count > widened)
        dn_binder_complain(
            b, "%s has 8 bits: such weights are factors of chains", path.text);
    else if (t->ndim == 2)
        v->patterns[v->count++] = (danaus_pattern){ 1, t->shape[0], t->shape[1], 1 };
    else if (t->ndim == 3)
        v->patterns[v->count++] =
            (danaus_pattern){ t->shape[0], t->shape[1], t->shape[2], 1 };
    else if (t->ndim == 4) /* of a convolution whose pieces do not overlap */
        v->patterns[v->count++] =
            (danaus_pattern){ 1, t->shape[0], t->shape[1] * t->shape[2] * t->shape[3],
                              1 };
    else
        dn_binder_complain(b, "%s has %d dimensions, not 2 to 4", path.text, t->ndim);
    return 1;
}

/* Where there is no factor, NAME.LACKS is what is needed. */
static void view_chain(
    binder *b, const char *name, const char *lacks, const layer_size *size,
    layer_view *v)
{
    for (; v->count < DANAUS_MAX_FACTORS; v->count++) {
        const tensor_name path = dn_name("%s.weights.%d", name, v->count);
        danaus_tensor *t = &v->weights[v->count];
        if (!dn_binder_find(b, path.text, t))
            break;
        if (t->ndim != 4) {
            dn_binder_complain(b, "%s has %d dimensions, not 4", path.text, t->ndim);
            v->count = 0;
            return;
        }
        v->patterns[v->count] =
            (danaus_pattern){ t->shape[0], t->shape[1], t->shape[2], t->shape[3] };
    }
    const int64_t whole[] = { size->rows, size->cols };
    if (!v->count)
        dn_binder_lack(b, dn_name("%s.%s", name, lacks).text, 2, whole);
}

static int is_whole(
    binder *b, const char *name, int64_t rows, int64_t cols, const layer_view *v)
{
    if (danaus_patterns_check(v->patterns, v->count)) {
        dn_binder_complain(b, "%s: %s", name, danaus_error_detail());
        return 0;
    }
    int64_t found[] = { dn_pattern_rows(v->patterns[0]),
                        dn_pattern_cols(v->patterns[v->count - 1]) };
    if (found[0] == rows && found[1] == cols)
        return 1;
    dn_binder_complain(
        b, "%s is %" PRId64 " x %" PRId64 ", not %" PRId64 " x %" PRId64, name,
        found[0], found[1], rows, cols);
    return 0;
}

static int view_bias(binder *b, const char *name, const layer_size *size, layer_view *v)
{
    const tensor_name path = dn_name("%s.bias", name);
    danaus_tensor t;
    if (!dn_binder_find(b, path.text, &t) && size->no_bias)
        return 1;
    if (!dn_binder_take(b, path.text, 1, &size->rows, &t))
        return 0;
    v->bias = t;
    return 1;
}

int dn_view_layer(
    binder *b, const char *name, const layer_size *size, const char *lacks,
    layer_view *v)
{
    if (lacks)
        view_chain(b, name, lacks, size, v);
    int good_bias = view_bias(b, name, size, v);
    return good_bias && v->count && is_whole(b, name, size->rows, size->cols, v);
}

int dn_view_sum(binder *b, const char *name, const layer_size *size, layer_view v[2])
{
    static const char *const parts[] = { "first", "second" };
    layer_size part = *size;
    int good = 1;
    for (int i = 0; i < 2; i++) {
        part.no_bias |= i;
        good &= dn_view_layer(
            b, dn_name("%s.%s", name, parts[i]).text, &part, "weights.0", &v[i]);
    }
    if (good && v[0].count + v[1].count > DANAUS_MAX_FACTORS) {
        dn_binder_complain(
            b, "%s is a sum of more than %d factors", name, DANAUS_MAX_FACTORS);
        return 0;
    }
    return good;
}

int dn_is_sum(binder *b, const char *name)
{
    danaus_tensor t;
    return dn_binder_find(b, dn_name("%s.first.weights.0", name).text, &t);
}
