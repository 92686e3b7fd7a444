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

/* An architecture whose blocks take rows of tokens to rows of tokens. */
typedef struct encoder {
    int64_t tokens; /* that go through together, unless one sequence has more */
    /* Bytes of device memory that such a chunk needs, whose longest sequence has so many
       tokens. */
    int64_t (*bytes)(const danaus_model *model, int64_t tokens, int64_t longest);
    /* Rows h [tokens][width] of a chunk, somewhere in `memory`, of the model's type, unless they
       are `wide`: f32. */
    danaus_status (*run)(
        danaus_model *model, danaus_device *device, const token_chunk *c, void *memory,
        void **h);
    /* Adds to *cost what a sequence of this length costs beside linear layers, and its memory
       beside `bytes`. */
    danaus_status (*cost)(
        danaus_model *model, danaus_device *device, int64_t length,
        danaus_model_cost *cost);
    int64_t gpu_tokens; /* that go through together on a GPU; 0: as many as elsewhere */
    int wide;
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

typedef struct arch {
    const char *name;
    /* True if config.json, with this model_type, describes such a model. */
    int (*recognizes)(const json_t *config, span type);
    /* Fills a model that has its device and file. On failure `close` frees everything. */
    danaus_status (*open)(danaus_model *model, const json_t *config);
    void (*close)(danaus_model *model);
    const encoder *encoder; /* NULL: it embeds nothing */
    const viewer *viewer;   /* NULL: it sees no images */
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
    danaus_file *file;
    const char *prefix; /* of names in the file */
    blocks memory;
    danaus_model_info info;
    int configured; /* set by the architecture: later errors are in the weights */
    int64_t others; /* numbers read that are no weights of linear layers */
    int64_t packed; /* bytes of packed weights beside linear layers */
    pooling pooling;
    linear pooler; /* of a pooled row, then tanh; without a plan: nothing */
    head head;
    linear next;    /* logits of the next token; without a plan: not causal */
    linear *linear; /* all linear layers, as they follow each other */
    int linears;
    void *own; /* of the architecture */
};

/* Fails unless the device can give so many bytes, for a purpose such as "the weights". */
danaus_status dn_need_memory(
    const danaus_device *device, int64_t bytes, const char *what);

#define X(name) extern const arch dn_arch_##name;
#include "model/archs.def"
#undef X

#endif
