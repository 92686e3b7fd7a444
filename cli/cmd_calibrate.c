/* danaus calibrate: measures the constants of the model by which convolutions are
   planned. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/open.h"
#include "cli/progress.h"
#include "cli/report.h"

#include <stdio.h>

static const usage use = {
    .command = "danaus calibrate",
    .synopsis = "-o TABLE.csv [OPTION]...",
    .about =
        "Measures what passes of each radix, caches and memory cost on this machine: "
        "the\n"
        "constants of the model that chooses transforms for convolutions where nothing "
        "was\n"
        "measured. It takes some seconds. Give the table to the other commands with\n"
        "--tuning; it counts on the same machine, with the same instruction set and\n"
        "number of threads. With --tuning here, the rows of that table are kept.\n"
        "`danaus info --conv N` shows the constants at work.\n",
    .least = 0,
    .most = 0,
    .operands = "nothing",
};

int cmd_calibrate(int argc, char **argv)
{
    device_options o = { 0 };
    const char *output = NULL;
    int as_json = 0, operands;
    const arg table[] = {
        { "output", 'o', ARG_TEXT, &output, "FILE", "the table to write" },
        DEVICE_ARGS(o),
        { "json", 0, ARG_FLAG, &as_json, NULL, "print what was done as JSON" },
        { 0 },
    };
    int status = args_parse(&use, table, argc, argv, &operands);
    if (status != ARGS_GO_ON)
        return status;
    if (!output)
        return usage_error("-o FILE is needed (try --help)");
    danaus_device *device;
    danaus_device_info info;
    progress bar = { 0 };
    status = check_output(output);
    status = status ? status : open_device(&o, &device);
    if (status)
        return status;
    if (danaus_device_describe(device, &info) ||
        danaus_device_calibrate(device, progress_wanted() ? progress_show : NULL, &bar))
        status = library_failure();
    progress_clear(&bar);
    if (!status && danaus_device_save_tuning(device, output))
        status = library_failure();
    danaus_device_close(device);
    if (!status && as_json)
        report_json(json_pack(
            "{s:s, s:s, s:i, s:s}", "device", info.description, "instructions",
            info.instructions, "threads", info.threads, "output", output));
    else if (!status)
        printf(
            "%s: %s, %s, %d threads\n", output, info.description, info.instructions,
            info.threads);
    return status;
}
