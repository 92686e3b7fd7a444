/* The inside of a tuning table, for its files: tuning.c has the rows, tuning_rows.c their
   text, and tuning_file.c reads and writes files. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_DEVICE_TUNING_TABLE_H
#define DN_DEVICE_TUNING_TABLE_H

#include "base/text.h"
#include "base/thread.h"
#include "device/conv.h"

/* What a row is about. Files have their rows in this order. */
typedef enum tuning_section {
    TUNING_KS,    /* a kernel for a product with one factor */
    TUNING_PAIR,  /* a kernel for a product with two factors at once */
    TUNING_OTHER, /* a kernel for another operation with one factor */
    TUNING_CONV,  /* a cut for a convolution */
    TUNING_MODEL, /* a constant of the model of convolutions */
    TUNING_SECTIONS
} tuning_section;

#define TUNING_WORDS 12

/* The question that a row answers, as integers in the order of sorted files:
       TUNING_KS     dtype, math, layout, a, b, c, d, exponent of the batch
       TUNING_PAIR   the same, then a, b, c, d of the inner factor
       TUNING_OTHER  those of TUNING_KS, then the operation
       TUNING_CONV   dtype, kind, length, taps, rows, 1 where the accuracy is not the usual
       TUNING_MODEL  dtype, constant, of
   and zeros. */
typedef struct tuning_key {
    tuning_section section;
    int64_t word[TUNING_WORDS];
} tuning_key;

typedef struct tuning_row {
    tuning_key key;
    int taken;            /* 0: no row */
    int is_shipped;       /* came with the library: measurements do without */
    const kernel *kernel; /* of TUNING_KS, TUNING_PAIR and TUNING_OTHER */
    conv_cut cut;         /* of TUNING_CONV */
    double value;         /* seconds, or the constant */
} tuning_row;

/* Open addressing; at most half of the rows are taken. */
struct tuning {
    thread_lock *lock; /* NULL: one thread alone knows the table */
    tuning_row *rows;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
};

/* The key of a problem of any operation, and the problem of a key. */
tuning_key dn_tuning_ks_key(const problem *p, int exponent);
problem dn_tuning_problem(const tuning_key *key);
tuning_key dn_tuning_conv_key(const conv_problem *p, int64_t rows);
tuning_key dn_tuning_model_key(danaus_dtype sums, tuning_constant name, int64_t of);

/* The exponent of the power of two whose ratio to the batch is nearest to 1. */
int dn_tuning_exponent(int64_t batch);

/* The next two are called with the lock held. Room for so many more rows. */
danaus_status dn_tuning_reserve(tuning *table, size_t more);

/* Puts a row, for which there must be room, in the place of the row with its key, or
   keeps that one if asked to keep the faster. */
void dn_tuning_put(tuning *table, const tuning_row *row, int keep_faster);

/* ---- rows as text (tuning_rows.c) ---- */

#define TUNING_FIELDS 13 /* most fields of a row behind those of the place */

typedef struct tuning_text {
    const char *columns; /* names of its fields */
    int fields;
    /* Fills a zeroed row; taken where it is of use on dev. The sentence of a failure
       names the field. */
    danaus_status (*read)(
        const danaus_device *dev, const span *fields, tuning_row *row);
    void (*write)(const tuning_row *row, text *to);
} tuning_text;

/* A row for bf16 from one for f16, which is as fast; 0 where there is no such kernel. */
int dn_tuning_twin(const danaus_device *dev, const tuning_row *row, tuning_row *twin);

/* Tables that came with the library: name of the file, and its text; ends with NULL. Their rows
   for f16 also serve bf16. */
typedef struct tuning_shipped {
    const char *name, *content;
} tuning_shipped;

extern const tuning_shipped dn_tuning_tables[];

extern const tuning_text dn_tuning_texts[TUNING_SECTIONS];

#endif
