"""Writes _danaus_abi.py: what the public headers declare, as cffi reads it.

    make_abi.py COMPILER INCLUDE OUT

The compiler only preprocesses. Constants, which that removes, come from the headers'
text.
"""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import subprocess
import sys
import tempfile

import cffi


def preprocessed(compiler: str, include: pathlib.Path) -> str:
    """The declarations of danaus.h, without those of the C library."""
    with tempfile.TemporaryDirectory() as empty:
        for name in ("stddef.h", "stdint.h"):
            (pathlib.Path(empty) / name).touch()
        command = [compiler, "-E", "-P", "-nostdinc", "-I", empty, "-I", str(include)]
        command += ["-D__attribute__(x)=", str(include / "danaus" / "danaus.h")]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout


def constants(include: pathlib.Path) -> str:
    """#define DANAUS_X 64 and #define DANAUS_Y ((int64_t)1 << 28), as numbers."""
    pattern = r"^#define (DANAUS_\w+) +(?:(\d+)|\(\(int64_t\)1 << (\d+)\))(?: */\*|$)"
    lines = []
    for header in sorted((include / "danaus").glob("*.h")):
        for name, number, shift in re.findall(pattern, header.read_text(), re.M):
            lines.append(f"#define {name} {number or 1 << int(shift)}\n")
    return "".join(lines)


def main() -> None:
    compiler, include, out = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    ffi = cffi.FFI()
    ffi.cdef(constants(include) + preprocessed(compiler, include))
    ffi.set_source("danaus._danaus_abi", None)
    ffi.emit_python_code(out)


if __name__ == "__main__":
    main()
