#!/bin/sh
# bench/opencl.py: two devices, here the emulated GPU twice, choose the same kernels, and each
# record has both times and their ratio.
# SPDX-License-Identifier: Apache-2.0
set -u
build=${DANAUS_BUILD:?the build folder}
LD_LIBRARY_PATH="$build/tests/emulator"
export LD_LIBRARY_PATH
[ -e "$LD_LIBRARY_PATH/libcuda.so.1" ] || exit 77
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
export DANAUS_CACHE="$folder/cache"
/usr/bin/python3 bench/opencl.py "$build" "$folder/out.csv" --tiny --devices cuda:0,cuda:0 \
    > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
/usr/bin/python3 - "$folder/out.csv" <<'END'
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
products = [r for r in rows if r["layout"]]
assert len(products) == 4 and len(rows) == 6, rows
assert {r["layout"] for r in products} == {"first", "last"}
assert {r["problem"] for r in rows} >= {"6,64,256,1", "causal 90", "circular 120"}
for r in rows:
    assert r["kernel"] == r["cuda_kernel"] and r["kernel"], r
    ratio = float(r["opencl"]) / float(r["cuda"])
    assert abs(float(r["ratio"]) - ratio) < 0.002 * ratio, r
END
