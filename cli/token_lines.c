/* Lines of text as the tokens of a model. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/token_lines.h"

#include "cli/fasta.h"
#include "common/args.h"
#include "common/lines.h"
#include "common/room.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_stream(FILE *file, const char *path, char **text, size_t *size)
{
    size_t room = 0, got = 1;
    for (*size = 0; got; *size += got) {
        void *more = *text;
        room = room ? 2 * room : 1 << 16;
        TRY(room_resize(&more, room + 1, 1, path));
        *text = more;
        got = fread(*text + *size, 1, room - *size, file);
    }
    return fail_if(ferror(file), "cannot read %s: %s", path, strerror(errno));
}

static char *read_all(const char *path, size_t *size)
{
    char *text = NULL;
    FILE *file = fopen(path, "rb");
    int status = file ? read_stream(file, path, &text, size)
                      : failure("cannot read %s: %s", path, strerror(errno));
    if (file)
        fclose(file);
    if (!status)
        return text;
    free(text);
    return NULL;
}

/* Cuts t->text at the ends of its lines; what follows the last one is a line if it is not
   empty. */
static int cut_lines(token_lines *t, size_t size)
{
    size_t lines = 1, mark = mark_length(t->text, size);
    for (size_t at = mark, after; at < size; at += after, lines++)
        line_length(t->text + at, size - at, &after);
    int made = (t->line = room_make(1, (int64_t)lines, sizeof *t->line, "lines")) &&
               (t->offsets = room_make(
                    1, (int64_t)lines + 1, sizeof *t->offsets, "offsets of lines"));
    if (!made)
        return STATUS_FAILURE;
    t->text[size] = '\0';
    for (size_t at = mark, after; at < size; at += after) {
        char *line = t->text + at;
        size_t length = line_length(line, size - at, &after);
        line[length] = '\0';
        t->line[t->count++] = line;
    }
    return STATUS_OK;
}

/* Ids of a line behind those of the lines before. */
static int encode_line(
    token_lines *t, const danaus_tokenizer *tokenizer, int64_t most, int64_t number,
    size_t *room)
{
    const char *line = t->line[number];
    size_t used = (size_t)t->offsets[number], count = 0;
    danaus_status status = DANAUS_ERR_SHAPE;
    for (int tries = 0; tries < 2 && status == DANAUS_ERR_SHAPE; tries++) {
        if (*room - used < count || !t->ids) {
            void *more = t->ids;
            size_t tokens = 2 * (used + count) + 4096;
            TRY(room_resize(&more, tokens, sizeof *t->ids, "tokens"));
            t->ids = more;
            *room = tokens;
        }
        status = danaus_tokenizer_encode(
            tokenizer, line, strlen(line), most, t->ids + used, *room - used, &count);
    }
    if (status && t->is_file)
        return failure(
            "%s, line %" PRId64 ": %s", t->source, number + 1, danaus_error_detail());
    if (status)
        return failure("%s: %s", t->source, danaus_error_detail());
    t->offsets[number + 1] = (int64_t)(used + count);
    return STATUS_OK;
}

static int encode_lines(token_lines *t, const char *model, int64_t most)
{
    danaus_tokenizer *tokenizer;
    TRY(library(danaus_tokenizer_load(model, &tokenizer)));
    int status = STATUS_OK;
    size_t room = 0;
    for (int64_t i = 0; i < t->count && !status; i++)
        status = encode_line(t, tokenizer, most, i, &room);
    danaus_tokenizer_destroy(tokenizer);
    return status;
}

static int lay(token_lines *t, size_t size, const char *model, int64_t most)
{
    int status = cut_lines(t, size);
    status = status ? status : encode_lines(t, model, most);
    if (status)
        token_lines_free(t);
    return status;
}

int token_lines_read(const char *path, const char *model, int64_t most, token_lines *t)
{
    size_t size;
    *t = (token_lines){ .source = path, .is_file = 1, .text = read_all(path, &size) };
    if (!t->text)
        return STATUS_FAILURE;
    TRY(lay(t, size, model, most));
    return fail_if(!t->count, "%s has no line", path);
}

int token_lines_of(
    const char *text, const char *source, const char *model, int64_t most,
    token_lines *t)
{
    size_t size = strcspn(text, "\r\n");
    *t = (token_lines){ .source = source, .text = strndup(text, size) };
    return t->text ? lay(t, size, model, most) : failure("no memory for a text");
}

int token_letters(const char *model, int ambiguous, int32_t tokens[256])
{
    danaus_tokenizer *tokenizer;
    int32_t any = -1;
    TRY(library(danaus_tokenizer_load(model, &tokenizer)));
    for (int c = 0; c < 256; c++)
        tokens[c] = -1;
    danaus_tokenizer_id(tokenizer, "N", &any);
    for (int c = 'A'; c <= 'Z'; c++) {
        const char letter[] = { (char)c, '\0' };
        int32_t id = ambiguous && strchr("RYSWKMBDHV", c) ? any : -1;
        danaus_tokenizer_id(tokenizer, letter, &id);
        tokens[c] = tokens[tolower(c)] = id;
    }
    danaus_tokenizer_destroy(tokenizer);
    return STATUS_OK;
}

/* Room for one more piece of `most` tokens. */
static int make_room(token_lines *t, int64_t most, size_t *tokens, size_t *pieces)
{
    size_t used = t->count ? (size_t)t->offsets[t->count] : 0;
    if (*tokens - used < (size_t)most || !t->ids) {
        void *more = t->ids;
        size_t room;
        if (__builtin_add_overflow(used, (size_t)most, &room) ||
            __builtin_mul_overflow(room, (size_t)2, &room))
            return failure("a window of %" PRId64 " tokens fits in no memory", most);
        TRY(room_resize(&more, room, sizeof *t->ids, "tokens"));
        t->ids = more;
        *tokens = room;
    }
    if ((size_t)t->count + 2 > *pieces) {
        void *more = t->offsets;
        size_t room = 2 * *pieces + 64;
        TRY(room_resize(&more, room, sizeof *t->offsets, "records"));
        t->offsets = more;
        t->offsets[0] = 0;
        *pieces = room;
    }
    return STATUS_OK;
}

static int read_pieces(fasta *f, int64_t most, token_lines *t)
{
    size_t tokens = 0, pieces = 0;
    int more = make_room(t, most, &tokens, &pieces) ? -1 : fasta_next(f);
    while (more > 0) {
        int64_t from = t->offsets[t->count], got;
        if ((got = fasta_read(f, t->ids + from, most)) < 0)
            return STATUS_FAILURE;
        if (got) {
            t->offsets[++t->count] = from + got;
            if (make_room(t, most, &tokens, &pieces))
                return STATUS_FAILURE;
        } else {
            more = fasta_next(f);
        }
    }
    return more ? STATUS_FAILURE : STATUS_OK;
}

int token_lines_fasta(const char *path, const char *model, int64_t most, token_lines *t)
{
    fasta f = { 0 };
    int32_t letters[256];
    *t = (token_lines){ 0 };
    int status = token_letters(model, 0, letters);
    status = status ? status : fasta_open(&f, path, letters);
    status = status ? status : read_pieces(&f, most, t);
    fasta_close(&f);
    if (status)
        token_lines_free(t);
    return status;
}

static int find_padding(const char *model, int32_t *id)
{
    danaus_tokenizer *tokenizer;
    TRY(library(danaus_tokenizer_load(model, &tokenizer)));
    int failed = danaus_tokenizer_id(tokenizer, "[PAD]", id) != DANAUS_OK;
    danaus_tokenizer_destroy(tokenizer);
    return library(failed);
}

int token_lines_pad(token_lines *t, const char *model, int64_t length)
{
    int32_t padding, *ids;
    TRY(find_padding(model, &padding));
    ids = room_make(t->count, length, sizeof *ids, "lines of tokens");
    if (!ids)
        return STATUS_FAILURE;
    for (int64_t i = 0; i < t->count; i++) {
        int64_t tokens = t->offsets[i + 1] - t->offsets[i];
        tokens = tokens < length ? tokens : length;
        for (int64_t n = 0; n < length; n++)
            ids[i * length + n] = n < tokens ? t->ids[t->offsets[i] + n] : padding;
    }
    for (int64_t i = 0; i <= t->count; i++)
        t->offsets[i] = i * length;
    free(t->ids);
    t->ids = ids;
    return STATUS_OK;
}

void token_lines_free(token_lines *t)
{
    free(t->text);
    free(t->line);
    free(t->offsets);
    free(t->ids);
    *t = (token_lines){ 0 };
}

float *token_lines_embed(
    const token_lines *t, danaus_model *model, danaus_device *device)
{
    danaus_model_info info;
    danaus_model_describe(model, &info);
    float *y = room_make(t->count, info.embedding, sizeof *y, "embeddings");
    if (y && danaus_model_embed(model, device, t->count, t->offsets, t->ids, y)) {
        library_failure();
        free(y);
        y = NULL;
    }
    return y;
}
