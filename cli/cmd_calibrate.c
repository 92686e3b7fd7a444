/* danaus calibrate: measures the constants of the model by which convolutions are
   planned. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "common/progress.h"

static const usage use = {
    .synopsis = "-o TABLE.csv [OPTION]...",
    .about =
        "Measures the cost of passes of each radix, of caches and of memory on this\n"
        "machine. These are the constants of the cost model, which chooses transforms\n"
        "for convolutions that were not measured. It takes some seconds. Give the\n"
        "table to the other commands with --tuning. It applies to the same machine,\n"
        "instruction set and number of threads. Other rows of the table, and those\n"
        "of one given with --tuning, are kept. `danaus info --conv N` shows the\n"
        "constants in use.\n",
};

static int run(danaus_device *device, const output *o, int as_json)
{
    danaus_device_info info;
    progress bar = { 0 };
    int failed =
        danaus_device_describe(device, &info) ||
        danaus_device_calibrate(device, progress_wanted() ? progress_show : NULL, &bar);
    progress_clear(&bar);
    TRY(library(failed || danaus_device_save_tuning(device, o->path)));
    return facts_report(
        facts_of(
            "device:t instructions:t threads:d output:t", info.description,
            info.instructions, info.threads, o->name),
        as_json, o, "{output}: {device}, {instructions}, {threads:#thread}\n");
}

int cmd_calibrate(int argc, char **argv)
{
    device_options where = { 0 };
    const char *name = NULL;
    int as_json = 0;
    const arg table[] = {
        { "output", 'o', ARG_OUTPUT, &name, "FILE", "the table to write" },
        DEVICE_ARGS(where),
        { "json", 0, ARG_FLAG, &as_json, NULL, "print what was done as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    output o = { 0 };
    danaus_device *device = NULL;
    int status = output_open(&o, name);
    status = status ? status : open_device(&where, &device);
    status = status ? status : load_older(device, &o);
    status = status ? status : run(device, &o, as_json);
    danaus_device_close(device);
    return status;
}
