/* Models that run from a folder: sentence encoders of BERT's shape, dense or with linear
   layers that are chains, and causal models of long convolutions, Hyena and HyenaDNA.

   A folder holds config.json and model.safetensors as Hugging Face's transformers write
   them, and, if it is of sentence-transformers, modules.json, which says how a sentence's
   tokens become one vector (docs/models.md). Weights that are used as they lie stay in the
   mapped file, which nobody may change meanwhile. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_MODEL_H
#define DANAUS_MODEL_H

#include "danaus/base.h"
#include "danaus/device.h"
#include "danaus/ks.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct danaus_model danaus_model;

/* Loads the model in a folder for a device; destroy it before the device. Everything that is
   wrong with the weights, missing, of another shape, or there without a place, is named in
   one sentence, as far as that has room. */
DANAUS_API danaus_status
danaus_model_load(danaus_device *device, const char *path, danaus_model **model);

/* How a model is loaded. All-zero is the default of every field. */
typedef struct danaus_model_desc {
    danaus_dtype
        dtype;   /* of rows of tokens, of the tables that they come from, and of linear
                           layers and long convolutions: f32 (0), or, on GPUs, f16 or bf16,
                           with sums in f32. Normalisations' scales, filters, what is
                           pooled, and, of causal models, tables of words, the sums of all
                           blocks and logits are f32. */
    int outline; /* nonzero: only config.json, modules.json and the headers of the weights
                    are read, and no memory is taken for weights: the model can be described
                    and estimated, and does not run */
    uint64_t reserved[8];
} danaus_model_desc;

/* danaus_model_load() is this with desc NULL. A model that would take more memory than the
   device can give is DANAUS_ERR_MEMORY before any of it is taken, and so are calls that would;
   16 bits on a CPU are DANAUS_ERR_UNSUPPORTED. */
DANAUS_API danaus_status danaus_model_load_as(
    danaus_device *device, const char *path, const danaus_model_desc *desc,
    danaus_model **model);
DANAUS_API void danaus_model_destroy(danaus_model *model); /* NULL is fine */

typedef struct danaus_model_info {
    char architecture[32];     /* "bert", "m2-vit", ...: docs/models.md */
    int64_t layers, width;     /* blocks; numbers of a token between them */
    int64_t heads, vocabulary; /* of attention or filters; ids are less than that */
    int64_t max_length;        /* tokens of a text, at most */
    int64_t embedding;         /* numbers of an embedding */
    int64_t parameters;        /* numbers that make the model */
    int64_t linear_parameters; /* of these, weights of linear layers, without biases */
    int64_t dense_parameters;  /* what these would be if all were dense */
    int64_t memory;         /* bytes beside the mapped file: packed weights, copies */
    int64_t fills;          /* nonzero: danaus_model_fill() works */
    int64_t image_channels; /* of images that it takes, which have image_size pixels */
    int64_t image_size;     /* along each side; 0: it takes tokens */
    int64_t classes;        /* 0: danaus_model_classify() does not work */
    danaus_dtype dtype;     /* of its rows */
    uint32_t reserved[9];
} danaus_model_info;

DANAUS_API danaus_status
danaus_model_describe(const danaus_model *model, danaus_model_info *info);

/* What embedding costs. Operations are products and sums of numbers. */
typedef struct danaus_model_cost {
    int64_t memory; /* bytes that a call allocates, and frees */
    int64_t kept;   /* bytes that the first such call allocates for later ones */
    double linear;  /* operations of linear layers */
    double mixing;  /* of attention or long convolutions, by their fast transforms */
    double filters; /* of making filters of long convolutions, once for what is kept,
                        else for a chunk of sequences */
    uint64_t reserved[8];
} danaus_model_cost;

/* What danaus_model_embed() of so many sequences of `length` tokens will cost, before anything
   is allocated; or danaus_model_classify() of so many images, whatever `length` is. */
DANAUS_API danaus_status danaus_model_estimate(
    danaus_model *model, danaus_device *device, int64_t sequences, int64_t length,
    danaus_model_cost *cost);

/* A linear layer of a model. */
typedef struct danaus_model_layer {
    const char *name; /* "encoder.layer.0.output.dense"; the model's */
    int64_t rows, cols, parameters;
    int64_t factors; /* 1: dense, or one pattern */
    double error; /* ||Y - W X - bias|| / ||Y - mean(Y)|| for what compress() fitted it
                        to; else 0 */
    const danaus_pattern *patterns; /* [factors]; the model's */
    /* Nonzero: its plan multiplies factors out, as they would be slower one after the other. */
    int64_t merged;
    /* No matrix of the layer's rank, so no chain of its patterns, has a smaller error, whatever
       the inputs X are; else 0. */
    double lower_bound;
    /* danaus_ks_plan_seconds() of the dense layer that compress() replaced over its own; else
       0. */
    double speedup;
    uint64_t reserved[4];
} danaus_model_layer;

/* Linear layer number `index`, in the order in which they run. DANAUS_ERR_ARGUMENT past the
   last one. */
DANAUS_API danaus_status
danaus_model_layer_at(const danaus_model *model, int index, danaus_model_layer *layer);

/* Embeddings [sequences][embedding] of sequences of tokens: ids[offsets[i]] to
   ids[offsets[i + 1] - 1] are sequence i, special tokens included, at least one and at most
   max_length. All three arrays are host memory; offsets[sequences + 1] ascends from 0. A
   sequence's embedding does not depend on the others but for rounding. The device and
   the model belong to one thread at a time. */
DANAUS_API danaus_status danaus_model_embed(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, float *embeddings);

/* Scores [count][vocabulary] of all words at `count` places of a sequence of `length` tokens,
   by the model's head for masked words (logits: their softmax is the probability of each
   word there). places[count] are in [0, length). All arrays are host memory. A model without
   such a head is DANAUS_ERR_UNSUPPORTED. */
DANAUS_API danaus_status danaus_model_fill(
    danaus_model *model, danaus_device *device, int64_t length, const int32_t *ids,
    int64_t count, const int64_t *places, float *scores);

/* Embeddings [images][embedding] of images pixels[images][image_channels][image_size]
   [image_size], as the model's preprocessing leaves them: numbers around 0. Both arrays are
   host memory. Models that take tokens are DANAUS_ERR_UNSUPPORTED. */
DANAUS_API danaus_status danaus_model_embed_images(
    danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
    float *embeddings);

/* Scores [images][classes] of all classes for such images (logits: their softmax is the
   probability of each). */
DANAUS_API danaus_status danaus_model_classify(
    danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
    float *scores);

/* How likely a causal model finds tokens: for sequences as in danaus_model_embed(), of which
   scores[t] is the natural logarithm of the probability of ids[t] after the tokens before it in
   its sequence, and 0 for the first one of a sequence. Memory grows with the longest sequence
   (docs/models.md). `progress` may be NULL; if it asks to give up, scores are lost. Models that
   are not causal are DANAUS_ERR_UNSUPPORTED. */
DANAUS_API danaus_status danaus_model_score(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, danaus_progress_fn progress, void *user,
    float *scores);

/* How the next token is chosen. All-zero is the default of every field. */
typedef struct danaus_sampling {
    int64_t max_tokens; /* 0: as many as max_length leaves beside the prompt */
    uint64_t seed;      /* the same one, the same tokens */
    float temperature;  /* logits are divided by it; 0: always the likeliest token */
    float top_p;        /* the fewest likeliest tokens of this share of the probability,
                           of those that top_k leaves; 0: all */
    int32_t top_k;      /* so many likeliest tokens; 0: all */
    uint32_t reserved[9];
} danaus_sampling;

/* Called for each new token; return nonzero to stop. */
typedef int (*danaus_token_fn)(void *user, int32_t token);

/* Tokens that follow a prompt of n >= 1, n <= max_length, one after the other. The prompt and
   each token go through the model once: their long convolutions are streams. Every call begins
   anew. Models that are not causal are DANAUS_ERR_UNSUPPORTED. */
DANAUS_API danaus_status danaus_model_generate(
    danaus_model *model, danaus_device *device, const int32_t *prompt, int64_t n,
    const danaus_sampling *sampling, danaus_token_fn on_token, void *user);

/* All-zero is the default of every field but share. */
typedef struct danaus_model_compression {
    double share;       /* of the weights of the layers that are replaced: (0, 1] */
    const char *layers; /* extended regular expression of POSIX: layers whose name it
                           matches somewhere; NULL: all */
    double ridge;  /* pull towards the dense weights, as a share of the inputs' mean
                           square; 0: 0.05 */
    uint64_t seed; /* of random directions at the output */
    danaus_progress_fn progress; /* or NULL */
    void *user;
    uint64_t reserved[8];
} danaus_model_compression;

/* Replaces dense linear layers of blocks by such of lower rank, kept as some of their rows and
   how the others follow from these, so that `share` of their weights remain (biases do not
   count), by what the model does with these sequences (as in danaus_model_embed()), or, where
   there are none, by the weights alone. One layer after the other is fitted: inputs come from
   the model as it has been compressed so far, targets from the dense one. What each rank of
   each layer is worth is weighed by how far the model's output moves: embeddings, or
   log-probabilities of causal models (docs/models.md). For architecture "bert" the method is
   that of danaus.torch.compress: errors are weighed by gradients of random directions, and
   targets corrected by what the residual stream lacks by then; it needs two sequences and all
   layers dense. For the others, layers that are chains or block-diagonal stay as they are; if
   there is nothing else, that is DANAUS_ERR_UNSUPPORTED. CPU only. On failure the model is as
   it was. */
DANAUS_API danaus_status danaus_model_compress(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, const danaus_model_compression *how);

/* The same of a model that takes images (as in danaus_model_classify()), whose output are the
   scores of classes, or, without a classifier, embeddings. pixels may be NULL where there are
   none. */
DANAUS_API danaus_status danaus_model_compress_images(
    danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
    const danaus_model_compression *how);

/* Writes model.safetensors, in f32 where layers were replaced, and copies of config.json and
   of other files of JSON and text that the model's folder has, into a folder, which is made if
   it is not there. Each file appears complete or not at all. A folder that holds files is refused
   unless danaus wrote a model there before; names that begin with a dot do not count. So is one
   that has links, or such a file of another model which this one lacks, and the folder that the
   model came from. */
DANAUS_API danaus_status danaus_model_save(const danaus_model *model, const char *path);

/* Fails where danaus_model_save() would refuse the folder, before work that takes long. */
DANAUS_API danaus_status
danaus_model_check_folder(const danaus_model *model, const char *path);

#ifdef __cplusplus
}
#endif

#endif
