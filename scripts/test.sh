#!/bin/sh
# Builds danaus and runs its tests on Debian 12; installs what that needs when
# run as root or with sudo.
#
#     sh scripts/test.sh [PART...]      parts, all of them by default:
#
#     release   gcc, optimised: all tests
# Last line: "N passed, N failed"; the exit status is 0 when nothing failed.
# SPDX-License-Identifier: Apache-2.0
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=$(nproc)
passed=0 failed=0

say() { printf '\n== %s\n' "$*"; }

# check WORDS COMMAND...: one thing that passes or fails.
check() {
    words=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok      $words"
    else
        failed=$((failed + 1))
        echo "FAILED  $words"
        return 1
    fi
}

# build PRESET: configure and compile, showing only what went wrong.
build() {
    mkdir -p "build/$1"
    { cmake --preset "$1" && cmake --build "build/$1" -j "$jobs"; } \
        > "build/$1/build.log" 2>&1 || { tail -n 60 "build/$1/build.log"; return 1; }
}

# run_ctest PRESET OPTIONS...: counts every CTest test.
run_ctest() {
    dir=build/$1
    shift
    ctest --test-dir "$dir" -j "$jobs" --output-on-failure --no-tests=ignore \
        --output-junit junit.xml "$@"
    count() { sed -n "s/.*$1=\"\([0-9]*\)\".*/\1/p" "$dir/junit.xml" | head -n 1; }
    bad=$(count failures)
    failed=$((failed + bad))
    passed=$((passed + $(count tests) - bad - $(count skipped)))
}

part_release() {
    say "release: gcc, all tests"
    check "release builds" build release && run_ctest release
}

parts=${*:-release}
for part in $parts; do
    "part_$part"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
