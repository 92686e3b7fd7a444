/* Planes as flat rows (conv_plane in device/conv.h): where their numbers and the taps of their
   filters lie in memory. PLANE_PITCH 0: rows lie in memory as they are.

       HEIGHT, WIDTH     of a plane       CENTRE_DOWN, CENTRE_ACROSS   less than these
       IN_EIGHTS         eight numbers from a multiple of 8 on lie together, or are nowhere
       HALO              numbers before each flat row that repeat its end
       TAPS_HEIGHT, TAPS_WIDTH   of a filter in memory, of which TAP_ROWS x TAP_COLUMNS from
       FIRST_DOWN, FIRST_ACROSS on meet numbers;  HERE   the flat lag of a number itself */
// SPDX-License-Identifier: Apache-2.0
#ifndef PLANE_PITCH
#    define PLANE_PITCH 0
#    define HEIGHT 1
#    define WIDTH 1
#    define HALO 0
#    define CENTRE_DOWN 0
#    define CENTRE_ACROSS 0
#endif
#ifndef IN_EIGHTS
#    define IN_EIGHTS 0
#endif

/* The place of number `at` of a flat row in its plane, or -1. Periodic planes are read and
   written (is_made), forward or back, as dn_conv_view() says. */
FN int place_in_plane(int at, int is_periodic, int is_made, int is_back)
{
#if PLANE_PITCH
    int row = at / PLANE_PITCH, column = at - row * PLANE_PITCH;
    if (!is_periodic)
        return column < WIDTH ? row * WIDTH + column : -1;
    if (is_made ? is_back ? column >= WIDTH : column < HALO : 0)
        return -1;
    if (!is_made) {
        row += is_back ? HEIGHT - CENTRE_DOWN : CENTRE_DOWN;
        column += is_back ? WIDTH - CENTRE_ACROSS : CENTRE_ACROSS;
    }
    if (!is_back)
        column += WIDTH - HALO;
    return row % HEIGHT * WIDTH + column % WIDTH;
#else
    return at;
#endif
}
