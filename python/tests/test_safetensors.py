"""The library's reader of safetensors beside the reference, and files it writes."""

# SPDX-License-Identifier: Apache-2.0
import json
import random
import struct

import numpy as np
import pytest

import danaus
from danaus._files import Tensors, write_tensors

reference = pytest.importorskip("safetensors")
pytest.importorskip("safetensors.numpy")

BITS = {"F32": 32, "F16": 16, "BF16": 16, "F64": 64, "C64": 64, "BOOL": 8, "U8": 8}
BITS |= {"I64": 64, "I32": 32, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4}
BITS |= {"F6_E2M3": 6, "U16": 16}
METADATA = [None, "null", "{}", '{"format": "pt"}', '{"a": 1}', "[]", '{"a": null}']
SPACES = ["", "", "", " ", "\n\t ", "\r\n", "\x0b", "\0", "x"]


def a_tensor(rng: random.Random, begin: int) -> tuple[str, int]:
    """The description of a tensor, right or nearly so, and where its data end."""
    dtype = rng.choice(list(BITS))
    shape = [rng.choice([0, 1, 2, 3, 8]) for _ in range(rng.randrange(0, 10))][:10]
    size = BITS[dtype] * int(np.prod(shape, dtype=object))
    end = begin + size // 8 + (rng.random() < 0.03)
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    if rng.random() < 0.1:
        entry["more"] = rng.choice([1, None, {"x": []}, 10**30])
    if rng.random() < 0.03:
        del entry[rng.choice(["dtype", "shape", "data_offsets"])]
    elif rng.random() < 0.03:
        name = rng.choice(["shape", "data_offsets"])
        entry[name] = rng.choice([None, [-1], [1.5], "1", [0, 0, 0], [2**63], 2])
    return json.dumps(entry), end


def a_file(rng: random.Random) -> bytes:
    entries, end = [], 0
    for number in range(rng.randrange(0, 4)):
        entry, stop = a_tensor(rng, end)
        entries.append(f'"t{number}": {entry}')
        end = stop if rng.random() < 0.97 else stop + 1
    metadata = rng.choice(METADATA[:4] if rng.random() < 0.8 else METADATA)
    if metadata is not None:
        entries.insert(rng.randrange(len(entries) + 1), f'"__metadata__": {metadata}')
    spaces = SPACES if rng.random() < 0.2 else SPACES[:6]
    text = "{" + ", ".join(entries) + "}"
    header = (rng.choice(spaces) + text + rng.choice(spaces)).encode()
    claimed = len(header) + (rng.random() < 0.02)
    return struct.pack("<Q", claimed) + header + bytes(end + (rng.random() < 0.03))


def test_files_are_read_and_refused_as_the_reference_does(tmp_path):
    path, read = tmp_path / "some.safetensors", 0
    for seed in range(600):
        path.write_bytes(a_file(random.Random(seed)))
        try:
            with reference.safe_open(path, "np") as file:
                names, metadata = set(file.keys()), file.metadata() or {}
        except (OSError, reference.SafetensorError):
            with pytest.raises(ValueError):
                Tensors(path)
            continue
        tensors = Tensors(path)
        assert set(tensors) <= names, seed
        for name in tensors:
            tensors[name]
        for key, value in metadata.items():
            assert tensors.metadata(key) == value
        read += 1
    assert 150 < read < 500


def test_tensors_that_are_not_used_do_not_matter(tmp_path):
    """A chain beside tensors of types that danaus lacks, and empty ones."""
    w = np.ones((1, 2, 2, 1), np.float32)
    path = tmp_path / "chain.safetensors"
    others = {"mask": np.ones(3, bool), "ids": np.arange(4), "none": np.zeros((0, 2))}
    reference.numpy.save_file({"factor.0": w, **others}, path, {"by": "others"})
    np.testing.assert_array_equal(danaus.Chain.load(path).to_dense(), w[0, :, :, 0])


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (1, 2, 1, 2, 1, 2, 1, 2)])
def test_c128_is_written_as_pairs_that_every_reader_takes(tmp_path, shape):
    rng, path = np.random.default_rng(0), tmp_path / "complex.safetensors"
    x = np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape))
    real = np.arange(2.0)
    write_tensors(path, {"x": (x, "c128"), "real": (real, "f64")}, {"format": "any"})
    with reference.safe_open(path, "np") as file:
        pairs = file.get_tensor("x")
        assert file.metadata() == {"format": "any", "danaus c128": '["x"]'}
    assert pairs.dtype == np.float64 and pairs.shape == (*shape, 2)
    np.testing.assert_array_equal(pairs[..., 0] + 1j * pairs[..., 1], x)
    tensors = Tensors(path)
    assert tensors.element_type("x") == "c128"
    np.testing.assert_array_equal(tensors["x"], x)
    np.testing.assert_array_equal(tensors["real"], real)


def test_chains_of_c128_are_saved_and_loaded(tmp_path):
    chain = danaus.Chain.from_dense(np.array([[1, 2j], [3, 4 - 1j]]))
    chain.save(tmp_path / "c.safetensors")
    same = danaus.Chain.load(tmp_path / "c.safetensors")
    assert same.element_type == "c128"
    np.testing.assert_array_equal(same.to_dense(), chain.to_dense())
