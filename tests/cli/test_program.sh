#!/bin/sh
# The program from the outside: command lines, exit statuses, sentences, files.
# SPDX-License-Identifier: Apache-2.0
set -u
program=${DANAUS_PROGRAM:?the path of the program}
corpus=$PWD/tests/fuzz/corpus
here=$PWD/tests/cli manual=$PWD/docs/danaus.1 compare=$PWD/bench/compare.py
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
passed=0 failed=0

danaus() { "$program" "$@"; }
close() { /usr/bin/python3 "$here/arrays.py" close "$@"; }
json() { /usr/bin/python3 "$here/arrays.py" json "$@"; }
/usr/bin/python3 "$here/arrays.py" make . || exit 1

pass() { passed=$((passed + 1)); echo "ok      $1"; }
fail() { failed=$((failed + 1)); echo "FAILED  $1"; shift; printf '        %s\n' "$@"; }

# ok WORDS COMMAND...: succeeds and says nothing on standard error.
ok() {
    words=$1; shift
    "$@" > out 2> err
    status=$?
    if [ $status -eq 0 ] && [ ! -s err ]; then pass "$words"
    else fail "$words" "status $status" "$(cat err)"; fi
}

# refuses STATUS PATTERN WORDS COMMAND...: that status, nothing on standard output,
# and one sentence on standard error in which the pattern is found.
refuses() {
    wanted=$1 pattern=$2 words=$3; shift 3
    "$@" > out 2> err
    status=$?
    if [ $status -eq "$wanted" ] && [ ! -s out ] && [ "$(wc -l < err)" -eq 1 ] &&
        grep -q -e "$pattern" err; then pass "$words"
    else fail "$words" "status $status" "$(cat err out)"; fi
}

# said KEYS CONDITION WORDS: about the JSON that the last command printed.
said() { words=$3; ok "$words" sh -c '/usr/bin/python3 "$0"/arrays.py json "$1" "$2" < "$3"' "$here" "$1" "$2" last; }
keep() { cp out last; }

# ---- commands and options ----

ok "help of the program" danaus --help
grep -q factorize out || fail "help lists the commands"
ok "version" danaus --version
for command in info factorize apply dense conv bench tune calibrate kernels \
    "bench ks" "bench conv" "bench stream" "bench calls"; do
    ok "help of $command" danaus $command --help
    grep -q "^Usage: danaus ${command% ks}" out || fail "help of $command begins with its usage"
    grep '.\{89\}' out && fail "help of $command fits 88 columns"
    for option in $(grep -o -e '^  ....--[a-z]*' out | grep -o -e '--.*'); do
        sed 's/\\-/-/g' "$manual" | grep -q -e "$option" || fail "the manual has $option"
    done
done
danaus factorize --help | grep -q '|kaleidoscope$' || fail "help names every family"
refuses 2 "a command is needed" "no command" danaus
refuses 2 'no command "fly"' "an unknown command" danaus fly
refuses 2 "no option" "an unknown option" danaus info --wings
refuses 2 "no option -z" "an unknown letter" danaus info -z
refuses 2 "needs a value" "an option without its value" danaus dense c.safetensors -o
refuses 2 "were given" "too many operands" danaus info here
refuses 2 "first|last" "a word that is none" danaus apply a b -o c --layout middle
refuses 2 "f32, f64" "a type that is none" danaus apply a b -o c --dtype f8
refuses 2 "integer of at least 0" "a negative count" danaus apply a b -o c --threads -3
refuses 2 "number above 0" "a fraction of zero" danaus factorize exact.npy --params 0
refuses 1 "cannot write" "a full device" sh -c '"$0" info > /dev/full' "$program"

# ---- info ----

ok "info" danaus info
ok "info as JSON" danaus info --json
keep
said devices.0.threads "v >= 1" "info tells the threads"
said devices.0.kernels "len(v) > 0" "info tells the kernels"
said devices.0.operations "v[0] == 'product' and v[-1] == 'convolution'" "and what they do"
ok "info of one instruction set" danaus info --device cpu:scalar --json
keep
said devices.0.instructions "v == 'scalar'" "cpu:scalar is scalar"
refuses 1 "" "a device that is none" danaus info --device quantum

# ---- kernels ----

export DANAUS_CACHE="$folder/cache"
refuses 2 "none of export, import and list" "a third way" danaus kernels send bundle
refuses 1 "holds no kernels" "an empty cache" danaus kernels export bundle --instructions sm_90
refuses 1 "no file of compiled kernels" "another file" danaus kernels import x.npy
refuses 1 "no file of compiled kernels" "a list of another" danaus kernels list x.npy
ok "a list" danaus kernels list "$corpus/bundle/three" --json
keep
said kernels.0 "v == {'version': '0.1.0', 'instructions': 'sm_90', 'count': 3, 'bytes': 6}" \
    "what is in a file of kernels"
ok "a list in words" danaus kernels list "$corpus/bundle/three"

# ---- factorize and dense ----

two="1,8,6,6 6,6,8,1"
ok "factorize by patterns" danaus factorize exact.npy --pattern "$two" -o c.safetensors --json
keep
said error "v < 1e-12" "an exact chain is found"
said upper_bound "v < 1e-11" "its bound says so"
said parameters "v == 576" "its parameters are counted"
said patterns "v == [[1, 8, 6, 6], [6, 6, 8, 1]]" "its patterns are told"
ok "dense" danaus dense c.safetensors -o back.npy --json
ok "dense gives the matrix back" close back.npy exact 1e-12 float64
ok "text for people" danaus factorize exact.npy --pattern "$two"
grep -q "^error" out || fail "the text tells the error"
ok "a Fortran-ordered matrix" danaus factorize fortran.npy --pattern "$two" --json
keep
said error "v < 1e-12" "is read as what it is"
ok "a safetensors file with one tensor" danaus factorize one.safetensors --pattern "$two"
ok "f16" danaus factorize half.npy --pattern "$two" -o half.safetensors --json
keep
said dtype "v == 'f32'" "f16 is worked on in f32"
ok "another type" danaus factorize exact32.npy --dtype f64 --pattern "$two" --json
keep
said dtype "v == 'f64'" "and the chain has it"
ok "near the chain" danaus factorize near.npy --pattern "$two" --json
keep
said "" "0 < v['lower_bound'] <= v['error'] <= v['upper_bound'] * (1 + 1e-9)" "bounds hold"
for order in auto left right balanced; do
    ok "order $order" danaus factorize dft_turned.npy --chain dyadic --order $order --json
    keep
    said error "v < 1e-12" "order $order finds the Fourier transform"
done
ok "fast" danaus factorize near.npy --pattern "$two" --fast --json
keep
said lower_bound "v is None" "fast has no lower bound"
ok "refine" danaus factorize near.npy --pattern "$two" --refine 3 --json
for chain in dense low-rank monarch; do
    ok "chain $chain" danaus factorize rectangle.npy --chain $chain --rank 2 --json
done
ok "order 3 Monarch" danaus factorize exact.npy --chain monarch --factors 3 --json
keep
said patterns "len(v) == 3" "has three factors"
ok "a share of the parameters" danaus factorize rectangle.npy --params 0.5 --json
keep
said fraction "v <= 0.5" "is kept"
ok "calibration" danaus factorize near.npy --params 0.4 --calibrate samples.npy --json
ok "targets with an offset" danaus factorize near.npy --pattern "$two" --calibrate samples.npy \
    --targets targets.npy --fit-bias -o fitted.safetensors --json
keep
said error "v < 1e-5" "are met"
said dense_error "0.9 < v < 1.1" "by another matrix"
ok "without a bias" danaus factorize near.npy --pattern "$two" --calibrate samples.npy \
    --targets targets.npy --ridge 1e-3 --json
keep
said error "0.01 < v < 1" "they are not"
ok "candidates" danaus factorize near.npy --params 0.3 --candidates --calibrate samples.npy \
    --targets targets.npy --fit-bias --json -o best.safetensors
keep
said candidates "len(v) > 4 and sum(k['taken'] for k in v) == 1" "are listed"
said "" "min(k['error'] for k in v['candidates']) == v['error']" "the best is taken"
said fraction "v <= 0.3" "within the budget"
ok "candidates for people" danaus factorize near.npy --params 0.3 --candidates --reduced
grep -q "^. low-rank" out || fail "the table names low rank"
grep -q "^\* " out || fail "the table marks the best"
ok "complex" danaus factorize dft_turned.npy --dtype c64 --chain dyadic -o dft.safetensors
ok "a layer" danaus factorize layer.safetensors --tensor layer.weight --bias layer.bias \
    --pattern "$two" -o layer_chain.safetensors
ok "a bf16 layer" danaus factorize layer.safetensors --tensor layer.half --pattern "$two"

refuses 2 "one of --pattern" "no chain" danaus factorize exact.npy
refuses 2 "one of --pattern" "two chains" danaus factorize exact.npy --params 1 --chain dyadic
refuses 2 "go with --chain" "rank without chain" danaus factorize exact.npy --params 1 --rank 2
refuses 2 "go with --calibrate" "targets alone" danaus factorize near.npy --params 1 \
    --targets targets.npy
refuses 2 "goes with --params" "candidates alone" danaus factorize near.npy --pattern "$two" --candidates
refuses 2 "goes with --candidates" "reduced alone" danaus factorize near.npy --params 1 --reduced
refuses 2 "give one" "two biases" danaus factorize near.npy --params 1 --calibrate samples.npy \
    --fit-bias --bias x
refuses 1 "samples x 48" "targets of another width" danaus factorize near.npy --params 1 \
    --calibrate samples.npy --targets rectangle.npy
refuses 1 "200 inputs have 48 targets" "too few targets" danaus factorize near.npy --params 1 \
    --calibrate samples.npy --targets exact.npy
refuses 1 "no candidate" "too small a budget" danaus factorize near.npy --params 0.001 --candidates
refuses 2 "not a pattern" "a malformed pattern" danaus factorize exact.npy --pattern "1,2,x"
refuses 2 "cannot be factorised in" "half types" danaus factorize exact.npy --params 1 --dtype f16
refuses 1 "columns" "not composable" danaus factorize exact.npy --pattern "1,8,6,6 6,6,8,2"
refuses 1 "" "not chainable" danaus factorize exact.npy --pattern "1,8,4,6 6,4,8,1"
refuses 1 "24 x 36, but the patterns make 48 x 48" "another size" danaus factorize rectangle.npy --pattern "$two"
refuses 1 "" "dyadic of a size that is none" danaus factorize exact.npy --chain dyadic
refuses 1 "" "products only" danaus factorize dft.npy --chain kaleidoscope
refuses 1 "nan\|NaN" "a NaN" danaus factorize bad.npy --pattern "$two"
refuses 1 "48, but a matrix" "a vector" danaus factorize x_one.npy --params 1
refuses 1 "cannot open" "no file" danaus factorize nothing.npy --params 1
refuses 1 "" "no array" danaus factorize text.npy --params 1
refuses 1 "" "half an array" danaus factorize cut.npy --params 1
refuses 1 "" "no elements" danaus factorize x_none.npy --params 1
refuses 1 "" "integers" danaus factorize integers.npy --params 1
refuses 1 "4 tensors" "which tensor" danaus factorize layer.safetensors --params 1
refuses 1 "" "no such tensor" danaus factorize layer.safetensors --tensor w --params 1
refuses 1 "7 elements" "a short bias" danaus factorize layer.safetensors \
    --tensor layer.weight --bias layer.short --params 1
refuses 1 "samples x 48" "narrow samples" danaus factorize exact.npy --params 1 \
    --calibrate x_narrow.npy
refuses 1 "imaginary" "complex to real" danaus factorize dft.npy --params 1 --dtype f32
cp c.safetensors before
refuses 1 "" "a folder that is none" danaus dense c.safetensors -o nowhere/back.npy
refuses 1 "" "output in place of a folder" danaus factorize exact.npy --pattern "$two" -o .
ok "other files stay" cmp before c.safetensors
refuses 1 "" "no chain in a file" danaus dense layer.safetensors -o y.npy
refuses 2 "-o FILE" "dense without output" danaus dense c.safetensors

# ---- apply ----

ok "apply, batch first" danaus apply c.safetensors x.npy -o y.npy --json
keep
said batch "v == 5" "the batch is told"
ok "y = x W'" close y.npy "x @ exact.T" 1e-12 float64
ok "apply, batch last" danaus apply c.safetensors x_last.npy -o y.npy --layout last
ok "y = W x" close y.npy "exact @ x_last" 1e-12
ok "adjoint" danaus apply c.safetensors x.npy -o y.npy --adjoint
ok "y = x W" close y.npy "x @ exact" 1e-12
ok "a vector" danaus apply c.safetensors x_one.npy -o y.npy
ok "gives a vector" close y.npy "exact @ x_one" 1e-12
ok "an empty batch" danaus apply c.safetensors x_none.npy -o y.npy
ok "gives an empty batch" close y.npy "x_none" 0
ok "f32" danaus apply c.safetensors x.npy -o y.npy --dtype f32
ok "rounds to f32" close y.npy "x @ exact.T" 1e-6 float32
ok "f16" danaus apply c.safetensors x.npy -o y.npy --dtype f16
ok "rounds to f16" close y.npy "x @ exact.T" 3e-3 float16
ok "bf16" danaus apply c.safetensors x.npy -o y.npy --dtype bf16
ok "rounds to bf16" close y.npy "x @ exact.T" 3e-2 bf16
ok "complex inputs" danaus apply c.safetensors x_complex.npy -o y.npy
ok "make a complex product" close y.npy "x_complex @ exact.T" 1e-12 complex128
ok "real in complex" danaus apply c.safetensors x.npy -o y.npy --dtype c64
ok "is exact too" close y.npy "x @ exact.T" 1e-6 complex64
ok "a complex chain" danaus apply dft.safetensors xc.npy -o y.npy
ok "is the Fourier transform" close y.npy "xc @ dft_turned.T" 1e-6
ok "its adjoint" danaus apply dft.safetensors xc.npy -o y.npy --adjoint --dtype c64
ok "is conjugated" close y.npy "xc @ dft_turned.conj()" 1e-5 complex64
ok "a bias" danaus apply layer_chain.safetensors x.npy -o y.npy --dtype f64
ok "is added" close y.npy "x @ exact32.T + np.arange(48)" 1e-6
ok "a bias in a complex product" danaus apply layer_chain.safetensors x_complex.npy -o y.npy
ok "is added too" close y.npy "x_complex @ exact32.T + np.arange(48)" 1e-6
ok "a bias and an activation" danaus apply layer_chain.safetensors x.npy -o y.npy --dtype f64 \
    --activation gelu-tanh
v="(x @ exact32.T + np.arange(48))"
ok "is applied last" close y.npy \
    "$v / (1 + np.exp(-1.5957691216057308 * ($v + 0.044715 * $v**3)))" 1e-6
refuses 1 "for real numbers" "an activation of complex numbers" danaus apply c.safetensors \
    x_complex.npy -o y.npy --activation silu
ok "one thread, scalar" danaus apply c.safetensors x.npy -o y.npy --device cpu:scalar \
    --threads 1 --repeat 3
ok "gives the same" close y.npy "x @ exact.T" 1e-12
ok "measured" danaus apply c.safetensors x.npy -o y.npy --effort measure

refuses 1 "7 x 47" "narrow inputs" danaus apply c.safetensors x_narrow.npy -o y.npy
refuses 1 "it fits --layout first" "the other layout" danaus apply c.safetensors x.npy \
    -o y.npy --layout last
refuses 1 "2 x 2 x 48" "three dimensions" danaus apply c.safetensors x_cube.npy -o y.npy
refuses 1 "imaginary" "complex to real" danaus apply dft.safetensors xc.npy -o y.npy --dtype f32
refuses 1 "" "no chain" danaus apply x.npy x.npy -o y.npy
refuses 1 "" "no inputs" danaus apply c.safetensors nothing.npy -o y.npy
refuses 1 "" "no device" danaus apply c.safetensors x.npy -o y.npy --device gpu
refuses 1 "" "no table" danaus apply c.safetensors x.npy -o y.npy --tuning nothing.csv
refuses 2 "-o FILE" "apply without output" danaus apply c.safetensors x.npy

# ---- bench and tune ----

printf '# small\nproblem,batch\n"2,8,8,3",\n"1,8,6,6 6,6,8,1",16\n' > small.csv
ok "bench" danaus bench ks --suite small.csv --batch 16 --layout last --hot --baselines \
    --csv records.csv --json
keep
said records "len(v) == 2" "a record for each problem"
said records.0 "v['error'] < 1e-6 and v['median_ns'] > 0 and v['ratio'] > 0" "with its times"
said records.1.factors_ns "v > 0" "factors one by one"
said machine "v['f32_gflops'] > 0 and v['copy_gbs'] > 0" "and the machine's limits"
ok "some baselines" danaus bench ks --suite small.csv --batch 3 --layout first --baselines \
    --methods csr,einsum --json
keep
said records.0.best "v in ('csr', 'einsum')" "which alone are measured"
ok "records as CSV" test "$(wc -l < records.csv)" -eq 3
ok "a run is like itself" /usr/bin/python3 "$compare" records.csv records.csv
sed 's/"ks",\(.*\),"last",16,\("[^"]*"\),\([0-9]*\),[0-9.e+]*,/"ks",\1,"last",16,\2,\3,1e12,/' \
    records.csv > slow.csv
/usr/bin/python3 "$compare" records.csv slow.csv > out
status=$?
if [ $status -eq 1 ] && grep -q "2 slower" out; then pass "a slower run is found out"
else fail "a slower run is found out" "status $status" "$(cat out)"; fi
ok "complex bench for people" danaus bench ks --suite small.csv --batch 3 --dtype c64 \
    --layout first --baselines
ok "half types" danaus bench ks --suite small.csv --batch 3 --dtype bf16 --layout first
ok "tune" danaus tune --suite small.csv --batch 16 --layout first -o table.csv
ok "tune in no time" danaus tune --suite small.csv --batch 16 --seconds 1e-9 -o short.csv
ok "writes a table" grep -q "^# danaus tuning 1" short.csv
ok "a table is read" danaus apply c.safetensors x.npy -o y.npy --tuning table.csv --dtype f32

refuses 2 "only ks" "an unknown benchmark" danaus bench fft --suite small.csv
refuses 2 "suite FILE" "no suite" danaus bench ks
refuses 2 "names of" "an unknown baseline" danaus bench ks --suite small.csv --baselines --methods gem
refuses 2 "names of" "no baselines" danaus bench ks --suite small.csv --methods csr
refuses 2 "integers of at least 1" "a batch of zero" danaus bench ks --suite small.csv --batch 0
refuses 1 "cannot open" "no such suite" danaus bench ks --suite nothing.csv
printf '"2,8,8,3",4\n2,8,8,3\n' > wrong.csv
refuses 1 "line 2" "a line without quotes" danaus bench ks --suite wrong.csv
printf '"2,8,8",4\n' > wrong.csv
refuses 1 "line 1" "a line without a pattern" danaus tune --suite wrong.csv -o t.csv
printf '"2,8,8,3",four\n' > wrong.csv
refuses 1 "four" "a batch in words" danaus bench ks --suite wrong.csv
: > wrong.csv
refuses 1 "no problem" "an empty suite" danaus bench ks --suite wrong.csv
refuses 1 "" "a table nowhere" danaus tune --suite small.csv --batch 2 --json \
    -o nowhere/t.csv

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
