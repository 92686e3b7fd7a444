/* What texts for weight gradients share: stages of an operand in shared memory.
   The including text defines ELEMENT, LAST, TOGETHER, LANES, BLOCKS, DEPTH, STAGES; which
   threads copy, COPIERS of them from COPIER 0 on; and FLIPPED(line), bits of the place in a
   line that are flipped, equal for lines that are multiples of FLIP_PERIOD apart. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ks_dw_parts.cuh"
#include "pieces.cuh"

#define PER (16 / ELEMENT) /* elements of a piece */

/* Elements that lie together in memory, of a piece. */
#define RUN (LAST || TOGETHER == LANES || TOGETHER >= PER ? PER : TOGETHER)

constexpr int common_part(int a, int b) { return b ? common_part(b, a % b) : a; }

/* A line is a column s of `tile` rows, batch-last a row of DEPTH columns s. A thread copies
   a piece of every APART-th line; after PERIOD of these its pieces are exchanged alike.
   PAD bytes between lines. */
template <int tile, int pad = 0> struct lines {
    static const int count = LAST ? tile : DEPTH;
    static const int pieces = (LAST ? DEPTH : tile * TOGETHER) / PER;
    static const int pitch = (pieces + 7) / 8 * 128 + pad;
    static const int bytes = count * pitch;
    static const int apart = COPIERS / pieces;
    static const int copies = (count + apart - 1) / apart;
    static const int period = FLIP_PERIOD / common_part(FLIP_PERIOD, apart);
};

/* What a thread copies in the next stage. */
template <int size, int tile, int pad = 0> struct source {
    typedef lines<tile, pad> at;
    const element *from; /* its first piece */
    i64 apart;           /* elements between its pieces */
    i64 step;            /* and between stages */
    i64 bytes;           /* from its pieces on to the end of the matrix, or of the slab */
    int left;            /* lines from its first one on to that end */
    int line, width;
    u32 places[at::period];

    MEMBER void begin(
        const element *v, int i, int j, int row, i64 s, i64 end, i64 batch)
    {
        int piece = COPIER % at::pieces, first = piece * PER;
        line = COPIER / at::pieces;
        if (LAST) {
            from = v + (((i64)i * size + row + line) * LANES + j) * batch + s + first;
            apart = (i64)at::apart * LANES * batch;
            step = DEPTH;
            bytes = (end - s - first) * ELEMENT;
            left = size - row - line;
            width = width_of(v, batch * ELEMENT);
        } else {
            int r = row + first / TOGETHER, lane = j + first % TOGETHER;
            from = v + (((s + line) * BLOCKS + i) * size + r) * LANES + lane;
            apart = (i64)at::apart * BLOCKS * size * LANES;
            step = (i64)DEPTH * BLOCKS * size * LANES;
            bytes = ((i64)(size - row) * TOGETHER - first) * ELEMENT;
            i64 lines_left = end - s - line;
            left = lines_left < 1 << 30 ? (int)lines_left : 1 << 30;
            width = width_of(v, (RUN < PER ? RUN : (i64)size * LANES) * ELEMENT);
        }
#pragma unroll
        for (int c = 0; c < at::period; c++)
            places[c] =
                line * at::pitch + (piece * 16 ^ FLIPPED(line + c * at::apart));
    }

    MEMBER void load_with_borders(u32 to)
    {
#pragma unroll 1
        for (int c = 0; c < at::copies && line + c * at::apart < at::count; c++)
#pragma unroll
            for (int e = 0; e < PER; e += RUN) {
                int inside = c * at::apart < left;
                i64 valid = inside ? bytes - e * ELEMENT : 0;
                const element *piece = from + c * apart + e / RUN * LANES;
                u32 place = places[0];
                if (at::period > 1)
                    place ^= FLIPPED(line) ^ FLIPPED(line + c * at::apart);
                load_piece<RUN * ELEMENT>(
                    to + c * at::apart * at::pitch + place + e * ELEMENT,
                    valid > 0 ? piece : from, valid, width);
            }
    }

    MEMBER bool is_idle()
    {
        return at::apart * at::pieces < COPIERS && line >= at::apart;
    }

    /* Zeros for what is outside of the matrix, in all stages; no copy touches it later. */
    MEMBER void clear(u32 stages, int stage_bytes)
    {
        if (size % tile == 0 || is_idle() || (!LAST && bytes > 0))
            return;
        for (int stage = 0; stage < STAGES; stage++, stages += stage_bytes)
#pragma unroll
            for (int c = 0; c < at::copies; c++)
                if ((!LAST || c * at::apart >= left) && line + c * at::apart < at::count)
                    store_shared128(
                        stages + places[c % at::period] + c * at::apart * at::pitch, {});
    }

    /* The next stage. */
    MEMBER void load(u32 to)
    {
        if (is_idle() || (!LAST && bytes <= 0))
            return;
        if (RUN == PER && width == 16 && bytes >= 16 && (LAST || left >= at::count - line)) {
#pragma unroll
            for (int c = 0; c < at::copies; c++)
                if ((at::count % at::apart == 0 || c < at::copies - 1 ||
                     line + c * at::apart < at::count) &&
                    (!LAST || size % tile == 0 || c * at::apart < left))
                    copy16(
                        to + places[c % at::period] + c * at::apart * at::pitch,
                        from + c * apart, 16);
        } else
            load_with_borders(to);
        from += step;
        if (LAST)
            bytes -= DEPTH * ELEMENT;
        else
            left -= DEPTH;
    }
};
