/* danaus conv: a signal convolved with filters, file to file. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/rows.h"
#include "cli/sound.h"
#include "common/room.h"

static const usage use = {
    .synopsis = "SIGNAL FILTER [FILTER]... -o OUT [OPTION]...",
    .about =
        "Convolves every row of a signal with its filter. Files are sound (.wav and\n"
        "whatever libsndfile reads; channels are rows) or .npy arrays; - is standard\n"
        "input or output, where sound is written as .wav.\n\n"
        "Sound: the channels of all filter files together are the filters. There are\n"
        "as many filters as channels, or one filter for all channels, or one channel\n"
        "for all filters, so that two files of impulse responses make stereo of mono.\n"
        "Rates must agree unless --resample is given.\n\n"
        ".npy: the signal is [..., length], the filter (one file) [..., taps]. The\n"
        "leading axes of the filter are the last leading axes of the signal, or "
        "none.\n\n"
        "With a filter of M taps and N values in a row, --mode chooses the result:\n"
        "full, all N + M - 1 values; causal, the first N; same, the middle N; valid,\n"
        "the N - M + 1 that overlap the whole filter; circular, N values that wrap\n"
        "around.\n",
    .number = { 2, 64 },
    .operands = "a signal and one or more filters",
};

enum { MODE_CAUSAL, MODE_CIRCULAR, MODE_FULL, MODE_SAME, MODE_VALID };

typedef struct convolve {
    device_options where;
    plan_options how;
    int mode, normalize, resample, format, json;
    double skip;
    int64_t repeat;
    rows signal, filters, out;
    int64_t batch, channels; /* of the plan; channels share filters evenly */
    danaus_device *device;
    danaus_conv_plan *plan;
    danaus_spectrum *spectrum;
    output output;
    void *u, *y; /* device memory */
    timing time;
    int64_t clipped;
} convolve;

/* ---- reading ---- */

static int match_rate(const convolve *c, const char *path, rows *filter)
{
    if (!filter->rate != !c->signal.rate)
        return failure(
            "%s is %s and the signal %s: both are .npy, or both sound", path,
            filter->rate ? "sound" : ".npy", c->signal.rate ? "sound" : ".npy");
    if (filter->rate == c->signal.rate)
        return STATUS_OK;
    if (!c->resample)
        return failure(
            "%s has %d numbers a second and the signal %d: give --resample to convert "
            "the filter",
            path, filter->rate, c->signal.rate);
    sound s = { filter->count, filter->length, filter->rate, filter->data };
    int status = sound_resample(&s, c->signal.rate);
    if (!status)
        *filter = (rows){ DANAUS_F32, s.channels, s.length, s.data, s.rate, { 0 } };
    return status;
}

static int read_filters(convolve *c, char **paths, int count)
{
    for (int i = 0; i < count; i++) {
        rows one = { 0 };
        int status = rows_read(paths[i], &one);
        status = status ? status : match_rate(c, paths[i], &one);
        if (!status && i > 0 && !one.rate)
            status = failure(
                "%s is a second file of filters, and filters in .npy are one file",
                paths[i]);
        if (!status && i > 0)
            status = rows_append(&c->filters, &one);
        if (status || i > 0)
            free(one.data);
        else
            c->filters = one;
        if (status)
            return status;
    }
    return STATUS_OK;
}

/* ---- shapes ---- */

static int match_channels(convolve *c)
{
    int64_t channels = c->signal.count, filters = c->filters.count;
    c->batch = 1;
    c->channels = channels > filters ? channels : filters;
    if (channels == filters || filters == 1)
        return STATUS_OK;
    if (channels > 1)
        return failure(
            "%" PRId64 " filters for a signal of %" PRId64 " channels: 1 or %" PRId64
            " are needed",
            filters, channels, channels);
    /* A mono signal once for each filter. */
    float *data = room_make(filters, c->signal.length, sizeof *data, "the signal");
    if (!data)
        return STATUS_FAILURE;
    for (int64_t f = 0; f < filters; f++)
        memcpy(
            data + f * c->signal.length, c->signal.data,
            (size_t)c->signal.length * sizeof *data);
    free(c->signal.data);
    c->signal.data = data;
    c->signal.count = filters;
    return STATUS_OK;
}

static int match_shapes(convolve *c)
{
    const danaus_tensor *s = &c->signal.shape, *f = &c->filters.shape;
    int fits = f->ndim <= s->ndim;
    for (int i = 1; fits && i < f->ndim; i++)
        fits = f->shape[f->ndim - 1 - i] == s->shape[s->ndim - 1 - i];
    if (!fits) {
        char signal[200], filter[200];
        format_shape(s, signal, sizeof signal);
        format_shape(f, filter, sizeof filter);
        return failure(
            "filters %s do not suit a signal %s: its last axes, but for the length, "
            "are "
            "needed",
            filter, signal);
    }
    c->channels = c->filters.count;
    c->batch = c->signal.count / c->filters.count;
    return STATUS_OK;
}

/* ---- convolving ---- */

/* The signal in the device's memory, with room for `length` numbers. */
static int put_signal(convolve *c, int64_t length)
{
    size_t size = danaus_dtype_size(c->signal.dtype);
    size_t row = (size_t)length * size, own = (size_t)c->signal.length * size;
    char *padded = room_make(c->signal.count, length, size, "the signal");
    if (!padded)
        return STATUS_FAILURE;
    size_t bytes = (size_t)c->signal.count * row;
    for (int64_t i = 0; i < c->signal.count; i++)
        memcpy(padded + (size_t)i * row, (char *)c->signal.data + (size_t)i * own, own);
    int failed = danaus_alloc(c->device, bytes, &c->u) ||
                 danaus_upload(c->device, c->u, padded, bytes);
    free(padded);
    return library(failed);
}

/* Each filter is one that the type of sums holds. */
static int check_filter(const convolve *c, int64_t filter, danaus_dtype sums)
{
    char name[40];
    const rows *f = &c->filters;
    size_t row = (size_t)f->length * danaus_dtype_size(f->dtype);
    snprintf(name, sizeof name, "filter %" PRId64, filter);
    return library(danaus_convert_check(
        f->dtype, (const char *)f->data + (size_t)filter * row, sums, f->length, name));
}

/* Filters in the type of sums. */
static int convert_filters(const convolve *c, void **k)
{
    int wide = c->signal.dtype == DANAUS_F64;
    int64_t taps = c->filters.count * c->filters.length;
    *k = room_make(1, taps, wide ? sizeof(double) : sizeof(float), "the filters");
    if (!*k)
        return STATUS_FAILURE;
    danaus_dtype sums = wide ? DANAUS_F64 : DANAUS_F32;
    for (int64_t f = 0; f < c->filters.count; f++)
        TRY(check_filter(c, f, sums));
    return library(danaus_convert(c->filters.dtype, c->filters.data, sums, *k, taps));
}

static int make_plan(convolve *c, int64_t length, const void *k)
{
    danaus_conv_desc desc = {
        .channels = c->channels,
        .length = length,
        .filter_length = c->filters.length,
        .filters = c->filters.count,
        .kind = c->mode == MODE_CIRCULAR ? DANAUS_CIRCULAR : DANAUS_CAUSAL,
        .dtype = c->signal.dtype,
        .batch = c->batch,
        .effort = (danaus_effort)c->how.effort,
        .accuracy = (danaus_conv_accuracy)c->how.accuracy,
    };
    int wide = c->signal.dtype == DANAUS_F64;
    TRY(library(danaus_convert_check(
        DANAUS_F64, &c->skip, wide ? DANAUS_F64 : DANAUS_F32, 1, "--skip")));
    void *skip = room_make(1, c->filters.count, sizeof(double), "the skips");
    if (!skip)
        return STATUS_FAILURE;
    for (int64_t f = 0; f < c->filters.count; f++)
        if (wide)
            ((double *)skip)[f] = c->skip;
        else
            ((float *)skip)[f] = (float)c->skip;
    int failed =
        danaus_conv_plan_create(c->device, &desc, &c->plan) ||
        danaus_spectrum_create(c->plan, c->device, k, NULL, skip, &c->spectrum);
    free(skip);
    return library(failed);
}

static danaus_status run_plan(void *self)
{
    convolve *c = self;
    return danaus_conv_execute(
        c->plan, c->device, c->spectrum, c->batch, c->u, NULL, NULL, c->y);
}

/* The numbers [from, from + c->out.length) of every row of y. */
static int keep(convolve *c, int64_t length, int64_t from)
{
    size_t size = danaus_dtype_size(c->signal.dtype),
           row = (size_t)c->out.length * size, all = (size_t)length * size;
    char *whole = room_make(c->out.count, length, size, "the result");
    if (whole)
        c->out.data = room_make(c->out.count, c->out.length, size, "the result");
    int status = whole && c->out.data ? STATUS_OK : STATUS_FAILURE;
    if (!status)
        status = library(
            danaus_download(c->device, whole, c->y, (size_t)c->out.count * all));
    for (int64_t i = 0; i < c->out.count && !status; i++)
        memcpy(
            (char *)c->out.data + (size_t)i * row,
            whole + (size_t)i * all + (size_t)from * size, row);
    free(whole);
    return status;
}

static int convolve_rows(convolve *c)
{
    int64_t n = c->signal.length, m = c->filters.length, from = 0, kept = n;
    int mode = c->mode;
    int64_t length = mode == MODE_CAUSAL || mode == MODE_CIRCULAR ? n : n + m - 1;
    if (mode == MODE_FULL)
        kept = length;
    if (mode == MODE_SAME)
        from = (m - 1) / 2;
    if (mode == MODE_VALID) {
        from = m - 1;
        kept = n - m + 1;
    }
    if (kept < 1)
        return failure(
            "a filter of %" PRId64 " taps sees no %" PRId64 " numbers whole", m, n);
    c->out = c->signal;
    c->out.data = NULL;
    c->out.length = kept;
    void *k = NULL;
    size_t bytes = (size_t)(c->signal.count * length);
    int64_t repeat = c->repeat > 1 ? c->repeat : 1;
    int status = put_signal(c, length);
    status = status ? status : convert_filters(c, &k);
    if (!status &&
        danaus_alloc(c->device, bytes * danaus_dtype_size(c->signal.dtype), &c->y))
        status = library_failure();
    status = status ? status : make_plan(c, length, k);
    status = status ? status : measure_calls(c->device, repeat, run_plan, c, &c->time);
    status = status ? status : keep(c, length, from);
    danaus_free(c->device, c->u);
    danaus_free(c->device, c->y);
    free(k);
    return status;
}

/* ---- writing ---- */

static void judge(convolve *c)
{
    int64_t lost = rows_non_finite(&c->out);
    output_judge(
        &c->output, c->out.dtype, lost, c->out.count * c->out.length,
        lost ? rows_non_finite(&c->signal) + rows_non_finite(&c->filters) : 0);
}

static int ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* The name whose suffix gives the format; the name of a stream, "-", gives none. */
static const char *telling_name(const convolve *c)
{
    int npy = ends_with(c->output.name, ".npy");
    return c->output.replaced || npy ? c->output.name : "-";
}

/* Names that can be written, and suit the signal once that is known. */
static int check_name(const convolve *c)
{
    if (ends_with(c->output.name, ".npy"))
        return args_refuse("format", "is for files of sound, not .npy");
    return sound_check_name(telling_name(c), (sound_format)c->format);
}

static int check_sort(const convolve *c)
{
    int npy = ends_with(c->output.name, ".npy");
    if (c->signal.rate)
        return STATUS_OK;
    if (!npy && c->output.replaced)
        return failure("arrays are written to .npy files, not to %s", c->output.name);
    return args_refuse("resample,format", "is for sound");
}

static int write_rows(convolve *c)
{
    rows *r = &c->out;
    if (r->rate && !ends_with(c->output.name, ".npy")) {
        sound s = { r->count, r->length, r->rate, r->data };
        return sound_write(
            c->output.path, telling_name(c), &s, (sound_format)c->format, &c->clipped);
    }
    danaus_tensor t = r->shape;
    if (r->rate) {
        t.ndim = 2;
        t.shape[0] = r->count;
    }
    t.name = "";
    t.dtype = r->dtype;
    t.shape[t.ndim - 1] = r->length;
    t.data = r->data;
    return library(danaus_file_write_npy(c->output.path, &t));
}

static int report(const convolve *c)
{
    const rows *r = &c->out;
    char plan[1024];
    danaus_conv_plan_describe(c->plan, plan, sizeof plan);
    plan[strcspn(plan, "\n")] = '\0';
    if (c->clipped)
        warning(
            "%" PRId64
            " numbers were beyond full scale and are clipped: --normalize or "
            "--format float keeps them",
            c->clipped);
    return facts_report(
        facts_of(
            "rows:i length:i taps:i kept:i rate:d dtype:t seconds:n plan:t clipped:i "
            "output:t",
            r->count, c->signal.length, c->filters.length, r->length, r->rate,
            danaus_dtype_name(r->dtype), c->time.median, plan, c->clipped,
            c->output.name),
        c->json, &c->output,
        "{output}: {rows:#row} of {length} by {taps} taps, {dtype}, {seconds:.3g} s\n");
}

static int run(convolve *c, char **paths, int count)
{
    TRY(output_open(&c->output, c->output.name));
    TRY(check_name(c));
    TRY(rows_read(paths[0], &c->signal));
    TRY(check_sort(c));
    TRY(read_filters(c, paths + 1, count - 1));
    TRY(c->signal.rate ? match_channels(c) : match_shapes(c));
    TRY(open_device(&c->where, &c->device));
    TRY(convolve_rows(c));
    judge(c);
    if (c->normalize)
        TRY(rows_normalize(&c->out));
    TRY(write_rows(c));
    return report(c);
}

int cmd_conv(int argc, char **argv)
{
    convolve c = { .repeat = 1 };
    int operands;
    const arg table[] = {
        { "output", 'o', ARG_OUTPUT, &c.output.name, "FILE",
          "the file to write: .npy, .wav, .flac, .aiff, .w64,\n"
          ".rf64, .au or .caf" },
        { "mode", 0, ARG_WORD, &c.mode, "causal|circular|full|same|valid",
          "the part of the result (default causal)" },
        { "skip", 0, ARG_ANY, &c.skip, "X",
          "add X times the signal itself; default 0" },
        { "normalize", 0, ARG_FLAG, &c.normalize, NULL,
          "scale all rows by one factor, to a peak of 1" },
        { "resample", 0, ARG_FLAG, &c.resample, NULL,
          "resample filters to the rate of the signal" },
        { "format", 0, ARG_WORD, &c.format, "pcm16|pcm24|float",
          "sample format of sound (default pcm16)" },
        EFFORT_ARG(c.how),
        ACCURACY_ARG(c.how),
        DEVICE_ARGS(c.where),
        { "repeat", 0, ARG_NUMBER, &c.repeat, "N",
          "convolve N times and report the median time" },
        { "json", 0, ARG_FLAG, &c.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, &operands));
    int status = run(&c, argv + 1, operands);
    danaus_spectrum_destroy(c.spectrum);
    danaus_conv_plan_destroy(c.plan);
    danaus_device_close(c.device);
    free(c.signal.data);
    free(c.filters.data);
    free(c.out.data);
    return status;
}
