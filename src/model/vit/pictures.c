/* Squares of images, and scores of classes. */
// SPDX-License-Identifier: Apache-2.0
#include "model/vit/pictures.h"

#include "base/numbers.h"
#include "base/status.h"
#include "model/chunk.h"

#include <inttypes.h>

static int64_t square_numbers(const pictures *p)
{
    return p->channels * p->patch * p->patch;
}

static int64_t image_numbers(const pictures *p)
{
    return p->channels * p->size * p->size;
}

/* ---- loading ---- */

danaus_status dn_pictures_config(pictures *p, const json_t *config)
{
    p->size = 224;
    p->patch = 16;
    p->channels = 3;
    TRY(dn_config_size(config, "image_size", MOST_WIDTH, &p->size));
    TRY(dn_config_size(config, "patch_size", p->size, &p->patch));
    TRY(dn_config_size(config, "num_channels", MOST_WIDTH, &p->channels));
    p->across = p->size / p->patch;
    if (dn_pictures_patches(p) >= MOST_TOKENS || square_numbers(p) > MOST_WIDTH)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "%" PRId64 " x %" PRId64 " patches of %" PRId64 " numbers are too many",
            p->across, p->across, square_numbers(p));
    return DANAUS_OK;
}

danaus_status dn_pictures_open_patches(pictures *p, binder *b, const char *name)
{
    const linear_shape shape = { .rows = p->width,
                                 .cols = square_numbers(p),
                                 .tokens = dn_chunk_tokens(b->device),
                                 .dtype = p->dtype };
    const int64_t whole[] = { p->width, p->channels, p->patch, p->patch };
    const tensor_name weight = dn_name("%s.weight", name);
    danaus_tensor t;
    if (dn_binder_find(b, weight.text, &t) &&
        !dn_binder_take(b, weight.text, 4, whole, &t)) {
        /* The bias has its place all the same. */
        dn_binder_find(b, dn_name("%s.bias", name).text, &t);
        return DANAUS_OK;
    }
    return dn_linear_open(&p->patches, b, name, &shape);
}

danaus_status dn_pictures_open_classes(
    pictures *p, binder *b, const char *name, int64_t *classes)
{
    danaus_tensor bias;
    if (!dn_binder_find(b, dn_name("%s.bias", name).text, &bias) || bias.ndim != 1)
        return DANAUS_OK;
    *classes = bias.shape[0];
    linear_shape shape = { .rows = *classes, .cols = p->width, .tokens = 1 };
    return dn_linear_open(&p->classes, b, name, &shape);
}

void dn_pictures_count(const pictures *p, binder *b)
{
    b->parameters += p->patches.parameters + p->classes.parameters;
}

int64_t dn_pictures_packed(const pictures *p)
{
    return p->patches.packed + p->classes.packed;
}

void dn_pictures_close(pictures *p)
{
    dn_linear_close(&p->patches);
    dn_linear_close(&p->classes);
}

/* ---- running ---- */

int64_t dn_pictures_together(
    const danaus_device *device, int64_t tokens, int64_t images)
{
    return CLAMP(dn_chunk_tokens(device) / tokens, 1, images);
}

void dn_pictures_lay(
    const pictures *p, const danaus_device *device, uintptr_t *at, picture_room *room)
{
    int64_t single = (int64_t)sizeof(float), images = room->images;
    int64_t squares = images * dn_pictures_patches(p) * square_numbers(p);
    int64_t pixels = device->backend->on_host ? 0 : images * image_numbers(p);
    room->pixels = dn_cut(at, pixels * single);
    room->squares = dn_cut(at, squares * dn_size_of(p->dtype));
    room->embeddings = dn_cut(at, images * p->width * single);
    room->scores = dn_cut(at, images * p->classes.rows * single);
}

danaus_status dn_pictures_rows(
    const pictures *p, danaus_device *device, const picture_room *room, int64_t images,
    const float *pixels, void *rows)
{
    if (!device->backend->on_host) {
        size_t bytes = (size_t)(images * image_numbers(p)) * sizeof *pixels;
        TRY(danaus_upload(device, room->pixels, pixels, bytes));
        pixels = room->pixels;
    }
    TRY(device->backend->nn->patches(
        device, &(nn_patches){ .images = images,
                               .channels = p->channels,
                               .size = p->size,
                               .patch = p->patch,
                               .x = pixels,
                               .y = room->squares,
                               .dtype = p->dtype }));
    return dn_linear_run(
        &p->patches, device, images * dn_pictures_patches(p), room->squares, rows);
}

danaus_status dn_pictures_look(
    const pictures *p, danaus_device *device, const picture_room *room,
    embed_pictures *embed, const void *user, int64_t images, const float *pixels,
    int classify, float *to)
{
    int64_t width = classify ? p->classes.rows : p->width;
    const float *found = classify ? room->scores : room->embeddings;
    for (int64_t at = 0, n; at < images; at += n) {
        n = MIN(images - at, room->images);
        TRY(embed(user, n, pixels + at * image_numbers(p)));
        if (classify)
            TRY(dn_linear_run(&p->classes, device, n, room->embeddings, room->scores));
        TRY(danaus_download(
            device, to + at * width, found, (size_t)(n * width) * sizeof *to));
    }
    return DANAUS_OK;
}

double dn_pictures_operations(const pictures *p, int64_t images)
{
    int64_t patches = images * dn_pictures_patches(p);
    return 2 *
           (double)(p->patches.parameters * patches + p->classes.parameters * images);
}
