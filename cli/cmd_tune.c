/* danaus tune: measures every kernel, or every good cut of convolutions, on the problems
   of a suite and writes the choices to a table. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "common/progress.h"
#include "common/suite.h"

static const usage use = {
    .command = "danaus tune",
    .synopsis = "[ks|conv] --suite FILE -o TABLE.csv [OPTION]...",
    .about =
        "Plans every problem of a suite with all kernels measured and writes a table\n"
        "of the choices: for products (ks, which may be left out) or convolutions\n"
        "(conv), of which the cuts that the cost model likes best are measured. The\n"
        "table is saved after each problem; other rows that it has, and those of a\n"
        "table given with --tuning, are kept. Give it to the other commands with\n"
        "--tuning; a table of another machine does no harm.\n",
    .least = 0,
    .most = 1,
    .operands = "\"ks\" or \"conv\"",
    .words = "ks|conv",
};

typedef struct options {
    device_options device;
    const char *suite, *output;
    danaus_dtype dtype;
    int layout, accuracy, json; /* layout: 0 both, else 1 + danaus_layout */
    double seconds;             /* 0: until all is measured */
    counts batch;
} options;

typedef struct tuner {
    const options *o;
    danaus_device *device;
    output output;
    json_t *plans;
    progress bar;
} tuner;

/* Takes a plan that was measured: its row is in the device's table. */
static int take(tuner *t, json_t *plan, const char *text)
{
    json_array_append_new(t->plans, plan);
    progress_clear(&t->bar);
    if (!t->o->json && !output_is_standard(&t->output))
        facts_print(plan, text);
    fflush(stdout);
    return library(danaus_device_save_tuning(t->device, t->output.path));
}

static int tune_product(tuner *t, const suite_problem *p, int layout, int64_t batch)
{
    danaus_ks_desc desc = { .layout = (danaus_layout)layout, .batch = batch };
    desc.dtype = t->o->dtype ? t->o->dtype : DANAUS_F32;
    desc.effort = DANAUS_MEASURE;
    desc.math = math_of(t->o->accuracy);
    danaus_ks_plan *plan;
    TRY(library(danaus_ks_plan_create(t->device, p->patterns, p->count, &desc, &plan)));
    char problem[4096], text[2048];
    format_patterns(p->patterns, p->count, problem, sizeof problem);
    format_plan(plan, text, sizeof text);
    danaus_ks_plan_destroy(plan);
    json_t *facts = facts_of(
        "problem:t dtype:t layout:t batch:i plan:t", problem,
        danaus_dtype_name(desc.dtype), layout ? "last" : "first", batch, text);
    return take(t, facts, "{problem}, batch {batch} {layout}\n  {plan}\n");
}

static int tune_problem(tuner *t, const suite_problem *p)
{
    counts batches = t->o->batch;
    int status = STATUS_OK;
    if (!batches.count)
        batches = (counts){ 1, { p->batch ? p->batch : 25088 } };
    for (int n = 0; n < batches.count; n++)
        for (int layout = 0; layout < 2 && !status; layout++)
            if (!t->o->layout || t->o->layout == 1 + layout)
                status = tune_product(t, p, layout, batches.value[n]);
    return status;
}

static int tune_conv(tuner *t, const conv_problem *p)
{
    danaus_dtype dtype = t->o->dtype ? t->o->dtype : DANAUS_F32;
    danaus_conv_desc desc = conv_problem_desc(p, dtype, DANAUS_MEASURE);
    danaus_conv_plan *plan;
    char text[256];
    desc.accuracy = (danaus_conv_accuracy)t->o->accuracy;
    TRY(library(danaus_conv_plan_create(t->device, &desc, &plan)));
    danaus_conv_plan_describe(plan, text, sizeof text);
    danaus_conv_plan_destroy(plan);
    text[strcspn(text, "\n")] = '\0';
    json_t *facts = facts_of(
        "kind:t length:i taps:i batch:i channels:i dtype:t plan:t",
        conv_kind_names[p->kind], p->length, p->taps, p->batch, p->channels,
        danaus_dtype_name(dtype), text);
    return take(
        t, facts, "{kind}, {length} by {taps} taps, {batch} x {channels}\n  {plan}\n");
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
static int tune_all(tuner *t, const suite *products, const conv_suite *convs)
{
    int count = products ? products->count : convs->count, status = STATUS_OK;
    int64_t step = t->o->seconds > 0 ? spreading_step(count) : 1;
    double start = seconds_now();
    for (int64_t i = 0; i < count && !status; i++) {
        if (t->o->seconds > 0 && seconds_now() - start > t->o->seconds)
            break;
        progress_count(&t->bar, (int)i, count);
        status = products ? tune_problem(t, &products->problems[i * step % count])
                          : tune_conv(t, &convs->problems[i * step % count]);
    }
    progress_clear(&t->bar);
    return status;
}

static int run(tuner *t, int conv)
{
    suite products = { 0 };
    conv_suite convs = { 0 };
    int status = output_open(&t->output, t->o->output);
    if (!status)
        status = conv ? conv_suite_read(t->o->suite, &convs)
                      : suite_read(t->o->suite, &products);
    status = status ? status : open_device(&t->o->device, &t->device);
    status = status ? status : load_older(t->device, &t->output);
    status =
        status ? status : library(danaus_device_save_tuning(t->device, t->output.path));
    status = status ? status : tune_all(t, conv ? NULL : &products, &convs);
    suite_free(&products);
    conv_suite_free(&convs);
    if (!status && t->o->json)
        status = report_json(json_pack(
            "{s:O, s:o}", "plans", t->plans, "output", json_text(t->o->output)));
    return output_close(&t->output, status);
}

int cmd_tune(int argc, char **argv)
{
    options o = { 0 };
    int operands;
    const arg table[] = {
        { "suite", 0, ARG_INPUT, &o.suite, "FILE",
          "the problems: lines \"a,b,c,d a,b,c,d ...\",batch or\n"
          "kind,length,taps,batch,channels,extras" },
        { "output", 'o', ARG_OUTPUT, &o.output, "FILE", "the table to write" },
        DEVICE_ARGS(o.device),
        { "dtype", 0, ARG_DTYPE, &o.dtype, "TYPE",
          "f32 (default), f64, c64, c128, f16 or bf16" },
        { "layout", 0, ARG_WORD, &o.layout, "both|first|last",
          "products: where x and y have the batch (default\nboth)" },
        { "batch", 0, ARG_COUNTS, &o.batch, "N,N,...",
          "products: batch sizes, in place of the suite's" },
        ACCURACY_ARG(o),
        { "seconds", 0, ARG_REAL, &o.seconds, "S",
          "begin no problem after S seconds; problems from all\n"
          "over the suite come first" },
        { "json", 0, ARG_FLAG, &o.json, NULL, "print the plans as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, &operands));
    const char *what = operands ? argv[1] : "ks";
    int conv = !strcmp(what, "conv");
    if (!conv && strcmp(what, "ks"))
        return usage_error("there is no \"%s\" to tune, only ks and conv", what);
    if (conv)
        TRY(args_refuse("layout,batch", "is for products"));
    if (!o.suite || !o.output)
        return usage_error("--suite FILE and -o FILE are needed (try --help)");
    tuner t = { .o = &o, .plans = json_array() };
    int status = run(&t, conv);
    danaus_device_close(t.device);
    json_decref(t.plans);
    return status;
}
