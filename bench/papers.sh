#!/bin/sh
# Measures what a paper's tables do, on one NVIDIA GPU.
#
#     sh bench/papers.sh flashfftconv|m2 FOLDER [--tiny]
#
# flashfftconv: arXiv 2311.05908; m2: Monarch Mixer, arXiv 2310.12109. Writes a file of
# records for each part, FOLDER/PAPER_PART.csv. After SECONDS_ALL (420) no new part begins;
# the same command goes on with the parts that are missing. A part that fails does not stop
# the others; the exit status is 1 then. Parts of another commit or machine are refused.
# PYTHON (python3) has PyTorch, transformers and the package of this commit in its path.
# --tiny runs on the processor at small sizes.
# SPDX-License-Identifier: Apache-2.0
set -eu
usage() {
    sed -n '2,/^# SPDX/{/SPDX/!p}' "$0" | sed 's/^# \{0,1\}//'
    exit 2
}
[ $# -eq 2 ] || [ "${3:-}" = --tiny ] || usage
paper=$1 folder=$2 tiny=${3:-}
python=${PYTHON:-python3}
bench=$(dirname "$0")
begin=$(date +%s)
mkdir -p "$folder"

part() { # NAME PROGRAM OPTION...: written whole, and kept
    out=$folder/${paper}_$1.csv program=$bench/$2
    shift 2
    if [ -s "$out" ]; then
        "$python" "$bench/baselines/origin.py" "$out" || status=1
    elif [ $(($(date +%s) - begin)) -lt "${SECONDS_ALL:-420}" ]; then
        "$python" "$program" "$out.part" "$@" ${tiny:+--tiny --device cpu} &&
            mv "$out.part" "$out" || status=1
    else
        echo "not measured yet: $out"
    fi
}

flashfftconv() {
    part cost paper_conv_cost.py
    part conv gpu_conv.py --dtypes f16 --forms fresh --seconds 120
    part sparse reduced_conv.py --boxes paper --lengths 2097152
    part models paper_conv_models.py --tables models
    part language paper_conv_models.py --tables language --rounds 5
    part taps paper_conv_models.py --tables taps
}

m2() {
    part layers paper_m2_layers.py
    part bert m2_bert_gpu.py --models 80M,260M --plain --tokens 65536 \
        --lengths 512,1024,2048,4096,8192 --rounds 5
}

if [ -z "$tiny" ] && ! nvidia-smi -L > /dev/null 2>&1; then
    echo "there is no NVIDIA GPU"
    exit 77
fi
status=0
case $paper in
flashfftconv) flashfftconv ;;
m2) m2 ;;
*) usage ;;
esac
exit $status
