/* danaus model: what the model in a folder is. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/models.h"

static const usage use = {
    .synopsis = "MODEL [OPTION]...",
    .about =
        "Prints a model's architecture, sizes, parameters, linear layers with their\n"
        "patterns, the memory that it takes beside its file, and the cost of a text:\n"
        "operations by part, and memory. Weights are not read.\n",
    .number = { 1, 1 },
    .operands = "the folder of a model",
};

typedef struct outline {
    open_model m;
    int64_t length; /* tokens of a text */
    int json;
    danaus_model_cost cost;
} outline;

static json_t *layers_of(const danaus_model *model)
{
    json_t *layers = json_array();
    danaus_model_layer layer;
    for (int i = 0; !danaus_model_layer_at(model, i, &layer); i++)
        json_array_append_new(
            layers,
            facts_of(
                "name:t rows:i cols:i parameters:i int8:b patterns:o", layer.name,
                layer.rows, layer.cols, layer.parameters, layer.int8 != 0,
                json_patterns(layer.patterns, (int)layer.factors)));
    return layers;
}

static json_t *describe(const outline *f)
{
    const danaus_model_info *info = &f->m.info;
    json_t *text = facts_of(
        "tokens:i linear:n mixing:n filters:n memory:i kept:i", f->length,
        f->cost.linear, f->cost.mixing, f->cost.filters, f->cost.memory, f->cost.kept);
    return facts_of(
        "architecture:t dtype:t blocks:i width:i heads:i vocabulary:i max_length:i "
        "fills:b parameters:i linear_parameters:i dense_parameters:i memory:i "
        "image_channels:i image_size:i classes:i text:o layers:o",
        info->architecture, danaus_dtype_name(info->dtype), info->layers, info->width,
        info->heads, info->vocabulary, info->max_length, info->fills != 0,
        info->parameters, info->linear_parameters, info->dense_parameters, info->memory,
        info->image_channels, info->image_size, info->classes, text,
        layers_of(f->m.model));
}

static const char words[] =
    "{architecture}: {blocks} layers of {width}[, {heads} heads]"
    "[{?image_size}, images of {image_channels} x {image_size} x {image_size}, "
    "{classes} classes|, vocabulary {vocabulary}, at most {max_length} tokens]"
    "[{?fills}, fills masks]\n"
    "{parameters} parameters; linear layers have {linear_parameters} weights, "
    "{dense_parameters} if dense; in {dtype} {memory*1e-6:.1f} MB beside the file\n"
    "[{?image_size}an image|a text of {text.tokens} tokens]: {text.linear*1e-9:.4g} "
    "GFLOP of linear layers, {text.mixing*1e-9:.4g} of mixing, "
    "{text.filters*1e-9:.4g} of filters; {text.memory*1e-6:.1f} MB while it runs, "
    "{text.kept*1e-6:.1f} MB that stay\n"
    "<layers:  {name:-40} {rows:5} x {cols:-5} {parameters:10}  {patterns}[{?int8}, 8 "
    "bits|]\n>";

/* Opens the model as an outline: it reads no weights and takes no memory for them. */
static int run(outline *f, const char *path)
{
    TRY(model_open(&f->m, path, 1));
    if (f->length > f->m.info.max_length && !f->m.info.image_size)
        return failure(
            "--length %" PRId64 ": the model takes 1 to %" PRId64 " tokens", f->length,
            f->m.info.max_length);
    f->length = f->length ? f->length : f->m.info.max_length;
    TRY(library(
        danaus_model_estimate(f->m.model, f->m.device, 1, f->length, &f->cost)));
    return facts_report(describe(f), f->json, NULL, words);
}

int cmd_model(int argc, char **argv)
{
    outline f = { 0 };
    const arg table[] = {
        { "length", 0, ARG_NUMBER, &f.length, "N",
          "tokens of the text; default: as many as the model\ntakes" },
        MODEL_ARGS(f.m),
        { "json", 0, ARG_FLAG, &f.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    int status = run(&f, argv[1]);
    model_close(&f.m);
    return status;
}
