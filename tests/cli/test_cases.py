#!/usr/bin/python3
"""The commands of tests/cases: their status, a sentence, and the range of what they write."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import shutil
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)
from program import check, danaus, finish

CASES = pathlib.Path(__file__).resolve().parents[1] / "cases"


def run(case, command):
    done = danaus(*command["run"].split())
    said = done.stdout + done.stderr
    good = done.returncode == command["status"] and command["says"] in said
    check(f"{case.name}: {command['run']}", good, f"{done.returncode}: {said}")
    for name, (least, largest) in command.get("writes", {}).items():
        found = np.load(name)
        near = np.allclose([found.min(), found.max()], [least, largest], rtol=1e-5, atol=0)
        check(f"{case.name}: {name}", near, found)


ran = 0
for case in sorted(path.parent for path in CASES.glob("*/right.json")):
    right = json.loads((case / "right.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        place = shutil.copytree(case, pathlib.Path(folder, case.name))
        os.chdir(place)
        for command in right.get("commands", []):
            run(case, command)
            ran += 1
        os.chdir(CASES)
check("commands were found", ran >= 5, ran)
finish()
