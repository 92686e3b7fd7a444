#!/bin/sh
# bench/papers.sh with stand-ins for a GPU and for what measures: a part that fails does not
# stop the others, parts are measured once, and no part begins when the time is over.
# SPDX-License-Identifier: Apache-2.0
set -u
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
fail() { echo "$1"; cat "$folder"/calls "$folder"/out; exit 1; }
mkdir "$folder/bin"
ln -s /bin/true "$folder/bin/nvidia-smi"
cat > "$folder/bin/measure" << 'END'
#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in *"$BROKEN"*) exit 3 ;; *origin.py*) exit ;; esac
echo row > "$2"
END
chmod +x "$folder/bin/measure"
all() { # STATUS PAPER: what fails is in $broken
    CALLS=$folder/calls BROKEN=${broken:-none} PYTHON=measure PATH=$folder/bin:$PATH \
        sh bench/papers.sh "$2" "$folder/records" > "$folder/out" 2>&1
    [ $? = "$1" ] || fail "the exit status is not $1"
}
called() { [ "$(grep -c -- "$2" "$folder/calls")" = "$1" ] || fail "not $1 times: $2"; }

SECONDS_ALL=0
export SECONDS_ALL
: > "$folder/calls"
all 0 m2
called 0 .
grep -q "not measured yet: .*m2_bert.csv" "$folder/out" || fail "what is missing is not said"
unset SECONDS_ALL

broken=paper_m2_layers.py
all 1 m2
called 1 "m2_bert_gpu.py .*m2_bert.csv.part --models 80M,260M --plain"
broken=
all 0 m2
called 2 "paper_m2_layers.py"
called 1 "m2_bert_gpu.py"
broken=origin.py
all 1 m2
called 2 "paper_m2_layers.py"

broken=
all 0 flashfftconv
for part in cost conv sparse models language taps; do
    called 1 "flashfftconv_$part.csv.part"
done
rm "$folder/bin/nvidia-smi"
ln -s /bin/false "$folder/bin/nvidia-smi"
all 77 m2
