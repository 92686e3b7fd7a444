/* danaus-bench conv: measures the convolutions of a suite, a record for each. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/fftw.h"
#include "bench/machine.h"
#include "bench/program/commands.h"
#include "bench/program/conv_case.h"
#include "bench/program/conv_records.h"
#include "bench/program/gpu_limits.h"
#include "bench/program/origin.h"
#include "common/open.h"
#include "common/report.h"
#include "common/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Inputs and outputs together are at most this share of the memory. */
#define MEMORY_SHARE 2

static const usage use = {
    .synopsis = "--suite bench/suites/conv.csv [OPTION]...",
    .about =
        "Measures y = gate_out * (k (*) (gate_in * u) + skip * gate_in * u) for\n"
        "every problem of a suite and prints a record for each: medians of at least\n"
        "9 samples and 0.2 s of calls after a warm-up, with signals that rotate\n"
        "through more memory than the last cache (unless --hot). Filters are\n"
        "transformed before.\n\n"
        "With --baselines FFTW makes the same causal convolution in the same rounds:\n"
        "r2c, product, c2r in single precision with measured plans, at the better of\n"
        "two padded lengths, rows over the threads or all rows in one batched plan,\n"
        "whichever is faster. The error is that of the first row against the same\n"
        "convolution in f64 on the processor, in norm. FFTW is not asked where a GPU\n"
        "is measured.\n\n"
        "Beside every other form the plain causal one with a filter of full length\n"
        "is measured in the same rounds; the ratio to it leaves out the time in\n"
        "which the gates alone would be read at the machine's copy rate.\n\n"
        "With --effort measure the plans are measured ones, and those of the model\n"
        "are timed beside them in the same rounds.\n",
    .number = { 0, 0 },
    .operands = "no operand",
};

typedef struct options {
    device_options device;
    const char *suite, *csv;
    danaus_dtype dtype;
    int effort, accuracy, baselines, hot, json;
} options;

typedef struct bench {
    const options *o;
    conv_suite suite;
    danaus_device *device;
    danaus_device_info info;
    team *team;
    machine *machine; /* NULL on a GPU, which has */
    machine_limits limits;
    json_t *records;
    int left_out;
} bench;

/* The baseline's first row against ours. */
static int check_baseline(conv_case *c, fftw_conv *f)
{
    int64_t n = c->p->length;
    double *both = malloc((size_t)(2 * n) * sizeof *both);
    if (!both)
        return failure("no memory to check the baseline");
    int status = conv_case_row(c, c->copies.y, both);
    fftw_conv_run(f, c->copies.x, c->copies.y);
    status = status ? status : conv_case_row(c, c->copies.y, both + n);
    double error = status ? 0 : conv_relative_error(n, both, both + n);
    free(both);
    if (status)
        return status;
    return error < 1e-4 ? STATUS_OK : failure("FFTW differs from ours by %.3g", error);
}

/* What is measured in the same rounds: ours, then the others. */
enum { OURS, MODEL, PLAIN, COPY, FFTW, RUNNERS };

/* Time over that of the plain form, less what reading the gates takes at the copy rate;
   NAN for the plain form. */
static double form_ratio(const bench *b, const conv_case *c, const runner *list)
{
    if (!list[PLAIN].self)
        return NAN;
    double gates = 0;
    if (c->p->gated && b->machine)
        gates =
            conv_case_bytes(c, 2) / machine_work(b->machine).copy * list[COPY].median;
    else if (c->p->gated)
        gates = conv_case_bytes(c, 2) / b->limits.copy;
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
    json_t *record = origin_of(&b->info);
    json_t *found = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:o, "
        "s:o, s:o, s:o, s:o}",
        "kind", conv_kind_names[p->kind], "length", (json_int_t)p->length, "taps",
        (json_int_t)p->taps, "batch", (json_int_t)p->batch, "channels",
        (json_int_t)p->channels, "extras", conv_extras_name(p), "dtype",
        danaus_dtype_name(c->dtype), "plan", plan, "seconds", ours->median, "p10",
        ours->p10, "p90", ours->p90, "gbs",
        conv_case_bytes(c, p->gated ? 4 : 2) / ours->median / 1e9, "error", c->error,
        "fftw_seconds", json_number(f ? list[FFTW].median : NAN), "fftw_padded",
        f ? json_integer(fftw_conv_padded(f)) : json_null(), "fftw_ratio",
        json_number(f ? list[FFTW].median / ours->median : NAN), "plain_seconds",
        json_number(list[PLAIN].self ? list[PLAIN].median : NAN), "plain_ratio",
        json_number(form_ratio(b, c, list)));
    json_object_update(record, found);
    json_decref(found);
    return record;
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
    for (int i = OURS; i <= PLAIN; i++)
        all[i].finish = conv_case_finish;
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
    if (!b->o->json)
        conv_record_print(record);
    json_array_append_new(b->records, record);
    return b->o->csv ? report_csv(b->records, b->o->csv) : STATUS_OK;
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
    plain.accuracy = c->accuracy;
    fftw_conv *f = NULL;
    int wanted = b->o->baselines && b->machine && p->kind == DANAUS_CAUSAL &&
                 !p->gated && !p->sparse && c->dtype == DANAUS_F32;
    int status = conv_case_check(c);
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
    if (conv_case_bytes(&c, p->gated ? 4 : 2) > (double)b->info.memory / MEMORY_SHARE) {
        b->left_out++;
        return STATUS_OK;
    }
    c.accuracy = (danaus_conv_accuracy)b->o->accuracy;
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
    output csv = { 0 };
    int status = b->o->csv ? output_open(&csv, b->o->csv) : STATUS_OK;
    status = status ? status : conv_suite_read(b->o->suite, &b->suite);
    status = status ? status : open_device(&b->o->device, &b->device);
    if (status)
        return status;
    if (danaus_device_describe(b->device, &b->info))
        return library_failure();
    b->records = json_array();
    if (b->info.threads == 0)
        return gpu_limits(b->device, DANAUS_F32, DANAUS_MATH_F32, &b->limits);
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
    json_t *summary = conv_records_summarise(b->records);
    if (b->o->json)
        return report_json(json_pack(
            "{s:s, s:s, s:i, s:s, s:O, s:o, s:i}", "device", b->info.description,
            "instructions", b->info.instructions, "threads", b->info.threads, "fftw",
            fftw_conv_version(), "records", b->records, "summary", summary, "left_out",
            b->left_out));
    conv_summary_print(summary);
    if (b->left_out)
        printf("left out, too large for this memory: %d\n", b->left_out);
    json_decref(summary);
    return STATUS_OK;
}

int bench_conv(int argc, char **argv)
{
    options o = { 0 };
    int operands;
    const arg table[] = {
        { "suite", 0, ARG_INPUT, &o.suite, "FILE",
          "the problems: kind,length,taps,batch,channels,\nplain|gated|sparse" },
        DEVICE_ARGS(o.device),
        { "dtype", 0, ARG_DTYPE, &o.dtype, "TYPE", "f32 (default), f64, f16 or bf16" },
        EFFORT_ARG(o),
        ACCURACY_ARG(o),
        { "baselines", 0, ARG_FLAG, &o.baselines, NULL, "measure FFTW too" },
        { "hot", 0, ARG_FLAG, &o.hot, NULL,
          "use one signal only: it stays in the caches" },
        { "csv", 0, ARG_OUTPUT, &o.csv, "FILE", "write the records to a file as well" },
        { "json", 0, ARG_FLAG, &o.json, NULL, "print records and summary as JSON" },
        { 0 },
    };
    int status = args_parse(&use, table, argc, argv, &operands);
    if (status != ARGS_GO_ON)
        return status;
    if (!o.suite)
        return usage_error("--suite FILE is needed (try --help)");
    if (is_complex(o.dtype))
        return usage_error("filters of these suites are real, and so are signals");
    bench b = { .o = &o };
    status = run(&b);
    json_decref(b.records);
    machine_destroy(b.machine);
    team_destroy(b.team);
    danaus_device_close(b.device);
    conv_suite_free(&b.suite);
    return status;
}
