/* Element types: the table of dtype.def as code, and scalar conversions.

   f16 and bf16 are rounded to nearest, ties to even; NaN stays NaN. */
// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

static const dtype_facts facts[] = {
#define X(id, name, safe, kind, npy, size, digits, part, sums)                         \
    { DANAUS_##id,   #name,        safe,   kind,                                       \
      npy,           size,         digits, DANAUS_##id != DANAUS_##part,               \
      DANAUS_##part, DANAUS_##sums },
#include "base/dtype.def"
#undef X
};

#define FACTS ((int)(sizeof facts / sizeof *facts))

const dtype_facts *dn_dtype(danaus_dtype dtype)
{
    for (int i = 0; i < FACTS; i++)
        if (facts[i].dtype == dtype)
            return &facts[i];
    return NULL;
}

int dn_is_computed(danaus_dtype dtype) { return dn_dtype(dtype) && dtype != DANAUS_I8; }

danaus_status dn_check_computed(danaus_dtype dtype)
{
    if (dtype == DANAUS_I8)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "integers of 8 bits are stored, and not computed with");
    return dn_dtype(dtype)
               ? DANAUS_OK
               : dn_fail(DANAUS_ERR_ARGUMENT, "%d is no element type", (int)dtype);
}

size_t danaus_dtype_size(danaus_dtype dtype) { return (size_t)dn_size_of(dtype); }

const char *danaus_dtype_name(danaus_dtype dtype)
{
    const dtype_facts *f = dn_dtype(dtype);
    return f ? f->name : "unknown";
}

int dn_is_complex(danaus_dtype dtype) { return dn_dtype(dtype)->complex; }

danaus_dtype dn_sum_type(danaus_dtype dtype) { return dn_dtype(dtype)->sums; }

danaus_dtype dn_part_type(danaus_dtype dtype)
{
    const dtype_facts *f = dn_dtype(dtype);
    return f ? f->part : dtype;
}

danaus_dtype dn_dtype_from_name(const char *name)
{
    for (int i = 0; i < FACTS; i++)
        if (!strcmp(facts[i].name, name))
            return facts[i].dtype;
    return (danaus_dtype)0;
}

danaus_dtype dn_dtype_from_safetensors(const char *name)
{
    for (int i = 0; i < FACTS; i++)
        if (!strcmp(facts[i].safetensors, name))
            return facts[i].dtype;
    return (danaus_dtype)0;
}

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

float dn_bf16_to_f32(uint16_t h) { return float_of((uint32_t)h << 16); }

uint16_t dn_f32_to_bf16(float x)
{
    uint32_t u = bits_of(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u); /* a quiet NaN, sign kept */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

float dn_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u;
    uint32_t fraction = h & 0x3ffu;
    if (exponent == 31)
        return float_of(sign | 0x7f800000u | (fraction << 13));
    if (exponent == 0) { /* subnormal: fraction * 2^-24 is exact in f32 */
        float x = (float)fraction * 0x1p-24f;
        return sign ? -x : x;
    }
    return float_of(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

uint16_t dn_f32_to_f16(float x)
{
    uint32_t u = bits_of(x), sign = (u >> 16) & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((u >> 13) & 0x3ffu));
    if (u >= 0x477ff000u) /* 65520 and up round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (u < 0x38800000u) { /* below 2^-14: let an addition round to 2^-24 */
        float y = float_of(u) + 0.5f;
        return (uint16_t)(sign | (bits_of(y) - bits_of(0.5f)));
    }
    u += 0xfffu + ((u >> 13) & 1u);
    return (uint16_t)(sign | ((u - (112u << 23)) >> 13));
}

/* The f32 nearest to x with its last bit set if x lies between two of them
   ("round to odd"): rounding that again to 16 bits is rounding x once. */
static float round_to_odd(double x)
{
    float y = (float)x;
    if (isfinite(x) && (double)y != x) {
        uint32_t u = bits_of(y);
        if (fabs((double)y) > fabs(x))
            u--; /* towards zero */
        y = float_of(u | 1u);
    }
    return y;
}

static uint16_t f64_to_f16(double x) { return dn_f32_to_f16(round_to_odd(x)); }

static uint16_t f64_to_bf16(double x) { return dn_f32_to_bf16(round_to_odd(x)); }

/* The nearest integer that there is; NaN has none. */
static int8_t f64_to_i8(double x)
{
    return (int8_t)(isnan(x) ? 0 : fmin(fmax(rint(x), INT8_MIN), INT8_MAX));
}

void dn_load(danaus_dtype dtype, const void *from, int64_t index, double value[2])
{
    value[1] = 0;
    switch (dtype) {
    case DANAUS_F32: value[0] = ((const float *)from)[index]; break;
    case DANAUS_F16: value[0] = dn_f16_to_f32(((const uint16_t *)from)[index]); break;
    case DANAUS_BF16: value[0] = dn_bf16_to_f32(((const uint16_t *)from)[index]); break;
    case DANAUS_F64: value[0] = ((const double *)from)[index]; break;
    case DANAUS_C64:
        value[0] = ((const float *)from)[2 * index];
        value[1] = ((const float *)from)[2 * index + 1];
        break;
    case DANAUS_C128: memcpy(value, (const double *)from + 2 * index, 16); break;
    case DANAUS_I8: value[0] = ((const int8_t *)from)[index]; break;
    }
}

void dn_store(danaus_dtype dtype, void *to, int64_t index, const double value[2])
{
    switch (dtype) {
    case DANAUS_F32: ((float *)to)[index] = (float)value[0]; break;
    case DANAUS_F16: ((uint16_t *)to)[index] = f64_to_f16(value[0]); break;
    case DANAUS_BF16: ((uint16_t *)to)[index] = f64_to_bf16(value[0]); break;
    case DANAUS_F64: ((double *)to)[index] = value[0]; break;
    case DANAUS_C64:
        ((float *)to)[2 * index] = (float)value[0];
        ((float *)to)[2 * index + 1] = (float)value[1];
        break;
    case DANAUS_C128: memcpy((double *)to + 2 * index, value, 16); break;
    case DANAUS_I8: ((int8_t *)to)[index] = f64_to_i8(value[0]); break;
    }
}

void dn_convert(
    danaus_dtype from_type, const void *from, danaus_dtype to_type, void *to,
    int64_t count)
{
    if (from_type == to_type) {
        memcpy(to, from, (size_t)count * danaus_dtype_size(to_type));
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        double value[2];
        dn_load(from_type, from, i, value);
        dn_store(to_type, to, i, value);
    }
}

danaus_status danaus_convert(
    danaus_dtype from_type, const void *from, danaus_dtype to_type, void *to,
    int64_t count)
{
    if (!dn_dtype(from_type) || !dn_dtype(to_type))
        return dn_fail(DANAUS_ERR_ARGUMENT, "there is no such element type");
    if (count < 0 || (count > 0 && (!from || !to)))
        return dn_fail(DANAUS_ERR_ARGUMENT, "nothing to convert from or to");
    dn_convert(from_type, from, to_type, to, count);
    return DANAUS_OK;
}
