/* The vocabulary of portable texts: the words of a GPU language, element types and
   their arithmetic. A text is C; the platform says what its words mean.

   X is the type of x and y, S the type of sums. V sums are 16 bytes.
   TYPE_f32, TYPE_f16, ... says which.

   GLOBAL stands before what a pointer into the device's memory points to, LOCAL before what lies
   in the memory of a block; other pointers are to a thread's own variables. IN_BLOCK declares an
   array in the memory of a block, in a kernel's outermost braces.

   A kernel that does several jobs at once has a table of them as its only argument,
   KERNEL ks(TABLE(jobs) t), which WHOLE(t) points to. */
// SPDX-License-Identifier: Apache-2.0

#if defined __CUDACC_RTC__ || defined __CUDACC__
/* Blocks for which there are registers, unless the text says: 512 threads. */
#    ifndef RESIDENT
#        define RESIDENT (512 / THREADS)
#    endif
#    define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
#    define GLOBAL
#    define LOCAL
#    define IN_BLOCK __shared__ __align__(16)
/* All the memory that a launch gives a block, as an array of `count` elements. */
#    define SHARED(type, name, count)                                                  \
        extern __shared__ __align__(16) unsigned char shared_bytes[];                  \
        type *name = (type *)shared_bytes
#    define FN         static __device__ __forceinline__
#    define RESTRICT   __restrict__
#    define UNROLL     _Pragma("unroll")
#    define ROLL       _Pragma("unroll 1")
#    define BARRIER()  __syncthreads()
#    define THREAD     ((int)threadIdx.x)
#    define BLOCK      ((int64)blockIdx.x)
#    define BLOCKS     ((int64)gridDim.x)
#    define ALIGNED(n) __align__(n)
#    define TABLE(T)   const __grid_constant__ T
#    define WHOLE(t)   (&(t))
/* Four words to a multiple of 16 bytes, at once: as elements a compiler may store them one by
   one. */
#    define PUT_WORDS(to, w)                                                           \
        asm volatile(                                                                  \
            "st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"((w)[0]),         \
            "r"((w)[1]), "r"((w)[2]), "r"((w)[3]))
/* Hides an int's origin from the compiler, so that values which it computes from the int in a
   loop do not stay in registers until the next pass. */
#    define FORGET(i) asm volatile("" : "+r"(i))
#    define BITS(f)   __float_as_uint(f)
#    define UNBITS(u) __uint_as_float(u)
#    ifdef TYPE_f64
#        define FMA(a, b, c) fma(a, b, c)
#        define ERF(s)       erf(s)
#        define EXP(s)       exp(s)
#        define SQRT(s)      sqrt(s)
#        define SIN(s)       sin(s)
#        define LOG(s)       log(s)
#    else
#        define FMA(a, b, c) fmaf(a, b, c)
#        define ERF(s)       erff(s)
#        define EXP(s)       expf(s)
#        define SQRT(s)      sqrtf(s)
#        define SIN(s)       sinf(s)
#        define LOG(s)       logf(s)
#    endif
/* Within a few units in the last place of f32. */
#    define FAST_EXP(s)      __expf(s)
#    define FAST_RATIO(s, t) __fdividef(s, t)
typedef long long int64;
FN float f16_load(unsigned short h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
FN unsigned short f16_store(float f)
{
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
/* Two numbers as f16, the first one in the low half. */
FN unsigned f16_pair(float low, float high)
{
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
#    if __CUDA_ARCH__ >= 800
#        define BF16_STORE(f) bf16_store(f)
FN unsigned short bf16_store(float f)
{
    unsigned short h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
#    endif
#elif defined __OPENCL_C_VERSION__
#    define KERNEL                    kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
#    define GLOBAL                    global
#    define LOCAL                     local
#    define IN_BLOCK                  local __attribute__((aligned(16)))
#    define SHARED(type, name, count) IN_BLOCK type name[count]
#    define FN                        static inline
#    define RESTRICT                  restrict
#    define UNROLL                    _Pragma("unroll")
#    define ROLL                      _Pragma("unroll 1")
#    define BARRIER()                 barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#    define THREAD                    ((int)get_local_id(0))
#    define BLOCK                     ((int64)get_group_id(0))
#    define BLOCKS                    ((int64)get_num_groups(0))
#    define ALIGNED(n)                __attribute__((aligned(n)))
/* Tables lie in the device's memory. */
#    define TABLE(T)                  const global T *
#    define WHOLE(t)                  (t)
#    define PUT_WORDS(to, w)                                                           \
        (*(global uint4 *)(to) = (uint4)((w)[0], (w)[1], (w)[2], (w)[3]))
#    define FORGET(i)        ((void)(i))
#    define BITS(f)          as_uint((float)(f))
#    define UNBITS(u)        as_float(u)
#    define FMA              fma
#    define ERF              erf
#    define EXP              exp
#    define SQRT             sqrt
#    define SIN              sin
#    define LOG              log
#    define FAST_EXP         exp
#    define FAST_RATIO(s, t) ((s) / (t))
typedef long int64;
FN float f16_load(unsigned short h) { return vload_half(0, (const half *)&h); }
FN unsigned short f16_store(float f)
{
    unsigned short h;
    vstore_half_rte(f, 0, (half *)&h);
    return h;
}
#endif
#if !defined __CUDACC_RTC__ && !defined __CUDACC__
FN unsigned f16_pair(float low, float high)
{
    return f16_store(low) | (unsigned)f16_store(high) << 16;
}
#endif

/* ---- element types ---- */

#if !defined __OPENCL_C_VERSION__ || defined cl_khr_fp64
#    define HAS_F64 1
#endif

#if defined TYPE_f64 || defined TYPE_c128
typedef double real;
#else
typedef float real;
#endif

#if defined TYPE_c64 || defined TYPE_c128
#    define COMPLEX 1
typedef struct ALIGNED(2 * sizeof(real)) {
    real re, im;
} S;
#else
#    define COMPLEX 0
typedef real S;
#endif

#if defined TYPE_f16 || defined TYPE_bf16
typedef unsigned short X;
#else
typedef S X;
#endif

#if defined TYPE_c128
#    define V 1
#elif defined TYPE_f64 || defined TYPE_c64
#    define V 2
#else
#    define V 4
#endif

/* V sums that are moved at once. */
typedef struct ALIGNED(16) {
    S v[V];
} SV;

#if COMPLEX
FN S zero(void)
{
    S s = { 0, 0 };
    return s;
}
FN S plus(S a, S b)
{
    S s = { a.re + b.re, a.im + b.im };
    return s;
}
FN S conjugate(S a)
{
    S s = { a.re, -a.im };
    return s;
}
/* a + w x */
FN S multiply_add(S w, S x, S a)
{
    a.re += w.re * x.re;
    a.re -= w.im * x.im;
    a.im += w.re * x.im;
    a.im += w.im * x.re;
    return a;
}
#else
FN S zero(void) { return 0; }
FN S plus(S a, S b) { return a + b; }
FN S conjugate(S a) { return a; }
FN S multiply_add(S w, S x, S a) { return a + w * x; }
#endif

#if defined TYPE_f16
FN S load(X x) { return f16_load(x); }
FN X store(S s) { return f16_store(s); }
#elif defined TYPE_bf16
FN S load(X x) { return UNBITS((unsigned)x << 16); }
/* To nearest, ties to even; NaN stays NaN. */
FN X store(S s)
{
#    ifdef BF16_STORE
    return BF16_STORE(s);
#    else
    unsigned u = BITS(s);
    if (s != s)
        return (X)(u >> 16 | 0x40);
    return (X)((u + 0x7fff + (u >> 16 & 1)) >> 16);
#    endif
}
#else
FN S load(X x) { return x; }
FN X store(S s) { return s; }
#endif

FN int at_most(int64 count, int most) { return count < most ? (int)count : most; }

/* ---- what follows products; activations: the numbers of danaus_activation ---- */

#if COMPLEX
FN S activate(S s, int activation) { return s; }
#elif defined TYPE_f16 || defined TYPE_bf16
#    include "normal.h"
FN S activate(S s, int activation)
{
    if (activation == 0)
        return s;
    if (activation == 1)
        return s < 0 ? 0 : s;
    S u = activation == 2   ? normal_logit(s)
          : activation == 3 ? s
                            : 1.59576912f * (s + 0.044715f * s * s * s);
    return FAST_RATIO(s, 1 + FAST_EXP(-u));
}
#else
FN S activate(S s, int activation)
{
    if (activation == 1)
        return s < 0 ? 0 : s;
    if (activation == 2)
        return (S)0.5 * s * (1 + ERF(s * (S)0.70710678118654752));
    if (activation == 3)
        return s / (1 + EXP(-s));
    if (activation == 4)
        return s / (1 + EXP(-(S)1.5957691216057308 * (s + (S)0.044715 * s * s * s)));
    return s;
}
#endif

/* activation(sum + *bias) + *residual; a pointer that is NULL adds nothing. */
FN X end(S sum, const GLOBAL S *bias, int activation, const GLOBAL X *residual)
{
    sum = activate(bias ? plus(sum, *bias) : sum, activation);
    return store(residual ? plus(sum, load(*residual)) : sum);
}
