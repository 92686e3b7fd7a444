/* What is said of factorizations holds for matrices of any magnitude: the error of the chains as
   they are stored, for the matrix and the samples as they were given, and bounds on both sides of
   it; or the type of the chain is refused, where it cannot hold the matrix.

   Errors are measured in plain loops of f64. A power of two brings each array to a largest
   magnitude near 1, which rounds nothing, so no square and no product leaves the range. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/element.h"
#include "support/matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers times powers of two ---- */

/* The array is numbers times 2^exponent. */
typedef struct scaled {
    matrix m;
    int exponent;
} scaled;

static number times_power(number x, int exponent)
{
    return CMPLX(ldexp(creal(x), exponent), ldexp(cimag(x), exponent));
}

/* The largest magnitude becomes about 1; of zeros nothing changes. */
static void normalize(scaled *s)
{
    double most = 0;
    int64_t count = s->m.rows * s->m.cols;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fmax(fabs(creal(s->m.at[i])), fabs(cimag(s->m.at[i]))));
    int by = most > 0 ? ilogb(most) : 0;
    for (int64_t i = 0; i < count; i++)
        s->m.at[i] = times_power(s->m.at[i], -by);
    s->exponent += by;
}

static scaled scaled_of(
    danaus_dtype dtype, const void *data, int64_t rows, int64_t cols)
{
    scaled s = { matrix_unpack(dtype, data, rows, cols), 0 };
    normalize(&s);
    return s;
}

/* a and b become a b. */
static scaled times(scaled a, scaled b)
{
    scaled c = { matrix_times(a.m, b.m), a.exponent + b.exponent };
    matrix_free(&a.m);
    matrix_free(&b.m);
    normalize(&c);
    return c;
}

/* a becomes a + s b, in a's own scale. */
static void add(scaled *a, double s, scaled b)
{
    for (int64_t i = 0; i < a->m.rows * a->m.cols; i++)
        a->m.at[i] += s * times_power(b.m.at[i], b.exponent - a->exponent);
}

/* ---- oracles ---- */

static scaled product_of(const danaus_chain *chain)
{
    scaled whole = { 0 };
    for (int l = 0; l < danaus_chain_count(chain); l++) {
        danaus_pattern p = danaus_chain_pattern(chain, l);
        scaled w = scaled_of(
            danaus_chain_dtype(chain), danaus_chain_weights_const(chain, l), 1,
            p.a * p.b * p.c * p.d);
        scaled k = { factor_dense(p, w.m.at), w.exponent };
        matrix_free(&w.m);
        whole = l ? times(whole, k) : k;
    }
    return whole;
}

/* ||target - x (sum of chains)^T|| / ||target||; x.m.at NULL: no x. */
static double error_of(scaled target, scaled x, danaus_chain *const *chains, int count)
{
    scaled rest = { matrix_copy(target.m), target.exponent };
    for (int i = 0; i < count; i++) {
        scaled k = product_of(chains[i]);
        if (x.m.at) {
            scaled turned = { matrix_transposed(k.m), k.exponent };
            scaled inputs = { matrix_copy(x.m), x.exponent };
            matrix_free(&k.m);
            k = times(inputs, turned);
        }
        add(&rest, -1, k);
        matrix_free(&k.m);
    }
    double norm = matrix_norm(target.m), left = matrix_norm(rest.m);
    double error = norm > 0 || left > 0 ? left / norm : 0; /* zeros are met exactly */
    matrix_free(&rest.m);
    return error;
}

/* True if a type holds the numbers, in the sense of danaus_convert_check(): none is too large,
   and the norm loses at most a unit roundoff. *lost is what the norm loses. */
static int holds(scaled w, danaus_dtype dtype, double *lost)
{
    precision to = precision_of(dtype);
    double less = 0, whole = 0;
    int fits = 1;
    for (int64_t i = 0; i < w.m.rows * w.m.cols; i++) {
        const double parts[] = { creal(w.m.at[i]), cimag(w.m.at[i]) };
        for (int n = 0; n < 2; n++) {
            double x = ldexp(parts[n], w.exponent), step = to.unit * fabs(x);
            int least = ilogb(to.tiny) + 1; /* numbers below are multiples of 2 tiny */
            int digit = x == 0 ? 0 : (int)fmax(ilogb(x) + ilogb(to.unit) + 1, least);
            double near = ldexp(nearbyint(ldexp(parts[n], w.exponent - digit)), digit);
            near = to.unit <= 0x1p-53 ? x : near;
            fits &= fabs(near) <= to.largest && step < INFINITY;
            double gone = parts[n] - ldexp(near, -w.exponent);
            less += gone * gone;
            whole += parts[n] * parts[n];
        }
    }
    *lost = whole > 0 ? sqrt(less / whole) / to.unit : 0;
    return fits && *lost <= 1;
}

/* ---- cases ---- */

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_C64, DANAUS_C128 };

enum { SAMPLES = 40 };

/* The matrix alone; samples of inputs, with what W makes of them or with targets. */
typedef enum calibration { PLAIN, INPUTS, TARGETS } calibration;

typedef struct subject {
    danaus_pattern p[4];
    int count;
    danaus_dtype dtype, chain_dtype;
    void *w, *x, *y; /* as they are given */
    scaled matrix, inputs, targets;
} subject;

/* Numbers around 2^exponent, each times a power of two within 2^-spread .. 1. */
static void *numbers(
    rng *r, danaus_dtype dtype, int64_t rows, int64_t cols, int exponent, int spread)
{
    precision to = precision_of(dtype);
    matrix m = matrix_gauss(r, rows, cols, to.complex);
    for (int64_t i = 0; i < rows * cols; i++)
        m.at[i] = times_power(m.at[i], exponent - (int)rng_int(r, 0, spread));
    void *packed = matrix_pack(m, dtype);
    matrix_free(&m);
    return packed;
}

static subject subject_make(uint64_t round, calibration how)
{
    rng r = { round };
    subject s = { .count = (int)rng_int(&r, 1, 4), .dtype = types[round % 4] };
    int single = s.dtype == DANAUS_F32 || s.dtype == DANAUS_C64;
    int complex = precision_of(s.dtype).complex, range = single ? 120 : 990;
    static const int spreads[] = { 0, 8, 60, 900 };
    s.chain_dtype = types[2 * complex + (int)rng_int(&r, 0, 1)];
    if (s.chain_dtype != s.dtype && rng_int(&r, 0, 1))
        range = 140; /* about what f32 holds, and does not */
    random_chainable(&r, s.count, 3, 2, 0, s.p);
    danaus_pattern first = s.p[0], last = s.p[s.count - 1];
    int64_t rows = first.a * first.b * first.d, cols = last.a * last.c * last.d;
    range = single && range > 120 ? 120 : range;
    int spread = spreads[rng_int(&r, 0, 3)];
    s.w = numbers(&r, s.dtype, rows, cols, (int)rng_int(&r, -range, range), spread);
    s.matrix = scaled_of(s.dtype, s.w, rows, cols);
    if (how == PLAIN)
        return s;
    range = single ? 50 : 400;
    s.x = numbers(&r, s.dtype, SAMPLES, cols, (int)rng_int(&r, -range, range), 3);
    s.inputs = scaled_of(s.dtype, s.x, SAMPLES, cols);
    if (how == TARGETS) {
        s.y = numbers(&r, s.dtype, SAMPLES, rows, (int)rng_int(&r, -range, range), 3);
        s.targets = scaled_of(s.dtype, s.y, SAMPLES, rows);
    } else {
        scaled x = { matrix_copy(s.inputs.m), s.inputs.exponent };
        scaled turned = { matrix_transposed(s.matrix.m), s.matrix.exponent };
        s.targets = times(x, turned);
    }
    return s;
}

static void subject_free(subject *s)
{
    matrix_free(&s->matrix.m);
    matrix_free(&s->inputs.m);
    matrix_free(&s->targets.m);
    free(s->w);
    free(s->x);
    free(s->y);
}

/* True if there are chains. The call that makes them is refused if the type cannot hold the
   matrix, and only then. But with targets the chain is as large as these, which the type may
   not hold either, and the matrix may vanish beside them. A reduced chain has its size in one
   factor. */
static int is_taken(const subject *s, danaus_status status)
{
    double lost;
    const char *sentence = danaus_error_detail();
    if (status == DANAUS_ERR_ARGUMENT && strstr(sentence, "reduced"))
        return 0;
    if (s->y && status == DANAUS_ERR_ARGUMENT &&
        (strstr(sentence, "too far apart") ||
         strstr(sentence, danaus_dtype_name(s->chain_dtype))))
        return 0;
    int held = holds(s->matrix, s->chain_dtype, &lost);
    if (status == DANAUS_OK && (held || fabs(lost - 1) < 1e-6))
        return 1;
    if (status == DANAUS_ERR_ARGUMENT && (!held || fabs(lost - 1) < 1e-6) &&
        strstr(danaus_error_detail(), danaus_dtype_name(s->chain_dtype)))
        return 0;
    fail_msg(
        "%s to %s at 2^%d, which %s: %s: %s", danaus_dtype_name(s->dtype),
        danaus_dtype_name(s->chain_dtype), s->matrix.exponent,
        held ? "it holds" : "it does not hold", danaus_status_name(status),
        danaus_error_detail());
    return 0;
}

/* ||X|| ||K|| / ||Y|| at most, of samples: energies of this size are subtracted. */
static double reach_of(const subject *s, double dense)
{
    if (!s->x)
        return dense;
    int exponent = s->matrix.exponent + s->inputs.exponent - s->targets.exponent;
    double norms = matrix_norm(s->matrix.m) * matrix_norm(s->inputs.m);
    return ldexp((1 + dense) * norms / matrix_norm(s->targets.m), exponent);
}

/* slack: of the error that is told, relative to the norm or what is subtracted. */
static void check(
    const subject *s, danaus_chain *const *chains, int count,
    const danaus_factorize_result *told, double slack)
{
    double dense = error_of(s->matrix, (scaled){ 0 }, chains, count);
    double error = s->x ? error_of(s->targets, s->inputs, chains, count) : dense;
    assert_int_equal(danaus_chain_dtype(chains[0]), s->chain_dtype);
    double of_error = slack * fmax(1, reach_of(s, dense)),
           of_dense = slack * fmax(1, dense);
    if (!(fabs(error - told->error) <= of_error &&
          fabs(dense - told->dense_error) <= of_dense &&
          told->lower_bound <= error + of_error &&
          error <= told->upper_bound + of_error))
        fail_msg(
            "%s to %s at 2^%d: the error is %.9g (%.9g of the matrix) and told to be "
            "%.9g "
            "(%.9g), in %.9g .. %.9g",
            danaus_dtype_name(s->dtype), danaus_dtype_name(s->chain_dtype),
            s->matrix.exponent, error, dense, told->error, told->dense_error,
            told->lower_bound, told->upper_bound);
}

/* ---- tests ---- */

/* Residuals are sums of squares in f64, where differences below 1e-8 of the norm drown. */
#define SLACK 1e-7
/* Errors of sums of chains, and errors over samples, are never reported below 3e-6. */
#define SLACK_OF_SUMS 4e-6

static danaus_factorize_desc description(const subject *s, uint64_t round)
{
    danaus_factorize_desc desc = { .chain_dtype = s->chain_dtype, .threads = 1 };
    desc.order = (danaus_order)(round / 4 % 4);
    desc.refine = round / 16 % 2 ? 2 : 0;
    desc.inputs = s->x;
    desc.targets = s->y;
    desc.samples = s->x ? SAMPLES : 0;
    return desc;
}

static void check_factorizations(calibration how, int rounds)
{
    int taken = 0;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(rounds); round++) {
        subject s = subject_make(round + 100000 * (uint64_t)how, how);
        danaus_factorize_desc desc = description(&s, round);
        danaus_factorize_result told;
        danaus_chain *chain = NULL;
        danaus_status status =
            danaus_factorize(s.w, s.dtype, s.p, s.count, &desc, &chain, &told);
        if (is_taken(&s, status)) {
            check(&s, &chain, 1, &told, SLACK);
            taken++;
        } else {
            assert_null(chain);
        }
        danaus_chain_destroy(chain);
        subject_free(&s);
    }
    assert_true(taken > 0);
}

static void chains_of_any_magnitude(void **state)
{
    (void)state;
    check_factorizations(PLAIN, 600);
}

static void calibrated_chains_of_any_magnitude(void **state)
{
    (void)state;
    check_factorizations(INPUTS, 300);
    check_factorizations(TARGETS, 600);
}

static void sums_of_any_magnitude(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(400); round++) {
        subject s = subject_make(round + 500000, (calibration)(round % 3));
        danaus_factorize_desc fit = description(&s, round);
        danaus_sum_desc desc = { .lower_bound = 1, .fit = &fit };
        danaus_factorize_result told;
        danaus_pattern p[8];
        const int counts[] = { s.count, s.count };
        danaus_chain *chains[2] = { NULL, NULL };
        for (int l = 0; l < 2 * s.count; l++)
            p[l] = s.p[l % s.count];
        danaus_status status = danaus_factorize_sum(
            s.w, s.dtype, p, counts, 2, &desc, chains, &told, NULL);
        if (is_taken(&s, status))
            check(&s, chains, 2, &told, SLACK_OF_SUMS);
        danaus_chain_destroy(chains[0]);
        danaus_chain_destroy(chains[1]);
        subject_free(&s);
    }
}

static void compressed_matrices_of_any_magnitude(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(300); round++) {
        subject s = subject_make(round + 600000, (calibration)(round % 3));
        int64_t rows = s.matrix.m.rows, cols = s.matrix.m.cols;
        danaus_factorize_desc fit = description(&s, round);
        fit.refine = 1;
        danaus_compress_desc desc = { .parameters = rows * cols / 2 + rows + cols,
                                      .reduced = round / 2 % 2 == 1,
                                      .fit = &fit };
        danaus_factorize_result told;
        danaus_chain *chains[3] = { NULL, NULL, NULL };
        int terms = 0;
        danaus_status status = danaus_compress_sum(
            s.w, s.dtype, rows, cols, &desc, chains, 3, &terms, &told, NULL, 0, NULL);
        if (is_taken(&s, status))
            check(&s, chains, terms, &told, SLACK_OF_SUMS);
        for (int n = 0; n < 3; n++)
            danaus_chain_destroy(chains[n]);
        subject_free(&s);
    }
}

/* ---- conversions ---- */

static const danaus_dtype narrow[] = { DANAUS_F16, DANAUS_BF16, DANAUS_F32,
                                       DANAUS_C64 };

/* A chain of another type has factors each within a unit roundoff of what they were, or the type
   is refused, where a factor has more to lose. */
static void check_conversion(const danaus_chain *chain, danaus_dtype to)
{
    danaus_chain *made = NULL;
    danaus_dtype from = danaus_chain_dtype(chain);
    int held = 1, near = 0;
    for (int l = 0; l < danaus_chain_count(chain); l++) {
        danaus_pattern p = danaus_chain_pattern(chain, l);
        int64_t count = p.a * p.b * p.c * p.d;
        double lost;
        const void *w = danaus_chain_weights_const(chain, l);
        scaled before = scaled_of(from, w, 1, count);
        int factor = holds(before, to, &lost);
        near |= fabs(lost - 1) < 1e-6;
        held &= factor;
        danaus_status status = danaus_convert_check(from, w, to, count, "these");
        assert_true(near || factor == (status == DANAUS_OK));
        assert_true(factor || near || strstr(danaus_error_detail(), "these"));
        matrix_free(&before.m);
    }
    danaus_status status = danaus_chain_convert(chain, to, &made);
    assert_true(near || held == (status == DANAUS_OK));
    for (int l = 0; made && l < danaus_chain_count(chain); l++) {
        danaus_pattern p = danaus_chain_pattern(chain, l);
        int64_t count = p.a * p.b * p.c * p.d;
        scaled before = scaled_of(from, danaus_chain_weights_const(chain, l), 1, count);
        scaled after = scaled_of(to, danaus_chain_weights_const(made, l), 1, count);
        double norm = matrix_norm(before.m);
        add(&before, -1, after);
        assert_true(matrix_norm(before.m) <= precision_of(to).unit * norm * (1 + 1e-9));
        matrix_free(&before.m);
        matrix_free(&after.m);
    }
    danaus_chain_destroy(made);
}

static void conversions_lose_no_more_than_rounding(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(300); round++) {
        subject s = subject_make(round + 700000, PLAIN);
        danaus_factorize_desc desc = { .threads = 1 };
        danaus_chain *chain = NULL;
        assert_ok(danaus_factorize(s.w, s.dtype, s.p, s.count, &desc, &chain, NULL));
        for (int t = 0; t < 4; t++) {
            int complex = precision_of(narrow[t]).complex;
            if (complex == precision_of(s.dtype).complex)
                check_conversion(chain, narrow[t]);
        }
        danaus_chain_destroy(chain);
        subject_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_of_any_magnitude),
        cmocka_unit_test(calibrated_chains_of_any_magnitude),
        cmocka_unit_test(sums_of_any_magnitude),
        cmocka_unit_test(compressed_matrices_of_any_magnitude),
        cmocka_unit_test(conversions_lose_no_more_than_rounding),
    };
    return cmocka_run_group_tests_name("factorize_ranges", tests, NULL, NULL);
}
