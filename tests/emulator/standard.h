/* What warps.h takes of the C library: most of the time that a text takes to compile, and
   compiled once. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
