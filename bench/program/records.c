/* Records of a benchmark. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/program/records.h"

#include "bench/program/origin.h"
#include "common/report.h"
#include "common/timing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE_BATCH 196 /* from here on products are not bound by their start */

static void set(json_t *o, const char *key, json_t *value)
{
    json_object_set_new(o, key, value);
}

static json_t *json_ns(const runner *one)
{
    return one->runs ? json_real(one->median * 1e9) : json_null();
}

/* ---- one record ---- */

static void set_problem(json_t *o, const bench_case *c)
{
    char problem[4096], plan[2048];
    format_patterns(c->patterns, c->count, problem, sizeof problem);
    format_plan(c->plan, plan, sizeof plan);
    set(o, "operation", json_string("ks"));
    set(o, "problem", json_string(problem));
    set(o, "dtype", json_string(danaus_dtype_name(c->dtype)));
    set(o, "layout", json_string(c->layout == DANAUS_BATCH_LAST ? "last" : "first"));
    set(o, "batch", json_integer((json_int_t)c->batch));
    set(o, "kernel", json_string(plan));
}

static void set_times(json_t *o, const bench_case *c, const findings *f)
{
    double flops = bench_case_flops(c), bytes = bench_case_bytes(c);
    double compute = flops / f->peak, memory = bytes / f->copy;
    double limit = compute > memory ? compute : memory, median = f->ours.median;
    set(o, "runs", json_integer(f->ours.runs));
    set(o, "median_ns", json_real(median * 1e9));
    set(o, "p10_ns", json_real(f->ours.p10 * 1e9));
    set(o, "p90_ns", json_real(f->ours.p90 * 1e9));
    set(o, "gflops", json_real(flops / median / 1e9));
    set(o, "gbs", json_real(bytes / median / 1e9));
    set(o, "error", json_number(f->error));
    set(o, "peak_gflops", json_real(f->peak / 1e9));
    set(o, "copy_gbs", json_real(f->copy / 1e9));
    set(o, "bound", json_string(compute > memory ? "flops" : "bytes"));
    set(o, "limit_ns", json_real(limit * 1e9));
    set(o, "ratio", json_real(median / limit));
    set(o, "factors_ns", json_ns(&f->factors));
}

static void set_rivals(json_t *o, const rivals *r, const findings *f)
{
    int best = -1;
    double difference = 0;
    for (int known = 0; known < rivals_known(); known++) {
        char key[64];
        snprintf(key, sizeof key, "%s_ns", rivals_name(known));
        set(o, key, json_null());
    }
    for (int i = 0; i < r->count; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s_ns", f->rivals[i].name);
        set(o, key, json_ns(&f->rivals[i]));
        if (best < 0 || f->rivals[i].median < f->rivals[best].median)
            best = i;
        difference = fmax(difference, f->difference[i]);
    }
    double none = NAN, seconds = best < 0 ? none : f->rivals[best].median;
    set(o, "bmm_permutations", json_number(f->permutations));
    set(o, "best", best < 0 ? json_null() : json_string(f->rivals[best].name));
    set(o, "best_ns", json_number(seconds * 1e9));
    set(o, "speedup", json_number(seconds / f->ours.median));
    set(o, "difference", json_number(best < 0 ? none : difference));
}

json_t *record_make(
    const run_facts *run, const bench_case *c, const rivals *r, const findings *f)
{
    json_t *o = origin_of(&run->device);
    set_problem(o, c);
    set_times(o, c, f);
    set_rivals(o, r, f);
    set(o, "joules", json_number(f->joules));
    return o;
}

/* ---- to people ---- */

static double real(const json_t *record, const char *key)
{
    const json_t *value = json_object_get(record, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static const char *string(const json_t *record, const char *key)
{
    const char *text = json_string_value(json_object_get(record, key));
    return text ? text : "";
}

static void format_time(double ns, char *text, size_t size)
{
    if (ns < 1e4)
        snprintf(text, size, "%.0f ns", ns);
    else if (ns < 1e7)
        snprintf(text, size, "%.1f us", ns / 1e3);
    else
        snprintf(text, size, "%.1f ms", ns / 1e6);
}

void record_print(const json_t *record)
{
    char ours[32], best[32];
    format_time(real(record, "median_ns"), ours, sizeof ours);
    printf(
        "%-28.60s %-5s %6.0f  %10s  %6.1f GFLOP/s  %5.1f GB/s  %5.2f x limit",
        string(record, "problem"), string(record, "layout"), real(record, "batch"),
        ours, real(record, "gflops"), real(record, "gbs"), real(record, "ratio"));
    if (!isnan(real(record, "best_ns"))) {
        format_time(real(record, "best_ns"), best, sizeof best);
        printf(
            "  %6s %10s: %.2f x", string(record, "best"), best,
            real(record, "speedup"));
    }
    if (!isnan(real(record, "factors_ns")))
        printf(
            "  %.2f of its factors",
            real(record, "median_ns") / real(record, "factors_ns"));
    if (!isnan(real(record, "joules")))
        printf("  %.3g mJ", 1e3 * real(record, "joules"));
    putchar('\n');
    fflush(stdout);
}

/* ---- all of them ---- */

/* Least, median, 90th percentile and greatest of a key over the records of large
   or of small batches; null when no record has it. */
static json_t *spread(const json_t *records, const char *key, int large)
{
    size_t count = json_array_size(records), found = 0;
    double *values = malloc((count + 1) * sizeof *values);
    for (size_t i = 0; values && i < count; i++) {
        const json_t *record = json_array_get(records, i);
        double value = real(record, key);
        if ((real(record, "batch") >= LARGE_BATCH) == large && !isnan(value))
            values[found++] = value;
    }
    json_t *result = json_null();
    if (found) {
        sort_numbers(values, found);
        result = json_pack(
            "{s:I, s:f, s:f, s:f, s:f}", "records", (json_int_t)found, "least",
            values[0], "median", values[found / 2], "p90", values[found * 9 / 10],
            "greatest", values[found - 1]);
    }
    free(values);
    return result;
}

json_t *records_summarise(const json_t *records)
{
    return json_pack(
        "{s:{s:o, s:o}, s:{s:o, s:o}}", "large_batch", "ratio",
        spread(records, "ratio", 1), "speedup", spread(records, "speedup", 1),
        "small_batch", "ratio", spread(records, "ratio", 0), "speedup",
        spread(records, "speedup", 0));
}

static void print_spread(const json_t *group, const char *key, const char *words)
{
    const json_t *s = json_object_get(group, key);
    if (json_is_object(s))
        printf(
            "  %s: least %.2f, median %.2f, 90th percentile %.2f, greatest %.2f "
            "(%.0f records)\n",
            words, real(s, "least"), real(s, "median"), real(s, "p90"),
            real(s, "greatest"), real(s, "records"));
}

void summary_print(const json_t *summary)
{
    static const char *const groups[] = { "large_batch", "small_batch" };
    static const char *const titles[] = { "batch of at least 196", "smaller batch" };
    for (int g = 0; g < 2; g++) {
        const json_t *group = json_object_get(summary, groups[g]);
        if (!json_is_object(json_object_get(group, "ratio")))
            continue;
        printf("%s\n", titles[g]);
        print_spread(group, "ratio", "time over limit");
        print_spread(group, "speedup", "speed over the best baseline");
    }
}
