/* What warps.h takes of the C++ library: most of the time that a text takes to compile, and
   compiled once. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <ucontext.h>
