/* The dictionary in the head of a .npy file. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_IO_NPY_HEADER_H
#define DN_IO_NPY_HEADER_H

#include "base/text.h"
#include "danaus/file.h"

#define NPY_MOST_DIMS 64 /* that NumPy has */

typedef struct npy_header {
    int any; /* set by the caller: types and dimensions that danaus lacks, too */
    danaus_dtype dtype; /* 0: danaus lacks it */
    span type;          /* in the header */
    int fortran;        /* nonzero: the first index runs fastest */
    int ndim;
    int64_t shape[NPY_MOST_DIMS];
} npy_header;

danaus_status dn_npy_header_read(const char *header, size_t length, npy_header *h);

#endif
