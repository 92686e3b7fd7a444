#!/bin/sh
# Compiles and runs programs with a danaus that is installed below PREFIX: shared and static,
# by pkg-config and by find_package:
#
#     sh tests/install/use.sh PREFIX VERSION
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")"
prefix=$1 version=$2
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name danaus.pc)")
export PKG_CONFIG_PATH
libraries=$(pkg-config --variable=libdir danaus)
[ "$(pkg-config --modversion danaus)" = "$version" ]

# is SHARED|STATIC PROGRAM: it runs, and needs the shared library or does not.
is() {
    LD_LIBRARY_PATH=$libraries "$2"
    if readelf -d "$2" | grep -q 'NEEDED.*libdanaus'; then linked=shared; else linked=static; fi
    [ $linked = "$1" ] || { echo "$2 is $linked"; exit 1; }
}

${CC:-cc} -std=c11 main.c $(pkg-config --cflags --libs danaus) -o "$made/shared"
is shared "$made/shared"
${CC:-cc} -std=c11 main.c $(pkg-config --cflags --static --libs danaus |
    sed 's/-ldanaus/-l:libdanaus.a/') -o "$made/static"
is static "$made/static"

cmake -S . -B "$made/project" -DCMAKE_PREFIX_PATH="$prefix" > "$made/log"
cmake --build "$made/project" >> "$made/log" || { cat "$made/log"; exit 1; }
is shared "$made/project/from_c"
is shared "$made/project/from_cpp"
is static "$made/project/from_c_static"
