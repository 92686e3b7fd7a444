/* Compares the times of two builds of the library, in turns in one process.

       versus [OPTIONS] OLD.so NEW.so SUITE.csv

   Both are loaded side by side and work on the same arrays. A round of a problem is
   old, new, new, old: a machine that slows down does so for both. A turn is as many
   calls as fill its time, after one that is not timed; arrays rotate through 256 MiB
   where that takes at most four sets of them, and a GPU is waited for at a turn's end.
   A record has the medians over rounds of both times and of new / old, the ratio of the
   least times, which a busy machine leaves alone, and whether both have made the same
   bits. With one thread of a CPU its own time counts, not the clock's.

   A suite holds products, "a,b,c,d ...",batch, or convolutions (bench/suites/conv.csv).
   The program needs the two libraries alone, and is made without the build by

       cc -O2 -D_GNU_SOURCE -Iinclude -I. bench/versus/versus.c bench/versus/work.c -ldl */
// SPDX-License-Identifier: Apache-2.0
#include "bench/versus/work.h"

#include <dlfcn.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_LIST   8
#define MOST_ROUNDS 1000
#define LONG_CALL   0.01 /* seconds: warm without a call before */

static const type types[] = {
    { "f32", DANAUS_F32, DANAUS_MATH_F32 }, { "tf32", DANAUS_F32, DANAUS_MATH_TF32 },
    { "f16", DANAUS_F16, DANAUS_MATH_F32 }, { "bf16", DANAUS_BF16, DANAUS_MATH_F32 },
    { "f64", DANAUS_F64, DANAUS_MATH_F32 },
};
static const char *const layouts[] = { "first", "last" };

static const char *layout_of(const problem *p)
{
    return p->count ? layouts[p->last] : "";
}

static struct {
    const char *device;
    char *types, *layouts, *batches;
    int threads, rounds, gradients;
    double seconds;
} options = { "cpu", NULL, NULL, NULL, 0, 7, 0, 0.3 };

static void stop(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("versus: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    exit(2);
}

static library open_library(const char *path, void **handle)
{
    static const struct {
        const char *name;
        size_t offset;
    } calls[] = {
#define X(name) { "danaus_" #name, offsetof(library, name) },
#include "bench/versus/calls.def"
#undef X
    };
    library lib = { 0 };
    /* A library looks for its own names in the program first, then in itself. */
    if (dlsym(RTLD_DEFAULT, "danaus_version"))
        stop("a library is loaded already (LD_PRELOAD?)");
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*handle)
        stop("%s", dlerror());
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *at = dlsym(*handle, calls[i].name);
        if (!at)
            stop("%s has no %s", path, calls[i].name);
        memcpy((char *)&lib + calls[i].offset, &at, sizeof at);
    }
    if (lib.device_open(options.device, &lib.device) ||
        (options.threads && lib.device_set_threads(lib.device, options.threads)))
        stop("%s: %s", path, lib.error_detail());
    return lib;
}

/* ---- measuring ---- */

static int by_value(const void *p, const void *q)
{
    double x = *(const double *)p, y = *(const double *)q;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* Warms both up and finds how many calls fill a turn. */
static int64_t calls_of_turn(job jobs[2])
{
    double least = 1e300, spent = 0;
    for (int64_t calls = 1; spent < 0.04 && calls < 1 << 20; calls *= 2)
        for (int i = 0; i < 2; i++) {
            double time = turn(&jobs[i], calls);
            spent += time * (double)calls;
            least = time < least ? time : least;
        }
    return (int64_t)(options.seconds / (4 * options.rounds) / least) + 1;
}

/* The ratios new / old of all problems, of median times and of least times. */
static struct {
    double *ratios[2], worst[2];
    char names[2][320];
    int count, failed;
} total;

static void keep(const problem *p, double ratio, double least)
{
    int n = total.count++;
    for (int i = 0; i < 2; i++) {
        double value = i ? least : ratio;
        total.ratios[i] = realloc(total.ratios[i], (size_t)(n + 1) * sizeof(double));
        if (!total.ratios[i])
            stop("no memory");
        total.ratios[i][n] = value;
        if (value > total.worst[i]) {
            total.worst[i] = value;
            snprintf(
                total.names[i], sizeof *total.names, "%s, %s %s, %lld", p->name,
                p->type->name, layout_of(p), (long long)p->batch);
        }
    }
}

static void summarise(void)
{
    static const char *const of[] = { "median", "least" };
    for (int i = 0; total.count && i < 2; i++) {
        double middle = median(total.ratios[i], total.count);
        printf(
            "# %d problems, %d failed; new / old of %s times: median %.3f, worst %.3f "
            "(%s)\n",
            total.count, total.failed, of[i], middle, total.worst[i], total.names[i]);
        free(total.ratios[i]);
    }
}

/* Prints the record and keeps new / old; 0 if a call fails. */
static int measure(const problem *p, job jobs[2])
{
    static double times[2][MOST_ROUNDS], ratios[MOST_ROUNDS];
    static const int order[] = { 0, 1, 1, 0 };
    double least[2] = { 1e300, 1e300 };
    int same = result(&jobs[0]) == result(&jobs[1]);
    int64_t calls = calls_of_turn(jobs);
    for (int r = 0; r < options.rounds; r++) {
        times[0][r] = times[1][r] = 0;
        for (int i = 0; i < 4; i++) {
            job *j = &jobs[order[i]];
            if (least[order[i]] < LONG_CALL || calls > 1)
                turn(j, 1);
            double time = turn(j, calls);
            times[order[i]][r] += time / 2;
            least[order[i]] = time < least[order[i]] ? time : least[order[i]];
        }
        ratios[r] = times[1][r] / times[0][r];
    }
    if (jobs[0].failed || jobs[1].failed)
        return 0;
    double ratio = median(ratios, options.rounds);
    keep(p, ratio, least[1] / least[0]);
    printf(
        "\"%s\",%s,%s,%lld,%.2f,%.2f,%.3f,%.3f,%s\n", p->name, p->type->name,
        layout_of(p), (long long)p->batch, 1e6 * median(times[0], options.rounds),
        1e6 * median(times[1], options.rounds), ratio, least[1] / least[0],
        same ? "yes" : "no");
    fflush(stdout);
    return 1;
}

static void compare(library libs[2], const problem *p)
{
    arrays a = { 0 };
    job jobs[2] = { { .lib = &libs[0], .p = p, .a = &a },
                    { .lib = &libs[1], .p = p, .a = &a } };
    int ok = make_arrays(&libs[0], p, &a), at = 0;
    for (int i = 0; ok && i < 2; i++) {
        at = i;
        ok = prepare(&jobs[i]);
        if (ok)
            turn(&jobs[i], 1);
        ok = ok && !jobs[i].failed;
    }
    if (!ok || !measure(p, jobs)) {
        total.failed++;
        fprintf(
            stderr, "versus: %s, %s %s, %lld: %s\n", p->name, p->type->name,
            layout_of(p), (long long)p->batch, libs[at].error_detail());
    }
    for (int i = 0; i < 2; i++)
        release(&jobs[i]);
    free_arrays(&libs[0], &a);
}

/* ---- suites ---- */

/* The words of a list with commas between, which is cut up. */
static int split(char *list, char *words[MOST_LIST])
{
    int count = 0;
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
        if (count == MOST_LIST)
            stop("a list has at most %d words", MOST_LIST);
        words[count++] = word;
    }
    return count;
}

static void choose_types(char *list, const type *chosen[MOST_LIST], int *count)
{
    char *words[MOST_LIST];
    *count = split(list, words);
    for (int i = 0; i < *count; i++) {
        chosen[i] = NULL;
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            if (!strcmp(words[i], types[t].name))
                chosen[i] = &types[t];
        if (!chosen[i])
            stop("\"%s\" is no type", words[i]);
    }
}

static int read_product(library *lib, const char *line, problem *p)
{
    long long batch;
    if (sscanf(line, "\"%255[^\"]\",%lld", p->name, &batch) != 2 ||
        lib->patterns_parse(p->name, p->patterns, DANAUS_MAX_FACTORS, &p->count))
        return 0;
    danaus_pattern first = p->patterns[0], last = p->patterns[p->count - 1];
    p->batch = batch;
    p->rows = first.a * first.b * first.d;
    p->cols = last.a * last.c * last.d;
    for (int i = 0; i < p->count; i++) {
        danaus_pattern q = p->patterns[i];
        p->parameters += q.a * q.b * q.c * q.d;
    }
    return 1;
}

static int read_convolution(const char *line, problem *p)
{
    static const char *const kinds[] = { "causal", "circular", "bidirectional" };
    char kind[16], extras[8];
    long long length, taps, channels, batch;
    if (sscanf(
            line, "%15[a-z],%lld,%lld,%lld,%lld,%7[a-z]", kind, &length, &taps, &batch,
            &channels, extras) != 6)
        return 0;
    for (int i = 0; i < 3; i++)
        if (!strcmp(kind, kinds[i]))
            p->conv.kind = (danaus_conv_kind)i;
    p->conv.channels = channels;
    p->conv.length = length;
    p->conv.filter_length = taps;
    p->rows = p->cols = channels * length;
    p->parameters = channels * taps;
    p->batch = batch;
    p->gated = !strcmp(extras, "gated");
    for (int i = 0; i < 2; i++)
        p->conv.keep[i] = strcmp(extras, "sparse") ? 0 : 4;
    snprintf(
        p->name, sizeof p->name, "%s %lld %lld x %lld %s", kind, length, taps, channels,
        extras);
    return 1;
}

/* A line's problem in every type, layout and batch that was asked for. */
static void compare_all(library libs[2], problem *p, const int64_t *batches, int count)
{
    static const type *chosen[MOST_LIST];
    static int type_count;
    if (!type_count)
        choose_types(options.types, chosen, &type_count);
    int64_t own = p->batch;
    for (int t = 0; t < type_count; t++)
        for (p->last = 0; p->last < (p->count ? 2 : 1); p->last++)
            for (int i = 0; i < (count ? count : 1); i++) {
                p->type = chosen[t];
                p->gradients = options.gradients;
                p->alone = options.threads == 1 && !strncmp(options.device, "cpu", 3);
                p->batch = p->conv.batch = count ? batches[i] : own;
                p->conv.dtype = p->type->dtype;
                if (strstr(options.layouts, layout_of(p)))
                    compare(libs, p);
            }
}

static void run_suite(library libs[2], const char *path)
{
    char line[4096], *words[MOST_LIST];
    int64_t batches[MOST_LIST];
    int count = options.batches ? split(options.batches, words) : 0;
    for (int i = 0; i < count; i++)
        if ((batches[i] = atoll(words[i])) < 1)
            stop("\"%s\" is no batch", words[i]);
    FILE *file = fopen(path, "r");
    if (!file)
        stop("%s cannot be read", path);
    puts("problem,type,layout,batch,old_us,new_us,ratio,least_ratio,same_bits");
    while (fgets(line, sizeof line, file)) {
        if (strchr("#\r\n", *line) || !strncmp(line, "problem", 7) ||
            !strncmp(line, "kind", 4))
            continue;
        problem p = { 0 };
        if (!(*line == '"' ? read_product(&libs[0], line, &p)
                           : read_convolution(line, &p)))
            stop("%s: what is this? %s", path, line);
        compare_all(libs, &p, batches, count);
    }
    fclose(file);
}

static void read_options(int count, char **words)
{
    static const struct option known[] = {
        { "device", 1, 0, 'd' },  { "types", 1, 0, 't' },     { "layouts", 1, 0, 'l' },
        { "batches", 1, 0, 'b' }, { "threads", 1, 0, 'n' },   { "seconds", 1, 0, 's' },
        { "rounds", 1, 0, 'r' },  { "gradients", 0, 0, 'g' }, { 0 },
    };
    static char f32[] = "f32", both[] = "first,last";
    options.types = f32;
    options.layouts = both;
    for (int c; (c = getopt_long(count, words, "", known, NULL)) != -1;)
        switch (c) {
        case 'd': options.device = optarg; break;
        case 't': options.types = optarg; break;
        case 'l': options.layouts = optarg; break;
        case 'b': options.batches = optarg; break;
        case 'n': options.threads = atoi(optarg); break;
        case 's': options.seconds = atof(optarg); break;
        case 'r': options.rounds = atoi(optarg); break;
        case 'g': options.gradients = 1; break;
        default: exit(2);
        }
    if (count - optind != 3 || options.rounds < 1 || options.rounds > MOST_ROUNDS)
        stop(
            "versus [--device D] [--types f32,...] [--layouts first,last]\n"
            "       [--batches N,...] [--threads N] [--seconds S] [--rounds 1..%d]\n"
            "       [--gradients] OLD.so NEW.so SUITE.csv",
            MOST_ROUNDS);
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    void *handles[2];
    library libs[2];
    for (int i = 0; i < 2; i++)
        libs[i] = open_library(argv[optind + i], &handles[i]);
    if (handles[0] == handles[1])
        stop("the two libraries are one file: compare with a copy of it");
    run_suite(libs, argv[optind + 2]);
    summarise();
    for (int i = 0; i < 2; i++)
        libs[i].device_close(libs[i].device);
    return total.failed > 0;
}
