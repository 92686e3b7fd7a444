#!/usr/bin/python3
"""danaus conv and danaus-bench conv from the outside: every mode against
numpy.convolve and scipy.signal, sound files made here byte by byte, and what is refused."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import wave

import numpy as np
from program import PROGRAM, check, danaus, finish

try:
    from scipy.signal import fftconvolve
except ImportError:
    fftconvolve = None

BENCH = os.environ["DANAUS_BENCH"]
FORMATS = pathlib.Path("docs/formats.md").read_text()
SHARE = int(os.environ.get("DANAUS_TEST_SHARE", 1))


def refused(words, pattern, *args, program=PROGRAM):
    run = danaus(*args, program=program)
    good = run.returncode in (1, 2) and pattern in run.stderr and not run.stdout
    check(words, good and run.stderr.count("\n") == 1, (run.returncode, run.stderr))


def expected(u, k, mode):
    """Row by row in f64; scipy.signal's meaning of same and valid."""
    n, m = u.shape[-1], k.shape[-1]
    full = np.stack([np.convolve(a, b) for a, b in zip(u.astype(float), k.astype(float))])
    if mode == "full":
        return full
    if mode == "causal":
        return full[:, :n]
    if mode == "same":
        return full[:, (m - 1) // 2 : (m - 1) // 2 + n]
    if mode == "valid":
        return full[:, m - 1 : n]
    return sum(np.pad(full, ((0, 0), (0, -full.shape[1] % n))).reshape(len(u), -1, n)
               .swapaxes(0, 1))


def write_wav(path, rows, rate=48000):
    with wave.open(str(path), "wb") as file:
        file.setparams((len(rows), 2, rate, 0, "NONE", ""))
        file.writeframes(np.round(rows.T * 32768).astype("<i2").tobytes())


def read_wav(path):
    with wave.open(str(path)) as file:
        raw = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return raw.reshape(-1, file.getnchannels()).T / 32768, file.getframerate()


def arrays(folder, r):
    for mode in ("causal", "circular", "full", "same", "valid"):
        for dtype, bound in ((np.float32, 1e-6), (np.float64, 1e-14), (np.float16, 2e-3)):
            n, m = int(r.integers(1, 400)), int(r.integers(1, 200))
            if mode == "valid":
                n += m
            u = r.uniform(-1, 1, (3, 2, n)).astype(dtype)
            k = (r.uniform(-1, 1, (2, m)) / m).astype(dtype)
            np.save(folder / "u.npy", u)
            np.save(folder / "k.npy", k)
            run = danaus("conv", folder / "u.npy", folder / "k.npy", "-o",
                         folder / "y.npy", "--mode", mode)
            y = np.load(folder / "y.npy")
            e = expected(u.reshape(6, n), np.tile(k, (3, 1)), mode).reshape(3, 2, -1)
            check(f"{mode} in {dtype.__name__}",
                  run.returncode == 0 and y.shape == e.shape and y.dtype == dtype
                  and np.abs(y - e).max() <= bound * (1 + np.abs(u).max()), run.stderr)


def scipy_agrees(folder, r):
    """scipy.signal.fftconvolve() on rows of f64, at lengths that are no powers of two."""
    if not fftconvolve:
        print("skipped scipy.signal: it is not installed")
        return
    for n, m in ((44100, 48000), (65537, 1000), (100003, 100003)):
        u, k = r.standard_normal((2, n)), r.standard_normal((2, m))
        np.save(folder / "u.npy", u)
        np.save(folder / "k.npy", k)
        for mode in ("full", "same", "valid"):
            if mode == "valid" and m > n:
                continue
            run = danaus("conv", folder / "u.npy", folder / "k.npy", "-o", folder / "y.npy",
                         "--mode", mode)
            e, y = fftconvolve(u, k, mode, axes=-1), np.load(folder / "y.npy")
            good = y.shape == e.shape and (
                np.linalg.norm(y - e) <= 1e-14 * np.linalg.norm(u) * np.linalg.norm(k))
            check(f"{mode} of {n} by {m} as scipy.signal", run.returncode == 0 and good,
                  run.stderr)


def sounds(folder, r):
    u, k = r.uniform(-0.5, 0.5, (1, 3000)), r.uniform(-0.02, 0.02, (2, 500))
    u, k = np.round(u * 32768) / 32768, np.round(k * 32768) / 32768
    write_wav(folder / "u.wav", u)
    write_wav(folder / "left.wav", k[:1])
    write_wav(folder / "right.wav", k[1:])
    run = danaus("conv", folder / "u.wav", folder / "left.wav", folder / "right.wav",
                 "-o", folder / "y.wav", "--mode", "full", "--json")
    y, rate = read_wav(folder / "y.wav")
    e = expected(np.tile(u, (2, 1)), k, "full")
    check("two filters make stereo of mono", run.returncode == 0 and rate == 48000
          and y.shape == e.shape and np.abs(y - e).max() < 1e-4, run.stderr)
    facts = json.loads(run.stdout)
    row = next(x for x in FORMATS.splitlines() if x.startswith("| `conv` |"))
    check("and the documents know them", all(f"`{x}`" in row for x in list(facts)[3:] if x != "non_finite"), row)
    check("facts as JSON", facts["rows"] == 2 and facts["taps"] == 500
          and facts["kept"] == 3499 and facts["rate"] == 48000, run.stdout)
    danaus("conv", folder / "u.wav", folder / "left.wav", "-o", folder / "z.wav",
           "--normalize", "--skip", "-1")
    z, _ = read_wav(folder / "z.wav")
    e = expected(u, k[:1], "causal") - u
    check("skip and normalize", np.abs(z - e / np.abs(e).max()).max() < 1e-4)
    write_wav(folder / "slow.wav", k[:1], 44100)
    run = danaus("conv", folder / "u.wav", folder / "slow.wav", "-o", folder / "w.wav",
                 "--resample", "--json")
    check("a filter is resampled", run.returncode == 0
          and json.loads(run.stdout)["taps"] == 545, run.stdout + run.stderr)


def not_finite(folder, r):
    """A .wav file of floats with one NaN: its row is lost, and that is said."""
    data = np.zeros(60, "<f4")
    data[20] = np.nan
    (folder / "nan.wav").write_bytes(
        b"RIFF" + struct.pack("<I", 36 + data.nbytes) + b"WAVEfmt "
        + struct.pack("<IHHIIHH", 16, 3, 1, 48000, 4 * 48000, 4, 32)
        + b"data" + struct.pack("<I", data.nbytes) + data.tobytes())
    refused("NaN in integers", "NaN", "conv", folder / "nan.wav", folder / "left.wav",
            "-o", folder / "lost.wav")
    check("nothing is written", not (folder / "lost.wav").exists())
    run = danaus("conv", folder / "nan.wav", folder / "left.wav", "-o", folder / "kept.wav",
                 "--format", "float")
    raw = (folder / "kept.wav").read_bytes()
    y = np.frombuffer(raw[raw.index(b"data") + 8 :][:240], "<f4")
    check("NaN in floats", run.returncode == 0 and np.isnan(y[20]), run.stderr)


def kinds_of_files(folder, r):
    """The file is what its name says, appears in one step, and touches no other."""
    magic = {"wav": b"RIFF", "flac": b"fLaC", "aiff": b"FORM", "w64": b"riff", "au": b".snd",
             "caf": b"caff", "npy": b"\x93NUMPY", "FLAC": b"fLaC"}
    u, k = folder / "u.wav", folder / "left.wav"
    for end, first in magic.items():
        (folder / f"kind.{end}.part").write_text("precious")
        run = danaus("conv", u, k, "-o", folder / f"kind.{end}")
        there = (folder / f"kind.{end}").read_bytes()
        check(f"a name that ends in .{end}", run.returncode == 0 and there.startswith(first)
              and (folder / f"kind.{end}.part").read_text() == "precious", run.stderr)
        if end not in ("npy", "wav"):
            run = danaus("conv", folder / f"kind.{end}", k, "-o", folder / "again.wav")
            check(f"and .{end} is read", run.returncode == 0, run.stderr)
    (folder / "song.ogg").write_text("precious")
    for name, words in (("song.ogg", "must end in"), ("song", "must end in")):
        refused(f"sound in {name}", words, "conv", u, k, "-o", folder / name)
    check("what was there stays", (folder / "song.ogg").read_text() == "precious")
    refused("floats in .flac", "--format", "conv", u, k, "-o", folder / "x.flac", "--format",
            "float")
    refused("a format of an array", "not .npy", "conv", u, k, "-o", folder / "x.npy", "--format",
            "pcm24")
    os.mkdir(folder / "shut.wav")
    refused("a folder in place of sound", "regular file", "conv", u, k, "-o", folder / "shut.wav")
    left = [p for p in os.listdir(folder) if p.startswith(".danaus")]
    check("nothing is left behind", not left, left)


def streams(folder, r):
    """Sound and arrays through standard input and output."""
    u, k = folder / "u.wav", folder / "left.wav"
    danaus("conv", u, k, "-o", folder / "direct.wav")
    run = subprocess.run([PROGRAM, "conv", "-", str(k), "-o", "-"], input=u.read_bytes(),
                         capture_output=True)
    check("sound from a pipe to a pipe", run.returncode == 0 and not run.stderr
          and run.stdout == (folder / "direct.wav").read_bytes(), run.stderr)
    np.save(folder / "row.npy", r.standard_normal((2, 50)))
    run = subprocess.run([PROGRAM, "conv", str(folder / "row.npy"), "-", "-o", "-"],
                         input=(folder / "row.npy").read_bytes(), capture_output=True)
    check("an array to a pipe", run.stdout.startswith(b"\x93NUMPY"), run.stderr)


def choices(folder, r):
    """conv takes the options of apply for how plans are made."""
    np.save(folder / "row.npy", r.standard_normal((2, 50)))
    for option in ("--effort", "measure"), ("--effort", "estimate"), ("--accuracy", "fast"):
        run = danaus("conv", folder / "row.npy", folder / "row.npy", "-o", folder / "y.npy",
                     *option, "--json")
        check(f"conv {' '.join(option)}", run.returncode == 0
              and ("as measured" in json.loads(run.stdout)["plan"]) == (option[1] == "measure"),
              run.stdout + run.stderr)
    refused("no table", "no row", "conv", folder / "row.npy", folder / "row.npy", "-o",
            folder / "y.npy", "--effort", "table")
    refused("resampled arrays", "for sound", "conv", folder / "row.npy", folder / "row.npy",
            "-o", folder / "y.npy", "--resample")


def refusals(folder, r):
    u = folder / "u.wav"
    refused("rates that differ", "--resample", "conv", u, folder / "slow.wav", "-o", "x.wav")
    write_wav(folder / "three.wav", r.uniform(-1, 1, (3, 10)))
    write_wav(folder / "two.wav", r.uniform(-1, 1, (2, 10)))
    refused("three filters for two channels", "3 filters", "conv", folder / "two.wav",
            folder / "three.wav", "-o", "x.wav")
    write_wav(folder / "empty.wav", np.zeros((1, 0)))
    refused("empty sound", "no sound", "conv", folder / "empty.wav", u, "-o", "x.wav")
    np.save(folder / "a.npy", np.zeros((2, 5)))
    np.save(folder / "b.npy", np.zeros((3, 5)))
    np.save(folder / "none.npy", np.zeros((2, 0)))
    np.save(folder / "c.npy", np.zeros((2, 5), complex))
    refused("shapes that differ", "3 x 5", "conv", folder / "a.npy", folder / "b.npy",
            "-o", "x.npy")
    refused("arrays and sound", "both are .npy, or both sound", "conv", folder / "a.npy", u, "-o", "x.npy")
    refused("an empty array", "empty", "conv", folder / "none.npy", folder / "a.npy",
            "-o", "x.npy")
    refused("complex numbers", "real", "conv", folder / "c.npy", folder / "a.npy", "-o",
            "x.npy")
    refused("an array to .wav", ".npy files", "conv", folder / "a.npy", folder / "a.npy",
            "-o", folder / "x.wav")
    refused("a filter too long to be valid", "whole", "conv", folder / "left.wav", u,
            "-o", "x.wav", "--mode", "valid")
    refused("no output", "-o FILE", "conv", u, u)
    for command in (("conv", u, u, "-o", "x.wav"), ("bench", "conv", "--suite", u),
                    ("tune", "conv", "--suite", u, "-o", "t"), ("info", "--conv", 64)):
        refused("an accuracy that is not there", "accuracy", *command, "--accuracy", "exact")
    refused("a file that is not there", "nothing.wav", "conv", folder / "nothing.wav", u,
            "-o", "x.wav")


def planning(folder, r):
    """danaus calibrate, tune conv, and what info says of them."""
    def info(*args):
        run = danaus("info", "--conv", 5000, "--taps", 700, *args)
        return run.stdout if run.returncode == 0 else run.stderr

    check("built in constants are told", "built in for" in info() and "blocks" in info()
          and "others:" in info() and "by the model" in info(), info())
    suite = folder / "small.csv"
    suite.write_text("# small\ncausal,5000,700,4,4,plain\ncircular,96,96,4,4,plain\n")
    run = danaus("tune", "conv", "--suite", suite, "-o", folder / "tuned.csv", "--json")
    check("convolutions are tuned", run.returncode == 0
          and all("as measured" in p["plan"] for p in json.loads(run.stdout)["plans"]),
          run.stderr)
    tuned = folder / "tuned.csv"
    check("and found", "by the tuning table" in info("--tuning", tuned)
          and "by the tuning table" in info("--tuning", tuned, "--effort", "table"))
    check("or not", "no row" in info("--effort", "table")
          and "no row" in info("--tuning", tuned, "--effort", "table", "--rows", 1))
    refused("a table nowhere", "nowhere", "calibrate", "-o", folder / "nowhere" / "t.csv")
    refused("choices nowhere", "nowhere", "tune", "conv", "--suite", suite, "-o",
            folder / "nowhere" / "t.csv")
    refused("no table", "-o FILE", "calibrate")
    (folder / "products.csv").write_text('problem,batch\n"1,2,2,1",4\n')
    refused("a suite of products", "line 1", "tune", "conv", "--suite",
            folder / "products.csv", "-o", folder / "t.csv")
    refused("something else", "only ks and conv", "tune", "fft", "--suite", suite, "-o", "t")
    run = danaus("conv", "--suite", suite, "--effort", "measure", "--hot", "--json", program=BENCH)
    check("the model is measured beside", run.returncode == 0
          and all(x["model_ratio"] > 0 for x in json.loads(run.stdout)["records"]), run.stderr)
    if SHARE == 1:
        calibration(folder, tuned, info)


def calibration(folder, tuned, info):
    """It takes seconds, and half a minute with a sanitizer: there tests/unit has it for
    short lengths."""
    table = folder / "calibrated.csv"
    run = danaus("calibrate", "-o", table, "--tuning", tuned)
    check("a machine is calibrated", run.returncode == 0 and "threads" in run.stdout
          and not run.stderr, run.stderr)
    text = table.read_text()
    check("with the rows that were there", text.count("causal") == 1
          and text.count(",gamma,") == 10 and text.count(",omega,") == 6, text)
    check("the model uses it", "measured by calibration"
          in info("--tuning", table, "--rows", 1), info("--tuning", table, "--rows", 1))
    for words, old, new in [("instruction set", ",avx", ",xva"), ("machine", "cpu,", "cpu,X"),
                            ("number of threads", ",f32,gamma", "1,f32,gamma")]:
        if old in text:
            (folder / "other.csv").write_text(text.replace(old, new))
            check(f"another {words} has its own", "built in for"
                  in info("--tuning", folder / "other.csv", "--rows", 1))
    (folder / "bad.csv").write_text(text.replace(",gamma,8,", ",gamma,8,-"))
    refused("a negative constant", "value", "info", "--conv", 100, "--tuning",
            folder / "bad.csv")


def container(kind, rate=48000):
    """A file of 20 frames of 2 channels with a chunk before and one after the sound:
    (bytes, where the sound's chunk begins and where it ends)."""
    order = ">" if kind in ("RIFX", "AIFF") else "<"

    def chunk(name, data, size=None):
        size = len(data) if size is None else size
        return name + struct.pack(order + "I", size) + data + bytes(len(data) % 2)

    data = np.arange(-20, 20).astype(order + "i2").tobytes()
    if kind == "AIFF":
        head = chunk(b"COMM", struct.pack(">hIh", 2, 20, 16) + b"\x40\x0e\xbb\x80" + bytes(6))
        sound = chunk(b"SSND", bytes(8) + data)
    else:
        head = chunk(b"fmt ", struct.pack(order + "HHIIHH", 1, 2, rate, 4 * rate, 4, 16))
        sound = chunk(b"data", data, 0xffffffff if kind == "RF64" else None)
    after = chunk(b"LIST", b"INFOISFT\4\0\0\0me\0\0")
    if kind == "RF64":
        head = chunk(b"ds64", struct.pack("<QQQI", 200, len(data), 20, 0)) + head
    body = (b"AIFF" if kind == "AIFF" else b"WAVE") + head + sound + after
    name = b"FORM" if kind == "AIFF" else kind.encode()
    size = 0xffffffff if kind == "RF64" else len(body)
    whole = name + struct.pack(order + "I", size) + body
    return whole, len(whole) - len(after) - len(sound), len(whole) - len(after)


def cut(folder, r):
    """Files that end early, at every kind of place: sound that lacks a byte is refused;
    what follows it may be missing."""
    step = 9 if SHARE > 1 else 3
    for kind in ("RIFF", "RIFX", "RF64", "AIFF"):
        whole, begin, end = container(kind)
        places = {0, 3, 11, 17, begin - 1, begin + 4, begin + 7, begin + 8, begin + 9,
                  end - 1, *range(20 if kind == "RIFF" else end, end, step)}
        wrong = []
        for size in sorted(places):
            (folder / "cut.wav").write_bytes(whole[:size])
            run = danaus("conv", folder / "cut.wav", folder / "left.wav", "-o", "x.wav")
            if (run.returncode != 1 or "cut.wav" not in run.stderr
                    or run.stderr.count("\n") != 1 or os.path.exists("x.wav")):
                wrong.append((size, run.returncode, run.stderr))
        check(f"{kind} cut in {len(places)} places is refused", not wrong, wrong[:3])
        for size in (end, end + 3, len(whole)):
            (folder / "cut.wav").write_bytes(whole[:size])
            run = danaus("conv", folder / "cut.wav", folder / "left.wav", "-o", "y.wav",
                         "--json")
            check(f"{kind} with {size - end} bytes behind its sound is read",
                  run.returncode == 0 and json.loads(run.stdout)["length"] == 20, run.stderr)


def unknown_sizes(folder, r):
    """Headers that were never finished: the sound ends with the file."""
    whole, begin, end = container("RIFF")
    for size in (0, 0x7ffff000, 0x80000000, 0xffffffff, 0xffffffdb):
        raw = bytearray(whole[:end])
        struct.pack_into("<I", raw, begin + 4, size)
        struct.pack_into("<I", raw, 4, min(size + begin, 0xffffffff) if size else 8)
        (folder / "open.wav").write_bytes(raw)
        run = danaus("conv", folder / "open.wav", folder / "left.wav", "-o", "y.wav", "--json")
        check(f"a header that says {size:#x}", run.returncode == 0
              and json.loads(run.stdout)["length"] == 20, run.stderr)
    raw = bytearray(whole[:begin + 8] + whole[end:])
    struct.pack_into("<I", raw, begin + 4, 0)
    struct.pack_into("<I", raw, 4, len(raw) - 8)
    (folder / "none.wav").write_bytes(raw)
    refused("no sound before another chunk", "no sound", "conv", folder / "none.wav",
            folder / "left.wav", "-o", "x.wav")


def words(folder, r):
    """Arguments at random: any answer of the program's, and never a sanitizer's."""
    known = ["conv", "-o", "--mode", "full", "valid", "--skip", "-1", "nan", "1e999", "--repeat",
             str(2**61 + 1), str(2**63), "--resample", "--normalize", "--format", "pcm24",
             "--threads", "0", "--device", "cpu:none", "--", "", "%n%s", "u.wav", "left.wav",
             "slow.wav", "open.wav", "a.npy", "none.npy", "/", ".", "/dev/null", "w.wav", "--json"]
    for number in range(40 if SHARE == 1 else 15):
        some = [known[int(i)] for i in r.integers(0, len(known), int(r.integers(0, 9)))]
        run = danaus("conv", *some, *(["-o", "z.wav"] if number % 2 else []))
        if run.returncode not in (0, 1, 2) or (run.returncode and not run.stderr):
            check(f"arguments {some}", False, (run.returncode, run.stderr))
            return
    check("arguments at random are answered", True)


def fuzzed(folder, r):
    """Damaged headers: any answer but a crash, and never a sanitizer's."""
    whole = bytearray((folder / "left.wav").read_bytes())
    for number in range(60):
        raw = bytearray(whole)
        for _ in range(int(r.integers(1, 6))):
            raw[int(r.integers(0, 60))] = int(r.integers(0, 256))
        if number % 4 == 0: # the bytes of data that the header claims
            struct.pack_into("<I", raw, 40, int(r.integers(0, 2**32)))
        (folder / "bad.wav").write_bytes(raw)
        run = danaus("conv", folder / "left.wav", folder / "bad.wav", "-o",
                     folder / "bad_out.wav", "--resample" if number % 2 else "--normalize")
        if run.returncode not in (0, 1):
            check(f"damaged sound {number}", False, (run.returncode, run.stderr))
            return
    check("damaged sound is read or refused", True)


def bench(folder):
    suite = folder / "suite.csv"
    suite.write_text("# a comment\nkind,length,taps,batch,channels,extras\n"
                     "causal,60,60,2,3,plain\nbidirectional,200,100,1,2,gated\n"
                     "circular,64,64,1,1,plain\n")
    run = danaus("conv", "--suite", suite, "--baselines", "--hot", "--json",
                 "--csv", folder / "out.csv", "--threads", "1", program=BENCH)
    check("a suite is measured", run.returncode == 0, run.stderr)
    records = json.loads(run.stdout)["records"]
    check("a record for each problem", len(records) == 3
          and all(one["seconds"] > 0 and one["error"] < 1e-6 for one in records))
    lines = (folder / "out.csv").read_text().splitlines()
    check("and as CSV", len(lines) == 4 and "kind,length,taps" in lines[0])
    run = danaus("conv", "--suite", suite, "--hot", "--json", "--accuracy", "fast", program=BENCH)
    check("and fast, as accurate on a CPU", run.returncode == 0
          and all(one["error"] < 1e-6 for one in json.loads(run.stdout)["records"]), run.stderr)
    suite.write_text("causal,9000,9000,2,2,sparse\n")
    run = danaus("conv", "--suite", suite, "--hot", "--json", program=BENCH)
    check("a sparse spectrum beside the full one", run.returncode == 0
          and json.loads(run.stdout)["records"][0]["plain_ratio"] > 0, run.stderr)
    suite.write_text("circular,9000,9000,2,2,sparse\n")
    refused("a circular sparse spectrum", "whole spectra", "conv", "--suite", suite, "--json",
            program=BENCH)
    suite.write_text("causal,0,1,1,1,plain\n")
    refused("a problem without a length", "line 1", "conv", "--suite", suite, program=BENCH)


def bench_stream():
    run = danaus("stream", "--taps", 20000, "--seconds", 1, "--json", program=BENCH)
    check("a stream is measured", run.returncode == 0, run.stderr)
    facts = json.loads(run.stdout)
    check("block by block", facts["blocks"] == 750 and facts["share"] > 0
          and 0 < facts["median"] <= facts["p999"] <= facts["longest"], facts)
    for words, option in (("no blocks", "--block"), ("no time", "--seconds")):
        refused(words, f"{option} takes an integer from 1 to", "stream", option, 0,
                program=BENCH)
    refused("a stream without channels", "channels", "stream", "--channels", 0, program=BENCH)
    refused("taps without end", "memory", "stream", "--taps", 2**62, program=BENCH)


def info():
    run = danaus("info", "--conv", 5000, "--taps", 300, "--json")
    check("a convolution is explained", run.returncode == 0
          and "window" in json.loads(run.stdout)["plan"], run.stderr)
    for accuracy in ("by_type", "accurate", "fast"):
        run = danaus("info", "--conv", 5000, "--accuracy", accuracy)
        check("an accuracy is taken", run.returncode == 0, run.stderr)
    run = danaus("info", "--conv", 5000, "--effort", "measure")
    refused("rows of nothing", "--conv takes an integer from 1 to", "info", "--conv", 0)
    check("and measured", run.returncode == 0 and "as measured" in run.stdout, run.stderr)


with tempfile.TemporaryDirectory() as name:
    random = np.random.default_rng(1)
    place = pathlib.Path(name)
    os.chdir(place)
    for test in (arrays, scipy_agrees, sounds, not_finite, kinds_of_files, streams, choices, refusals, planning, cut,
                 unknown_sizes, fuzzed, words):
        test(place, random)
    if SHARE == 1:
        bench(place)
        bench_stream()
    info()
finish()
