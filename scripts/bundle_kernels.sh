#!/bin/sh
# Compiles the GPU kernels that travel in the Python package, those that common layers need
# of an H100 or H200 (docs/wheels.md), into one file, and tries it without a compiler:
#
#     DANAUS_NVRTC=FOLDER sh scripts/bundle_kernels.sh [FILE [SUITE...]]
#
# DANAUS_NVRTC names the folder of NVRTC's libraries. No GPU is needed: the driver of the
# tests plans as these GPUs do. FILE is build/bundle/sm_90.kernels unless said otherwise,
# and a SUITE a file of chains (bench/suites). DANAUS_BUILD names a folder where the tests
# and the program are built; without it they are, in build/bundle.
# SPDX-License-Identifier: Apache-2.0
set -eu
: "${DANAUS_NVRTC:?names no folder of NVRTC, such as that of nvidia-cuda-nvrtc of PyPI}"
cd "$(dirname "$0")/.."
file=${1:-build/bundle/sm_90.kernels}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- bench/suites/vit.csv bench/suites/gpt2.csv \
    bench/suites/llama.csv bench/suites/monarch.csv
mkdir -p "$(dirname "$file")"
folder=$(cd "$(dirname "$file")" && pwd)
file=$folder/$(basename "$file")

build=${DANAUS_BUILD:-}
if [ -z "$build" ]; then
    build=$PWD/build/bundle/build
    mkdir -p "$build"
    log=$build/build.log
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDANAUS_TESTS=ON > "$log"
    cmake --build "$build" --target danaus-program bundle_layers emulated_driver \
        emulated_cublas >> "$log" || { grep -A 12 error "$log"; exit 1; }
fi
if [ ! -f "$build/tests/emulator/libcuda.so.1" ]; then
    echo "there is no emulated driver in $build: it needs gcc" >&2
    exit 1
fi

# Everything is compiled, or found, for each of these GPUs.
plan() {
    for gpu in h100 h200; do
        EMULATED_GPU=$gpu "$build/tests/bundle_layers" cuda:0 "$@"
    done
}

export LD_LIBRARY_PATH="$build/tests/emulator${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export DANAUS_CACHE="$folder/compiled" DANAUS_CACHE_MIB=4096
unset DANAUS_KERNELS DANAUS_TUNING EMULATED_ARCH
rm -rf "$DANAUS_CACHE" "$file"
trap 'rm -rf "$DANAUS_CACHE" "$file"' EXIT # if something fails
echo "compiling"
plan "$@"
"$build/danaus" kernels export "$file" --instructions sm_90

echo "trying it without a compiler"
export DANAUS_KERNELS="$file" DANAUS_NVRTC="$folder/nowhere"
plan "$@"
trap - EXIT
rm -r "$DANAUS_CACHE"
echo "$file: $(stat -c %s "$file") bytes, $(gzip -c "$file" | wc -c) zipped"
