/* Calibration: the constants of the cost model that best fit the times of windows of many
   lengths on this machine.

   Window i has amounts a[i][j] of term j and took t[i] seconds. The constants u[j] >= 0
   minimise sum over i of (sum over j of a[i][j] u[j] / t[i] - 1)^2, one constant at a
   time, starting from the built-in values. Constants that the times do not determine keep
   those values. */
// SPDX-License-Identifier: Apache-2.0
#include "conv/conv_plan.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "device/tuning.h"

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
/* No constant becomes less than this share of its built-in value. */
#define LEAST_SHARE 0.1
#define SWEEPS      1000

typedef struct sample {
    conv_problem p;
    conv_frame frame;
    conv_work work; /* of a row */
    double seconds; /* of a row */
} sample;

typedef struct conv_calibration {
    danaus_device *dev;
    const conv_kernel *kernel;
    int terms;
    sample samples[MOST_WINDOWS];
    int count;
} conv_calibration;

/* ---- samples ---- */

/* Rows that are one window with a half of zeros or, if `full`, several windows. */
static void add_sample(conv_calibration *c, int64_t n, int radix, int full)
{
    sample s = { .seconds = INFINITY };
    s.p = (conv_problem){
        .channels = 1,
        .filters = 1,
        .length = full ? 7 * n : n,
        .filter_length = full ? n / 8 : n,
        .dtype = c->kernel->dtype,
    };
    s.frame = dn_conv_reach(&s.p);
    s.frame = dn_conv_cut_rows(&s.frame, (conv_cut){ c->kernel, n, radix });
    if (c->count < MOST_WINDOWS &&
        c->dev->backend->conv->work(c->dev, &s.frame, 0, &s.work))
        c->samples[c->count++] = s;
}

/* Six lengths an octave, that have all radices. */
static void choose_samples(conv_calibration *c, int64_t cache)
{
    static const int eighths[] = { 8, 9, 10, 12, 14, 15 };
    int64_t unit = c->kernel->unit;
    double most = (double)cache / (14.0 * (double)danaus_dtype_size(c->kernel->dtype));
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

static danaus_status time_sample(const conv_calibration *c, sample *s)
{
    conv_trial trial;
    double seconds;
    TRY(dn_conv_trial_open(c->dev, &s->p, &s->frame, NUMBERS, &trial));
    double begin = dn_seconds();
    danaus_status status = DANAUS_OK;
    for (int i = 0; !status && (i < 2 || dn_seconds() - begin < SECONDS); i++) {
        status = dn_conv_trial_run(&trial, &seconds);
        s->seconds = status ? s->seconds : fmin(s->seconds, seconds);
    }
    dn_conv_trial_close(&trial);
    return status;
}

/* ---- the fit ---- */

/* The constant j that is best for the others, above its least value. */
static double best_constant(
    const conv_calibration *c, const double *units, const double *built, int j)
{
    double above = HOLD / built[j], below = HOLD / (built[j] * built[j]);
    for (int i = 0; i < c->count; i++) {
        const sample *s = &c->samples[i];
        double rest = 1, own = s->work.amount[j] / s->seconds;
        for (int k = 0; k < c->terms; k++)
            rest -= k == j ? 0 : s->work.amount[k] / s->seconds * units[k];
        above += own * rest;
        below += own * own;
    }
    return fmax(above / below, LEAST_SHARE * built[j]);
}

/* Multiplies the built-in constants by one factor for this machine. */
static void scale(const conv_calibration *c, double built[CONV_MOST_TERMS])
{
    double logs = 0;
    for (int i = 0; i < c->count; i++) {
        double seconds = 0;
        for (int j = 0; j < c->terms; j++)
            seconds += c->samples[i].work.amount[j] * built[j];
        logs += log(c->samples[i].seconds / seconds);
    }
    for (int j = 0; j < c->terms; j++)
        built[j] *= exp(logs / c->count);
}

static void fit(const conv_calibration *c, conv_model *model)
{
    double built[CONV_MOST_TERMS], units[CONV_MOST_TERMS];
    for (int j = 0; j < c->terms; j++)
        built[j] = model->term[j].second;
    scale(c, built);
    memcpy(units, built, sizeof units);
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int j = 0; j < c->terms; j++)
            units[j] = best_constant(c, units, built, j);
    for (int j = 0; j < c->terms; j++)
        model->term[j].second = units[j];
}

/* ---- the call ---- */

typedef struct listener {
    danaus_progress_fn progress;
    void *user;
} listener;

static danaus_status report(const listener *to, double done)
{
    if (to->progress && to->progress(to->user, done))
        return dn_fail(DANAUS_ERR_CANCELLED, "the caller gave up");
    return DANAUS_OK;
}

#define TYPES 2

/* Type number `index` of sums. */
static danaus_status calibrate_kernel(
    danaus_device *dev, const conv_kernel *k, int index, const listener *to,
    conv_model *model)
{
    danaus_device_info info;
    TRY(danaus_device_describe(dev, &info));
    conv_calibration *c = dn_calloc(1, sizeof *c);
    if (!c)
        return dn_fail_memory(sizeof *c, "times of windows");
    *model = dn_conv_model(dev, k);
    c->dev = dev;
    c->kernel = k;
    c->terms = model->count;
    choose_samples(c, info.cache);
    danaus_status status = DANAUS_OK;
    int all = ROUNDS * c->count;
    for (int i = 0; i < all && !status; i++) {
        status = report(to, (index + (double)i / all) / TYPES);
        status = status ? status : time_sample(c, &c->samples[i % c->count]);
    }
    if (!status && c->count)
        fit(c, model);
    dn_free(c);
    return status;
}

danaus_status danaus_device_calibrate(
    danaus_device *device, danaus_progress_fn progress, void *user)
{
    static const danaus_dtype sums[TYPES] = { DANAUS_F32, DANAUS_F64 };
    if (!device)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a device is needed");
    TRY(dn_conv_need(device, terms, "model of convolutions"));
    if (!device->backend->on_host)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "only processors are calibrated: what convolutions cost on %s follows from "
            "what it is (danaus tune conv measures them there)",
            device->name);
    conv_model models[TYPES] = { { 0 } };
    listener to = { progress, user };
    for (int i = 0; i < TYPES; i++) {
        int first = 0;
        const conv_kernel *k = dn_conv_next_kernel(device, sums[i], &first);
        if (k)
            TRY(calibrate_kernel(device, k, i, &to, &models[i]));
    }
    for (int i = 0; i < TYPES; i++)
        for (int j = 0; j < models[i].count; j++) {
            const conv_term *t = &models[i].term[j];
            dn_tuning_add_constant(
                device->tuning, sums[i], t->constant, t->of,
                dn_conv_is_rate(t) ? 1 / t->second : t->second);
        }
    return DANAUS_OK;
}
