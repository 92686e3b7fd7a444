#!/bin/sh
# The program from the outside: command lines, exit statuses, sentences, files.
# SPDX-License-Identifier: Apache-2.0
set -u
program=${DANAUS_PROGRAM:?the path of the program}
corpus=$PWD/tests/fuzz/corpus
here=$PWD/tests/cli manual=$PWD/docs/danaus.1 formats=$PWD/docs/formats.md
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
passed=0 failed=0

danaus() { "$program" "$@"; }
close() { /usr/bin/python3 "$here/arrays.py" close "$@"; }
json() { /usr/bin/python3 "$here/facts.py" "$@"; }
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
said() { words=$3; ok "$words" sh -c '/usr/bin/python3 "$0"/facts.py "$1" "$2" < "$3"' "$here" "$1" "$2" last; }
keep() { cp out last; }
# documented: every member of that JSON is in the command's row of docs/formats.md.
documented() {
    ok "$1" /usr/bin/python3 - "$formats" last << 'END'
import json, re, sys
rows = re.findall(r"^\| `(\w+)[^|]*\|(.*)\|$", open(sys.argv[1]).read(), re.M)
facts = json.load(open(sys.argv[2]))
known = {"schema", "version", "command", "non_finite"}
for command, members in rows:
    if command == facts["command"]:
        known.update(re.findall(r"`(\w+)`", members))
one = [x[0] for x in facts.values() if isinstance(x, list) and x and isinstance(x[0], dict)]
for members in [facts] + ([] if facts["command"] == "bench" else one):
    assert known.issuperset(members), set(members) - known
END
}

# ---- commands and options ----

ok "help of the program" danaus --help
grep -q factorize out || fail "help lists the commands"
ok "version" danaus --version
for command in info factorize apply dense combine invert transform conv embed compress model bench tune calibrate kernels completion; do
    ok "help of $command" danaus $command --help
    grep -q "^Usage: danaus $command" out || fail "help of $command begins with its usage"
    grep '.\{89\}' out && fail "help of $command fits 88 columns"
    for option in $(grep -o -e '^  ....--[a-z0-9]*' out | grep -o -e '--.*'); do
        sed 's/\\-/-/g' "$manual" | grep -q -e "$option" || fail "the manual has $option"
    done
done
danaus factorize --help | grep -q '|monarch$' || fail "help names the families"
danaus factorize --help > long && danaus help factorize | cmp - long || fail "help COMMAND is --help"
refuses 2 'no command "fly"' "help of no command" danaus help fly
refuses 2 "help takes one command, not 2" "help of two commands" danaus help info apply
refuses 2 "a command is needed" "no command" danaus
refuses 2 'no command "fly"' "an unknown command" danaus fly
refuses 2 "no option --wings (" "an unknown option" danaus info --wings=3
refuses 2 "no option -z" "an unknown letter" danaus info -z
refuses 2 "^danaus info: --json takes no value$" "a value too many" danaus info --json=yes
refuses 2 "^danaus info: --help takes no value$" "a value for help" danaus info --help=me
refuses 2 "^danaus info: --t may be --threads or --tuning: write" "an unclear option" danaus info --t 3
ok "the beginning of an option" danaus info --js
refuses 2 "needs a value" "an option without its value" danaus dense c.safetensors -o
refuses 1 "cannot open here: No such file" "a file that is not there" danaus info here
refuses 2 "first|last" "a word that is none" danaus apply a b -o c --layout middle
refuses 2 "first|last" "the beginning of a word" danaus apply a b -o c --layout fir
refuses 2 "f32, f64" "a type that is none" danaus apply a b -o c --dtype f8
refuses 2 "an integer from 0" "a negative count" danaus apply a b -o c --threads -3
refuses 2 "number above 0" "a fraction of zero" danaus factorize exact.npy --params 0
refuses 1 "cannot write" "a full device" sh -c '"$0" info > /dev/full' "$program"

# ---- info ----

ok "info" danaus info
ok "info as JSON" danaus info --json
keep
documented "info is documented"
said devices.0.threads "v >= 1" "info tells the threads"
said devices.0.kernels "len(v) > 0" "info tells the kernels"
said devices.0.operations "v[0] == 'product' and v[-1] == 'convolution'" "and what they do"
ok "info of one instruction set" danaus info --device cpu:scalar --json
keep
said devices.0.instructions "v == 'scalar'" "cpu:scalar is scalar"
refuses 1 "" "a device that is none" danaus info --device quantum

for option in "threads 3" "tuning /dev/null" "taps 3" "rows 3" "effort table" "accuracy fast"; do
    refuses 2 "goes with --conv" "${option% *} alone" danaus info --$option
done
said schema "v == 1" "JSON has the number of its schema"
said "" "list(v)[:3] == ['schema', 'version', 'command'] and v['command'] == 'info'" "and says whose it is"

# ---- kernels ----

export DANAUS_CACHE="$folder/cache"
refuses 2 "none of export, import and list" "a third way" danaus kernels send bundle
refuses 1 "holds no kernels" "an empty cache" danaus kernels export bundle --instructions sm_90
refuses 1 "no file of compiled kernels" "another file" danaus kernels import x.npy
refuses 2 "goes with export" "instructions of a list" danaus kernels list x.npy --instructions sm_90
refuses 1 "no file of compiled kernels" "a list of another" danaus kernels list x.npy
ok "a list" danaus kernels list "$corpus/bundle/three" --json
keep
said kernels.0 "v == {'version': '0.1.0', 'instructions': 'sm_90', 'count': 3, 'bytes': 6}" \
    "what is in a file of kernels"
documented "a list of kernels is documented"
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
keep
documented "dense is documented"
ok "dense gives the matrix back" close back.npy exact 1e-12 float64
ok "text for people" danaus factorize exact.npy --pattern "$two"
grep -q "^error" out || fail "the text tells the error"
ok "a shuffled matrix" danaus factorize shuffled.npy --pattern "$two" --permute -o s.safetensors --json
keep
said error "v < 1e-12" "its chain is found"
said error_unpermuted "v > 0.1" "which it is not as it stands"
documented "permuting is documented"
ok "dense of permuted" danaus dense s.safetensors -o back.npy
ok "rows and columns are where they were" close back.npy shuffled 1e-12 float64
ok "text of a shuffled matrix" danaus factorize shuffled.npy --pattern "$two" --permute
grep -q "^permuted" out || fail "the text tells that it is permuted"
refuses 2 "goes without --permute" "permuted with a bias" danaus factorize shuffled.npy --pattern "$two" \
    --permute --inputs samples.npy
refuses 1 "two factors" "permuted for three" danaus factorize exact.npy --chain monarch --factors 3 --permute
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
ok "chain dense" danaus factorize rectangle.npy --chain dense --json
for chain in low-rank monarch; do
    ok "chain $chain" danaus factorize rectangle.npy --chain $chain --rank 2 --json
done
ok "order 3 Monarch" danaus factorize exact.npy --chain monarch --factors 3 --json
keep
said patterns "len(v) == 3" "has three factors"
ok "a share of the parameters" danaus factorize rectangle.npy --params 0.5 --json
keep
said fraction "v <= 0.5" "is kept"
ok "calibration" danaus factorize near.npy --params 0.4 --inputs samples.npy --json
ok "targets with an offset" danaus factorize near.npy --pattern "$two" --inputs samples.npy \
    --targets targets.npy --fit-bias -o fitted.safetensors --json
keep
said error "v < 1e-5" "are met"
said dense_error "0.9 < v < 1.1" "by another matrix"
ok "without a bias" danaus factorize near.npy --pattern "$two" --inputs samples.npy \
    --targets targets.npy --ridge 1e-3 --json
keep
said error "0.01 < v < 1" "they are not"
ok "candidates" danaus factorize near.npy --params 0.3 --candidates --inputs samples.npy \
    --targets targets.npy --fit-bias --json -o best.safetensors
keep
documented "factorize is documented"
said candidates "len(v) > 4 and sum(k['taken'] for k in v) == 1" "are listed"
said "" "min(k['error'] for k in v['candidates']) == v['error']" "the best is taken"
said fraction "v <= 0.3" "within the budget"
ok "candidates for people" danaus factorize near.npy --params 0.3 --candidates --reduced
grep -q "^. low-rank" out || fail "the table names low rank"
grep -q "^\* " out || fail "the table marks the best"
ok "a sum of equal terms" danaus factorize near.npy --pattern "$two" --terms 2 -o sum.safetensors --json
keep
said patterns "v == [[1, 8, 12, 6], [6, 12, 8, 1]]" "is one chain"
said terms "len(v) == 2 and v[0]['error'] == v[1]['error']" "of two terms"
said "" "v['lower_bound'] <= v['error'] < 1" "with its bounds"
ok "a sum of other terms" danaus factorize near.npy --pattern "$two + 4,12,12,1" -o sum.safetensors --json
keep
documented "sums are documented"
said terms "[len(t['patterns']) for t in v] == [2, 1]" "has their patterns"
said "" "v['error'] <= v['terms'][1]['error'] <= v['terms'][0]['error']" "and errors that fall"
ok "is one file" danaus dense sum.safetensors -o back.npy
ok "near the matrix" close back.npy near 0.01
ok "a sum with a bias" danaus factorize near.npy --pattern "$two + 4,12,12,1" --inputs samples.npy \
    --targets targets.npy --fit-bias -o sum.safetensors
ok "multiplies" danaus apply sum.safetensors samples.npy -o y.npy
ok "to the targets" close y.npy targets 1e-5
ok "the best sum" danaus factorize near.npy --params 0.4 --terms auto --json
keep
documented "its candidates are documented"
said candidates "any(len(c['counts']) == 2 for c in v)" "is of chains"
said "" "min(k['error'] for k in v['candidates']) >= v['error'] - 1e-9" "and the nearest"
said fraction "v <= 0.4" "within its budget"
ok "sums for people" danaus factorize near.npy --params 0.4 --terms 2 --inputs samples.npy
grep -q " + " out || fail "sums are listed"
refuses 2 "1 to 3 or auto" "too many terms to choose" danaus factorize near.npy --params 0.4 --terms 4
refuses 2 "auto with --params" "nothing to choose by" danaus factorize near.npy --pattern "$two" --terms auto
refuses 2 "goes with one list of patterns" "terms twice" danaus factorize near.npy --pattern "$two + $two" --terms 2
refuses 2 "takes 1 to 16 terms" "too many terms" danaus factorize near.npy \
    --pattern "$(printf '1,48,48,1 + %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)1,48,48,1"
refuses 2 "1 to 64 factors" "an empty term" danaus factorize near.npy --pattern "$two +"
refuses 1 "term 1 is 48 x 24" "terms of two sizes" danaus factorize near.npy --pattern "$two + 1,48,24,1"
refuses 1 "W is 24 x 36" "a sum of another size" danaus factorize rectangle.npy --pattern "$two + $two"
ok "complex" danaus factorize dft_turned.npy --dtype c64 --chain dyadic -o dft.safetensors
ok "a layer" danaus factorize layer.safetensors --tensor layer.weight --bias layer.bias \
    --pattern "$two" -o layer_chain.safetensors
ok "a bf16 layer" danaus factorize layer.safetensors --tensor layer.half --pattern "$two"

refuses 2 "one of --pattern" "no chain" danaus factorize exact.npy
refuses 2 "one of --pattern" "two chains" danaus factorize exact.npy --params 1 --chain dyadic
refuses 2 "goes with --chain" "rank without chain" danaus factorize exact.npy --params 1 --rank 2
refuses 2 "goes with --chain" "rank of a dense chain" danaus factorize exact.npy --chain dense --rank 2
refuses 2 "goes with --chain monarch" "factors of others" danaus factorize exact.npy --chain low-rank --factors 2
refuses 2 "--targets goes with --inputs" "targets alone" danaus factorize near.npy --params 1 \
    --targets targets.npy
refuses 2 "goes with --params" "candidates alone" danaus factorize near.npy --pattern "$two" --candidates
refuses 2 "goes with --candidates" "reduced alone" danaus factorize near.npy --params 1 --reduced
refuses 2 "give one" "two biases" danaus factorize near.npy --params 1 --inputs samples.npy \
    --fit-bias --bias x
refuses 1 "samples x 48" "targets of another width" danaus factorize near.npy --params 1 \
    --inputs samples.npy --targets rectangle.npy
refuses 1 "has 48 targets, and samples.npy 200 inputs" "too few targets" danaus factorize near.npy --params 1 \
    --inputs samples.npy --targets exact.npy
refuses 1 "no candidate" "too small a budget" danaus factorize near.npy --params 0.001 --candidates
refuses 2 "not a pattern" "a malformed pattern" danaus factorize exact.npy --pattern "1,2,x"
refuses 2 "cannot be factorised in" "half types" danaus factorize exact.npy --params 1 --dtype f16
refuses 1 "columns" "not composable" danaus factorize exact.npy --pattern "1,8,6,6 6,6,8,2"
refuses 1 "" "not chainable" danaus factorize exact.npy --pattern "1,8,4,6 6,4,8,1"
refuses 1 "24 x 36, but the patterns make 48 x 48" "another size" danaus factorize rectangle.npy --pattern "$two"
refuses 1 "" "dyadic of a size that is none" danaus factorize exact.npy --chain dyadic
refuses 2 "block-butterfly|monarch, not" "products only" danaus factorize dft.npy --chain kaleidoscope
refuses 1 "nan\|NaN" "a NaN" danaus factorize bad.npy --pattern "$two"
refuses 1 "48, but a matrix" "a vector" danaus factorize x_one.npy --params 1
refuses 1 "cannot open" "no file" danaus factorize nothing.npy --params 1
refuses 1 "" "no array" danaus factorize text.npy --params 1
refuses 1 "" "half an array" danaus factorize cut.npy --params 1
refuses 1 "" "no elements" danaus factorize x_none.npy --params 1
refuses 1 "" "integers" danaus factorize integers.npy --params 1
refuses 1 "4 arrays: say which one with --tensor" "which tensor" danaus factorize layer.safetensors --params 1
refuses 1 "" "no such tensor" danaus factorize layer.safetensors --tensor w --params 1
refuses 1 "7 elements" "a short bias" danaus factorize layer.safetensors \
    --tensor layer.weight --bias layer.short --params 1
refuses 1 "samples x 48" "narrow samples" danaus factorize exact.npy --params 1 \
    --inputs x_narrow.npy
refuses 1 "imaginary" "complex to real" danaus factorize dft.npy --params 1 --dtype f32
cp c.safetensors before
refuses 1 "" "a folder that is none" danaus dense c.safetensors -o nowhere/back.npy
refuses 1 "" "output in place of a folder" danaus factorize exact.npy --pattern "$two" -o .
ok "other files stay" cmp before c.safetensors
refuses 1 "" "no chain in a file" danaus dense layer.safetensors -o y.npy
refuses 2 "-o FILE" "dense without output" danaus dense c.safetensors

# ---- combine and invert ----

danaus factorize exact.npy --pattern "$two" -o sum_a.safetensors > /dev/null
ok "a sum" danaus combine sum c.safetensors sum_a.safetensors -o s.safetensors --json
keep
documented "combine is documented"
said patterns "v == [[1, 8, 12, 6], [6, 12, 8, 1]]" "adds block ranks"
said parameters "v == 2 * 576" "and costs both"
danaus dense s.safetensors -o back.npy > /dev/null
ok "and is one" close back.npy "2 * exact" 1e-12
for how in hstack vstack diagonal; do
    ok "$how" danaus combine $how c.safetensors c.safetensors -o s.safetensors
    danaus dense s.safetensors -o $how.npy > /dev/null
done
ok "hstack is one" close hstack.npy "np.hstack([exact, exact])" 1e-12
ok "vstack is one" close vstack.npy "np.vstack([exact, exact])" 1e-12
ok "diagonal is one" close diagonal.npy "np.kron(np.eye(2), exact)" 1e-12
ok "a product with a matrix" sh -c '"$0" combine product c.safetensors exact.npy -o - > s.safetensors' "$program"
danaus dense s.safetensors -o back.npy > /dev/null
ok "is one" close back.npy "exact @ exact" 1e-12
ok "a Kronecker product" sh -c '"$0" combine kronecker - rectangle.npy -o s.safetensors < c.safetensors' "$program"
danaus dense s.safetensors -o back.npy > /dev/null
ok "of a matrix" close back.npy "np.kron(exact, rectangle)" 1e-12
ok "in another type" danaus combine sum exact.npy exact32.npy --dtype c64 -o s.safetensors --json
keep
said dtype "v == 'c64'" "which all get"
refuses 2 "none of product|sum" "another word" danaus combine minus c.safetensors -o s.safetensors
refuses 2 "1 was given" "a word alone" danaus combine sum -o s.safetensors
refuses 1 "exact32.npy is f32 and exact.npy is f64" "two types" danaus combine sum exact.npy exact32.npy -o s.safetensors
refuses 1 "rectangle.npy is 24 x 36 and exact.npy is" "two sizes" danaus combine sum exact.npy rectangle.npy -o s.safetensors
ok "two lengths" danaus combine sum exact.npy c.safetensors -o s.safetensors --json
keep
documented "a sum of terms is documented"
said terms "v == [[[1, 48, 48, 1]], [[1, 8, 6, 6], [6, 6, 8, 1]]]" "each is a term"
said parameters "v == 2304 + 576" "and costs its own"
danaus dense s.safetensors -o back.npy > /dev/null
ok "and is the sum" close back.npy "2 * exact" 1e-12
ok "which multiplies" danaus apply s.safetensors exact.npy -o y.npy --layout last
ok "once for both" close y.npy "2 * exact @ exact" 1e-12
refuses 1 "read as an operator" "a sum is no chain" danaus invert s.safetensors
danaus transform dct2 48 --dtype f64 -o dct.safetensors > /dev/null
ok "a sum of sums and transforms" danaus combine sum s.safetensors dct.safetensors c.safetensors -o more.safetensors
danaus dense dct.safetensors -o dct.npy > /dev/null
danaus dense more.safetensors -o back.npy > /dev/null
ok "which has all terms" close back.npy "3 * exact + np.load('dct.npy')" 1e-12
refuses 1 "part of a sum, of no product" "a product of sums" danaus combine product s.safetensors c.safetensors -o more.safetensors
refuses 1 "for single chains" "another type of a sum" danaus combine sum s.safetensors --dtype f32 -o more.safetensors
refuses 1 "4 arrays: one is needed here" "many matrices" danaus combine sum layer.safetensors -o more.safetensors
refuses 1 "needs as many" "a stack of two lengths" danaus combine hstack exact.npy c.safetensors -o s.safetensors
refuses 1 "no matrix, but 2 x 2 x 48" "an array" danaus combine sum x_cube.npy -o s.safetensors
refuses 1 "" "a broken file" danaus combine sum cut.npy -o s.safetensors
danaus combine sum layer_chain.safetensors -o s.safetensors > /dev/null 2> err
grep -q "bias of layer_chain.safetensors is left out" err || fail "the bias is spoken of"

danaus factorize near.npy --pattern "1,8,8,6 8,6,6,1" -o q.safetensors > /dev/null
danaus dense q.safetensors -o square.npy > /dev/null
ok "invert" danaus invert q.safetensors -o i.safetensors --json
keep
documented "invert is documented"
said "" "v['condition'] >= v['worst_condition'] >= 1" "tells conditions"
said phase "abs(v[0]) == 1 and v[1] == 0" "and the sign of the determinant"
danaus dense i.safetensors -o back.npy > /dev/null
ok "the inverse is one" close back.npy "np.linalg.inv(square)" 1e-8
ok "solve" danaus invert q.safetensors --solve x.npy -o solved.npy
ok "rows" close solved.npy "np.linalg.solve(square, x.T).T" 1e-8 float64
ok "solve for columns" danaus invert q.safetensors --solve x_last.npy --layout last -o solved.npy
ok "columns" close solved.npy "np.linalg.solve(square, x_last)" 1e-8
ok "solve for one" danaus invert q.safetensors --solve x_one.npy -o solved.npy
ok "a vector" close solved.npy "np.linalg.solve(square, x_one)" 1e-8
ok "facts alone" danaus invert q.safetensors
grep -q "^determinant" out || fail "they tell the determinant"
ok "invert in a pipe" sh -c '"$0" invert - -o - < q.safetensors > i2.safetensors && cmp i.safetensors i2.safetensors' "$program"
refuses 1 "block (0, 0) of factor 0 is singular" "a singular matrix" sh -c \
    '"$0" combine sum zeros.npy -o z.safetensors > /dev/null; "$0" invert z.safetensors' "$program"
refuses 1 "not finite" "a NaN" sh -c \
    '"$0" combine sum bad.npy -o z.safetensors > /dev/null; "$0" invert z.safetensors' "$program"
refuses 1 "blocks of 24 x 36 have no inverse" "a rectangle" sh -c \
    '"$0" combine sum rectangle.npy -o z.safetensors > /dev/null; "$0" invert z.safetensors' "$program"
refuses 1 "needs batch x 48" "rows too short" danaus invert q.safetensors --solve x_narrow.npy
refuses 1 "needs 48 x batch" "no columns" danaus invert q.safetensors --solve x.npy --layout last
refuses 1 "B is complex" "complex right-hand sides" danaus invert q.safetensors --solve x_complex.npy

# ---- apply ----

ok "apply, batch first" danaus apply c.safetensors x.npy -o y.npy --json
keep
documented "apply is documented"
said batch "v == 5" "the batch is told"
ok "y = x W'" close y.npy "x @ exact.T" 1e-12 float64
ok "apply, batch last" danaus apply c.safetensors x_last.npy -o y.npy --layout last
ok "y = W x" close y.npy "exact @ x_last" 1e-12
ok "adjoint" danaus apply c.safetensors x.npy -o y.npy --adjoint
ok "y = x W" close y.npy "x @ exact" 1e-12
ok "a wide chain" danaus factorize rectangle.npy --pattern "1,24,36,1" -o wide.safetensors
ok "its product" danaus apply wide.safetensors x_36.npy -o y.npy
ok "has rows of W" close y.npy "x_36 @ rectangle.T" 1e-12
ok "its adjoint" danaus apply wide.safetensors x_24.npy -o y.npy --adjoint
ok "has columns of W" close y.npy "x_24 @ rectangle" 1e-12
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
ok "a scale and a residual" danaus apply layer_chain.safetensors x.npy -o y.npy --dtype f64 \
    --activation relu --scale -0.5 --residual r.npy --json
keep
documented "their product is documented"
said plan "'residual' in v" "whose plan says so"
ok "are before and behind" close y.npy \
    "np.maximum(-0.5 * x @ exact32.T + np.arange(48), 0) + r" 1e-6 float64
ok "a residual, batch last" danaus apply c.safetensors x_last.npy -o y.npy --layout last --residual r_last.npy
ok "lies like Y" close y.npy "exact @ x_last + r_last" 1e-12
ok "a residual of an adjoint" danaus apply wide.safetensors x_24.npy -o y.npy --adjoint --residual x_36.npy
ok "has the columns of W" close y.npy "x_24 @ rectangle + x_36" 1e-12
ok "a residual of a vector" danaus apply c.safetensors x_one.npy -o y.npy --residual x_one.npy --repeat 3
ok "is added once, however often it is timed" close y.npy "exact @ x_one + x_one" 1e-12
ok "a real residual of a complex product" danaus apply c.safetensors x_complex.npy -o y.npy --residual r.npy
ok "is converted" close y.npy "x_complex @ exact.T + r" 1e-12 complex128
ok "no vectors and no residual" danaus apply c.safetensors x_none.npy -o y.npy --residual x_none.npy
ok "are an empty batch" close y.npy "x_none" 0
ok "a residual from a pipe" sh -c \
    'cat r.npy | "$0" apply c.safetensors x.npy -o y.npy --dtype f32 --residual -' "$program"
ok "is added as well" close y.npy "x @ exact.T + r" 1e-6 float32
refuses 1 "is 5 x 36, and Y is 5 x 48" "a residual of another width" danaus apply c.safetensors \
    x.npy -o y.npy --residual x_36.npy
refuses 1 "is 48 x 5, and Y is 5 x 48" "one that lies otherwise" danaus apply c.safetensors \
    x.npy -o y.npy --residual r_last.npy
refuses 1 "is 48, and Y is 5 x 48" "a vector for each" danaus apply c.safetensors x.npy -o y.npy \
    --residual x_one.npy
refuses 1 "is 5 x 48, and Y is 48" "several for a vector" danaus apply c.safetensors x_one.npy \
    -o y.npy --residual r.npy
refuses 1 "would lose its imaginary part" "a complex residual of a real product" danaus apply \
    c.safetensors x.npy -o y.npy --residual x_complex.npy
refuses 1 "nothing.npy" "no residual" danaus apply c.safetensors x.npy -o y.npy --residual nothing.npy
refuses 1 "text.npy" "a residual that is no array" danaus apply c.safetensors x.npy -o y.npy \
    --residual text.npy
refuses 1 "integers.npy" "a residual of integers" danaus apply c.safetensors x.npy -o y.npy \
    --residual integers.npy
refuses 2 "only one file may be -" "two from a pipe" danaus apply c.safetensors - -o y.npy --residual -
for number in nan inf -inf half 1e999 ""; do
    refuses 2 "scale takes a number" "a scale of \"$number\"" danaus apply c.safetensors x.npy \
        -o y.npy --scale "$number"
done
refuses 2 "other than 0" "a scale of nothing" danaus apply c.safetensors x.npy -o y.npy --scale 0
ok "one thread, scalar" danaus apply c.safetensors x.npy -o y.npy --device cpu:scalar \
    --threads 1 --repeat 3
ok "gives the same" close y.npy "x @ exact.T" 1e-12
ok "measured" danaus apply c.safetensors x.npy -o y.npy --effort measure
refuses 1 "table" "a table that has no row" danaus apply c.safetensors x.npy -o y.npy --effort table
ok "fast" danaus apply c.safetensors x.npy -o y.npy --dtype f32 --accuracy fast
ok "is no less accurate here" close y.npy "x @ exact.T" 1e-6 float32
for command in apply conv bench info; do
    danaus $command --help | grep -A 2 -e '--effort' -e '--accuracy' > choices.$command
    cmp -s choices.apply choices.$command || fail "$command is chosen for as apply is"
done

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

# ---- transforms ----

ok "a transform" danaus transform dct2 48 -o t.safetensors --dtype f64 --json
keep
documented "transform is documented"
said parameters "v == 1440" "its parameters are counted"
ok "is applied in its order" danaus apply t.safetensors x.npy -o y.npy --json
keep
documented "products in orders are documented"
ok "gives the transform" close y.npy "x @ dct2_48.T" 1e-14 float64
ok "and backwards, batch last" danaus apply t.safetensors x_last.npy -o y.npy --layout last --adjoint
ok "gives its transpose" close y.npy "dct2_48.T @ x_last" 1e-14 float64
ok "a vector" danaus apply t.safetensors x_one.npy -o y.npy --device cpu:scalar --repeat 3
ok "is transformed" close y.npy "dct2_48 @ x_one" 1e-14 float64
ok "no vectors" danaus apply t.safetensors x_none.npy -o y.npy
ok "dense in order" danaus dense t.safetensors -o back.npy
ok "is the matrix" close back.npy dct2_48 1e-14 float64
ok "an inverse" danaus transform dct2 48 -o i.safetensors --dtype f64 --inverse
ok "comes back" sh -c '"$0" apply t.safetensors x.npy -o - | "$0" apply i.safetensors - -o y.npy' "$program"
ok "to what it was" close y.npy x 1e-13 float64
ok "wavelets" danaus transform haar 48 --levels 1 --dtype f64 -o w.safetensors
ok "in levels" danaus apply w.safetensors x.npy -o y.npy
ok "are averages and details" close y.npy \
    "np.hstack([x[:, ::2] + x[:, 1::2], x[:, ::2] - x[:, 1::2]]) / 2**0.5" 1e-14 float64
ok "a circulant" danaus transform circulant 48 --values x_one.npy --dtype f64 -o t.safetensors
ok "is a plain chain" danaus dense t.safetensors -o back.npy
ok "of its values" close back.npy "x_one[(np.arange(48)[:, None] - np.arange(48)) % 48]" 1e-13
ok "rotations" danaus transform givens 4 --angles angles.npy -o t.safetensors --orthonormal
ok "a transform in words" danaus transform dft 60 -o t.safetensors
refuses 1 "complex" "complex inputs of a real transform" danaus apply i.safetensors xc48.npy -o y.npy
danaus apply i.safetensors x.npy -o plain.npy > /dev/null
ok "an activation" danaus apply i.safetensors x.npy -o y.npy --activation relu --dtype f32
ok "of what orders give" close y.npy "np.maximum(plain, 0)" 1e-5 float32
for option in "--scale 2" "--residual x.npy"; do
    refuses 1 "neither scale nor residual" "a transform with $option" danaus apply \
        i.safetensors x.npy -o y.npy $option
done
refuses 1 "5 x 48" "the wrong size" danaus apply w.safetensors x.npy -o y.npy --layout last
refuses 2 'no transform "dct9"' "no such transform" danaus transform dct9 8 -o t.safetensors
refuses 2 'no transform "db"' "no such wavelet" danaus transform db 8 -o t.safetensors
refuses 2 'no transform "wavelet"' "a wavelet without its name" danaus transform wavelet 8 -o t.safetensors
refuses 2 "the length is an integer" "no length" danaus transform dft 8x -o t.safetensors
refuses 1 "no length" "a length that is too great" danaus transform dft 99999999999 -o t.safetensors
refuses 1 "prime factor above 61" "a prime" danaus transform dft 67 -o t.safetensors
refuses 1 "power of two" "no power" danaus transform noiselet 12 -o t.safetensors
refuses 1 "moments" "too many moments" danaus transform db21 64 -o t.safetensors
refuses 2 "3 were given" "two lengths" danaus transform dft 8 8 -o t.safetensors
refuses 2 "from --values" "no values" danaus transform toeplitz 8 -o t.safetensors
refuses 2 "not with dft" "values of none" danaus transform dft 8 --values x.npy -o t.safetensors
refuses 2 "from --angles" "no angles" danaus transform givens 8 -o t.safetensors
refuses 2 "with wavelets" "levels of none" danaus transform dft 8 --levels 2 -o t.safetensors
refuses 1 "48 numbers, where 8" "too many values" danaus transform circulant 8 --values x_one.npy -o t.safetensors
refuses 1 "48 numbers, where 12" "angles for another length" danaus transform givens 8 --angles x_one.npy -o t.safetensors
refuses 1 "is complex" "complex values" danaus transform circulant 320 --values xc.npy -o t.safetensors
refuses 2 "-o FILE" "transform without output" danaus transform dft 8

# ---- standard input and output ----

pipe() { sh -c "$1" sh "$program"; }
ok "a chain of programs" pipe 'cat exact.npy |
    "$1" factorize - --pattern "1,8,6,6 6,6,8,1" -o - | "$1" dense - -o - > back.npy'
ok "passes arrays on" close back.npy exact 1e-12 float64
ok "inputs from a pipe" pipe 'cat x.npy | "$1" apply c.safetensors - -o - > y.npy'
ok "are multiplied" close y.npy "x @ exact.T" 1e-12 float64
ok "and from a file" pipe '"$1" apply c.safetensors - -o y.npy --json < x.npy'
keep
said output "v == 'y.npy'" "is told as JSON"
ok "samples from a pipe" pipe 'cat samples.npy |
    "$1" factorize near.npy --params 0.4 --inputs - --json'
refuses 2 "only one file may be -" "standard input twice" danaus apply - - -o y.npy
refuses 2 "cannot both have standard output" "facts and numbers" danaus apply c.safetensors \
    x.npy -o - --json
refuses 1 "/dev/stdin" "nothing from a pipe" pipe ': | "$1" dense - -o y.npy'
refuses 1 "cannot write /dev/stdout" "a full device for numbers" sh -c \
    '"$0" dense c.safetensors -o - > /dev/full' "$program"

# ---- before work that takes long ----

touch locked.safetensors && chmod a-w locked.safetensors
[ "$(id -u)" -eq 0 ] ||
    refuses 1 "cannot write" "an output that is locked" danaus factorize near.npy --params 0.5 \
        -o locked.safetensors
# Ten minutes of work: it is not begun.
/usr/bin/python3 -c 'import numpy as np
np.save("large.npy", np.lib.stride_tricks.as_strided(np.ones(1, "f4"), (9000, 9000), (0, 0)))'
refuses 1 "cannot write nowhere" "an output nowhere" timeout 20 "$program" factorize large.npy \
    --params 0.4 --refine 99 -o nowhere/c.safetensors
refuses 1 "not a regular file" "an output that is a folder" timeout 20 "$program" factorize \
    large.npy --params 0.4 --refine 99 -o .
refuses 1 'no tensor "b"' "a bias that is not there" timeout 20 "$program" factorize large.npy \
    --params 0.4 --refine 99 --bias b
rm large.npy
danaus factorize rectangle.npy --pattern "1,24,30,1 1,30,36,1" > out 2> err
if grep -q "warning: the chain has 1800 parameters, more than the 864" err; then
    pass "a chain that is larger than its matrix is warned of"
else fail "a chain that is larger than its matrix is warned of" "$(cat err)"; fi

# ---- names that are no UTF-8 ----

name=$(printf 'y\377\303\244.npy')
ok "any name" danaus apply c.safetensors x.npy -o "$name" --json
keep
said output "v == 'y\\ufffd\\xe4.npy'" "is told in JSON"
ok "and is the file's" test -s "$name"

# ---- bench and tune ----

printf '# small\nproblem,batch\n"2,8,8,3",\n"1,8,6,6 6,6,8,1",16\n' > small.csv
printf 'causal,64,64,2,2,plain\nbidirectional,100,30,2,2,gated\ncausal,512,512,1,2,sparse\n' \
    > convs.csv
echo precious > records.csv
refuses 1 "no problem" "an empty suite" danaus bench --suite /dev/null --csv records.csv
ok "leaves records" grep -q precious records.csv
ok "bench" danaus bench --suite small.csv --batch 16 --layout last --csv records.csv --json
keep
said records "len(v) == 2" "a record for each problem"
said records.0 "0 < v['p10_seconds'] <= v['seconds'] <= v['p90_seconds']" "with its times"
said records.0 "abs(v['flops_per_second'] * v['seconds'] / (2 * 2 * 8 * 8 * 3 * 16) - 1) < 1e-6" \
    "and its speed"
said records.1 "v['dense_seconds'] > 0 and v['speedup'] > 0" "beside the dense product"
documented "bench is documented"
ok "records as CSV" test "$(wc -l < records.csv)" -eq 3
ok "bench for people" pipe 'head -n 3 small.csv | "$1" bench ks --suite - --batch 3,5 --dtype c64'
ok "in both layouts" test "$(grep -c "GFLOP/s" out)" -eq 4
ok "half types" danaus bench --suite small.csv --batch 3 --dtype bf16 --layout first --accuracy fast
ok "bench of convolutions" danaus bench conv --suite convs.csv --json
keep
said records "[r['extras'] for r in v] == ['plain', 'gated', 'sparse']" "of every sort"
said records.1 "v['seconds'] > 0 and v['bytes_per_second'] * v['seconds'] > 6399" "is measured"
ok "for people" danaus bench conv --suite convs.csv --dtype f64 --threads 1
ok "three lines" test "$(wc -l < out)" -eq 3
refuses 1 "keep whole spectra" "sparse complex convolutions" danaus bench conv --suite convs.csv --dtype c64 --json

ok "tune" danaus tune --suite small.csv --batch 16 --layout first -o table.csv
if command -v script > /dev/null; then
    script -qec "'$program' tune --suite small.csv --batch 2 -o bar.csv > out" log > /dev/null
    if grep -q "50%" log; then pass "a terminal sees how far a suite is"
    else fail "a terminal sees how far a suite is" "$(cat log)"; fi
fi
ok "tune in no time" danaus tune --suite small.csv --batch 16 --seconds 1e-9 -o short.csv
ok "writes a table" grep -q "^# danaus tuning 1" short.csv
ok "a table is read" danaus apply c.safetensors x.npy -o y.npy --tuning table.csv --dtype f32
rows() { grep -c '^cpu,' table.csv; }
before=$(rows)
sed -n 's/^cpu,[^,]*,\(.*\)/cpu,Another,\1/p' table.csv >> table.csv
head -n 2 convs.csv > two.csv
ok "tune what the table lacks" danaus tune conv --suite two.csv -o table.csv --json
keep
documented "tune is documented"
said plans "len(v) == 2 and all('as measured' in p['plan'] for p in v)" "tells the plans"
ok "other rows stay" test "$(rows)" -eq $((2 * before + 2))
ok "of other machines, too" test "$(grep -c '^cpu,Another,' table.csv)" -eq "$before"
printf '"1,4,4,1",8\n"1,4,4,1 1,4,4,1 1,4,4,1 1,4,4,1",9000000000000000\n' > huge.csv
danaus tune --suite huge.csv --layout last -o saved.csv > out 2> err
ok "what was measured before a failure is saved" grep -q ',1,4,4,1,f32,last,8,' saved.csv
echo "Dear table," > letter.csv
refuses 1 "letter.csv: line 1" "a letter is no table" danaus tune --suite small.csv -o letter.csv
ok "and stays" grep -q Dear letter.csv
ok "a table to standard output" pipe '"$1" tune --suite small.csv --batch 2 -o - > piped.csv'
ok "is one" grep -q "^# danaus tuning 1" piped.csv
DANAUS_TUNING=nowhere.csv
export DANAUS_TUNING
refuses 1 "DANAUS_TUNING.*nowhere.csv" "a table of the environment that is not there" \
    danaus apply c.safetensors x.npy -o y.npy
DANAUS_TUNING=table.csv
ok "one that is" danaus info --conv 64 --rows 4 --effort table
keep
ok "is used" grep -q "by the tuning table" last
unset DANAUS_TUNING

refuses 2 "only ks and conv" "an unknown benchmark" danaus bench fft --suite small.csv
refuses 2 "suite FILE" "no suite" danaus bench ks
refuses 2 "for products" "a layout of convolutions" danaus bench conv --suite convs.csv --layout last
refuses 2 "for products" "a batch of convolutions" danaus tune conv --suite convs.csv -o t.csv --batch 3
refuses 2 "1 to 16 integers" "a batch of zero" danaus bench ks --suite small.csv --batch 0
refuses 1 "cannot open" "no such suite" danaus bench ks --suite nothing.csv
refuses 1 "nowhere" "records nowhere" danaus bench ks --suite small.csv --csv nowhere/r.csv
printf '"2,8,8,3",4\n2,8,8,3\n' > wrong.csv
refuses 1 "line 2" "a line without quotes" danaus bench ks --suite wrong.csv
printf '"2,8,8",4\n' > wrong.csv
refuses 1 "line 1" "a line without a pattern" danaus tune --suite wrong.csv -o t.csv
printf '"2,8,8,3",four\n' > wrong.csv
refuses 1 "four" "a batch in words" danaus bench ks --suite wrong.csv
refuses 1 "line 2" "convolutions that are products" danaus bench conv --suite small.csv
printf 'causal,64,64,2,2,plainly\n' > wrong.csv
refuses 1 "line 1" "a word that goes on" danaus bench conv --suite wrong.csv
: > wrong.csv
refuses 1 "no problem" "an empty suite" danaus bench ks --suite wrong.csv
refuses 1 "" "a table nowhere" danaus tune --suite small.csv --batch 2 --json \
    -o nowhere/t.csv

# ---- completion ----

ok "completion for zsh" danaus completion zsh
grep -q "'--layout\[the batch axis of X and Y (default first)\]:word:(first last)'" out ||
    fail "zsh is told the words of an option"
if command -v zsh > /dev/null; then ok "zsh reads it" zsh -n out; fi
ok "completion for bash" danaus completion bash
cp out completion.bash
cat > complete.sh <<'END'
. ./completion.bash
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_danaus
echo "${COMPREPLY[*]}"
END
# completes LINE WORDS: the last word of the line can become these.
completes() {
    if [ "$(bash complete.sh $1 "${3-}")" = "$2" ]; then pass "completion of \"$1\""
    else fail "completion of \"$1\"" "$(bash complete.sh $1 "${3-}")"; fi
}
completes "danaus" "apply" ap
completes "danaus help" "dense" de
completes "danaus apply" "--layout" --lay
completes "danaus apply --layout" "first last"
completes "danaus apply --dtype" "f32 f16 f64" f
completes "danaus bench" "conv" c
completes "danaus transform" "dct1 dct2 dct3 dct4" dct
completes "danaus apply -o" ""
refuses 2 "only bash and zsh" "another shell" danaus completion fish

# ---- what the program is made of ----

if command -v objdump > /dev/null; then
    objdump -p "$program" | sed -n 's/ *NEEDED *//p' > needed
    [ -s needed ] && ! grep -v -E '^lib(danaus|jansson|m|sndfile|samplerate|c|asan|ubsan|gcov)\.so|^ld-' \
        needed > out && pass "it links no baseline" || fail "it links no baseline" "$(cat needed)"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
