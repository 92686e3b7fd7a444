/* The rows of tuning tables as text, section by section. Numbers are read and written
   without the locale. */
// SPDX-License-Identifier: Apache-2.0
#include "device/tuning.h"
#include "device/tuning_table.h"

#include "base/dtype.h"
#include "base/status.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

const char *const dn_operation_names[DN_OPERATIONS] = { "product", "weight_gradient",
                                                        "pack" };

#define TF32 "tf32" /* as a type: f32 with products of 10 bits */

/* ---- numbers and words ---- */

static int read_size(span s, int64_t *value)
{
    return dn_span_integer(s, value) && *value > 0;
}

/* What follows the e of a number: perhaps a sign, then digits. */
static int read_exponent(span s, double *exponent)
{
    int64_t value;
    int sign = s.length > 0 && (s.text[0] == '-' || s.text[0] == '+');
    if (!dn_span_integer((span){ s.text + sign, s.length - (size_t)sign }, &value))
        return 0;
    *exponent = sign && s.text[0] == '-' ? -(double)value : (double)value;
    return 1;
}

/* Digits, perhaps with a point, then perhaps e and an exponent; positive. */
static int read_positive(span s, double *number)
{
    double value = 0, power = 0;
    int digits = 0, point = 0;
    size_t e = 0;
    while (e < s.length && s.text[e] != 'e' && s.text[e] != 'E')
        e++;
    if (e < s.length &&
        !read_exponent((span){ s.text + e + 1, s.length - e - 1 }, &power))
        return 0;
    for (size_t i = 0; i < e; i++) {
        if (s.text[i] == '.' && !point) {
            point = 1;
        } else if (s.text[i] >= '0' && s.text[i] <= '9') {
            value = 10 * value + (s.text[i] - '0');
            power -= point;
            digits++;
        } else {
            return 0;
        }
    }
    *number = value * pow(10, power);
    return digits > 0 && isfinite(*number) && *number > 0;
}

static danaus_status read_seconds(span s, double *seconds)
{
    if (!read_positive(s, seconds))
        return dn_fail(DANAUS_ERR_FORMAT, "the seconds are not a positive number");
    return DANAUS_OK;
}

/* Whole picoseconds, at least one. */
static void write_seconds(double seconds, text *to)
{
    double picoseconds = seconds * 1e12;
    int64_t whole = picoseconds < 1      ? 1
                    : picoseconds > 9e18 ? INT64_MAX
                                         : llround(picoseconds);
    dn_text(to, "%" PRId64 "e-12", whole);
}

/* The number of s among `count` words, or -1. */
static int find_word(span s, const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (dn_span_is(s, words[i]))
            return i;
    return -1;
}

/* The type of this name, or 0. */
static danaus_dtype find_dtype(span s)
{
    char name[8];
    if (s.length >= sizeof name)
        return (danaus_dtype)0;
    memcpy(name, s.text, s.length);
    name[s.length] = '\0';
    return dn_dtype_from_name(name);
}

/* ---- products with one factor, and with two at once; other operations ---- */

/* Patterns come first, SIZES each. */
enum { A, B, C, D, SIZES };
enum { DTYPE, LAYOUT, BATCH, KERNEL, SECONDS, STEP_FIELDS };

static const char *const layout_names[] = { "first", "last" };

static const kernel *find_kernel(
    const danaus_device *dev, span name, span dtype, const problem *p)
{
    for (const kernel *k = dev->kernels; k->name; k++)
        if (dn_span_is(name, k->name) &&
            dn_span_is(dtype, danaus_dtype_name(k->dtype))) {
            problem q = *p;
            q.dtype = k->dtype;
            return dn_fits(k, &q) ? k : NULL;
        }
    return NULL;
}

/* The kernel of bf16 whose name differs from that of f16 in the type alone. */
static const kernel *find_twin(const danaus_device *dev, const char *name)
{
    const char *type = strstr(name, ".f16");
    size_t head = type ? (size_t)(type - name) : 0;
    for (const kernel *k = dev->kernels; type && k->name; k++)
        if (k->dtype == DANAUS_BF16 && !strncmp(k->name, name, head) &&
            !strncmp(k->name + head, ".bf16", 5) &&
            !strcmp(k->name + head + 5, type + 4))
            return k;
    return NULL;
}

int dn_tuning_twin(const danaus_device *dev, const tuning_row *row, tuning_row *twin)
{
    if (!row->kernel || row->kernel->dtype != DANAUS_F16)
        return 0;
    problem p = dn_tuning_problem(&row->key);
    p.dtype = DANAUS_BF16;
    *twin = *row;
    twin->kernel = find_twin(dev, row->kernel->name);
    twin->key = dn_tuning_ks_key(&p, dn_tuning_exponent(p.batch));
    return twin->kernel != NULL;
}

/* Neighbours in the order in which they are written. */
static danaus_status read_patterns(const span *f, int count, danaus_pattern *p)
{
    int ok = 1;
    for (int i = 0; i < count; i++, f += SIZES)
        ok &= read_size(f[A], &p[i].a) && read_size(f[B], &p[i].b) &&
              read_size(f[C], &p[i].c) && read_size(f[D], &p[i].d);
    if (!ok || danaus_patterns_check(p, count) != DANAUS_OK)
        return dn_fail(
            DANAUS_ERR_FORMAT, count == 1 ? "a, b, c, d are no pattern"
                                          : "the patterns are no neighbours");
    return DANAUS_OK;
}

static danaus_status read_step(
    const danaus_device *dev, const span *f, problem p, tuning_row *row)
{
    span dtype = f[DTYPE];
    int layout = find_word(f[LAYOUT], layout_names, 2);
    if (dn_span_is(dtype, TF32)) {
        p.math = DANAUS_MATH_TF32;
        dtype = (span){ "f32", 3 };
    }
    if (layout < 0)
        return dn_fail(DANAUS_ERR_FORMAT, "the layout is neither first nor last");
    p.layout = (danaus_layout)layout;
    if (!read_size(f[BATCH], &p.batch))
        return dn_fail(DANAUS_ERR_FORMAT, "the batch is not a positive number");
    TRY(read_seconds(f[SECONDS], &row->value));
    row->kernel = find_kernel(dev, f[KERNEL], dtype, &p);
    row->taken = row->kernel != NULL;
    p.dtype = row->taken ? row->kernel->dtype : (danaus_dtype)0;
    row->key = dn_tuning_ks_key(&p, dn_tuning_exponent(p.batch));
    return DANAUS_OK;
}

static danaus_status read_ks(const danaus_device *dev, const span *f, tuning_row *row)
{
    problem p = { 0 };
    TRY(read_patterns(f, 1, &p.pattern));
    return read_step(dev, f + SIZES, p, row);
}

static danaus_status read_pair(const danaus_device *dev, const span *f, tuning_row *row)
{
    danaus_pattern both[2];
    TRY(read_patterns(f, 2, both));
    problem p = { .pattern = both[0], .inner = both[1] };
    return read_step(dev, f + 2 * SIZES, p, row);
}

static danaus_status read_other(
    const danaus_device *dev, const span *f, tuning_row *row)
{
    problem p = { 0 };
    int operation = find_word(f[0], dn_operation_names, DN_OPERATIONS);
    TRY(read_patterns(f + 1, 1, &p.pattern));
    p.operation = (dn_operation)(operation < 0 ? DN_OPERATIONS : operation);
    return read_step(dev, f + 1 + SIZES, p, row);
}

static void write_sizes(danaus_pattern p, text *to)
{
    dn_text(to, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",", p.a, p.b, p.c, p.d);
}

static void write_ks(const tuning_row *r, text *to)
{
    problem p = dn_tuning_problem(&r->key);
    if (p.operation)
        dn_text(to, "%s,", dn_operation_names[p.operation]);
    write_sizes(p.pattern, to);
    if (p.inner.a)
        write_sizes(p.inner, to);
    dn_text(
        to, "%s,%s,%" PRId64 ",%s,",
        p.math == DANAUS_MATH_TF32 ? TF32 : danaus_dtype_name(p.dtype),
        layout_names[p.layout], p.batch, r->kernel->name);
    write_seconds(r->value, to);
}

/* ---- convolutions ---- */

enum { KIND, LENGTH, TAPS, TYPE, ROWS, CODE, POINTS, RADIX, TIME, CONV_FIELDS };

static const char *const kind_names[] = { "causal", "circular", "bidirectional" };

/* The device's own row of it, or NULL. */
static const conv_kernel *find_conv_kernel(const danaus_device *dev, span name)
{
    const conv_backend *conv = dev->backend->conv;
    const conv_kernel *here = NULL;
    for (int i = 0; conv && conv->kernel && (here = conv->kernel(dev, i)); i++)
        if (dn_span_is(name, here->name))
            break;
    return here;
}

static int read_length(span s, int64_t *length)
{
    return read_size(s, length) && *length <= DANAUS_CONV_MOST_LENGTH;
}

/* What follows the type where the accuracy is not the usual one of the type. */
static const char *const accuracy_ends[] = { "", ".accurate", ".fast" };

static danaus_dtype find_conv_type(span s, danaus_conv_accuracy *accuracy)
{
    for (int a = DANAUS_CONV_ACCURATE; a <= DANAUS_CONV_FAST; a++) {
        size_t end = strlen(accuracy_ends[a]);
        if (s.length > end && !memcmp(s.text + s.length - end, accuracy_ends[a], end)) {
            *accuracy = (danaus_conv_accuracy)a;
            s.length -= end;
            break;
        }
    }
    return find_dtype(s);
}

static danaus_status read_conv(const danaus_device *dev, const span *f, tuning_row *row)
{
    conv_problem p = { 0 };
    p.dtype = find_conv_type(f[TYPE], &p.accuracy);
    int kind = find_word(f[KIND], kind_names, 3);
    int64_t rows, radix;
    if (kind < 0)
        return dn_fail(DANAUS_ERR_FORMAT, "there is no such kind of convolution");
    p.kind = (danaus_conv_kind)kind;
    if (!read_length(f[LENGTH], &p.length) || !read_length(f[TAPS], &p.filter_length))
        return dn_fail(DANAUS_ERR_FORMAT, "the length or the taps are no length");
    if (!dn_span_integer(f[ROWS], &rows))
        return dn_fail(DANAUS_ERR_FORMAT, "the rows are not a number");
    if (!read_size(f[POINTS], &row->cut.n) || !read_size(f[RADIX], &radix) ||
        radix > INT_MAX)
        return dn_fail(DANAUS_ERR_FORMAT, "points and radix are not positive numbers");
    TRY(read_seconds(f[TIME], &row->value));
    row->cut.radix = (int)radix;
    row->cut.kernel = find_conv_kernel(dev, f[CODE]);
    row->taken = p.dtype && row->cut.kernel;
    row->key = dn_tuning_conv_key(&p, rows);
    return DANAUS_OK;
}

static void write_conv(const tuning_row *r, text *to)
{
    const int64_t *w = r->key.word; /* dtype, kind, length, taps, rows, accuracy */
    danaus_dtype type = (danaus_dtype)w[0];
    int usual = (int)dn_conv_usual_accuracy(type);
    dn_text(
        to, "%s,%" PRId64 ",%" PRId64 ",%s%s,%" PRId64 ",", kind_names[w[1]], w[2],
        w[3], danaus_dtype_name(type),
        accuracy_ends[w[5] ? DANAUS_CONV_ACCURATE + DANAUS_CONV_FAST - usual : 0],
        w[4]);
    dn_text(to, "%s,%" PRId64 ",%d,", r->cut.kernel->name, r->cut.n, r->cut.radix);
    write_seconds(r->value, to);
}

/* ---- constants of the model of convolutions ---- */

enum { SUMS, CONSTANT, OF, VALUE, MODEL_FIELDS };

static const char *const constant_names[TUNING_CONSTANTS] = { "window", "block",
                                                              "gamma", "tail",
                                                              "omega" };

static danaus_status read_model(
    const danaus_device *dev, const span *f, tuning_row *row)
{
    danaus_dtype sums = find_dtype(f[SUMS]);
    int name = find_word(f[CONSTANT], constant_names, TUNING_CONSTANTS);
    int64_t of;
    if (!dn_span_integer(f[OF], &of))
        return dn_fail(DANAUS_ERR_FORMAT, "what the constant is of is not a number");
    if (!read_positive(f[VALUE], &row->value) || row->value < TUNING_LEAST ||
        row->value > TUNING_MOST)
        return dn_fail(
            DANAUS_ERR_FORMAT, "the value is not between %g and %g", TUNING_LEAST,
            TUNING_MOST);
    row->taken = dev->backend->conv && sums && name >= 0;
    row->key = dn_tuning_model_key(sums, (tuning_constant)(name < 0 ? 0 : name), of);
    return DANAUS_OK;
}

/* Nine digits and a power of ten. */
static void write_model(const tuning_row *r, text *to)
{
    const int64_t *w = r->key.word; /* dtype, constant, of */
    int power = (int)floor(log10(r->value)) - 8;
    dn_text(
        to, "%s,%s,%" PRId64 ",%llde%d", danaus_dtype_name((danaus_dtype)w[0]),
        constant_names[w[1]], w[2], llround(r->value * pow(10, -power)), power);
}

#define STEP "dtype,layout,batch,kernel,seconds"

const tuning_text dn_tuning_texts[TUNING_SECTIONS] = {
    [TUNING_KS] = { "a,b,c,d," STEP, SIZES + STEP_FIELDS, read_ks, write_ks },
    [TUNING_PAIR] = { "a,b,c,d,inner_a,inner_b,inner_c,inner_d," STEP,
                      2 * SIZES + STEP_FIELDS, read_pair, write_ks },
    [TUNING_OTHER] = { "operation,a,b,c,d," STEP, 1 + SIZES + STEP_FIELDS, read_other,
                       write_ks },
    [TUNING_CONV] = { "kind,length,taps,dtype,rows,kernel,points,radix,seconds",
                      CONV_FIELDS, read_conv, write_conv },
    [TUNING_MODEL] = { "dtype,constant,of,value", MODEL_FIELDS, read_model,
                       write_model },
};
