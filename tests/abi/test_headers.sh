#!/bin/sh
# Each public header compiles alone and without a warning, as C11 and as C++11.
# SPDX-License-Identifier: Apache-2.0
set -u
status=0
warnings="-Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -Iinclude"
for header in include/danaus/*.h; do
    name=danaus/$(basename "$header")
    echo "#include <$name>" | ${CC:-cc} -std=c11 $warnings -x c - || status=1
    echo "#include <$name>" | ${CXX:-c++} -std=c++11 $warnings -x c++ - || status=1
done
exit $status
