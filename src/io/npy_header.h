/* The dictionary in the head of a .npy file. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_IO_NPY_HEADER_H
#define DN_IO_NPY_HEADER_H

#include "danaus/file.h"

typedef struct npy_header {
    danaus_dtype dtype;
    int fortran; /* nonzero: the first index runs fastest */
    int ndim;
    int64_t shape[DANAUS_MAX_DIMS];
} npy_header;

danaus_status dn_npy_header_read(const char *header, size_t length, npy_header *h);

#endif
