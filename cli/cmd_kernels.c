/* danaus kernels: compiled GPU kernels, from the cache to a file and back, and what a file
   holds. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "common/plain.h"
#include "common/standard.h"

static const usage use = {
    .synopsis = "export|import|list FILE [--instructions NAME] [--json]",
    .about =
        "A plan compiles GPU kernels for its problem, and keeps them in a cache\n"
        "folder. Export writes the kernels of the cache to one file, for machines\n"
        "without a compiler. There DANAUS_KERNELS names the file, or a folder of\n"
        "files *.kernels, or import copies its kernels into the cache folder. List\n"
        "prints the kernels of a file. Files of other versions of danaus have no\n"
        "effect. Take files only from sources that you trust with programs.\n",
    .number = { 2, 2 },
    .operands = "export, import or list, and a file",
    .words = "export|import|list",
};

/* Prints a line for each version and architecture. */
static int list(const char *path, int as_json)
{
    danaus_kernels_info info;
    danaus_status status;
    json_t *kinds = json_array();
    for (int i = 0; !(status = danaus_kernels_list(path, i, &info)); i++) {
        json_t *one = facts_of(
            "version:t instructions:t count:i bytes:i", info.version, info.instructions,
            info.count, info.bytes);
        json_array_append_new(kinds, one);
        if (as_json)
            continue;
        print_plain(path, stdout);
        facts_print(
            one,
            ": danaus {version} {instructions}, {count} kernels of {bytes} bytes\n");
    }
    json_t *facts = facts_of("file:t kernels:o", path, kinds);
    if (status == DANAUS_ERR_ARGUMENT)
        return facts_report(facts, as_json, NULL, "");
    json_decref(facts);
    return library_failure();
}

int cmd_kernels(int argc, char **argv)
{
    const char *instructions = NULL;
    int as_json = 0;
    int64_t count = 0;
    const arg table[] = {
        { "instructions", 0, ARG_TEXT, &instructions, "NAME",
          "export only kernels for this instruction set, such\nas sm_90" },
        { "json", 0, ARG_FLAG, &as_json, NULL, "print JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    enum { EXPORT, IMPORT, LIST };
    int what = args_word(use.words, argv[1]), import = what == IMPORT;
    if (what != EXPORT)
        TRY(args_refuse("instructions", "goes with export"));
    TRY(refuse_if(what < 0, "\"%s\" is none of export, import and list", argv[1]));
    output o = { 0 };
    const char *path = argv[2];
    TRY(what == EXPORT ? output_open(&o, path) : standard_input(&path));
    if (what == LIST)
        return list(path, as_json);
    if (import ? danaus_kernels_import(path, &count)
               : danaus_kernels_export(instructions, o.path, &count))
        return library_failure();
    return facts_report(
        facts_of(import ? "file:t imported:i" : "file:t exported:i", argv[2], count),
        as_json, &o,
        import ? "{file}: {imported} kernels imported\n"
               : "{file}: {exported} kernels exported\n");
}
