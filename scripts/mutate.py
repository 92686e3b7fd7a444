#!/usr/bin/env python3
"""Makes one mistake after the other in a copy of the sources and runs the tests that
should see it.

    python3 scripts/mutate.py --list            # what there is
    python3 scripts/mutate.py --only NAME       # those whose names contain NAME
    python3 scripts/mutate.py --part 2/6        # the second sixth of the table

tests/mutants.toml is the table: a file, a text that it holds once, what to put there,
and a regular expression of the CTest tests that should fail then. The copy and its
build are in build/mutants. The tests are run without a mistake first, and must pass.
A mutant dies if a test fails, crashes or takes longer than --timeout. Prints who kills
what; the exit status is the number of survivors that the table does not explain. A table
with an entry whose text is not in its file exactly once is refused.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "build" / "mutants"
BUILD = COPY / "build" / "release"


def output_of(*command, cwd=COPY):
    """Status and text of a command, errors included."""
    done = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    return done.returncode, done.stdout


def copy_sources():
    """Brings what changed; what is the same keeps its time, so that little is built."""
    _, text = output_of("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT)
    names = {name for name in text.splitlines() if (ROOT / name).is_file()}
    for copy in COPY.rglob("*"):
        name = copy.relative_to(COPY)
        if name.parts[0] != "build" and copy.is_file() and str(name) not in names:
            copy.unlink()
    for name in sorted(names):
        source, copy = ROOT / name, COPY / name
        if not copy.exists() or source.read_bytes() != copy.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)


def configure():
    cache = shutil.which("ccache")
    options = [f"-DCMAKE_C_COMPILER_LAUNCHER={cache}"] if cache else []
    status, text = output_of("cmake", "--preset", "release", *options)
    if status:
        sys.exit(text)


def tests_of(regex):
    _, text = output_of("ctest", "--test-dir", str(BUILD), "-N", "-R", regex)
    return re.findall(r"Test +#\d+: (\S+)", text)


def build(tests):
    """The programs of these tests; everything if one of them is a script."""
    _, text = output_of("ninja", "-C", str(BUILD), "-t", "targets", "all")
    known = set(re.findall(r"^([\w-]+): phony", text, re.M))
    names = (test.split("@")[0] for test in tests)
    targets = {name if name.startswith("fuzz_") else "test_" + name for name in names}
    if targets <= known:
        targets |= {name for name in known if name.startswith("emulated_")}
    else:
        targets = {"all"}
    return output_of("ninja", "-C", str(BUILD), *targets)


def run(tests, timeout):
    """The tests that fail, up to the first one."""
    regex = "^(" + "|".join(map(re.escape, tests)) + ")$"
    status, text = output_of(
        "ctest", "--test-dir", str(BUILD), "-R", regex, "--stop-on-failure",
        "--timeout", str(timeout), "--no-tests=error",
    )  # fmt: skip
    failed = re.findall(r"Test +#\d+: (\S+) \.*[\w ]*\*\*\*(?!Skipped)", text)
    return failed or (["?"] if status else [])


def check_baseline(mutants, timeout):
    tests = sorted({test for m in mutants for test in tests_of(m["killed_by"])})
    status, text = build(tests)
    if status:
        sys.exit(text[-4000:])
    failed = run(tests, timeout)
    if failed:
        sys.exit(f"without a mistake these tests fail: {' '.join(failed)}")


def stale(mutants):
    """A line for each entry whose text is not in its file exactly once."""
    for m in mutants:
        path = ROOT / m["file"]
        count = path.read_text().count(m["text"]) if path.is_file() else 0
        if count != 1:
            yield f"{m['name']}: {m['file']} has the text {count} times, not once"


def try_mutant(mutant, timeout):
    """One word, and who saw it."""
    path = COPY / mutant["file"]
    original = path.read_text()
    try:
        path.write_text(original.replace(mutant["text"], mutant["with"]))
        tests = tests_of(mutant["killed_by"])
        status, text = build(tests)
        if status:
            return "BROKEN", "does not build: " + " ".join(re.findall("error: .*", text)[:1])
        failed = run(tests, timeout)
    finally:
        path.write_text(original)
    if failed:
        return "killed", " ".join(failed)
    return ("explained", mutant["survives"]) if "survives" in mutant else ("SURVIVES", "")


def chosen(mutants, args):
    if args.only:
        mutants = [m for m in mutants if any(name in m["name"] for name in args.only)]
    if args.part:
        part, parts = map(int, args.part.split("/"))
        mutants = mutants[part - 1 :: parts]
    return mutants


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--part", metavar="K/N")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--nice", type=int, default=10, metavar="N")
    parser.add_argument("--timeout", type=int, default=300, metavar="SECONDS")
    args = parser.parse_args()
    table = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text())
    if found := list(stale(table["mutant"])):
        sys.exit("\n".join(found))
    mutants = chosen(table["mutant"], args)
    if args.list:
        for m in mutants:
            print(f"{m['name']:32} {m['file']:28} {m['killed_by']}")
        return 0
    os.nice(args.nice)
    COPY.mkdir(parents=True, exist_ok=True)
    copy_sources()
    configure()
    check_baseline(mutants, args.timeout)
    words = {}
    for mutant in mutants:
        start = time.time()
        word, who = try_mutant(mutant, args.timeout)
        words.setdefault(word, []).append(mutant["name"])
        print(f"{word:9} {mutant['name']:32} {time.time() - start:5.0f} s  {who}", flush=True)
    print(", ".join(f"{len(names)} {word}" for word, names in sorted(words.items())))
    return len(words.get("SURVIVES", [])) + len(words.get("BROKEN", []))


if __name__ == "__main__":
    sys.exit(main())
