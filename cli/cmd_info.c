/* danaus info: what this machine offers, and what files hold. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/contents.h"

static const usage use = {
    .synopsis = "[FILE]... [--device NAME] [--conv N [OPTION]...] [--json]",
    .about =
        "Prints the devices of this machine (or the one named) with their\n"
        "instruction sets, caches and threads, and the kernels that products can use\n"
        "on each. --conv N explains how a causal convolution of rows of length N\n"
        "runs: windows, radices, passes, and the expected seconds of a row; the terms\n"
        "of the cost model, its constants measured by danaus calibrate (with\n"
        "--tuning) or built in; and alternatives. For each FILE it lists the arrays,\n"
        "with their types, sizes and bytes, and the metadata, and describes the\n"
        "chain, sum or operator in it. FILE may be a model's folder. FILE - is\n"
        "standard input.\n",
    .number = { 0, INT_MAX },
    .operands = "files of arrays or folders of models",
};

static json_t *json_device(const danaus_device *device, const danaus_device_info *info)
{
    json_t *kernels = json_array(), *operations = json_array();
    for (int i = 0; danaus_device_kernel(device, i); i++) {
        json_array_append_new(kernels, json_string(danaus_device_kernel(device, i)));
        json_array_append_new(
            operations, json_string(danaus_device_operation(device, i)));
    }
    return facts_of(
        "name:t description:t instructions:t memory:i cache:i threads:d kernels:o "
        "operations:o",
        info->name, info->description, info->instructions, info->memory, info->cache,
        info->threads, kernels, operations);
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

static void print_device(const danaus_device *device, const json_t *facts)
{
    facts_print(facts, "{name:-13} {description}\n");
    printf("  danaus      %s\n", danaus_version());
    facts_print(
        facts, "  instructions {instructions}\n"
               "[  threads     {threads}\n]"
               "[  last cache  {cache*0x1p-20:.1f} MiB\n]"
               "[  memory      {memory*0x1p-30:.1f} GiB\n]");
    int count = (int)json_array_size(json_object_get(facts, "kernels"));
    printf("  kernels     %d\n", count);
    print_kernels(device, count);
}

/* Describes one device into the list, or on standard output when list is NULL. */
static int show(const char *name, json_t *list)
{
    danaus_device *device;
    danaus_device_info info;
    TRY(library(danaus_device_open(name, &device)));
    int status = library(danaus_device_describe(device, &info));
    json_t *facts = status ? NULL : json_device(device, &info);
    if (list)
        json_array_append(list, facts);
    else if (facts)
        print_device(device, facts);
    json_decref(facts);
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
        status = facts_report(
            facts_of(
                "length:i taps:i plan:t", q->length, q->taps ? q->taps : q->length,
                text),
            as_json, NULL, "{plan:lines}");
    }
    danaus_conv_plan_destroy(plan);
    danaus_device_close(device);
    return status;
}

/* Facts of all files, or nothing. */
static int show_files(int count, char **paths, int as_json)
{
    json_t *files = json_array();
    int status = STATUS_OK;
    for (int i = 0; i < count && status == STATUS_OK; i++) {
        json_t *facts = NULL;
        status = contents_of(paths[i], &facts);
        if (status == STATUS_OK)
            json_array_append_new(files, facts);
    }
    for (size_t i = 0; i < json_array_size(files) && !status && !as_json; i++)
        contents_print(json_array_get(files, i));
    if (status == STATUS_OK && as_json)
        status = report_json(json_pack("{s:O}", "files", files));
    json_decref(files);
    return status;
}

int cmd_info(int argc, char **argv)
{
    device_options where = { 0 };
    conv_question q = { .length = NONE };
    int as_json = 0, count;
    const arg table[] = {
        DEVICE_ARGS(where),
        { "conv", 0, ARG_NUMBER, &q.length, "N",
          "explain convolutions of rows of length N" },
        { "taps", 0, ARG_NUMBER, &q.taps, "M", "taps of the filters (default N)" },
        { "rows", 0, ARG_NUMBER, &q.rows, "R",
          "rows that are convolved together (default many)" },
        EFFORT_ARG(q.plan),
        ACCURACY_ARG(q.plan),
        { "json", 0, ARG_FLAG, &as_json, NULL, "print JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, &count));
    if (count) {
        TRY(args_refuse(
            "device,threads,tuning,conv,taps,rows,effort,accuracy",
            "goes without files"));
        return show_files(count, argv + 1, as_json);
    }
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
