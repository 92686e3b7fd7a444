/* Finds out what a row's packer does: the packer gets a view of weights without memory, and the
   map notes where it would put each. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/product/pack_map.h"

#include "base/mem.h"
#include "base/status.h"
#include "gpu/rows.h"
#include "math/pattern.h"

#include <inttypes.h>

#define MOST_GROUP 3 /* log2 */

/* True if the entries of each group are `step` apart or all zero. */
static int goes_by(const gpu_pack_map *m, int group, uint32_t step)
{
    for (int64_t n = 0; n < m->count; n++) {
        uint32_t first = m->entry[n / group * group];
        if (m->entry[n] != (first ? first + (uint32_t)(n % group) * step : 0))
            return 0;
    }
    return 1;
}

/* Leaves one entry for as many neighbours as go together. */
static void shorten(gpu_pack_map *m)
{
    int64_t used = 0;
    while (used < m->count && !m->entry[used])
        used++;
    for (int g = MOST_GROUP; g > 0 && used < m->count; g--) {
        int64_t n = used >> g << g;
        uint32_t step = m->entry[n + 1] - m->entry[n];
        if (m->count & ((1 << g) - 1) || !goes_by(m, 1 << g, step))
            continue;
        for (int64_t i = 0; i < m->count >> g; i++)
            m->entry[i] = m->entry[i << g];
        m->group_log2 = g;
        m->step = step;
        return;
    }
}

static weights_view view_of(danaus_pattern p, int adjoint, pack_places *places)
{
    weights_view v =
        dn_weights_view(NULL, DANAUS_F32, adjoint ? dn_pattern_adjoint(p) : p);
    v.places = places;
    return adjoint ? dn_weights_adjoint(v) : v;
}

/* Packed numbers are at least as long as those of the problem. */
static danaus_status make_map(
    const kernel *k, const problem *p, int adjoint, gpu_pack_map *m)
{
    size_t bytes = dn_packed_bytes(k, p), most = bytes / danaus_dtype_size(p->dtype);
    char *packed = dn_alloc(bytes);
    pack_places places = { m, packed, 0 }, behind = { m, packed, m->weights[0] };
    weights_view w = view_of(p->pattern, adjoint, &places);
    weights_view inner = view_of(p->inner, adjoint, &behind);
    w.inner = p->inner.a ? &inner : NULL;
    m->entry = dn_calloc(most, sizeof *m->entry);
    if (packed && m->entry)
        k->family->pack(k, p, w, packed);
    dn_free(packed);
    if (!packed || !m->entry)
        return dn_fail_memory(bytes, "finding out how weights are packed");
    m->count = (int64_t)(bytes / danaus_dtype_size(m->type));
    shorten(m);
    return DANAUS_OK;
}

danaus_status dn_gpu_map_packing(
    const kernel *k, const problem *p, int adjoint, gpu_pack_map *map)
{
    gpu_pack_map m = { .weights = { dn_pattern_weights(p->pattern),
                                    p->inner.a ? dn_pattern_weights(p->inner) : 0 } };
    if (m.weights[0] > DN_MOST_MAPPED || m.weights[1] > DN_MOST_MAPPED - m.weights[0])
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a step with %" PRId64
            " weights is packed from the host alone: devices take "
            "2^31 - 1",
            m.weights[0] + m.weights[1]);
    danaus_status status = make_map(k, p, adjoint, &m);
    if (status == DANAUS_OK)
        *map = m;
    else
        dn_free(m.entry);
    return status;
}
