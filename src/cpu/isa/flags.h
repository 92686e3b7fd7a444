/* The processor's flags of arithmetic, and its mode for subnormal numbers. Both belong to the
   thread. Kernels are called through pointers, so compilers keep the order. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_ISA_FLAGS_H
#define DN_CPU_ISA_FLAGS_H

#include <stdint.h>

/* Results since dn_range_begin() that were too large, or that were rounded below the normal
   numbers. dn_range_end() says which there were, and leaves the notes of the caller as they would
   be without. */
typedef uint64_t range_notes;
enum { DN_OVERFLOW = 1, DN_UNDERFLOW = 2 };

/* While numbers below the normal ones are taken as zero. */
typedef uint64_t small_numbers;

#if defined __x86_64__

#    include <immintrin.h>

#    define DN_RANGE_SHIFT 3 /* of MXCSR */
#    define DN_RANGE_FLAGS ((DN_OVERFLOW | DN_UNDERFLOW) << DN_RANGE_SHIFT)
#    define DN_SMALL_FLAGS 0x8040 /* results, and operands */

static inline range_notes dn_range_begin(void)
{
    unsigned now = _mm_getcsr();
    if (now & DN_RANGE_FLAGS)
        _mm_setcsr(now & ~(unsigned)DN_RANGE_FLAGS);
    return now & DN_RANGE_FLAGS;
}

static inline int dn_range_end(range_notes before)
{
    unsigned now = _mm_getcsr();
    if (before & ~(range_notes)now)
        _mm_setcsr(now | (unsigned)before);
    return (int)((now & DN_RANGE_FLAGS) >> DN_RANGE_SHIFT);
}

static inline small_numbers dn_small_as_zero(void)
{
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | DN_SMALL_FLAGS);
    return before & DN_SMALL_FLAGS;
}

static inline void dn_small_as_before(small_numbers before)
{
    _mm_setcsr((_mm_getcsr() & ~(unsigned)DN_SMALL_FLAGS) | (unsigned)before);
}

#elif defined __aarch64__

#    define DN_RANGE_SHIFT 2 /* of FPSR */
#    define DN_RANGE_FLAGS ((uint64_t)(DN_OVERFLOW | DN_UNDERFLOW) << DN_RANGE_SHIFT)
#    define DN_SMALL_FLAGS ((uint64_t)1 << 24) /* of FPCR */

static inline uint64_t dn_fpsr(void)
{
    uint64_t now;
    __asm__ volatile("mrs %0, fpsr" : "=r"(now)::"memory");
    return now;
}

static inline void dn_set_fpsr(uint64_t to)
{
    __asm__ volatile("msr fpsr, %0" ::"r"(to) : "memory");
}

static inline range_notes dn_range_begin(void)
{
    uint64_t now = dn_fpsr();
    if (now & DN_RANGE_FLAGS)
        dn_set_fpsr(now & ~DN_RANGE_FLAGS);
    return now & DN_RANGE_FLAGS;
}

static inline int dn_range_end(range_notes before)
{
    uint64_t now = dn_fpsr();
    if (before & ~now)
        dn_set_fpsr(now | before);
    return (int)((now & DN_RANGE_FLAGS) >> DN_RANGE_SHIFT);
}

static inline small_numbers dn_small_as_zero(void)
{
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before)::"memory");
    __asm__ volatile("msr fpcr, %0" ::"r"(before | DN_SMALL_FLAGS) : "memory");
    return before & DN_SMALL_FLAGS;
}

static inline void dn_small_as_before(small_numbers before)
{
    uint64_t now;
    __asm__ volatile("mrs %0, fpcr" : "=r"(now)::"memory");
    __asm__ volatile("msr fpcr, %0" ::"r"((now & ~DN_SMALL_FLAGS) | before) : "memory");
}

#else /* always looked at, and never flushed */

static inline range_notes dn_range_begin(void) { return 0; }
static inline int dn_range_end(range_notes before)
{
    (void)before;
    return DN_OVERFLOW | DN_UNDERFLOW;
}
static inline small_numbers dn_small_as_zero(void) { return 0; }
static inline void dn_small_as_before(small_numbers before) { (void)before; }

#endif
#endif
