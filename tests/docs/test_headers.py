#!/usr/bin/python3
"""Pages of the site have every function and type of the public headers."""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import subprocess
import sys
import tempfile


def main():
    headers = sorted(pathlib.Path("include/danaus").glob("*.h"))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "docs/site/headers.py", folder, *headers], check=True)
        pages = "".join(page.read_text() for page in pathlib.Path(folder).iterdir())
    described = set(re.findall(
        r"^(?:\.\. c:function::| {16}) ?.*?(danaus_\w+)\(", pages, re.M))
    exported = set(pathlib.Path("tests/abi/symbols.txt").read_text().split())
    assert described == exported, described ^ exported
    for header in headers:
        for name in re.findall(r"^typedef (?:struct|enum) (\w+)", header.read_text(), re.M):
            assert re.search(rf"^\.\. c:(?:struct|enum|type):: {name}$", pages, re.M), name


if __name__ == "__main__":
    main()
