/* Rotary positions: their configuration, and tables of angles. */
// SPDX-License-Identifier: Apache-2.0
#include "model/bert/rotary.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "device/backend.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

danaus_status dn_rotary_theta(const json_t *object, double *theta)
{
    span type = { "default", strlen("default") };
    TRY(dn_json_number(object, "rope_theta", theta));
    TRY(dn_json_text(object, "rope_type", &type));
    if (!dn_span_is(type, "default"))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "rope_type \"%.*s\" is not \"default\"",
            (int)MIN(type.length, 40), type.text);
    if (!(*theta > 0))
        return dn_fail(
            DANAUS_ERR_FORMAT, "the theta of rotary positions is %g, not above 0",
            *theta);
    return DANAUS_OK;
}

danaus_status dn_rotary_check_head(int64_t head)
{
    if (head % 2 == 0)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_FORMAT,
        "a head has %" PRId64 " numbers: rotary positions need an even number", head);
}

/* Fills rows [positions][head] for heads of `head` numbers, as nn_rotary has them. */
static void fill_turns(int64_t positions, int64_t head, double theta, float *to)
{
    for (int64_t i = 0; i < head / 2; i++) {
        double rate = pow(theta, -2 * (double)i / (double)head);
        for (int64_t p = 0; p < positions; p++) {
            to[p * head + i] = (float)cos((double)p * rate);
            to[p * head + head / 2 + i] = (float)sin((double)p * rate);
        }
    }
}

danaus_status dn_rotary_make(
    binder *b, int64_t positions, int64_t head, double theta, const float **turns)
{
    size_t bytes = (size_t)(positions * head) * sizeof(float);
    void *memory;
    TRY(dn_memory_add(b->copies, (int64_t)bytes, &memory));
    *turns = memory;
    if (b->copies->outline)
        return DANAUS_OK;
    float *made = dn_alloc(bytes);
    if (!made)
        return dn_fail_memory(bytes, "positions");
    fill_turns(positions, head, theta, made);
    danaus_status status = danaus_upload(b->device, memory, made, bytes);
    dn_free(made);
    return status;
}
