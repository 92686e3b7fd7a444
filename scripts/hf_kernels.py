#!/usr/bin/env python3
"""Lays out the repository from which Hugging Face's package `kernels` loads danaus:

    python3 scripts/hf_kernels.py build/wheels/danaus-*.whl build/hf-kernels/danaus

The first argument is a wheel (scripts/wheel.sh) for this kind of machine, or a folder with
the packages danaus and danaus_program, such as build/python/tree. The second is a folder
that does not exist. `kernels.get_local_kernel(pathlib.Path("build/hf-kernels/danaus"))`
loads what is there.

The operators use PyTorch's stable interface and the library loads CUDA when it runs, so
that one build serves PyTorch 2.10 and later, with CUDA and without. The folders
`build/torch-stable-abi210-BACKEND-MACHINE-linux` have the same files as hard links, except
for metadata.json. kernels takes cu120 for every CUDA 12, and cu130 for every CUDA 13.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import ctypes
import json
import os
import pathlib
import platform
import shutil
import sys
import tempfile
import zipfile

KERNEL = pathlib.Path(__file__).resolve().parents[1] / "python" / "hf_kernel"
PACKAGES = "danaus", "danaus_program"
LIBRARIES = "danaus.libs"  # beside the packages in a wheel
BACKENDS = {"cpu": "cpu", "cu120": "cuda", "cu130": "cuda"}
OLDEST_CLIENT = "0.15.1"
KERNEL_VERSION = 1  # the branch v1, which programs ask the Hub for


def check(packages: pathlib.Path) -> None:
    """Raises ValueError unless the folder has the built packages."""
    for name in (*PACKAGES, "danaus/libdanaus.so", "danaus/torch/_operators.so"):
        if not (packages / name).exists():
            raise ValueError(f"{packages} has no {name}: is it a built package?")


def version_of(packages: pathlib.Path) -> str:
    """The version of the library in the folder, which is loaded."""
    library = ctypes.CDLL(str(packages / "danaus" / "libdanaus.so"))
    library.danaus_version.restype = ctypes.c_char_p
    return library.danaus_version().decode()


def metadata(version: str, backend: str) -> str:
    """What kernels reads first; the id is the name of the module."""
    number = version.replace(".", "_")
    return json.dumps(
        {
            "name": "danaus",
            "id": f"_danaus_{number}_{backend}",
            "version": KERNEL_VERSION,
            "kernels-minver": OLDEST_CLIENT,
            "license": "Apache-2.0",
            "python-depends": [],
            "backend": {"type": BACKENDS[backend]},
        },
        indent=2,
    )


def lay_out(packages: pathlib.Path, out: pathlib.Path) -> str:
    """Writes the repository; returns the version."""
    check(packages)
    version = version_of(packages)
    out.mkdir(parents=True)
    first = None
    for backend in BACKENDS:
        name = f"torch-stable-abi210-{backend}-{platform.machine()}-linux"
        variant = out / "build" / name
        if first is None:
            copy(packages, variant, version)
            first = variant
        else:
            ignored = shutil.ignore_patterns("metadata.json")
            shutil.copytree(first, variant, copy_function=os.link, ignore=ignored)
        (variant / "metadata.json").write_text(metadata(version, backend) + "\n")
    shutil.copy(KERNEL / "README.md", out)
    return version


def copy(packages: pathlib.Path, variant: pathlib.Path, version: str) -> None:
    """Writes one variant without its metadata. Links are followed."""
    compiled = shutil.ignore_patterns("__pycache__")
    variant.mkdir(parents=True)
    for source in KERNEL.glob("*.py"):
        shutil.copy(source, variant)
    (variant / "_version.py").write_text(f'VERSION = "{version}"\n')
    for name in (*PACKAGES, LIBRARIES):
        if (packages / name).exists():
            shutil.copytree(packages / name, variant / name, ignore=compiled)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Lays out the repository from which Hugging Face's kernels loads danaus."
    )
    parser.add_argument("packages", type=pathlib.Path, help="a wheel or a folder")
    parser.add_argument("out", type=pathlib.Path, help="a folder that does not exist")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as unpacked:
        try:
            packages = options.packages
            if packages.is_file():
                zipfile.ZipFile(packages).extractall(unpacked)
                packages = pathlib.Path(unpacked)
            version = lay_out(packages, options.out)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            sys.exit(f"hf_kernels: {error}")
    print(f"{options.out}: danaus {version}")


if __name__ == "__main__":
    main()
