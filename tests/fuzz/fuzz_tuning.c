/* Any bytes as a tuning table: every choice that comes of it fits its problem and is
   found again. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "backend/tuning_table.h"

static int fits(const kernel *k, const problem *p)
{
    return k->dtype == p->dtype && p->pattern.b > 1;
}

static const kernel kernels[] = {
    { .name = "panel", .dtype = DANAUS_F32, .fits = fits },
    { .name = "panel", .dtype = DANAUS_C64, .fits = fits },
    { .name = "lane", .dtype = DANAUS_F32, .fits = fits },
    { 0 },
};

static danaus_status describe(const danaus_device *dev, danaus_device_info *info)
{
    (void)dev;
    *info =
        (danaus_device_info){ .description = "m", .instructions = "i", .threads = 2 };
    return DANAUS_OK;
}

static const backend fake = { .name = "cpu", .describe = describe };
static const danaus_device device = { .backend = &fake, .kernels = kernels };

static problem problem_of(const tuning_row *r)
{
    return (problem){ .pattern = r->pattern,
                      .dtype = r->dtype,
                      .layout = r->layout,
                      .math = r->math,
                      .batch = (int64_t)1 << r->exponent };
}

static void check_rows(const tuning *table)
{
    size_t count = 0;
    for (size_t i = 0; i < table->capacity; i++) {
        const tuning_row *r = &table->rows[i];
        if (!r->kernel)
            continue;
        double seconds = 0;
        problem p = problem_of(r);
        expect(r->kernel->fits(r->kernel, &p) && r->seconds > 0);
        expect(dn_tuning_find(table, &p, &seconds) == r->kernel);
        expect(seconds <= r->seconds && seconds >= r->seconds);
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
