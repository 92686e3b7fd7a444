/* danaus compress: a sentence encoder with fewer weights, by what it does with a text. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/token_lines.h"
#include "common/open.h"
#include "common/progress.h"
#include "common/report.h"
#include "common/timing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const usage use = {
    .command = "danaus compress",
    .synopsis = "MODEL --text FILE --params FRACTION -o NEW [OPTION]...",
    .about =
        "Replaces dense linear layers of a sentence encoder so that a share of their\n"
        "weights remains, one layer after the other, each fitted to what the dense "
        "model\n"
        "does with the lines of a text: some thousand lines such as the model will "
        "meet.\n"
        "NEW is the folder of the new model, for danaus embed.\n",
    .least = 1,
    .most = 1,
    .operands = "the folder of a model",
};

typedef struct options {
    device_options device;
    const char *text, *output, *layers;
    double params, ridge;
    int64_t seed;
    int json;
} options;

typedef struct compression {
    const options *o;
    const char *path;
    danaus_device *device;
    danaus_model *model;
    danaus_model_info info;
    token_lines lines;
    double seconds, speed[2]; /* speed: lines a second, before and after */
} compression;

/* Lines whose embedding is timed. */
#define TIMED_LINES 500

static int measure(compression *c, int after)
{
    token_lines some = c->lines;
    some.count = some.count < TIMED_LINES ? some.count : TIMED_LINES;
    double least = 0;
    for (int round = 0; round < 3; round++) {
        double start = seconds_now();
        float *y = token_lines_embed(&some, c->model, c->device);
        if (!y)
            return STATUS_FAILURE;
        free(y);
        double seconds = seconds_now() - start;
        least = round && least < seconds ? least : seconds;
    }
    c->speed[after] = (double)some.count / least;
    return STATUS_OK;
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
    danaus_status status = danaus_model_compress(
        c->model, c->device, c->lines.count, c->lines.offsets, c->lines.ids, &how);
    progress_clear(&bar);
    c->seconds = seconds_now() - start;
    return status ? library_failure() : STATUS_OK;
}

static int print(const compression *c)
{
    danaus_model_layer layer;
    printf("%-40s %13s %10s  share  error\n", "layer", "size", "weights");
    for (int i = 0; !danaus_model_layer_at(c->model, i, &layer); i++) {
        char size[48];
        double whole = (double)layer.rows * (double)layer.cols;
        snprintf(size, sizeof size, "%" PRId64 " x %" PRId64, layer.rows, layer.cols);
        printf(
            "%-40s %13s %10" PRId64 "  %5.3f  %.3f\n", layer.name, size,
            layer.parameters, (double)layer.parameters / whole, layer.error);
    }
    printf(
        "%" PRId64 " of %" PRId64 " weights of linear layers, by %" PRId64
        " lines in %.1f s; %.0f lines a second, %.0f before\n",
        c->info.linear_parameters, c->info.dense_parameters, c->lines.count, c->seconds,
        c->speed[1], c->speed[0]);
    return STATUS_OK;
}

static int report(compression *c)
{
    danaus_model_describe(c->model, &c->info);
    if (!c->o->json)
        return print(c);
    json_t *layers = json_array();
    danaus_model_layer layer;
    for (int i = 0; !danaus_model_layer_at(c->model, i, &layer); i++)
        json_array_append_new(
            layers,
            json_pack(
                "{s:s, s:I, s:I, s:I, s:o}", "name", layer.name, "rows",
                (json_int_t)layer.rows, "cols", (json_int_t)layer.cols, "parameters",
                (json_int_t)layer.parameters, "error", json_number(layer.error)));
    return report_json(json_pack(
        "{s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "parameters",
        (json_int_t)c->info.linear_parameters, "dense_parameters",
        (json_int_t)c->info.dense_parameters, "lines", (json_int_t)c->lines.count,
        "seconds", json_number(c->seconds), "dense_lines_per_second",
        json_number(c->speed[0]), "lines_per_second", json_number(c->speed[1]),
        "output", json_text(c->o->output), "layers", layers));
}

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

static int run(compression *c)
{
    int status = check_folder(c->o->output, c->path);
    status = status ? status : open_device(&c->o->device, &c->device);
    if (status)
        return status;
    if (danaus_model_load(c->device, c->path, &c->model))
        return library_failure();
    danaus_model_describe(c->model, &c->info);
    status = token_lines_read(c->o->text, c->path, c->info.max_length, &c->lines);
    status = status ? status : measure(c, 0);
    status = status ? status : compress(c);
    status = status ? status : measure(c, 1);
    if (!status && danaus_model_save(c->model, c->o->output))
        status = library_failure();
    return status ? status : report(c);
}

int cmd_compress(int argc, char **argv)
{
    options o = { 0 };
    int operands;
    const arg table[] = {
        { "text", 't', ARG_INPUT, &o.text, "FILE", "lines to fit layers to, UTF-8" },
        { "params", 0, ARG_REAL, &o.params, "FRACTION",
          "share of the layers' weights that remains,\nabove 0 and at most 1" },
        { "output", 'o', ARG_TEXT, &o.output, "NEW", "the folder to write" },
        { "layers", 0, ARG_TEXT, &o.layers, "REGEX",
          "only layers whose name matches this extended\nregular expression" },
        { "ridge", 0, ARG_REAL, &o.ridge, "X",
          "pull towards the dense weights; default 0.05" },
        { "seed", 0, ARG_COUNT, &o.seed, "N", "of random directions; default 0" },
        DEVICE_ARGS(o.device),
        { "json", 0, ARG_FLAG, &o.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    int status = args_parse(&use, table, argc, argv, &operands);
    if (status != ARGS_GO_ON)
        return status;
    if (!o.text || !o.output || o.params <= 0)
        return usage_error("--text FILE, --params FRACTION and -o NEW are needed");
    compression c = { .o = &o, .path = argv[1] };
    status = run(&c);
    token_lines_free(&c.lines);
    danaus_model_destroy(c.model);
    danaus_device_close(c.device);
    return status;
}
