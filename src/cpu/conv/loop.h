/* Loops over windows of rows, for the drivers of convolutions. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_CONV_LOOP_H
#define DN_CPU_CONV_LOOP_H

#include "cpu/conv/conv.h"

#include <stdatomic.h>

/* A loop over windows. item() describes one of them; tables and z are set before. */
typedef struct conv_loop {
    cpu_device *dev;
    const cpu_engine *e;
    int64_t items, chunk;
    void (*item)(
        const struct conv_loop *loop, int64_t item, void *extra, conv_window *w);
    /* Scales a window whose arithmetic left the range of its type by overflow or underflow
       (cpu/isa/flags.h); returns whether it is to be run again. */
    int (*rescale)(
        const struct conv_loop *loop, int64_t item, void *extra, int left,
        conv_window *w);
    const void *arg;
    int ahead; /* rows come from memory: fetch the next one early */
    char *scratch;
    size_t slot_bytes, extra_bytes; /* of a thread; extra: for the item */
    atomic_llong next;
} conv_loop;

/* How many threads take windows of their own; 0: all share the parts of each. */
int64_t dn_conv_slots(int64_t threads, const conv_tables *t, int64_t items);

/* Load, transform, multiply and store, as far as the mode has them; buffer:
   dn_conv_buffer() bytes. */
void dn_conv_window(const conv_window *w, void *buffer);

/* The spectrum of a window that begins at number `start` of a source, over 2^down. */
void dn_conv_forward(
    const conv_tables *t, const conv_code *code, conv_source source, int64_t start,
    int down, void *z, void *buffer);

/* Item number `item` of a job's windows: those of a channel, one after the other, and then the
   next channel, so that rows that share a filter follow each other. */
typedef struct conv_place {
    int64_t first, length; /* of its row, numbers of the arrays */
    int64_t signal;        /* what is read begins there */
    int64_t beside;        /* numbers of other groups before it, in grouped arrays */
    int64_t filter, window;
} conv_place;

conv_place dn_conv_place(const cpu_engine *e, const conv_job *job, int64_t item);

/* The numbers `used` of a row as a source. */
conv_source dn_conv_source(
    const cpu_engine *e, conv_input from, const conv_place *at, range used,
    conv_side side);

/* One of a job's products. */
typedef struct product_job {
    const conv_job *job;
    const conv_product *product;
} product_job;

/* The window of an item; tables and z are set before. */
void dn_conv_product_window(
    const cpu_engine *e, const product_job *j, int64_t item, conv_window *w);

/* A product of a filter bank (bank.c), in so much scratch. */
void dn_conv_run_bank(
    cpu_device *dev, const cpu_engine *e, const product_job *product, void *scratch);
size_t dn_conv_bank_bytes(
    const cpu_device *dev, const cpu_engine *e, const conv_job *job);

/* The sums of job->filter, in so much scratch. */
void dn_conv_sum_filters(
    cpu_device *dev, const cpu_engine *e, const conv_job *job, void *scratch);
size_t dn_conv_sums_bytes(
    const cpu_device *dev, const cpu_engine *e, const conv_job *job);

/* Fewer rows than that are planned for by their number: eight threads have two each. */
#define DN_CPU_FEW_ROWS 16

/* Nanoseconds of one thread that are built in for an instruction set (cpu/isa/processor.c): of
   a window, of a block, of a vector in the last steps and in passes of radix 3, 4, 5, 7 and 8,
   and of 64 bytes of the second cache, the last one and memory. */
#define CPU_CONV_TERMS 11
const double *dn_cpu_conv_times(const char *isa, danaus_dtype sums);

int dn_cpu_conv_terms(
    const danaus_device *dev, const conv_kernel *k, conv_term terms[CONV_MOST_TERMS]);
int dn_cpu_conv_work(
    const danaus_device *dev, const conv_frame *f, int64_t rows, conv_work *work);
danaus_status dn_cpu_conv_short(danaus_device *dev, const short_operands *o);
danaus_status dn_cpu_conv_short_gradient(
    danaus_device *dev, const short_gradient_operands *o);

danaus_status dn_cpu_stream_create(
    danaus_device *dev, const stream_shape *shape, const void *k,
    stream_engine **stream);
void dn_cpu_stream_destroy(stream_engine *stream);
void dn_cpu_stream_reset(stream_engine *stream);
danaus_status dn_cpu_stream_run(
    danaus_device *dev, stream_engine *stream, int64_t time, int64_t count,
    const void *u, void *y);

/* The row of the device's table for a storage type; NULL: none. */
const conv_code *dn_conv_code(const cpu_device *d, danaus_dtype dtype);

#endif
