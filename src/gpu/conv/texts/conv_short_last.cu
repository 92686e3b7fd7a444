/* Short convolutions, channels last, for u and y [batch][length][channels]:

       y[b][t][h] = bias[h] + sum over s < taps of k[h][s] u[b][t + shift - s][h],

   with zeros for u outside of its length. reversed: the last tap comes first. Sums are computed
   in the order of s.

   A block of threads has lanes WIDTH channels and, in `steps` steps, all strips of a part of
   the times. Taps pass through shared memory, only once if all are taken at a time. A strip
   first reads its whole window, TIMES + SLOTS - 1 rows of memory; SLOTS - 1 of these rows
   belong to the strip before. */
// SPDX-License-Identifier: Apache-2.0
#define RESIDENT (TAPS || sizeof(S) == 4 ? 2 : 1)
#include "conv_short_rows.cuh"

KERNEL conv(
    const GLOBAL X *RESTRICT u, const GLOBAL S *RESTRICT k,
    const GLOBAL S *RESTRICT bias, GLOBAL X *RESTRICT y, int64 channels, int64 length,
    int64 batch, int taps, int reversed, int shift, int lanes_log2, int steps)
{
    IN_BLOCK S staged[SLOTS][STAGED];
    int lane = THREAD & ((1 << lanes_log2) - 1), strip = THREAD >> lanes_log2;
    int across = WIDTH << lanes_log2, down = (THREADS >> lanes_log2) * TIMES;
    int64 groups = (channels + across - 1) / across;
    int64 parts = (length + (int64)down * steps - 1) / ((int64)down * steps);
    for (int64 n = BLOCK; n < groups * parts * batch; n += BLOCKS) {
        int64 h0 = n % groups * across, h = h0 + lane * WIDTH;
        int64 t0 = n / groups % parts * down * steps, b = n / groups / parts;
        int inside = h < channels;
        const GLOBAL X *from = u + b * length * channels + h;
        GLOBAL X *to = y + b * length * channels + h;
        S start[WIDTH];
        UNROLL
        for (int w = 0; w < WIDTH; w++)
            start[w] = bias && inside ? bias[h + w] : zero();
#if TAPS
        stage(k, h0, across, channels, taps, 0, reversed, staged);
        BARRIER();
#endif
        ROLL
        for (int step = 0; step < steps && t0 < length; step++, t0 += down) {
            int64 t = t0 + strip * TIMES;
            piece window[WINDOW];
            S sum[TIMES][WIDTH];
            UNROLL
            for (int j = 0; j < TIMES; j++) {
                UNROLL
                for (int w = 0; w < WIDTH; w++)
                    sum[j][w] = start[w];
            }
            ROLL
            for (int first = 0; first < (TAPS ? TAPS : taps); first += SLOTS) {
#if !TAPS
                stage(k, h0, across, channels, taps, first, reversed, staged);
                BARRIER();
#endif
                const LOCAL S *tap = staged[0] + lane * WIDTH;
                int64 seen = t + shift - first - (SLOTS - 1);
                int left = (TAPS ? TAPS : taps) - first;
                if (inside && is_whole(seen, WINDOW, length)) {
                    read_times(from, seen, WINDOW, channels, window);
                    add_slots(tap, left, window, sum);
                } else if (inside && t < length) {
                    read_some(from, seen, WINDOW, channels, length, window);
                    add_slots(tap, left, window, sum);
                }
#if !TAPS
                BARRIER();
#endif
            }
            if (inside && t + TIMES <= length)
                write_strip(to, t, channels, t + TIMES, sum);
            else if (inside && t < length)
                write_strip(to, t, channels, length, sum);
        }
#if TAPS
        BARRIER();
#endif
    }
}
