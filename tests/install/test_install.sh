#!/bin/sh
# Installs the build into a temporary prefix and uses it: through find_package from
# C and C++, through pkg-config, shared and static, and by running the installed program.
# SPDX-License-Identifier: Apache-2.0
set -eu
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
prefix=$made/prefix
stop() { echo "$*"; exit 1; }

cmake --install "$DANAUS_BUILD" --prefix "$prefix" > "$made/install.log"
library=$(find "$prefix" -name 'libdanaus.so.*.*.*')
version=${library##*.so.}
sh tests/install/use.sh "$prefix" "$version"
readelf -d "$library" | grep -q "SONAME.*libdanaus.so.${version%.*}]" ||
    stop "the shared library has another name than docs/abi.md says"
[ "$(LD_LIBRARY_PATH=$(dirname "$library") "$prefix/bin/danaus" --version |
    tr -dc 0-9.)" = "$version" ]
! readelf -d "$prefix/bin/danaus" | grep -E 'RPATH|RUNPATH' ||
    stop "the program looks for libraries where nobody asked for it"
cmp LICENSE "$(find "$prefix" -name LICENSE)"
for table in bench/tuning/*.csv; do
    cmp "$table" "$prefix/share/danaus/tuning/$(basename "$table")"
done

grep -q _danaus "$prefix/share/bash-completion/completions/danaus"
grep -q '^#compdef danaus' "$prefix/share/zsh/site-functions/_danaus"
[ "$(ls "$prefix/bin")" = danaus ]

# configured FOLDER OPTIONS...: the install rules, without compiling.
configured() {
    folder=$1
    shift
    cmake -S . -B "$folder" -DCMAKE_INSTALL_PREFIX=/opt/danaus "$@" > "$made/log" 2>&1 ||
        { cat "$made/log"; exit 1; }
}

configured "$made/absolute" -DCMAKE_INSTALL_LIBDIR=/opt/lib64 \
    -DCMAKE_INSTALL_INCLUDEDIR=/opt/headers "-DCMAKE_INSTALL_RPATH=/opt/lib64"
for line in libdir=/opt/lib64 includedir=/opt/headers; do
    grep -qx $line "$made/absolute/danaus.pc" || stop "danaus.pc has no line $line"
done
grep -q 'NEW_RPATH "/opt/lib64"' "$made/absolute/cmake_install.cmake" ||
    stop "the program gets no RUNPATH that is asked for"
configured "$made/absolute" -DCMAKE_INSTALL_LIBDIR=lib
grep -qx 'libdir=${prefix}/lib' "$made/absolute/danaus.pc" ||
    stop "danaus.pc has no relative folder"
! grep -q lapack "$made/absolute/danaus.pc" || stop "danaus.pc names a LAPACK"
configured "$made/absolute" -DDANAUS_LINK_LAPACK=ON
grep -q "^Libs.private: -llapack -lblas " "$made/absolute/danaus.pc" ||
    stop "danaus.pc does not name the LAPACK that is linked"
