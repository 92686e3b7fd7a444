/* Any bytes as a tuning table: every choice that comes of it fits its problem and is
   found again. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "device/tuning.h"
#include "device/tuning_table.h"

static int fits(const kernel *k, const problem *p)
{
    (void)k;
    return p->pattern.b > 1;
}

static const kernel_family family = { .fits = fits };
static const kernel_family gradients = { DN_WEIGHT_GRADIENT, .fits = fits };
static const kernel kernels[] = {
    { .name = "panel", .dtype = DANAUS_F32, .family = &family },
    { .name = "panel", .dtype = DANAUS_C64, .family = &family },
    { .name = "lane", .dtype = DANAUS_F32, .family = &family },
    { .name = "gradient", .dtype = DANAUS_F32, .family = &gradients },
    { 0 },
};

static danaus_status describe(const danaus_device *dev, danaus_device_info *info)
{
    (void)dev;
    *info =
        (danaus_device_info){ .description = "m", .instructions = "i", .threads = 2 };
    return DANAUS_OK;
}

static const conv_kernel *conv_kernel_at(const danaus_device *dev, int index)
{
    static const conv_kernel rows[] = { { .name = "conv.a" }, { .name = "conv.b" } };
    (void)dev;
    return index < 2 ? &rows[index] : NULL;
}

static const conv_backend convolutions = { .kernel = conv_kernel_at };
static const backend fake = { .name = "cpu",
                              .describe = describe,
                              .conv = &convolutions };
static const danaus_device device = { .backend = &fake, .kernels = kernels };

/* What a row answers is found by its question. */
static void check_product(const tuning *table, const tuning_row *r)
{
    problem p = dn_tuning_problem(&r->key);
    double seconds = 0;
    expect(dn_fits(r->kernel, &p));
    expect(dn_tuning_find(table, &p, 1, &seconds) == r->kernel);
    expect(seconds <= r->value && seconds >= r->value);
    expect((r->key.section == TUNING_PAIR) == (p.inner.a > 0));
    expect(dn_tuning_near(table, &p) != NULL);
}

static void check_convolution(const tuning *table, const tuning_row *r)
{
    const int64_t *w = r->key.word;
    conv_problem p = { .dtype = (danaus_dtype)w[0],
                       .kind = (danaus_conv_kind)w[1],
                       .length = w[2],
                       .filter_length = w[3] };
    danaus_conv_accuracy usual = dn_conv_usual_accuracy(p.dtype);
    if (w[5])
        p.accuracy =
            usual == DANAUS_CONV_FAST ? DANAUS_CONV_ACCURATE : DANAUS_CONV_FAST;
    conv_cut cut = { 0 };
    double seconds = 0;
    expect(p.length > 0 && p.length <= DANAUS_CONV_MOST_LENGTH);
    expect(p.filter_length > 0 && p.filter_length <= p.length);
    expect(dn_tuning_find_conv(table, &p, w[4], &cut, &seconds));
    expect(cut.n == r->cut.n && cut.n > 0 && cut.radix > 0 && cut.kernel);
}

static void check_constant(const tuning *table, const tuning_row *r)
{
    const int64_t *w = r->key.word;
    double value =
        dn_tuning_constant(table, (danaus_dtype)w[0], (tuning_constant)w[1], w[2]);
    expect(w[1] >= 0 && w[1] < TUNING_CONSTANTS);
    expect(value >= TUNING_LEAST && value <= TUNING_MOST);
}

static void check_rows(const tuning *table)
{
    size_t count = 0;
    for (size_t i = 0; i < table->capacity; i++) {
        const tuning_row *r = &table->rows[i];
        if (!r->taken)
            continue;
        expect(r->value > 0);
        switch (r->key.section) {
        case TUNING_KS:
        case TUNING_PAIR:
        case TUNING_OTHER: check_product(table, r); break;
        case TUNING_CONV: check_convolution(table, r); break;
        default: check_constant(table, r); break;
        }
        count++;
    }
    expect(count == table->count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tuning *table = NULL;
    int64_t skipped = -1;
    expect(dn_tuning_create(&table) == DANAUS_OK);
    if (dn_tuning_read(table, &device, (const char *)data, size, &skipped) != DANAUS_OK)
        expect(skipped == -1 && table->count == 0 && *danaus_error_detail());
    check_rows(table);
    dn_tuning_destroy(table);
    return 0;
}
