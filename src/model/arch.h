/* An architecture for the calls of danaus/model.h: a row of archs.def. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_ARCH_H
#define DN_MODEL_ARCH_H

#include "danaus/model.h"
#include "model/chunk.h"
#include "model/config.h"
#include "model/head.h"
#include "model/linear.h"
#include "model/pooling.h"

/* Blocks of one kind, which take rows of tokens to rows of tokens. What they are made of is
   danaus_model.blocks, zeros at first. */
typedef struct mixer_kind {
    size_t size;
    void (*close)(void *blocks);
    /* Bytes of device memory that a chunk of so many tokens needs, whose longest sequence has so
       many. */
    int64_t (*bytes)(const void *blocks, int64_t tokens, int64_t longest);
    /* Where rows [tokens][width] of a chunk have to be, in that memory. */
    void *(*rows)(const void *blocks, const token_chunk *c, void *memory);
    /* Takes them through all blocks: h[tokens][width], somewhere in that memory. */
    danaus_status (*run)(
        void *blocks, danaus_device *device, const token_chunk *c, void *memory,
        void **h);
    /* Adds to *cost what a sequence of this length costs beside linear layers, and its memory
       beside `bytes`. */
    danaus_status (*cost)(
        const void *blocks, danaus_device *device, int64_t length,
        danaus_model_cost *cost);
    int wide; /* rows are f32, whatever the model's type */
} mixer_kind;

/* An architecture that takes tokens. */
typedef struct encoder {
    int64_t tokens;     /* that go through together, unless one sequence has more */
    int64_t gpu_tokens; /* so many on a GPU; 0: as many as elsewhere */
    /* Makes rows of tokens for the blocks; NULL: they do. */
    danaus_status (*embed)(
        danaus_model *model, danaus_device *device, const token_chunk *c, void *rows);
} encoder;

/* An architecture that takes images on the host. */
typedef struct viewer {
    /* Their embeddings [images][width], or scores of classes. */
    danaus_status (*look)(
        danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
        int classify, float *to);
    danaus_status (*cost)(
        danaus_model *model, danaus_device *device, int64_t images,
        danaus_model_cost *cost);
} viewer;

/* A model_type of config.json, and a field that it then has; NULL: any. */
typedef struct model_type {
    const char *name, *field;
} model_type;

typedef struct arch {
    const char *name;
    model_type types[4]; /* the last is empty */
    const mixer_kind *mixer;
    size_t size; /* bytes of danaus_model.own, zeros at first */
    /* Reads config.json. */
    danaus_status (*configure)(danaus_model *model, const json_t *config);
    /* Reads tensors; complaints fail later. */
    danaus_status (*bind)(danaus_model *model, const json_t *config, binder *b);
    const char *const *others; /* dn_binder_settle(); NULL: none */
    void (*close)(void *own);  /* NULL: `own` has no memory */
    const encoder *encoder;    /* NULL: it takes no tokens */
    const viewer *viewer;      /* NULL: it sees no images */
    /* Takes a prompt and a sampling that were checked. NULL: the model is not causal. */
    danaus_status (*generate)(
        danaus_model *model, danaus_device *device, const int32_t *prompt, int64_t n,
        const danaus_sampling *sampling, danaus_token_fn on_token, void *user);
    /* Replaces linear layers of a model on the host; on failure none. NULL: as dn_compress()
       does it. */
    danaus_status (*compress)(
        danaus_model *model, danaus_device *device, int64_t sequences,
        const int64_t *offsets, const int32_t *ids,
        const danaus_model_compression *how);
} arch;

struct danaus_model {
    const arch *arch;
    char device_name[32];
    char *path;         /* of its folder */
    danaus_dtype dtype; /* of rows of tokens */
    int int8;           /* linear layers of blocks are to multiply 8-bit numbers */
    danaus_file *file;
    const char *prefix; /* of names in the file */
    device_memory memory;
    danaus_model_info info;
    int64_t others; /* numbers read that are no weights of linear layers */
    int64_t packed; /* bytes of packed weights beside linear layers */
    pooling pooling;
    linear pooler; /* of a pooled row, then tanh; without a plan: nothing */
    head head;
    linear next;    /* logits of the next token; without a plan: not causal */
    linear *linear; /* all linear layers, as they follow each other */
    int linears;
    void *blocks; /* of the mixer */
    void *own;    /* of the architecture, or NULL */
};

/* A table of blocks, of `size` bytes each, zeros at first, and model->linear, which has `linears`
   layers for each of them. NULL, with the sentence: there is no memory. */
void *dn_model_blocks(danaus_model *model, int64_t layers, size_t size, int linears);

/* LAYER.PART in the file. */
danaus_status dn_model_tensor(
    const danaus_model *model, const linear *layer, const char *part, danaus_tensor *t);

/* What danaus_model_describe() says, from the present layers. */
void dn_model_fill_info(danaus_model *model);

/* Fails unless the device can give so many bytes, for a purpose such as "the weights". */
danaus_status dn_need_memory(
    const danaus_device *device, int64_t bytes, const char *what);

#define X(name) extern const arch dn_arch_##name;
#include "model/archs.def"
#undef X

#endif
