/* The exponents of pairs of one level, which its first pass finds (conv_scales.cuh). */
// SPDX-License-Identifier: Apache-2.0

#include "conv_passes.cuh"

#define FOLDS      (TEAM < 16 ? TEAM : 16)
#define MOST_TRIES 4

/* The squares of all threads of a member, which lie in its gaps. */
FN C meet(const work *k)
{
    C squares = point(0, 0);
    BARRIER();
    if (k->thread < FOLDS) {
        C part = point(0, 0);
        UNROLL for (int i = 0; i < TEAM; i += FOLDS)
        {
            if (i + k->thread < TEAM)
                part = sum(part, *gap(k, i + k->thread));
        }
        *gap(k, k->thread) = part;
    }
    BARRIER();
    UNROLL for (int i = 0; i < FOLDS; i++) squares = sum(squares, *gap(k, i));
    return squares;
}

/* Changes the exponents of a pair whose rows are not alike with the present ones. True if they
   changed. */
FN int change_exponents(work *k, C squares)
{
    int *e = k->exponent, was[2] = { e[0], e[1] };
    if (k->is_idle || !k->w.other || (!(e[0] | e[1]) && are_alike(squares)))
        return 0;
    e[0] = next_exponent(e[0], squares.re);
    e[1] = next_exponent(e[1], squares.im);
    return e[0] != was[0] || e[1] != was[1];
}

/* True if is_so holds for any member of the block. flag: in shared memory, and 0. */
FN int is_any(LOCAL int *flag, int is_so)
{
    if (MEMBERS == 1)
        return is_so;
    if (is_so)
        *flag = 1;
    BARRIER();
    return *flag;
}

/* The first pass, again with other exponents as long as these are not those that the rows
   need. flag: in shared memory. */
FN void first_pass(
    work *k, LOCAL int *flag, int radix, int blocks, int64 constants)
{
    int again = SCALED == 1;
    if (!again)
        pass(k, radix, blocks, constants, 1, 0, 0);
    ROLL for (int tries = 0; again; tries++)
    {
        C squares = point(0, 0);
        k->squares = &squares;
        FORGET(k->thread);
        if (tries)
            BARRIER();
        if (THREAD == 0)
            *flag = 0;
        pass(k, radix, blocks, constants, 1, 0, 0);
        squares = meet(k);
        again = tries + 1 < MOST_TRIES && is_any(flag, change_exponents(k, squares));
    }
}
