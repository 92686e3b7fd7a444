/* danaus-bench ks: measures the problems of a suite and prints a record for each. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/program/commands.h"
#include "bench/program/energy.h"
#include "bench/program/gpu_limits.h"
#include "common/open.h"
#include "bench/program/records.h"
#include "common/report.h"
#include "common/output.h"
#include "common/suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const usage use = {
    .synopsis = "--suite bench/suites/NAME.csv [OPTION]...",
    .about =
        "Measures y = W x for every problem, layout and batch size of a suite and\n"
        "prints a record for each: medians of at least 9 samples and 0.2 s of calls\n"
        "after a warm-up, with inputs that rotate through more memory than the last\n"
        "cache (unless --hot).\n\n"
        "The limit is max(operations / peak, bytes / copy rate), with the peak of\n"
        "multiply-adds and the copy rate measured in the same rounds on as many\n"
        "threads; x, y and weights count once. Weights stay in the caches between\n"
        "calls, so small batches may beat the limit in bytes. On a GPU the peak is\n"
        "that of a dense product of 4096 x 4096 by danaus in the same type.\n\n"
        "With --baselines other methods make the same product in the same rounds:\n"
        "dense (one GEMM with the product of the chain), bmm (permute, batched GEMM,\n"
        "permute back), einsum (direct loops), csr and bsr. Their results are\n"
        "compared with ours; a difference that rounding does not explain is a\n"
        "failure.\n",
    .number = { 0, 0 },
    .operands = "no operand",
};

typedef struct options {
    device_options device;
    const char *suite, *methods, *csv;
    danaus_dtype dtype;
    int layout; /* 0: both, else 1 + danaus_layout */
    int effort, accuracy, baselines, energy, hot, json;
    counts batch;
} options;

typedef struct bench {
    const options *o;
    suite suite;
    danaus_device *device;
    team *team;
    machine *machine;
    run_facts run;
    json_t *records;
    int left_out; /* problems that are too large for the memory */
} bench;

/* ---- one record ---- */

static int check_ours(bench_case *c, findings *f)
{
    f->error = bench_case_error(c, &f->seconds);
    if (c->failed)
        return library_failure();
    if (!(f->error <= bench_case_bound(c)))
        return failure(
            "the product is wrong: relative error %.3g, and rounding explains %.3g",
            f->error, bench_case_bound(c));
    return STATUS_OK;
}

static int check_rivals(bench_case *c, const rivals *r, findings *f)
{
    f->permutations = NAN;
    for (int i = 0; i < r->count; i++) {
        const char *name = rival_name(r->list[i]);
        double share = rival_permutations(r->list[i], c);
        f->difference[i] = rival_difference(r->list[i], c, &f->rivals[i].known);
        f->permutations = isnan(share) ? f->permutations : share;
        if (!(f->difference[i] <= 2 * bench_case_bound(c)))
            return failure(
                "%s differs from ours by %.3g, and rounding explains %.3g", name,
                f->difference[i], 2 * bench_case_bound(c));
    }
    return STATUS_OK;
}

static void run_peak_f32(void *m, const void *x, void *y)
{
    (void)x, (void)y;
    machine_run_f32(m);
}

static void run_peak_f64(void *m, const void *x, void *y)
{
    (void)x, (void)y;
    machine_run_f64(m);
}

static void run_copy(void *m, const void *x, void *y)
{
    (void)x, (void)y;
    machine_run_copy(m);
}

static int is_wide(const bench_case *c)
{
    return c->dtype == DANAUS_F64 || c->dtype == DANAUS_C128;
}

/* Times ours, its factors one by one, the baselines and, on processors, the limits in
   the same rounds. */
static int time_all(
    bench *b, bench_case *c, one_by_one *factors, const rivals *r, findings *f)
{
    int wide = is_wide(c), count = 1;
    runner list[MAX_RIVALS + 4] = {
        { .name = "danaus",
          .run = bench_case_run,
          .finish = bench_case_finish,
          .self = c,
          .known = f->seconds },
    };
    if (c->count > 1)
        list[count++] = (runner){ .name = "factors",
                                  .run = one_by_one_run,
                                  .finish = one_by_one_finish,
                                  .self = factors };
    const runner *others = &list[count], *limit = others + r->count;
    for (int i = 0; i < r->count; i++)
        list[count++] = (runner){ .name = rival_name(r->list[i]),
                                  .run = rival_run,
                                  .self = r->list[i],
                                  .known = f->rivals[i].known };
    if (b->machine) {
        list[count++] = (runner){ .name = "peak",
                                  .run = wide ? run_peak_f64 : run_peak_f32,
                                  .self = b->machine };
        list[count++] = (runner){ .name = "copy", .run = run_copy, .self = b->machine };
    }
    if (!measure(list, count, &c->inputs))
        return failure("no memory for times");
    if (c->failed || (c->count > 1 && factors->failed))
        return library_failure();
    f->ours = list[0];
    if (c->count > 1)
        f->factors = list[1];
    memcpy(f->rivals, others, (size_t)r->count * sizeof *others);
    machine_limits work = b->machine ? machine_work(b->machine) : b->run.limits;
    f->peak = (wide ? work.f64 : work.f32) / (b->machine ? limit[0].median : 1);
    f->copy = work.copy / (b->machine ? limit[1].median : 1);
    return STATUS_OK;
}

static int measure_case(bench *b, bench_case *c, rivals *r, json_t **record)
{
    findings f = { .joules = NAN };
    one_by_one factors = { .of = c };
    int status = check_ours(c, &f);
    if (status)
        return status;
    if (b->o->baselines)
        rivals_create(
            c, b->team, b->run.device.instructions,
            is_wide(c) ? b->run.limits.f64 : b->run.limits.f32,
            rivals_set(b->o->methods), r);
    status = check_rivals(c, r, &f);
    if (!status && c->count > 1)
        status = one_by_one_create(c, &factors);
    status = status ? status : time_all(b, c, &factors, r, &f);
    if (c->count > 1)
        one_by_one_destroy(&factors);
    if (!status && b->o->energy)
        status = energy_of(b->device, &f.ours, &c->inputs, &f.joules);
    if (!status && c->failed)
        status = library_failure();
    if (!status)
        *record = record_make(&b->run, c, r, &f);
    return status;
}

/* Inputs, outputs and as much again for baselines are at most half of the memory. */
static int fits(const bench *b, const suite_problem *p, int64_t batch)
{
    danaus_pattern left = p->patterns[0], right = p->patterns[p->count - 1];
    danaus_dtype dtype = b->o->dtype ? b->o->dtype : DANAUS_F32;
    double elements =
        (double)(left.a * left.b * left.d) + (double)(right.a * right.c * right.d);
    double bytes = elements * (double)batch * (double)danaus_dtype_size(dtype);
    return !b->run.device.memory || 4 * bytes <= (double)b->run.device.memory;
}

static int run_case(
    bench *b, const suite_problem *p, danaus_layout layout, int64_t batch)
{
    bench_case c = { .device = b->device, .count = p->count, .layout = layout };
    memcpy(c.patterns, p->patterns, sizeof c.patterns);
    c.dtype = b->o->dtype ? b->o->dtype : DANAUS_F32;
    c.effort = (danaus_effort)b->o->effort;
    c.math = math_of(b->o->accuracy);
    c.batch = batch;
    c.cache = b->o->hot ? 0 : b->run.device.cache;
    rivals r = { 0 };
    json_t *record = NULL;
    int status = bench_case_create(&c);
    status = status ? status : measure_case(b, &c, &r, &record);
    rivals_destroy(&r);
    bench_case_destroy(&c);
    if (status)
        return status;
    if (!b->o->json)
        record_print(record);
    json_array_append_new(b->records, record);
    return b->o->csv ? report_csv(b->records, b->o->csv) : STATUS_OK;
}

/* ---- all of them ---- */

static int run_problem(bench *b, const suite_problem *p)
{
    counts batches = b->o->batch;
    if (!batches.count)
        batches = (counts){ 1, { p->batch ? p->batch : 25088 } };
    int status = STATUS_OK;
    for (int i = 0; i < batches.count; i++) {
        if (!fits(b, p, batches.value[i])) {
            b->left_out++;
            continue;
        }
        for (int layout = 0; layout < 2 && !status; layout++)
            if (!b->o->layout || b->o->layout == 1 + layout)
                status = run_case(b, p, (danaus_layout)layout, batches.value[i]);
    }
    return status;
}

static int measure_limits(bench *b)
{
    const options *o = b->o;
    const danaus_device_info *info = &b->run.device;
    if (info->threads == 0 && o->baselines)
        return usage_error("--baselines run on processors: leave --device out");
    double joules;
    if (o->energy && danaus_device_energy(b->device, &joules))
        return library_failure();
    if (info->threads == 0)
        return gpu_limits(
            b->device, o->dtype ? o->dtype : DANAUS_F32, math_of(o->accuracy),
            &b->run.limits);
    b->team = team_create(info->threads);
    if (b->team)
        b->machine = machine_create(b->team, info->instructions, info->cache);
    if (!b->machine)
        return failure("no memory to measure the machine");
    b->run.limits = *machine_best(b->machine);
    return STATUS_OK;
}

static int prepare(bench *b)
{
    const options *o = b->o;
    output csv = { 0 };
    int status = o->csv ? output_open(&csv, o->csv) : STATUS_OK;
    status = status ? status : suite_read(o->suite, &b->suite);
    status = status ? status : open_device(&o->device, &b->device);
    if (status)
        return status;
    if (danaus_device_describe(b->device, &b->run.device))
        return library_failure();
    status = measure_limits(b);
    if (status)
        return status;
    rivals_describe(b->run.blas, sizeof b->run.blas);
    b->records = json_array();
    return STATUS_OK;
}

static json_t *json_machine(const run_facts *run)
{
    return json_pack(
        "{s:s, s:s, s:i, s:I, s:f, s:f, s:f, s:s}", "device", run->device.description,
        "instructions", run->device.instructions, "threads", run->device.threads,
        "cache", (json_int_t)run->device.cache, "f32_gflops", run->limits.f32 / 1e9,
        "f64_gflops", run->limits.f64 / 1e9, "copy_gbs", run->limits.copy / 1e9, "blas",
        run->blas);
}

static void print_machine(const run_facts *run, int baselines)
{
    printf(
        "%s, %s, %d threads: %.1f GFLOP/s f32, %.1f f64, copies %.1f GB/s\n",
        run->device.description, run->device.instructions, run->device.threads,
        run->limits.f32 / 1e9, run->limits.f64 / 1e9, run->limits.copy / 1e9);
    if (baselines)
        printf("BLAS: %s\n", run->blas);
}

static int run(bench *b)
{
    int status = prepare(b);
    if (status)
        return status;
    if (!b->o->json)
        print_machine(&b->run, b->o->baselines);
    for (int i = 0; i < b->suite.count && !status; i++)
        status = run_problem(b, &b->suite.problems[i]);
    if (status)
        return status;
    json_t *summary = records_summarise(b->records);
    if (!b->o->json) {
        summary_print(summary);
        if (b->left_out)
            printf("left out, too large for this memory: %d\n", b->left_out);
        json_decref(summary);
        return STATUS_OK;
    }
    return report_json(json_pack(
        "{s:o, s:O, s:o, s:i}", "machine", json_machine(&b->run), "records", b->records,
        "summary", summary, "left_out", b->left_out));
}

static void release(bench *b)
{
    json_decref(b->records);
    machine_destroy(b->machine);
    team_destroy(b->team);
    danaus_device_close(b->device);
    suite_free(&b->suite);
}

int bench_ks(int argc, char **argv)
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
        { "batch", 0, ARG_COUNTS, &o.batch, "N,N,...",
          "batch sizes, in place of the suite's" },
        EFFORT_ARG(o),
        ACCURACY_ARG(o),
        { "baselines", 0, ARG_FLAG, &o.baselines, NULL, "measure other methods too" },
        { "methods", 0, ARG_TEXT, &o.methods, "NAME,...",
          "of the baselines these only" },
        { "energy", 0, ARG_FLAG, &o.energy, NULL,
          "measure joules, on GPUs that count them: three\nseconds more a record" },
        { "hot", 0, ARG_FLAG, &o.hot, NULL,
          "use one input only: it stays in the caches" },
        { "csv", 0, ARG_OUTPUT, &o.csv, "FILE", "write the records to a file as well" },
        { "json", 0, ARG_FLAG, &o.json, NULL,
          "print machine, records and summary as JSON" },
        { 0 },
    };
    int status = args_parse(&use, table, argc, argv, &operands);
    if (status != ARGS_GO_ON)
        return status;
    if (!o.suite)
        return usage_error("--suite FILE is needed (try --help)");
    if (o.methods && (!o.baselines || !rivals_set(o.methods)))
        return usage_error(
            "--methods takes names of --baselines: dense, bmm, einsum, csr, bsr");
    bench b = { .o = &o };
    status = run(&b);
    release(&b);
    return status;
}
