/* danaus generate: text that a causal model writes behind a prompt. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/models.h"
#include "common/plain.h"
#include "common/room.h"

#include <unistd.h>

#include <float.h>

static const usage use = {
    .synopsis = "MODEL PROMPT [OPTION]...",
    .about =
        "Generates text after a prompt by a causal model, such as HyenaDNA. It stops\n"
        "after --tokens tokens, at the model's length, or at the token that its\n"
        "tokenizer appends to a text ([SEP]). The same seed gives the same text.\n",
    .number = { 2, 2 },
    .operands = "the folder of a model and a prompt",
    .texts = 1,
};

/* Tokens before a new one that are decoded with it: spaces depend on the neighbour. */
#define NEIGHBOURS 8

/* Text that grows. */
typedef struct grown {
    char *text;
    size_t length, room;
} grown;

typedef struct writing {
    int64_t most, top_k, seed;
    double temperature, top_p;
    int json;
    open_model m;
    danaus_tokenizer *tokenizer;
    int32_t *ids; /* of the prompt, then those to come */
    int64_t prompt, count;
    int32_t end; /* the token that ends a text; -1: none does */
    grown written;
    int failed;
    double start, first; /* when it began, and when the first token came */
} writing;

/* ---- text ---- */

/* The text of some tokens, to be freed; NULL: a sentence was printed. */
static char *text_of(const writing *w, int64_t from, int64_t to)
{
    size_t bytes = 0, room = 256;
    danaus_status status = DANAUS_ERR_SHAPE;
    char *text = NULL;
    for (int tries = 0; tries < 2 && status == DANAUS_ERR_SHAPE; tries++) {
        void *more = text;
        if (room_resize(&more, room, 1, "a token's text")) {
            free(text);
            return NULL;
        }
        text = more;
        status = danaus_tokenizer_decode(
            w->tokenizer, w->ids + from, (size_t)(to - from), 0, text, room, &bytes);
        room = bytes + 1;
    }
    if (status == DANAUS_OK)
        return text;
    library_failure();
    free(text);
    return NULL;
}

static int append(grown *g, const char *text)
{
    size_t more = strlen(text);
    if (g->length + more >= g->room) {
        void *grown_text = g->text;
        size_t room = 2 * (g->length + more) + 256;
        TRY(room_resize(&grown_text, room, 1, "the text"));
        g->text = grown_text;
        g->room = room;
    }
    memcpy(g->text + g->length, text, more + 1);
    g->length += more;
    return STATUS_OK;
}

/* A file gets the text as it is. */
static void print_new(const char *text)
{
    if (isatty(STDOUT_FILENO))
        print_lines(text, stdout);
    else
        fputs(text, stdout);
}

/* What the last token adds to the text of those before. */
static int write_last(writing *w)
{
    int64_t from = w->count > NEIGHBOURS ? w->count - NEIGHBOURS - 1 : 0;
    char *before = text_of(w, from, w->count - 1);
    char *all = before ? text_of(w, from, w->count) : NULL;
    int status = STATUS_FAILURE;
    if (all) {
        size_t known = strlen(before);
        const char *new = strncmp(all, before, known) ? all : all + known;
        status = append(&w->written, new);
        if (!status && !w->json) {
            print_new(new);
            fflush(stdout);
        }
    }
    free(before);
    free(all);
    return status;
}

static int take_token(void *user, int32_t token)
{
    writing *w = user;
    if (w->count == w->prompt)
        w->first = seconds_now();
    if (token == w->end)
        return 1;
    w->ids[w->count++] = token;
    w->failed = write_last(w);
    return w->failed;
}

/* ---- the prompt ---- */

static int encode(
    const writing *w, const char *text, int32_t *ids, size_t room, size_t *n)
{
    return library(
        danaus_tokenizer_encode(w->tokenizer, text, strlen(text), 0, ids, room, n));
}

/* Ids of the prompt, without those that the tokenizer appends to a text; the first of these
   ends a text. */
static int read_prompt(writing *w, const char *prompt, int64_t most)
{
    size_t before, after, n;
    danaus_tokenizer_around(w->tokenizer, &before, &after);
    size_t room = 4 * strlen(prompt) + before + after + 1;
    if (most > INT64_MAX - (int64_t)room)
        return failure("the model takes more tokens than fit in memory");
    w->ids = room_make(1, (int64_t)room + most, sizeof *w->ids, "tokens");
    if (!w->ids)
        return STATUS_FAILURE;
    if (encode(w, "", w->ids, room, &n))
        return STATUS_FAILURE;
    w->end = after ? w->ids[before] : -1;
    if (encode(w, prompt, w->ids, room, &n))
        return STATUS_FAILURE;
    w->prompt = w->count = (int64_t)(n - after);
    return w->prompt ? STATUS_OK : failure("PROMPT has no token: it is empty");
}

/* ---- the command ---- */

static int report(const writing *w)
{
    double end = seconds_now();
    if (!w->json) {
        printf("\n");
        return STATUS_OK;
    }
    json_t *tokens = json_array();
    for (int64_t i = w->prompt; i < w->count; i++)
        json_array_append_new(tokens, json_integer(w->ids[i]));
    return report_json(facts_of(
        "prompt_tokens:i tokens:o text:t prompt_seconds:n seconds:n", w->prompt, tokens,
        w->written.text ? w->written.text : "", w->first - w->start, end - w->start));
}

/* top_p in f32, in which no share becomes 0: that would keep all tokens. */
static float share_of(double top_p)
{
    float share = (float)top_p;
    return top_p > 0 && share < FLT_MIN ? FLT_MIN : share;
}

static int run(writing *w, const char *path, const char *prompt)
{
    TRY(model_open(&w->m, path, 0));
    TRY(model_takes_text(&w->m, path));
    TRY(library(danaus_tokenizer_load(path, &w->tokenizer)));
    TRY(read_prompt(w, prompt, w->m.info.max_length));
    if (w->prompt > w->m.info.max_length)
        return failure(
            "PROMPT has %" PRId64 " tokens: the model takes 1 to %" PRId64, w->prompt,
            w->m.info.max_length);
    const danaus_sampling how = { .max_tokens = w->most,
                                  .seed = (uint64_t)w->seed,
                                  .temperature = (float)w->temperature,
                                  .top_p = share_of(w->top_p),
                                  .top_k = (int32_t)w->top_k };
    w->start = w->first = seconds_now();
    TRY(library(danaus_model_generate(
        w->m.model, w->m.device, w->ids, w->prompt, &how, take_token, w)));
    return w->failed ? w->failed : report(w);
}

int cmd_generate(int argc, char **argv)
{
    writing w = { .most = 100 };
    const arg table[] = {
        { "tokens", 'n', ARG_COUNT, &w.most, "N",
          "maximum of tokens; default 100; 0: as many as the\nmodel takes" },
        { "temperature", 't', ARG_HEAT, &w.temperature, "T",
          "divides the logits; default 0: always the most\nprobable token" },
        { "top-k", 'k', ARG_NUMBER, &w.top_k, "K",
          "with --temperature: draw from the K most probable\ntokens" },
        { "top-p", 'p', ARG_SHARE, &w.top_p, "P",
          "with --temperature: draw from the fewest most\nprobable tokens that have "
          "this "
          "share of the\nprobability" },
        { "seed", 0, ARG_COUNT, &w.seed, "N", "seed of the draws; default 0" },
        MODEL_ARGS(w.m),
        { "json", 0, ARG_FLAG, &w.json, NULL, "print text and tokens as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    TRY(refuse_if(
        w.top_k > INT32_MAX, "--top-k takes an integer from 1 to %d, not %" PRId64,
        INT32_MAX, w.top_k));
    if (w.temperature <= 0)
        TRY(args_refuse("top-k,top-p", "goes with a --temperature above 0"));
    TRY(library(danaus_convert_check(
        DANAUS_F64, &w.temperature, DANAUS_F32, 1, "--temperature")));
    int status = run(&w, argv[1], argv[2]);
    free(w.ids);
    free(w.written.text);
    danaus_tokenizer_destroy(w.tokenizer);
    model_close(&w.m);
    return status;
}
