"""Small files under the names that commands of documents give their inputs."""
# SPDX-License-Identifier: Apache-2.0
import functools
import gzip
import pathlib
import sys
import wave

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
import test_hyena  # noqa: E402
import test_model  # noqa: E402
import test_vit  # noqa: E402
from arrays import write_safetensors  # noqa: E402

SIZE = 384  # of the matrix W, as the patterns that documents give have it
LENGTH = 2048  # tokens that models take


def write_arrays(folder, rng):
    w = rng.standard_normal((SIZE, SIZE)).astype("f4")
    bits = [int(f"{i:06b}"[::-1], 2) for i in range(64)]
    hadamard = functools.reduce(np.kron, 6 * [np.array([[1, 1], [1, -1]], "f4")])
    arrays = {
        "W": w, "x": w, "dy": w, "h": w, "inputs": w,
        "dft": np.fft.fft(np.eye(64))[:, bits].astype("c8"),
        "butterfly": hadamard, "b": hadamard[:3], "B": hadamard[:3],
        "X": w, "signals": rng.standard_normal((3, 1024)).astype("f4"),
        "small": rng.standard_normal((2, 2)).astype("f4"),
        "u": rng.standard_normal((3, 200)).astype("f4"),
        "k": rng.standard_normal((3, 20)).astype("f4"),
        "images": rng.standard_normal((40, test_vit.CHANNELS, test_vit.SIZE, test_vit.SIZE)),
    }  # fmt: skip
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    layers = {f"{name}.weight": ("F32", w) for name in ("fc", "fc1")}
    layers |= {f"{name}.bias": ("F32", w[0]) for name in ("fc", "fc1")}
    write_safetensors(folder / "model.safetensors", layers)


def write_sound(folder, rng):
    for name in "speech", "street-L", "street-R":
        with wave.open(str(folder / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(rng.integers(-9999, 9999, 800).astype("<i2").tobytes())


def write_texts(folder, rng):
    words = ["".join(rng.choice(list("abcdefghij"), 1)) for _ in range(9)]
    lines = [" ".join(rng.permutation(words)) for _ in range(60)]
    (folder / "lines.txt").write_text("\n".join(lines) + "\n")
    bases = ["".join(rng.choice(list("ACGT"), 200)) for _ in range(60)]
    (folder / "sequences.txt").write_text("\n".join(bases) + "\n")
    fasta = ">one\n" + "".join(bases) + "\n"
    (folder / "genome.fa").write_text(fasta)
    (folder / "genome.fa.gz").write_bytes(gzip.compress(fasta.encode()))


def write_models(folder, rng):
    for name in "MODEL", "all-MiniLM-L6-v2", "m2":
        w = test_model.weights(rng)
        places = rng.uniform(-1, 1, (LENGTH, test_model.WIDTH)).astype("f4")
        w["embeddings.position_embeddings.weight"] = places
        config = {**test_model.CONFIG, "max_position_embeddings": LENGTH}
        test_model.write_model(folder / name, w, config)
    test_vit.write_model(folder / "vit", test_vit.weights(rng))
    test_hyena.LENGTH = LENGTH
    test_hyena.write_model(folder / "hyenadna-tiny-1k", test_hyena.weights(rng))


def write_suites(folder):
    suites = folder / "bench" / "suites"
    suites.mkdir(parents=True)
    (suites / "any.py").symlink_to(pathlib.Path("bench/suites/any.py").resolve())
    for place in folder / "s.csv", suites / "vit.csv", suites / "cpu.csv":
        place.write_text('"1,8,6,2 2,6,8,1",16\n')


def write(folder, danaus):
    """All of them; danaus(...) runs the program there, for those that it makes."""
    rng = np.random.default_rng(1)
    write_arrays(folder, rng)
    write_sound(folder, rng)
    write_texts(folder, rng)
    write_models(folder, rng)
    write_suites(folder)
    danaus("factorize", "butterfly.npy", "--chain", "dyadic", "-o", "butterfly.safetensors")
    for name in "A", "B":
        danaus("factorize", "butterfly.npy", "--chain", "dyadic", "-o", f"{name}.safetensors")
    danaus("factorize", "W.npy", "--rank", "2", "--chain", "monarch", "-o", "fc2.safetensors")
