/* Options of a command, from one table. */
// SPDX-License-Identifier: Apache-2.0
#include "common/args.h"

#include "common/standard.h"

#include <errno.h>
#include <float.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ARGS    32
#define HELP_COLUMN 28

void (*args_look)(const usage *use, const arg *table);

static const arg *rows;     /* the table of the command that runs */
static int given[MAX_ARGS]; /* by row */

/* ---- help ---- */

static void print_row(
    char letter, const char *name, const char *takes, const char *help)
{
    char dash[5] = "    ";
    if (letter)
        snprintf(dash, sizeof dash, "-%c, ", letter);
    int width =
        printf("  %s--%s%s%s", dash, name, takes ? " " : "", takes ? takes : "");
    if (width < HELP_COLUMN)
        printf("%*s", HELP_COLUMN - width, "");
    else
        printf("\n%*s", HELP_COLUMN, "");
    for (const char *c = help; *c; c++) {
        putchar(*c);
        if (*c == '\n')
            printf("%*s", HELP_COLUMN, "");
    }
    putchar('\n');
}

static void print_help(const usage *use, const arg *table)
{
    printf(
        "Usage: %s %s\n\n%s\nOptions:\n", sentences_subject(), use->synopsis,
        use->about);
    for (const arg *a = table; a->name; a++)
        print_row(a->letter, a->name, a->takes, a->help);
    print_row('h', "help", NULL, "print this and exit");
}

/* ---- values ---- */

static int parse_integer(const char *text, int64_t least, int64_t *value, char **end)
{
    if (*text < '0' || *text > '9')
        return 0;
    errno = 0;
    *value = strtoll(text, end, 10);
    return !errno && *value >= least;
}

int args_integer(const char *text, int64_t *value)
{
    char *end;
    int64_t found;
    if (!parse_integer(text, 1, &found, &end) || *end)
        return 0;
    *value = found;
    return 1;
}

static int parse_counts(const char *text, counts *list)
{
    counts found = { 0 };
    for (;;) {
        char *end;
        if (found.count == (int)(sizeof found.value / sizeof *found.value) ||
            !parse_integer(text, 1, &found.value[found.count++], &end))
            return 0;
        if (*end == '\0')
            break;
        if (*end != ',')
            return 0;
        text = end + 1;
    }
    *list = found;
    return 1;
}

static int parse_dtype(const char *text, danaus_dtype *dtype)
{
    for (int i = 1; danaus_dtype_size((danaus_dtype)i); i++)
        if (!strcmp(text, danaus_dtype_name((danaus_dtype)i))) {
            *dtype = (danaus_dtype)i;
            return 1;
        }
    return 0;
}

int args_word(const char *words, const char *text)
{
    size_t length = strlen(text);
    for (int i = 0;; i++) {
        size_t word = strcspn(words, "|");
        if (word == length && !strncmp(words, text, word))
            return i;
        if (!words[word])
            return -1;
        words += word + 1;
    }
}

static int parse_real(const char *text, double least, double most, double *value)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x > least) || x > most)
        return 0;
    *value = x;
    return 1;
}

/* The real number of an option, in its range, which *expected is told. */
static int store_real(const arg *a, const char *text, const char **expected)
{
    switch (a->kind) {
    case ARG_SHARE:
        *expected = "a number above 0, up to 1";
        return parse_real(text, 0, 1, a->value);
    case ARG_RIDGE:
        *expected = "a number above 0, up to 1e6";
        return parse_real(text, 0, 1e6, a->value);
    case ARG_HEAT:
        *expected = "a number from 0 to 1e6";
        return parse_real(text, -DBL_TRUE_MIN, 1e6, a->value);
    case ARG_ANY:
        *expected = "a number between -1e300 and 1e300";
        return parse_real(text, -1e300, 1e300, a->value);
    default:
        *expected = "a number above 0, up to 1e300";
        return parse_real(text, 0, 1e300, a->value);
    }
}

static int store(const arg *a, const char *text)
{
    char *end;
    int64_t count;
    const char *expected = a->takes;
    int ok = 1;
    switch (a->kind) {
    case ARG_FLAG: *(int *)a->value = 1; break;
    case ARG_INPUT:
        TRY(refuse_if(!*text, "--%s takes the name of a file, not \"\"", a->name));
        TRY(standard_input(&text));
        *(const char **)a->value = text;
        break;
    case ARG_OUTPUT:
        TRY(refuse_if(!*text, "--%s takes the name of a file, not \"\"", a->name));
        *(const char **)a->value = text;
        break;
    case ARG_TEXT: *(const char **)a->value = text; break;
    case ARG_COUNT:
    case ARG_NUMBER:
        expected = a->kind == ARG_COUNT ? "an integer from 0 to 2^63 - 1"
                                        : "an integer from 1 to 2^63 - 1";
        ok = parse_integer(text, a->kind == ARG_NUMBER, &count, &end) && !*end;
        if (ok)
            *(int64_t *)a->value = count;
        break;
    case ARG_COUNTS:
        expected = "1 to 16 integers from 1 to 2^63 - 1 with commas between them";
        ok = parse_counts(text, a->value);
        break;
    case ARG_REAL:
    case ARG_SHARE:
    case ARG_RIDGE:
    case ARG_HEAT:
    case ARG_ANY: ok = store_real(a, text, &expected); break;
    case ARG_DTYPE:
        expected = "f32, f64, c64, c128, f16 or bf16";
        ok = parse_dtype(text, a->value);
        break;
    case ARG_WORD:
        ok = args_word(a->takes, text) >= 0;
        if (ok)
            *(int *)a->value = args_word(a->takes, text);
        break;
    }
    if (!ok)
        return usage_error("--%s takes %s, not \"%s\"", a->name, expected, text);
    return ARGS_GO_ON;
}

/* ---- operands ---- */

/* "1 operand", "2 to 64 operands" */
static void count_operands(const int number[2], char *text, size_t size)
{
    int least = number[0], most = number[1];
    const char *s = &"s"[most == 1];
    if (least == most)
        snprintf(text, size, "%d operand%s", most, s);
    else if (most == INT_MAX)
        snprintf(text, size, "%d or more operands", least);
    else
        snprintf(text, size, "%d to %d operand%s", least, most, s);
}

/* Refuses too few operands, too many, and files without a name. */
static int check_operands(const usage *use, int count, char **operands)
{
    char number[64];
    count_operands(use->number, number, sizeof number);
    if (!use->number[1] && count)
        return usage_error("it takes no operands, not \"%s\" (try --help)", *operands);
    if (count < use->number[0] || count > use->number[1])
        return usage_error(
            "it takes %s (%s), and %d %s given (try --help)", number, use->operands,
            count, count == 1 ? "was" : "were");
    for (int i = 0; i < count && (!use->texts || i < use->texts); i++)
        if (!*operands[i])
            return usage_error(
                "operand %d of %s (%s) is an empty name", i + 1, sentences_command(),
                use->operands);
    return STATUS_OK;
}

/* Streams among the operands that are files. */
static int open_operands(const usage *use, int count, char **operands)
{
    int files = use->words ? 0 : use->texts ? use->texts : count;
    for (int i = 0; i < files && i < count; i++) {
        const char *path = operands[i];
        TRY(standard_input(&path));
        operands[i] = (char *)(uintptr_t)path;
    }
    return STATUS_OK;
}

/* ---- the loop ---- */

/* Values that getopt_long() returns: FIRST + row for a row of the table. */
enum { HELP = 'h', FIRST = 256 };

/* How many options begin with `name`; the first two are told. */
static int find_prefix(const char *name, size_t length, const char *found[2])
{
    int count = 0;
    for (const arg *a = rows; a->name; a++)
        if (!strncmp(a->name, name, length) && count++ < 2)
            found[count - 1] = a->name;
    if (!strncmp("help", name, length) && count++ < 2)
        found[count - 1] = "help";
    return count;
}

static int wrong_option(int option, const char *word)
{
    if (option == ':')
        return usage_error("%s needs a value", word);
    if (optopt && optopt < FIRST && optopt != HELP)
        return usage_error("there is no option -%c (try --help)", optopt);
    const char *found[2];
    int length = (int)strcspn(word, "=");
    if (optopt)
        return usage_error("%.*s takes no value", length, word);
    if (find_prefix(word + 2, (size_t)length - 2, found) > 1)
        return usage_error(
            "%.*s may be --%s or --%s: write more of it", length, word, found[0],
            found[1]);
    return usage_error("there is no option %.*s (try --help)", length, word);
}

int args_refuse(const char *names, const char *why)
{
    for (int i = 0; rows[i].name; i++) {
        const char *at = given[i] ? strstr(names, rows[i].name) : NULL;
        for (; at; at = strstr(at + 1, rows[i].name)) {
            char end = at[strlen(rows[i].name)];
            if ((at == names || at[-1] == ',') && (end == ',' || !end))
                return usage_error("--%s %s", rows[i].name, why);
        }
    }
    return STATUS_OK;
}

int args_most(const char *name, int64_t value, int64_t most)
{
    return refuse_if(
        value > most, "--%s takes an integer of at most %" PRId64 ", not %" PRId64,
        name, most, value);
}

int args_parse(const usage *use, const arg *table, int argc, char **argv, int *operands)
{
    struct option longs[MAX_ARGS + 2] = { { 0 } };
    char shorts[2 * MAX_ARGS + 4] = ":h";
    int n = 0;
    if (args_look) {
        args_look(use, table);
        return ARGS_DONE;
    }
    sentences_of(argv[0]);
    rows = table;
    memset(given, 0, sizeof given);
    for (; table[n].name && n < MAX_ARGS; n++) {
        int takes = table[n].kind != ARG_FLAG;
        longs[n] = (struct option){ table[n].name, takes, NULL, FIRST + n };
        if (table[n].letter) {
            size_t at = strlen(shorts);
            shorts[at] = table[n].letter;
            shorts[at + 1] = takes ? ':' : '\0';
        }
    }
    longs[n] = (struct option){ "help", no_argument, NULL, HELP };

    opterr = 0;
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        if (option == HELP) {
            print_help(use, table);
            return ARGS_DONE;
        }
        if (option == '?' || option == ':')
            return wrong_option(option, argv[optind - 1]);
        int row = option - FIRST;
        for (int i = 0; option < FIRST && i < n; i++)
            if (table[i].letter == option)
                row = i;
        int status = store(&table[row], optarg);
        given[row] = 1;
        if (status != ARGS_GO_ON)
            return status;
    }
    int count = argc - optind;
    if (operands)
        *operands = count;
    TRY(check_operands(use, count, argv + optind));
    memmove(argv + 1, argv + optind, (size_t)count * sizeof *argv);
    return open_operands(use, count, argv + 1);
}
