/* danaus compress: a model with fewer weights, by what it does with texts, letters or images. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/candidates.h"
#include "cli/commands.h"
#include "cli/images.h"
#include "cli/models.h"
#include "cli/token_lines.h"
#include "common/finite.h"
#include "common/progress.h"

#include <math.h>

static const usage use = {
    .synopsis = "MODEL --params FRACTION -o NEW [OPTION]...",
    .about =
        "Replaces dense linear layers of a model's blocks so that a share of their\n"
        "weights remains. Layers are replaced one after the other. Each is fitted to\n"
        "the outputs of the dense model for samples: lines of a text, records of a\n"
        "FASTA file or images, some thousand that are typical for the model's use.\n"
        "Without samples the weights alone are fitted. NEW is the folder of the new\n"
        "model.\n",
    .number = { 1, 1 },
    .operands = "the folder of a model",
};

typedef struct compression {
    const char *text, *fasta, *image_path, *to, *layers, *candidates;
    uint32_t kinds; /* of candidates */
    int int8;
    double params, ridge;
    int64_t window, seed;
    int json;
    const char *path;
    open_model m;
    token_lines lines;
    image_file images;
    int64_t samples; /* lines, pieces of records, or images */
    double seconds;
    double speed[2];       /* samples a second, before and after */
    float *output[2];      /* embeddings of some, before and after */
    double change;         /* of these, relatively */
    struct output written; /* its weights, which are judged */
} compression;

/* Samples whose embedding is timed, lines and images. */
#define TIMED_LINES  500
#define TIMED_IMAGES 64

static int64_t timed_samples(const compression *c)
{
    int64_t most = c->image_path ? TIMED_IMAGES : TIMED_LINES;
    return c->samples < most ? c->samples : most;
}

static float *embed(compression *c)
{
    token_lines some = c->lines;
    some.count = timed_samples(c);
    if (!c->image_path)
        return token_lines_embed(&some, c->m.model, c->m.device);
    return images_embed(&c->images, some.count, c->m.model, c->m.device);
}

static int measure(compression *c, int after)
{
    double least = 0;
    for (int round = 0; round < 3 && c->samples; round++) {
        double start = seconds_now();
        free(c->output[after]);
        c->output[after] = embed(c);
        if (!c->output[after])
            return STATUS_FAILURE;
        double seconds = seconds_now() - start;
        least = round && least < seconds ? least : seconds;
    }
    c->speed[after] = (double)timed_samples(c) / least;
    return STATUS_OK;
}

static void compare(compression *c)
{
    int64_t numbers = timed_samples(c) * c->m.info.embedding;
    double error = 0, size = 0;
    for (int64_t i = 0; i < numbers; i++) {
        double x = c->output[0][i], y = c->output[1][i];
        error += (x - y) * (x - y);
        size += x * x;
    }
    c->change = sqrt(error / size);
}

static danaus_status call(compression *c, const danaus_model_compression *how)
{
    const int64_t none[] = { 0 };
    if (c->m.info.image_size)
        return danaus_model_compress_images(
            c->m.model, c->m.device, c->samples, c->images.pixels, how);
    return danaus_model_compress(
        c->m.model, c->m.device, c->samples, c->samples ? c->lines.offsets : none,
        c->lines.ids, how);
}

static int compress(compression *c)
{
    progress bar = { 0 };
    danaus_model_compression how = { .share = c->params,
                                     .layers = c->layers,
                                     .ridge = c->ridge,
                                     .candidates = c->kinds,
                                     .int8 = c->int8,
                                     .seed = (uint64_t)c->seed };
    if (progress_wanted()) {
        how.progress = progress_show;
        how.user = &bar;
    }
    double start = seconds_now();
    danaus_status status = call(c, &how);
    progress_clear(&bar);
    c->seconds = seconds_now() - start;
    const char *samples = c->text ? c->text : c->fasta ? c->fasta : c->image_path;
    if (status == DANAUS_ERR_ARGUMENT && samples)
        return failure("%s: %s", samples, danaus_error_detail());
    return library(status);
}

/* ---- results ---- */

/* True if a layer is no dense matrix, so that it was left alone. */
static int stays(const danaus_model_layer *layer)
{
    return !layer->merged && !(layer->speedup > 0) &&
           (layer->factors > 1 || layer->patterns->a > 1);
}

/* What else is to be said of a layer. */
static const char *remark(const danaus_model_layer *layer)
{
    if (layer->merged)
        return "  multiplied out, which is faster";
    if (!stays(layer))
        return "";
    return layer->factors > 1 ? "  a chain, left as it was"
                              : "  block-diagonal, left as it was";
}

/* Prints the facts that only replaced layers have. */
static void print_layer(const danaus_model_layer *layer)
{
    char size[48], speed[32] = "-", bound[32] = "-";
    double whole = (double)layer->rows * (double)layer->cols;
    snprintf(size, sizeof size, "%" PRId64 " x %" PRId64, layer->rows, layer->cols);
    if (layer->speedup > 0) {
        snprintf(bound, sizeof bound, "%.3f", layer->lower_bound);
        snprintf(speed, sizeof speed, "%.2f", layer->speedup);
    }
    printf(
        "%-40s %13s %10" PRId64 "  %5.3f  %.3f  %8s  %15s%s\n", layer->name, size,
        layer->parameters, (double)layer->parameters / whole, layer->error, bound,
        speed, remark(layer));
}

#define SPEEDS                                                                         \
    "{lines_per_second:.0f} a second, {dense_lines_per_second:.0f} before; "           \
    "embeddings move by {change:.3f}\n"

static void print(const compression *c, const json_t *facts)
{
    danaus_model_layer layer;
    int64_t left = 0;
    printf(
        "%-40s %13s %10s  share  error  at least  estimated speed\n", "layer", "size",
        "weights");
    for (int i = 0; !danaus_model_layer_at(c->m.model, i, &layer); i++) {
        print_layer(&layer);
        left += stays(&layer) ? layer.parameters : 0;
    }
    facts_print(
        facts, "{parameters} of {dense_parameters} weights of linear layers, in "
               "{seconds:.1f} s\n");
    if (left)
        printf("%" PRId64 " of them are in layers that were left as they were\n", left);
    if (c->samples)
        facts_print(
            facts,
            c->image_path ? "by {lines} images; " SPEEDS : "by {lines} lines; " SPEEDS);
}

static double of_replaced(const danaus_model_layer *layer, double number)
{
    return layer->speedup > 0 ? number : NAN;
}

static json_t *layers_json(const compression *c)
{
    json_t *layers = json_array();
    danaus_model_layer layer;
    for (int i = 0; !danaus_model_layer_at(c->m.model, i, &layer); i++)
        json_array_append_new(
            layers,
            facts_of(
                "name:t rows:i cols:i parameters:i error:n lower_bound:n speedup:n "
                "merged:b",
                layer.name, layer.rows, layer.cols, layer.parameters, layer.error,
                of_replaced(&layer, layer.lower_bound),
                of_replaced(&layer, layer.speedup), layer.merged != 0));
    return layers;
}

/* A measured number, or null without samples. */
static double measured(const compression *c, double number)
{
    return c->samples ? number : NAN;
}

static int report(compression *c)
{
    danaus_model_describe(c->m.model, &c->m.info);
    json_t *facts = facts_of(
        "parameters:i dense_parameters:i lines:i seconds:n dense_lines_per_second:n "
        "lines_per_second:n change:n output:t layers:o",
        c->m.info.linear_parameters, c->m.info.dense_parameters, c->samples, c->seconds,
        measured(c, c->speed[0]), measured(c, c->speed[1]), measured(c, c->change),
        c->to, layers_json(c));
    if (!c->json)
        print(c, facts);
    return facts_report(facts, c->json, &c->written, "");
}

/* ---- what was written ---- */

/* Judges the numbers of the new model's file. */
static int judge(compression *c)
{
    char path[4096];
    danaus_file *file = NULL;
    danaus_tensor tensor;
    int64_t lost = 0, count = 0;
    int length = snprintf(path, sizeof path, "%s/model.safetensors", c->to);
    TRY(fail_if(length >= (int)sizeof path, "the name of %s is too long", c->to));
    TRY(library(danaus_file_open(path, &file)));
    for (int i = 0; i < danaus_file_count(file); i++)
        if (!danaus_file_tensor(file, i, &tensor)) {
            lost += tensor_non_finite(&tensor);
            count += tensor_elements(&tensor);
        }
    danaus_file_close(file);
    c->written.name = c->to;
    output_judge_model(&c->written, lost, count);
    return STATUS_OK;
}

/* ---- the command ---- */

/* Tokens of a window. A record that is longer continues in another window. */
#define USUAL_WINDOW 4096

static int read_samples(compression *c)
{
    int64_t most = c->m.info.max_length, window = c->window ? c->window : USUAL_WINDOW;
    int status = STATUS_OK;
    if (c->image_path ? !c->m.info.image_size
                      : c->m.info.image_size && (c->text || c->fasta))
        return failure(
            "%s is a model of %s (%s) and takes %s, not --%s", c->path,
            c->image_path ? "text" : "images", c->m.info.architecture,
            c->image_path ? "--text or --fasta" : "--images",
            c->image_path ? "images"
            : c->text     ? "text"
                          : "fasta");
    if (c->image_path) {
        TRY(images_read(&c->images, c->image_path, &c->m.info));
        c->samples = c->images.count;
        return images_finite(&c->images, c->image_path, &c->m.info);
    }
    if (c->text)
        status = token_lines_read(c->text, c->path, most, &c->lines);
    else if (c->fasta)
        status = token_lines_fasta(
            c->fasta, c->path, window < most ? window : most, &c->lines);
    c->samples = c->lines.count;
    if (!status && !c->samples && (c->text || c->fasta))
        return failure("%s has nothing to read", c->text ? c->text : c->fasta);
    return status;
}

static int run(compression *c)
{
    TRY(model_open(&c->m, c->path, 0));
    TRY(library(danaus_model_check_folder(c->m.model, c->to)));
    TRY(read_samples(c));
    TRY(measure(c, 0));
    TRY(compress(c));
    TRY(measure(c, 1));
    TRY(library(danaus_model_save(c->m.model, c->to)));
    compare(c);
    TRY(judge(c));
    return report(c);
}

int cmd_compress(int argc, char **argv)
{
    compression c = { 0 };
    const arg table[] = {
        { "text", 't', ARG_INPUT, &c.text, "FILE", "sample texts, one a line, UTF-8" },
        { "fasta", 0, ARG_INPUT, &c.fasta, "FILE", "sample records" },
        { "window", 'w', ARG_NUMBER, &c.window, "N",
          "with --fasta: letters of a record that the model\nreads at once; default "
          "4096" },
        { "images", 0, ARG_INPUT, &c.image_path, "FILE",
          "a .npy file of sample images, as for danaus\nclassify" },
        { "params", 0, ARG_SHARE, &c.params, "FRACTION",
          "share of the layers' weights that remains,\nabove 0 and at most 1" },
        { "output", 'o', ARG_TEXT, &c.to, "NEW", "the folder to write" },
        { "layers", 0, ARG_TEXT, &c.layers, "REGEX",
          "only layers whose name matches this extended\nregular expression" },
        { "candidates", 0, ARG_TEXT, &c.candidates, "KIND,...",
          "kinds of chains that are tried for each layer\nbeside low rank: "
          "column-groups, "
          "row-groups,\nmonarch, fitted, sum (of two chains)" },
        INT8_ARG(
            c.int8, "give the new layers weights of 8 bits, which round\nrows to 8 "
                    "bits; with --params 1 they are dense"),
        { "ridge", 0, ARG_RIDGE, &c.ridge, "X",
          "regularisation towards the dense weights; default\n0.05" },
        { "seed", 0, ARG_COUNT, &c.seed, "N", "seed of random directions; default 0" },
        DEVICE_ARGS(c.m.where),
        { "json", 0, ARG_FLAG, &c.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    TRY(refuse_if(!c.to, "-o NEW is needed (try --help)"));
    TRY(refuse_if(c.params <= 0, "--params FRACTION is needed (try --help)"));
    if (!c.fasta)
        TRY(args_refuse("window", "goes with --fasta"));
    if (c.candidates)
        TRY(candidates_of_layers(c.candidates, &c.kinds));
    if ((c.text != NULL) + (c.fasta != NULL) + (c.image_path != NULL) > 1)
        return usage_error("one of --text, --fasta and --images is possible, not more");
    c.path = argv[1];
    int status = run(&c);
    token_lines_free(&c.lines);
    images_free(&c.images);
    free(c.output[0]);
    free(c.output[1]);
    model_close(&c.m);
    return status;
}
