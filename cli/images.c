/* Images of a file, as a model takes them. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/images.h"

#include "common/finite.h"
#include "common/open.h"
#include "common/report.h"
#include "common/room.h"

#include <inttypes.h>
#include <stdlib.h>

static int check_shape(
    image_file *i, const char *path, const danaus_tensor *x,
    const danaus_model_info *info)
{
    char shape[200];
    int one = x->ndim == 3;
    const int64_t *size = x->shape + !one;
    int64_t side = info->image_size;
    i->count = one ? 1 : x->shape[0];
    if ((one || x->ndim == 4) && size[0] == info->image_channels && size[1] == side &&
        size[2] == side && !is_complex(x->dtype))
        return STATUS_OK;
    format_shape(x, shape, sizeof shape);
    return failure(
        "%s: images are %s %s, not real images x %" PRId64 " x %" PRId64 " x %" PRId64,
        path, danaus_dtype_name(x->dtype), shape, info->image_channels, side, side);
}

int images_read(image_file *i, const char *path, const danaus_model_info *info)
{
    danaus_tensor x;
    TRY(open_array(path, &i->file, &x));
    TRY(check_shape(i, path, &x, info));
    const void *pixels;
    TRY(tensor_as(&x, DANAUS_F32, "the images", &pixels, &i->owned));
    i->pixels = pixels;
    return STATUS_OK;
}

int images_finite(const image_file *i, const char *path, const danaus_model_info *info)
{
    int64_t side = info->image_size;
    int64_t count = i->count * info->image_channels * side * side;
    int64_t lost = count_non_finite(DANAUS_F32, i->pixels, count);
    TRY(fail_if(!i->count, "%s has no image", path));
    return fail_if(
        lost > 0,
        "%s: %" PRId64 " of %" PRId64
        " numbers are infinite or NaN, and finite ones are needed",
        path, lost, count);
}

void images_free(image_file *i)
{
    free(i->owned);
    danaus_file_close(i->file);
}

float *images_embed(
    const image_file *i, int64_t count, danaus_model *model, danaus_device *device)
{
    danaus_model_info info;
    danaus_model_describe(model, &info);
    float *y = room_make(count, info.embedding, sizeof *y, "embeddings");
    if (y && danaus_model_embed_images(model, device, count, i->pixels, y)) {
        library_failure();
        free(y);
        y = NULL;
    }
    return y;
}
