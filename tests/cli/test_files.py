#!/usr/bin/python3
"""Files that commands read and write: pipes, devices, what is open already, and what is
left after a signal."""

# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import numpy as np
from program import PROGRAM, check, danaus, finish

SECONDS = 20  # after which a command counts as one that waits for ever


def shell(command):
    """Runs a command of bash, whose $0 is the program."""
    words = ["bash", "-c", command, PROGRAM]
    try:
        return subprocess.run(words, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, "no end", b"", b"")


def content(name):
    return pathlib.Path(name).read_bytes()


def tells(words, done, sentence):
    """It failed with the sentence."""
    check(words, done.returncode == 1 and sentence.encode() in done.stderr, done)


def make_inputs():
    rng = np.random.default_rng(0)
    np.save("w.npy", rng.standard_normal((8, 8)).astype("f4"))
    np.save("x.npy", rng.standard_normal((3, 8)).astype("f4"))
    np.save("large.npy", np.ones((1000000, 8), "f4"))
    danaus("factorize", "w.npy", "--pattern", "1,4,4,2 2,4,4,1", "-o", "c.st")
    danaus("apply", "c.st", "x.npy", "-o", "y.npy")
    return content("y.npy")


def test_outputs(y):
    pathlib.Path("all.bin").write_bytes(b"precious ")
    done = shell('"$0" apply c.st x.npy -o /dev/stdout >> all.bin')
    check("/dev/stdout is written to", content("all.bin") == b"precious " + y)
    check("and has the numbers alone", done.returncode == 0 and not done.stderr, done)
    os.symlink("/dev/stdout", "link.npy")
    for name in "-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link.npy":
        done = shell(f'"$0" apply c.st x.npy -o {name} | cat')
        check(f"{name} is a pipe", done.stdout == y, done.stderr)
    done = shell("""exec 5> five; printf before >&5
        "$0" apply c.st x.npy -o /dev/fd/5; printf after >&5""")
    whole = b"before" + y + b"after"
    check("a descriptor, where it is", content("five") == whole, done.stderr)
    done = shell('"$0" apply c.st x.npy -o >(cat > process); wait $!')
    check("a process is written to", content("process") == y, done.stderr)
    done = shell('"$0" apply c.st x.npy -o /dev/null && test -c /dev/null')
    check("a device is written to, and stays", done.returncode == 0, done.stderr)
    done = shell('"$0" apply c.st x.npy -o /dev/full')
    tells("a full device", done, "cannot write /dev/full: No space")
    done = shell('"$0" conv x.npy x.npy -o /dev/stdout | head -c 6')
    check("arrays of conv are written to it", done.stdout == b"\x93NUMPY", done.stderr)
    done = shell("""printf 'problem,batch\\n"1,8,6,6",4\\n' > s.csv
        "$0" tune --suite s.csv -o - | grep -c '^# danaus tuning'""")
    check("a table is written to a pipe once", done.stdout == b"1\n", done)


def test_permissions():
    """What docs/formats.md says of replaced files and of new ones."""

    def mode(name):
        return oct(os.stat(name).st_mode & 0o7777)

    for umask in 0o022, 0o077, 0o000:
        old = os.umask(umask)
        danaus("apply", "c.st", "x.npy", "-o", f"new{umask}.npy")
        os.umask(old)
        found = mode(f"new{umask}.npy")
        check(f"a new file under {umask:03o}", found == oct(0o666 & ~umask), found)
    for bits in 0o600, 0o640, 0o664, 0o755, 0o777, 0o4755, 0o2664, 0o1666:
        pathlib.Path("old.npy").write_bytes(b"old")
        os.chmod("old.npy", bits)
        danaus("apply", "c.st", "x.npy", "-o", "old.npy")
        found = mode("old.npy")
        check(f"{bits:o} is kept, but for its first digit", found == oct(bits & 0o777), found)
        os.remove("old.npy")


def test_records():
    done = shell("""printf 'problem,batch\\n"1,8,6,6",4\\n"1,4,4,2",4\\n' > s.csv
        "$0" bench --suite s.csv --layout last --csv >(cat > records) && sleep 0.2""")
    lines = content("records").count(b"\n")
    check("records are written to a pipe once", lines == 3, (lines, done.stderr))


def test_inputs(y):
    os.mkfifo("pipe")
    for words in (
        "apply c.st pipe",
        "embed pipe --text x.npy",
        "embed model --text pipe",
    ):
        done = shell(f'"$0" {words} -o z.npy')
        tells(words, done, "cannot read pipe: it is a pipe that nothing writes to")
    done = shell('"$0" apply c.st x.npy -o pipe')
    tells(
        "a pipe without a reader",
        done,
        "cannot write pipe: it is a pipe that",
    )
    done = shell('cat x.npy > pipe & "$0" apply c.st pipe -o z.npy')
    check("a pipe with a writer", content("z.npy") == y, done.stderr)
    done = shell("""(sleep 0.2; head -c 99 x.npy; sleep 1.2; tail -c +100 x.npy) \\
        > pipe & "$0" apply c.st pipe -o u.npy""")
    check("and a slow one", content("u.npy") == y, done.stderr)
    done = shell('"$0" apply <(cat c.st) <(cat x.npy) -o v.npy')
    check("two processes are read", content("v.npy") == y, done.stderr)
    suite = r'# a\rproblem,batch\r\r"1,8,6,6 6,6,8,1",16\r\n"2,3,3,1",2'
    done = shell(f"""printf '{suite}' > ends
        "$0" bench --suite ends --layout last --json | grep -c '"problem"'""")
    check("lines of a suite end in any way", done.stdout == b"2\n", done)
    done = shell('echo text > pipe & "$0" apply c.st pipe -o z.npy')
    tells("a sentence names the pipe", done, "apply: pipe: this is neither")
    for name in "/dev/zero", "- < /dev/zero":
        done = shell(f'"$0" apply c.st -o z.npy {name}')
        tells(f"{name} has no end", done, "it is a device")


def test_pipes_of_folders():
    folder = pathlib.Path("model")
    folder.mkdir()
    os.mkfifo(folder / "config.json")
    done = shell('"$0" model model')
    tells("a pipe in a folder", done, "config.json: it is a pipe, not a regular file")


# ---- signals ----


def left():
    return [name for name in os.listdir() if name.startswith(".danaus")]


def test_signals():
    done = shell('ulimit -f 16; "$0" apply c.st large.npy -o limit.npy')
    tells("a file that may not grow", done, "cannot write limit.npy: File too large")
    for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
        for wait in 0.02, 0.05, 0.1:
            words = [PROGRAM, "apply", "c.st", "large.npy", "-o", "ended.npy"]
            run = subprocess.Popen(words, stdout=-3, stderr=-3)
            time.sleep(wait)
            run.send_signal(number)
            check(f"{number.name} ends it", run.wait() in (-number, 0), run.returncode)
    check("nothing is left", not left() and "limit.npy" not in os.listdir(), left())


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        y = make_inputs()
        test_outputs(y)
        test_permissions()
        test_records()
        test_inputs(y)
        test_pipes_of_folders()
        test_signals()
        os.chdir("/")
    finish()


main()
