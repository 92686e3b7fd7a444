#!/usr/bin/env python3
"""Checks every #include and import against the tables of layers, and how large and how
unique parts of the sources are.

Prints a line for each place that breaks a rule. The exit status is 1 if there is one.
"""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import sys

# folder: what may be included in quotes, as beginnings of paths
LAYERS = {
    "include/danaus": ["danaus/"],
    "src/base": ["base/", "danaus/base.h"],
    "src/math": ["math/", "base/", "danaus/base.h", "danaus/ks.h"],
    "src/io": ["io/", "base/", "danaus/base.h", "danaus/file.h"],
    "src/tokens": ["tokens/", "base/", "io/", "danaus/"],
    "src/device": ["device/", "base/", "danaus/"],
    "src/product": ["product/", "base/", "math/", "io/", "device/", "danaus/"],
    "src/factor": ["factor/", "product/", "base/", "math/", "io/", "device/", "danaus/"],
    "src/operator": ["operator/", "product/", "base/", "math/", "io/", "device/", "danaus/"],
    "src/conv": ["conv/", "product/planner.h", "base/", "math/", "io/", "device/", "danaus/"],
    "src/cpu": ["cpu/", "conv/frame.h", "base/", "math/", "device/", "danaus/"],
    "src/gpu": ["gpu/", "base/", "math/", "device/", "danaus/", "normal.h"],  # of texts
    "src/gpu/run": ["gpu/", "conv/frame.h", "base/", "math/", "device/", "danaus/"],
    "src/cuda": ["cuda/", "gpu/", "base/", "math/", "device/", "danaus/"],
    "src/opencl": ["opencl/", "gpu/", "base/", "math/", "device/", "danaus/"],
    "src/model": ["model/", "base/", "math/", "io/", "device/", "danaus/"],
    "common": ["common/", "danaus/"],
    "cli": ["cli/", "common/", "danaus/"],
    "bench": ["bench/", "danaus/"],
    "bench/program": ["bench/", "common/", "danaus/"],
    "bench/rows": ["common/", "base/", "math/", "product/planner.h"],  # of functions that are internal
    "examples": ["danaus/"],
    "python/torch": ["danaus/", "shim.", "device.h", "conv.h"],
}

# header of the system or of another project: the only places that may know it
OUTSIDE = {
    r"pthread\.h|threads\.h|sched\.h": ["src/base/", "bench/", "tests/", "python/torch/"],
    r"sys/mman\.h": ["src/base/", "bench/", "tests/"],
    r"jansson\.h": ["src/io/", "src/tokens/", "src/model/", "common/", "cli/", "bench/", "tests/"],
    r"utf8proc\.h": ["src/tokens/"],
    r"lapacke?\.h|cblas\.h": ["src/math/", "bench/", "tests/"],
    r"immintrin\.h|arm_neon\.h|cpuid\.h": ["src/cpu/", "bench/", "tests/"],
    r"dlfcn\.h": ["src/base/", "src/math/", "bench/", "tests/", "python/torch/"],
    r"CL/.*": ["src/opencl/"],
    r"sndfile\.h|samplerate\.h": ["cli/sound.c"],
    r"fftw3\.h": ["bench/", "tests/"],
    r"omp\.h": [],
    r"complex\.h": ["bench/", "tests/"],
}

# module: the only places of the Python packages that may import it
MODULES = {
    r"torch|safetensors|danaus\.torch": ["python/danaus/torch/", "python/danaus/peft.py"],
    r"peft": ["python/danaus/torch/peft/"],
    r"sentence_transformers": ["python/danaus/torch/sentence_encoder.py"],
    r"kernels": ["python/danaus/torch/hf_kernels.py"],
    r"matplotlib": ["python/danaus/plot.py"],
    r"lazylinop": ["python/danaus/lazylinop.py"],
    r"sklearn": ["python/danaus/sklearn.py"],
    r"danaus\._danaus_abi|cffi": ["python/danaus/_library.py"],
    r"danaus|numpy|scipy": ["python/danaus/"],
}

SIZED = "src", "cli", "python/danaus"
MOST_LINES = 500  # of a file of these
MOST_IN_FOLDER = 4000  # lines of a folder of src without folders inside

IMPORT = re.compile(r"^\s*(?:from|import)\s+([\w.]+)")
OPAQUE = {"stream_engine"}  # each backend defines its own
STRUCT = re.compile(r"\b(?:struct|union|enum) (\w+) \{")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def layer_of(path):
    """The innermost folder of LAYERS that a file is in."""
    return max((x for x in LAYERS if path.is_relative_to(x)), key=len, default=None)


def complaints(path, layer, allowed):
    """The lines of one file that include what they may not."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        kind, name = match.groups()
        if kind == '"' or name.startswith("danaus/"):
            if not any(name.startswith(start) for start in allowed):
                yield f"{path}:{number}: {layer} may not include {name}"
        elif layer == "include/danaus" and name not in ("stddef.h", "stdint.h"):
            yield f"{path}:{number}: a public header may not include <{name}>"
        for pattern, places in OUTSIDE.items():
            if re.fullmatch(pattern, name) and not str(path).startswith(tuple(places)):
                yield f"{path}:{number}: <{name}> is known only to {places}"


def import_complaints(path):
    """The lines of one Python module that import what they may not."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = IMPORT.match(line)
        for pattern, places in MODULES.items():
            if match and re.match(rf"({pattern})(\.|$)", match.group(1)):
                if not str(path).startswith(tuple(places)):
                    yield f"{path}:{number}: {match.group(1)} is known only to {places}"


def size_complaints():
    """Files, and folders of src, that are too large."""
    for place in SIZED:
        for folder in [p for p in pathlib.Path(place).glob("**") if p.name != "__pycache__"]:
            lines = {p: p.read_text().count("\n") for p in folder.iterdir() if p.is_file()}
            has_folders = any(p.is_dir() for p in folder.iterdir())
            if place == "src" and sum(lines.values()) > MOST_IN_FOLDER and not has_folders:
                yield f"{folder}: {sum(lines.values())} lines, at most {MOST_IN_FOLDER}"
            for path, count in lines.items():
                if count > MOST_LINES:
                    yield f"{path}: {count} lines, at most {MOST_LINES}"


def name_complaints():
    """Names of structs, unions and enums of src that mean two things."""
    places = {}
    for path in sorted(pathlib.Path("src").rglob("*")):
        if path.suffix in (".c", ".h", ".inc"):
            for name in STRUCT.findall(path.read_text()):
                places.setdefault(name, []).append(str(path))
    for name, files in places.items():
        if len(files) > 1 and name not in OPAQUE:
            yield f"{name} is defined in {' and in '.join(files)}"


def circle_complaints():
    """Files, each .c with its .h, that include each other in a circle."""
    folders = (pathlib.Path(x) for x in ("src", "common", "cli"))
    files = [p for x in folders for p in sorted(x.rglob("*.[ch]"))]
    name_of = {p: str(p.with_suffix("")).removeprefix("src/") for p in files}
    needs = {name: set() for name in name_of.values()}
    for path, name in name_of.items():
        found = re.findall(r'^#\s*include "([^"]+)\.h"', path.read_text(), re.M)
        needs[name] |= {x for x in found if x in needs and x != name}
    while ends := {name for name, others in needs.items() if not others}:
        needs = {name: x - ends for name, x in needs.items() if name not in ends}
    starts = set().union(*needs.values())
    while free := {name for name in needs if name not in starts}:
        needs = {name: x for name, x in needs.items() if name not in free}
        starts = set().union(*needs.values())
    if needs:
        yield f"these include each other in circles: {', '.join(sorted(needs))}"


def main():
    found = [*size_complaints(), *name_complaints(), *circle_complaints()]
    for layer, allowed in LAYERS.items():
        for path in sorted(pathlib.Path(layer).rglob("*")):
            ours = path.suffix in (".c", ".cpp", ".h", ".inc", ".def")
            if ours and layer_of(path) == layer:
                found += complaints(path, layer, allowed)
    for folder in pathlib.Path("src").iterdir():
        if folder.is_dir() and f"src/{folder.name}" not in LAYERS:
            found.append(f"{folder}: no layer of that name")
    for path in sorted(pathlib.Path("python").glob("danaus*/**/*.py")):
        found += import_complaints(path)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
