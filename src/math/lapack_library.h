/* LAPACK's functions, as lapack_library.c found them. Only lapack.c calls them, between
   dn_lapack_begin() and dn_lapack_end(). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MATH_LAPACK_LIBRARY_H
#define DN_MATH_LAPACK_LIBRARY_H

typedef struct lapack_functions {
#define X(name, arguments) void(*name) arguments;
#include "math/lapack.def"
#undef X
} lapack_functions;

extern lapack_functions dn_lapack;

#endif
