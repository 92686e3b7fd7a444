/* danaus classify: images to classes, by a vision transformer. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/images.h"
#include "cli/models.h"
#include "common/room.h"

static const usage use = {
    .synopsis = "MODEL IMAGES.npy [-o SCORES.npy] [--top N] [OPTION]...",
    .about =
        "Lists the most probable classes of each image, with their probabilities.\n"
        "IMAGES is images x channels x size x size, after the model's preprocessing\n"
        "(about -1 to 1), or one image without the first axis. SCORES is images x\n"
        "classes, f32 logits. A file - is standard input or output.\n",
    .number = { 2, 2 },
    .operands = "the folder of a model and a file of images",
};

typedef struct classification {
    int64_t top;
    int json;
    open_model m;
    image_file images;
    float *scores;
    ranked *order;  /* classes of an image, the likeliest first */
    json_t *labels; /* id2label of config.json, or NULL */
    double seconds;
    output output;
} classification;

static int classify(classification *c)
{
    int64_t images = c->images.count;
    c->scores = room_make(images, c->m.info.classes, sizeof *c->scores, "the scores");
    if (!c->scores)
        return STATUS_FAILURE;
    c->order = room_make(1, c->m.info.classes, sizeof *c->order, "the classes");
    if (!c->order)
        return STATUS_FAILURE;
    double start = seconds_now();
    TRY(library(danaus_model_classify(
        c->m.model, c->m.device, images, c->images.pixels, c->scores)));
    c->seconds = seconds_now() - start;
    return STATUS_OK;
}

/* ---- results ---- */

static const char *label_of(const classification *c, int64_t class)
{
    char key[24];
    snprintf(key, sizeof key, "%" PRId64, class);
    return json_string_value(json_object_get(c->labels, key));
}

static json_t *classes_of(const classification *c, int64_t image)
{
    json_t *list = json_array();
    int64_t classes = c->m.info.classes;
    ranked_by_softmax(c->scores + image * classes, classes, c->order);
    for (int64_t i = 0; i < c->top && i < classes; i++)
        json_array_append_new(
            list, facts_of(
                      "class:i label:t probability:n", c->order[i].number,
                      label_of(c, c->order[i].number), c->order[i].value));
    return list;
}

static int report(const classification *c)
{
    json_t *found = json_array();
    char line[80];
    for (int64_t i = 0; i < c->images.count; i++) {
        json_array_append_new(found, classes_of(c, i));
        snprintf(
            line, sizeof line,
            "<:image %" PRId64 "  {probability:.4f}  {class:5}  {label}\n>", i + 1);
        if (!c->json && !output_is_standard(&c->output))
            facts_print(json_array_get(found, (size_t)i), line);
    }
    return facts_report(
        facts_of(
            "images:i classes:i seconds:n output:t found:o", c->images.count,
            c->m.info.classes, c->seconds, c->output.name, found),
        c->json, &c->output, "{images} images, {seconds:.2f} s\n");
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
    TRY(output_maybe(&c->output, c->output.name));
    TRY(model_open(&c->m, model, 0));
    load_labels(c, model);
    TRY(fail_if(
        !c->m.info.image_size, "%s is a model of text (%s), not of images", model,
        c->m.info.architecture));
    TRY(fail_if(
        !c->m.info.classes, "%s has no classes: its weights have no classifier",
        model));
    TRY(images_read(&c->images, images, &c->m.info));
    TRY(classify(c));
    TRY(rows_save(&c->output, c->scores, c->images.count, c->m.info.classes));
    return report(c);
}

int cmd_classify(int argc, char **argv)
{
    classification c = { .top = 5 };
    const arg table[] = {
        { "output", 'o', ARG_OUTPUT, &c.output.name, "FILE", "the .npy file to write" },
        { "top", 'n', ARG_NUMBER, &c.top, "N",
          "number of classes for each image; default 5" },
        MODEL_ARGS(c.m),
        { "json", 0, ARG_FLAG, &c.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    int status = run(&c, argv[1], argv[2]);
    free(c.scores);
    free(c.order);
    json_decref(c.labels);
    images_free(&c.images);
    model_close(&c.m);
    return status;
}
