/* danaus-bench calls: how long the first call of a problem takes, with and without
   compiled kernels on the disk, and what later calls cost the processor. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/program/commands.h"

#include "bench/program/origin.h"
#include "bench/program/records.h"
#include "common/open.h"
#include "common/report.h"
#include "common/output.h"
#include "common/suite.h"
#include "common/timing.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS      15
#define CALLS       50 /* of a round: fewer launches than a GPU's queue takes */
#define SMALL_BATCH 16 /* of which the GPU makes short work */

static const usage use = {
    .synopsis = "--suite bench/suites/NAME.csv --device cuda:0 [OPTION]...",
    .about =
        "For every problem of a suite, on a GPU: the time from planning to the end\n"
        "of the first product, on a device that is open, weights packed meanwhile,\n"
        "with an empty cache folder (where DANAUS_KERNELS names files of kernels,\n"
        "out of those) and once more with what that has left in it; and the time of\n"
        "the processor that a later call takes until it returns, the median of\n"
        "rounds of 50 calls with 16 columns. With --gradients calls give the\n"
        "gradients of x, of the weights and of the bias.\n",
    .number = { 0, 0 },
    .operands = "no operand",
};

typedef struct options {
    device_options device;
    const char *suite, *csv;
    danaus_dtype dtype;
    int layout; /* 0: both, else 1 + danaus_layout */
    int accuracy, gradients, json;
    int64_t batch;
} options;

/* Everything that a call needs, on a device of its own. */
typedef struct caller {
    danaus_device *device;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    void *x, *y, *dx, *dbias, *dw[DANAUS_MAX_FACTORS];
    danaus_ks_gradients gradients;
} caller;

typedef struct bench {
    const options *o;
    suite suite;
    danaus_device_info info;
    char folder[1024]; /* caches */
    json_t *records;
} bench;

typedef struct question {
    const suite_problem *p;
    danaus_chain *chain;
    danaus_ks_desc desc;
} question;

/* ---- calls ---- */

static size_t bytes_of(const question *q, int64_t elements)
{
    return (size_t)elements * danaus_dtype_size(q->desc.dtype);
}

static int open_memory(const question *q, caller *c)
{
    int64_t rows = danaus_chain_rows(q->chain), cols = danaus_chain_cols(q->chain);
    int failed = danaus_alloc(c->device, bytes_of(q, cols * q->desc.batch), &c->x) ||
                 danaus_alloc(c->device, bytes_of(q, rows * q->desc.batch), &c->y);
    if (!failed && q->desc.gradients)
        failed = danaus_alloc(c->device, bytes_of(q, cols * q->desc.batch), &c->dx) ||
                 danaus_alloc(c->device, 16 * (size_t)rows, &c->dbias);
    for (int f = 0; f < q->p->count && q->desc.gradients && !failed; f++) {
        danaus_pattern p = q->p->patterns[f];
        size_t bytes = 16 * (size_t)(p.a * p.b * p.c * p.d);
        failed = danaus_alloc(c->device, bytes, &c->dw[f]) != DANAUS_OK;
    }
    c->gradients = (danaus_ks_gradients){ .dx = c->dx, .dw = c->dw, .dbias = c->dbias };
    return failed ? library_failure() : STATUS_OK;
}

static void close_caller(caller *c)
{
    danaus_ks_weights_destroy(c->weights);
    danaus_ks_plan_destroy(c->plan);
    void *memory[] = { c->x, c->y, c->dx, c->dbias };
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        danaus_free(c->device, memory[i]);
    for (int f = 0; f < DANAUS_MAX_FACTORS; f++)
        danaus_free(c->device, c->dw[f]);
    danaus_device_close(c->device);
}

static danaus_status call(const question *q, caller *c, int64_t batch)
{
    return q->desc.gradients
               ? danaus_ks_gradient(
                     c->plan, c->device, c->weights, batch, c->x, c->y, &c->gradients)
               : danaus_ks_execute(c->plan, c->device, c->weights, batch, c->x, c->y);
}

/* Opens c; the caller closes it whatever comes. */
static int first_call(const bench *b, const question *q, caller *c, double *seconds)
{
    int status = open_device(&b->o->device, &c->device);
    status = status ? status : open_memory(q, c);
    if (status)
        return status;
    double start = seconds_now();
    if (danaus_ks_plan_create(
            c->device, q->p->patterns, q->p->count, &q->desc, &c->plan) ||
        danaus_ks_weights_create(c->plan, c->device, q->chain, &c->weights) ||
        call(q, c, q->desc.batch) || danaus_device_sync(c->device))
        return library_failure();
    *seconds = seconds_now() - start;
    return STATUS_OK;
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The first round warms up. */
static int later_calls(const question *q, caller *c, double *seconds)
{
    double times[ROUNDS + 1];
    int64_t batch = q->desc.batch < SMALL_BATCH ? q->desc.batch : SMALL_BATCH;
    for (int round = 0; round <= ROUNDS; round++) {
        double start = processor_seconds();
        for (int i = 0; i < CALLS; i++)
            if (call(q, c, batch))
                return library_failure();
        times[round] = (processor_seconds() - start) / CALLS;
        if (danaus_device_sync(c->device))
            return library_failure();
    }
    sort_numbers(times + 1, ROUNDS);
    *seconds = times[1 + ROUNDS / 2];
    return STATUS_OK;
}

/* ---- records ---- */

static json_t *make_record(
    const bench *b, const question *q, const caller *c, const double seconds[3])
{
    char problem[4096], plan[2048];
    format_patterns(q->p->patterns, q->p->count, problem, sizeof problem);
    danaus_ks_plan_describe(c->plan, plan, sizeof plan);
    plan[strcspn(plan, "\n")] = '\0';
    json_t *record = origin_of(&b->info);
    json_t *found = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:f, s:f, s:f}", "operation",
        q->desc.gradients ? "gradient" : "ks", "problem", problem, "dtype",
        danaus_dtype_name(q->desc.dtype), "math", q->desc.math ? "tf32" : "f32",
        "layout", q->desc.layout == DANAUS_BATCH_LAST ? "last" : "first", "batch",
        (json_int_t)q->desc.batch, "kernel", plan, "first_ns", 1e9 * seconds[0],
        "cached_ns", 1e9 * seconds[1], "call_cpu_ns", 1e9 * seconds[2]);
    json_object_update(record, found);
    json_decref(found);
    return record;
}

static double number(const json_t *record, const char *key)
{
    return json_number_value(json_object_get(record, key));
}

static void print_record(const json_t *record)
{
    printf(
        "%-28.60s %-5s %-5s  first %7.1f ms  cached %6.1f ms  later %6.2f us\n",
        json_string_value(json_object_get(record, "problem")),
        json_string_value(json_object_get(record, "dtype")),
        json_string_value(json_object_get(record, "layout")),
        number(record, "first_ns") / 1e6, number(record, "cached_ns") / 1e6,
        number(record, "call_cpu_ns") / 1e3);
    fflush(stdout);
}

/* With a cache folder of its own. */
static int run_question(bench *b, const question *q)
{
    char cache[sizeof b->folder + 16];
    snprintf(cache, sizeof cache, "%s/%d", b->folder, (int)json_array_size(b->records));
    if (setenv("DANAUS_CACHE", cache, 1))
        return failure("cannot name a cache folder");
    double seconds[3];
    int status = STATUS_OK;
    for (int cached = 0; cached < 2 && !status; cached++) {
        caller c = { 0 };
        status = first_call(b, q, &c, &seconds[cached]);
        if (!status && cached)
            status = later_calls(q, &c, &seconds[2]);
        if (!status && cached) {
            json_t *record = make_record(b, q, &c, seconds);
            if (!b->o->json)
                print_record(record);
            json_array_append_new(b->records, record);
            status = b->o->csv ? report_csv(b->records, b->o->csv) : STATUS_OK;
        }
        close_caller(&c);
    }
    return status;
}

static int run_problem(bench *b, const suite_problem *p)
{
    const options *o = b->o;
    int status = STATUS_OK;
    question q = { .p = p };
    q.desc.dtype = o->dtype ? o->dtype : DANAUS_F32;
    q.desc.math = math_of(o->accuracy);
    q.desc.gradients = o->gradients;
    q.desc.batch = o->batch ? o->batch : p->batch ? p->batch : 25088;
    if (danaus_chain_create(p->patterns, p->count, q.desc.dtype, &q.chain))
        return library_failure();
    for (int layout = 0; layout < 2 && !status; layout++) {
        q.desc.layout = (danaus_layout)layout;
        if (!o->layout || o->layout == 1 + layout)
            status = run_question(b, &q);
    }
    danaus_chain_destroy(q.chain);
    return status;
}

/* ---- all of them ---- */

static double spread(const json_t *records, const char *key, double *greatest)
{
    size_t count = json_array_size(records);
    double *values = malloc((count + 1) * sizeof *values), middle = 0;
    for (size_t i = 0; values && i < count; i++)
        values[i] = number(json_array_get(records, i), key);
    *greatest = 0;
    if (values && count) {
        sort_numbers(values, count);
        middle = values[count / 2];
        *greatest = values[count - 1];
    }
    free(values);
    return middle;
}

static void print_summary(const json_t *records)
{
    static const struct {
        const char *key, *words, *unit;
        double scale;
    } lines[] = { { "first_ns", "first call", "ms", 1e6 },
                  { "cached_ns", "first call, kernels from the disk", "ms", 1e6 },
                  { "call_cpu_ns", "later call, of the processor", "us", 1e3 } };
    for (int i = 0; i < 3; i++) {
        double greatest, middle = spread(records, lines[i].key, &greatest);
        printf(
            "%s: median %.2f %s, greatest %.2f\n", lines[i].words,
            middle / lines[i].scale, lines[i].unit, greatest / lines[i].scale);
    }
}

/* A device that stayed open would keep loaded what first calls are to load. */
static int describe_device(bench *b)
{
    danaus_device *device = NULL;
    int status = open_device(&b->o->device, &device);
    if (!status && danaus_device_describe(device, &b->info))
        status = library_failure();
    danaus_device_close(device);
    return status;
}

static int prepare(bench *b)
{
    const options *o = b->o;
    /* The driver's cache of its own, which serves NVRTC too, before it is opened. */
    if (setenv("CUDA_CACHE_DISABLE", "1", 1))
        return failure("no memory");
    output csv = { 0 };
    int status = o->csv ? output_open(&csv, o->csv) : STATUS_OK;
    status = status ? status : suite_read(o->suite, &b->suite);
    status = status ? status : describe_device(b);
    if (status)
        return status;
    if (b->info.threads)
        return usage_error("processors compile nothing: --device cuda:0 is needed");
    const char *place = getenv("TMPDIR");
    snprintf(
        b->folder, sizeof b->folder, "%s/danaus-calls-XXXXXX", place ? place : "/tmp");
    if (!mkdtemp(b->folder)) {
        status = failure("cannot make %s: %s", b->folder, strerror(errno));
        b->folder[0] = '\0';
        return status;
    }
    b->records = json_array();
    return STATUS_OK;
}

static int run(bench *b)
{
    int status = prepare(b);
    for (int i = 0; i < b->suite.count && !status; i++)
        status = run_problem(b, &b->suite.problems[i]);
    if (status)
        return status;
    if (b->o->json)
        return report_json(json_pack(
            "{s:s, s:O}", "device", b->info.description, "records", b->records));
    print_summary(b->records);
    return STATUS_OK;
}

static int remove_one(
    const char *path, const struct stat *s, int kind, struct FTW *place)
{
    (void)s, (void)kind, (void)place;
    return remove(path);
}

static void release(bench *b)
{
    if (b->folder[0])
        nftw(b->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    json_decref(b->records);
    suite_free(&b->suite);
}

int bench_calls(int argc, char **argv)
{
    options o = { 0 };
    int operands;
    const arg table[] = {
        { "suite", 0, ARG_INPUT, &o.suite, "FILE",
          "the problems: lines \"a,b,c,d a,b,c,d ...\",batch" },
        DEVICE_ARGS(o.device),
        { "dtype", 0, ARG_DTYPE, &o.dtype, "TYPE",
          "f32 (default), f64, c64, c128, f16 or bf16" },
        { "layout", 0, ARG_WORD, &o.layout, "both|first|last",
          "where x and y have the batch (default both)" },
        ACCURACY_ARG(o),
        { "batch", 0, ARG_NUMBER, &o.batch, "N",
          "columns of the first call, in place of the suite's" },
        { "gradients", 0, ARG_FLAG, &o.gradients, NULL,
          "calls are of danaus_ks_gradient()" },
        { "csv", 0, ARG_OUTPUT, &o.csv, "FILE", "write the records to a file as well" },
        { "json", 0, ARG_FLAG, &o.json, NULL, "print device and records as JSON" },
        { 0 },
    };
    int status = args_parse(&use, table, argc, argv, &operands);
    if (status != ARGS_GO_ON)
        return status;
    if (!o.suite)
        return usage_error("--suite FILE is needed (try --help)");
    bench b = { .o = &o };
    status = run(&b);
    release(&b);
    return status;
}
