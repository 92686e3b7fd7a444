/* The head of masked language models: a score for each word of the vocabulary,

       scores = W norm(activation(D h + d)) + bias,

   where W is a table of its own or the embeddings of words. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_HEAD_H
#define DN_MODEL_HEAD_H

#include "model/linear.h"
#include "model/words.h"

/* Rows that are worked on together. */
#define HEAD_ROWS 32

typedef struct head {
    int64_t words, width; /* words 0: there is none */
    linear dense;
    affine norm;
    const void *table; /* [words][width], in the type of rows */
    const float *bias; /* [words], or NULL */
} head;

/* Names in the file. */
typedef struct head_names {
    const char *dense, *norm, *table;
    const char *bias, *other; /* the table's bias, under one name or the other */
} head_names;

/* Whether layers have biases, and what follows the dense one. */
typedef struct head_form {
    danaus_activation activation;
    int no_dense_bias, no_bias;
} head_form;

/* Reads a head, if the file has its dense layer. The table may be that of the words. */
danaus_status dn_head_open(
    head *h, binder *b, const words *w, const head_names *names, const head_form *form,
    double epsilon);
void dn_head_close(head *h);

/* Bytes of device memory that a run needs, whose beginning is x[HEAD_ROWS][width], rows. */
size_t dn_head_bytes(const head *h);

/* Scores [rows][words] in host memory, of at most HEAD_ROWS rows in `memory`. */
danaus_status dn_head_run(
    const head *h, danaus_device *device, int64_t rows, void *memory, float *scores);

#endif
