"""The compiled program ``danaus``, started in place of a Python process.

It is a package of its own: importing danaus imports NumPy and SciPy, which takes longer
than most commands.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import glob
import importlib.util
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

_FOLDER = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(_FOLDER, "danaus")
KERNELS = os.path.join(os.path.dirname(_FOLDER), "danaus", "kernels")


def _newest(places: Sequence[str], pattern: str) -> str | None:
    """The folder with the library of the highest version."""
    found = [f for p in places for f in glob.glob(os.path.join(p, "*", "lib", pattern))]

    def numbers(file: str) -> list[int]:
        return [int(n) for n in re.findall(r"\d+", os.path.basename(file))]

    return os.path.dirname(max(found, key=numbers)) if found else None


def helpers() -> dict[str, str]:
    """Folders of NVRTC and cuBLAS in the wheels that PyTorch requires."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except ValueError:  # a module of that name that nobody can find
        spec = None
    places = list(spec.submodule_search_locations or []) if spec else []
    libraries = {"nvrtc": "libnvrtc.so.*", "cublas": "libcublas.so.*"}
    folders = {name: _newest(places, pattern) for name, pattern in libraries.items()}
    return {name: folder for name, folder in folders.items() if folder}


def environment() -> dict[str, str]:
    """This process's variables, and those that tell the program of helpers and kernels.

    What the user has set is kept.
    """
    found = {f"DANAUS_{name.upper()}": folder for name, folder in helpers().items()}
    variables = {**found, **os.environ}
    if os.path.isdir(KERNELS):
        own = os.environ.get("DANAUS_KERNELS")
        variables["DANAUS_KERNELS"] = f"{own}:{KERNELS}" if own else KERNELS
    return variables


def become(arguments: Sequence[str]) -> NoReturn:
    """Replaces this process by the program: streams, signals and status are its own."""
    for number in signal.SIGPIPE, signal.SIGXFSZ:  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(PROGRAM, ["danaus", *arguments], environment())
    except OSError as error:
        sys.exit(f"danaus: cannot run {PROGRAM}: {error.strerror}")


def main() -> NoReturn:
    """The command that pip installs."""
    become(sys.argv[1:])
