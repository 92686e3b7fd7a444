/* danaus bench conv: measures the convolutions of a suite, a record for each. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/fftw.h"
#include "bench/machine.h"
#include "cli/conv_records.h"
#include "cli/conv_suite.h"
#include "cli/measure.h"
#include "cli/open.h"
#include "cli/report.h"
#include "cli/bench_conv.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Inputs and outputs together are at most this share of the memory. */
#define MEMORY_SHARE 2
#define CHUNK        65536 /* numbers that are made at a time */

static const usage use = {
    .command = "danaus bench conv",
    .synopsis = "--suite bench/suites/conv.csv [OPTION]...",
    .about =
        "Measures y = gate_out * (k (*) (gate_in * u) + skip * gate_in * u) for every\n"
        "problem of a suite and prints a record for each: medians of at least 9 "
        "samples\n"
        "and 0.2 s of calls after a warm-up, with signals that rotate through more\n"
        "memory than the last cache (unless --hot). Filters are transformed before.\n\n"
        "With --baselines FFTW makes the same causal convolution in the same rounds:\n"
        "r2c, product, c2r in single precision with measured plans, at the better of\n"
        "two padded lengths, rows over the threads or all rows in one batched plan,\n"
        "whichever is faster. The error is that of the first row against the same\n"
        "convolution in f64, in norm.\n\n"
        "Beside every other form the plain causal one with a filter of full length is\n"
        "measured in the same rounds; the ratio to it leaves out the time in which "
        "the\n"
        "gates alone would be read at the machine's copy rate.\n\n"
        "With --effort measure the plans are measured ones, and those of the model "
        "are\n"
        "timed beside them in the same rounds.\n",
    .least = 0,
    .most = 0,
    .operands = "no operand",
};

typedef struct options {
    device_options device;
    const char *suite, *csv;
    danaus_dtype dtype;
    int effort, baselines, hot, json;
} options;

typedef struct bench {
    const options *o;
    conv_suite suite;
    danaus_device *device;
    danaus_device_info info;
    team *team;
    machine *machine;
    FILE *csv;
    json_t *records;
    int left_out;
} bench;

/* One problem with its operands: u in copies[0].x, y in copies[0].y, and so on. */
typedef struct conv_case {
    const conv_problem *p;
    danaus_device *device;
    danaus_dtype dtype;
    danaus_effort effort;
    danaus_conv_plan *plan;
    danaus_spectrum *spectrum;
    rotation copies;
    float *k, *k_reverse, *skip;
    void *gates[2];
    int failed;
    double error;
} conv_case;

/* Numbers in [-1, 1) from their index. */
static float noise(uint64_t i)
{
    i = (i + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    i = (i ^ (i >> 29)) * 0x94d049bb133111ebu;
    return (float)(i >> 40) * 0x1p-23f - 1;
}

static void fill_noise(size_t count, uint64_t seed, float *x)
{
    for (size_t i = 0; i < count; i++)
        x[i] = noise(seed + i);
}

static float *noise_array(size_t count, uint64_t seed)
{
    float *x = malloc(count * sizeof *x);
    if (x)
        fill_noise(count, seed, x);
    return x;
}

static int64_t numbers_of(const conv_problem *p)
{
    return p->batch * p->channels * p->length;
}

/* `count` numbers in the case's type, in memory of the device. */
static void *device_noise(conv_case *c, size_t count, uint64_t seed)
{
    static float x[CHUNK];
    size_t size = danaus_dtype_size(c->dtype);
    void *memory = NULL;
    if (danaus_alloc(c->device, count * size, &memory))
        return NULL;
    for (size_t from = 0; from < count; from += CHUNK) {
        size_t n = count - from < CHUNK ? count - from : CHUNK;
        fill_noise(n, seed + from, x);
        danaus_convert(
            DANAUS_F32, x, c->dtype, (char *)memory + from * size, (int64_t)n);
    }
    return memory;
}

static void conv_case_run(void *self, const void *u, void *y)
{
    conv_case *c = self;
    c->failed |= danaus_conv_execute(
                     c->plan, c->device, c->spectrum, c->p->batch, u, c->gates[0],
                     c->gates[1], y) != DANAUS_OK;
}

static int make_filters(conv_case *c)
{
    const conv_problem *p = c->p;
    size_t taps = (size_t)(p->channels * p->taps);
    c->k = noise_array(taps, 1);
    if (p->kind == DANAUS_BIDIRECTIONAL)
        c->k_reverse = noise_array(taps, 2);
    if (p->gated)
        c->skip = noise_array((size_t)p->channels, 3);
    return c->k != NULL;
}

/* Plan and filters. */
static int conv_case_create(conv_case *c)
{
    danaus_conv_desc desc = conv_problem_desc(c->p, c->dtype, c->effort);
    if (!make_filters(c))
        return failure("no memory for filters");
    if (danaus_conv_plan_create(c->device, &desc, &c->plan) ||
        danaus_spectrum_create(
            c->plan, c->device, c->k, c->k_reverse, c->skip, &c->spectrum))
        return library_failure();
    return STATUS_OK;
}

/* Signals that rotate through `cache` bytes, and gates. */
static int conv_case_signals(conv_case *c, size_t cache)
{
    size_t count = (size_t)numbers_of(c->p),
           bytes = count * danaus_dtype_size(c->dtype);
    c->copies.x_bytes = c->copies.y_bytes = (bytes + 63) / 64 * 64;
    c->copies.copies = 1 + (int64_t)(cache / c->copies.x_bytes);
    size_t all = (size_t)c->copies.copies * c->copies.x_bytes;
    c->copies.x = device_noise(c, all / danaus_dtype_size(c->dtype), 4);
    if (!c->copies.x || danaus_alloc(c->device, all, (void **)&c->copies.y))
        return failure("no memory for signals");
    memset(c->copies.y, 0, all);
    for (int g = 0; g < 2 && c->p->gated; g++)
        if (!(c->gates[g] = device_noise(c, count, 5 + (uint64_t)g)))
            return failure("no memory for gates");
    return STATUS_OK;
}

static void conv_case_destroy(conv_case *c)
{
    danaus_spectrum_destroy(c->spectrum);
    danaus_conv_plan_destroy(c->plan);
    danaus_free(c->device, c->copies.x);
    danaus_free(c->device, c->copies.y);
    for (int g = 0; g < 2; g++)
        danaus_free(c->device, c->gates[g]);
    free(c->k);
    free(c->k_reverse);
    free(c->skip);
}

/* The first row again in f64. */
static int exact_row(const conv_case *c, double *work, double *y)
{
    const conv_problem *p = c->p;
    danaus_conv_desc desc = conv_problem_desc(p, DANAUS_F64, DANAUS_ESTIMATE);
    desc.channels = 1;
    double *k = work, *back = k + p->taps, *u = back + p->taps, *in = u + p->length,
           *out = in + p->length, skip = p->gated ? (double)c->skip[0] : 0;
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    danaus_convert(DANAUS_F32, c->k, DANAUS_F64, k, p->taps);
    if (c->k_reverse)
        danaus_convert(DANAUS_F32, c->k_reverse, DANAUS_F64, back, p->taps);
    danaus_convert(c->dtype, c->copies.x, DANAUS_F64, u, p->length);
    if (p->gated) {
        danaus_convert(c->dtype, c->gates[0], DANAUS_F64, in, p->length);
        danaus_convert(c->dtype, c->gates[1], DANAUS_F64, out, p->length);
    }
    int failed =
        danaus_conv_plan_create(c->device, &desc, &plan) ||
        danaus_spectrum_create(
            plan, c->device, k, c->k_reverse ? back : NULL, &skip, &spectrum) ||
        danaus_conv_execute(
            plan, c->device, spectrum, 1, u, p->gated ? in : NULL,
            p->gated ? out : NULL, y);
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
    return failed;
}

static double relative_error(int64_t n, const double *is, const double *should)
{
    double error = 0, norm = 0;
    for (int64_t t = 0; t < n; t++) {
        error += (is[t] - should[t]) * (is[t] - should[t]);
        norm += should[t] * should[t];
    }
    return sqrt(error / norm);
}

/* Sets the error, and fails where rounding does not explain it. */
static int check_case(conv_case *c)
{
    int64_t n = c->p->length;
    double *work = malloc((size_t)(2 * c->p->taps + 5 * n) * sizeof *work);
    double unit = c->dtype == DANAUS_F64 ? 0x1p-53 : 0x1p-24;
    unit += c->dtype == DANAUS_F16 ? 0x1p-10 : c->dtype == DANAUS_BF16 ? 0x1p-7 : 0;
    if (!work)
        return failure("no memory to check a row");
    double *y = work + 2 * c->p->taps + 3 * n, *is = y + n;
    conv_case_run(c, c->copies.x, c->copies.y);
    int failed = c->failed || exact_row(c, work, y);
    danaus_convert(c->dtype, c->copies.y, DANAUS_F64, is, n);
    c->error = relative_error(n, is, y);
    free(work);
    if (failed)
        return library_failure();
    if (!(c->error <= 20 * unit * sqrt(log2((double)n + 2))))
        return failure("the convolution is wrong: relative error %.3g", c->error);
    return STATUS_OK;
}

/* The baseline's first row against ours. */
static int check_baseline(conv_case *c, fftw_conv *f)
{
    int64_t n = c->p->length;
    double *both = malloc((size_t)(2 * n) * sizeof *both);
    if (!both)
        return failure("no memory to check the baseline");
    danaus_convert(DANAUS_F32, c->copies.y, DANAUS_F64, both, n);
    fftw_conv_run(f, c->copies.x, c->copies.y);
    danaus_convert(DANAUS_F32, c->copies.y, DANAUS_F64, both + n, n);
    double error = relative_error(n, both, both + n);
    free(both);
    return error < 1e-4 ? STATUS_OK : failure("FFTW differs from ours by %.3g", error);
}

/* What is measured in the same rounds: ours, then the others. */
enum { OURS, MODEL, PLAIN, COPY, FFTW, RUNNERS };

static double bytes_of(const conv_case *c, int rows)
{
    return (double)numbers_of(c->p) * rows * (double)danaus_dtype_size(c->dtype);
}

/* Time over that of the plain form, less what reading the gates takes at the copy rate;
   NAN for the plain form. */
static double form_ratio(const bench *b, const conv_case *c, const runner *list)
{
    if (!list[PLAIN].self)
        return NAN;
    double gates = 0;
    if (c->p->gated)
        gates = bytes_of(c, 2) / machine_work(b->machine).copy * list[COPY].median;
    return (list[OURS].median - gates) / list[PLAIN].median;
}

static json_t *make_record(
    const bench *b, const conv_case *c, const runner *list, const fftw_conv *f)
{
    const conv_problem *p = c->p;
    char plan[256];
    danaus_conv_plan_describe(c->plan, plan, sizeof plan);
    plan[strcspn(plan, "\n")] = '\0';
    const runner *ours = &list[OURS];
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:i, s:s, s:f, s:f, s:f, s:f, s:f, s:o, "
        "s:o, s:o, s:o, s:o}",
        "kind", conv_kind_names[p->kind], "length", (json_int_t)p->length, "taps",
        (json_int_t)p->taps, "batch", (json_int_t)p->batch, "channels",
        (json_int_t)p->channels, "extras",
        p->gated    ? "gated"
        : p->sparse ? "sparse"
                    : "plain",
        "dtype", danaus_dtype_name(c->dtype), "threads", b->info.threads, "plan", plan,
        "seconds", ours->median, "p10", ours->p10, "p90", ours->p90, "gbs",
        bytes_of(c, p->gated ? 4 : 2) / ours->median / 1e9, "error", c->error,
        "fftw_seconds", json_number(f ? list[FFTW].median : NAN), "fftw_padded",
        f ? json_integer(fftw_conv_padded(f)) : json_null(), "fftw_ratio",
        json_number(f ? list[FFTW].median / ours->median : NAN), "plain_seconds",
        json_number(list[PLAIN].self ? list[PLAIN].median : NAN), "plain_ratio",
        json_number(form_ratio(b, c, list)));
}

static int is_plain(const conv_problem *p)
{
    return p->kind == DANAUS_CAUSAL && p->taps == p->length && !p->gated && !p->sparse;
}

static void copy_run(void *self, const void *x, void *y)
{
    (void)x;
    (void)y;
    machine_run_copy(self);
}

/* Times c, the model's choice, the plain form and FFTW where they are given, and adds
   the record. */
static int time_case(
    bench *b, conv_case *c, conv_case *model, conv_case *plain, fftw_conv *f)
{
    runner all[RUNNERS] = {
        [OURS] = { .name = "danaus", .run = conv_case_run, .self = c },
        [MODEL] = { .name = "model", .run = conv_case_run, .self = model },
        [PLAIN] = { .name = "plain", .run = conv_case_run, .self = plain },
        [COPY] = { .name = "copy", .run = copy_run },
        [FFTW] = { .name = "fftw", .run = fftw_conv_run, .self = f },
    };
    if (c->p->gated)
        all[COPY].self = b->machine;
    runner list[RUNNERS];
    int count = 0;
    for (int i = 0; i < RUNNERS; i++)
        if (all[i].self)
            list[count++] = all[i];
    if (!measure(list, count, &c->copies))
        return failure("no memory for times");
    for (int i = 0, n = 0; i < RUNNERS; i++)
        if (all[i].self)
            all[i] = list[n++];
    if (c->failed || (plain && plain->failed) || (model && model->failed))
        return library_failure();
    json_t *record = make_record(b, c, all, f);
    double seconds = model ? all[MODEL].median : NAN;
    json_object_set_new(record, "model_seconds", json_number(seconds));
    json_object_set_new(record, "model_ratio", json_number(seconds / all[OURS].median));
    if (b->csv)
        conv_record_write(record, json_array_size(b->records) == 0, b->csv);
    if (!b->o->json)
        conv_record_print(record);
    json_array_append_new(b->records, record);
    return STATUS_OK;
}

/* model: the same case with the plan of the cost model; NULL: not asked for. */
static int measure_case(bench *b, conv_case *c, conv_case *model)
{
    const conv_problem *p = c->p;
    conv_problem full = *p;
    full.kind = DANAUS_CAUSAL;
    full.taps = p->length;
    full.gated = full.sparse = 0;
    conv_case plain = { .p = &full, .device = c->device, .dtype = c->dtype };
    fftw_conv *f = NULL;
    int wanted = b->o->baselines && p->kind == DANAUS_CAUSAL && !p->gated &&
                 !p->sparse && c->dtype == DANAUS_F32;
    int status = check_case(c);
    if (!status && !is_plain(p))
        status = conv_case_create(&plain);
    if (!status && wanted)
        f = fftw_conv_create(b->team, p->length, p->taps, p->batch, p->channels, c->k);
    if (!status && f)
        status = check_baseline(c, f);
    status = status ? status : time_case(b, c, model, is_plain(p) ? NULL : &plain, f);
    fftw_conv_destroy(f);
    conv_case_destroy(&plain);
    return status;
}

static int run_problem(bench *b, const conv_problem *p)
{
    conv_case c = { .p = p, .device = b->device, .dtype = b->o->dtype };
    c.dtype = c.dtype ? c.dtype : DANAUS_F32;
    if (bytes_of(&c, p->gated ? 4 : 2) > (double)b->info.memory / MEMORY_SHARE) {
        b->left_out++;
        return STATUS_OK;
    }
    conv_case model = c;
    c.effort = (danaus_effort)b->o->effort;
    int measured = c.effort == DANAUS_MEASURE;
    int status = measured ? conv_case_create(&model) : STATUS_OK;
    status = status ? status : conv_case_create(&c);
    status =
        status ? status : conv_case_signals(&c, b->o->hot ? 0 : (size_t)b->info.cache);
    memcpy(model.gates, c.gates, sizeof c.gates); /* c's, while c is there */
    status = status ? status : measure_case(b, &c, measured ? &model : NULL);
    memset(model.gates, 0, sizeof model.gates);
    conv_case_destroy(&model);
    conv_case_destroy(&c);
    return status;
}

static int prepare(bench *b)
{
    int status = conv_suite_read(b->o->suite, &b->suite);
    status = status ? status : open_device(&b->o->device, &b->device);
    if (status)
        return status;
    if (danaus_device_describe(b->device, &b->info))
        return library_failure();
    if (b->info.threads == 0)
        return failure("convolutions are measured on processors only");
    if (b->o->csv && !(b->csv = fopen(b->o->csv, "w")))
        return failure("cannot write %s: %s", b->o->csv, strerror(errno));
    b->records = json_array();
    b->team = team_create(b->info.threads);
    if (b->team)
        b->machine = machine_create(b->team, b->info.instructions, b->info.cache);
    return b->machine ? STATUS_OK : failure("no memory for the limits");
}

static int run(bench *b)
{
    int status = prepare(b);
    if (status)
        return status;
    if (!b->o->json)
        printf(
            "%s, %s, %d threads; FFTW: %s\n", b->info.description, b->info.instructions,
            b->info.threads, b->o->baselines ? fftw_conv_version() : "not asked for");
    for (int i = 0; i < b->suite.count && !status; i++)
        status = run_problem(b, &b->suite.problems[i]);
    if (status)
        return status;
    if (b->csv && ferror(b->csv))
        return failure("cannot write %s", b->o->csv);
    json_t *summary = conv_records_summarise(b->records);
    if (b->o->json)
        report_json(json_pack(
            "{s:s, s:s, s:i, s:s, s:O, s:o, s:i}", "device", b->info.description,
            "instructions", b->info.instructions, "threads", b->info.threads, "fftw",
            fftw_conv_version(), "records", b->records, "summary", summary, "left_out",
            b->left_out));
    else {
        conv_summary_print(summary);
        if (b->left_out)
            printf("left out, too large for this memory: %d\n", b->left_out);
        json_decref(summary);
    }
    return STATUS_OK;
}

int bench_conv(int argc, char **argv)
{
    options o = { 0 };
    int operands;
    const arg table[] = {
        { "suite", 0, ARG_TEXT, &o.suite, "FILE",
          "the problems: kind,length,taps,batch,channels,\nplain|gated|sparse" },
        DEVICE_ARGS(o.device),
        { "dtype", 0, ARG_DTYPE, &o.dtype, "TYPE", "f32 (default), f64, f16 or bf16" },
        { "effort", 0, ARG_WORD, &o.effort, "estimate|measure",
          "how to choose transforms (default estimate)" },
        { "baselines", 0, ARG_FLAG, &o.baselines, NULL, "measure FFTW too" },
        { "hot", 0, ARG_FLAG, &o.hot, NULL,
          "use one signal only: it stays in the caches" },
        { "csv", 0, ARG_TEXT, &o.csv, "FILE", "write the records to a file as well" },
        { "json", 0, ARG_FLAG, &o.json, NULL, "print records and summary as JSON" },
        { 0 },
    };
    int status = args_parse(&use, table, argc, argv, &operands);
    if (status != ARGS_GO_ON)
        return status;
    if (!o.suite)
        return usage_error("--suite FILE is needed (try --help)");
    bench b = { .o = &o };
    status = run(&b);
    json_decref(b.records);
    machine_destroy(b.machine);
    team_destroy(b.team);
    danaus_device_close(b.device);
    conv_suite_free(&b.suite);
    if (b.csv)
        fclose(b.csv);
    return status;
}
