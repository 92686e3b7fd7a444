/* Reading and writing of interpolated layers. */
// SPDX-License-Identifier: Apache-2.0
#include "model/interpolated.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/lapack.h"

#include <inttypes.h>

/* A tensor as f64, unless `to` is NULL; 0: a complaint was made. */
static int read_numbers(
    binder *b, const char *name, int ndim, const int64_t *shape, double *to)
{
    danaus_tensor t;
    int64_t count = 1;
    if (!dn_binder_take(b, name, ndim, shape, &t))
        return 0;
    for (int i = 0; i < ndim; i++)
        count *= shape[i];
    if (to)
        dn_convert(t.dtype, t.data, DANAUS_F64, to, count);
    return 1;
}

/* True where a part has a bias: without any they are zeros. */
static int has_vector(binder *b, const char *name, const char *part)
{
    danaus_tensor t;
    return dn_binder_find(b, dn_name("%s.%s.bias", name, part).text, &t);
}

/* place[i]: where row i stands when the kept rows come first. */
static int read_places(
    binder *b, const char *name, int64_t rows, int64_t rank, int64_t *place,
    int64_t *kept)
{
    for (int64_t t = 0; t < rank; t++)
        kept[t] = -1;
    int good = !dn_binder_integers(b, name, rows, place);
    int64_t found = 0;
    for (int64_t i = 0; i < rows && good; i++) {
        good = place[i] >= 0 && place[i] < rows;
        if (good && place[i] < rank) {
            found += kept[place[i]] < 0;
            kept[place[i]] = i;
        }
    }
    if (good && found == rank)
        return 1;
    dn_binder_complain(
        b, "%s is no order of %" PRId64 " rows: integers, each once from 0", name,
        rows);
    return 0;
}

/* What NAME.basis, NAME.others and NAME.place hold. */
typedef struct fit_parts {
    int64_t *place;                       /* [M] */
    double *kept_bias, *rest, *rest_bias; /* [r], [M - r][r], [M - r] */
} fit_parts;

/* Rows of `left` and numbers of the bias, in their places. */
static void place_rows(const fit_parts *parts, fit *f)
{
    int64_t r = f->rank;
    for (int64_t i = 0; i < f->rows; i++) {
        int64_t at = parts->place[i];
        f->bias[i] = at < r ? 0 : parts->rest_bias[at - r];
        for (int64_t s = 0; s < r; s++) {
            double c = at < r ? at == s : parts->rest[(at - r) * r + s];
            f->left[i * r + s] = c;
            f->bias[i] += c * parts->kept_bias[s];
        }
    }
}

static int read_parts(binder *b, const char *name, const fit_parts *parts, fit *f)
{
    int64_t others = f->rows - f->rank;
    const struct {
        const char *part;
        int64_t rows, cols;
        double *weights, *bias;
    } halves[] = { { "basis", f->rank, f->cols, f->basis, parts->kept_bias },
                   { "others", others, f->rank, parts->rest, parts->rest_bias } };
    const tensor_name place = dn_name("%s.place", name);
    int good = 1;
    int biased = has_vector(b, name, "basis") || has_vector(b, name, "others");
    for (int i = 0; i < 2; i++) {
        const int64_t rows = halves[i].rows, shape[] = { 1, rows, halves[i].cols, 1 };
        const tensor_name weights = dn_name("%s.%s.weights.0", name, halves[i].part),
                          bias = dn_name("%s.%s.bias", name, halves[i].part);
        good &= read_numbers(b, weights.text, 4, shape, halves[i].weights);
        good &= !biased || read_numbers(b, bias.text, 1, &rows, halves[i].bias);
    }
    if (!parts->place) { /* it is not read */
        danaus_tensor t;
        dn_binder_find(b, place.text, &t);
        return good;
    }
    return good & read_places(b, place.text, f->rows, f->rank, parts->place, f->kept);
}

int64_t dn_interpolated_rank(binder *b, const char *name)
{
    danaus_tensor t;
    if (!dn_binder_find(b, dn_name("%s.basis.weights.0", name).text, &t))
        return 0;
    return t.ndim == 4 ? t.shape[1] : -1;
}

danaus_status dn_interpolated_read(
    binder *b, const char *name, int64_t rows, int64_t cols, int64_t rank, fit *f,
    int *good)
{
    *good = 0;
    if (rank < 1 || rank >= rows) {
        dn_binder_complain(
            b,
            "%s.basis.weights.0 has to be [1, R, %" PRId64 ", 1], R from 1 to %" PRId64,
            name, cols, rows - 1);
        return DANAUS_OK;
    }
    if (b->copies->outline) {
        fit sizes = { .rows = rows, .cols = cols, .rank = rank };
        *good = read_parts(b, name, &(fit_parts){ 0 }, &sizes);
        return DANAUS_OK;
    }
    TRY(dn_fit_make(rows, cols, rank, f));
    double *block = dn_calloc((size_t)(rows * (rank + 2)), sizeof *block), *at = block;
    fit_parts parts = { .place = dn_calloc((size_t)rows, sizeof *parts.place) };
    if (block && parts.place) {
        parts.kept_bias = dn_take(&at, rank);
        parts.rest_bias = dn_take(&at, rows - rank);
        parts.rest = at;
        *good = read_parts(b, name, &parts, f);
    }
    if (*good)
        place_rows(&parts, f);
    else
        dn_fit_free(f);
    int lacks = !block || !parts.place;
    dn_free(block);
    dn_free(parts.place);
    return lacks ? dn_fail_memory((size_t)(rows * rank) * sizeof *block, "a layer")
                 : DANAUS_OK;
}

void dn_interpolated_rest(const fit *f, const interpolated_rest *to)
{
    int64_t r = f->rank, others = 0;
    for (int64_t i = 0; i < f->rows; i++)
        to->place[i] = -1;
    for (int64_t t = 0; t < r; t++) {
        to->place[f->kept[t]] = (double)t;
        to->kept_bias[t] = f->bias[f->kept[t]];
    }
    for (int64_t i = 0; i < f->rows; i++) {
        if (to->place[i] >= 0)
            continue;
        to->place[i] = (double)(r + others);
        to->bias[others] = f->bias[i];
        for (int64_t t = 0; t < r; t++) {
            to->rows[others * r + t] = f->left[i * r + t];
            to->bias[others] -= f->left[i * r + t] * to->kept_bias[t];
        }
        others++;
    }
}
