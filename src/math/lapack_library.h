/* Where LAPACK comes from: its functions, once it is loaded, which lapack.c alone calls. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MATH_LAPACK_LIBRARY_H
#define DN_MATH_LAPACK_LIBRARY_H

#include "danaus/base.h"

typedef struct lapack_functions {
#define X(name, arguments) void(*name) arguments;
#include "math/lapack.def"
#undef X
} lapack_functions;

extern lapack_functions dn_lapack;

/* Every call of a function of lapack.h lies between these two. The first one loads LAPACK,
   and fails where there is none, or no room in memory for `threads` threads that call it
   at once. They nest and may be called from any thread. */
danaus_status dn_lapack_begin(int threads);
void dn_lapack_end(int threads);

/* Between these two calls, which lie between those, LAPACK stays on the thread that calls
   it: threads of its own, working on many small blocks at once, would only be in each
   other's way. They nest, too. */
void dn_lapack_alone(void);
void dn_lapack_as_before(void);

#endif
