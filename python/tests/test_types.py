"""Types of the package, as mypy and pyright see them from a program that uses it."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pathlib
import runpy
import subprocess
import sys

import pytest

import danaus

CLIENT = pathlib.Path(__file__).with_name("typed_client.py")
CHECKERS = {
    "mypy": ["mypy", "--strict", "--follow-imports=silent", "--cache-dir=cache"],
    "pyright": ["pyright", "--pythonpath", sys.executable],
}


@pytest.fixture(params=CHECKERS)
def complaints(request, tmp_path):
    """What a checker says of a file; "" where it is content."""
    name, *options = CHECKERS[request.param]
    program = pathlib.Path(sys.executable).with_name(name)
    if not program.exists():
        pytest.skip(f"{name} is not installed")
    place = pathlib.Path(danaus.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(place)}
    if "site-packages" not in place.parts:
        environment["MYPYPATH"] = str(place)

    def check(file: pathlib.Path) -> str:
        done = subprocess.run(
            [program, *options, file], capture_output=True, text=True, cwd=tmp_path,
            env=environment, stdin=subprocess.DEVNULL, timeout=300,
        )  # fmt: skip
        return done.stdout + done.stderr if done.returncode else ""

    return check


def test_types_of_products_sums_and_transforms(complaints):
    assert complaints(CLIENT) == ""


@pytest.mark.parametrize("wrong", ["chain.T.inv()", "(2 * chain).real"])
def test_what_fails_when_it_runs_is_refused(complaints, tmp_path, wrong):
    file = tmp_path / "wrong.py"
    file.write_text(f"import danaus\nchain = danaus.Chain.create('1,2,2,1')\n{wrong}\n")
    assert "wrong.py:3" in complaints(file)


def test_the_program_runs():
    runpy.run_path(str(CLIENT))
