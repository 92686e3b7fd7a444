#!/bin/sh
# Measures what arXiv 2405.15013 does, on all NVIDIA GPUs of the machine.
#
#     sh bench/paper_ks.sh LIBRARY FOLDER [--tiny]
#
# Writes FOLDER/paper_ks.csv (627 patterns, f32 and f16, both layouts, all methods),
# paper_ks_energy.csv (120 patterns, f32) and paper_ks_models.csv (parts of transformers).
# After SECONDS_ALL (1500) no new measurement begins; the same command goes on with what
# is there. PYTHON (python3) has PyTorch, and the package of this commit in its path.
# --tiny runs on the processor, a few patterns and no energy.
# SPDX-License-Identifier: Apache-2.0
set -eu
[ $# -eq 2 ] || [ "${3:-}" = --tiny ] || {
    sed -n '2,/^# SPDX/{/SPDX/!p}' "$0" | sed 's/^# \{0,1\}//'
    exit 2
}
library=$1 folder=$2 tiny=${3:-}
python=${PYTHON:-python3}
bench=$(dirname "$0")
begin=$(date +%s)
mkdir -p "$folder"

left() { echo $((${SECONDS_ALL:-1500} - $(date +%s) + begin)); }

products() { # OUT OPTION...: rows that are missing
    out=$1
    shift
    [ "$(left)" -le 0 ] || "$python" "$bench/baselines/torch_ks.py" "$library" "$out" \
        --append --seconds "$(left)" --window 0.004 "$@"
}

models() { # written whole, and kept
    [ -s "$folder/paper_ks_models.csv" ] || [ "$(left)" -le 0 ] || {
        "$python" "$bench/paper_ks_models.py" "$folder/models.part" "$@"
        mv "$folder/models.part" "$folder/paper_ks_models.csv"
    }
}

join() { # NAME: one file of its parts
    awk 'FNR == 1 && NR > 1 { next } 1' "$folder/$1".*.part > "$folder/$1.csv"
}

gpu() { # NUMBER, OF: its share of everything
    export CUDA_VISIBLE_DEVICES=$(($1 - 1))
    [ "$1" -gt 1 ] || models
    products "$folder/paper_ks.$1.part" --suite paper.csv --dtypes f32,f16 \
        --methods dense,bmm,einsum,csr,bsr --part "$1/$2"
    products "$folder/paper_ks_energy.$1.part" --suite paper_energy.csv --dtypes f32 \
        --methods bmm,einsum,bsr --energy --energy-window 0.25 --part "$1/$2"
}

if [ "$tiny" ]; then
    models --tiny --device cpu --dtypes f32
    products "$folder/paper_ks.1.part" --device cpu --batch 40 --dtypes f32 \
        --methods dense,bmm,einsum,csr,bsr 1,48,48,4 1,48,192,1 1,192,48,2 2,48,48,4 4,64,64,4
    join paper_ks
    exit
fi
count=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU') || { echo "there is no NVIDIA GPU"; exit 77; }
for k in $(seq "$count"); do
    gpu "$k" "$count" > "$folder/gpu.$k.log" 2>&1 &
done
wait
join paper_ks
[ ! -e "$folder/paper_ks_energy.1.part" ] || join paper_ks_energy
tail -n 1 "$folder"/gpu.*.log
