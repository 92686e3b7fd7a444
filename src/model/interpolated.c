/* Reading and writing of interpolated layers. */
// SPDX-License-Identifier: Apache-2.0
#include "model/interpolated.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/lapack.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Bytes of a tensor's name. */
#define MOST_NAME 256

/* A tensor [1][rows][cols][1] as f64, unless `to` is NULL; 0: a complaint was made. */
static int read_matrix(
    binder *b, const char *name, int64_t rows, int64_t cols, double *to)
{
    danaus_tensor t;
    const int64_t shape[] = { 1, rows, cols, 1 };
    if (!dn_binder_take(b, name, 4, shape, &t))
        return 0;
    if (to)
        dn_convert(t.dtype, t.data, DANAUS_F64, to, rows * cols);
    return 1;
}

static int read_vector(binder *b, const char *name, int64_t count, double *to)
{
    danaus_tensor t;
    if (!dn_binder_take(b, name, 1, &count, &t))
        return 0;
    if (to)
        dn_convert(t.dtype, t.data, DANAUS_F64, to, count);
    return 1;
}

/* True where a part has a bias: without any they are zeros. */
static int has_vector(binder *b, const char *name, const char *part)
{
    char path[MOST_NAME];
    danaus_tensor t;
    snprintf(path, sizeof path, "%s.%s.bias", name, part);
    return dn_binder_find(b, path, &t);
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
        double *to;
    } matrices[] = { { "basis", f->rank, f->cols, f->basis },
                     { "others", others, f->rank, parts->rest } },
      vectors[] = { { "basis", f->rank, 1, parts->kept_bias },
                    { "others", others, 1, parts->rest_bias } };
    char path[MOST_NAME];
    int good = 1;
    int biased = has_vector(b, name, "basis") || has_vector(b, name, "others");
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s.%s.weights.0", name, matrices[i].part);
        good &=
            read_matrix(b, path, matrices[i].rows, matrices[i].cols, matrices[i].to);
        snprintf(path, sizeof path, "%s.%s.bias", name, vectors[i].part);
        good &= !biased || read_vector(b, path, vectors[i].rows, vectors[i].to);
    }
    snprintf(path, sizeof path, "%s.place", name);
    if (!parts->place) { /* it is not read */
        danaus_tensor t;
        dn_binder_find(b, path, &t);
        return good;
    }
    return good & read_places(b, path, f->rows, f->rank, parts->place, f->kept);
}

int64_t dn_interpolated_rank(binder *b, const char *name)
{
    char path[MOST_NAME];
    danaus_tensor t;
    snprintf(path, sizeof path, "%s.basis.weights.0", name);
    if (!dn_binder_find(b, path, &t))
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
