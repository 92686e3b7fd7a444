/* danaus kernels: compiled GPU kernels, from the cache to a file and back. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const usage use = {
    .command = "danaus kernels",
    .synopsis = "export|import FILE [--instructions NAME] [--json]",
    .about = "Kernels for GPUs are compiled for the problem when a plan is made, and "
             "kept in "
             "a\n"
             "cache folder. Export writes those that are there to one file; import "
             "puts them "
             "into\n"
             "the folder of another machine, which then needs no compiler for these "
             "problems.\n"
             "A file of another version of danaus does no harm and no good. Import "
             "only from\n"
             "where you would take programs.\n",
    .least = 2,
    .most = 2,
    .operands = "export or import, and a file",
};

int cmd_kernels(int argc, char **argv)
{
    const char *instructions = NULL;
    int as_json = 0, operands;
    int64_t count = 0;
    const arg table[] = {
        { "instructions", 0, ARG_TEXT, &instructions, "NAME",
          "export only kernels for these, \"sm_90\" for one" },
        { "json", 0, ARG_FLAG, &as_json, NULL, "print JSON" },
        { 0 },
    };
    int status = args_parse(&use, table, argc, argv, &operands);
    if (status != ARGS_GO_ON)
        return status;
    int import = !strcmp(argv[1], "import");
    if (!import && strcmp(argv[1], "export"))
        return usage_error("\"%s\" is neither export nor import", argv[1]);
    if (import ? danaus_kernels_import(argv[2], &count)
               : danaus_kernels_export(instructions, argv[2], &count))
        return library_failure();
    if (as_json)
        report_json(json_pack(
            "{s:s, s:I, s:s}", "file", argv[2], import ? "imported" : "exported",
            (json_int_t)count, "version", danaus_version()));
    else
        printf(
            "%s: %" PRId64 " kernels %s\n", argv[2], count,
            import ? "imported" : "exported");
    return STATUS_OK;
}
