#!/usr/bin/env python3
"""Writes the tables of documents from the records of bench/results.

    document.py [--check] [PAGE.md...]     all pages of docs and docs/notes by default

A paragraph that ends with `<!-- table: NAME -->` is followed by the table of that name,
one of tables_of_*() below. With --check nothing is written: the exit status is 1 where a
page does not say what the records do.
"""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import sys

from document_conv import TABLES as CONV
from document_flashfftconv import TABLES as FLASHFFTCONV
from document_gpu import TABLES as GPU
from document_ks import TABLES as KS
from document_m2 import TABLES as M2
from document_papers import TABLES as PAPERS

TABLES = KS | GPU | CONV | PAPERS | FLASHFFTCONV | M2
DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
PLACE = re.compile(r"(<!-- table: (\w+) -->\n)\n*((?:\|.*\n)*\n?)")


def markdown(rows):
    """Lines of a table. The first row is its head; columns of numbers go to the right."""
    head, *body = rows
    rule = ["---:" if re.match(r"[-\d]", str(field)) else "---" for field in body[0]]
    return "".join("| " + " | ".join(map(str, row)) + " |\n" for row in (head, rule, *body))


def written(text):
    return PLACE.sub(lambda match: match[1] + "\n" + markdown(TABLES[match[2]]()) + "\n",
                     text).rstrip() + "\n"


def main():
    names = sys.argv[1:]
    check = "--check" in names
    pages = [pathlib.Path(name) for name in names if name != "--check"]
    stale = 0
    for page in pages or sorted(DOCS.glob("**/*.md")):
        text = page.read_text()
        new = written(text)
        if new == text:
            continue
        if check:
            stale = 1
            print(f"{page} does not say what bench/results does: run bench/document.py")
        else:
            page.write_text(new)
    return stale


if __name__ == "__main__":
    sys.exit(main())
