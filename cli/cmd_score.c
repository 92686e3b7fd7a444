/* danaus score: how likely a model of DNA finds the records of a FASTA file. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"
#include "cli/fasta.h"
#include "cli/models.h"
#include "cli/token_lines.h"
#include "common/finite.h"
#include "common/progress.h"
#include "common/room.h"

#include <math.h>
#include <sys/stat.h>

static const usage use = {
    .synopsis = "MODEL FASTA [OPTION]...",
    .about =
        "Scores each record of a FASTA file by a causal model, such as HyenaDNA. It\n"
        "prints the log-likelihood, the sum of ln p(base | bases before it), and the\n"
        "mean per base. The first base has no score. Records that are longer than a\n"
        "window are scored window by window; each begins with bases that have been\n"
        "scored. Lowercase letters are read as uppercase. FASTA - is standard input.\n",
    .number = { 2, 2 },
    .operands = "the folder of a model and a FASTA file",
};

/* Tokens that go to the library together, unless a window has more. */
#define BATCH_TOKENS 16384

typedef struct record {
    char *name;
    int64_t bases, scored;
    double sum;
} record;

/* Windows that wait to be scored. */
typedef struct batch {
    int64_t count, tokens, room; /* room: of tokens, and of windows */
    int32_t *ids;
    float *scores;
    int64_t *offsets; /* [count + 1] */
    int64_t *record;  /* [count] */
    int64_t *known;   /* [count]: tokens at the beginning that have been scored */
} batch;

typedef struct scoring {
    int64_t window, context;
    int ambiguous, json;
    open_model m;
    int32_t tokens[256];
    fasta fasta;
    int64_t bytes; /* of the file */
    double done;   /* share of them that has been scored */
    batch batch;
    record *records;
    size_t count, capacity, printed;
    progress bar;
    double seconds;
    int64_t scored, lost; /* bases; of these, whose logarithm is not finite */
    output output;        /* the logarithms, which are judged and printed */
} scoring;

/* ---- results ---- */

static json_t *facts_of_record(const record *r)
{
    return facts_of(
        "name:t bases:i scored:i log_likelihood:n mean:n", r->name, r->bases, r->scored,
        r->sum, r->scored ? r->sum / (double)r->scored : NAN);
}

/* Prints complete records, each once; prints nothing while results are collected. */
static void print_records(scoring *s, size_t end)
{
    if (s->json)
        return;
    progress_clear(&s->bar);
    for (; s->printed < end; s->printed++) {
        json_t *one = facts_of_record(&s->records[s->printed]);
        if (!s->printed)
            printf(
                "%-40s %12s %16s %10s\n", "record", "bases", "log-likelihood", "mean");
        facts_print(one, "{name:-40} {bases:12} {log_likelihood:16.3f} {mean:10.6f}\n");
        json_decref(one);
    }
}

static int64_t count_bases(const scoring *s)
{
    int64_t bases = 0;
    for (size_t i = 0; i < s->count; i++)
        bases += s->records[i].bases;
    return bases;
}

static int report(scoring *s)
{
    json_t *records = json_array();
    output_judge_model(&s->output, s->lost, s->scored);
    for (size_t i = 0; i < s->count; i++)
        json_array_append_new(records, facts_of_record(&s->records[i]));
    return facts_report(
        facts_of(
            "bases:i window:i context:i seconds:n records:o", count_bases(s), s->window,
            s->context, s->seconds, records),
        s->json, &s->output, "{records:#record}, {bases} bases, {seconds:.2f} s\n");
}

/* ---- windows ---- */

static int make_batch(scoring *s)
{
    batch *b = &s->batch;
    b->room = s->window > BATCH_TOKENS ? s->window : BATCH_TOKENS;
    const char *name = "windows of tokens";
    TRY(fail_if(b->room == INT64_MAX, "a window has more tokens than fit in memory"));
    int64_t room = b->room + 1;
    int made = (b->ids = room_make(1, room, sizeof *b->ids, name)) &&
               (b->scores = room_make(1, room, sizeof *b->scores, name)) &&
               (b->offsets = room_make(1, room, sizeof *b->offsets, name)) &&
               (b->record = room_make(1, room, sizeof *b->record, name)) &&
               (b->known = room_make(1, room, sizeof *b->known, name));
    return made ? STATUS_OK : STATUS_FAILURE;
}

static void free_batch(batch *b)
{
    free(b->ids);
    free(b->scores);
    free(b->offsets);
    free(b->record);
    free(b->known);
}

/* The part of the file that the windows which wait come from is done so far. */
static int show(void *user, double done)
{
    scoring *s = user;
    double to = s->bytes > 0 ? (double)ftell(s->fasta.file) / (double)s->bytes : 0;
    return progress_show(&s->bar, s->done + done * (to - s->done));
}

/* Scores the waiting windows, and adds the new tokens of each to its record. */
static int score_batch(scoring *s)
{
    batch *b = &s->batch;
    danaus_progress_fn tell = progress_wanted() ? show : NULL;
    TRY(library(danaus_model_score(
        s->m.model, s->m.device, b->count, b->offsets, b->ids, tell, s, b->scores)));
    for (int64_t i = 0; i < b->count; i++) {
        record *r = &s->records[b->record[i]];
        for (int64_t t = b->offsets[i] + b->known[i]; t < b->offsets[i + 1]; t++) {
            r->sum += b->scores[t];
            r->scored++;
            s->scored++;
            s->lost += !isfinite(b->scores[t]);
        }
    }
    b->count = b->tokens = 0;
    if (s->bytes > 0)
        s->done = (double)ftell(s->fasta.file) / (double)s->bytes;
    return STATUS_OK;
}

static void add_window(batch *b, int64_t number, int64_t known, int64_t length)
{
    b->record[b->count] = number;
    b->known[b->count++] = known;
    b->tokens += length;
    b->offsets[b->count] = b->tokens;
}

/* The record's windows. Each begins with the last `context` tokens of the one before. */
static int read_windows(scoring *s)
{
    batch *b = &s->batch;
    int64_t number = (int64_t)s->count - 1, known = 0, got, length = s->window;
    while (length == s->window) {
        const int32_t *tail = b->ids + b->tokens - known;
        if (b->room - b->tokens < s->window) {
            if (score_batch(s))
                return STATUS_FAILURE;
            print_records(s, (size_t)number);
        }
        int32_t *ids = b->ids + b->tokens;
        memmove(ids, tail, (size_t)known * sizeof *ids);
        got = fasta_read(&s->fasta, ids + known, s->window - known);
        if (got <= 0)
            return got ? STATUS_FAILURE : STATUS_OK;
        s->records[number].bases += got;
        length = known + got;
        add_window(b, number, known ? known : 1, length);
        known = s->context;
    }
    return STATUS_OK;
}

static int add_record(scoring *s)
{
    if (s->count == s->capacity) {
        void *more = s->records;
        size_t capacity = 2 * s->capacity + 64;
        TRY(room_resize(&more, capacity, sizeof *s->records, "the records"));
        s->records = more;
        s->capacity = capacity;
    }
    s->records[s->count] = (record){ .name = strdup(s->fasta.name) };
    TRY(fail_if(!s->records[s->count].name, "no memory for a name"));
    s->count++;
    return STATUS_OK;
}

static int score_records(scoring *s)
{
    int more;
    while ((more = fasta_next(&s->fasta)) > 0)
        if (add_record(s) || read_windows(s))
            return STATUS_FAILURE;
    if (more < 0 || score_batch(s))
        return STATUS_FAILURE;
    TRY(fail_if(!s->count, "%s has no record", s->fasta.path));
    TRY(fail_if(!count_bases(s), "the records of %s have no bases", s->fasta.path));
    print_records(s, s->count);
    return STATUS_OK;
}

/* ---- the command ---- */

static int choose_window(scoring *s)
{
    int64_t most = s->m.info.max_length;
    TRY(fail_if(
        most < 2, "the model takes %" PRId64 " token: none follows another", most));
    s->window = s->window ? s->window : most;
    s->context = s->context ? s->context : s->window / 2;
    if (s->window < 2 || s->window > most)
        return failure(
            "--window %" PRId64 ": the model takes windows of 2 to %" PRId64 " tokens",
            s->window, most);
    return fail_if(
        s->context >= s->window,
        "--context %" PRId64 ": windows of %" PRId64 " tokens begin with 1 to %" PRId64
        " known ones",
        s->context, s->window, s->window - 1);
}

static int run(scoring *s, const char *model, const char *path)
{
    struct stat file;
    TRY(model_open(&s->m, model, 0));
    TRY(model_takes_text(&s->m, model));
    TRY(choose_window(s));
    TRY(token_letters(model, s->ambiguous, s->tokens));
    TRY(fasta_open(&s->fasta, path, s->tokens));
    TRY(make_batch(s));
    s->bytes = fstat(fileno(s->fasta.file), &file) ? 0 : file.st_size;
    double start = seconds_now();
    int status = score_records(s);
    progress_clear(&s->bar);
    s->seconds = seconds_now() - start;
    return status ? status : report(s);
}

int cmd_score(int argc, char **argv)
{
    scoring s = { 0 };
    const arg table[] = {
        { "window", 'w', ARG_NUMBER, &s.window, "N",
          "tokens that the model reads at once; default: as\nmany as it takes" },
        { "context", 'c', ARG_NUMBER, &s.context, "N",
          "tokens of the window before with which a window\nbegins; default: half of a "
          "window" },
        { "ambiguous", 0, ARG_FLAG, &s.ambiguous, NULL,
          "read R Y S W K M B D H V, which stand for several\nbases, as N" },
        MODEL_ARGS(s.m),
        { "json", 0, ARG_FLAG, &s.json, NULL, "print the facts as JSON" },
        { 0 },
    };
    TRY(args_parse(&use, table, argc, argv, NULL));
    int status = run(&s, argv[1], argv[2]);
    fasta_close(&s.fasta);
    free_batch(&s.batch);
    for (size_t i = 0; i < s.count; i++)
        free(s.records[i].name);
    free(s.records);
    model_close(&s.m);
    return status;
}
