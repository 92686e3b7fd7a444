/* Convolutions of windows by tensor cores, in 16 bits with sums in f32.

   256 ROOT points form an array [ROOT][16][16], and their transform is three products with
   matrices. The first runs over the first index; its blocks p0 < ROOT then have 256 points
   each. One warp does the other two in its registers. All matrices are orthogonal up to
   rounding, with a factor 1 / sqrt(R), so numbers keep their magnitude.

       D[p0]         = sum over q0 of first[p0][q0] x[q0],      real and imaginary rows apart
       E[p0][p1][j]  = turn[p0][p1][j] sum over q of inner[p0][p1][q] D[p0][q][j]
       Y[p0][p1][p2] = sum over j of last[j][p2] E[p0][p1][j]

   The constants of blocks (docs/conv.md (3)) are in `first` and `inner`, except those of the
   last step, `turn`. Y is multiplied by the spectrum, and the same steps run backward.

   In the registers of a warp the results of one product are the left operand of the next. The
   way back transposes them once.

   A longer window is a matrix of points, ROWS x COLUMNS. TILED: a member of a block has 16 of
   its columns, ROWS = 16 ROOT. It does the first two products, over the rows, where j is the
   column, with its own turns (twist), after which rows are windows like others. Then rows are
   transformed, COLUMNS = 256 ROOT, and then the columns back. Between these launches points are
   pairs of f16, with real and imaginary parts of a row apart.

       LOAD, STORE           0: rows of numbers   1: points
       FORWARD and INVERSE   both: windows, or rows of points; one: tiles of columns;
                             none: the largest magnitudes of rows, as bits of f32

   Rows are scaled by a power of two so that they stay in the range of f16, and the spectrum has
   a scale for each filter.

   Sparse spectra keep the frequencies p + ROWS (p0 + ROOT (p1 + 16 p2)) of a box. KEPT(X) calls
   X for each axis, with its log2 and how many frequencies it keeps. Rows p and blocks p0
   without frequencies are neither computed, stored nor read.

   TAPS: grouped arrays, which may be x, its factor and the factor of y, can pass through a short
   filter of TAPS taps where they are read (conv_mma_few.cuh); 0: none.

   conv_mma_rows.cuh loads rows to shared memory. conv_mma_first.cuh or, with LAYERS,
   conv_mma_layers.cuh turns them into D and back. conv_mma_products.cuh does the other products.
   conv_mma_results.cuh or, IN_ORDER, conv_mma_in_order.cuh stores results. conv_mma_sparse.cuh
   says what is kept.

   AHEAD: what the next task reads is copied to shared memory while this task is multiplied. Not
   with LAYERS.

   ROOT, WARPS for a window, MEMBERS windows of a block, HALF and PAIR (conv_window.cuh),
   TYPE_f16, _bf16, _f32: of rows. */
// SPDX-License-Identifier: Apache-2.0
#include "conv_mma_numbers.cuh"

#define TASKS (TILED ? COLUMNS / 16 : FORWARD ? KEPT_ROWS : ROWS) /* of a window */

#include "conv_mma_points.cuh"

#include "conv_mma_part.cuh"

/* ---- the kernel ---- */

#define SPECTRUM_BYTES (COLUMNS * 4 + 16) /* of a row: numbers, then their scale */

/* Where tasks begin and end. A member's rows follow each other, like their spectra. Neighbouring
   tiles belong to the members of a block, or to all blocks if members are few. */
typedef struct tasks {
    int64 next, end;
    int step, window, filter;
} tasks;

#define SPREAD (TILED && MEMBERS < 4)

INLINE tasks begin(int member, int64 windows)
{
    int64 all = windows * TASKS, parts = gridDim.x, own = blockIdx.x;
    int together = TILED && !SPREAD;
    if (!together) {
        parts *= MEMBERS;
        own = own * MEMBERS + member;
    }
    tasks t = { divide(all * own, parts), divide(all * (own + 1), parts) };
    t.step = SPREAD ? (int)parts : together ? MEMBERS : 1;
    t.next = SPREAD ? own : t.next + (together ? member : 0);
    t.end = SPREAD ? all : t.end;
    return t;
}

INLINE void find(tasks *t, work *k, int64 first, int share)
{
    t->window = (int)divide(t->next, TASKS);
    k->task = (int)(t->next - (int64)t->window * TASKS);
    k->w = first_window(&k->r, first + t->window);
    t->filter = k->w.channel / share;
}

/* The next task, if there is one: of spread tiles, one some windows later. */
INLINE void advance(tasks *t, work *k, int64 first, int share)
{
    t->next += t->step;
    if (t->next >= t->end)
        return;
    const int channel = k->w.channel, task = k->task + t->step;
    const int past = SPREAD ? task / TASKS : task >= TASKS;
    k->task = task - past * TASKS;
    t->window += past;
    if (past == 1)
        next_window(&k->r, &k->w);
    else if (past)
        later_window(&k->r, &k->w, first + t->window, past);
    t->filter = k->w.channel == channel ? t->filter : k->w.channel / share;
}

/* ---- what comes ahead ---- */

/* AHEAD: a member has two D, and chunks of the next task come to the other one while this one
   is multiplied. */
#define D_BYTES ((1 + AHEAD) * OWN_BYTES) /* of a member */

INLINE void ask(const work *k, const X *x, const X *factor)
{
#if AHEAD && LOAD
    ask_for_points(k);
#elif AHEAD
    ask_for_row(
        k, x + beside(&k->r, &k->w, GROUPED_X),
        factor + beside(&k->r, &k->w, GROUPED_X_FACTOR));
#endif
}

/* Starts the loads of the next task, if there is one; *next is what is known of it. Loads of
   numbers need its window; loads of points do not need its row yet. */
#define IS_EARLY (AHEAD && !LOAD)

INLINE void ask_for_next(
    tasks *t, const work *k, work *next, int64 first, int share, char *points, const X *x,
    const X *factor)
{
    *next = *k;
    next->d = k->other_d;
    next->other_d = k->d;
    int64 place = t->next + t->step;
    if (IS_EARLY) {
        advance(t, next, first, share);
    } else {
        int64 window = divide(place, TASKS);
        next->task = (int)(place - window * TASKS);
        next->points = points + window * WINDOW_BYTES;
    }
    if (AHEAD && place < t->end)
        ask(next, x, factor);
}

INLINE void turn_to_next(tasks *t, work *k, const work *next, int64 first, int share)
{
    if (IS_EARLY) {
        *k = *next;
        return;
    }
    advance(t, k, first, share);
    if (AHEAD) {
        k->d = next->d;
        k->other_d = next->other_d;
    }
}

/* Rows of dy, whose sums with x are to come, get scales that go with those of x. */
INLINE void find_beside(work *k, const u32 *x_peaks)
{
    scales back = {};
    if (k->r.flags & LOWER)
        scales_of(x_peaks, &back);
    k->beside[0] = back.of[0];
    k->beside[1] = back.of[1];
}

/* Computes windows first, ..., first + items - 1; members have equally many tasks. `points`,
   with peaks behind them, begin with those of the first window. Of points of dy (LOWER) `spectra`
   are the peaks of x. */
extern "C" __global__ void __launch_bounds__(TEAM *MEMBERS, RESIDENT) conv(
    const X *x, const X *x_factor, X *y, const X *y_factor, X *y2, const X *y2_factor,
    char *points, const char *spectra, const uint4 *constants, int64 first, int64 items,
    int64 share, int64 length, int64 batch, int64 channels, int64 windows, int64 step,
    int64 lead, int64 before, int64 after, const packed_window *packed, int flags, const float *few,
    const float *few_bias, int few_groups)
{
    extern __shared__ u8 memory[];
    work k, next;
    const u32 near = shared_address(memory), own_memory = near + (NEAR ? TABLES * 16 : 0);
    for (int i = threadIdx.x; NEAR && i < TABLES; i += TEAM * MEMBERS)
        store_shared128(near + i * 16, constants[TABLES_FROM + i]);
    __syncthreads();
    k.near = near + (threadIdx.x % 32 - TABLES_FROM) * 16;
    k.r = { length, batch, channels, windows, step, lead, before, after, packed, flags };
    k.tables = constants + threadIdx.x % 32;
    k.member = threadIdx.x / TEAM;
    k.thread = threadIdx.x % TEAM;
    k.warp = k.thread / 32;
    k.lane = k.thread % 32;
    k.d = own_memory + k.member * D_BYTES;
    k.other_d = k.d + OWN_BYTES;
    u32 most = own_memory + MEMBERS * D_BYTES + k.member * WARPS * 8;
    tasks t = begin(k.member, items);
    if (t.next >= t.end)
        return;
    find(&t, &k, first, (int)share);
    k.points = points + t.window * WINDOW_BYTES;
    ask(&k, x, x_factor);
    ROLL for (; t.next < t.end; turn_to_next(&t, &k, &next, first, (int)share))
    {
        scales back = {};
        k.points = points + t.window * WINDOW_BYTES;
        k.peaks = (u32 *)(points + items * WINDOW_BYTES) + t.window * 2;
        const X *from = x + beside(&k.r, &k.w, GROUPED_X);
        const X *gate = x_factor + beside(&k.r, &k.w, GROUPED_X_FACTOR);
        UNROLL for (int i = 0; i < 2 && !LOAD; i++)
            k.few[i] = few_of(&k.r, &k.w, few, few_bias, few_groups, i);
        if (!FORWARD && !INVERSE) {
            add_peaks(&k, from, gate);
            continue;
        }
        if (PAIR && TILED && FORWARD)
            find_beside(&k, (const u32 *)spectra + t.window * 2);
        if (LOAD && AHEAD)
            copy_wait<0>(); /* points are in D */
        else if (LOAD)
            load_points(&k);
        else
            load_rows(&k, from, gate, most, &back);
        const int row = TILED ? 0 : kept_row(k.task);
        const char *spectrum =
            spectra + ((int64)t.filter * ROWS + row) * SPECTRUM_BYTES;
        sinks to = sinks_of(&k, y, y_factor, y2, y2_factor);
        if (!STORE) {
            if (LOAD)
                scales_of(k.peaks, &back);
            float scale = *(const float *)(spectrum + COLUMNS * 4);
            to.scale.of[0] = back.of[0] * scale;
            to.scale.of[1] = back.of[1] * scale;
            to.few = few_of(&k.r, &k.w, few, few_bias, few_groups, 2);
            align_sinks(&k, &to);
        }
        meet_all(&k);
        ask_for_next(&t, &k, &next, first, (int)share, points, x, x_factor);
        if (FORWARD && ROOT > 1 && !AT_ONCE) {
            first_forward(&k);
            meet_all(&k);
        }
        ROLL for (int p0 = k.warp; p0 < ROOT; p0 += WARPS)
        {
            if (FORWARD && INVERSE && is_left_out(row + ROWS * p0))
                clear_block(&k, p0);
            else if (FORWARD && INVERSE)
                inner_tile(&k, &to, p0, (const uint4 *)spectrum);
            else if (FORWARD)
                split_tile(&k, p0);
            else
                join_tile(&k, &to, p0);
        }
        if (INVERSE && ROOT > 1) {
            meet_all(&k);
            first_back(&k, &to);
        }
        if (IN_ORDER) {
            meet_all(&k);
            put_in_order(&k, &to);
        }
    }
}
