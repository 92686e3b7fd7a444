/* danaus bench: how fast products and convolutions of the user's shapes are here. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "common/noise.h"
#include "common/progress.h"
#include "common/room.h"
#include "common/suite.h"

#include <math.h>

#define MOST_DENSE_BYTES   4e9 /* of the dense matrix that is compared with */
#define MOST_DENSE_SECONDS 5.0 /* of one product by it, at our speed */

static const usage use = {
    .synopsis = "[ks|conv] --suite FILE [OPTION]...",
    .about =
        "Measures the products (ks, the default) or convolutions (conv) of a suite:\n"
        "medians of at least 0.2 s of calls after a warm-up, with the same x and y in\n"
        "each call. A line of the file, or of standard input for -, is a problem:\n\n"
        "  echo '\"1,192,48,2 2,48,192,1\",4096' | danaus bench --suite -\n"
        "  echo 'causal,16384,16384,8,64,plain' | danaus bench conv --suite -\n\n"
        "A product has the patterns of a chain and the batch. A convolution has the\n"
        "kind (causal, circular, bidirectional), length, taps, batch and channels,\n"
        "and is plain, gated or sparse. Products are compared with the dense matrix\n"
        "of their size, unless that takes too long.\n",
    .number = { 0, 1 },
    .operands = "\"ks\" or \"conv\"",
    .words = "ks|conv",
};

typedef struct bench {
    device_options where;
    plan_options plan;
    const char *suite, *csv;
    danaus_dtype dtype;
    int layout, json; /* layout: 0 both, else 1 + danaus_layout */
    counts batch;
    danaus_device *device;
    suite products;
    conv_suite convs;
    json_t *records;
    progress bar;
} bench;

/* Noise in the device's memory. */
static int make_operand(
    danaus_device *device, double count, danaus_dtype dtype, void **to)
{
    TRY(fail_if(count > 1e15, "no memory for %.3g numbers", count));
    return library(noise_on_device(device, (int64_t)count, dtype, 0, to));
}

/* ---- records ---- */

#define TIMES "seconds:n p10_seconds:n p90_seconds:n calls:i bytes_per_second:n"

/* Takes a record and prints it as text. */
static int take(bench *b, json_t *record, const char *text)
{
    json_array_append_new(b->records, record);
    progress_clear(&b->bar);
    if (!b->json)
        facts_print(record, text);
    fflush(stdout);
    return b->csv ? report_csv(b->records, b->csv) : STATUS_OK;
}

/* ---- products ---- */

typedef struct product {
    danaus_device *device;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    int64_t batch;
    const void *x;
    void *y;
    double weight_count, flops;
} product;

static danaus_status run_product(void *self)
{
    product *p = self;
    return danaus_ks_execute(p->plan, p->device, p->weights, p->batch, p->x, p->y);
}

static int make_product(
    product *p, const danaus_pattern *patterns, int count, const danaus_ks_desc *desc)
{
    danaus_chain *chain;
    TRY(library(danaus_chain_create(patterns, count, desc->dtype, &chain)));
    danaus_status status = DANAUS_OK;
    for (int f = 0; f < count && !status; f++) {
        danaus_pattern q = patterns[f];
        int64_t numbers = q.a * q.b * q.c * q.d;
        p->weight_count += (double)numbers;
        status = noise_fill(danaus_chain_weights(chain, f), numbers, desc->dtype, 1, 0);
    }
    p->batch = desc->batch;
    p->flops = (is_complex(desc->dtype) ? 8 : 2) * p->weight_count * (double)p->batch;
    if (status || danaus_ks_plan_create(p->device, patterns, count, desc, &p->plan) ||
        danaus_ks_weights_create(p->plan, p->device, chain, &p->weights))
        status = DANAUS_ERR_ARGUMENT;
    danaus_chain_destroy(chain);
    return library(status);
}

static void free_product(product *p)
{
    danaus_ks_weights_destroy(p->weights);
    danaus_ks_plan_destroy(p->plan);
}

/* Seconds of the dense product; NAN where it would take too long. */
static int time_dense(
    const product *ours, const timing *our_time, int64_t rows, int64_t cols,
    const danaus_ks_desc *desc, double *seconds)
{
    product dense = *ours;
    danaus_pattern whole = { 1, rows, cols, 1 };
    timing t = { .median = NAN };
    double entries = (double)rows * (double)cols, share = entries / ours->weight_count;
    *seconds = NAN;
    if (entries * (double)danaus_dtype_size(desc->dtype) > MOST_DENSE_BYTES ||
        share * our_time->median > MOST_DENSE_SECONDS)
        return STATUS_OK;
    dense.plan = NULL;
    dense.weights = NULL;
    dense.weight_count = 0;
    int status = make_product(&dense, &whole, 1, desc);
    status = status ? status : measure_calls(dense.device, 0, run_product, &dense, &t);
    free_product(&dense);
    *seconds = t.median;
    return status;
}

static int report_product(
    bench *b, const suite_problem *p, const danaus_ks_desc *desc, const product *ours,
    const timing *t, double bytes, double dense)
{
    char problem[4096], plan[2048];
    format_patterns(p->patterns, p->count, problem, sizeof problem);
    format_plan(ours->plan, plan, sizeof plan);
    json_t *record = facts_of(
        "problem:t dtype:t layout:t batch:i " TIMES
        " flops_per_second:n dense_seconds:n speedup:n plan:t",
        problem, danaus_dtype_name(desc->dtype), desc->layout ? "last" : "first",
        desc->batch, t->median, t->p10, t->p90, t->calls, bytes / t->median,
        ours->flops / t->median, dense, dense / t->median, plan);
    return take(
        b, record,
        "{problem:-28.60} {layout:-5} {batch:6}  {seconds:9.3g} s  "
        "{flops_per_second*1e-9:8.1f} GFLOP/s"
        "[  dense {dense_seconds:9.3g} s, {speedup:.2f} times as long]\n");
}

static int bench_product(
    bench *b, const suite_problem *p, danaus_layout layout, int64_t batch)
{
    danaus_ks_desc desc = { .layout = layout, .batch = batch };
    desc.dtype = b->dtype ? b->dtype : DANAUS_F32;
    desc.effort = (danaus_effort)b->plan.effort;
    desc.math = math_of(b->plan.accuracy);
    danaus_pattern left = p->patterns[0], right = p->patterns[p->count - 1];
    int64_t rows = left.a * left.b * left.d, cols = right.a * right.c * right.d;
    double n = (double)batch, dense = NAN;
    product ours = { .device = b->device };
    timing t;
    void *x = NULL, *y = NULL;
    int status = make_operand(b->device, n * (double)cols, desc.dtype, &x);
    status =
        status ? status : make_operand(b->device, n * (double)rows, desc.dtype, &y);
    ours.x = x;
    ours.y = y;
    status = status ? status : make_product(&ours, p->patterns, p->count, &desc);
    status = status ? status : measure_calls(b->device, 0, run_product, &ours, &t);
    status = status ? status : time_dense(&ours, &t, rows, cols, &desc, &dense);
    double numbers = n * (double)(rows + cols) + ours.weight_count;
    if (!status)
        status = report_product(
            b, p, &desc, &ours, &t, numbers * (double)danaus_dtype_size(desc.dtype),
            dense);
    free_product(&ours);
    danaus_free(b->device, x);
    danaus_free(b->device, y);
    return status;
}

static int bench_products(bench *b, const suite_problem *p)
{
    counts batches = b->batch;
    int status = STATUS_OK;
    if (!batches.count)
        batches = (counts){ 1, { p->batch ? p->batch : 25088 } };
    for (int n = 0; n < batches.count; n++)
        for (int layout = 0; layout < 2 && !status; layout++)
            if (!b->layout || b->layout == 1 + layout)
                status = bench_product(b, p, (danaus_layout)layout, batches.value[n]);
    return status;
}

/* ---- convolutions ---- */

typedef struct convolution {
    danaus_device *device;
    danaus_conv_plan *plan;
    danaus_spectrum *spectrum;
    int64_t batch;
    void *u, *y, *gates[2];
} convolution;

static danaus_status run_convolution(void *self)
{
    convolution *c = self;
    return danaus_conv_execute(
        c->plan, c->device, c->spectrum, c->batch, c->u, c->gates[0], c->gates[1],
        c->y);
}

/* Filters of noise, in the type of sums; backwards the same ones. */
static int make_filters(convolution *c, const danaus_conv_desc *desc, int gated)
{
    danaus_dtype sums = danaus_dtype_size(desc->dtype) == 2 ? DANAUS_F32 : desc->dtype;
    void *k = room_make(
        desc->channels, desc->filter_length, danaus_dtype_size(sums), "filters");
    if (!k)
        return STATUS_FAILURE;
    int64_t taps = desc->channels * desc->filter_length;
    const void *back = desc->kind == DANAUS_BIDIRECTIONAL ? k : NULL;
    int failed = noise_fill(k, taps, sums, 1, 0) ||
                 danaus_conv_plan_create(c->device, desc, &c->plan) ||
                 danaus_spectrum_create(
                     c->plan, c->device, k, back, gated ? k : NULL, &c->spectrum);
    free(k);
    return library(failed);
}

static int report_convolution(
    bench *b, const conv_problem *p, const convolution *c, danaus_dtype dtype,
    const timing *t, double bytes)
{
    char plan[1024];
    danaus_conv_plan_describe(c->plan, plan, sizeof plan);
    plan[strcspn(plan, "\n")] = '\0';
    json_t *record = facts_of(
        "kind:t length:i taps:i batch:i channels:i extras:t dtype:t " TIMES " plan:t",
        conv_kind_names[p->kind], p->length, p->taps, p->batch, p->channels,
        conv_extras_name(p), danaus_dtype_name(dtype), t->median, t->p10, t->p90,
        t->calls, bytes / t->median, plan);
    return take(
        b, record,
        "{kind:-13} {extras:-6} {length:9} {taps:9} {batch:4} x {channels:-5}  "
        "{seconds:9.3g} s  {bytes_per_second*1e-9:7.1f} GB/s\n");
}

static int bench_convolution(bench *b, const conv_problem *p)
{
    danaus_dtype dtype = b->dtype ? b->dtype : DANAUS_F32;
    danaus_conv_desc desc = conv_problem_desc(p, dtype, (danaus_effort)b->plan.effort);
    desc.accuracy = (danaus_conv_accuracy)b->plan.accuracy;
    convolution c = { .device = b->device, .batch = p->batch };
    double numbers = (double)p->batch * (double)p->channels * (double)p->length;
    void **memory[] = { &c.u, &c.y, &c.gates[0], &c.gates[1] };
    int arrays = p->gated ? 4 : 2, status = make_filters(&c, &desc, p->gated);
    for (int i = 0; i < arrays && !status; i++)
        status = make_operand(b->device, numbers, dtype, memory[i]);
    timing t;
    status = status ? status : measure_calls(b->device, 0, run_convolution, &c, &t);
    if (!status)
        status = report_convolution(
            b, p, &c, dtype, &t, arrays * numbers * (double)danaus_dtype_size(dtype));
    danaus_spectrum_destroy(c.spectrum);
    danaus_conv_plan_destroy(c.plan);
    for (int i = 0; i < 4; i++)
        danaus_free(b->device, *memory[i]);
    return status;
}

/* ---- all of them ---- */

static int bench_all(bench *b, int conv)
{
    int count = conv ? b->convs.count : b->products.count, status = STATUS_OK;
    for (int i = 0; i < count && !status; i++) {
        progress_count(&b->bar, i, count);
        status = conv ? bench_convolution(b, &b->convs.problems[i])
                      : bench_products(b, &b->products.problems[i]);
    }
    progress_clear(&b->bar);
    return status;
}

static int run(bench *b, int conv)
{
    danaus_device_info info;
    output csv = { 0 };
    if (b->csv && !strcmp(b->csv, "-"))
        return usage_error("--csv names a file; --json is for standard output");
    TRY(output_maybe(&csv, b->csv));
    TRY(conv ? conv_suite_read(b->suite, &b->convs)
             : suite_read(b->suite, &b->products));
    TRY(open_device(&b->where, &b->device));
    TRY(bench_all(b, conv));
    TRY(library(danaus_device_describe(b->device, &info)));
    if (!b->json)
        return STATUS_OK;
    return report_json(facts_of(
        "device:t instructions:t threads:d records:o", info.description,
        info.instructions, info.threads, json_incref(b->records)));
}

int cmd_bench(int argc, char **argv)
{
    bench b = { 0 };
    int operands;
    const arg table[] = {
        { "suite", 0, ARG_INPUT, &b.suite, "FILE", "the problems" },
        DEVICE_ARGS(b.where),
        { "dtype", 0, ARG_DTYPE, &b.dtype, "TYPE",
          "f32 (default), f64, c64, c128, f16 or bf16" },
        { "layout", 0, ARG_WORD, &b.layout, "both|first|last",
          "products: the batch axis of x and y (default both)" },
        { "batch", 0, ARG_COUNTS, &b.batch, "N,N,...",
          "products: batch sizes, in place of the suite's" },
        EFFORT_ARG(b.plan),
        ACCURACY_ARG(b.plan),
        { "csv", 0, ARG_OUTPUT, &b.csv, "FILE",
          "also write the records to a file, after each one" },
        { "json", 0, ARG_FLAG, &b.json, NULL, "print the records as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, &operands));
    int conv = operands ? args_word(use.words, argv[1]) : 0;
    if (conv < 0)
        return usage_error("there is no \"%s\" to measure, only ks and conv", argv[1]);
    if (conv)
        TRY(args_refuse("layout,batch", "is for products"));
    TRY(refuse_if(!b.suite, "--suite FILE is needed (try --help)"));
    b.records = json_array();
    int status = run(&b, conv);
    suite_free(&b.products);
    conv_suite_free(&b.convs);
    danaus_device_close(b.device);
    json_decref(b.records);
    return status;
}
