/* An echo, once as a whole and once as it comes: both give the same sound. */
// SPDX-License-Identifier: Apache-2.0
#include <danaus/danaus.h>
#include <stdio.h>

#define LENGTH 48000 /* a second */
#define TAPS   12000
#define BLOCK  64

int main(void)
{
    static float u[LENGTH], k[TAPS], y[LENGTH], streamed[LENGTH];
    danaus_conv_desc desc = { .channels = 1, .length = LENGTH, .filter_length = TAPS };
    danaus_stream_desc stream_desc = { .channels = 1, .filter_length = TAPS };
    danaus_device *device = NULL;
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    danaus_stream *stream = NULL;
    u[100] = 1;              /* a click */
    k[0] = 1, k[9600] = 0.5; /* and what a wall makes of it */

    int failed = danaus_device_open("cpu", &device) ||
                 danaus_conv_plan_create(device, &desc, &plan) ||
                 danaus_spectrum_create(plan, device, k, NULL, NULL, &spectrum) ||
                 danaus_conv_execute(plan, device, spectrum, 1, u, NULL, NULL, y) ||
                 danaus_stream_create(device, &stream_desc, k, &stream);
    for (int t = 0; !failed && t < LENGTH; t += BLOCK)
        failed = danaus_stream_run(stream, device, BLOCK, u + t, streamed + t);

    float difference = 0;
    for (int t = 0; t < LENGTH; t++)
        if ((y[t] - streamed[t]) * (y[t] - streamed[t]) > difference)
            difference = (y[t] - streamed[t]) * (y[t] - streamed[t]);
    if (failed)
        fprintf(stderr, "%s\n", danaus_error_detail());
    else
        printf(
            "%.3f at 100, %.3f at 9700; as it comes, squares differ by %.0e\n", y[100],
            y[9700], difference);
    danaus_stream_destroy(stream);
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
    danaus_device_close(device);
    return failed || difference > 1e-10f;
}
