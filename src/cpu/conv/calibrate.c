/* Calibration: the constants of the model that come nearest to what windows of many
   lengths take on this machine.

   Window i has amounts a[i][j] of term j and took t[i] seconds. The constants u[j] >= 0
   minimise sum over i of (sum over j of a[i][j] u[j] / t[i] - 1)^2, one constant at a
   time, around what is built in: what the lengths do not tell stays there. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/model.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "cpu/conv/loop.h"
#include "cpu/grid.h"

#include <math.h>
#include <string.h>

#define MOST_WINDOWS 256
/* Rounds over all lengths; in each a length is timed twice, or for so many seconds. The
   least time counts, so that a machine that is slow for a while does no harm. */
#define ROUNDS  3
#define SECONDS 1e-3
/* Numbers of a trial for each thread. */
#define NUMBERS 65536
/* Lengths end where all of a window has left the last cache, and at a longest one; from
   a long one on they are fewer. */
#define MOST_POINTS ((int64_t)1 << 20)
#define LONG_POINTS ((int64_t)1 << 16)
/* How much a constant is held where it is built in, against one window. Radices come
   together in lengths: much less, and noise makes one cheap at the cost of another. */
#define HOLD 1.0
/* No constant becomes less than this share of what is built in. */
#define LEAST_SHARE 0.1
#define SWEEPS      1000

typedef struct sample {
    int64_t length, taps;
    conv_cut cut;
    double amounts[CONV_TERMS]; /* of a row */
    double seconds;             /* of a row */
} sample;

typedef struct calibration {
    cpu_device *dev;
    const conv_code *code;
    sample samples[MOST_WINDOWS];
    int count;
} calibration;

/* ---- what is measured ---- */

/* Rows that are one window of which a half is zeros or, full, several windows. */
static void add_sample(calibration *c, int64_t n, int radix, int full)
{
    conv_tables t;
    sample s = { .length = full ? 7 * n : n, .taps = full ? n / 8 : n };
    s.cut = (conv_cut){ c->code->name, n, radix };
    s.seconds = INFINITY;
    if (c->count < MOST_WINDOWS && dn_conv_shape(&t, s.cut, c->code, c->dev->l2, 0))
        c->samples[c->count++] = s;
}

/* Six lengths an octave, that have all radices. */
static void choose_samples(calibration *c)
{
    static const int eighths[] = { 8, 9, 10, 12, 14, 15 };
    int64_t unit = 4 * c->code->vector;
    double most = (double)c->dev->l3 / (14.0 * (double)c->code->size);
    for (int64_t octave = 1; octave * unit <= MIN((int64_t)most, MOST_POINTS);
         octave *= 2)
        for (int i = 0; i < 6; i++) {
            int64_t times = octave * eighths[i];
            int64_t n = times / 8 * unit;
            if (times % 8 || (n > LONG_POINTS && i % 3))
                continue;
            add_sample(c, n, i % 2 ? 4 : 8, 0);
            if (n <= LONG_POINTS)
                add_sample(c, n, i % 2 ? 8 : 4, i % 3 == 0);
        }
}

static void describe_engine(const calibration *c, const sample *s, conv_engine *e)
{
    *e = (conv_engine){ .code = c->code, .sums = c->code, .before = s->taps - 1 };
    e->machine = dn_conv_machine(c->dev);
    e->p = (conv_problem){
        .channels = 1,
        .filters = 1,
        .length = s->length,
        .filter_length = s->taps,
        .dtype = c->code->dtype,
    };
}

static danaus_status time_sample(calibration *c, sample *s)
{
    conv_engine e;
    conv_trial trial = { 0 };
    double seconds;
    describe_engine(c, s, &e);
    int64_t windows = dn_conv_windows(&e, s->cut.n);
    TRY(dn_conv_use(c->dev, &e, s->cut, windows, 0));
    dn_conv_amounts(&e, e.tables, windows, s->amounts);
    danaus_status status =
        dn_conv_trial_open(c->dev, &e, NUMBERS * (int64_t)c->dev->threads, &trial);
    double begin = dn_seconds();
    for (int i = 0; !status && (i < 2 || dn_seconds() - begin < SECONDS); i++) {
        status = dn_conv_trial_run(&trial, &seconds);
        s->seconds = fmin(s->seconds, seconds);
    }
    dn_conv_trial_close(&trial);
    dn_conv_tables_destroy(e.tables);
    return status;
}

/* ---- the fit ---- */

/* The constant j that is best for the others, above its least value. */
static double best_constant(
    const calibration *c, const double *units, const double *built, int j)
{
    double above = HOLD / built[j], below = HOLD / (built[j] * built[j]);
    for (int i = 0; i < c->count; i++) {
        const sample *s = &c->samples[i];
        double rest = 1, own = s->amounts[j] / s->seconds;
        for (int k = 0; k < CONV_TERMS; k++)
            rest -= k == j ? 0 : s->amounts[k] / s->seconds * units[k];
        above += own * rest;
        below += own * own;
    }
    return fmax(above / below, LEAST_SHARE * built[j]);
}

/* What is built in, times one factor that suits this machine. */
static void scale(const calibration *c, double built[CONV_TERMS])
{
    double logs = 0;
    for (int i = 0; i < c->count; i++) {
        double seconds = 0;
        for (int j = 0; j < CONV_TERMS; j++)
            seconds += c->samples[i].amounts[j] * built[j];
        logs += log(c->samples[i].seconds / seconds);
    }
    for (int j = 0; j < CONV_TERMS; j++)
        built[j] *= exp(logs / c->count);
}

static void fit(const calibration *c, double units[CONV_TERMS])
{
    double built[CONV_TERMS];
    memcpy(built, units, sizeof built);
    scale(c, built);
    memcpy(units, built, sizeof built);
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int j = 0; j < CONV_TERMS; j++)
            units[j] = best_constant(c, units, built, j);
}

/* ---- the call ---- */

typedef struct listener {
    danaus_progress_fn progress;
    void *user;
} listener;

static danaus_status report(const listener *to, double done)
{
    if (to->progress && to->progress(to->user, done))
        return dn_fail(DANAUS_ERR_ARGUMENT, "the caller gave up");
    return DANAUS_OK;
}

/* Type number `index` of the two. */
static danaus_status calibrate_type(
    cpu_device *dev, danaus_dtype sums, int index, const listener *to,
    conv_model *model)
{
    calibration *c = dn_calloc(1, sizeof *c);
    if (!c)
        return dn_fail_memory(sizeof *c, "times of windows");
    c->dev = dev;
    c->code = dn_conv_code(dev, sums);
    choose_samples(c);
    danaus_status status = DANAUS_OK;
    int all = ROUNDS * c->count;
    for (int i = 0; i < all && !status; i++) {
        status = report(to, (index + (double)i / all) / 2);
        status = status ? status : time_sample(c, &c->samples[i % c->count]);
    }
    *model = dn_conv_model(dev, c->code);
    if (!status)
        fit(c, model->second);
    dn_free(c);
    return status;
}

static void keep(cpu_device *dev, danaus_dtype sums, const conv_model *m)
{
    for (int i = 0; i < CONV_TERMS; i++) {
        conv_constant c =
            dn_conv_constant((conv_term)i, dn_conv_code(dev, sums)->vector);
        double value = c.name == TUNING_WINDOW || c.name == TUNING_BLOCK
                           ? m->second[i]
                           : 1 / m->second[i];
        dn_tuning_add_constant(dev->base.tuning, sums, c.name, c.of, value);
    }
}

danaus_status dn_cpu_conv_calibrate(
    danaus_device *dev, danaus_progress_fn progress, void *user)
{
    static const danaus_dtype sums[] = { DANAUS_F32, DANAUS_F64 };
    cpu_device *d = (cpu_device *)dev;
    conv_model models[2];
    listener to = { progress, user };
    for (int i = 0; i < 2; i++)
        TRY(calibrate_type(d, sums[i], i, &to, &models[i]));
    for (int i = 0; i < 2; i++)
        keep(d, sums[i], &models[i]);
    return DANAUS_OK;
}
