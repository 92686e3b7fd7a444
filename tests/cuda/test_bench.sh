#!/bin/sh
# `danaus bench` and `danaus kernels` on the emulated GPU: records with their energy, and
# kernels from one cache folder to another.
# SPDX-License-Identifier: Apache-2.0
set -u
program=${DANAUS_PROGRAM:?the path of the program}
LD_LIBRARY_PATH=${DANAUS_BUILD:?the build folder}/tests/emulator
export LD_LIBRARY_PATH
[ -e "$LD_LIBRARY_PATH/libnvidia-ml.so.1" ] || exit 77
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export DANAUS_CACHE="$folder/cache"
fail() { echo "$1"; cat out err; exit 1; }

echo '"1,4,4,1",8' > suite.csv
"$program" bench ks --suite suite.csv --device cuda:0 --layout last --energy --csv r.csv \
    > out 2> err || fail "bench --energy"
grep -q ' mJ$' out || fail "joules are printed"
# The emulated GPU uses 100 W whatever it does: joules over seconds are watts.
/usr/bin/python3 - > out 2> err <<'END' || fail "joules are those of the calls"
import csv
row, = csv.DictReader(open("r.csv"))
watts = float(row["joules"]) / (float(row["median_ns"]) * 1e-9)
assert 30 < watts < 400, watts
END
"$program" bench ks --suite suite.csv --energy > out 2> err && fail "a processor has a counter"
grep -q "not counted" err || fail "a processor says that it does not count"

"$program" kernels export all.kernels > out 2> err || fail "export"
DANAUS_CACHE=$folder/other "$program" kernels import all.kernels --json > out 2> err ||
    fail "import"
[ "$(ls cache)" = "$(ls other)" ] || fail "what was imported is what was exported"
