#!/bin/sh
# bench/versus: two copies of the library make the same bits in one process, each by its
# own functions, on a processor and on the emulated GPU.
# SPDX-License-Identifier: Apache-2.0
set -u
build=${DANAUS_BUILD:?the build folder}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; cat "$folder/out" "$folder/err"; exit 1; }
cp -L "$build/libdanaus.so" "$folder/old.so"
cp -L "$build/libdanaus.so" "$folder/new.so"
cd "$folder" || exit 1
export DANAUS_CACHE="$folder/cache"
versus() {
    suite=$1
    shift
    "$build/bench/versus" --rounds 1 --seconds 0.001 "$@" ./old.so ./new.so "$suite" \
        > out 2> err
}
# N problems were timed, N of N made the same bits.
expect() {
    [ "$(grep -c ',yes$' out)" = "$1" ] || fail "$1 problems with the same bits: $2"
    grep -q "^# $1 problems, 0 failed; .* median [0-9.]*, worst" out || fail "sums: $2"
}

printf '%s\n' '# products' '"2,4,4,1",7' '"1,4,2,3 2,3,8,1",5' > products.csv
printf '%s\n' 'causal,64,16,2,3,plain' 'bidirectional,50,50,1,2,gated' \
    'causal,4096,4096,1,1,sparse' > rows.csv
versus products.csv --types f32,f64,bf16 --batches 1,9 || fail products
expect 24 products
versus products.csv --layouts last --threads 1 --gradients || fail "gradients"
expect 2 gradients
versus rows.csv || fail convolutions
expect 3 convolutions
versus rows.csv --types f16 --gradients || fail "gradients of convolutions"
expect 3 "gradients of convolutions"
versus products.csv --layouts first --batches 3,1000000000000 && fail "no memory"
grep -q "no memory" err || fail "the library's sentence is passed on"
grep -q "^# 2 problems, 2 failed" out || fail "failures are counted"

# The dynamic linker's own record: a library that calls itself calls no other.
LD_DEBUG=bindings versus rows.csv || fail "bindings"
sed -n 's/.*binding file \([^ ]*\) .* to \([^ ]*\) .*symbol .danaus_.*/\1 \2/p' err |
    awk '$1 == $2 { own[$1] = 1 } $1 != $2 { crossed = 1 }
         END { exit crossed || !own["./old.so"] || !own["./new.so"] }' ||
    fail "a library calls the other's functions"

"$build/bench/versus" ./old.so ./old.so rows.csv > out 2> err && fail "one file is refused"
grep -q "one file" err || fail "one file is refused with a sentence"
LD_LIBRARY_PATH="$build/tests/emulator"
export LD_LIBRARY_PATH
[ -e "$LD_LIBRARY_PATH/libcuda.so.1" ] || exit 0
versus products.csv --device cuda:0 --types f16 --layouts last || fail "a GPU"
expect 2 "a GPU"
