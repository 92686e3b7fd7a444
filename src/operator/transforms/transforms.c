/* The public call for known transforms, and the checks of its description. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/transforms/transforms.h"

#include "base/dtype.h"
#include "base/quota.h"
#include "base/status.h"

#include <inttypes.h>

enum { /* what a kind takes, or is */
       COMPLEX = 1,
       SCALED = 2, /* orthonormal is an option */
       VALUES = 4,
       ANGLES = 8,
       WAVES = 16 /* moments and levels */
};

typedef struct kind_facts {
    const char *name;
    int takes;
    danaus_status (*make)(const danaus_transform_desc *, danaus_operator **);
} kind_facts;

/* In the order of danaus_transform. */
static const kind_facts kinds[] = {
    { "dft", COMPLEX | SCALED, dn_fourier_transform },
    { "walsh-hadamard", SCALED, dn_butterfly },
    { "hartley", SCALED, dn_fourier_transform },
    { "dct1", SCALED, dn_fourier_transform },
    { "dct2", SCALED, dn_fourier_transform },
    { "dct3", SCALED, dn_fourier_transform },
    { "dct4", SCALED, dn_fourier_transform },
    { "dst1", SCALED, dn_fourier_transform },
    { "dst2", SCALED, dn_fourier_transform },
    { "dst3", SCALED, dn_fourier_transform },
    { "dst4", SCALED, dn_fourier_transform },
    { "noiselet", COMPLEX, dn_butterfly },
    { "givens", ANGLES, dn_butterfly },
    { "wavelet", WAVES, dn_wavelet },
    { "circulant", VALUES, dn_circulant },
    { "toeplitz", VALUES, dn_circulant },
};

enum { KINDS = sizeof kinds / sizeof *kinds };

const char *danaus_transform_name(danaus_transform kind)
{
    return (unsigned)kind < KINDS ? kinds[kind].name : NULL;
}

static danaus_status check_options(const danaus_transform_desc *desc, int takes)
{
    const char *name = danaus_transform_name(desc->kind);
    if (!(takes & VALUES) != !desc->values)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "%s: values belong to circulant and Toeplitz matrices, and only to them",
            name);
    if (!(takes & ANGLES) != !desc->angles)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%s: angles belong to rotations, and only to them",
            name);
    if (!(takes & WAVES) && (desc->moments || desc->levels))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%s: only wavelets have moments and levels", name);
    if (desc->moments < 0 || desc->levels < 0)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%s of %d moments and %d levels", name, desc->moments,
            desc->levels);
    if (desc->orthonormal && (takes & VALUES))
        return dn_fail(DANAUS_ERR_ARGUMENT, "%s: it has no orthonormal form", name);
    return DANAUS_OK;
}

danaus_status danaus_operator_transform(
    const danaus_transform_desc *desc, danaus_operator **made)
{
    if (!desc || !made)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "a description and a place for the operator are needed");
    TRY(dn_check_reserved(desc->reserved, sizeof desc->reserved));
    const char *name = danaus_transform_name(desc->kind);
    if (!name)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no transform", (int)desc->kind);
    danaus_transform_desc full = *desc;
    int takes = kinds[desc->kind].takes;
    if (!full.dtype)
        full.dtype = takes & COMPLEX ? DANAUS_C128 : DANAUS_F64;
    TRY(dn_check_computed(full.dtype));
    if ((takes & COMPLEX) && !dn_is_complex(full.dtype))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "%s needs a complex type, not %s", name,
            danaus_dtype_name(full.dtype));
    if (full.n < 1 || full.n > INT32_MAX)
        return dn_fail(
            DANAUS_ERR_SHAPE, "%" PRId64 " is no length of a transform: 1 to %d are",
            full.n, INT32_MAX);
    TRY(check_options(&full, takes));
    /* At the least: a factor's numbers, and an order. */
    TRY(dn_check_room(
        (double)full.n * (double)(danaus_dtype_size(full.dtype) + sizeof(int64_t)),
        "a transform"));
    return kinds[full.kind].make(&full, made);
}
