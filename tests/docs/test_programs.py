#!/usr/bin/python3
"""The programs that documents show are files of examples/, which are built and run;
what documents link to exists."""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import sys


def main():
    examples = [path.read_text() for path in pathlib.Path("examples").glob("*.c")]
    found = []
    for page in [pathlib.Path("README.md"), *pathlib.Path("docs").glob("*.md")]:
        text = page.read_text()
        for block in re.findall(r"^```c\n(.*?)^```", text, re.S | re.M):
            if "int main" in block and block not in examples:
                found.append(f"{page} shows a program that is no file of examples/")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            if not (page.parent / target).exists():
                found.append(f"{page} links to {target}, which is not there")
    for complaint in found:
        print(complaint)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
