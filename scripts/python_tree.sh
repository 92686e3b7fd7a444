#!/bin/sh
# Builds the Python package in build/python/tree, where it can be imported from:
#
#     sh scripts/python_tree.sh
#     PYTHONPATH=build/python/tree python3 -m pytest python/tests
#
# The .py files there are links to python; run it again after adding one, or
# changing C. PYTHON names the interpreter that has cffi; without one that has, cffi is put
# into build/python/tools.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
out=build/python
tree=$out/tree
mkdir -p $out

python=${PYTHON:-$out/tools/bin/python}
if ! "$python" -c 'import cffi' 2> /dev/null; then
    python3 -m venv $out/tools
    python=$out/tools/bin/python
    "$python" -m pip install -q cffi
fi

cmake -S . -B $out -G Ninja -DCMAKE_BUILD_TYPE=Release -DDANAUS_PYTHON=ON \
    -DDANAUS_CLI=ON -DDANAUS_BENCH=OFF -DPython_EXECUTABLE="$(realpath -s "$python")" > $out/build.log
cmake --build $out >> $out/build.log || { grep -A 12 error $out/build.log; exit 1; }
rm -rf "$tree"
mkdir -p "$tree"
cp -rs "$PWD/python/danaus" "$PWD/python/danaus_program" "$tree"
cmake --install $out --component python --prefix $tree >> $out/build.log
