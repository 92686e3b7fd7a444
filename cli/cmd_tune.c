/* danaus tune: measures every kernel, or every good cut of convolutions, on the problems
   of a suite and writes the choices to a table. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/conv_suite.h"
#include "cli/measure.h"
#include "cli/open.h"
#include "cli/report.h"
#include "cli/suite.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const usage use = {
    .command = "danaus tune",
    .synopsis = "[ks|conv] --suite bench/suites/NAME.csv -o TABLE.csv [OPTION]...",
    .about =
        "Plans every problem of a suite with all kernels measured and writes a table\n"
        "of the choices: for products (ks, which may be left out) or convolutions\n"
        "(conv), of which the cuts that the cost model likes best are measured. Give\n"
        "the table to the other commands with --tuning; a table of another machine\n"
        "does no harm. With --tuning here, its rows are kept.\n",
    .least = 0,
    .most = 1,
    .operands = "\"ks\" or \"conv\"",
};

typedef struct options {
    device_options device;
    const char *suite, *output;
    danaus_dtype dtype;
    int layout, math, json; /* layout: 0 both, else 1 + danaus_layout */
    double seconds;         /* 0: until all is measured */
    counts batch;
} options;

static int tune_problem(
    danaus_device *device, const options *o, const suite_problem *p, int64_t batch,
    json_t *list)
{
    for (int layout = 0; layout < 2; layout++) {
        if (o->layout && o->layout != 1 + layout)
            continue;
        danaus_ks_desc desc = { .layout = (danaus_layout)layout, .batch = batch };
        desc.dtype = o->dtype ? o->dtype : DANAUS_F32;
        desc.effort = DANAUS_MEASURE;
        desc.math = (danaus_math)o->math;
        danaus_ks_plan *plan;
        if (danaus_ks_plan_create(device, p->patterns, p->count, &desc, &plan))
            return library_failure();
        char problem[4096], text[2048];
        format_patterns(p->patterns, p->count, problem, sizeof problem);
        danaus_ks_plan_describe(plan, text, sizeof text);
        danaus_ks_plan_destroy(plan);
        const char *words = layout ? "last" : "first";
        json_array_append_new(
            list, json_pack(
                      "{s:s, s:s, s:s, s:I, s:s}", "problem", problem, "dtype",
                      danaus_dtype_name(desc.dtype), "layout", words, "batch",
                      (json_int_t)batch, "plan", text));
        if (!o->json)
            printf("%s, batch %" PRId64 " %s\n%s\n", problem, batch, words, text);
    }
    return STATUS_OK;
}

/* A step between numbers below count that leads to all of them, spread evenly: near the
   golden section of count, without a common divisor. */
static int spreading_step(int count)
{
    int step = (int)(0.618 * count) + 1;
    for (;; step++) {
        int a = count, b = step;
        while (b) {
            int rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step;
    }
}

/* Where time is short, what is measured lies all over the suite. */
static int tune_all(
    danaus_device *device, const options *o, const suite *s, json_t *list)
{
    int status = STATUS_OK, step = o->seconds > 0 ? spreading_step(s->count) : 1;
    double start = seconds_now();
    for (int64_t i = 0; i < s->count && !status; i++) {
        const suite_problem *p = &s->problems[i * step % s->count];
        if (o->seconds > 0 && seconds_now() - start > o->seconds)
            break;
        counts batches = o->batch;
        if (!batches.count)
            batches = (counts){ 1, { p->batch ? p->batch : 25088 } };
        for (int n = 0; n < batches.count && !status; n++)
            status = tune_problem(device, o, p, batches.value[n], list);
    }
    return status;
}

static int tune_conv(
    danaus_device *device, const options *o, const conv_problem *p, json_t *list)
{
    danaus_dtype dtype = o->dtype ? o->dtype : DANAUS_F32;
    danaus_conv_desc desc = conv_problem_desc(p, dtype, DANAUS_MEASURE);
    danaus_conv_plan *plan;
    char text[256];
    if (danaus_conv_plan_create(device, &desc, &plan))
        return library_failure();
    danaus_conv_plan_describe(plan, text, sizeof text);
    danaus_conv_plan_destroy(plan);
    text[strcspn(text, "\n")] = '\0';
    json_array_append_new(
        list,
        json_pack(
            "{s:s, s:I, s:I, s:I, s:I, s:s, s:s}", "kind", conv_kind_names[p->kind],
            "length", (json_int_t)p->length, "taps", (json_int_t)p->taps, "batch",
            (json_int_t)p->batch, "channels", (json_int_t)p->channels, "dtype",
            danaus_dtype_name(dtype), "plan", text));
    if (!o->json) {
        printf(
            "%s, %" PRId64 " by %" PRId64 " taps, %" PRId64 " x %" PRId64 "\n  %s\n",
            conv_kind_names[p->kind], p->length, p->taps, p->batch, p->channels, text);
        fflush(stdout);
    }
    return STATUS_OK;
}

static int tune_suite(danaus_device *device, const options *o, json_t *list)
{
    suite s;
    int status = suite_read(o->suite, &s);
    if (!status)
        status = tune_all(device, o, &s, list);
    suite_free(&s);
    return status;
}

static int tune_conv_suite(danaus_device *device, const options *o, json_t *list)
{
    conv_suite s;
    int status = conv_suite_read(o->suite, &s);
    for (int i = 0; i < s.count && !status; i++)
        status = tune_conv(device, o, &s.problems[i], list);
    conv_suite_free(&s);
    return status;
}

int cmd_tune(int argc, char **argv)
{
    options o = { 0 };
    int operands;
    const arg table[] = {
        { "suite", 0, ARG_TEXT, &o.suite, "FILE", "the problems, as for danaus bench" },
        { "output", 'o', ARG_TEXT, &o.output, "FILE", "the table to write" },
        DEVICE_ARGS(o.device),
        { "dtype", 0, ARG_DTYPE, &o.dtype, "TYPE",
          "f32 (default), f64, c64, c128, f16 or bf16" },
        { "layout", 0, ARG_WORD, &o.layout, "both|first|last",
          "where x and y have the batch (default both)" },
        { "math", 0, ARG_WORD, &o.math, "f32|tf32",
          "how f32 products may be made (default f32)" },
        { "batch", 0, ARG_COUNTS, &o.batch, "N,N,...",
          "batch sizes, in place of the suite's" },
        { "seconds", 0, ARG_REAL, &o.seconds, "S",
          "products: begin no problem after S seconds; problems\n"
          "from all over the suite come first" },
        { "json", 0, ARG_FLAG, &o.json, NULL, "print the plans as JSON" },
        { 0 },
    };
    int status = args_parse(&use, table, argc, argv, &operands);
    if (status != ARGS_GO_ON)
        return status;
    if (!o.suite || !o.output)
        return usage_error("--suite FILE and -o FILE are needed (try --help)");
    const char *what = operands ? argv[1] : "ks";
    int conv = !strcmp(what, "conv");
    if (!conv && strcmp(what, "ks"))
        return usage_error("there is no \"%s\" to tune, only ks and conv", what);
    danaus_device *device;
    status = check_output(o.output);
    status = status ? status : open_device(&o.device, &device);
    if (status)
        return status;
    json_t *list = json_array();
    status = conv ? tune_conv_suite(device, &o, list) : tune_suite(device, &o, list);
    if (!status && danaus_device_save_tuning(device, o.output))
        status = library_failure();
    danaus_device_close(device);
    if (!status && o.json)
        report_json(json_pack("{s:O, s:s}", "plans", list, "output", o.output));
    json_decref(list);
    return status;
}
