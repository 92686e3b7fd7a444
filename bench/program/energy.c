/* The energy of a product: calls follow each other, and the device's counter is read
   every few milliseconds. It moves in steps, so that a window reaches from one step to
   the first one half a second later. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/program/energy.h"

#include "common/args.h"
#include "common/timing.h"
#include "bench/program/measure.h"

#include <stdlib.h>

#define WINDOWS 5
#define WINDOW  0.5   /* seconds, at least */
#define STILL   5.0   /* seconds after which a counter that does not move is broken */
#define SAMPLE  0.005 /* seconds of calls between two looks */

typedef struct meter {
    danaus_device *device;
    const runner *one;
    const rotation *r;
    int64_t at;    /* of the copies */
    double joules; /* at the latest step of the counter */
    int64_t calls; /* up to it, from the one before */
} meter;

/* Runs until the first step of the counter that is `least` seconds after the last. */
static int run_to_step(meter *m, double least)
{
    double joules = m->joules, start = seconds_now();
    int64_t calls = (int64_t)(SAMPLE / m->one->median) + 1, made = 0;
    for (;;) {
        time_calls(m->one, m->r, calls, &m->at);
        made += calls;
        double before = joules, spent = seconds_now() - start;
        if (danaus_device_energy(m->device, &joules))
            return library_failure();
        if (joules > before && spent >= least) {
            m->joules = joules;
            m->calls = made;
            return STATUS_OK;
        }
        if (spent > least + STILL)
            return failure("the device's energy counter stands still");
    }
}

int energy_of(
    danaus_device *device, const runner *one, const rotation *r, double *joules)
{
    meter m = { .device = device, .one = one, .r = r };
    double each[WINDOWS];
    if (danaus_device_energy(device, &m.joules))
        return library_failure();
    int status = run_to_step(&m, 0);
    for (int i = 0; i < WINDOWS && !status; i++) {
        double before = m.joules;
        status = run_to_step(&m, WINDOW);
        each[i] = (m.joules - before) / (double)m.calls;
    }
    if (status)
        return status;
    sort_numbers(each, WINDOWS);
    *joules = each[WINDOWS / 2];
    return STATUS_OK;
}
