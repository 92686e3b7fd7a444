/* ODD: rows of conv_mma.cu that begin and end at any address, not at segments of memory.

   A window is moved by some numbers so that its number 0 is at a segment, if the array begins
   at one. Chunks of eight numbers are then aligned, except where a row begins or ends. A product
   with a filter does not depend on the place of a row in its window. Where there is no room to
   move, and where rows repeat, chunks are taken from the aligned pieces of 16 bytes that have
   their numbers. Such pieces may hold numbers of neighbouring rows. The first and the last row
   of an array have none on one side, and nothing is read there. */
// SPDX-License-Identifier: Apache-2.0

#ifndef ODD
#define ODD 0
#endif
#ifndef IN_ORDER
#define IN_ORDER 0 /* conv_mma_in_order.cuh */
#endif

#define SEGMENT 16 /* numbers; 32 bytes of 16 bits */

/* ---- where windows begin ---- */

FN void begin_earlier(window *w, int by)
{
    w->base -= by;
    w->row.from += by;
    w->made.from += by;
    w->there.from += by;
}

FN int end_of(range r) { return r.from + r.count; }

/* All that is there and made stays in the window. */
FN void align_window(const rows *r, window *w)
{
    int by = (int)(w->base & (SEGMENT - 1)), most = (HALF ? 1 : 2) * WINDOW;
    int first = w->there.from < w->made.from ? w->there.from : w->made.from;
    int end = end_of(w->there) > end_of(w->made) ? end_of(w->there) : end_of(w->made);
    if (!ODD || r->packed)
        return;
    by = end + by <= most ? by : first + by >= SEGMENT ? by - SEGMENT : 0;
    begin_earlier(w, by);
}

FN window first_window(const rows *r, int64 item)
{
    window w = window_of(r, item);
    align_window(r, &w);
    return w;
}

FN void next_window(const rows *r, window *w)
{
    if (ODD)
        begin_earlier(w, (int)r->lead - w->made.from);
    go_on(r, w);
    align_window(r, w);
}

/* Window `item`, which comes `count` later. */
FN void later_window(const rows *r, window *w, int64 item, int count)
{
    if (ODD || !is_in_batch(r, w, count))
        *w = first_window(r, item);
    else
        go_on_in_batch(r, w, count);
}

/* ---- chunks ---- */

/* Eight numbers from number j of a window on: from, ..., end - 1 of them count. `at`: what
   there is to add to j for their place in the row, all of them having one; is_safe: the pieces
   of 16 bytes that have them are in the array, else numbers have to be read one by one. */
typedef struct chunk {
    int j, from, end, at, is_safe;
} chunk;

/* True if this is the first or the last row of an array, where memory may end. Short rows
   count too. */
FN int is_outer_row(const rows *r, const window *w)
{
    int is_first = w->batch == 0 && w->channel == 0;
    int is_last = w->batch + 1 == r->batch && w->channel + 1 == r->channels;
    return is_first || is_last || w->row.count < 16;
}

/* True if the chunks of 16 bytes that hold the eight numbers of a row from j on are in the
   array. */
FN int is_safe(const rows *r, const window *w, int j)
{
    return (is_in(w->row, j - 8) && is_in(w->row, j + 15)) || !is_outer_row(r, w);
}

FN chunk chunk_at(const rows *r, const window *w, int j)
{
    chunk c;
    int from = w->there.from - j, end = end_of(w->there) - j;
    c.j = j;
    c.from = from > 0 ? from : 0;
    c.end = end < 8 ? end : 8;
    c.end = c.end > c.from ? c.end : c.from;
    c.at = place_in_row(r, w, j + c.from) - (j + c.from);
    int is_one = place_in_row(r, w, j + c.end - 1) - (j + c.end - 1) == c.at;
    c.is_safe = is_one && is_safe(r, w, j + c.at);
    return c;
}

FN int is_whole(chunk c) { return c.end - c.from == 8; }
FN int has_some(chunk c) { return c.end > c.from; }

/* Shifts words that begin at a piece to those that begin `bytes` later; numbers have `size`
   bytes. */
template <int count, int size> INLINE void move_words(u32 *v, int bytes)
{
    UNROLL for (int i = 0; i < count + 2; i++) v[i] = bytes & 8 ? v[i + 2] : v[i];
    UNROLL for (int i = 0; i < count + 1; i++) v[i] = bytes & 4 ? v[i + 1] : v[i];
    UNROLL for (int i = 0; i < count && size == 2; i++)
        v[i] = bytes & 2 ? v[i] >> 16 | v[i + 1] << 16 : v[i];
}

/* Where chunk c lies in the first piece of 16 bytes that has some of it, in bytes. */
FN int place_in_piece(chunk c, const X *row) { return (int)((u64)(row + c.j + c.at) % 16); }

/* The pieces that have chunk c, whose numbers have one place and are safe. Other pieces may
   hold anything. */
INLINE void read_pieces(chunk c, const X *row, u32 v[4 * sizeof(X)])
{
    const int size = (int)sizeof(X), bytes = place_in_piece(c, row);
    UNROLL for (int i = 0; i <= size / 2; i++)
    {
        int before = i * 16 - bytes; /* bytes of the chunk before this piece */
        int wanted = c.from * size < before + 16 && c.end * size > before && has_some(c);
        uint4 four =
            load_near_if((const char *)(row + c.j + c.at) - bytes + i * 16, wanted);
        v[i * 4] = four.x, v[i * 4 + 1] = four.y, v[i * 4 + 2] = four.z, v[i * 4 + 3] = four.w;
    }
}

/* The same as words of the chunk. */
INLINE void read_words(chunk c, const X *row, u32 v[4 * sizeof(X)])
{
    read_pieces(c, row, v);
    move_words<2 * sizeof(X), sizeof(X)>(v, place_in_piece(c, row));
}

/* Clears numbers that do not count in words of two. */
INLINE void clear_others(chunk c, u32 v[4])
{
    UNROLL for (int i = 0; i < 4; i++)
    {
        u32 low = c.from <= 2 * i && c.end > 2 * i ? 0xffffu : 0;
        u32 high = c.from <= 2 * i + 1 && c.end > 2 * i + 1 ? 0xffff0000u : 0;
        v[i] &= low | high;
    }
}

#if !defined TYPE_f32
/* Asks for a chunk of 16 bits from number j on of a row that begins where number 0 of the window
   would; aligned: as are all chunks. What comes is for take_odd_chunk(). */
INLINE chunk ask_for_odd_chunk(
    const rows *r, const window *w, const X *row, int j, int aligned, int wanted, u32 v[8])
{
    chunk c = chunk_at(r, w, j);
    c.end = wanted ? c.end : c.from;
    chunk safe = c;
    safe.end = c.is_safe ? c.end : c.from;
    if (aligned) {
        uint4 four = load_once_if(row + j, has_some(safe));
        v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
    } else {
        read_pieces(safe, row, v);
    }
    return c;
}

/* The chunk, with zeros for what does not count. */
INLINE uint4 take_odd_chunk(
    const rows *r, const window *w, const X *row, chunk c, int aligned, u32 v[8])
{
    if (!aligned)
        move_words<4, 2>(v, place_in_piece(c, row));
    if (!is_whole(c))
        clear_others(c, v);
    if (has_some(c) && !c.is_safe) {
        v[0] = v[1] = v[2] = v[3] = 0;
        UNROLL for (int i = 0; i < 8; i++)
        {
            if (i >= c.from && i < c.end)
                v[i / 2] |= (u32)row[place_in_row(r, w, c.j + i)] << i % 2 * 16;
        }
    }
    return make_uint4(v[0], v[1], v[2], v[3]);
}
#endif
