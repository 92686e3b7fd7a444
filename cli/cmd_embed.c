/* danaus embed: lines of text to vectors, by a sentence encoder. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/token_lines.h"
#include "common/open.h"
#include "common/report.h"
#include "common/timing.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const usage use = {
    .command = "danaus embed",
    .synopsis = "MODEL --text FILE [-o E.npy] [--query TEXT] [OPTION]...",
    .about = "Embeds each line of a text: E is lines x embedding, f32. MODEL is the "
             "folder of a\n"
             "sentence encoder, such as all-MiniLM-L6-v2, dense or from danaus "
             "compress. With\n"
             "--query the lines that are nearest to a text are listed, by the cosine "
             "of their\n"
             "embeddings. A file - is standard input or output.\n",
    .least = 1,
    .most = 1,
    .operands = "the folder of a model",
};

typedef struct options {
    device_options device;
    danaus_dtype dtype;
    const char *text, *output, *query;
    int64_t nearest, pad;
    int json;
} options;

typedef struct embedding {
    const options *o;
    const char *path; /* of the model */
    danaus_device *device;
    danaus_model *model;
    danaus_model_info info;
    int64_t most; /* tokens of a line */
    token_lines lines;
    float *y;
    double seconds;
    output output;
} embedding;

/* ---- the nearest lines ---- */

typedef struct neighbour {
    int64_t line;
    double cosine;
} neighbour;

static double cosine(const float *x, const float *y, int64_t n)
{
    double xy = 0, xx = 0, yy = 0;
    for (int64_t i = 0; i < n; i++) {
        xy += (double)x[i] * y[i];
        xx += (double)x[i] * x[i];
        yy += (double)y[i] * y[i];
    }
    return xy / (sqrt(xx * yy) + 1e-300);
}

static int nearer(const void *a, const void *b)
{
    const neighbour *x = a, *y = b;
    if (x->cosine != y->cosine)
        return x->cosine > y->cosine ? -1 : 1;
    return x->line < y->line ? -1 : 1;
}

static int pad(const embedding *e, token_lines *t)
{
    return e->o->pad ? token_lines_pad(t, e->path, e->most) : STATUS_OK;
}

static neighbour *find_neighbours(const embedding *e)
{
    token_lines query;
    int64_t n = e->info.embedding;
    neighbour *found = calloc((size_t)e->lines.count + 1, sizeof *found);
    if (!found) {
        failure("no memory for %" PRId64 " cosines", e->lines.count);
        return NULL;
    }
    if (token_lines_of(e->o->query, e->path, e->most, &query) || pad(e, &query)) {
        token_lines_free(&query);
        free(found);
        return NULL;
    }
    float *y = token_lines_embed(&query, e->model, e->device);
    for (int64_t i = 0; y && i < e->lines.count; i++)
        found[i] = (neighbour){ i, cosine(e->y + i * n, y, n) };
    qsort(found, (size_t)e->lines.count, sizeof *found, nearer);
    token_lines_free(&query);
    if (!y) {
        free(found);
        found = NULL;
    }
    free(y);
    return found;
}

/* ---- results ---- */

static int save(const embedding *e)
{
    if (!e->o->output)
        return STATUS_OK;
    danaus_tensor y = { .name = "", .data = e->y, .dtype = DANAUS_F32, .ndim = 2 };
    y.shape[0] = e->lines.count;
    y.shape[1] = e->info.embedding;
    return danaus_file_write_npy(e->output.path, &y) ? library_failure() : STATUS_OK;
}

static int report(const embedding *e, const neighbour *found, int64_t count)
{
    int64_t tokens = e->lines.offsets[e->lines.count];
    if (e->o->json) {
        json_t *near = json_array();
        for (int64_t i = 0; i < count; i++)
            json_array_append_new(
                near, json_pack(
                          "{s:I, s:o, s:o}", "line", (json_int_t)found[i].line + 1,
                          "cosine", json_number(found[i].cosine), "text",
                          json_text(e->lines.line[found[i].line])));
        return report_json(json_pack(
            "{s:I, s:I, s:I, s:o, s:o, s:o}", "lines", (json_int_t)e->lines.count,
            "tokens", (json_int_t)tokens, "embedding", (json_int_t)e->info.embedding,
            "seconds", json_number(e->seconds), "output",
            e->o->output ? json_text(e->o->output) : json_null(), "nearest", near));
    }
    if (output_is_standard(&e->output))
        return STATUS_OK;
    for (int64_t i = 0; i < count; i++)
        printf(
            "%6.3f  line %" PRId64 ": %s\n", found[i].cosine, found[i].line + 1,
            e->lines.line[found[i].line]);
    printf(
        "%" PRId64 " lines, %" PRId64 " tokens, %.2f s\n", e->lines.count, tokens,
        e->seconds);
    return STATUS_OK;
}

static int finish(const embedding *e)
{
    neighbour *found = NULL;
    int64_t count = 0;
    if (e->o->query && !(found = find_neighbours(e)))
        return STATUS_FAILURE;
    if (found)
        count = e->o->nearest < e->lines.count ? e->o->nearest : e->lines.count;
    int status = save(e);
    status = status ? status : report(e, found, count);
    free(found);
    return status;
}

static int run(embedding *e)
{
    int status = open_device(&e->o->device, &e->device);
    if (status)
        return status;
    const danaus_model_desc how = { .dtype = e->o->dtype };
    if (danaus_model_load_as(e->device, e->path, &how, &e->model))
        return library_failure();
    danaus_model_describe(e->model, &e->info);
    e->most = e->info.max_length;
    if (e->o->pad > e->most)
        return failure(
            "%" PRId64 " tokens; the model takes %" PRId64 " at most", e->o->pad,
            e->most);
    e->most = e->o->pad ? e->o->pad : e->most;
    status = token_lines_read(e->o->text, e->path, e->most, &e->lines);
    status = status ? status : pad(e, &e->lines);
    if (status)
        return status;
    double start = seconds_now();
    e->y = token_lines_embed(&e->lines, e->model, e->device);
    e->seconds = seconds_now() - start;
    return e->y ? finish(e) : STATUS_FAILURE;
}

int cmd_embed(int argc, char **argv)
{
    options o = { .nearest = 3 };
    int operands;
    const arg table[] = {
        { "text", 't', ARG_INPUT, &o.text, "FILE", "lines to embed, UTF-8" },
        { "output", 'o', ARG_OUTPUT, &o.output, "FILE", "the .npy file to write" },
        { "query", 'q', ARG_TEXT, &o.query, "TEXT", "list the lines nearest to this" },
        { "nearest", 'n', ARG_COUNT, &o.nearest, "N", "how many; default 3" },
        { "pad", 0, ARG_COUNT, &o.pad, "N", "fill texts up with [PAD] to N tokens" },
        TYPE_ARG(o.dtype),
        DEVICE_ARGS(o.device),
        { "json", 0, ARG_FLAG, &o.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    int status = args_parse(&use, table, argc, argv, &operands);
    if (status != ARGS_GO_ON)
        return status;
    if (!o.text || (!o.output && !o.query))
        return usage_error("--text FILE, and -o FILE or --query TEXT are needed");
    embedding e = { .o = &o, .path = argv[1] };
    status = o.output ? output_open(&e.output, o.output) : STATUS_OK;
    status = status ? status : run(&e);
    free(e.y);
    token_lines_free(&e.lines);
    danaus_model_destroy(e.model);
    danaus_device_close(e.device);
    return output_close(&e.output, status);
}
