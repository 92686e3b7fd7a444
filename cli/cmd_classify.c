/* danaus classify: images to classes, by a vision transformer. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/images.h"
#include "common/open.h"
#include "common/report.h"
#include "common/timing.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const usage use = {
    .command = "danaus classify",
    .synopsis = "MODEL IMAGES.npy [-o SCORES.npy] [--top N] [OPTION]...",
    .about = "Lists the likeliest classes of each image, with their probabilities. "
             "IMAGES is\n"
             "images x channels x size x size, as the model's preprocessing leaves "
             "pixels\n"
             "(about -1 to 1), or one image without the first dimension. SCORES is "
             "images x\n"
             "classes, f32, of which softmax makes probabilities. A file - is standard "
             "input\n"
             "or output.\n",
    .least = 2,
    .most = 2,
    .operands = "the folder of a model and a file of images",
};

typedef struct options {
    device_options device;
    danaus_dtype dtype;
    const char *output;
    int64_t top;
    int json;
} options;

typedef struct classification {
    const options *o;
    danaus_device *device;
    danaus_model *model;
    danaus_model_info info;
    image_file images;
    float *scores;
    int64_t *order; /* classes of an image, the likeliest first */
    json_t *labels; /* id2label of config.json, or NULL */
    double seconds;
    output output;
} classification;

static int classify(classification *c)
{
    int64_t images = c->images.count;
    size_t numbers;
    if (__builtin_mul_overflow((size_t)images, (size_t)c->info.classes, &numbers))
        return failure("there would be more scores than fit in memory");
    c->scores = calloc(numbers + 1, sizeof *c->scores);
    c->order = calloc((size_t)c->info.classes, sizeof *c->order);
    if (!c->scores || !c->order)
        return failure("no memory for %" PRId64 " images", images);
    double start = seconds_now();
    if (danaus_model_classify(c->model, c->device, images, c->images.pixels, c->scores))
        return library_failure();
    c->seconds = seconds_now() - start;
    return STATUS_OK;
}

/* ---- results ---- */

static const float *sorted;

static int likelier(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    if (sorted[x] != sorted[y])
        return sorted[x] > sorted[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

/* Sorts the classes of an image; returns the sum by which exp(score - greatest) becomes a
   probability. */
static double sort_classes(const classification *c, int64_t image)
{
    double sum = 0;
    sorted = c->scores + image * c->info.classes;
    for (int64_t i = 0; i < c->info.classes; i++)
        c->order[i] = i;
    qsort(c->order, (size_t)c->info.classes, sizeof *c->order, likelier);
    for (int64_t i = 0; i < c->info.classes; i++)
        sum += exp((double)sorted[i] - sorted[c->order[0]]);
    return sum;
}

static const char *label_of(const classification *c, int64_t class)
{
    char key[24];
    snprintf(key, sizeof key, "%" PRId64, class);
    return json_string_value(json_object_get(c->labels, key));
}

static json_t *image_json(const classification *c, int64_t image)
{
    json_t *list = json_array();
    double sum = sort_classes(c, image);
    for (int64_t i = 0; i < c->o->top && i < c->info.classes; i++) {
        int64_t class = c->order[i];
        const char *label = label_of(c, class);
        json_array_append_new(
            list,
            json_pack(
                "{s:I, s:o, s:o}", "class", (json_int_t) class, "label",
                label ? json_text(label) : json_null(), "probability",
                json_number(exp((double)sorted[class] - sorted[c->order[0]]) / sum)));
    }
    return list;
}

static void print_image(const classification *c, int64_t image)
{
    double sum = sort_classes(c, image);
    for (int64_t i = 0; i < c->o->top && i < c->info.classes; i++) {
        int64_t class = c->order[i];
        const char *label = label_of(c, class);
        printf(
            "image %" PRId64 "  %.4f  %5" PRId64 "  %s\n", image + 1,
            exp((double)sorted[class] - sorted[c->order[0]]) / sum, class,
            label ? label : "");
    }
}

static int save(const classification *c)
{
    if (!c->o->output)
        return STATUS_OK;
    danaus_tensor y = { .name = "", .data = c->scores, .dtype = DANAUS_F32, .ndim = 2 };
    y.shape[0] = c->images.count;
    y.shape[1] = c->info.classes;
    return danaus_file_write_npy(c->output.path, &y) ? library_failure() : STATUS_OK;
}

static int report(const classification *c)
{
    if (c->o->json) {
        json_t *found = json_array();
        for (int64_t i = 0; i < c->images.count; i++)
            json_array_append_new(found, image_json(c, i));
        return report_json(json_pack(
            "{s:I, s:I, s:o, s:o, s:o}", "images", (json_int_t)c->images.count,
            "classes", (json_int_t)c->info.classes, "seconds", json_number(c->seconds),
            "output", c->o->output ? json_text(c->o->output) : json_null(), "found",
            found));
    }
    if (output_is_standard(&c->output))
        return STATUS_OK;
    for (int64_t i = 0; i < c->images.count; i++)
        print_image(c, i);
    printf("%" PRId64 " images, %.2f s\n", c->images.count, c->seconds);
    return STATUS_OK;
}

static void load_labels(classification *c, const char *folder)
{
    char path[4096];
    json_error_t error;
    if ((size_t)snprintf(path, sizeof path, "%s/config.json", folder) >= sizeof path)
        return;
    json_t *config = json_load_file(path, 0, &error);
    c->labels = json_incref(json_object_get(config, "id2label"));
    json_decref(config);
}

static int run(classification *c, const char *model, const char *images)
{
    int status = c->o->output ? output_open(&c->output, c->o->output) : STATUS_OK;
    status = status ? status : open_device(&c->o->device, &c->device);
    const danaus_model_desc how = { .dtype = c->o->dtype };
    if (!status && danaus_model_load_as(c->device, model, &how, &c->model))
        status = library_failure();
    if (status)
        return status;
    danaus_model_describe(c->model, &c->info);
    load_labels(c, model);
    if (!c->info.classes)
        return failure("the model has no classes");
    status = images_read(&c->images, images, &c->info);
    status = status ? status : classify(c);
    status = status ? status : save(c);
    return status ? status : report(c);
}

int cmd_classify(int argc, char **argv)
{
    options o = { .top = 5 };
    int operands;
    const arg table[] = {
        { "output", 'o', ARG_OUTPUT, &o.output, "FILE", "the .npy file to write" },
        { "top", 'n', ARG_COUNT, &o.top, "N", "classes of each image; default 5" },
        TYPE_ARG(o.dtype),
        DEVICE_ARGS(o.device),
        { "json", 0, ARG_FLAG, &o.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    int status = args_parse(&use, table, argc, argv, &operands);
    if (status != ARGS_GO_ON)
        return status;
    classification c = { .o = &o };
    status = run(&c, argv[1], argv[2]);
    free(c.scores);
    free(c.order);
    json_decref(c.labels);
    images_free(&c.images);
    danaus_model_destroy(c.model);
    danaus_device_close(c.device);
    return output_close(&c.output, status);
}
