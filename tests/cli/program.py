"""The program from the outside, for the tests of this folder: it is run, what it refuses is
checked, and what was not right is told in the end."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys

PROGRAM = os.path.realpath(os.environ["DANAUS_PROGRAM"])
with open(PROGRAM, "rb") as _file:
    _program = _file.read()
# A sanitizer needs terabytes of address space, stack, and files of its own.
SANITIZED = b"__asan_init" in _program or b"__tsan_init" in _program
failed = []


def check(words, condition, detail=""):
    print("ok     " if condition else "FAILED ", words, "" if condition else detail)
    if not condition:
        failed.append(words)


def danaus(*args, text="", program=PROGRAM):
    """Text goes to its standard input."""
    command = [program, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, input=text)


def facts(*args, text=""):
    done = danaus(*args, "--json", text=text)
    check(f"{args[0]} succeeds", done.returncode == 0 and not done.stderr, done.stderr)
    return json.loads(done.stdout) if done.stdout else {}


def refuses(words, status, pattern, *args, text="", program=PROGRAM):
    """By one line that has the pattern."""
    done = danaus(*args, text=text, program=program)
    lines = done.stderr.splitlines()
    good = done.returncode == status and len(lines) == 1 and pattern in lines[0]
    check(words, good and not done.stdout, f"{done.returncode}: {done.stderr}")


# What a terminal obeys, as a file may hold it: colour, clearing, and an 8-bit control.
OBEYED = "\x1b[31m\x1b[2J\x7f\u009b5m\u202e"


def plain(words, text):
    """Nothing in it is obeyed by a terminal; what was is shown."""
    shown = r"\u001b[31m\u001b[2J\u007f\u009b5m\u202e"
    good = shown in text.replace("1B", "1b") and not set("\x1b\x7f\u009b\u202e") & set(text)
    check(words, good, repr(text))


def finish():
    print(f"{len(failed)} failed")
    sys.exit(bool(failed))
