/* danaus compress: a model with fewer weights, by what it does with texts, letters or images. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/images.h"
#include "cli/models.h"
#include "cli/token_lines.h"
#include "common/progress.h"
#include "common/report.h"
#include "common/timing.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const usage use = {
    .command = "danaus compress",
    .synopsis = "MODEL --params FRACTION -o NEW [OPTION]...",
    .about =
        "Replaces dense linear layers of a model's blocks so that a share of their "
        "weights\n"
        "remains, one layer after the other, each fitted to what the dense model does "
        "with\n"
        "the lines of a text, the records of a FASTA file or images: some thousand "
        "such "
        "as\n"
        "the model will meet. Without any of these only weights count. NEW is the "
        "folder of\n"
        "the new model.\n",
    .least = 1,
    .most = 1,
    .operands = "the folder of a model",
};

typedef struct options {
    model_options model;
    const char *text, *fasta, *images, *output, *layers;
    double params, ridge;
    int64_t window, seed;
    int json;
} options;

typedef struct compression {
    const options *o;
    const char *path;
    open_model m;
    token_lines lines;
    image_file images;
    int64_t samples; /* lines, pieces of records, or images */
    double seconds;
    double speed[2];  /* samples a second, before and after */
    float *output[2]; /* embeddings of some, before and after */
    double change;    /* of these, relatively */
} compression;

/* Samples whose embedding is timed, lines and images. */
#define TIMED_LINES  500
#define TIMED_IMAGES 64

static int64_t timed_samples(const compression *c)
{
    int64_t most = c->o->images ? TIMED_IMAGES : TIMED_LINES;
    return c->samples < most ? c->samples : most;
}

static float *embed(compression *c)
{
    token_lines some = c->lines;
    some.count = timed_samples(c);
    if (!c->o->images)
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
    danaus_model_compression how = { .share = c->o->params,
                                     .layers = c->o->layers,
                                     .ridge = c->o->ridge,
                                     .seed = (uint64_t)c->o->seed };
    if (progress_wanted()) {
        how.progress = progress_show;
        how.user = &bar;
    }
    double start = seconds_now();
    danaus_status status = call(c, &how);
    progress_clear(&bar);
    c->seconds = seconds_now() - start;
    return status ? library_failure() : STATUS_OK;
}

/* ---- results ---- */

/* Whether a layer is no dense matrix, so that it was left alone. */
static int stays(const danaus_model_layer *layer)
{
    return !layer->merged && !(layer->error > 0) &&
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

/* What is known of replaced layers alone. */
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

static int print(const compression *c)
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
    printf(
        "%" PRId64 " of %" PRId64 " weights of linear layers, in %.1f s\n",
        c->m.info.linear_parameters, c->m.info.dense_parameters, c->seconds);
    if (left)
        printf("%" PRId64 " of them are in layers that were left as they were\n", left);
    if (c->samples)
        printf(
            "by %" PRId64 " %s; %.0f a second, %.0f before; embeddings move by %.3f\n",
            c->samples, c->o->images ? "images" : "lines", c->speed[1], c->speed[0],
            c->change);
    return STATUS_OK;
}

static json_t *of_replaced(const danaus_model_layer *layer, double number)
{
    return layer->speedup > 0 ? json_number(number) : json_null();
}

static json_t *layers_json(const compression *c)
{
    json_t *layers = json_array();
    danaus_model_layer layer;
    for (int i = 0; !danaus_model_layer_at(c->m.model, i, &layer); i++)
        json_array_append_new(
            layers,
            json_pack(
                "{s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:b}", "name", layer.name, "rows",
                (json_int_t)layer.rows, "cols", (json_int_t)layer.cols, "parameters",
                (json_int_t)layer.parameters, "error", json_number(layer.error),
                "lower_bound", of_replaced(&layer, layer.lower_bound), "speedup",
                of_replaced(&layer, layer.speedup), "merged", layer.merged != 0));
    return layers;
}

/* What was measured, if there was anything to measure by. */
static json_t *measured(const compression *c, double number)
{
    return c->samples ? json_number(number) : json_null();
}

static int report(compression *c)
{
    danaus_model_describe(c->m.model, &c->m.info);
    if (!c->o->json)
        return print(c);
    return report_json(json_pack(
        "{s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "parameters",
        (json_int_t)c->m.info.linear_parameters, "dense_parameters",
        (json_int_t)c->m.info.dense_parameters, "lines", (json_int_t)c->samples,
        "seconds", json_number(c->seconds), "dense_lines_per_second",
        measured(c, c->speed[0]), "lines_per_second", measured(c, c->speed[1]),
        "change", measured(c, c->change), "output", json_text(c->o->output), "layers",
        layers_json(c)));
}

/* ---- the command ---- */

/* Before work that takes long: the folder is there or can be made, and is another one. */
static int check_folder(const char *path, const char *model)
{
    struct stat new, old;
    if (!stat(path, &new)) {
        if (!S_ISDIR(new.st_mode) || access(path, W_OK))
            return failure("cannot write into %s", path);
        if (!stat(model, &old) && new.st_ino == old.st_ino &&new.st_dev == old.st_dev)
            return failure("%s is the folder that the model came from", path);
        return STATUS_OK;
    }
    if (mkdir(path, 0777) || rmdir(path))
        return failure("cannot make %s: %s", path, strerror(errno));
    return STATUS_OK;
}

/* Of a record: what does not fit in a window begins another one. */
#define USUAL_WINDOW 4096

static int read_samples(compression *c)
{
    const options *o = c->o;
    int64_t most = c->m.info.max_length, window = o->window ? o->window : USUAL_WINDOW;
    int status = STATUS_OK;
    if (o->images ? !c->m.info.image_size
                  : c->m.info.image_size && (o->text || o->fasta))
        return failure("the model takes %s", o->images ? "no images" : "no tokens");
    if (o->images) {
        status = images_read(&c->images, o->images, &c->m.info);
        c->samples = c->images.count;
        return status;
    }
    if (o->text)
        status = token_lines_read(o->text, c->path, most, &c->lines);
    else if (o->fasta)
        status = token_lines_fasta(
            o->fasta, c->path, window < most ? window : most, &c->lines);
    c->samples = c->lines.count;
    if (!status && !c->samples && (o->text || o->fasta))
        return failure("%s has nothing to read", o->text ? o->text : o->fasta);
    return status;
}

static int run(compression *c)
{
    int status = check_folder(c->o->output, c->path);
    status = status ? status : model_open(&c->o->model, c->path, 0, &c->m);
    status = status ? status : read_samples(c);
    status = status ? status : measure(c, 0);
    status = status ? status : compress(c);
    status = status ? status : measure(c, 1);
    if (!status && danaus_model_save(c->m.model, c->o->output))
        status = library_failure();
    if (status)
        return status;
    compare(c);
    return report(c);
}

int cmd_compress(int argc, char **argv)
{
    options o = { 0 };
    const arg table[] = {
        { "text", 't', ARG_INPUT, &o.text, "FILE", "lines to fit layers to, UTF-8" },
        { "fasta", 0, ARG_INPUT, &o.fasta, "FILE", "records to fit them to" },
        { "window", 'w', ARG_COUNT, &o.window, "N",
          "letters of a record that go through the model\ntogether; default 4096" },
        { "images", 0, ARG_INPUT, &o.images, "FILE",
          "the .npy file of images to fit them to, as\ndanaus classify takes it" },
        { "params", 0, ARG_REAL, &o.params, "FRACTION",
          "share of the layers' weights that remains,\nabove 0 and at most 1" },
        { "output", 'o', ARG_TEXT, &o.output, "NEW", "the folder to write" },
        { "layers", 0, ARG_TEXT, &o.layers, "REGEX",
          "only layers whose name matches this extended\nregular expression" },
        { "ridge", 0, ARG_REAL, &o.ridge, "X",
          "pull towards the dense weights; default 0.05" },
        { "seed", 0, ARG_COUNT, &o.seed, "N", "of random directions; default 0" },
        DEVICE_ARGS(o.model.device),
        { "json", 0, ARG_FLAG, &o.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    int status = args_parse(&use, table, argc, argv, NULL);
    if (status != ARGS_GO_ON)
        return status;
    if (!o.output || o.params <= 0)
        return usage_error("--params FRACTION and -o NEW are needed");
    if ((o.text != NULL) + (o.fasta != NULL) + (o.images != NULL) > 1)
        return usage_error("only one of --text, --fasta and --images is possible");
    compression c = { .o = &o, .path = argv[1] };
    status = run(&c);
    token_lines_free(&c.lines);
    images_free(&c.images);
    free(c.output[0]);
    free(c.output[1]);
    model_close(&c.m);
    return status;
}
