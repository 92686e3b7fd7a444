#!/bin/sh
# Runs tests on a GPU under NVIDIA's compute-sanitizer, which comes with the CUDA toolkit,
# and writes what it finds.
#
#     sh scripts/sanitize_gpu.sh TESTS RECORD.csv [WORDS]
#
# TESTS is the folder of the test programs, build/release/tests. Under memcheck and
# initcheck run those of products, chains, gradients and streams; under racecheck, which is
# slow, some rows of every family, two factors at once, and gradients: all at the same time
# on cuda:0, each for at most SECONDS_EACH (600), with one DANAUS_TEST_SHARE-th (10000) of their random cases. A
# line of the record is one of them; `errors` are the tool's. WORDS (an extended regular
# expression) chooses lines. Logs go to LOGS (a folder of its own in /tmp).
#
# The exit status is 0 when nothing was found, 77 when the tool or a GPU is missing.
# SPDX-License-Identifier: Apache-2.0
set -u
[ $# -eq 2 ] || [ $# -eq 3 ] || { sed -n '2,/^# SPDX/{/SPDX/!p}' "$0" | sed 's/^# \{0,1\}//'; exit 2; }
tests=$1 record=$2
tool=$(command -v compute-sanitizer) || tool=/usr/local/cuda/bin/compute-sanitizer
[ -x "$tool" ] || {
    echo "compute-sanitizer is not in PATH nor in /usr/local/cuda/bin: install the CUDA toolkit"
    exit 77
}
device=$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1)
[ -n "$device" ] || { echo "there is no NVIDIA GPU"; exit 77; }
version=$("$tool" --version | sed -n 's/^Version \([0-9.]*\).*/\1/p' | head -n 1)
export DANAUS_TEST_SHARE="${DANAUS_TEST_SHARE:-10000}"
logs=${LOGS:-$(mktemp -d)}
seconds=${SECONDS_EACH:-600}

# one TOOL TEST [ROWS]: puts a line of the record into a file.
one() {
    name=$1.$2${3:+.$3}
    [ -z "${3:-}" ] || export DANAUS_TEST_ROWS="$3"
    start=$(date +%s)
    more= # the driver is asked of pointers of the host, which it calls an error
    [ "$1" = memcheck ] && more="--report-api-errors no"
    timeout "$seconds" "$tool" --tool "$1" $more --print-limit 20 "$tests/test_$2" cuda:0 \
        > "$logs/$name.txt" 2>&1
    status=$?
    errors=$(sed -n 's/^=* *[A-Z]* *SUMMARY: \([0-9]*\) .*/\1/p' "$logs/$name.txt" | tail -n 1)
    passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) .*/\1/p' "$logs/$name.txt" | tail -n 1)
    case $status in
    0) result=passed ;;
    77) result=skipped ;;
    124) result="not done in $seconds s" ;;
    *) result="failed" ;;
    esac
    grep -q 'Internal Sanitizer Error' "$logs/$name.txt" && result="the tool failed"
    printf '"%s",%s,%s,%s,"%s",%s,%s,%s,%s,%s\n' "$device" "$version" "$1" "$2" \
        "${3:-all}" "$DANAUS_TEST_SHARE" "${passed:-0}" "$result" "${errors:-}" \
        $(($(date +%s) - start)) > "$logs/$name.csv"
}

chosen=$(grep -E "${3:-.}" << 'END'
memcheck kernel_ks
memcheck kernel_dw
memcheck property_algebra
memcheck property_gradient
memcheck cuda_stream
memcheck kernel_short
memcheck kernel_short_gradient
memcheck kernel_conv
memcheck property_conv
memcheck property_conv_error
memcheck property_conv_pairs
memcheck cuda_conv
initcheck kernel_ks
initcheck kernel_dw
initcheck property_algebra
initcheck property_gradient
initcheck cuda_stream
initcheck kernel_short_gradient
initcheck kernel_conv
initcheck property_conv
initcheck property_conv_error
initcheck property_conv_pairs
racecheck kernel_ks ks.simt.f32.128x128
racecheck kernel_ks ks.simt.bf16.32x128
racecheck kernel_ks ks.simt.c128
racecheck kernel_ks ks.vec.f16
racecheck kernel_ks ks.vec.f64
racecheck kernel_ks ks.mma.
racecheck kernel_ks ks.mma_lanes
racecheck kernel_ks ks.wgmma.f16.256x128.2
racecheck kernel_ks ks.wgmma.tf32.128x192
racecheck kernel_ks ks.wgmma.f32.64x64
racecheck kernel_ks ks.wgmma_lanes
racecheck kernel_ks ks.turned
racecheck kernel_ks ks.split
racecheck cuda_pairs ks.pair
racecheck property_gradient ks.simt,ks.vec,dw.simt
racecheck kernel_dw dw.mma
racecheck kernel_dw dw.wgmma
racecheck kernel_dw dw.matrix,dw.fours
racecheck kernel_short
racecheck kernel_short_gradient
racecheck kernel_conv
racecheck property_conv_error
racecheck property_conv_pairs
END
)
while read -r kind test rows; do
    one "$kind" "$test" "$rows" &
done << END
$chosen
END
wait
{
    echo "device,sanitizer,tool,test,rows,share,passed,result,errors,seconds"
    cat "$logs"/*.csv
} > "$record"
cat "$record"
echo "logs: $logs"
! grep -v -E '^device|,passed,0,[0-9]+$' "$record" > /dev/null
