/* Filter banks: a window of a signal is transformed once for all channels that share the signal,
   or for parts of them. Each part is the same for any number of threads. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/loop.h"

#include "cpu/isa/flags.h"

#include <string.h>

/* Channels of a part: their products take several times as long as the transform before. */
#define PART 32

typedef struct bank {
    const cpu_engine *e;
    const product_job *product;
    int64_t share, parts;   /* channels of a signal; parts of these */
    int64_t windows, items; /* windows of a channel */
    char *scratch;
    size_t slot_bytes; /* the spectrum of a window, z, a buffer */
    atomic_llong next;
} bank;

static bank bank_of(const cpu_engine *e, const conv_job *job)
{
    bank b = { .e = e, .share = dn_conv_share(&e->p) };
    b.parts = CEIL_DIV(b.share, PART);
    b.windows = dn_conv_windows_of(&e->frame, job);
    b.items = e->p.channels / b.share * b.windows * b.parts;
    b.slot_bytes = e->base.filter_bytes + e->base.worker_bytes;
    return b;
}

static int slots_of(const cpu_device *dev, const bank *b)
{
    return (int)MIN(dev->threads, b->items);
}

/* Channels of an item, and its window of each. */
typedef struct bank_item {
    range channels;
    int64_t window;
} bank_item;

static bank_item item_of(const bank *b, int64_t item)
{
    int64_t part = item % b->parts, row = item / b->parts;
    int64_t first = row / b->windows * b->share;
    return (
        bank_item){ { first + part * PART, first + MIN((part + 1) * PART, b->share) },
                    row % b->windows };
}

static conv_window window_of(const bank *b, int64_t channel, int64_t window, void *z)
{
    conv_window w = { .tables = b->e->tables, .z = z };
    dn_conv_product_window(b->e, b->product, channel * b->windows + window, &w);
    return w;
}

/* All channels from one transform; returns how that left the range of its type. */
static int run_item(const bank *b, bank_item item, char *slot)
{
    const cpu_engine *e = b->e;
    char *spectrum = slot, *z = slot + e->base.filter_bytes;
    char *buffer = z + e->base.filter_bytes;
    range_notes notes = dn_range_begin();
    conv_window in = window_of(b, item.channels.from, item.window, spectrum);
    in.mode = CONV_FORWARD;
    dn_conv_window(&in, buffer);
    for (int64_t c = item.channels.from; c < item.channels.to; c++) {
        conv_window out = window_of(b, c, item.window, z);
        int is_conjugate = out.mode == CONV_CORRELATE;
        memset(z, 0, e->base.filter_bytes);
        e->sums->accumulate(is_conjugate, e->tables->n, spectrum, out.spectrum, z);
        out.mode = CONV_INVERSE;
        dn_conv_window(&out, buffer);
    }
    return dn_range_end(notes);
}

/* Each channel by itself where it has to be scaled. */
static void rescale_item(const bank *b, bank_item item, int left, char *z)
{
    const cpu_engine *e = b->e;
    for (int64_t c = item.channels.from; c < item.channels.to; c++) {
        conv_window w = window_of(b, c, item.window, z);
        if (dn_conv_rescale(&w, e->sums->kernel.dtype, left))
            dn_conv_window(&w, z + e->base.filter_bytes);
    }
}

static void take_items(void *arg, int slot)
{
    bank *b = arg;
    char *own = b->scratch + (size_t)slot * b->slot_bytes;
    for (int64_t i; (i = atomic_fetch_add(&b->next, 1)) < b->items;) {
        bank_item item = item_of(b, i);
        int left = run_item(b, item, own);
        if (left)
            rescale_item(b, item, left, own + b->e->base.filter_bytes);
    }
}

void dn_conv_run_bank(
    cpu_device *dev, const cpu_engine *e, const product_job *product, void *scratch)
{
    bank b = bank_of(e, product->job);
    b.product = product;
    b.scratch = scratch;
    atomic_init(&b.next, 0);
    dn_cpu_parallel(dev, slots_of(dev, &b), take_items, &b);
}

size_t dn_conv_bank_bytes(
    const cpu_device *dev, const cpu_engine *e, const conv_job *job)
{
    bank b = bank_of(e, job);
    return (size_t)slots_of(dev, &b) * b.slot_bytes;
}
