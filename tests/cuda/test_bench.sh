#!/bin/sh
# `danaus-bench` and `danaus kernels` on the emulated GPU: records with their energy, what
# calls cost, and kernels from one cache folder to another.
# SPDX-License-Identifier: Apache-2.0
set -u
program=${DANAUS_PROGRAM:?the path of the program}
bench=${DANAUS_BENCH:?the path of danaus-bench}
LD_LIBRARY_PATH=${DANAUS_BUILD:?the build folder}/tests/emulator
export LD_LIBRARY_PATH
[ -e "$LD_LIBRARY_PATH/libnvidia-ml.so.1" ] || { echo "there is no emulated NVML"; exit 77; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export DANAUS_CACHE="$folder/cache"
fail() { echo "$1"; cat out err; exit 1; }

echo '"1,4,4,1",8' > suite.csv
"$bench" ks --suite suite.csv --device cuda:0 --layout last --energy --csv r.csv \
    > out 2> err || fail "bench --energy"
grep -q ' mJ$' out || fail "joules are printed"
# The emulated GPU uses 100 W whatever it does: joules over seconds are watts, but for what
# else the machine does between the two measurements. Wrong units are a factor of 1,000.
/usr/bin/python3 - > out 2> err <<'END' || fail "joules are those of the calls"
import csv
row, = csv.DictReader(open("r.csv"))
watts = float(row["joules"]) / (float(row["median_ns"]) * 1e-9)
assert 4 < watts < 2500, watts
END
"$bench" ks --suite suite.csv --energy > out 2> err && fail "a processor has a counter"
grep -q "not counted" err || fail "a processor says that it does not count"

export TMPDIR="$folder"
echo '"2,4,4,3 3,8,8,1",8' >> suite.csv
"$bench" calls --suite suite.csv --device cuda:0 --layout last --csv c.csv \
    > out 2> err || fail "bench calls"
"$bench" calls --suite suite.csv --device cuda:0 --layout last --gradients \
    --json > g.json 2> err || fail "bench calls --gradients"
/usr/bin/python3 - > out 2> err <<'END' || fail "calls are recorded"
import csv, json
gradients = json.load(open("g.json"))["records"]
for rows, operation in (csv.DictReader(open("c.csv")), "ks"), (gradients, "gradient"):
    rows = list(rows)
    assert [r["problem"] for r in rows] == ["1,4,4,1", "2,4,4,3 3,8,8,1"], rows
    for r in rows:
        first, cached, call = (float(r[f]) for f in ("first_ns", "cached_ns", "call_cpu_ns"))
        assert r["operation"] == operation and min(first, cached, call) > 0, r
END
ls danaus-calls-* > /dev/null 2>&1 && fail "cache folders stay"
"$bench" calls --suite suite.csv > out 2> err && fail "a processor compiles"
grep -q "cuda:0 is needed" err || fail "a processor says that it does not compile"

"$program" kernels export all.kernels > out 2> err || fail "export"
DANAUS_CACHE=$folder/other "$program" kernels import all.kernels --json > out 2> err ||
    fail "import"
[ "$(ls cache)" = "$(ls other)" ] || fail "what was imported is what was exported"
