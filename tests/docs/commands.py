"""The commands that documents name: lines of blocks and of the manual page, and code in
sentences."""
# SPDX-License-Identifier: Apache-2.0
import collections
import pathlib
import re
import shlex

# Names of formats and of what is in their heads are no commands.
NAMES = r"(?!chains? |sources?$|cols$|c128$|cubin |bundle )"
Command = collections.namedtuple("Command", "page text in_block")

BEGINNING = re.compile(
    r"(?:[A-Z_]+=\S* )*(?:(?:echo|zcat) [^|]*\| )?"
    rf"(?:(?:build/release/)?danaus(?:-bench)? {NAMES}|python3? -m danaus\b"
    r"|(?:python3 |sh )?\S+\.(?:py|sh)\b|cmake --preset |pip install |ctest "
    r"|build/release/(?:tests|bench)/)")


def pages():
    return [pathlib.Path("README.md"), pathlib.Path("CONTRIBUTING.md"),
            *sorted(pathlib.Path("docs").rglob("*.md")), *sorted(pathlib.Path("docs").glob("*.1")),
            pathlib.Path("bench/results/README.md")]


def of_manual(text):
    for block in re.findall(r"^\.nf\n(.*?)(?=^\.)", text + "\n.", re.M | re.S):
        yield from block.replace("\\-", "-").split("\n")


def of_blocks(text):
    fenced = False
    for line in re.sub(r"\\\n\s*", "", text).split("\n"):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip().removeprefix("$ ")


def of_sentences(text):
    text = re.sub(r"^```.*?^```|^ {4}.*?$", "", text, flags=re.M | re.S)
    for code in re.findall(r"`([^`]+)`", text):
        yield " ".join(code.split())


def collect():
    for page in pages():
        text = page.read_text()
        kinds = [(True, of_blocks(text)), (False, of_sentences(text))]
        if page.suffix == ".1":
            kinds = [(True, of_manual(text))]
        for in_block, found in kinds:
            for line in found:
                if BEGINNING.match(line):
                    yield Command(str(page), line, in_block)


def programs_of(text):
    """The words of each program of a line, without assignments."""
    for part in re.split(r" (?:\||&&) ", re.sub(r"[\[\]]", " ", text)):
        words = shlex.split(part, comments=True)
        while words and re.fullmatch(r"[A-Z_a-z]+=.*", words[0]):
            del words[0]
        if words:
            yield words
