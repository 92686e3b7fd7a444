#!/bin/sh
# The headers describe the binary interface of the reference, and the check sees changes that
# break it.
# SPDX-License-Identifier: Apache-2.0
set -u
command -v abidiff > /dev/null || { echo "abigail-tools are needed"; exit 77; }
[ "$(uname -m)" = x86_64 ] || { echo "the reference is for x86_64"; exit 77; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
status=0
sh scripts/check_abi.sh || status=1

# sees WORDS EXPECTED FILE EXPRESSION: with a header changed by sed.
sees() {
    rm -rf "$folder/include"
    cp -r include "$folder"
    sed -i "$4" "$folder/include/danaus/$3"
    cmp -s "include/danaus/$3" "$folder/include/danaus/$3" && { echo "$1: no change"; status=1; }
    sh scripts/check_abi.sh "$folder/include" > "$folder/said" 2>&1
    [ $? -eq "$2" ] && return
    echo "$1: not as it should be"
    cat "$folder/said"
    status=1
}

sees "a function that is gone" 1 device.h 's/danaus_device_count/danaus_device_number/'
sees "an argument of another type" 1 device.h 's/size_t bytes, void \*\*memory/int bytes, void **memory/'
sees "a longer structure" 1 conv.h 's/void \*reserved\[6\];/void *reserved[7];/'
sees "members that change places" 1 ks.h 's/int64_t a, b, c, d;/int64_t b, a, c, d;/'
sees "another value" 1 base.h 's/DANAUS_F32 = 1/DANAUS_F32 = 2/'
sees "a new function" 0 device.h 's/^DANAUS_API void danaus_free(/DANAUS_API void danaus_new(int a);\n&/'
sees "a new status" 0 base.h 's/^    DANAUS_ERR_CANCELLED /    DANAUS_ERR_CANCELLED, DANAUS_ERR_NEW /'
exit $status
