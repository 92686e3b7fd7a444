/* danaus fill: the words that a masked language model puts for [MASK]. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/models.h"
#include "cli/token_lines.h"
#include "common/finite.h"
#include "common/room.h"

static const usage use = {
    .synopsis = "MODEL TEXT [OPTION]...",
    .about =
        "Lists the most probable words for each [MASK] of a text (<mask>, if the\n"
        "tokenizer has that one), with their probabilities. MODEL is the folder of a\n"
        "masked language model with its head: BERT, RoBERTa, DistilBERT, MPNet,\n"
        "ModernBERT, Nomic BERT or Monarch Mixer BERT.\n",
    .number = { 2, 2 },
    .operands = "the folder of a model and a text",
    .texts = 1,
};

typedef struct filling {
    int64_t top;
    int json;
    const char *path; /* of the model */
    open_model m;
    danaus_tokenizer *tokenizer;
    token_lines line;
    const char *mask_name; /* [MASK] or <mask> */
    int32_t mask;          /* its id */
    int64_t masks, *places;
    float *scores;
    double seconds;
    output output; /* the scores, which are judged and printed */
} filling;

/* ---- words ---- */

/* The likeliest words of all ranked ones. */
static json_t *words_of(const filling *f, const ranked *all)
{
    json_t *words = json_array();
    for (int64_t i = 0; i < f->top; i++) {
        char text[128];
        size_t bytes;
        int32_t id = (int32_t)all[i].number;
        if (danaus_tokenizer_decode(f->tokenizer, &id, 1, 0, text, sizeof text, &bytes))
            snprintf(text, sizeof text, "%" PRId32, id);
        json_array_append_new(
            words, facts_of("word:t id:d probability:n", text, (int)id, all[i].value));
    }
    return words;
}

/* ---- masks ---- */

static int64_t count_tokens(const token_lines *t) { return t->offsets[t->count]; }

static int64_t count_masks(const filling *f, const token_lines *t)
{
    int64_t count = 0;
    for (int64_t i = 0; i < count_tokens(t); i++)
        count += t->ids[i] == f->mask;
    return count;
}

/* Refuses a text with masks that the model does not see. */
static int check_masks(const filling *f, const char *text)
{
    token_lines whole;
    TRY(token_lines_of(text, "TEXT", f->path, 0, &whole));
    int64_t all = count_masks(f, &whole), tokens = count_tokens(&whole);
    token_lines_free(&whole);
    TRY(fail_if(!all, "TEXT has no %s", f->mask_name));
    return fail_if(
        f->masks < all,
        "TEXT has %" PRId64 " tokens, and the model takes %" PRId64 ": %" PRId64
        " of its %" PRId64 " %s are cut off",
        tokens, f->m.info.max_length, all - f->masks, all, f->mask_name);
}

/* Without any mask the sentence names the first. */
static danaus_status find_mask(filling *f)
{
    static const char *const names[] = { "[MASK]", "<mask>", "[MASK]" };
    danaus_status status = DANAUS_ERR_ARGUMENT;
    for (size_t i = 0; status != DANAUS_OK && i < sizeof names / sizeof *names; i++) {
        f->mask_name = names[i];
        status = danaus_tokenizer_id(f->tokenizer, f->mask_name, &f->mask);
    }
    return status;
}

static int find_masks(filling *f, const char *text)
{
    int64_t tokens = count_tokens(&f->line);
    TRY(library(danaus_tokenizer_load(f->path, &f->tokenizer) || find_mask(f)));
    f->places = room_make(1, tokens, sizeof *f->places, "places of [MASK]");
    if (!f->places)
        return STATUS_FAILURE;
    for (int64_t t = 0; t < tokens; t++)
        if (f->line.ids[t] == f->mask)
            f->places[f->masks++] = t;
    return check_masks(f, text);
}

static int score(filling *f)
{
    int64_t words = f->m.info.vocabulary;
    f->scores = room_make(f->masks, words, sizeof *f->scores, "the scores");
    if (!f->scores)
        return STATUS_FAILURE;
    double start = seconds_now();
    TRY(library(danaus_model_fill(
        f->m.model, f->m.device, f->line.offsets[1], f->line.ids, f->masks, f->places,
        f->scores)));
    f->seconds = seconds_now() - start;
    output_judge_model(
        &f->output, count_non_finite(DANAUS_F32, f->scores, f->masks * words),
        f->masks * words);
    return STATUS_OK;
}

/* ---- results ---- */

static int report(const filling *f)
{
    int64_t count = f->m.info.vocabulary;
    ranked *all = room_make(1, count, sizeof *all, "the words");
    if (!all)
        return STATUS_FAILURE;
    json_t *masks = json_array();
    for (int64_t m = 0; m < f->masks; m++) {
        ranked_by_softmax(f->scores + m * count, count, all);
        json_t *mask = facts_of("token:i words:o", f->places[m], words_of(f, all));
        json_array_append_new(masks, mask);
        if (!f->json && f->masks > 1)
            printf("%s%s %" PRId64 "\n", m ? "\n" : "", f->mask_name, m + 1);
        if (!f->json)
            facts_print(mask, "<words:{probability*100:6.2f} %  {word}\n>");
    }
    free(all);
    return facts_report(
        facts_of(
            "text:t tokens:i seconds:n masks:o", f->line.line[0], f->line.offsets[1],
            f->seconds, masks),
        f->json, &f->output, "");
}

static int run(filling *f, const char *text)
{
    TRY(model_open(&f->m, f->path, 0));
    TRY(model_takes_text(&f->m, f->path));
    f->top = f->top < f->m.info.vocabulary ? f->top : f->m.info.vocabulary;
    TRY(token_lines_of(text, "TEXT", f->path, f->m.info.max_length, &f->line));
    TRY(find_masks(f, text));
    TRY(score(f));
    return report(f);
}

int cmd_fill(int argc, char **argv)
{
    filling f = { .top = 5 };
    const arg table[] = {
        { "top", 'n', ARG_NUMBER, &f.top, "N", "number of words; default 5" },
        MODEL_ARGS(f.m),
        { "json", 0, ARG_FLAG, &f.json, NULL, "print the words as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    f.path = argv[1];
    int status = run(&f, argv[2]);
    free(f.scores);
    free(f.places);
    token_lines_free(&f.line);
    danaus_tokenizer_destroy(f.tokenizer);
    model_close(&f.m);
    return status;
}
