/* danaus info: what this machine offers. */
// SPDX-License-Identifier: Apache-2.0
#include "common/args.h"
#include "cli/commands.h"
#include "common/open.h"
#include "common/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const usage use = {
    .command = "danaus info",
    .synopsis = "[--device NAME] [--conv N [OPTION]...] [--json]",
    .about =
        "Prints the devices of this machine (or the one named) with their\n"
        "instruction sets, caches and threads, and the kernels that products can use\n"
        "on each. With --conv N it says how a causal convolution of rows of N\n"
        "numbers would run: windows, radices, passes, and the seconds that a row is\n"
        "expected to take; the terms of the cost model, its constants measured by\n"
        "danaus calibrate (with --tuning) or built in; and what else could be done.\n",
    .least = 0,
    .most = 0,
    .operands = "nothing",
};

static json_t *json_device(const danaus_device *device, const danaus_device_info *info)
{
    json_t *kernels = json_array(), *operations = json_array();
    for (int i = 0; danaus_device_kernel(device, i); i++) {
        json_array_append_new(kernels, json_string(danaus_device_kernel(device, i)));
        json_array_append_new(
            operations, json_string(danaus_device_operation(device, i)));
    }
    return json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:i, s:o, s:o}", "name", info->name, "description",
        info->description, "instructions", info->instructions, "memory",
        (json_int_t)info->memory, "cache", (json_int_t)info->cache, "threads",
        info->threads, "kernels", kernels, "operations", operations);
}

static int are_same(const danaus_device *device, int i, int j)
{
    return !strcmp(
        danaus_device_operation(device, i), danaus_device_operation(device, j));
}

/* Operation by operation, in the order in which they first come. */
static void print_kernels(const danaus_device *device, int count)
{
    for (int i = 0; i < count; i++) {
        int seen = 0;
        for (int j = 0; j < i; j++)
            seen |= are_same(device, i, j);
        if (!seen)
            printf("    %s\n", danaus_device_operation(device, i));
        for (int j = i; j < count && !seen; j++)
            if (are_same(device, i, j))
                printf("      %s\n", danaus_device_kernel(device, j));
    }
}

static void print_device(const danaus_device *device, const danaus_device_info *info)
{
    printf("%-13s %s\n", info->name, info->description);
    printf("  %-12s%s\n", "danaus", danaus_version());
    printf("  %-11s %s\n", "instructions", info->instructions);
    if (info->threads)
        printf("  %-12s%d\n", "threads", info->threads);
    if (info->cache)
        printf("  %-12s%.1f MiB\n", "last cache", (double)info->cache / 1048576);
    if (info->memory)
        printf("  %-12s%.1f GiB\n", "memory", (double)info->memory / 1073741824);
    int count = 0;
    while (danaus_device_kernel(device, count))
        count++;
    printf("  %-12s%d\n", "kernels", count);
    print_kernels(device, count);
}

/* Describes one device into the list, or on standard output when list is NULL. */
static int show(const char *name, json_t *list)
{
    danaus_device *device;
    danaus_device_info info;
    TRY(library(danaus_device_open(name, &device)));
    int status = STATUS_OK;
    if (danaus_device_describe(device, &info))
        status = library_failure();
    else if (list)
        json_array_append_new(list, json_device(device, &info));
    else
        print_device(device, &info);
    danaus_device_close(device);
    return status;
}

static int show_all(const char *name, json_t *list)
{
    if (name)
        return show(name, list);
    danaus_device_info info;
    danaus_device *gpu;
    int status = STATUS_OK;
    for (int i = 0; status == STATUS_OK && !danaus_device_list(i, &info); i++)
        status = show(info.name, list);
    if (list || status != STATUS_OK)
        return status;
    if (danaus_device_open("cuda:0", &gpu))
        printf("%-13s none: %s\n", "cuda", danaus_error_detail());
    else
        danaus_device_close(gpu);
    return status;
}

#define NONE (-1)

typedef struct conv_question {
    int64_t length, taps, rows;
    plan_options plan;
} conv_question;

/* How a convolution would run on one device. */
static int explain_conv(
    const device_options *where, const conv_question *q, int as_json)
{
    danaus_device *device;
    danaus_conv_plan *plan = NULL;
    danaus_conv_desc desc = {
        .channels = 1, .length = q->length, .filter_length = q->taps, .batch = q->rows
    };
    char text[4096];
    desc.effort = (danaus_effort)q->plan.effort;
    desc.accuracy = (danaus_conv_accuracy)q->plan.accuracy;
    int status = open_device(where, &device);
    if (status)
        return status;
    if (danaus_conv_plan_create(device, &desc, &plan))
        status = library_failure();
    else {
        danaus_conv_plan_describe(plan, text, sizeof text);
        if (as_json)
            status = report_json(json_pack(
                "{s:I, s:I, s:s}", "length", (json_int_t)q->length, "taps",
                (json_int_t)(q->taps ? q->taps : q->length), "plan", text));
        else
            fputs(text, stdout);
    }
    danaus_conv_plan_destroy(plan);
    danaus_device_close(device);
    return status;
}

int cmd_info(int argc, char **argv)
{
    device_options where = { 0 };
    conv_question q = { .length = NONE };
    int as_json = 0;
    const arg table[] = {
        DEVICE_ARGS(where),
        { "conv", 0, ARG_COUNT, &q.length, "N",
          "explain convolutions of rows of N numbers" },
        { "taps", 0, ARG_COUNT, &q.taps, "M",
          "... with filters of M taps (default N)" },
        { "rows", 0, ARG_COUNT, &q.rows, "R", "... of R rows together (default many)" },
        EFFORT_ARG(q.plan),
        ACCURACY_ARG(q.plan),
        { "json", 0, ARG_FLAG, &as_json, NULL, "print JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    if (q.length != NONE)
        return explain_conv(&where, &q, as_json);
    TRY(args_refuse("threads,tuning,taps,rows,effort,accuracy", "goes with --conv"));
    if (!as_json)
        return show_all(where.name, NULL);
    json_t *list = json_array();
    int status = show_all(where.name, list);
    if (status == STATUS_OK)
        status = report_json(json_pack("{s:O}", "devices", list));
    json_decref(list);
    return status;
}
