"""Every example of examples/python runs."""
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from scipy.io import wavfile

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"


@pytest.fixture
def files(rng, tmp_path):
    """A matrix of structure, half a second of a tone, an echo."""
    tone = np.sin(np.arange(24000) ** 1.3 / 50) * 20000
    wavfile.write(tmp_path / "tone.wav", 48000, tone.astype(np.int16))
    echo = rng.standard_normal((5000, 2)) * np.exp(-np.arange(5000) / 900)[:, None]
    wavfile.write(tmp_path / "echo.wav", 48000, echo.astype(np.float32))
    np.save(tmp_path / "matrix.npy", 1 / (1 + np.add.outer(range(96), range(64))))
    return tmp_path


def test_the_tour_runs(files):
    command = [sys.executable, EXAMPLES / "tour.py", "--speech", files / "tone.wav"]
    command += ["--echo", files / "echo.wav", "--matrix", files / "matrix.npy"]
    command += ["--out", files / "out"]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert result.returncode == 0, result.stderr
    assert "step 4: loss" in result.stdout
    assert (files / "out" / "street.wav").exists()
    losses = [float(s.split()[-1]) for s in result.stdout.split("\n") if "loss" in s]
    assert losses[-1] < losses[0]
