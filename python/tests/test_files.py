"""Files that the package reads and writes: pipes, what is open, and what is left."""

# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import danaus
from danaus import lazylinop, records
from danaus._files import read_text

ROWS = [{"name": "a", "seconds": 1}, {"name": "b", "seconds": 2}]


@pytest.fixture
def chain(rng):
    return danaus.Chain.from_weights([rng.standard_normal((1, 4, 4, 2))])


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    return tmp_path / "pipe.json"


def wrong_readers():
    return {
        "a chain": danaus.Chain.load,
        "chains": danaus.load_chains,
        "a model": danaus.Model,
        "a tokenizer": danaus.Tokenizer,
        "records": records.read,
        "lazylinop": lazylinop.load,
    }


@pytest.mark.parametrize("reader", wrong_readers())
def test_a_pipe_without_a_writer_is_refused(reader, pipe):
    with pytest.raises(OSError, match="pipe"):
        wrong_readers()[reader](pipe)


def test_pipes_in_a_folder_are_refused(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(OSError, match="it is a pipe, not a regular file"):
        danaus.Model(tmp_path)


def test_a_pipe_with_a_writer_is_read(tmp_path, pipe):
    text = "name,seconds\n" + "a,1\n" * 30000  # more than a pipe holds

    def write():
        time.sleep(0.1)
        pipe.write_text(text)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_text(pipe) == text
    writer.join()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_of_records_end_in_any_way(tmp_path, end):
    path = tmp_path / "records.csv"
    path.write_bytes(end.join(["# x", "name,seconds", "a,1", "b,2", ""]).encode())
    assert records.read(path) == ROWS


def test_what_is_open_is_written_to(tmp_path, chain):
    with open(tmp_path / "open", "wb", buffering=0) as file:
        file.write(b"before\n")
        name = f"/dev/fd/{file.fileno()}"
        records.write(name, ROWS)
        chain.save(name)
    chain.save(tmp_path / "alone")
    whole = b"before\nname,seconds\na,1\nb,2\n" + (tmp_path / "alone").read_bytes()
    assert (tmp_path / "open").read_bytes() == whole


def test_links_and_permissions_stay(tmp_path, chain):
    (tmp_path / "link.json").symlink_to("there.json")
    (tmp_path / "there.json").write_text("old")
    (tmp_path / "there.json").chmod(0o640)
    lazylinop.save(chain, tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "there.json").stat().st_mode & 0o777 == 0o640
    assert lazylinop.load(tmp_path / "there.json").shape == chain.shape


WRITER = """
import danaus, sys
rows = [{"name": "a" * 1000, "seconds": 1}] * 100000
print("ready", flush=True)
while True:
    danaus.records.write(sys.argv[1], rows)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_a_signal(tmp_path, number):
    path = tmp_path / "records.csv"
    words = [sys.executable, "-c", WRITER, path]
    with subprocess.Popen(words, stdout=-1, stderr=-3) as run:
        assert run.stdout.readline() == b"ready\n"
        time.sleep(0.3)
        run.send_signal(number)
    assert {p.name for p in tmp_path.iterdir()} <= {"records.csv"}


def test_files_of_others_are_not_replaced(rng, tmp_path):
    matrices = {"fc": rng.standard_normal((8, 8)), "head": rng.standard_normal((8, 8))}
    other = tmp_path / "fc.safetensors"
    danaus._files.write_tensors(other, {"w": (np.ones(3), "f64")}, {})
    before = other.read_bytes()
    found = danaus.factorize_many(matrices, tmp_path, "1,4,4,2 2,4,4,1", overwrite=True)
    assert [record["status"] for record in found] == ["failed", "done"]
    assert "holds no chain" in found[0]["message"] and other.read_bytes() == before
    (tmp_path / "report.csv").write_text("mine\n")
    with pytest.raises(FileExistsError, match="no report"):
        danaus.factorize_many(matrices, tmp_path, "1,4,4,2 2,4,4,1")
    assert (tmp_path / "report.csv").read_text() == "mine\n"
