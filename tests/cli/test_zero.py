"""Numeric options: 0 is refused, or the help says what it means."""

# SPDX-License-Identifier: Apache-2.0
import re

from program import check, danaus, finish

#: What help calls numbers.
NUMBERS = "N R P L M H S K X T SWEEPS SHARE FRACTION NUMBER".split()


def commands():
    for line in danaus("--help").stdout.splitlines():
        if found := re.match(r"  (\w+)  ", line):
            yield found[1]


def numeric_options(command):
    """Names and help of the options that take a number."""
    text = danaus(command, "--help").stdout.partition("Options:\n")[2]
    rows = re.split(r"\n  (?=-| {4}-)", "\n" + text)
    for row in rows:
        if found := re.match(r"(?:-\w, | {4})--([\w-]+) (\S+)\s+(.*)", row, re.S):
            name, takes, told = found.groups()
            if takes in NUMBERS:
                yield name, " ".join(told.split())


seen = 0
for command in commands():
    for name, told in numeric_options(command):
        seen += 1
        done = danaus(command, f"--{name}", "0")
        refused = re.search(f'--{name} takes .*, not "0"', done.stderr)
        said = re.search(r"\b0:|default:? 0\b|\bnot 0\b", told)
        check(f"{command} --{name} 0 is refused or explained", refused or said, told)
check("options were found", seen >= 25, seen)
finish()
