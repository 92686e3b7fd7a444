/* Threads of blocks that take turns on one thread of the processor: each has a stack of its
   own and runs until it waits. Where a text lacks a barrier this shows: a thread reads what those
   behind it have not written yet. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "standard.h"

struct index {
    unsigned x;
};
static struct index threadIdx, blockIdx; /* of the thread whose turn it is */

static struct {
    ucontext_t thread[1024], start; /* where threads begin, and all have ended */
    void *here[1024][5];            /* where each waits, without calls of the system */
    unsigned count, left, backwards;
    unsigned now, each,
        first;      /* whose turn it is; threads of a block; the first block */
    unsigned waits; /* in a row that nothing came of */
    unsigned begun[1024], done[1024]; /* nonzero: that thread has begun, ended */
    void (*run)();
} turns;

static char stacks[1024][96 << 10];

static void set_turn(unsigned now)
{
    turns.now = now;
    threadIdx.x = now % turns.each;
    blockIdx.x = turns.first + now / turns.each;
}

__attribute__((noinline)) static void go_on(unsigned n)
{
    if (turns.begun[n]++)
        __builtin_longjmp(turns.here[n], 1);
    setcontext(&turns.thread[n]);
}

/* Whoever waits lets the next one go on; where all wait none ever will. */
__attribute__((noinline)) static void give_turn()
{
    unsigned from = turns.now, next = from,
             step = turns.backwards ? turns.count - 1 : 1;
    if (turns.waits++ > turns.count)
        abort();
    do
        next = (next + step) % turns.count;
    while (turns.done[next]);
    set_turn(next);
    if (__builtin_setjmp(turns.here[from]) == 0)
        go_on(next);
}

static void run_thread()
{
    turns.run();
    turns.done[turns.now] = 1;
    turns.waits = 0;
    if (--turns.left)
        give_turn();
    setcontext(&turns.start);
}

/* Runs so many blocks, from `first` on, of `each` threads, until all have ended. */
static void take_turns(
    unsigned first, unsigned blocks, unsigned each, unsigned backwards, void (*run)())
{
    unsigned count = blocks * each;
    if (count > sizeof turns.done / sizeof *turns.done)
        abort();
    for (unsigned n = 0; n < count; n++) {
        ucontext_t *c = &turns.thread[n];
        getcontext(c);
        c->uc_stack.ss_sp = stacks[n];
        c->uc_stack.ss_size = sizeof stacks[n];
        makecontext(c, run_thread, 0);
        turns.begun[n] = n == 0;
        turns.done[n] = 0;
    }
    turns.count = turns.left = count;
    turns.backwards = backwards;
    turns.each = each;
    turns.first = first;
    turns.waits = 0;
    turns.run = run;
    set_turn(0);
    swapcontext(&turns.start, &turns.thread[0]);
}

/* A barrier of so many threads. */
struct meeting {
    unsigned expected, arrived, phase;

    void arrive()
    {
        turns.waits = 0;
        if (++arrived == expected) {
            arrived = 0;
            phase++;
        }
    }

    void arrive_and_wait()
    {
        unsigned before = phase;
        arrive();
        while (phase == before)
            give_turn();
    }
};
