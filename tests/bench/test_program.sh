#!/bin/sh
# danaus-bench from the outside: products against limits and baselines.
# SPDX-License-Identifier: Apache-2.0
set -u
bench=${DANAUS_BENCH:?the path of danaus-bench}
compare=$PWD/bench/compare.py
here=$PWD/tests/cli
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

fail() { echo "FAILED  $1"; cat out err; exit 1; }
ok() { words=$1; shift; "$@" > out 2> err && [ ! -s err ] || fail "$words"; echo "ok      $words"; }
said() { /usr/bin/python3 "$here/facts.py" "$1" "$2" < last || fail "$3"; echo "ok      $3"; }
refuses() {
    "$bench" ks $3 > out 2> err
    [ $? -eq "$1" ] && [ ! -s out ] && [ "$(wc -l < err)" -eq 1 ] && grep -q -e "$2" err ||
        fail "ks $3"
    echo "ok      refused: ks $3"
}

ok "help" "$bench" --help
for command in ks conv stream calls; do
    ok "help of $command" "$bench" help $command
    grep -q "^Usage: danaus-bench $command" out || fail "help of $command begins with its usage"
done
printf '# small\nproblem,batch\n"2,8,8,3",\n"1,8,6,6 6,6,8,1",16\n' > small.csv
ok "products" "$bench" ks --suite small.csv --batch 16 --layout last --hot --baselines \
    --csv records.csv --json
cp out last
said records "len(v) == 2" "a record for each problem"
said records.0 "v['error'] < 1e-6 and v['median_ns'] > 0 and v['ratio'] > 0" "with its times"
said records.1.factors_ns "v > 0" "factors one by one"
said machine "v['f32_gflops'] > 0 and v['copy_gbs'] > 0" "and the machine's limits"
ok "some baselines" "$bench" ks --suite small.csv --batch 3 --layout first --baselines \
    --methods csr,einsum --json
cp out last
said records.0.best "v in ('csr', 'einsum')" "which alone are measured"
ok "records as CSV" test "$(wc -l < records.csv)" -eq 3
ok "a run is like itself" /usr/bin/python3 "$compare" records.csv records.csv
sed 's/"ks",\(.*\),"last",16,\("[^"]*"\),\([0-9]*\),[0-9.e+]*,/"ks",\1,"last",16,\2,\3,1e12,/' \
    records.csv > slow.csv
/usr/bin/python3 "$compare" records.csv slow.csv > out 2> err
[ $? -eq 1 ] && grep -q "2 slower" out || fail "a slower run is found out"
head -n 3 small.csv > one.csv
ok "complex products for people" "$bench" ks --suite one.csv --batch 3 --dtype c64 \
    --layout first --baselines
ok "half types" "$bench" ks --suite small.csv --batch 3 --dtype bf16 --layout first

refuses 2 "suite FILE" ""
refuses 2 "names of" "--suite small.csv --baselines --methods gem"
refuses 2 "names of" "--suite small.csv --methods csr"
refuses 1 "cannot open" "--suite nothing.csv --csv records.csv"
ok "records stay until there are others" test "$(wc -l < records.csv)" -eq 3

printf '%s\n' 'causal,300,7,2,2,gated' > rows.csv
ok "convolutions as CSV" "$bench" conv --suite rows.csv --csv conv_records.csv
ok "their records say where they come from" \
    grep -q "^version,commit,device,instructions,threads,kind,length," conv_records.csv
