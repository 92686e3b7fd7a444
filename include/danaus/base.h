/* Types and functions that every other header uses: version, status, element types, effort.

   Nothing in this library prints, exits or aborts. A function that can fail
   returns a status; on failure its outputs keep their values, and one sentence
   about what went wrong waits in danaus_error_detail().

   Structures have reserved words for future fields (docs/abi.md). Set them to zero, most
   simply with { 0 } or designators; other values are refused. The library sets the reserved
   words of structures that it fills. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_BASE_H
#define DANAUS_BASE_H

#include <stddef.h>
#include <stdint.h>

#define DANAUS_VERSION_MAJOR 0
#define DANAUS_VERSION_MINOR 1
#define DANAUS_VERSION_PATCH 0

#if defined _WIN32
#    define DANAUS_API
#else
#    define DANAUS_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum danaus_status {
    DANAUS_OK = 0,
    DANAUS_ERR_ARGUMENT,    /* the caller broke a rule stated in a header */
    DANAUS_ERR_SHAPE,       /* sizes that do not fit together */
    DANAUS_ERR_UNSUPPORTED, /* a legal request that this library or device cannot serve */
    DANAUS_ERR_MEMORY,      /* host or device memory ran out */
    DANAUS_ERR_IO,          /* the operating system refused a file */
    DANAUS_ERR_FORMAT,      /* a file is not what it claims to be */
    DANAUS_ERR_DEVICE,      /* a driver or device failed */
    DANAUS_ERR_CANCELLED    /* the caller's own function asked to give up */
} danaus_status;

typedef enum danaus_dtype {
    DANAUS_F32 = 1,
    DANAUS_F16,  /* IEEE binary16; sums in f32 */
    DANAUS_BF16, /* the upper half of an f32; sums in f32 */
    DANAUS_F64,
    DANAUS_C64,  /* complex: real and imaginary f32, interleaved */
    DANAUS_C128, /* complex: real and imaginary f64, interleaved */
    DANAUS_I8 /* integers of 8 bits, in safetensors files alone (docs/models.md): nothing is
                    computed in this type */
} danaus_dtype;

/* How f32 products may be computed. */
typedef enum danaus_math {
    DANAUS_MATH_F32 = 0, /* errors of f32 arithmetic */
    DANAUS_MATH_TF32     /* products of 10 bits where they are faster on a device */
} danaus_math;

typedef enum danaus_effort {
    DANAUS_ESTIMATE = 0, /* tuning table, else the cost model: microseconds */
    DANAUS_MEASURE,      /* time every kernel that could be best: may take seconds */
    DANAUS_TABLE_ONLY    /* tuning table, else DANAUS_ERR_UNSUPPORTED */
} danaus_effort;

/* Called now and then with the share of work done, in [0, 1]; return nonzero
   to give up (then the call fails with DANAUS_ERR_CANCELLED). */
typedef int (*danaus_progress_fn)(void *user, double done);

/* "MAJOR.MINOR.PATCH" of the library that runs. */
DANAUS_API const char *danaus_version(void);

/* "ok", "argument", ...; "unknown" for a value that is no status. */
DANAUS_API const char *danaus_status_name(danaus_status status);

/* Bytes of one element; 0 for a value that is no element type. */
DANAUS_API size_t danaus_dtype_size(danaus_dtype dtype);

/* "f32", "bf16", ...; "unknown" for a value that is no element type. */
DANAUS_API const char *danaus_dtype_name(danaus_dtype dtype);

/* Copies `count` elements from one type to another and rounds once, to nearest. A real
   type keeps the real part of a complex value. Values that the type cannot hold are no
   failure: finite values beyond its range become infinite, and values below it become
   subnormal or 0 with their sign. danaus_convert_check() finds such values. */
DANAUS_API danaus_status danaus_convert(
    danaus_dtype from_type, const void *from, danaus_dtype to_type, void *to,
    int64_t count);

/* Refuses a conversion that loses more than rounding does: DANAUS_ERR_ARGUMENT if a
   finite value would become infinite, or if values are so small that their norm, the
   root of the sum of squares, changes by more than the unit roundoff of to_type. The
   sentence calls them `name`. Imaginary parts that a real type drops do not count, and
   neither do values that are infinite or NaN. */
DANAUS_API danaus_status danaus_convert_check(
    danaus_dtype from_type, const void *from, danaus_dtype to_type, int64_t count,
    const char *name);

/* Refuses more memory than this process can get: DANAUS_ERR_MEMORY if `bytes` is at least
   256 MiB and more than the system or a limit of its control groups leaves. The check
   exists because systems promise memory that they lack and kill the process later. The
   sentence calls the memory `name`. */
DANAUS_API danaus_status danaus_memory_check(size_t bytes, const char *name);

/* One sentence on this thread's latest failure, without a full stop. It stays
   valid until the next failure on this thread. */
DANAUS_API const char *danaus_error_detail(void);

#ifdef __cplusplus
}
#endif

#endif
