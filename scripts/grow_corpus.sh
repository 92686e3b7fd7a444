#!/bin/sh
# Grows the stored corpora of fuzzers by what makes them run lines that they do not run yet:
#
#     sh scripts/grow_corpus.sh [NAME...]       all of tests/fuzz, or fuzz_NAME only
#
# Each runs for FUZZ_SECONDS (300) from FUZZ_SEED (the time of day), beginning with
# build/fuzz/corpus/NAME, where the part fuzz of scripts/test.sh leaves what it finds. Of that
# the fewest files of at most 256 bytes that reach all that such files reach go to
# tests/fuzz/corpus/NAME. What is there stays; remove the files whose names are hashes to
# begin anew.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
cmake --preset fuzz > /dev/null
cmake --build build/fuzz -j "$(nproc)" --target fuzzers > build/fuzz/build.log 2>&1 ||
    { tail -n 40 build/fuzz/build.log; exit 1; }
[ $# -gt 0 ] || set -- $(cd tests/fuzz && ls fuzz_*.c | sed 's/fuzz_\(.*\)\.c/\1/')
for name in "$@"; do
    found=build/fuzz/corpus/$name stored=tests/fuzz/corpus/$name words=
    [ ! -e "tests/fuzz/$name.dict" ] || words=-dict=tests/fuzz/$name.dict
    mkdir -p "$found"
    cp "$stored"/* "$found"
    "build/fuzz/tests/fuzz_$name" -seed="${FUZZ_SEED:-$(date +%s)}" \
        -max_total_time="${FUZZ_SECONDS:-300}" -max_len=4096 -timeout=20 $words \
        -rss_limit_mb=2048 -artifact_prefix=build/fuzz/ "$found" > "build/fuzz/$name.log" 2>&1 ||
        { tail -n 40 "build/fuzz/$name.log"; exit 1; }
    before=$(ls "$stored" | wc -l)
    "build/fuzz/tests/fuzz_$name" -set_cover_merge=1 -use_counters=0 -max_len=256 \
        "$stored" "$found" > "build/fuzz/$name.merge" 2>&1
    echo "$name: $(($(ls "$stored" | wc -l) - before)) files more, $(du -bs "$stored" | cut -f1) bytes"
done
