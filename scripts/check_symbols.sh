#!/bin/sh
# Compares what the headers declare, what the shared library exports and the list
# tests/abi/symbols.txt:
#
#     sh scripts/check_symbols.sh build/release/libdanaus.so
#
# A new function is added to the list by hand, in order: that is the decision to
# keep it. Every public structure is in tests/abi/layout.def.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
list=tests/abi/symbols.txt
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

LC_ALL=C sort -c "$list"
version=$(sed -n 's/^#define DANAUS_VERSION_M[AI][JN]OR \([0-9]*\).*/\1/p' include/danaus/base.h |
    paste -sd .)
nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | LC_ALL=C sort > "$made/exported"
sed "s/$/@@DANAUS_$version/" "$list" > "$made/listed"
cat include/danaus/*.h | tr '\n' ' ' | grep -o 'DANAUS_API [^;]*(' |
    grep -o 'danaus_[a-z0-9_]*(' | tr -d '(' | LC_ALL=C sort -u > "$made/declared"

status=0
diff -u "$made/listed" "$made/exported" || status=1
diff -u "$list" "$made/declared" || status=1
for structure in $(cat include/danaus/*.h | grep -o '^typedef struct danaus_[a-z_]* {' |
    cut -d ' ' -f 3); do
    grep -q "($structure, [0-9]*)" tests/abi/layout.def && continue
    echo "$structure is not in tests/abi/layout.def"
    status=1
done
exit $status
