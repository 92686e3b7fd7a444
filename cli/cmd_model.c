/* danaus model: what the model in a folder is. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "common/args.h"
#include "common/report.h"

#include <inttypes.h>
#include <stdio.h>

static const usage use = {
    .command = "danaus model",
    .synopsis = "MODEL",
    .about = "Prints what a model is: its architecture, sizes, parameters, linear "
             "layers and the\n"
             "memory that it takes beside its file.\n",
    .least = 1,
    .most = 1,
    .operands = "the folder of a model",
};

static int print(const danaus_model *model, const danaus_model_info *info)
{
    danaus_model_layer layer;
    printf(
        "%s: %" PRId64 " layers of %" PRId64 ", %" PRId64 " heads, vocabulary %" PRId64
        ", at most %" PRId64 " tokens\n",
        info->architecture, info->layers, info->width, info->heads, info->vocabulary,
        info->max_length);
    printf(
        "%" PRId64 " parameters; linear layers have %" PRId64 " weights, %" PRId64
        " if dense; %.1f MB beside the file\n",
        info->parameters, info->linear_parameters, info->dense_parameters,
        (double)info->memory / 1e6);
    for (int i = 0; !danaus_model_layer_at(model, i, &layer); i++)
        printf(
            "  %-40s %5" PRId64 " x %-5" PRId64 " %10" PRId64 "\n", layer.name,
            layer.rows, layer.cols, layer.parameters);
    return STATUS_OK;
}

static int print_json(const danaus_model *model, const danaus_model_info *info)
{
    json_t *layers = json_array();
    danaus_model_layer layer;
    for (int i = 0; !danaus_model_layer_at(model, i, &layer); i++)
        json_array_append_new(
            layers, json_pack(
                        "{s:s, s:I, s:I, s:I}", "name", layer.name, "rows",
                        (json_int_t)layer.rows, "cols", (json_int_t)layer.cols,
                        "parameters", (json_int_t)layer.parameters));
    return report_json(json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "architecture",
        info->architecture, "blocks", (json_int_t)info->layers, "width",
        (json_int_t)info->width, "heads", (json_int_t)info->heads, "vocabulary",
        (json_int_t)info->vocabulary, "max_length", (json_int_t)info->max_length,
        "parameters", (json_int_t)info->parameters, "linear_parameters",
        (json_int_t)info->linear_parameters, "dense_parameters",
        (json_int_t)info->dense_parameters, "memory", (json_int_t)info->memory,
        "layers", layers));
}

int cmd_model(int argc, char **argv)
{
    int as_json = 0, operands;
    const arg table[] = {
        { "json", 0, ARG_FLAG, &as_json, NULL, "print the facts as JSON" },
        { 0 },
    };
    int status = args_parse(&use, table, argc, argv, &operands);
    if (status != ARGS_GO_ON)
        return status;
    danaus_device *device;
    danaus_model *model;
    danaus_model_info info;
    if (danaus_device_open("cpu", &device))
        return library_failure();
    if (danaus_model_load(device, argv[1], &model)) {
        status = library_failure();
    } else {
        danaus_model_describe(model, &info);
        status = as_json ? print_json(model, &info) : print(model, &info);
        danaus_model_destroy(model);
    }
    danaus_device_close(device);
    return status;
}
