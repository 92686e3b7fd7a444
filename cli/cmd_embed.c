/* danaus embed: lines of text to vectors, by a sentence encoder. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/models.h"
#include "cli/token_lines.h"
#include "common/room.h"

#include <math.h>

static const usage use = {
    .synopsis = "MODEL --text FILE [-o E.npy] [--query TEXT] [OPTION]...",
    .about =
        "Embeds each line of a text: E is lines x embedding, f32. MODEL is the\n"
        "folder of a sentence encoder, such as all-MiniLM-L6-v2, dense or from\n"
        "danaus compress. --query lists the lines that are nearest to a text, by the\n"
        "cosine similarity of their embeddings. A file - is standard input or\n"
        "output.\n",
    .number = { 1, 1 },
    .operands = "the folder of a model",
};

typedef struct embedding {
    const char *text, *query;
    int64_t nearest, pad;
    int json;
    const char *path; /* of the model */
    open_model m;
    int64_t most; /* tokens of a line */
    token_lines lines;
    float *y;
    double seconds;
    output output;
} embedding;

/* ---- the nearest lines ---- */

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

static int pad(const embedding *e, token_lines *t)
{
    return e->pad ? token_lines_pad(t, e->path, e->most) : STATUS_OK;
}

static ranked *find_neighbours(const embedding *e)
{
    token_lines query;
    int64_t n = e->m.info.embedding;
    ranked *found = room_make(1, e->lines.count, sizeof *found, "cosines");
    if (!found)
        return NULL;
    if (token_lines_of(e->query, "--query", e->path, e->most, &query) ||
        pad(e, &query)) {
        token_lines_free(&query);
        free(found);
        return NULL;
    }
    float *y = token_lines_embed(&query, e->m.model, e->m.device);
    for (int64_t i = 0; y && i < e->lines.count; i++)
        found[i] = (ranked){ i, cosine(e->y + i * n, y, n) };
    ranked_sort(found, e->lines.count);
    token_lines_free(&query);
    if (!y) {
        free(found);
        found = NULL;
    }
    free(y);
    return found;
}

/* ---- results ---- */

static int report(const embedding *e, const ranked *found, int64_t count)
{
    json_t *near = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(
            near, facts_of(
                      "line:i cosine:n text:t", found[i].number + 1, found[i].value,
                      e->lines.line[found[i].number]));
    return facts_report(
        facts_of(
            "lines:i tokens:i embedding:i seconds:n output:t nearest:o", e->lines.count,
            e->lines.offsets[e->lines.count], e->m.info.embedding, e->seconds,
            e->output.name, near),
        e->json, &e->output,
        "<nearest:{cosine:6.3f}  line {line}: {text}\n>"
        "{lines} lines, {tokens} tokens, {seconds:.2f} s\n");
}

static int finish(embedding *e)
{
    ranked *found = NULL;
    int64_t count = 0;
    if (e->query && !(found = find_neighbours(e)))
        return STATUS_FAILURE;
    if (found)
        count = e->nearest < e->lines.count ? e->nearest : e->lines.count;
    int status = rows_save(&e->output, e->y, e->lines.count, e->m.info.embedding);
    status = status ? status : report(e, found, count);
    free(found);
    return status;
}

static int run(embedding *e)
{
    TRY(output_maybe(&e->output, e->output.name));
    TRY(model_open(&e->m, e->path, 0));
    TRY(model_takes_text(&e->m, e->path));
    e->most = e->m.info.max_length;
    if (e->pad > e->most)
        return failure(
            "--pad %" PRId64 ": the model takes 1 to %" PRId64 " tokens", e->pad,
            e->most);
    e->most = e->pad ? e->pad : e->most;
    TRY(token_lines_read(e->text, e->path, e->most, &e->lines));
    TRY(pad(e, &e->lines));
    double start = seconds_now();
    e->y = token_lines_embed(&e->lines, e->m.model, e->m.device);
    e->seconds = seconds_now() - start;
    return e->y ? finish(e) : STATUS_FAILURE;
}

int cmd_embed(int argc, char **argv)
{
    embedding e = { .nearest = 3 };
    const arg table[] = {
        { "text", 't', ARG_INPUT, &e.text, "FILE", "lines to embed, UTF-8" },
        { "output", 'o', ARG_OUTPUT, &e.output.name, "FILE", "the .npy file to write" },
        { "query", 'q', ARG_TEXT, &e.query, "TEXT",
          "list the lines nearest to this text" },
        { "nearest", 'n', ARG_NUMBER, &e.nearest, "N",
          "number of these lines; default 3" },
        { "pad", 0, ARG_NUMBER, &e.pad, "N", "pad texts with [PAD] to N tokens" },
        MODEL_ARGS(e.m),
        { "json", 0, ARG_FLAG, &e.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    TRY(refuse_if(!e.text, "--text FILE is needed (try --help)"));
    if (!e.query)
        TRY(args_refuse("nearest", "goes with --query"));
    TRY(refuse_if(
        !e.output.name && !e.query,
        "-o FILE or --query TEXT is needed, or both (try --help)"));
    e.path = argv[1];
    int status = run(&e);
    free(e.y);
    token_lines_free(&e.lines);
    model_close(&e.m);
    return status;
}
