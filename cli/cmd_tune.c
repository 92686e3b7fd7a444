/* danaus tune: measures every kernel, or every good cut of convolutions, on the problems
   of a suite and writes the choices to a table. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "common/progress.h"
#include "common/suite.h"

static const usage use = {
    .synopsis = "[ks|conv] --suite FILE -o TABLE.csv [OPTION]...",
    .about =
        "Plans every problem of a suite with all kernels measured and writes a table\n"
        "of the choices, for products (ks, the default) or convolutions (conv). For\n"
        "convolutions it measures the cuts that are best by the cost model. The\n"
        "table is saved after each problem. Other rows of it, and those of a\n"
        "table given with --tuning, are kept. Give it to the other commands with\n"
        "--tuning. Rows of other machines have no effect.\n",
    .number = { 0, 1 },
    .operands = "\"ks\" or \"conv\"",
    .words = "ks|conv",
};

typedef struct tuner {
    device_options where;
    const char *suite;
    danaus_dtype dtype;
    int layout, accuracy, json; /* layout: 0 both, else 1 + danaus_layout */
    double seconds;             /* 0: until all is measured */
    counts batch;
    danaus_device *device;
    suite products;
    conv_suite convs;
    output output;
    json_t *plans;
    progress bar;
} tuner;

/* Saves the table while it grows, so that little is lost with the program; a stream has it once,
   at the end. */
static int save(const tuner *t, int done)
{
    if (t->output.replaced == done)
        return STATUS_OK;
    return library(danaus_device_save_tuning(t->device, t->output.path));
}

/* Takes a plan that was measured: its row is in the device's table. */
static int take(tuner *t, json_t *plan, const char *text)
{
    json_array_append_new(t->plans, plan);
    progress_clear(&t->bar);
    if (!t->json && !output_is_standard(&t->output))
        facts_print(plan, text);
    fflush(stdout);
    return save(t, 0);
}

static int tune_product(tuner *t, const suite_problem *p, int layout, int64_t batch)
{
    danaus_ks_desc desc = { .layout = (danaus_layout)layout, .batch = batch };
    desc.dtype = t->dtype ? t->dtype : DANAUS_F32;
    desc.effort = DANAUS_MEASURE;
    desc.math = math_of(t->accuracy);
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
    counts batches = t->batch;
    int status = STATUS_OK;
    if (!batches.count)
        batches = (counts){ 1, { p->batch ? p->batch : 25088 } };
    for (int n = 0; n < batches.count; n++)
        for (int layout = 0; layout < 2 && !status; layout++)
            if (!t->layout || t->layout == 1 + layout)
                status = tune_product(t, p, layout, batches.value[n]);
    return status;
}

static int tune_conv(tuner *t, const conv_problem *p)
{
    danaus_dtype dtype = t->dtype ? t->dtype : DANAUS_F32;
    danaus_conv_desc desc = conv_problem_desc(p, dtype, DANAUS_MEASURE);
    danaus_conv_plan *plan;
    char text[256];
    desc.accuracy = (danaus_conv_accuracy)t->accuracy;
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

/* Tunes all problems. If time is short, the first ones come from all over the suite. */
static int tune_all(tuner *t, int conv)
{
    int count = conv ? t->convs.count : t->products.count, status = STATUS_OK;
    int64_t step = t->seconds > 0 ? spreading_step(count) : 1;
    double start = seconds_now();
    for (int64_t i = 0; i < count && !status; i++) {
        if (t->seconds > 0 && seconds_now() - start > t->seconds)
            break;
        progress_count(&t->bar, (int)i, count);
        status = conv ? tune_conv(t, &t->convs.problems[i * step % count])
                      : tune_problem(t, &t->products.problems[i * step % count]);
    }
    progress_clear(&t->bar);
    return status;
}

static int run(tuner *t, int conv)
{
    TRY(output_open(&t->output, t->output.name));
    TRY(conv ? conv_suite_read(t->suite, &t->convs)
             : suite_read(t->suite, &t->products));
    TRY(open_device(&t->where, &t->device));
    TRY(load_older(t->device, &t->output));
    TRY(save(t, 0));
    TRY(tune_all(t, conv));
    TRY(save(t, 1));
    if (!t->json)
        return STATUS_OK;
    return report_json(
        facts_of("plans:o output:t", json_incref(t->plans), t->output.name));
}

int cmd_tune(int argc, char **argv)
{
    tuner t = { 0 };
    int operands;
    const arg table[] = {
        { "suite", 0, ARG_INPUT, &t.suite, "FILE",
          "the problems: lines \"a,b,c,d a,b,c,d ...\",batch or\n"
          "kind,length,taps,batch,channels,extras" },
        { "output", 'o', ARG_OUTPUT, &t.output.name, "FILE", "the table to write" },
        DEVICE_ARGS(t.where),
        { "dtype", 0, ARG_DTYPE, &t.dtype, "TYPE",
          "f32 (default), f64, c64, c128, f16 or bf16" },
        { "layout", 0, ARG_WORD, &t.layout, "both|first|last",
          "products: the batch axis of x and y (default both)" },
        { "batch", 0, ARG_COUNTS, &t.batch, "N,N,...",
          "products: batch sizes, in place of the suite's" },
        ACCURACY_ARG(t),
        { "seconds", 0, ARG_REAL, &t.seconds, "S",
          "begin no problem after S seconds; problems from all\n"
          "over the suite come first" },
        { "json", 0, ARG_FLAG, &t.json, NULL, "print the plans as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, &operands));
    int conv = operands ? args_word(use.words, argv[1]) : 0;
    TRY(refuse_if(conv < 0, "there is no \"%s\" to tune, only ks and conv", argv[1]));
    if (conv)
        TRY(args_refuse("layout,batch", "is for products"));
    if (!t.suite || !t.output.name)
        return usage_error("--suite FILE and -o FILE are needed (try --help)");
    t.plans = json_array();
    int status = run(&t, conv);
    suite_free(&t.products);
    conv_suite_free(&t.convs);
    danaus_device_close(t.device);
    json_decref(t.plans);
    return status;
}
