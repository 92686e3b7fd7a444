/* Any bytes as the config.json of a small model, or as the index of its weights: the first byte
   says which model and which file. What is refused has a sentence; a model that loads takes
   tokens or an image to numbers. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include "support/bert.h"
#include "support/m2_bert.h"
#include "support/mixer_vit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* BERT, M2-BERT, HyenaViT, M2-ViT. */
#define MODELS 4

static danaus_device *device;
static char folders[MODELS][32];
static char configs[MODELS][1024], indices[MODELS][1 << 16]; /* right ones */

static const char *path_in(int model, const char *name)
{
    static char path[192];
    snprintf(path, sizeof path, "%s/%s", folders[model], name);
    return path;
}

static void write_file(int model, const char *name, const void *data, size_t size)
{
    FILE *f = fopen(path_in(model, name), "wb");
    expect(f && fwrite(data, 1, size, f) == size && !fclose(f));
}

static void remove_all(void)
{
    static const char *const names[] = { "config.json", "part.safetensors",
                                         "model.safetensors.index.json" };
    for (int m = 0; m < MODELS; m++) {
        for (int i = 0; i < 3; i++)
            unlink(path_in(m, names[i]));
        rmdir(folders[m]);
    }
}

/* An index that puts every tensor where it is. */
static void make_index(int model, const named_arrays *arrays)
{
    char *index = indices[model];
    size_t size = sizeof indices[model];
    int at = snprintf(index, size, "{\"weight_map\": {");
    for (int i = 0; i < arrays->count; i++)
        at += snprintf(
            index + at, size - (size_t)at, "%s\"%s\": \"part.safetensors\"",
            i ? ", " : "", arrays->name[i]);
    snprintf(index + at, size - (size_t)at, "}}");
}

static void make_model(int model, const named_arrays *arrays)
{
    strcpy(folders[model], "/tmp/fuzz_model_XXXXXX");
    expect(mkdtemp(folders[model]) != NULL);
    named_write(arrays, path_in(model, "part.safetensors"));
    make_index(model, arrays);
}

static void make_models(void)
{
    rng r = { 3 };
    small_bert bert = bert_random_dense(&r);
    small_m2 m2 = m2_of_vectors(1);
    make_model(0, &bert.arrays);
    make_model(1, &m2.arrays);
    bert_config(&bert, configs[0], sizeof configs[0]);
    m2_config(&m2, configs[1], sizeof configs[1]);
    for (int kind = 0; kind < 2; kind++) {
        small_mixer_vit vit = mixer_vit_of(&(rng){ 4 }, kind, 2);
        make_model(2 + kind, &vit.arrays);
        mixer_vit_config(&vit, configs[2 + kind], sizeof configs[2 + kind]);
        mixer_vit_free(&vit);
    }
    bert_free(&bert);
    m2_free(&m2);
    expect(danaus_device_open("cpu", &device) == DANAUS_OK);
    expect(danaus_device_set_threads(device, 1) == DANAUS_OK);
    atexit(remove_all);
}

static void use(danaus_model *model)
{
    static float x[1 << 16], y[1 << 16];
    const int32_t ids[3] = { 0 };
    int64_t offsets[] = { 0, 3 };
    danaus_model_info info;
    expect(danaus_model_describe(model, &info) == DANAUS_OK);
    int64_t side = info.image_size, image = info.image_channels * side * side;
    if (info.embedding > (1 << 16) || image > (1 << 16))
        return;
    offsets[1] = info.max_length < 3 ? info.max_length : 3;
    danaus_status status = side ? danaus_model_embed_images(model, device, 1, x, y)
                                : danaus_model_embed(model, device, 1, offsets, ids, y);
    expect(status == DANAUS_OK || *danaus_error_detail());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    danaus_model *model = NULL;
    if (!device)
        make_models();
    if (!size)
        return 0;
    int which = (data[0] & 1) | (data[0] >> 1 & 2), is_index = data[0] >> 1 & 1;
    const char *config = configs[which], *index = indices[which];
    const char *given = (const char *)data + 1;
    write_file(
        which, "config.json", is_index ? config : given,
        is_index ? strlen(config) : size - 1);
    write_file(
        which, "model.safetensors.index.json", is_index ? given : index,
        is_index ? size - 1 : strlen(index));
    danaus_status status = danaus_model_load(device, folders[which], &model);
    expect((model != NULL) == (status == DANAUS_OK));
    expect(model || *danaus_error_detail());
    if (model)
        use(model);
    danaus_model_destroy(model);
    return 0;
}
