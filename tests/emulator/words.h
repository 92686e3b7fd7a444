/* The words of portable GPU texts (src/gpu/texts/simt.h) in plain C: a text becomes a
   library whose threads the emulator (driver.c) runs one after the other. */
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

typedef long long int64;

int emulator_thread;
int64 emulator_block, emulator_blocks;
void (*emulator_barrier)(void);
unsigned char *emulator_shared; /* what a launch gives a block, before no memory */

#define KERNEL void
#define GLOBAL
#define LOCAL
#define IN_BLOCK                  static __attribute__((aligned(16)))
#define SHARED(type, name, count) type *name = (type *)emulator_shared
#define FN                        static inline
#define RESTRICT                  restrict
#define UNROLL
#define ROLL
#define BARRIER()        emulator_barrier()
#define THREAD           emulator_thread
#define BLOCK            emulator_block
#define BLOCKS           emulator_blocks
#define ALIGNED(n)       __attribute__((aligned(n)))
#define TABLE(T)         const T *
#define WHOLE(t)         (t)
#define PUT_WORDS(to, w) memcpy(to, w, 16)
#define FORGET(i)        (void)(i)
/* By the type of s: f64 or f32. */
#define ERF(s)       _Generic((s), double : erf, default : erff)(s)
#define FMA(a, b, c) ((a) * (b) + (c))
#define EXP(s)       _Generic((s), double : exp, default : expf)(s)
#define SQRT(s)      _Generic((s), double : sqrt, default : sqrtf)(s)
#define SIN(s)       _Generic((s), double : sin, default : sinf)(s)
#define LOG(s)       _Generic((s), double : log, default : logf)(s)

#define FAST_EXP(s)      expf(s)
#define FAST_RATIO(s, t) ((s) / (t))

static inline unsigned BITS(float f)
{
    unsigned u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float UNBITS(unsigned u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float f16_load(unsigned short h)
{
    _Float16 f;
    memcpy(&f, &h, sizeof f);
    return (float)f;
}

static inline unsigned short f16_store(float s)
{
    _Float16 f = (_Float16)s;
    unsigned short h;
    memcpy(&h, &f, sizeof h);
    return h;
}
