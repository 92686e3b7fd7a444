"""Where records come from: the commit and the machine, fields that come before the others,
and the command, which comes last.

    origin.py RECORDS.csv...     refuses records of another commit or machine
"""
# SPDX-License-Identifier: Apache-2.0
import csv
import functools
import pathlib
import platform
import subprocess
import sys

NAMES = ("commit", "machine")


def commit():
    """The commit of this file's tree; it ends in -dirty where files were changed."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=10"], text=True,
            cwd=pathlib.Path(__file__).parent, capture_output=True)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def machine():
    """The processor's name."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    names = [line.partition(":")[2].strip() for line in text.splitlines()
             if line.startswith("model name")]
    return names[0] if names else platform.machine()


@functools.cache
def here():
    return dict(zip(NAMES, (commit(), machine())))


def command():
    """The program and its arguments, without folders."""
    return " ".join(pathlib.Path(word).name if "/" in word else word for word in sys.argv)


class Table(csv.DictWriter):
    """Writes records of one run with their origin."""

    def __init__(self, file, fields):
        super().__init__(file, [*NAMES, *fields, "command"])
        self.origin = here() | {"command": command()}

    def writerow(self, row):
        return super().writerow(self.origin | row)

    def writerows(self, rows):
        for row in rows:
            self.writerow(row)


def refuse_others(path):
    """Rows that are added to a file come from where those in it do."""
    with open(path, newline="") as file:
        found = {tuple(row.get(name) for name in NAMES) for row in csv.DictReader(file)}
    if found - {tuple(here().values())}:
        raise SystemExit(f"{path} holds records of another commit or machine")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        refuse_others(name)
