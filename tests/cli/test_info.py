#!/usr/bin/python3
"""danaus info FILE: arrays of every type, metadata, and what they make, against what was
written; files that are cut or wrong; names that a terminal would obey."""

# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import random
import struct
import tempfile

import numpy as np
import test_model
from arrays import write_safetensors
from program import OBEYED, check, danaus, facts, finish, plain, refuses

TYPES = {
    "F16": "f2", "F32": "f4", "F64": "f8", "C64": "c8", "BF16": "u2", "BOOL": "?", "U8": "u1",
    "I8": "i1", "I16": "i2", "U16": "u2", "I32": "i4", "U32": "u4", "I64": "i8", "U64": "u8",
    "F8_E4M3": "u1", "F8_E5M2": "u1",
}  # fmt: skip
READ = {"F16": "f16", "F32": "f32", "F64": "f64", "C64": "c64", "BF16": "bf16"}


def raw(name, header, data=b""):
    """A safetensors file, whatever its header is."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    pathlib.Path(name).write_bytes(struct.pack("<Q", len(text)) + text + data)


def listed(name):
    (found,) = facts("info", name)["files"]
    check(f"{name} is named", found["file"] == name, found)
    return found


def test_types():
    rng, arrays = random.Random(3), {}
    for kind, dtype in TYPES.items():
        shape = [rng.randrange(4) for _ in range(rng.randrange(11))]
        arrays[f"of {kind}"] = kind, np.zeros(shape, dtype)
    write_safetensors(pathlib.Path("types.st"), arrays)
    found = {one["name"]: one for one in listed("types.st")["arrays"]}
    check("all are listed", list(found) and set(found) == set(arrays), found)
    for name, (kind, array) in arrays.items():
        one = found[name]
        few = array.ndim <= 8
        wanted = kind, READ.get(kind) if few else None, list(array.shape), array.nbytes
        said = one["type"], one["dtype"], one["shape"], one["bytes"]
        check(f"{name} is what was written", said == wanted, (said, wanted))
    printed = danaus("info", "types.st").stdout.splitlines()
    check("a line each", len(printed) == 1 + len(arrays), printed)


def test_npy():
    records = np.zeros(3, [("a", "<f4"), ("b)]", "<i4", (2,))])
    for name, array, dtype in (
        ("i.npy", np.zeros((3, 4), "i8"), None),
        ("f.npy", np.asfortranarray(np.zeros((3, 4), "f4")), "f32"),
        ("big.npy", np.zeros(5, ">f8"), None),
        ("text.npy", np.array(["ab", "c"]), None),
        ("deep.npy", np.zeros((1,) * 20, "f4"), None),
        ("date.npy", np.zeros(2, "M8[ns]"), None),
        ("none.npy", np.zeros((0, 3), "f2"), "f16"),
        ("one.npy", np.float32(1), "f32"),
        ("records.npy", records, None),
    ):
        np.save(name, array)
        (one,) = listed(name)["arrays"]
        wanted = dtype, list(array.shape), array.nbytes
        check(f"{name} is NumPy's", (one["dtype"], one["shape"], one["bytes"]) == wanted, one)
        if name != "records.npy":
            check(f"{name} has its type", one["type"] == array.dtype.str, one)
    check("a type that is not read is a failure elsewhere",
          "'<i8' is not one" in danaus("apply", "i.npy", "i.npy", "-o", "y").stderr)  # fmt: skip


def test_chains():
    np.save("w.npy", np.eye(8, dtype="f4"))
    np.save("v.npy", np.eye(8, dtype="f4"))
    danaus("factorize", "w.npy", "--pattern", "1,4,4,2 2,4,4,1", "-o", "c.st")
    danaus("combine", "sum", "c.st", "v.npy", "-o", "s.st")
    danaus("transform", "dft", 8, "-o", "o.st")
    for name, kind, terms, chains in (
        ("c.st", "chain", 1, [[[1, 4, 4, 2], [2, 4, 4, 1]]]),
        ("s.st", "sum", 2, [[[1, 4, 4, 2], [2, 4, 4, 1]], [[1, 8, 8, 1]]]),
        ("o.st", "operator", 1, None),
    ):
        found = listed(name)
        made = found["chain"]
        check(f"{name} is a {kind}", found["kind"] == kind, found)
        check("its terms", made["terms"] == terms, made)
        check("its patterns", chains in (None, made["chains"]), made)
        count = sum(a * b * c * d for chain in made["chains"] for a, b, c, d in chain)
        check("its parameters", made["parameters"] == count, made)
    keys = {one["key"]: one["value"] for one in listed("o.st")["metadata"]}
    check("metadata", keys == {"format": "danaus chain 2", "danaus cols": "8"}, keys)
    write_safetensors(pathlib.Path("gap.st"), {
        f"factor.{i}": ("F32", np.ones((1, 2, 2, 1), "f4")) for i in (0, 2)})  # fmt: skip
    found = listed("gap.st")
    check("what is no chain says why", "factor.1 is missing" in found["problem"], found)
    check("but has its arrays", len(found["arrays"]) == 2 and found["chain"] is None, found)
    check("and says so in print", "no chain: gap.st: " in danaus("info", "gap.st").stdout)
    test_model.write_model(pathlib.Path("m"), test_model.weights(np.random.default_rng(0)))
    found = listed("m")
    check("a model", (found["kind"], found["architecture"]) == ("model", "bert"), found)
    said = danaus("info", "c.st", "m").stdout
    check("several files", said.startswith("c.st: chain of 8 x 8, f32, 64 parameters, ")
          and "\nm: a model, bert, 2 blocks of 24, " in said, said)  # fmt: skip


def test_wrong_files():
    whole = pathlib.Path("types.st").read_bytes()
    data = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    for name, content, sentence in (
        ("cut.st", whole[:-1], "bytes"),
        ("short.st", whole[:40], "the safetensors header claims"),
        ("cut.npy", pathlib.Path("i.npy").read_bytes()[:-1], "95"),
        ("head.npy", pathlib.Path("i.npy").read_bytes()[:9], "ends in its first"),
        ("none", b"", "the file is empty"),
        ("text", b"hello", "neither .npy nor safetensors"),
    ):
        pathlib.Path(name).write_bytes(content)
        refuses(name, 1, f"{name}: ", "info", name)
        refuses(f"{name}, by the sentence", 1, sentence, "info", name, "--json")
    raw("utf8.st", b'{"\xff":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4))
    refuses("a name that is not UTF-8", 1, "no proper JSON", "info", "utf8.st")
    raw("huge.st", {"a": data | {"shape": [2**62, 2**62]}}, bytes(4))
    refuses("a size that overflows", 1, "whose size overflows", "info", "huge.st")
    raw("huge2.st", {"a": data | {"dtype": "I64", "shape": [2**62, 0, 2**62]}}, bytes(4))
    refuses("also of a type that is not read", 1, '"a"', "info", "huge2.st")
    for words in ("{'descr': [('a', '<f4'), 'fortran_order': False, 'shape': (1,)}",
                  "{'descr': ['a", "{'descr': '<U9223372036854775807', "
                  "'fortran_order': False, 'shape': (9,)}"):  # fmt: skip
        head = b"\x93NUMPY\1\0" + struct.pack("<H", len(words)) + words.encode()
        pathlib.Path("odd.npy").write_bytes(head)
        done = danaus("info", "odd.npy")
        check("a header that is odd ends well", done.returncode in (0, 1), done)
    refuses("options of devices", 2, "--device goes without files", "info", "i.npy",
            "--device", "cpu")  # fmt: skip
    raw("obeyed.st", {"__metadata__": {OBEYED: OBEYED}, OBEYED: data}, bytes(4))
    plain("names for a terminal", danaus("info", "obeyed.st").stdout)
    plain("and in JSON", danaus("info", "obeyed.st", "--json").stdout)


def test_many():
    many = {f"t{i}": {"dtype": "I8", "shape": [0], "data_offsets": [0, 0]} for i in range(20000)}
    raw("many.st", {"__metadata__": {f"k{i}": "v" for i in range(20000)}} | many)
    found = listed("many.st")
    check("many arrays", len(found["arrays"]) == 20000 == len(found["metadata"]))


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        test_types()
        test_npy()
        test_chains()
        test_wrong_files()
        test_many()
        os.chdir("/")
    finish()


main()
