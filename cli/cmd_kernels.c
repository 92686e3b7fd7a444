/* danaus kernels: compiled GPU kernels, from the cache to a file and back, and what a file
   holds. */
// SPDX-License-Identifier: Apache-2.0
#include "common/args.h"
#include "cli/commands.h"
#include "common/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const usage use = {
    .command = "danaus kernels",
    .synopsis = "export|import|list FILE [--instructions NAME] [--json]",
    .about =
        "Kernels for GPUs are compiled for the problem when a plan is made, and kept\n"
        "in a cache folder. Export writes those that are there to one file, for\n"
        "machines that have no compiler: the file, or a folder of files *.kernels,\n"
        "is named in DANAUS_KERNELS, or import copies its kernels into the cache\n"
        "folder. List says what a file holds. A file of another version of danaus\n"
        "does no harm and no good. Take files only from where you would take\n"
        "programs.\n",
    .least = 2,
    .most = 2,
    .operands = "export, import or list, and a file",
    .words = "export|import|list",
};

/* Of one version and architecture after the other. */
static int list(const char *path, json_t *kinds)
{
    danaus_kernels_info info;
    danaus_status status;
    int i = 0;
    for (; !(status = danaus_kernels_list(path, i, &info)); i++)
        if (kinds)
            json_array_append_new(
                kinds, json_pack(
                           "{s:o, s:o, s:I, s:I}", "version", json_text(info.version),
                           "instructions", json_text(info.instructions), "count",
                           (json_int_t)info.count, "bytes", (json_int_t)info.bytes));
        else
            printf(
                "%s: danaus %s %s, %" PRId64 " kernels of %" PRId64 " bytes\n", path,
                info.version, info.instructions, info.count, info.bytes);
    return status == DANAUS_ERR_ARGUMENT ? STATUS_OK : library_failure();
}

static int cmd_list(const char *path, int as_json)
{
    json_t *kinds = as_json ? json_array() : NULL;
    int status = list(path, kinds);
    if (kinds && status == STATUS_OK)
        status = report_json(
            json_pack("{s:o, s:O}", "file", json_text(path), "kernels", kinds));
    json_decref(kinds);
    return status;
}

int cmd_kernels(int argc, char **argv)
{
    const char *instructions = NULL;
    int as_json = 0;
    int64_t count = 0;
    const arg table[] = {
        { "instructions", 0, ARG_TEXT, &instructions, "NAME",
          "export only kernels for these, \"sm_90\" for one" },
        { "json", 0, ARG_FLAG, &as_json, NULL, "print JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    int import = !strcmp(argv[1], "import"), export = !strcmp(argv[1], "export");
    if (!export)
        TRY(args_refuse("instructions", "goes with export"));
    if (!strcmp(argv[1], "list"))
        return cmd_list(argv[2], as_json);
    if (!import && !export)
        return usage_error("\"%s\" is none of export, import and list", argv[1]);
    if (import ? danaus_kernels_import(argv[2], &count)
               : danaus_kernels_export(instructions, argv[2], &count))
        return library_failure();
    if (as_json)
        return report_json(json_pack(
            "{s:o, s:I}", "file", json_text(argv[2]), import ? "imported" : "exported",
            (json_int_t)count));
    printf(
        "%s: %" PRId64 " kernels %s\n", argv[2], count,
        import ? "imported" : "exported");
    return STATUS_OK;
}
