/* Elements and guarded arrays. */
// SPDX-License-Identifier: Apache-2.0
#include "support/element.h"

#include "support/test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARD   64
#define MARK    0xfffe /* in pairs of guard bytes: NaN in every type */
#define NOTHING 0xff   /* elements that nobody wrote: another one */

precision precision_of(danaus_dtype dtype)
{
    switch (dtype) {
    case DANAUS_F32: return (precision){ 0x1p-24, 0x1p-150, FLT_MAX, 0x1p-24, 0 };
    case DANAUS_F16: return (precision){ 0x1p-11, 0x1p-25, 65504, 0x1p-24, 0 };
    case DANAUS_BF16: return (precision){ 0x1p-8, 0x1p-134, FLT_MAX, 0x1p-24, 0 };
    case DANAUS_F64: return (precision){ 0x1p-53, 0x1p-1074, DBL_MAX, 0x1p-53, 0 };
    case DANAUS_C64: return (precision){ 0x1p-24, 0x1p-150, FLT_MAX, 0x1p-24, 1 };
    case DANAUS_C128: return (precision){ 0x1p-53, 0x1p-1074, DBL_MAX, 0x1p-53, 1 };
    case DANAUS_I8: break; /* nothing is computed in it */
    }
    fail_msg("element type %d", (int)dtype);
    return (precision){ 0 };
}

danaus_dtype sum_type(danaus_dtype dtype)
{
    return dtype == DANAUS_F16 || dtype == DANAUS_BF16 ? DANAUS_F32 : dtype;
}

/* For a normal number. */
static double power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + DBL_MAX_EXP - 1) << (DBL_MANT_DIG - 1);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A binary float of 16 bits with `fraction` bits of fraction and this bias. */
static double small_get(uint16_t bits, int fraction, int bias)
{
    int exponents = 1 << (15 - fraction), top = 1 << fraction;
    int exponent = (bits >> fraction) % exponents, rest = bits % top;
    double x = exponent == exponents - 1 ? (rest ? NAN : INFINITY)
               : exponent ? (top + rest) * power_of_two(exponent - bias - fraction)
                          : rest * power_of_two(1 - bias - fraction);
    return bits >> 15 ? -x : x;
}

static uint16_t small_put(double x, int fraction, int bias)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    int exponent, exponents = 1 << (15 - fraction), quiet = 1 << (fraction - 1);
    if (!isfinite(x))
        return (uint16_t)(sign | (exponents - 1) << fraction | (isnan(x) ? quiet : 0));
    double f = frexp(fabs(x), &exponent); /* |x| = f 2^exponent, 1/2 <= f < 1 */
    if (f == 0)
        return sign;
    int mantissa = (int)(f * (2 << fraction)) - (1 << fraction);
    assert_true(exponent - 1 + bias > 0);
    uint16_t bits = (uint16_t)(sign | ((exponent - 1 + bias) << fraction) | mantissa);
    assert_true(small_get(bits, fraction, bias) == x);
    return bits;
}

value element_get(danaus_dtype dtype, const void *from, int64_t index)
{
    const char *at = (const char *)from + (size_t)index * danaus_dtype_size(dtype);
    uint16_t h;
    float f[2];
    double d[2];
    switch (dtype) {
    case DANAUS_F16: memcpy(&h, at, 2); return (value){ small_get(h, 10, 15), 0 };
    case DANAUS_BF16: memcpy(&h, at, 2); return (value){ small_get(h, 7, 127), 0 };
    case DANAUS_F32: memcpy(f, at, 4); return (value){ f[0], 0 };
    case DANAUS_F64: memcpy(d, at, 8); return (value){ d[0], 0 };
    case DANAUS_C64: memcpy(f, at, 8); return (value){ f[0], f[1] };
    case DANAUS_C128: memcpy(d, at, 16); return (value){ d[0], d[1] };
    case DANAUS_I8: return (value){ (signed char)*at, 0 };
    }
    fail_msg("element type %d", (int)dtype);
    return (value){ 0 };
}

void element_put(danaus_dtype dtype, void *to, int64_t index, value v)
{
    char *at = (char *)to + (size_t)index * danaus_dtype_size(dtype);
    uint16_t h;
    float f[2] = { (float)v.re, (float)v.im };
    double d[2] = { v.re, v.im };
    switch (dtype) {
    case DANAUS_F16:
        h = small_put(v.re, 10, 15);
        memcpy(at, &h, 2);
        break;
    case DANAUS_BF16:
        h = small_put(v.re, 7, 127);
        memcpy(at, &h, 2);
        break;
    case DANAUS_F32: memcpy(at, f, 4); break;
    case DANAUS_F64: memcpy(at, d, 8); break;
    case DANAUS_C64: memcpy(at, f, 8); break;
    case DANAUS_C128: memcpy(at, d, 16); break;
    case DANAUS_I8: *at = (char)v.re; break;
    }
}

static double random_part(rng *r, danaus_dtype dtype)
{
    switch (dtype) {
    case DANAUS_F16: return (double)rng_int(r, -1024, 1024) * 0x1p-10;
    case DANAUS_BF16: return (double)rng_int(r, -128, 128) * 0x1p-7;
    case DANAUS_F32:
    case DANAUS_C64: return (float)rng_sign(r);
    default: return rng_sign(r);
    }
}

value element_random(rng *r, danaus_dtype dtype)
{
    value v = { random_part(r, dtype), 0 };
    if (precision_of(dtype).complex)
        v.im = random_part(r, dtype);
    return v;
}

static size_t bytes_of(const array *a)
{
    return (size_t)a->count * danaus_dtype_size(a->dtype);
}

static void mark(unsigned char *from, const unsigned char *end)
{
    for (; from < end; from += 2)
        memcpy(from, &(uint16_t){ MARK }, 2);
}

/* One element past a multiple of the guard: aligned for the element, no more. */
static void place_in_block(array *a, size_t bytes)
{
    size_t start = GUARD + danaus_dtype_size(a->dtype);
    a->block = aligned_alloc(GUARD, (start + bytes + GUARD) / GUARD * GUARD + GUARD);
    assert_non_null(a->block);
    a->data = a->block + start;
    a->after = GUARD;
}

/* Between two pages that may not be touched, at one of them. */
static void place_in_pages(array *a, size_t bytes, int at_the_end)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inside = (bytes + page) / page * page; /* at least a byte more */
    a->page_bytes = inside + 2 * page;
    a->pages = mmap(
        NULL, a->page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
        0);
    assert_true(a->pages != MAP_FAILED);
    unsigned char *first = (unsigned char *)a->pages + page;
    assert_int_equal(mprotect(first, inside, PROT_READ | PROT_WRITE), 0);
    size_t rest = inside - bytes, guard = rest < GUARD ? rest : GUARD;
    a->data = first + (at_the_end ? rest : 0);
    a->block = (unsigned char *)a->data - (at_the_end ? guard : 0);
    a->after = at_the_end ? 0 : guard;
}

static _Atomic unsigned made;

void array_places_from(unsigned place) { made = place; }

array array_make(danaus_dtype dtype, int64_t count)
{
    array a = { .dtype = dtype, .count = count };
    size_t bytes = bytes_of(&a);
    unsigned place = made++ % 4;
    if (place % 2)
        place_in_pages(&a, bytes, place == 1);
    else
        place_in_block(&a, bytes);
    unsigned char *end = (unsigned char *)a.data + bytes;
    mark(a.block, a.data);
    memset(a.data, NOTHING, bytes);
    mark(end, end + a.after);
    return a;
}

array array_random(rng *r, danaus_dtype dtype, int64_t count)
{
    array a = array_make(dtype, count);
    for (int64_t i = 0; i < count; i++)
        element_put(dtype, a.data, i, element_random(r, dtype));
    return a;
}

void array_free(array *a)
{
    if (a->pages)
        munmap(a->pages, a->page_bytes);
    else
        free(a->block);
    *a = (array){ 0 };
}

size_t array_block_bytes(const array *a)
{
    return (size_t)((unsigned char *)a->data - a->block) + bytes_of(a) + a->after;
}

int array_untouched(const array *a)
{
    for (size_t i = 0; i < bytes_of(a); i++)
        if (((const unsigned char *)a->data)[i] != NOTHING)
            return 0;
    return 1;
}

int array_same(const array *a, const array *b)
{
    size_t bytes = bytes_of(a);
    return bytes == bytes_of(b) && (!bytes || !memcmp(a->data, b->data, bytes));
}

static int is_marked(const unsigned char *from, const unsigned char *end)
{
    for (; from < end; from += 2)
        if (memcmp(from, &(uint16_t){ MARK }, 2) != 0)
            return 0;
    return 1;
}

void array_expect_guards(const array *a)
{
    const unsigned char *end = (const unsigned char *)a->data + bytes_of(a);
    if (!is_marked(a->block, a->data))
        fail_msg("the bytes before an array were written");
    if (!is_marked(end, end + a->after))
        fail_msg("the bytes after an array were written");
}
