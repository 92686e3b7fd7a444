/* Roots of unity and the radices of a length. */
// SPDX-License-Identifier: Apache-2.0
#include "math/dft.h"

#include <math.h>

#define PI 3.14159265358979323846264338327950288

void dn_unit(int64_t num, int64_t den, double z[2])
{
    /* The angle from the nearest multiple of a quarter turn is exact. */
    int64_t eighths = num % den * 8 / den, quarter = (eighths + 1) / 2;
    double angle = 2 * PI * ((double)(num % den * 4 - quarter * den) / (double)den) / 4;
    double c = cos(angle), s = sin(angle);
    double turned[4][2] = { { c, s }, { -s, c }, { -c, -s }, { s, -c } };
    z[0] = turned[quarter % 4][0];
    z[1] = turned[quarter % 4][1];
}

/* How often n can be divided by `by`; n becomes what is left. */
static int take_out(int64_t *n, int by)
{
    int times = 0;
    for (; *n % by == 0; *n /= by)
        times++;
    return times;
}

int dn_dft_radices(int64_t n, int most, int radices[DN_DFT_MOST_RADICES])
{
    int count = 0, twos = take_out(&n, 2);
    if (twos < 2)
        return 0;
    int fours = most < 8 ? twos / 2 : twos % 3 == 0 ? 0 : twos % 3 == 1 ? 2 : 1;
    int eights = (twos - 2 * fours) / 3;
    if (most < 8 && twos % 2) { /* one radix of 8 is better than one of 2 */
        fours--;
        eights = 1;
    }
    int first_fours = eights ? 0 : 1;
    for (int i = 0; i < eights; i++)
        radices[count++] = 8;
    for (int i = 0; i < first_fours; i++)
        radices[count++] = 4;
    static const int odd[] = { 7, 5, 3 };
    for (int o = 0; o < 3; o++)
        for (int times = take_out(&n, odd[o]); times > 0; times--)
            radices[count++] = odd[o];
    for (int i = first_fours; i < fours; i++)
        radices[count++] = 4;
    return n == 1 ? count : 0;
}
