/* danaus model: what the model in a folder is. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/models.h"
#include "common/report.h"

#include <inttypes.h>
#include <stdio.h>

static const usage use = {
    .command = "danaus model",
    .synopsis = "MODEL [OPTION]...",
    .about =
        "Prints what a model is: its architecture, sizes, parameters, linear "
        "layers with\n"
        "their patterns, the memory that it takes beside its file, and what a text "
        "costs:\n"
        "operations by part, and memory. Weights are not read.\n",
    .least = 1,
    .most = 1,
    .operands = "the folder of a model",
};

typedef struct facts {
    open_model m;
    int64_t length; /* tokens of a text */
    danaus_model_cost cost;
} facts;

static void print_layer(const danaus_model_layer *layer)
{
    printf(
        "  %-40s %5" PRId64 " x %-5" PRId64 " %10" PRId64, layer->name, layer->rows,
        layer->cols, layer->parameters);
    for (int64_t i = 0; i < layer->factors; i++) {
        const danaus_pattern *p = &layer->patterns[i];
        printf(
            "%s(%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ")", i ? " " : "  ",
            p->a, p->b, p->c, p->d);
    }
    printf("\n");
}

static int print(const facts *f)
{
    const danaus_model_info *info = &f->m.info;
    danaus_model_layer layer;
    printf(
        "%s: %" PRId64 " layers of %" PRId64, info->architecture, info->layers,
        info->width);
    if (info->heads)
        printf(", %" PRId64 " heads", info->heads);
    if (info->image_size)
        printf(
            ", images of %" PRId64 " x %" PRId64 " x %" PRId64 ", %" PRId64
            " classes\n",
            info->image_channels, info->image_size, info->image_size, info->classes);
    else
        printf(
            ", vocabulary %" PRId64 ", at most %" PRId64 " tokens%s\n",
            info->vocabulary, info->max_length, info->fills ? ", fills masks" : "");
    printf(
        "%" PRId64 " parameters; linear layers have %" PRId64 " weights, %" PRId64
        " if dense; in %s %.1f MB beside the file\n",
        info->parameters, info->linear_parameters, info->dense_parameters,
        danaus_dtype_name(info->dtype), (double)info->memory / 1e6);
    if (info->image_size)
        printf("an image: ");
    else
        printf("a text of %" PRId64 " tokens: ", f->length);
    printf(
        "%.4g GFLOP of linear layers, %.4g of mixing, %.4g of filters; %.1f MB while "
        "it "
        "runs, %.1f MB that stay\n",
        f->cost.linear / 1e9, f->cost.mixing / 1e9, f->cost.filters / 1e9,
        (double)f->cost.memory / 1e6, (double)f->cost.kept / 1e6);
    for (int i = 0; !danaus_model_layer_at(f->m.model, i, &layer); i++)
        print_layer(&layer);
    return STATUS_OK;
}

static json_t *cost_of(const facts *f)
{
    return json_pack(
        "{s:I, s:o, s:o, s:o, s:I, s:I}", "tokens", (json_int_t)f->length, "linear",
        json_number(f->cost.linear), "mixing", json_number(f->cost.mixing), "filters",
        json_number(f->cost.filters), "memory", (json_int_t)f->cost.memory, "kept",
        (json_int_t)f->cost.kept);
}

static int print_json(const facts *f)
{
    const danaus_model_info *info = &f->m.info;
    json_t *layers = json_array();
    danaus_model_layer layer;
    for (int i = 0; !danaus_model_layer_at(f->m.model, i, &layer); i++)
        json_array_append_new(
            layers, json_pack(
                        "{s:s, s:I, s:I, s:I, s:o}", "name", layer.name, "rows",
                        (json_int_t)layer.rows, "cols", (json_int_t)layer.cols,
                        "parameters", (json_int_t)layer.parameters, "patterns",
                        json_patterns(layer.patterns, (int)layer.factors)));
    return report_json(json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:o, s:o}",
        "architecture", info->architecture, "dtype", danaus_dtype_name(info->dtype),
        "blocks", (json_int_t)info->layers, "width", (json_int_t)info->width, "heads",
        (json_int_t)info->heads, "vocabulary", (json_int_t)info->vocabulary,
        "max_length", (json_int_t)info->max_length, "fills", info->fills != 0,
        "parameters", (json_int_t)info->parameters, "linear_parameters",
        (json_int_t)info->linear_parameters, "dense_parameters",
        (json_int_t)info->dense_parameters, "memory", (json_int_t)info->memory,
        "image_channels", (json_int_t)info->image_channels, "image_size",
        (json_int_t)info->image_size, "classes", (json_int_t)info->classes, "text",
        cost_of(f), "layers", layers));
}

typedef struct options {
    model_options model;
    int64_t length;
    int json;
} options;

/* Of an outline: no weights are read, and no memory is taken for them. */
static int run(const options *o, const char *path, facts *f)
{
    TRY(model_open(&o->model, path, 1, &f->m));
    f->length = o->length ? o->length : f->m.info.max_length;
    TRY(library(
        danaus_model_estimate(f->m.model, f->m.device, 1, f->length, &f->cost)));
    return o->json ? print_json(f) : print(f);
}

int cmd_model(int argc, char **argv)
{
    options o = { 0 };
    const arg table[] = {
        { "length", 0, ARG_COUNT, &o.length, "N",
          "tokens of a text; default: as many as there can be" },
        MODEL_ARGS(o.model),
        { "json", 0, ARG_FLAG, &o.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    facts f = { 0 };
    int status = run(&o, argv[1], &f);
    model_close(&f.m);
    return status;
}
