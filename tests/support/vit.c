/* A small vision transformer: making and writing. */
// SPDX-License-Identifier: Apache-2.0
#include "support/vit.h"
#include "support/files.h"
#include "support/named.h"
#include "support/test.h"

#include <string.h>

enum { LAYERS = 2, INNER = 20, PATCH = 3, TOKENS = 5 };

static void add_pair(
    rng *r, named_arrays *to, const char *place, int ndim, const int64_t *shape)
{
    char name[NAMED_LENGTH];
    named_path(name, "%s.weight", place);
    named_add_random(r, to, ndim, shape, ndim == 1, 0.5, name);
    named_path(name, "%s.bias", place);
    named_add_random(r, to, 1, shape, 0, 0.5, name);
}

static void add_layer(rng *r, named_arrays *to, int number)
{
    static const struct {
        const char *name;
        int64_t shape[2];
    } linear[] = { { "attention.attention.query", { VIT_WIDTH, VIT_WIDTH } },
                   { "attention.attention.key", { VIT_WIDTH, VIT_WIDTH } },
                   { "attention.attention.value", { VIT_WIDTH, VIT_WIDTH } },
                   { "attention.output.dense", { VIT_WIDTH, VIT_WIDTH } },
                   { "intermediate.dense", { INNER, VIT_WIDTH } },
                   { "output.dense", { VIT_WIDTH, INNER } } };
    const int64_t width = VIT_WIDTH;
    char name[NAMED_LENGTH];
    for (size_t i = 0; i < sizeof linear / sizeof *linear; i++) {
        named_path(name, "encoder.layer.%d.%s", number, linear[i].name);
        add_pair(r, to, name, 2, linear[i].shape);
    }
    named_path(name, "encoder.layer.%d.layernorm_before", number);
    add_pair(r, to, name, 1, &width);
    named_path(name, "encoder.layer.%d.layernorm_after", number);
    add_pair(r, to, name, 1, &width);
}

/* Every number by a random part of `unit`, relatively. */
static void move(named_arrays *arrays, rng *noise, double unit)
{
    for (int i = 0; noise && i < arrays->count; i++) {
        const danaus_tensor *t = &arrays->tensor[i];
        float *numbers = (float *)(uintptr_t)t->data;
        int64_t count = 1;
        for (int d = 0; d < t->ndim; d++)
            count *= t->shape[d];
        for (int64_t n = 0; n < count; n++)
            numbers[n] *= (float)(1 + unit * rng_sign(noise));
    }
}

static void write_weights(rng *r, rng *noise, double unit)
{
    static named_arrays arrays;
    const int64_t width = VIT_WIDTH, token[] = { 1, 1, VIT_WIDTH },
                  position[] = { 1, TOKENS, VIT_WIDTH },
                  patches[] = { VIT_WIDTH, VIT_CHANNELS, PATCH, PATCH },
                  classes[] = { VIT_CLASSES, VIT_WIDTH };
    arrays = (named_arrays){ 0 };
    named_add_random(r, &arrays, 3, token, 0, 1, "embeddings.cls_token");
    named_add_random(r, &arrays, 3, position, 0, 1, "embeddings.position_embeddings");
    add_pair(r, &arrays, "embeddings.patch_embeddings.projection", 4, patches);
    for (int i = 0; i < LAYERS; i++)
        add_layer(r, &arrays, i);
    add_pair(r, &arrays, "layernorm", 1, &width);
    add_pair(r, &arrays, "classifier", 2, classes);
    move(&arrays, noise, unit);
    named_write(&arrays, scratch_path("model.safetensors"));
    named_free(&arrays);
}

danaus_model *vit_load_near(
    rng *r, danaus_device *device, danaus_dtype dtype, rng *noise, double unit)
{
    static const char config[] =
        "{\"model_type\": \"vit\", \"hidden_size\": 12, \"num_attention_heads\": 3, "
        "\"intermediate_size\": 20, \"num_hidden_layers\": 2, \"image_size\": 7, "
        "\"patch_size\": 3, \"num_channels\": 2}";
    const danaus_model_desc how = { .dtype = dtype };
    danaus_model *model = NULL;
    file_write(scratch_path("config.json"), config, strlen(config));
    write_weights(r, noise, unit);
    assert_ok(danaus_model_load_as(device, scratch_directory(), &how, &model));
    return model;
}

danaus_model *vit_load(rng *r, danaus_device *device)
{
    return vit_load_near(r, device, 0, NULL, 0);
}
