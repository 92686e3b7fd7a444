#!/bin/sh
# Layers that a bundle was made for compile nothing; others do, and so do these without it.
# The compiler is the emulated one: what it makes for sm_90 does nothing.
# SPDX-License-Identifier: Apache-2.0
set -eu
if [ ! -f "$DANAUS_BUILD/tests/emulator/libcuda.so.1" ]; then
    echo "there is no emulated driver"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
printf '"1,6,4,2 2,4,6,1"\n' > "$folder/known.csv"
printf '"1,10,4,2 2,4,10,1"\n' > "$folder/other.csv"

DANAUS_NVRTC=$DANAUS_BUILD/tests/emulator sh scripts/bundle_kernels.sh \
    "$folder/made.kernels" "$folder/known.csv"
"$DANAUS_PROGRAM" kernels list "$folder/made.kernels" | grep 'danaus .* sm_90, [1-9]'

# layers BUNDLE SUITE: says why they do not all run where there is no compiler.
layers() {
    LD_LIBRARY_PATH=$DANAUS_BUILD/tests/emulator EMULATED_GPU=h200 \
        DANAUS_CACHE=$folder/empty DANAUS_KERNELS=$1 DANAUS_NVRTC=$folder/nowhere \
        "$DANAUS_BUILD/tests/bundle_layers" cuda:0 "$2" 2>&1
}

layers "$folder/made.kernels" "$folder/known.csv"
if layers "$folder/made.kernels" "$folder/other.csv" > "$folder/said"; then exit 1; fi
grep libnvrtc "$folder/said"
if layers "" "$folder/known.csv" > "$folder/said"; then exit 1; fi
grep libnvrtc "$folder/said"
[ ! -e "$folder/empty" ]
