/* Views of weights, and reading numbers through them. */
// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"
#include "device/backend.h"

#include <string.h>

weights_view dn_weights_view(const void *data, danaus_dtype dtype, danaus_pattern p)
{
    return (weights_view){ .data = data,
                           .dtype = dtype,
                           .s = { p.b * p.c * p.d, p.c * p.d, p.d, 1 },
                           .scale = 1 };
}

weights_view dn_weights_adjoint(weights_view v)
{
    int64_t rows = v.s[1];
    v.s[1] = v.s[2];
    v.s[2] = rows;
    v.conjugate = !v.conjugate;
    v.inner = NULL;
    return v;
}

/* Elements of `size` bytes, as they are. */
static void copy_elements(
    const char *from, int64_t step, int64_t count, size_t size, char *to)
{
    for (int64_t i = 0; i < count; i++, from += step * (int64_t)size, to += size)
        switch (size) {
        case 2: memcpy(to, from, 2); break;
        case 4: memcpy(to, from, 4); break;
        case 8: memcpy(to, from, 8); break;
        default: memcpy(to, from, 16);
        }
}

static void convert_elements(
    const weights_view *w, int64_t from, int64_t step, int64_t count, danaus_dtype type,
    void *to)
{
    for (int64_t i = 0; i < count; i++) {
        double value[2];
        dn_load(w->dtype, w->data, from + i * step, value);
        if (w->conjugate)
            value[1] = -value[1];
        value[0] *= w->scale;
        value[1] *= w->scale;
        dn_store(type, to, i, value);
    }
}

void dn_weights_gather(
    const weights_view *w, int64_t from, int64_t step, int64_t count, danaus_dtype type,
    void *to)
{
    int64_t size = dn_size_of(type);
    const char *first = (const char *)w->data + from * size;
    if (w->dtype != type || (w->conjugate && dn_is_complex(type)) || w->scale != 1)
        convert_elements(w, from, step, count, type, to);
    else if (step == 1)
        memcpy(to, first, (size_t)(count * size));
    else
        copy_elements(first, step, count, (size_t)size, to);
}
