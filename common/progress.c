/* A progress bar on standard error. */
// SPDX-License-Identifier: Apache-2.0
#include "common/progress.h"

#include <stdio.h>
#include <unistd.h>

#define WIDTH 50

int progress_wanted(void) { return isatty(STDERR_FILENO); }

int progress_show(void *user, double done)
{
    progress *bar = user;
    int percent = (int)(100 * done);
    if (percent + 1 == bar->shown)
        return 0;
    char line[WIDTH + 1] = { 0 };
    for (int i = 0; i < WIDTH; i++)
        line[i] = i * 100 < percent * WIDTH ? '=' : ' ';
    fprintf(stderr, "\r[%s] %3d%%", line, percent);
    bar->shown = percent + 1;
    return 0;
}

void progress_clear(progress *bar)
{
    if (bar->shown)
        fprintf(stderr, "\r%*s\r", WIDTH + 8, "");
    bar->shown = 0;
}

void progress_count(progress *bar, int done, int all)
{
    if (progress_wanted())
        progress_show(bar, (double)done / all);
}
