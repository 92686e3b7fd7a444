/* What every row of a device's table takes for each problem of a suite, and what it is
   estimated to take:

       rows DEVICE SUITE.csv TYPES LAYOUTS BATCHES OUT.csv [SECONDS [NAMES [OVER]]]

   Lists have commas: f16,bf16,tf32,f32,f64 and first,last. Problems of several factors are
   passed over, as are rows that do not compile, whose names match none of the patterns NAMES
   ("ks.simt.*"), or whose estimates are more than OVER (40) times the least one. A line has the
   problem, the row, both times, and the bytes of x and y and the operations of the product, by
   which a limit can be told. It uses what the library keeps for itself, so it is linked with
   the archive. */
// SPDX-License-Identifier: Apache-2.0
#include "common/suite.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "math/pattern.h"
#include "product/planner.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 4096 /* that are compiled together */
#define MOST_LIST 8

typedef struct type {
    const char *name;
    danaus_dtype dtype;
    danaus_math math;
} type;

static const char *names_asked[MOST_LIST] = { "*" };
static int asked_count = 1;
static double over = 40;

static const type types[] = {
    { "f32", DANAUS_F32, DANAUS_MATH_F32 }, { "tf32", DANAUS_F32, DANAUS_MATH_TF32 },
    { "f16", DANAUS_F16, DANAUS_MATH_F32 }, { "bf16", DANAUS_BF16, DANAUS_MATH_F32 },
    { "f64", DANAUS_F64, DANAUS_MATH_F32 },
};

typedef struct form {
    const type *type;
    danaus_layout layout;
    int64_t batch;
} form;

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "rows: %s: %s\n", what, why);
    exit(1);
}

/* The words of a list. */
static int words_of(char *list, const char *words[MOST_LIST])
{
    int count = 0;
    for (char *w = strtok(list, ","); w; w = strtok(NULL, ",")) {
        if (count == MOST_LIST)
            stop(w, "too many words in a list");
        words[count++] = w;
    }
    return count;
}

static const type *type_of(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, name))
            return &types[i];
    stop(name, "no such type");
    return NULL;
}

static danaus_layout layout_of(const char *name)
{
    int last = !strcmp(name, "last");
    if (!last && strcmp(name, "first"))
        stop(name, "a layout is first or last");
    return last ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
}

static int64_t batch_of(const char *text)
{
    int64_t batch = strtoll(text, NULL, 10);
    if (batch < 1)
        stop(text, "a batch is at least 1");
    return batch;
}

static problem problem_of(const suite_problem *s, const form *f)
{
    return (problem){ .pattern = s->patterns[0],
                      .dtype = f->type->dtype,
                      .math = f->type->math,
                      .layout = f->layout,
                      .batch = f->batch };
}

static int is_asked(danaus_device *dev, const kernel *k, const problem *p)
{
    for (int i = 0; i < asked_count; i++)
        if (!fnmatch(names_asked[i], k->name, 0))
            return dn_is_usable(dev, k, p);
    return 0;
}

/* Appends the rows that are worth a measurement. */
static int add_rows(danaus_device *dev, const problem *p, ks_step *steps, int count)
{
    double least = INFINITY;
    for (const kernel *k = dev->kernels; k->name; k++)
        if (is_asked(dev, k, p))
            least = fmin(least, dn_cost(dev, k, p));
    for (const kernel *k = dev->kernels; k->name && count < MOST_ROWS; k++)
        if (is_asked(dev, k, p) && dn_cost(dev, k, p) <= over * least)
            steps[count++] = dn_step(k, p);
    return count;
}

static void write_row(
    FILE *out, danaus_device *dev, const form *f, const ks_step *step, double seconds)
{
    const problem *p = &step->p;
    danaus_pattern q = p->pattern;
    double batch = (double)p->batch;
    double moved = batch * (double)(dn_pattern_rows(q) + dn_pattern_cols(q)) *
                   (double)dn_size_of(p->dtype);
    fprintf(
        out,
        "\"%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "\",%s,%s,%" PRId64
        ",%s,%.0f,%.0f,%.0f,%.0f\n",
        q.a, q.b, q.c, q.d, f->type->name,
        p->layout == DANAUS_BATCH_LAST ? "last" : "first", p->batch, step->kernel->name,
        1e9 * dn_cost(dev, step->kernel, p), 1e9 * seconds, moved,
        2 * batch * (double)dn_pattern_weights(q));
    fflush(out);
}

/* All problems of a suite in one form. */
static void run_form(
    danaus_device *dev, const suite *s, const form *f, FILE *out, double until)
{
    static ks_step steps[MOST_ROWS];
    int count = 0;
    for (int i = 0; i < s->count; i++)
        if (s->problems[i].count == 1) {
            problem p = problem_of(&s->problems[i], f);
            count = add_rows(dev, &p, steps, count);
        }
    if (dn_prepare_steps(dev, steps, &count))
        stop("compiling", danaus_error_detail());
    printf("%s, %d rows compiled\n", f->type->name, count);
    for (int i = 0; i < count && dn_seconds() < until; i++) {
        double seconds;
        if (dn_measure(dev, &steps[i], 1, &seconds))
            fprintf(stderr, "%s: %s\n", steps[i].kernel->name, danaus_error_detail());
        else
            write_row(out, dev, f, &steps[i], seconds);
    }
}

int main(int argc, char **argv)
{
    if (argc < 7) {
        fputs(
            "rows DEVICE SUITE.csv TYPES LAYOUTS BATCHES OUT.csv [SECONDS [NAMES "
            "[OVER]]]\n",
            stderr);
        return 2;
    }
    const char *names[MOST_LIST], *layouts[MOST_LIST], *batches[MOST_LIST];
    int name_count = words_of(argv[3], names),
        layout_count = words_of(argv[4], layouts);
    int batch_count = words_of(argv[5], batches);
    double until = dn_seconds() + (argc > 7 ? atof(argv[7]) : 1e9);
    if (argc > 8)
        asked_count = words_of(argv[8], names_asked);
    if (argc > 9)
        over = atof(argv[9]);
    danaus_device *dev;
    suite s;
    if (suite_read(argv[2], &s))
        return 1;
    if (danaus_device_open(argv[1], &dev))
        stop(argv[1], danaus_error_detail());
    FILE *out = fopen(argv[6], "w");
    if (!out)
        stop(argv[6], "cannot be written");
    fputs(
        "problem,dtype,layout,batch,kernel,estimate_ns,median_ns,bytes,operations\n",
        out);
    for (int n = 0; n < name_count * layout_count * batch_count; n++) {
        form f = { type_of(names[n % name_count]),
                   layout_of(layouts[n / name_count % layout_count]),
                   batch_of(batches[n / name_count / layout_count]) };
        run_form(dev, &s, &f, out, until);
    }
    fclose(out);
    suite_free(&s);
    danaus_device_close(dev);
    return 0;
}
