/* Models that run from a folder: sentence encoders of BERT's family, dense or with linear
   layers that are chains; models of images; and causal models of long convolutions, Hyena
   and HyenaDNA.

   A folder holds config.json and model.safetensors as Hugging Face's transformers write
   them. A folder of sentence-transformers also has modules.json, which says how a sentence's
   tokens become one vector (docs/models.md). Weights that are used as they are stay in the
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

/* Loads the model in a folder for a device; destroy it before the device. If weights are
   missing, have another shape, or have no place in the model, the sentence names all of them,
   as far as it has room. */
DANAUS_API danaus_status
danaus_model_load(danaus_device *device, const char *path, danaus_model **model);

/* How a model is loaded. All-zero is the default of every field. */
typedef struct danaus_model_desc {
    danaus_dtype
        dtype;   /* the type of rows of tokens, their tables, linear layers and long
                           convolutions: f32 (0), or, on GPUs, f16 or bf16 with sums in f32.
                           Scales of normalisations, filters and pooled rows are f32. In
                           causal models tables of words, the sums of all blocks and logits
                           are f32 too. */
    int outline; /* nonzero: read only config.json, modules.json and the headers of the
                    weights, and take no memory for weights. The model can be described and
                    estimated but does not run. */
    int int8; /* nonzero: linear layers of blocks round their weights and rows of tokens to
                    8 bits (danaus_ks_desc.int8). CPUs only. Layers whose weights have 8 bits
                    in the folder do so without this. */
    uint32_t reserved[15];
} danaus_model_desc;

/* danaus_model_load() is this with desc NULL. DANAUS_ERR_MEMORY if a model needs more memory
   than the device can give; nothing is then allocated, and the same holds for calls.
   DANAUS_ERR_UNSUPPORTED for 16 bits on a CPU. */
DANAUS_API danaus_status danaus_model_load_as(
    danaus_device *device, const char *path, const danaus_model_desc *desc,
    danaus_model **model);
DANAUS_API void danaus_model_destroy(danaus_model *model); /* NULL is fine */

typedef struct danaus_model_info {
    char architecture[32];     /* "bert", "m2-vit", ...: docs/models.md */
    int64_t layers, width;     /* blocks; numbers of a token between blocks */
    int64_t heads, vocabulary; /* of attention or filters; ids < vocabulary */
    int64_t max_length;        /* the most tokens of a text; 2^24 if config.json has
                                  filter_taps: filters do not limit it then */
    int64_t embedding;         /* numbers of an embedding */
    int64_t parameters;        /* numbers that make the model */
    int64_t linear_parameters; /* of these, weights of linear layers, without biases */
    int64_t dense_parameters;  /* linear_parameters if all layers were dense */
    int64_t memory;         /* bytes beside the mapped file: packed weights, copies */
    int64_t fills;          /* nonzero: danaus_model_fill() works */
    int64_t image_channels; /* of the images that the model takes */
    int64_t image_size;     /* pixels along each side; 0: it takes tokens */
    int64_t classes;        /* 0: danaus_model_classify() does not work */
    danaus_dtype dtype;     /* of the model's rows */
    uint32_t reserved[9];
} danaus_model_info;

DANAUS_API danaus_status
danaus_model_describe(const danaus_model *model, danaus_model_info *info);

/* The cost of an embedding. Operations are products and sums of numbers. */
typedef struct danaus_model_cost {
    int64_t memory; /* bytes that a call allocates, and frees */
    int64_t kept;   /* bytes that the first such call allocates for later calls */
    double linear;  /* operations of linear layers */
    double mixing;  /* operations of attention, or of long convolutions by transforms */
    double filters; /* operations that compute filters of long convolutions: once if
                        filters are kept, else for each chunk of sequences */
    uint64_t reserved[8];
} danaus_model_cost;

/* The cost of danaus_model_embed() for `sequences` sequences of `length` tokens, or of
   danaus_model_classify() for so many images, whatever `length` is. Nothing is allocated. */
DANAUS_API danaus_status danaus_model_estimate(
    danaus_model *model, danaus_device *device, int64_t sequences, int64_t length,
    danaus_model_cost *cost);

/* A linear layer of a model. */
typedef struct danaus_model_layer {
    const char *name; /* "encoder.layer.0.output.dense"; the model's */
    int64_t rows, cols, parameters;
    int64_t factors; /* 1: dense, or one pattern */
    double error; /* ||Y - W X - bias|| / ||Y - mean(Y)|| on the samples of compress();
                        else 0 */
    const danaus_pattern *patterns; /* [factors]; the model's */
    /* Nonzero: the layer's plan multiplies factors out, which is faster than one after the
       other. */
    int64_t merged;
    /* No matrix of the layer's rank, and so no chain of its patterns, has a smaller error,
       whatever the inputs X are; 0: unknown. */
    double lower_bound;
    /* danaus_ks_plan_seconds() of the dense layer that compress() replaced, divided by that of
       this layer; else 0. */
    double speedup;
    int64_t int8; /* nonzero: it multiplies 8-bit numbers */
    uint64_t reserved[4];
} danaus_model_layer;

/* Linear layer number `index`, in the order in which layers run. DANAUS_ERR_ARGUMENT past the
   last one. */
DANAUS_API danaus_status
danaus_model_layer_at(const danaus_model *model, int index, danaus_model_layer *layer);

/* Embeddings [sequences][embedding] of sequences of tokens. Sequence i is ids[offsets[i]] to
   ids[offsets[i + 1] - 1], special tokens included: at least one and at most max_length
   tokens. All three arrays are host memory; offsets[sequences + 1] ascends from 0. A
   sequence's embedding depends on the others only by rounding. Only one thread at a time may
   use the device and the model. */
DANAUS_API danaus_status danaus_model_embed(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, float *embeddings);

/* Scores [count][vocabulary] of all words at `count` places of a sequence of `length` tokens,
   by the model's head for masked words. They are logits: their softmax is the probability of
   each word at the place. places[count] are in [0, length). All arrays are host memory.
   DANAUS_ERR_UNSUPPORTED if the model has no such head. */
DANAUS_API danaus_status danaus_model_fill(
    danaus_model *model, danaus_device *device, int64_t length, const int32_t *ids,
    int64_t count, const int64_t *places, float *scores);

/* Embeddings [images][embedding] of pixels[images][image_channels][image_size][image_size]
   after the model's preprocessing: numbers around 0. Both arrays are host memory.
   DANAUS_ERR_UNSUPPORTED if the model takes tokens. */
DANAUS_API danaus_status danaus_model_embed_images(
    danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
    float *embeddings);

/* Scores [images][classes] of all classes for such images. They are logits: their softmax is
   the probability of each class. */
DANAUS_API danaus_status danaus_model_classify(
    danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
    float *scores);

/* The likelihood of tokens by a causal model, for sequences as in danaus_model_embed().
   scores[t] is the natural logarithm of the probability of ids[t] after the tokens before it
   in its sequence, and 0 for the first token of a sequence. Memory grows with the longest
   sequence (docs/models.md). `progress` may be NULL; if it asks to give up, scores are lost.
   DANAUS_ERR_UNSUPPORTED if the model is not causal. */
DANAUS_API danaus_status danaus_model_score(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, danaus_progress_fn progress, void *user,
    float *scores);

/* How the next token is chosen. All-zero is the default of every field. */
typedef struct danaus_sampling {
    int64_t max_tokens; /* 0: as many as max_length allows after the prompt */
    uint64_t seed;      /* the same seed gives the same tokens */
    float temperature;  /* logits are divided by it; 0: always the likeliest token */
    float top_p;        /* choose among the fewest likeliest tokens, of those that top_k
                           leaves, with this share of the probability; 0: all */
    int32_t top_k;      /* choose among so many likeliest tokens; 0: all */
    uint32_t reserved[9];
} danaus_sampling;

/* Called for each new token; return nonzero to stop. */
typedef int (*danaus_token_fn)(void *user, int32_t token);

/* Generates tokens after a prompt of n tokens, 1 <= n <= max_length, one after the other. The
   prompt and each token go through the model once: long convolutions are streams. Every call
   starts a new text. DANAUS_ERR_UNSUPPORTED if the model is not causal. */
DANAUS_API danaus_status danaus_model_generate(
    danaus_model *model, danaus_device *device, const int32_t *prompt, int64_t n,
    const danaus_sampling *sampling, danaus_token_fn on_token, void *user);

/* All-zero is the default of every field but share. */
typedef struct danaus_model_compression {
    double share; /* of the weights of replaced layers that remains: (0, 1] */
    const char
        *layers;   /* extended regular expression of POSIX; replaces layers whose name
                           it matches anywhere; NULL: all */
    double ridge;  /* pull towards the dense weights, as a share of the inputs' mean
                           square; 0: 0.05 */
    uint64_t seed; /* of random directions at the output */
    danaus_progress_fn progress; /* or NULL */
    void *user;
    uint32_t
        candidates; /* danaus_candidates (factorize.h), but DANAUS_TRY_SUMS, that are
                            tried for each layer beside low rank; 0: none */
    int int8; /* nonzero: the new layers multiply 8-bit numbers (danaus_ks_desc.int8), and are
                 fitted and rated with weights rounded to these. With a share of 1 they are
                 dense. */
    uint32_t reserved[14];
} danaus_model_compression;

/* Replaces dense linear layers of blocks by layers of lower rank, so that `share` of their
   weights remains (biases do not count). A new layer keeps some of its rows, and the
   coefficients that give the other rows; with `candidates` it is a chain, or the sum of two,
   where such a layer with no more weights has a smaller error. The fit uses what the model does with these sequences
   (as in danaus_model_embed()), or only the weights if there are none. Layers are fitted one
   after the other: inputs come from the model as compressed so far, targets from the dense
   model. Each rank of each layer is weighed by how far the model's output moves: embeddings,
   or log-probabilities of causal models (docs/models.md). For architectures "bert", "roberta",
   "distilbert" and "mpnet" the method is that of danaus.torch.compress: errors are weighed by gradients of
   random directions, and targets are corrected by the present error of the residual stream. It
   needs two sequences and only dense layers. In other architectures layers that are chains or
   block-diagonal do not change; DANAUS_ERR_UNSUPPORTED if there are no other layers. CPU only. On
   failure the model does not change. */
DANAUS_API danaus_status danaus_model_compress(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, const danaus_model_compression *how);

/* The same for a model that takes images (as in danaus_model_classify()). Its output is the
   scores of classes or, without a classifier, embeddings. pixels may be NULL if `images` is
   0. */
DANAUS_API danaus_status danaus_model_compress_images(
    danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
    const danaus_model_compression *how);

/* Writes model.safetensors, in f32 where layers were replaced, into a folder, and copies
   config.json and the other JSON and text files of the model's folder. The folder is created
   if it does not exist. Each file appears complete or not at all. The call refuses a folder
   that holds files unless danaus wrote a model there before (names that begin with a dot do
   not count), a folder that has links, a folder with a JSON or text file of another model that
   this model lacks, and the folder that the model came from. */
DANAUS_API danaus_status danaus_model_save(const danaus_model *model, const char *path);

/* Fails if danaus_model_save() would refuse the folder: call this before long work. */
DANAUS_API danaus_status
danaus_model_check_folder(const danaus_model *model, const char *path);

#ifdef __cplusplus
}
#endif

#endif
