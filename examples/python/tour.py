"""Five minutes with danaus from Python: a transform, an echo, a matrix, a gradient.

    tour.py [--speech FILE.wav] [--echo FILE.wav] [--matrix FILE.npy] [--out FOLDER]

Without files, speech and echo are made of random numbers.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import pathlib
import time
import warnings

import numpy as np
from scipy.io import wavfile
from scipy.signal import fftconvolve
from scipy.sparse.linalg import svds

import danaus

N = 1024


def relative(got, wanted):
    return np.linalg.norm(got - wanted) / np.linalg.norm(wanted)


def milliseconds(run):
    """The fastest of some runs."""
    times = []
    for _ in range(9):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def sound(path, rng, shape):
    """A recording's first channel in f32, and its rate."""
    if path is None:
        return rng.standard_normal(shape).astype(np.float32), 48000
    with warnings.catch_warnings():  # about parts of a file that are no sound
        warnings.simplefilter("ignore", wavfile.WavFileWarning)
        rate, samples = wavfile.read(path)
    samples = samples.reshape(len(samples), -1)[:, 0]
    scale = 32768 if samples.dtype == np.int16 else 1
    return np.ascontiguousarray(samples, np.float32) / np.float32(scale), rate


def transform(speech):
    """Frames of speech through a Fourier transform that danaus finds numerically."""
    print("\n== A Fourier transform, found in its matrix")
    turned = [int(format(i, f"0{N.bit_length() - 1}b")[::-1], 2) for i in range(N)]
    dft = np.exp(-2j * np.pi / N * np.outer(np.arange(N), turned)).astype(np.complex64)
    patterns = danaus.patterns.make("dyadic", N, N)
    found = danaus.factorize(dft, patterns, progress=True)
    print(found.chain)
    print(f"{len(patterns)} factors, error {found.error:.1e} in {found.seconds:.2f} s")

    starts = range(0, len(speech) - N + 1, N // 2)
    frames = np.array([speech[s : s + N] for s in starts]) * np.hanning(N)
    x = frames[:, turned].astype(np.complex64, order="C")
    weights = danaus.Plan(patterns, dtype="c64", batch=len(x)).pack(found.chain)
    error = relative(weights(x), np.fft.fft(frames))
    chain, dense = milliseconds(lambda: weights(x)), milliseconds(lambda: x @ dft.T)
    print(f"{len(x)} frames: error {error:.1e} against numpy.fft")
    print(f"{chain:.2f} ms by the chain, {dense:.2f} ms dense")


def street(speech, rate, echo, out):
    """Speech where the echo was recorded, as a whole and as it comes."""
    print("\n== An echo")
    u = np.concatenate([speech, np.zeros(len(echo) - 1, np.float32)])
    y = danaus.convolve(u, echo)
    wanted = fftconvolve(speech.astype(float), echo)
    milli = milliseconds(lambda: danaus.convolve(u, echo))
    print(f"{len(u) / rate:.1f} s of sound, {len(echo)} taps: {milli:.2f} ms, ", end="")
    print(f"error {relative(y, wanted):.1e} against scipy.signal in f64")
    stream = danaus.Stream(echo)
    blocks = [stream.run(u[s : s + 64]) for s in range(0, len(u), 64)]
    error = relative(np.concatenate(blocks), wanted)
    print(f"as a stream, in blocks of 64 samples without latency: error {error:.1e}")
    wavfile.write(out / "street.wav", rate, (y / np.abs(y).max()).astype(np.float32))


def ultrasound():
    """Sound of 40 kHz (733 / m) from 1024 sources to 1024 receivers, half a metre
    apart.

    Receivers 0, 32, 64, ... come first, then 1, 33, ...: lanes of the left factor are
    then neighbours, as blocks of the right one are, and the matrix between two groups
    of neighbours has a low rank.
    """
    line = np.linspace(0, 1, N)
    distance = np.hypot(0.5, line[:, None] - line)
    in_turns = np.arange(N).reshape(32, 32).T.ravel()
    return (np.cos(733 * distance) / distance).astype(np.float32)[in_turns]


def compress(matrix, out, rng):
    """A dense matrix as a chain with a fifth of its weights."""
    print("\n== A dense matrix, compressed")
    patterns = danaus.patterns.fit(*matrix.shape, 0.2)
    found = danaus.factorize(matrix, patterns, progress=True)
    chain = found.chain
    print(chain)
    rank = min(chain.parameters // sum(matrix.shape), min(matrix.shape) - 1)
    u, s, vt = svds(matrix.astype(float), rank)
    bound, low_rank = found.lower_bound or 0, relative((u * s) @ vt, matrix)
    print(f"error {found.error:.2%}; no such factors do better than {bound:.2%}")
    print(f"rank {rank}, of as many parameters, has an error of {low_rank:.2%}")
    x = rng.standard_normal((4096, matrix.shape[1])).astype(np.float32)
    weights = danaus.Plan(patterns, batch=len(x)).pack(chain)
    fast, dense = milliseconds(lambda: weights(x)), milliseconds(lambda: x @ matrix.T)
    print(f"{len(x)} products: {fast:.2f} ms by the chain, {dense:.2f} ms dense")
    print(f"largest singular value: {svds(chain, 1)[1][0]:.4f} by SciPy's svds(chain)")
    chain.save(out / "chain.safetensors")
    print(f"written to {out / 'chain.safetensors'}")
    return chain


def train(chain, matrix, rng):
    """Steps of gradient descent on || y - W x ||^2."""
    print("\n== Gradients")
    plan = danaus.Plan(chain.patterns, gradients=True, fresh_weights=True, batch=256)
    weights = plan.pack(chain)
    x = rng.standard_normal((256, matrix.shape[1])).astype(np.float32)
    y = x @ matrix.T
    rate = 1 / np.linalg.norm(x, 2) ** 2 / np.linalg.norm(matrix, 2)
    for step in range(5):
        residual = weights(x) - y
        print(f"step {step}: loss {np.square(residual).sum() / 2:.4e}")
        gradients = plan.gradient(weights, x, residual, dx=False)
        for w, dw in zip(chain.weights, gradients.dw):
            w -= np.float32(rate) * dw
        weights.update(chain)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--speech", type=pathlib.Path)
    parser.add_argument("--echo", type=pathlib.Path)
    parser.add_argument("--matrix", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."))
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    print(f"danaus {danaus.version()}")
    for device in danaus.list_devices():
        print(f"{device.name}: {device.description} {device.instructions}")
    speech, rate = sound(options.speech, rng, 200_000)
    echo, _ = sound(options.echo, rng, 20_000)
    matrix = ultrasound()
    if options.matrix:
        matrix = np.ascontiguousarray(np.load(options.matrix), np.float32)
    options.out.mkdir(parents=True, exist_ok=True)
    transform(speech)
    street(speech, rate, echo, options.out)
    train(compress(matrix, options.out, rng), matrix, rng)


if __name__ == "__main__":
    main()
