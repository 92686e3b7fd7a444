/* The state while a model is compressed layer by layer (compress.c). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_COMPRESS_LAYERS_H
#define DN_MODEL_COMPRESS_LAYERS_H

#include "model/arch.h"
#include "model/compress/outer.h"
#include "model/compress/samples.h"

struct compress_work;

/* A layer, and sums over the rows that it reads in the dense model. */
typedef struct watched_layer {
    watcher watcher; /* which adds to the sums; the first field */
    struct compress_work *work;
    linear *layer; /* of the model; NULL: it stays as it is */
    linear other;  /* what takes its place, or, while that runs, the layer */
    double *weight, *bias, *x, *xx; /* [M][N], [M], [N], [N][N], in one block */
    int64_t *seen;                  /* rows of each batch */
    int64_t rows;                   /* of all */
} watched_layer;

/* Rows of a batch that a layer reads; it stops the model when it has all of them. */
typedef struct recorder {
    watcher watcher; /* the first field */
    float *x;
    int64_t rows, wanted;
    size_t room; /* bytes */
} recorder;

typedef struct compress_work {
    danaus_model *model;
    danaus_device *device;
    const samples *samples;
    const danaus_model_compression *how;
    watched_layer *layers;
    int count;
    int64_t *ranks; /* to be fitted; 0: all weights */
    int64_t batch;  /* that runs */
    outer *outers;  /* for rows of some width each */
    int outers_made;
    recorder dense, here;
    float *wanted, *found; /* outputs of the first batch */
} compress_work;

/* The caller has set the model, device, samples and description. */
danaus_status dn_layers_open(compress_work *w);
void dn_layers_close(compress_work *w);

/* Exchanges a layer with its fit, or back; for all layers: those that have a fit. */
void dn_layer_swap(watched_layer *p);
void dn_layers_swap(compress_work *w);

danaus_status dn_layers_outer(compress_work *w, int64_t cols, outer **found);

/* Runs the dense model on all samples: sums and rows of all layers. Without samples rows are
   independent numbers of size 1. */
danaus_status dn_layers_watch(compress_work *w);

/* The rows that a layer reads in a batch, in the model as it is. */
danaus_status dn_layer_record(
    compress_work *w, watched_layer *p, int64_t first, recorder *to);

/* matches[linears]: whether the name of a layer matches a regular expression; NULL: all do.
   That none does is DANAUS_ERR_ARGUMENT. */
danaus_status dn_match_layers(
    const danaus_model *model, const char *expression, int *matches);

#endif
