/* danaus fill: the words that a masked language model puts for [MASK]. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/models.h"
#include "cli/token_lines.h"
#include "common/report.h"
#include "common/timing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const usage use = {
    .command = "danaus fill",
    .synopsis = "MODEL TEXT [OPTION]...",
    .about =
        "Lists the likeliest words for each [MASK] of a text, with their "
        "probabilities. MODEL is\n"
        "the folder of a masked language model: BERT or Monarch Mixer BERT with its "
        "head.\n",
    .least = 2,
    .most = 2,
    .operands = "the folder of a model, a text",
};

typedef struct options {
    model_options model;
    int64_t top;
    int json;
} options;

typedef struct word {
    int32_t id;
    double probability;
    char text[128];
} word;

typedef struct filling {
    const options *o;
    const char *path; /* of the model */
    open_model m;
    danaus_tokenizer *tokenizer;
    token_lines line;
    int64_t masks, top, *places;
    float *scores;
    word *words; /* [masks][top] */
    double seconds;
} filling;

/* ---- words ---- */

static int choose_words(filling *f)
{
    int64_t count = f->m.info.vocabulary;
    ranked *all = calloc((size_t)count, sizeof *all);
    f->words = calloc((size_t)(f->masks * f->top) + 1, sizeof *f->words);
    if (!all || !f->words) {
        free(all);
        return failure("no memory for %" PRId64 " words", count);
    }
    for (int64_t m = 0; m < f->masks; m++) {
        ranked_by_softmax(f->scores + m * count, count, all);
        for (int64_t i = 0; i < f->top; i++) {
            word *w = &f->words[m * f->top + i];
            size_t bytes;
            *w = (word){ (int32_t)all[i].number, all[i].value, "" };
            if (danaus_tokenizer_decode(
                    f->tokenizer, &w->id, 1, 0, w->text, sizeof w->text, &bytes))
                snprintf(w->text, sizeof w->text, "%" PRId32, w->id);
        }
    }
    free(all);
    return STATUS_OK;
}

/* ---- masks ---- */

static int find_masks(filling *f)
{
    int32_t mask;
    int64_t tokens = f->line.offsets[f->line.count];
    TRY(library(
        danaus_tokenizer_load(f->path, &f->tokenizer) ||
        danaus_tokenizer_id(f->tokenizer, "[MASK]", &mask)));
    f->places = calloc((size_t)tokens + 1, sizeof *f->places);
    if (!f->places)
        return failure("no memory for %" PRId64 " places", tokens);
    for (int64_t t = 0; t < tokens; t++)
        if (f->line.ids[t] == mask)
            f->places[f->masks++] = t;
    return f->masks ? STATUS_OK : failure("the text has no [MASK]");
}

static int score(filling *f)
{
    size_t numbers = (size_t)(f->masks * f->m.info.vocabulary);
    f->scores = calloc(numbers, sizeof *f->scores);
    if (!f->scores)
        return failure("no memory for %zu scores", numbers);
    double start = seconds_now();
    TRY(library(danaus_model_fill(
        f->m.model, f->m.device, f->line.offsets[1], f->line.ids, f->masks, f->places,
        f->scores)));
    f->seconds = seconds_now() - start;
    return STATUS_OK;
}

/* ---- results ---- */

static int report(const filling *f)
{
    json_t *masks = json_array();
    for (int64_t m = 0; m < f->masks; m++) {
        json_t *words = json_array();
        for (int64_t i = 0; i < f->top; i++) {
            const word *w = &f->words[m * f->top + i];
            json_array_append_new(
                words,
                json_pack(
                    "{s:o, s:I, s:o}", "word", json_text(w->text), "id",
                    (json_int_t)w->id, "probability", json_number(w->probability)));
        }
        json_array_append_new(
            masks,
            json_pack("{s:I, s:o}", "token", (json_int_t)f->places[m], "words", words));
    }
    return report_json(json_pack(
        "{s:o, s:I, s:o, s:o}", "text", json_text(f->line.line[0]), "tokens",
        (json_int_t)f->line.offsets[1], "seconds", json_number(f->seconds), "masks",
        masks));
}

static int print(const filling *f)
{
    for (int64_t m = 0; m < f->masks; m++) {
        if (f->masks > 1)
            printf("%s[MASK] %" PRId64 "\n", m ? "\n" : "", m + 1);
        for (int64_t i = 0; i < f->top; i++) {
            const word *w = &f->words[m * f->top + i];
            printf("%6.2f %%  %s\n", 100 * w->probability, w->text);
        }
    }
    return STATUS_OK;
}

static int run(filling *f, const char *text)
{
    TRY(model_open(&f->o->model, f->path, 0, &f->m));
    f->top = f->o->top < f->m.info.vocabulary ? f->o->top : f->m.info.vocabulary;
    TRY(token_lines_of(text, f->path, f->m.info.max_length, &f->line));
    if (!f->line.count)
        TRY(failure("the text has no [MASK]"));
    TRY(find_masks(f));
    TRY(score(f));
    TRY(choose_words(f));
    return f->o->json ? report(f) : print(f);
}

int cmd_fill(int argc, char **argv)
{
    options o = { .top = 5 };
    const arg table[] = {
        { "top", 'n', ARG_COUNT, &o.top, "N", "how many words; default 5" },
        MODEL_ARGS(o.model),
        { "json", 0, ARG_FLAG, &o.json, NULL, "print the words as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    filling f = { .o = &o, .path = argv[1] };
    int status = run(&f, argv[2]);
    free(f.words);
    free(f.scores);
    free(f.places);
    token_lines_free(&f.line);
    danaus_tokenizer_destroy(f.tokenizer);
    model_close(&f.m);
    return status;
}
