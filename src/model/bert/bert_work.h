/* The state while an encoder is compressed (bert_compress.c). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_BERT_BERT_WORK_H
#define DN_MODEL_BERT_BERT_WORK_H

#include "model/bert/bert.h"
#include "model/bert/bert_steps.h"
#include "model/compress/compress.h"
#include "model/compress/outer.h"
#include "model/texts.h"

/* A layer while it is being replaced. */
typedef struct target {
    danaus_tensor weight, bias;
    linear dense, adjoint; /* without its activation */
    double *wide;          /* its weights [M][N] */
    double *side;          /* sums of g g^T, then S */
    linear made;
} target;

/* Sums over the inputs of a stage of the dense model. */
typedef struct stage_sums {
    double *x, *xx;
} stage_sums;

typedef struct bert_work {
    danaus_model *model;
    const words *words;
    const transformer *m;
    danaus_device *device;
    const danaus_model_compression *how;
    texts texts;
    int layers;
    target *target;
    int *chosen;      /* [layers] */
    int64_t *ranks;   /* [layers], to be fitted; 0: all weights */
    stage_sums *sums; /* STAGES for each block */
    outer square[2];  /* of rows of `width` and of `inner` numbers with themselves */
    outer cross[2];   /* width x inner, inner x width */
    bert_pass dense, here;
    bert_gradients gradients;
    float *inputs;    /* of all blocks, for a batch */
    float *states[2]; /* of all texts, at a block: dense, and as compressed so far */
    uint64_t random;
} bert_work;

/* The caller has set the model, device, description, texts and number of layers. */
danaus_status dn_work_open(bert_work *w);
void dn_work_close(bert_work *w);

/* A batch's sequences for a pass; offsets[TEXTS_BATCH + 1], from 0. */
void dn_work_batch(const bert_work *w, int64_t batch, int64_t *offsets, bert_pass *p);

/* The dense layers of a block, without activation. */
bert_layers dn_work_dense(const bert_work *w, int64_t block_number);

/* Runs the dense model on all texts and random directions back (bert_sense.c): S of all chosen
   layers, and the sums over inputs. It is the part SENSE_PART of the progress. */
#define SENSE_PART 0.4
danaus_status dn_work_sense(bert_work *w);

#endif
