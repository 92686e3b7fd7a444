#!/bin/sh
# bench/paper_ks.sh with stand-ins for two GPUs and for what measures: each GPU takes its
# part of both lists, the models are measured once, and parts become one file.
# SPDX-License-Identifier: Apache-2.0
set -u
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; cat "$folder"/calls "$folder"/out; exit 1; }
mkdir "$folder/bin" "$folder/records"
cat > "$folder/bin/nvidia-smi" << 'END'
#!/bin/sh
printf 'GPU 0: a\nGPU 1: a\n'
END
cat > "$folder/bin/measure" << 'END'
#!/bin/sh
echo "$CUDA_VISIBLE_DEVICES $*" >> "$CALLS"
case $1 in *models.py) out=$2 ;; *) out=$3 ;; esac
printf 'head\nrow of %s\n' "$CUDA_VISIBLE_DEVICES" > "$out"
END
chmod +x "$folder/bin/nvidia-smi" "$folder/bin/measure"
all() {
    CALLS=$folder/calls PYTHON=measure PATH=$folder/bin:$PATH \
        sh bench/paper_ks.sh library "$folder/records" > "$folder/out" 2>&1
}
called() { [ "$(grep -c -- "$2" "$folder/calls")" = "$1" ] || fail "not $1 times: $2"; }

all || fail "the first run"
called 1 "^0 .*paper_ks_models.py"
for k in 1 2; do
    called 1 "^$((k - 1)) .*paper_ks.$k.part .*--suite paper.csv .*--part $k/2"
    called 1 "^$((k - 1)) .*paper_ks_energy.$k.part .*--suite paper_energy.csv .*--part $k/2"
done
printf 'head\nrow of 0\nrow of 1\n' > "$folder/expected"
for name in paper_ks paper_ks_energy; do
    cmp -s "$folder/records/$name.csv" "$folder/expected" || fail "$name.csv"
done
all || fail "the second run"
called 1 "paper_ks_models.py"
called 8 "torch_ks.py library"
SECONDS_ALL=0
export SECONDS_ALL
all || fail "a run without time"
called 8 "torch_ks.py library"

rm "$folder/bin/nvidia-smi"
ln -s /bin/false "$folder/bin/nvidia-smi"
all
[ $? = 77 ] || fail "no GPU"
