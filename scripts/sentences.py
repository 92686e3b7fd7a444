#!/usr/bin/env python3
"""Sentences of the documentation below /usr/share/doc, one a line, in two files.

    sentences.py OUT_A N OUT_B M [--seed S]

writes at most N sentences to OUT_A and M to OUT_B, which come from other files of the
documentation; no sentence comes twice.
"""
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import gzip
import random
import re
from pathlib import Path

TEXTS = re.compile(r"(readme|news|copyright|faq|todo).*|.*\.(txt|md|rst)(\.gz)?", re.I)


def sentences_of(path: Path) -> list[str]:
    """Sentences of 6 to 40 words, mostly letters, in the paragraphs of a file."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError, gzip.BadGzipFile):
        return []
    found = []
    for paragraph in re.split(r"\n[ \t.*#-]*\n", text):
        for s in re.split(r"(?<=[.!?]) +(?=[A-Z])", " ".join(paragraph.split())):
            letters = sum(c.isalpha() or c == " " for c in s)
            if 6 <= s.count(" ") + 1 <= 40 and s[0].isupper() and s[-1] in ".!?":
                found += [s] if letters > 0.9 * len(s) else []
    return found


def read_text(
    root: str, seed: int, calibration: int, held: int
) -> tuple[list[str], list[str]]:
    """Sentences for calibration, and others from other files; none comes twice."""
    files, seen = [], set()
    for path in sorted(Path(root).rglob("*")):
        if not TEXTS.fullmatch(path.name) or path.is_symlink() or not path.is_file():
            continue
        new = dict.fromkeys(s for s in sentences_of(path) if s.lower() not in seen)
        seen.update(s.lower() for s in new)
        some = list(new)
        random.Random(path.name).shuffle(some)
        files += [some[:40]] if some else []
    order = random.Random(seed)
    order.shuffle(files)
    parts = [[s for f in files[i::3] for s in f] for i in range(3)]
    parts = [parts[1] + parts[2], parts[0]]
    for part in parts:
        order.shuffle(part)
    return parts[0][:calibration], parts[1][:held]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out_a", type=Path)
    parser.add_argument("n", type=int)
    parser.add_argument("out_b", type=Path)
    parser.add_argument("m", type=int)
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    for path, part in zip((o.out_a, o.out_b), read_text("/usr/share/doc", o.seed, o.n, o.m)):
        path.write_text("".join(s + "\n" for s in part), encoding="utf-8")
        print(f"{len(part)} sentences in {path}")


if __name__ == "__main__":
    main()
