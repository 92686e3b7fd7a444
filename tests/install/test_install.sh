#!/bin/sh
# Installs the build into a temporary prefix and uses it: through find_package from
# C and C++, through pkg-config, and by running the installed program.
# SPDX-License-Identifier: Apache-2.0
set -eu
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
prefix=$made/prefix

cmake --install "$DANAUS_BUILD" --prefix "$prefix" > "$made/install.log"

cmake -S tests/install -B "$made/project" -DCMAKE_PREFIX_PATH="$prefix" > "$made/log"
cmake --build "$made/project" >> "$made/log" || { cat "$made/log"; exit 1; }
"$made/project/from_c"
"$made/project/from_cpp"

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name danaus.pc)")
export PKG_CONFIG_PATH
libraries=$(pkg-config --variable=libdir danaus)
${CC:-cc} -std=c11 tests/install/main.c $(pkg-config --cflags --libs danaus) \
    -Wl,-rpath,"$libraries" -o "$made/by_pkg_config"
"$made/by_pkg_config"
[ "$(pkg-config --modversion danaus)" = "$("$prefix/bin/danaus" --version | tr -dc 0-9.)" ]
