#!/usr/bin/python3
"""Tables of documents say what the records do; every file of records says where it comes
from, and those that name a commit have one, without changes."""
# SPDX-License-Identifier: Apache-2.0
import csv
import pathlib
import re
import subprocess
import sys
import tempfile

BENCH = pathlib.Path("bench").resolve()
ROW = re.compile(r"^\| `(\w+)\.csv` \| [^|]+ \| (\d{4}-\d\d-\d\d) \| (\w+|-) \|", re.M)


def document(*arguments, status=0):
    done = subprocess.run([sys.executable, BENCH / "document.py", *map(str, arguments)],
                          capture_output=True, text=True)
    assert done.returncode == status, (arguments, done.stdout, done.stderr)


def check_pages():
    document("--check")
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "page.md"
        text = pathlib.Path("docs/performance.md").read_text()
        wrong, changes = re.subn(r"(\| Zen 4 \| 196 \| )1", r"\g<1>2", text)
        assert changes == 1
        page.write_text(wrong)
        document("--check", page, status=1)
        assert page.read_text() == wrong
        document(page)
        assert page.read_text() == text
        document("--check", page)


def check_records():
    listed = {name: commit for name, _, commit in
              ROW.findall((BENCH / "results/README.md").read_text())}
    kept = sorted((BENCH / "results").glob("*.csv"))
    assert kept and set(listed) == {path.stem for path in kept}
    for path in kept:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        commits = {row["commit"] for row in rows if "commit" in row}
        assert commits == ({listed[path.stem]} - {"-"}), (path, commits)
        assert not any(commit.endswith("-dirty") for commit in commits), path


if __name__ == "__main__":
    check_pages()
    check_records()
