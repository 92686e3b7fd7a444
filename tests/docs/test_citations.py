#!/usr/bin/python3
"""What comments and documents cite exists: documents of docs/, their equations, sections
and headings."""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import subprocess
import sys

FOLDERS = ("include", "src", "cli", "bench", "python", "tests", "examples", "scripts", "cmake",
           "docs")
CITATION = re.compile(
    r"(?P<folder>docs/)?\b(?P<page>[\w/-]+\.md)"
    r"(?:,? (?:(?P<kind>equations?|sections?) )?(?P<number>\(?\d+\)?(?:(?:,| to| and) \(?\d+\)?)*)"
    r"|, \"(?P<title>[^\"]+)\")?")


def equations(text):
    return set(re.findall(r"^ {4}.*\((\d+)\)$", text, re.M))


def sections(text):
    return set(re.findall(r"^#+ (\d+)\. ", text, re.M))


def complaint(match):
    """Why a citation leads nowhere; None if it does not."""
    page = pathlib.Path("docs") / match["page"]
    if not page.exists():
        return "is not there" if match["folder"] else None
    text = page.read_text()
    if match["title"]:
        known = re.search(rf"^#+ .*{re.escape(match['title'])}|^\*\*{re.escape(match['title'])}",
                          text, re.M)
        return None if known else f'has no heading "{match["title"]}"'
    numbers = re.findall(r"\d+", match["number"] or "")
    of_sections = (match["kind"] or "").startswith("section") or (
        match["kind"] is None and "(" not in (match["number"] or "("))
    known = sections(text) if of_sections else equations(text)
    missing = [n for n in numbers if n not in known]
    words = "section" if of_sections else "equation"
    return f"has no {words} {', '.join(missing)}" if missing else None


def main():
    names = subprocess.run(["git", "ls-files", *FOLDERS], capture_output=True, text=True,
                           check=True).stdout.split("\n")
    found, count = [], 0
    for name in names:
        path = pathlib.Path(name)
        if not name or path.suffix not in (".c", ".h", ".inc", ".cu", ".cuh", ".py", ".sh",
                                           ".cpp", ".def", ".cmake", ".txt", ".md"):
            continue
        # Lines of a comment are one text.
        text = re.sub(r"\n\s*(?:\*|#|//)?\s*", " ", path.read_text())
        for match in CITATION.finditer(text):
            count += 1
            why = complaint(match)
            if why:
                found.append(f"{name} cites {match[0]}: docs/{match['page']} {why}")
    for line in found:
        print(line)
    assert count > 30, count  # the expression still finds them
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
