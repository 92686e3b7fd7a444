/* Records of danaus-bench conv. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/program/conv_records.h"

#include "common/report.h"
#include "common/timing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void conv_record_print(const json_t *record)
{
    const char *kind, *extras;
    json_int_t length, taps, batch, channels;
    double seconds, error;
    json_t *fftw, *plain;
    json_unpack(
        (json_t *)record, "{s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:o}", "kind",
        &kind, "extras", &extras, "length", &length, "taps", &taps, "batch", &batch,
        "channels", &channels, "seconds", &seconds, "error", &error, "fftw_ratio",
        &fftw, "plain_ratio", &plain);
    printf(
        "%-13s %-5s %9" JSON_INTEGER_FORMAT " %9" JSON_INTEGER_FORMAT
        " %4" JSON_INTEGER_FORMAT " x %-4" JSON_INTEGER_FORMAT " %10.3f us/row  %.1e",
        kind, extras, length, taps, batch, channels,
        1e6 * seconds / (double)(batch * channels), error);
    if (json_is_real(fftw))
        printf("  %5.2f x FFTW", json_real_value(fftw));
    if (json_is_real(plain))
        printf("  %5.2f of the plain form's time", json_real_value(plain));
    if (json_is_real(json_object_get(record, "model_ratio")))
        printf(
            "  %5.2f of the time of the model's choice",
            1 / json_real_value(json_object_get(record, "model_ratio")));
    putchar('\n');
    fflush(stdout);
}

/* The numbers of a field, in order; returns how many there are. */
static size_t sorted_field(const json_t *records, const char *field, double *to)
{
    size_t count = 0, i;
    json_t *record;
    json_array_foreach(records, i, record)
    {
        json_t *value = json_object_get(record, field);
        if (json_is_real(value))
            to[count++] = json_real_value(value);
    }
    sort_numbers(to, count);
    return count;
}

json_t *conv_records_summarise(const json_t *records)
{
    double *ratios = malloc((json_array_size(records) + 1) * sizeof *ratios);
    if (!ratios)
        return json_object();
    size_t count = sorted_field(records, "fftw_ratio", ratios);
    json_t *summary = json_pack(
        "{s:i, s:o, s:o}", "compared", (int)count, "median_ratio",
        json_number(count ? ratios[count / 2] : NAN), "least_ratio",
        json_number(count ? ratios[0] : NAN));
    count = sorted_field(records, "model_ratio", ratios);
    json_object_set_new(
        summary, "median_model_ratio", json_number(count ? ratios[count / 2] : NAN));
    json_object_set_new(
        summary, "greatest_model_ratio", json_number(count ? ratios[count - 1] : NAN));
    free(ratios);
    return summary;
}

void conv_summary_print(const json_t *summary)
{
    if (json_integer_value(json_object_get(summary, "compared")))
        printf(
            "times faster than FFTW: median %.2f, least %.2f\n",
            json_number_value(json_object_get(summary, "median_ratio")),
            json_number_value(json_object_get(summary, "least_ratio")));
    if (json_is_real(json_object_get(summary, "median_model_ratio")))
        printf(
            "time of the model's choice over the measured one's: median %.2f, greatest "
            "%.2f\n",
            json_number_value(json_object_get(summary, "median_model_ratio")),
            json_number_value(json_object_get(summary, "greatest_model_ratio")));
}
