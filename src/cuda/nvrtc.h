/* Compiling the kernel texts of src/gpu with NVIDIA's run-time compiler. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CUDA_NVRTC_H
#define DN_CUDA_NVRTC_H

#include "base/hash.h"
#include "danaus/base.h"

/* Compiles source for an architecture (ten times the compute capability) into *image,
   which cuModuleLoadData takes and the caller frees with dn_free. When log is not NULL
   it gets what the compiler says of registers, stack and spills (to be freed, too).
   DANAUS_ERR_UNSUPPORTED when there is no compiler, or it does not know the
   architecture nor any before it. refused is set to 1 (unless NULL) when the compiler
   finds fault with the source, which it may not with another. */
danaus_status dn_nvrtc_compile(
    const char *source, int arch, void **image, size_t *bytes, char **log,
    int *refused);

/* Adds the target and the options with which that is done where the compiler knows the
   architecture; nothing is asked of the compiler. */
hash128 dn_nvrtc_hash(hash128 hash, int arch);

#endif
