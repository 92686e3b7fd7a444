#!/bin/sh
# Builds danaus and runs its tests on Debian 12. Run as root (or with sudo at hand)
# it installs the packages that it needs; without either it says what is missing.
#
#     sh scripts/test.sh [PART...]      parts, one after the other; without a name all of
#                                       them, some beside the others:
#
#     quick      for every commit, and only by its name: layers and formatting, then with gcc a
#                tenth of the random rounds of what runs on the CPU; two minutes, if little is
#                to be compiled
#     style      layers of includes, formatting, licences, texts of mutants
#     release    gcc, optimised: every test, install, documents
#     docs       the site of documents, headers and the Python package, without a warning
#     python     the Python package: its wheel, without a compiler; pytest with PyTorch
#     clang      clang, warnings as errors: the quick tests of units
#     asan       address and undefined-behaviour sanitizers: tests in small but those of bench,
#                of documents, of AVX-512 (left out there), of kernels on the emulated GPU, of
#                compressed kinds and of calibration (slow there), and of fork(), in whose child
#                GCC's sanitizer leaves its own locks shut;
#                the share of lines of src, but of OpenCL, that they run: at least 95 %
#     tsan       thread sanitizer: what threads do, compilation ahead and packing included
#     options    the library without CUDA, OpenCL and AVX-512; programs with a static one, without
#                sound and BLAS
#     fuzz       every fuzzer for FUZZ_SECONDS (10) from FUZZ_SEED (1), two at a time
#     arm64      64-bit Arm under an emulator: units and kernels for NEON in small,
#                less tests that take minutes there
#     packages   Debian packages of what is committed: from git and from an archive the same
#                bits, lintian, C programs against them
#
# What is compiled is kept by ccache: a second run compiles what changed, and the wheel takes
# the kernels of the part release.
# DANAUS_TEST_SHARE=N makes one N-th of the rounds of random tests everywhere.
# What each part took, and what was skipped, is said at the end. Last line: "N passed, N failed"; the
# exit status is 0 when nothing failed.
# SPDX-License-Identifier: Apache-2.0
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=$(nproc)
passed=0 failed=0 skipped=0 started=$(date +%s) lane=first

say() { printf '\n== [%d s] %s\n' $(($(date +%s) - started)) "$*"; }

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

# need PACKAGE...: installs what is not there.
need() {
    missing=
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Abbrev}\n' "$package" 2> /dev/null |
            grep -q ^ii || missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    echo "installing$missing"
    exec 9> build/install.lock && flock 9 # one part installs at a time
    sudo=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo > /dev/null || { echo "install these first:$missing"; exit 1; }
        sudo=sudo
    fi
    case $missing in *:arm64*) $sudo dpkg --add-architecture arm64 ;; esac
    $sudo apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq \
            --no-install-recommends $missing > build/install.log 2>&1 ||
        { tail -n 20 build/install.log; exit 1; }
    exec 9>&-
}

# build PRESET [OPTIONS...]: configure and compile, showing only what went wrong. Options of
# the build; $configured: those of CMake.
build() {
    preset=$1
    shift
    mkdir -p "build/$preset"
    { cmake --preset "$preset" $configured && cmake --build "build/$preset" -j "$jobs" "$@"; } \
        > "build/$preset/build.log" 2>&1 ||
        { grep -A 12 -E 'error|warning:' "build/$preset/build.log" | head -n 60; return 1; }
}

# run_ctest PRESET OPTIONS...: every CTest test counts; what failed shows its output.
run_ctest() {
    dir=build/$1
    shift
    rm -f "$dir/junit.xml"
    ctest --test-dir "$dir" -j "$jobs" --output-on-failure --no-tests=error \
        --test-output-size-passed 1000000 --output-junit junit.xml "$@" |
        grep -v -E '^ +Start|^Internal|^Test project'
    count_tests "$dir/junit.xml"
}

# count_tests FILE: what a report says; one that was not written is a failure.
count_tests() {
    python3 scripts/junit.py "$1" "$part" > "build/counts.$lane"
    grep '^failed' "build/counts.$lane"
    grep '^skipped' "build/counts.$lane" >> build/skipped
    read -r more bad without <<- END
	$(tail -n 1 "build/counts.$lane")
	END
    passed=$((passed + more)) failed=$((failed + bad)) skipped=$((skipped + without))
}

formatted() {
    git ls-files -- '*.c' '*.h' '*.inc' '*.cpp' | xargs clang-format-14 --dry-run -Werror
}

# Debian's reuse is older than REUSE.toml.
licensed() {
    [ -x build/reuse/bin/reuse ] ||
        { python3 -m venv build/reuse &&
            build/reuse/bin/python -m pip install -q 'reuse>=5' >> build/install.log 2>&1; }
    build/reuse/bin/reuse lint --lines
}

mutable() { python3 scripts/mutate.py --list > /dev/null; }

part_quick() {
    need clang-format-14
    check "includes respect the layers" python3 scripts/check_layers.py
    check "every file is formatted" formatted
    export DANAUS_TEST_SHARE=$((share * 10))
    check "gcc builds without a warning" build release &&
        run_ctest release -L 'unit|kernel|property|backend|cli|docs|fuzz' \
            -E '@emulated|cuda:0|cli_(program|conv)$'
    export DANAUS_TEST_SHARE=$share
}

part_style() {
    need git clang-format-14 python3 python3-venv
    check "includes respect the layers" python3 scripts/check_layers.py
    check "every file is formatted" formatted
    check "every file says its licence" licensed
    check "every mutant finds its text once" mutable
}

# NVRTC compiles kernels without a GPU. Where it cannot be had, the test that needs it is
# skipped.
find_nvrtc() {
    ldconfig -p | grep -q libnvrtc.so.1 || [ -e /usr/local/cuda/lib64/libnvrtc.so ] && return
    need python3-pip
    [ -d build/nvrtc ] || python3 -m pip install -q --target build/nvrtc \
        'nvidia-cuda-nvrtc>=13' >> build/install.log 2>&1 || return
    LD_LIBRARY_PATH=$(find "$PWD/build/nvrtc" -name 'libnvrtc.so.*' -printf '%h' -quit)
    export LD_LIBRARY_PATH
}

part_release() {
    need abigail-tools
    find_nvrtc
    configured=-DDANAUS_WERROR=ON
    check "release builds without a warning" build release && run_ctest release
    configured=
}

part_docs() {
    need git python3-venv
    check "the site builds without a warning" sh scripts/site.sh
}

# run_pytest OPTIONS...: every test counts that is not skipped.
run_pytest() {
    dir=build/python-venv
    rm -f $dir/junit.xml
    OMP_NUM_THREADS=1 $dir/bin/python -m pytest -q --timeout 900 --junit-xml=$dir/junit.xml "$@"
    count_tests $dir/junit.xml
}

# What pip does is shown: PyTorch is large.
part_python() {
    need python3-venv
    venv=build/python-venv
    check "the wheel works without a compiler" \
        env DANAUS_KERNEL_BUNDLE=none CMAKE_ARGS=-DDANAUS_WERROR=ON \
        sh scripts/wheel.sh || return
    count_tests build/wheel-try/junit.xml
    [ -x $venv/bin/python ] || python3 -m venv $venv
    $venv/bin/python -m pip uninstall -q -y danaus
    check "PyTorch can be installed" $venv/bin/python -m pip install \
        --disable-pip-version-check "$(ls build/wheels/*.whl)[torch,encoder,onnx,jax,kernels,test]" || return
    say "Python, installed"
    check "Python is tidy" $venv/bin/ruff check .
    run_pytest -n 2 $(grep -l torch python/tests/test_*.py) # others ran without it
}

part_clang() {
    need clang
    export DANAUS_TEST_SHARE=$((share * 5))
    check "clang builds without a warning" build clang && run_ctest clang \
        -L 'unit|fuzz' -E 'unit_(sum|fit|patterns_make|transforms|conv_model|conv_plan)$'
    export DANAUS_TEST_SHARE=$share
}

covered() {
    gcovr --root . --exclude-directories CMakeFiles/3 --filter 'src/' --exclude 'src/opencl/' \
        --gcov-ignore-parse-errors --fail-under-line 95 --sort-uncovered \
        --output build/asan/report.txt build/asan 2> build/asan/gcovr.log
    result=$?
    tail -n 2 build/asan/report.txt
    [ $result -eq 0 ] || sed -n 1,60p build/asan/report.txt
    return $result
}

# take_kernels PRESET: what the emulated compiler made in the part release, it need not again.
take_kernels() {
    made=build/release/tests/emulator/compiled
    [ ! -d $made ] || cp -r $made "build/$1/tests/emulator"
}

part_asan() {
    need gcovr
    export DANAUS_TEST_SHARE=$((share * 10))
    check "asan builds" build asan || return
    take_kernels asan
    find build/asan -name '*.gcda' -delete
    run_ctest asan -LE 'install|abi|bench|docs|opencl' \
        -E '_fork|cpu:avx512|(kernel|property)_.*@emulated|compress_kinds|conv_error@cpu:avx2|unit_conv_model'
    export DANAUS_TEST_SHARE=$share
    check "the tests run 95 % of the lines of src" covered
}

part_tsan() {
    export DANAUS_TEST_SHARE=$((share * 4))
    targets=
    for test in unit_thread unit_factorize_call property_thread property_conv property_stream \
        cuda_pack cuda_prepare cuda_stream; do
        targets="$targets test_$test"
    done
    for library in driver nvrtc nvml cublas cublas_alone; do
        targets="$targets emulated_$library"
    done
    check "tsan builds" build tsan --target $targets && take_kernels tsan && run_ctest tsan \
        -R 'thread|factorize_call|property_(conv|stream)@cpu:scalar|cuda_(pack|prepare|stream)@emulated' \
        -E 'cpu:avx512'
    export DANAUS_TEST_SHARE=$share
}

# build_with NAME TARGETS OPTIONS...: targets of the sources, configured anew.
build_with() {
    dir=build/options/$1 targets=$2
    shift 2
    mkdir -p "$dir"
    { cmake -S . -B "$dir" -G Ninja -DDANAUS_WERROR=ON -DDANAUS_KERNEL_FLAGS=-O1 "$@" &&
        cmake --build "$dir" -j "$jobs" --target $targets; } > "$dir/build.log" 2>&1 ||
        { grep -A 12 -E 'error|warning:' "$dir/build.log" | head -n 60; return 1; }
}

programs_run() { "$1/danaus" info > /dev/null && "$1/danaus-bench" --version; }

# What a static library leaves to its users is linked, too.
part_options() {
    check "the library builds without CUDA, OpenCL and AVX-512" build_with cuda danaus \
        -DDANAUS_CUDA=OFF -DDANAUS_OPENCL=OFF -DDANAUS_CLI=OFF -DDANAUS_AVX512=OFF
    check "the programs build static, without sound and a C interface of BLAS" \
        build_with static 'danaus-program danaus-bench' -DBUILD_SHARED_LIBS=OFF \
        -DDANAUS_SOUND=OFF -DDANAUS_CBLAS_INCLUDE= -DDANAUS_LINK_LAPACK=ON &&
        check "they run" programs_run build/options/static
}

# fuzz_one NAME: from the stored corpus, in a copy of it.
fuzz_one() {
    corpus=build/fuzz/corpus/$1
    mkdir -p "$corpus"
    cp "tests/fuzz/corpus/$1"/* "$corpus"
    words=
    [ ! -e "tests/fuzz/$1.dict" ] || words=-dict=tests/fuzz/$1.dict
    "build/fuzz/tests/fuzz_$1" -seed="${FUZZ_SEED:-1}" -max_total_time="$seconds" \
        -max_len=4096 -timeout=20 $words -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/" "$corpus" > "build/fuzz/$1.log" 2>&1
}

# fuzz_result NAME PID: waits for one fuzzer.
fuzz_result() {
    wait "$2" || { tail -n 40 "build/fuzz/$1.log"; return 1; }
    echo "        $(grep -a number_of_executed_units "build/fuzz/$1.log") in $seconds s"
}

part_fuzz() {
    need clang
    seconds=${FUZZ_SECONDS:-10}
    check "fuzzers build" build fuzz --target fuzzers || return
    names=$(cd tests/fuzz && ls fuzz_*.c | sed 's/fuzz_\(.*\)\.c/\1/')
    set -- $names
    while [ $# -gt 0 ]; do
        first=$1 second=${2:-}
        fuzz_one "$first" &
        first_pid=$!
        [ -z "$second" ] || { fuzz_one "$second" & second_pid=$!; shift; }
        check "fuzzer $first" fuzz_result "$first" $first_pid
        [ -z "$second" ] || check "fuzzer $second" fuzz_result "$second" $second_pid
        shift
    done
}

part_arm64() {
    need gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static \
        libjansson-dev:arm64 libutf8proc-dev:arm64 liblapack3:arm64 libcmocka-dev:arm64
    export DANAUS_TEST_SHARE=$((share * 50))
    check "arm64 builds" build arm64 && run_ctest arm64 \
        -L 'unit|kernel|property|fuzz' \
        -E 'factorize_call|transforms|conv_(error|model|plan)|property_(model|hyena)@|_compress$|compress_kinds|cpu:scalar'
    export DANAUS_TEST_SHARE=$share
}

part_packages() {
    need git debhelper dpkg-dev lintian
    check "packages can be built and used" env DEB_BUILD_OPTIONS=noopt sh scripts/packages.sh
}

mkdir -p build
: > build/skipped
configured=
share=${DANAUS_TEST_SHARE:-1}
need build-essential ccache cmake ninja-build pkg-config libcmocka-dev libjansson-dev \
    libutf8proc-dev libopenblas-dev liblapack-dev libsndfile1-dev libsamplerate0-dev libfftw3-dev \
    opencl-headers ocl-icd-libopencl1 pocl-opencl-icd \
    python3 python3-numpy python3-scipy python3-matplotlib
export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache

# processors: sets $spent, the seconds of processors that what has ended took.
processors() {
    times > "build/times.$lane"
    spent=$(tr ms '  ' < "build/times.$lane" |
        awk 'NR == 2 { printf "%d", 60 * ($1 + $3) + $2 + $4 }')
}

run_parts() {
    for part in "$@"; do
        say "$(sed -n "s/^# *\($part  .*\)/\1/p" "$0")"
        processors
        spent_before=$spent began=$(date +%s)
        "part_$part"
        processors
        printf '%-10s %5d s, of processors %5d s\n' "$part" $(($(date +%s) - began)) \
            $((spent - spent_before)) >> build/parts
    done
}

# Beside the others: parts that leave a processor idle, as they install packages, configure
# builds, pack or work on one thread; the wheel last, when kernels are compiled. What they say
# follows the rest.
run_second() {
    lane=second
    run_parts style docs options packages python > build/second.log 2>&1
    echo "$passed $failed $skipped" > build/second
}

rm -f build/second
: > build/parts
if [ $# -gt 0 ]; then
    run_parts "$@"
else
    find_nvrtc
    run_second &
    second=$!
    run_parts release clang asan tsan fuzz arm64
    wait $second
    cat build/second.log
    read -r more bad without < build/second || bad=1
    passed=$((passed + ${more:-0})) failed=$((failed + bad)) skipped=$((skipped + ${without:-0}))
fi
printf '\n%d s\n' $(($(date +%s) - started))
cat build/parts
[ "$skipped" -eq 0 ] || { cat build/skipped; echo "$skipped skipped"; }
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
