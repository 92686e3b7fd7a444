"""The part of quickstart.sh that is arrays and pictures.

    quickstart.py frames FOLDER             recordings to windowed frames; the DFT
    quickstart.py spectrum FOLDER           check, time and draw what danaus made
    quickstart.py speech FOLDER             all recordings, one after the other
    quickstart.py street FOLDER             check and draw speech in a street
    quickstart.py matrix FOLDER             a dense matrix worth compressing
    quickstart.py inputs FOLDER WEIGHTS [TENSOR]     random inputs for it
    quickstart.py compare FOLDER WEIGHTS [TENSOR]    its products against dense ones
    quickstart.py agree FOLDER ENCODER      embeddings of a compressed encoder against its own
"""
# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import statistics
import struct
import sys
import time
import wave

import numpy as np

N = 1024
RATE = 48000
SOUNDS = pathlib.Path("/usr/share/sounds/alsa")


def turned():
    """The indices 0..N-1 with their bits reversed."""
    bits = N.bit_length() - 1
    return np.array([int(format(i, f"0{bits}b")[::-1], 2) for i in range(N)])


def median_seconds(run, least=0.5):
    run()
    times, end = [], time.perf_counter() + least
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def frames(folder):
    """Frames of every recording, half overlapping, times a Hann window. The chain is
    for columns in bit-reversed order, so that is the order of samples in a frame."""
    window = np.hanning(N + 1)[:N]
    all_frames, names = [], {}
    for path in sorted(SOUNDS.glob("*.wav")):
        if path.stem == "Noise":
            continue
        with wave.open(str(path)) as sound:
            samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2") / 32768
        starts = range(0, len(samples) - N + 1, N // 2)
        names[path.stem.replace("_", " ").lower()] = len(starts)
        all_frames += [samples[s : s + N] * window for s in starts]
    x = np.array(all_frames, np.float32)[:, turned()]
    np.save(folder / "frames.npy", x)
    (folder / "names.json").write_text(json.dumps(names))
    dft = np.exp(-2j * np.pi / N * np.outer(np.arange(N), turned()))
    np.save(folder / "dft.npy", dft.astype(np.complex64))
    seconds = len(x) * N / 2 / RATE
    print(f"{len(names)} recordings, {seconds:.1f} s of speech: {len(x)} frames of {N} samples")
    print("DFT with its columns in bit-reversed order; the samples of a frame are in that order too")


def spectrum(folder):
    x = np.load(folder / "frames.npy").astype(np.complex64)
    dft, y = np.load(folder / "dft.npy"), np.load(folder / "spectra.npy")
    facts = json.loads((folder / "apply.json").read_text())
    turned_dft = np.ascontiguousarray(dft.T)
    dense = median_seconds(lambda: x @ turned_dft)
    exact = x.astype(np.complex128) @ dft.T.astype(np.complex128)
    error = np.linalg.norm(y - exact) / np.linalg.norm(exact)
    print(f"spectra: relative error {error:.1e} against the dense product in c128")
    print(
        f"time:    {facts['seconds'] * 1e3:.2f} ms by the chain, {dense * 1e3:.2f} ms dense "
        f"(c64, BLAS of NumPy): {dense / facts['seconds']:.1f} times faster"
    )
    draw(folder, np.abs(y[:, : N // 2]))


def draw(folder, magnitude):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = json.loads((folder / "names.json").read_text())
    level = 20 * np.log10(magnitude / magnitude.max() + 1e-9)
    plt.rcParams.update({"font.size": 11, "axes.titlesize": 12})
    figure, axes = plt.subplots(2, 4, figsize=(15, 7), sharex=True, sharey=True)
    start, longest = 0, max(names.values()) * N / 2 / RATE
    for axis, (name, count) in zip(axes.flat, names.items()):
        part = level[start : start + count]
        start += count
        picture = axis.imshow(
            part.T, origin="lower", aspect="auto", cmap="magma", vmin=-75, vmax=-5,
            extent=(0, count * N / 2 / RATE, 0, RATE / 2000), interpolation="bilinear",
        )
        axis.set_title(f"“{name}”")
        axis.set_facecolor("black")
        axis.set_xlim(0, longest)
        axis.set_ylim(0, 12)
    for axis in axes[:, 0]:
        axis.set_ylabel("frequency, kHz")
    for axis in axes[-1]:
        axis.set_xlabel("time, s")
    figure.suptitle("Speech, through a 1024-point Fourier transform in 10 butterfly factors")
    figure.tight_layout(rect=(0, 0, 0.93, 1))
    bar = figure.colorbar(picture, cax=figure.add_axes((0.94, 0.11, 0.012, 0.76)))
    bar.set_label("level, dB")
    figure.savefig(folder / "spectrogram.png", dpi=110)


def speech(folder):
    """Recordings one after the other, with half a second between them."""
    parts = []
    for path in sorted(SOUNDS.glob("*.wav")):
        if path.stem != "Noise":
            with wave.open(str(path)) as sound:
                parts += [sound.readframes(sound.getnframes()), bytes(RATE)]
    with wave.open(str(folder / "speech.wav"), "wb") as sound:
        sound.setparams((1, 2, RATE, 0, "NONE", ""))
        sound.writeframes(b"".join(parts))


def samples_of(path):
    """16-bit or 32-bit float samples of a .wav file, [channel][frame]."""
    raw = path.read_bytes()
    at, channels, kind, data = 12, 1, 1, b""
    while at + 8 <= len(raw):
        name, size = raw[at : at + 4], struct.unpack_from("<I", raw, at + 4)[0]
        if name == b"fmt ":
            kind, channels = struct.unpack_from("<HH", raw, at + 8)
        if name == b"data":
            data = raw[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
    values = np.frombuffer(data, "<f4") if kind == 3 else np.frombuffer(data, "<i2") / 32768
    return values.astype(float).reshape(-1, channels).T


def street(folder):
    u, y = samples_of(folder / "speech.wav")[0], samples_of(folder / "street.wav")
    echoes = pathlib.Path("/usr/share/jconvolver/config-files/demo-reverbs")
    k = np.array([samples_of(echoes / f"street2-{side}.wav")[0] for side in "LR"])
    n = len(u) + k.shape[1] - 1
    exact = np.fft.irfft(np.fft.rfft(k, n) * np.fft.rfft(u, n), n)
    exact /= np.abs(exact).max()
    error = np.linalg.norm(y - exact) / np.linalg.norm(exact)
    facts = json.loads((folder / "street.json").read_text())
    seconds = len(u) / RATE
    print(
        f"{seconds:.1f} s of speech, {k.shape[1]} taps left and right: {facts['seconds'] * 1e3:.2f} ms, "
        f"{seconds / facts['seconds']:.0f} times faster than it is heard"
    )
    print(f"error: {error:.1e} against NumPy in f64, that of 16-bit samples")
    (folder / "street.csv").write_text(f"causal,{n},{k.shape[1]},1,2,plain\n")
    draw_waves(folder, u, y)


def draw_waves(folder, u, y):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(3, 1, figsize=(12, 7), sharex=True, sharey=True)
    rows = [(u / np.abs(u).max(), "speech, as recorded"), (y[0], "in the street, left"),
            (y[1], "in the street, right")]
    for axis, (row, name) in zip(axes, rows):
        axis.plot(np.arange(len(row)) / RATE, row, linewidth=0.4, color="#17507a")
        axis.set_title(name, loc="left", fontsize=11)
        axis.set_ylabel("amplitude")
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("time, s")
    axes[-1].set_xlim(0, len(y[0]) / RATE)
    figure.tight_layout()
    figure.savefig(folder / "street.png", dpi=110)


def matrix(folder):
    """Sound pressure at 1024 microphones from 1024 loudspeakers, on two parallel lines
    of 1 m at a distance of 0.5 m, at 3.3 kHz: cos(k r) / r, k = 60 / m."""
    line = np.linspace(0, 1, N)
    r = np.hypot(0.5, line[:, None] - line[None, :])
    np.save(folder / "matrix.npy", (np.cos(60 * r) / r).astype(np.float32))


def load_weights(path, name=None):
    """A matrix as f32 from .npy, or from safetensors."""
    path = pathlib.Path(path)
    if path.suffix == ".npy":
        return np.load(path).astype(np.float32)
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        entry = header[name or next(iter(header))]
        begin, end = entry["data_offsets"]
        file.seek(8 + length + begin)
        raw = file.read(end - begin)
    if entry["dtype"] == "BF16":
        flat = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        kinds = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}
        flat = np.frombuffer(raw, kinds[entry["dtype"]])
    return flat.reshape(entry["shape"]).astype(np.float32)


def inputs(folder, path, name=None):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4096, load_weights(path, name).shape[1]), np.float32)
    np.save(folder / "inputs.npy", x)


def compare(folder, path, name=None):
    w, x = load_weights(path, name), np.load(folder / "inputs.npy")
    y = np.load(folder / "outputs.npy")
    facts = json.loads((folder / "outputs.json").read_text())
    turned_w = np.ascontiguousarray(w.T)
    dense, exact = median_seconds(lambda: x @ turned_w), x @ turned_w
    error = np.linalg.norm(y - exact) / np.linalg.norm(exact)
    print(f"products    relative error {error:.1e} on {len(x)} random inputs")
    print(
        f"time        {facts['seconds'] * 1e3:.2f} ms by the chain, {dense * 1e3:.2f} ms dense "
        f"(f32, BLAS of NumPy): {dense / facts['seconds']:.1f} times faster"
    )


def agree(folder, encoder):
    """Similarities of all pairs of sentences, sizes and speeds."""
    names, sizes = ("model", "half"), (encoder, folder / "half")
    found = [np.load(folder / f"{name}.npy") for name in names]
    pairs = np.triu_indices(len(found[0]), 1)
    correlation = np.corrcoef(*((e @ e.T)[pairs] for e in found))[0, 1]
    bytes_of = [(pathlib.Path(s) / "model.safetensors").stat().st_size for s in sizes]
    facts = [json.loads((folder / f"{name}.json").read_text()) for name in names]
    speeds = [len(found[0]) / f["seconds"] for f in facts]
    print(f"agreement   {correlation:.3f}, the correlation of similarities of all pairs")
    print(f"size        {bytes_of[1] / 1e6:.0f} MB, {bytes_of[0] / 1e6:.0f} MB dense")
    print(f"speed       {speeds[1]:.0f} sentences a second, {speeds[0]:.0f} dense")


if __name__ == "__main__":
    command, target, *rest = sys.argv[1:]
    steps = {f.__name__: f for f in (
        frames, spectrum, speech, street, matrix, inputs, compare, agree)}
    steps[command](pathlib.Path(target), *rest)
