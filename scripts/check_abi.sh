#!/bin/sh
# Compares the binary interface that the headers describe with the reference
# tests/abi/danaus.abi, by abidiff of Debian's abigail-tools, or makes the reference anew:
#
#     sh scripts/check_abi.sh [--renew] [INCLUDE]
#
# What is compared is a library in which every function of the headers is there and does
# nothing, with debugging information: its types are those that callers compile against, and
# no build of the library is needed. (That the real one exports these functions and no others
# is checked by check_symbols.sh, and that it has these types by its compiler.)
# SPDX-License-Identifier: Apache-2.0
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
renew=
[ "${1-}" = --renew ] && renew=yes && shift
include=${1-$here/include}
reference=$here/tests/abi/danaus.abi
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

export LC_ALL=C
exported='__attribute__((visibility("default")))'
{
    echo '#include "danaus/danaus.h"'
    ${CC:-cc} -E -P "-I$include" "$include/danaus/danaus.h" | tr '\n' ' ' | tr ';' '\n' |
        grep -o "$exported .*)\$" | sed 's/$/ { __builtin_trap(); }/'
} > "$made/danaus.c"
(cd "$made" && ${CC:-cc} -g -shared -fPIC "-I$include" danaus.c -o libdanaus.so)
abidw --no-show-locs --no-corpus-path --no-comp-dir-path "$made/libdanaus.so" > "$made/danaus.abi"

if [ "$renew" ]; then
    cp "$made/danaus.abi" "$reference"
    exit
fi
abidiff --no-added-syms "$reference" "$made/danaus.abi" && exit
echo "
The binary interface is another than that of tests/abi/danaus.abi: programs that were built
before may break. If that is meant, write a line into CHANGELOG.md and run
    sh scripts/check_abi.sh --renew"
exit 1
