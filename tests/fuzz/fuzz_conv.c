/* Any bytes as a description of a convolution, of few taps or of a stream: made, and
   run where it is small, packed sequences with any offsets, or refused with a sentence.
   The first byte says which. Lengths between MOST and the longest that the library takes
   are cut to MOST, for speed. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "danaus/danaus.h"

#include <string.h>

#define MOST        65536  /* of a length */
#define MOST_ALL    20000  /* numbers of all rows, or of all filters */
#define SEQUENCES   3      /* that are packed */
#define MOST_SPARSE 320000 /* frequencies of all rows, where spectra are sparse */

static danaus_device *device;

static int64_t shorter(int64_t length)
{
    return length > MOST && length <= DANAUS_CONV_MOST_LENGTH ? length % MOST : length;
}

/* Planes have the memory of as many rows. */
static int32_t lower(int32_t height) { return height > 16 ? height % 17 : height; }

/* Frequencies of a row's spectrum that do not come from its length: where it is sparse, a
   row of one number may have 16^4 of them. */
static int64_t frequencies(const danaus_conv_desc *d)
{
    int64_t boxes = 1;
    if (!d->keep[0] && !d->keep[1] && !d->keep[2] && !d->keep[3])
        return boxes;
    for (int i = 0; i < 4; i++)
        boxes *= d->axes[i] ? d->axes[i] : 8;
    return boxes < 4096 ? 4096 : boxes;
}

/* a b is at most MOST_ALL, for positive a and b. */
static int small(int64_t a, int64_t b) { return a <= MOST_ALL && b <= MOST_ALL / a; }

/* Arrays of zeros that end where a sanitizer sees it. */
static void *zeros(int64_t count, danaus_dtype dtype)
{
    void *memory = calloc((size_t)count, danaus_dtype_size(dtype));
    expect(memory);
    return memory;
}

static danaus_dtype sums_of(danaus_dtype dtype)
{
    int is_complex = dtype == DANAUS_C64 || dtype == DANAUS_C128;
    return is_complex || dtype == DANAUS_F64 ? dtype : DANAUS_F32;
}

/* What is convolved: one row of the length, or packed sequences, if offsets are right. */
typedef struct operands {
    const danaus_conv_plan *plan;
    const danaus_spectrum *spectrum;
    int64_t offsets[SEQUENCES + 1];
    const void *u;
    void *y;
    danaus_conv_gradients to;
} operands;

static int ascend(const int64_t *offsets, int64_t most)
{
    int right = offsets[0] == 0;
    for (int i = 0; i < SEQUENCES && right; i++)
        right = offsets[i + 1] >= offsets[i] && offsets[i + 1] - offsets[i] <= most;
    return right;
}

/* Filter banks have no gradients. */
static void run_row(const operands *o, int is_bank)
{
    const void *u = o->u;
    expect(
        danaus_conv_execute(o->plan, device, o->spectrum, 1, u, u, NULL, o->y) ==
        DANAUS_OK);
    expect(
        danaus_conv_gradient(
            o->plan, device, o->spectrum, 1, u, NULL, NULL, u, &o->to) ==
        (is_bank ? DANAUS_ERR_UNSUPPORTED : DANAUS_OK));
}

static void run_packed(const operands *o, int is_right)
{
    const void *u = o->u;
    int runs = danaus_conv_execute_packed(
                   o->plan, device, o->spectrum, SEQUENCES, o->offsets, u, u, NULL,
                   o->y) == DANAUS_OK;
    int goes_back = danaus_conv_gradient_packed(
                        o->plan, device, o->spectrum, SEQUENCES, o->offsets, u, NULL,
                        NULL, u, &o->to) == DANAUS_OK;
    expect(runs == is_right);
    expect(goes_back == (is_right && o->offsets[SEQUENCES] > 0));
    expect(is_right || *danaus_error_detail());
}

static void convolve(
    const danaus_conv_plan *plan, const danaus_conv_desc *d, const int64_t *offsets)
{
    int64_t filters = d->filters ? d->filters : d->channels;
    int64_t taps = d->filter_length ? d->filter_length : d->length;
    int64_t height = d->height ? d->height : 1;
    danaus_dtype dtype = d->dtype ? d->dtype : DANAUS_F32, sums = sums_of(dtype);
    int is_right = d->packed && ascend(offsets, d->length);
    int64_t columns = is_right ? offsets[SEQUENCES] : d->length;
    taps *= d->filter_height ? d->filter_height : height;
    columns *= height;
    if (!small(d->channels, d->length * height) || !small(filters, taps) ||
        d->channels > MOST_SPARSE / frequencies(d) || columns > 3 * d->length * height)
        return;
    int both_ways = d->kind == DANAUS_BIDIRECTIONAL;
    int64_t rows = d->channels * columns;
    void *k = zeros(filters * taps, sums), *u = zeros(rows, dtype);
    void *y = zeros(rows, dtype), *dk = zeros(filters * taps, sums);
    danaus_spectrum *spectrum = NULL;
    expect(
        danaus_spectrum_create(
            plan, device, k, both_ways ? k : NULL, NULL, &spectrum) == DANAUS_OK);
    operands o = { plan, spectrum, { 0 }, u, y, { .du = y, .dk = dk } };
    memcpy(o.offsets, offsets, sizeof o.offsets);
    if (d->packed)
        run_packed(&o, is_right);
    else
        run_row(&o, d->signals && d->signals != d->channels);
    danaus_spectrum_destroy(spectrum);
    free(k);
    free(u);
    free(y);
    free(dk);
}

static void plan(danaus_conv_desc d, const int64_t *offsets)
{
    danaus_conv_plan *made = NULL;
    d.length = shorter(d.length);
    d.filter_length = shorter(d.filter_length);
    d.height = lower(d.height);
    d.filter_height = lower(d.filter_height);
    for (int i = 0; i < 4; i++) /* so that n stays below MOST */
        if (d.axes[i] > 16 && d.axes[i] <= DANAUS_CONV_MOST_LENGTH)
            d.axes[i] = d.axes[i] % 2 ? 3 : 16;
    if (d.effort == DANAUS_MEASURE)
        d.effort = DANAUS_ESTIMATE;
    if (danaus_conv_plan_create(device, &d, &made) != DANAUS_OK) {
        expect(!made && *danaus_error_detail());
        return;
    }
    expect(d.channels > 0 && d.length > 0 && d.filter_length >= 0 && d.filters >= 0);
    expect(danaus_conv_plan_describe(made, NULL, 0) > 0);
    convolve(made, &d, offsets);
    danaus_conv_plan_destroy(made);
}

/* Refused before any of the arrays is looked at, or run. */
static void few_taps(danaus_short_desc d)
{
    danaus_dtype dtype = d.dtype ? d.dtype : DANAUS_F32;
    int runs = d.channels > 0 && d.length > 0 && d.taps > 0 &&
               small(d.channels, d.length) && small(d.channels, d.taps);
    if (danaus_short_conv(device, &d, 0, NULL, NULL, NULL, NULL) != DANAUS_OK) {
        expect(*danaus_error_detail());
        return;
    }
    expect(d.taps > 0 && d.taps <= DANAUS_SHORT_MOST_TAPS);
    if (!runs)
        return;
    void *k = zeros(d.channels * d.taps, sums_of(dtype));
    void *u = zeros(d.channels * d.length, dtype);
    void *y = zeros(d.channels * d.length, dtype);
    void *du = zeros(d.channels * d.length, dtype);
    void *dk = zeros(d.channels * d.taps, sums_of(dtype));
    danaus_short_gradients g = { .du = du, .dk = dk };
    expect(danaus_short_conv(device, &d, 1, k, NULL, u, y) == DANAUS_OK);
    expect(danaus_short_conv_gradient(device, &d, 1, k, u, y, &g) == DANAUS_OK);
    free(du);
    free(dk);
    free(k);
    free(u);
    free(y);
}

static void stream(danaus_stream_desc d)
{
    danaus_stream *made = NULL;
    d.filter_length = shorter(d.filter_length);
    int64_t filters = d.filters ? d.filters : d.channels;
    int positive = d.channels > 0 && d.filter_length > 0 && filters > 0;
    int runs = positive && small(filters, d.filter_length) &&
               small(d.channels, d.filter_length + 64);
    if (positive && !runs) /* filters as long as they say would be read */
        return;
    void *k = runs ? zeros(filters * d.filter_length, DANAUS_F64) : (void *)&d;
    if (danaus_stream_create(device, &d, k, &made) != DANAUS_OK)
        expect(!made && *danaus_error_detail());
    else {
        expect(runs);
        void *u = zeros(d.channels * 64, DANAUS_F64),
             *y = zeros(d.channels * 64, DANAUS_F64);
        expect(danaus_stream_run(made, device, 64, u, y) == DANAUS_OK);
        free(u);
        free(y);
    }
    danaus_stream_destroy(made);
    if (runs)
        free(k);
}

/* The beginning of the bytes, and zeros for the rest. */
#define TAKE(what)                                                                     \
    memcpy(&(what), data + 1, size - 1 < sizeof(what) ? size - 1 : sizeof(what))

/* The bytes behind a description are offsets. */
static void describe_conv(const uint8_t *data, size_t size)
{
    danaus_conv_desc conv = { 0 };
    int64_t offsets[SEQUENCES + 1] = { 0 };
    size_t before = 1 + sizeof conv;
    TAKE(conv);
    if (size > before)
        memcpy(
            offsets, data + before,
            size - before < sizeof offsets ? size - before : sizeof offsets);
    plan(conv, offsets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    danaus_short_desc few = { 0 };
    danaus_stream_desc streamed = { 0 };
    if (size < 1)
        return 0;
    if (!device) {
        expect(danaus_device_open("cpu", &device) == DANAUS_OK);
        expect(danaus_device_set_threads(device, 1) == DANAUS_OK);
    }
    if (data[0] % 4 < 2) {
        describe_conv(data, size);
    } else if (data[0] % 4 == 2) {
        TAKE(few);
        few_taps(few);
    } else {
        TAKE(streamed);
        stream(streamed);
    }
    return 0;
}
