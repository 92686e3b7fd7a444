"""Every example of examples/python runs."""

# SPDX-License-Identifier: Apache-2.0
import importlib.util
import json
import pathlib

import numpy as np
import pytest
from scipy.io import wavfile

import danaus
from conftest import run_program

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
    options = ["--speech", files / "tone.wav", "--echo", files / "echo.wav"]
    options += ["--matrix", files / "matrix.npy", "--out", files / "out"]
    printed = run_example("tour.py", *options)
    assert "step 4: loss" in printed
    assert (files / "out" / "street.wav").exists()
    losses = [float(s.split()[-1]) for s in printed.split("\n") if "loss" in s]
    assert losses[-1] < losses[0]


def run_example(name, *arguments):
    done = run_program(EXAMPLES / name, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pictures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    printed = run_example("pictures.py", tmp_path)
    assert printed.startswith("drawn: errors.png, filters.png, fourier.png")
    for path in tmp_path.glob("*.png"):
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_checkpoint_is_factorised(rng, tmp_path):
    pytest.importorskip("tqdm")
    numpy_files = pytest.importorskip("safetensors.numpy")
    model, chains = tmp_path / "model.safetensors", tmp_path / "chains.safetensors"
    shapes = {"fc1.weight": (96, 64), "fc2.weight": (64, 96), "fc2.bias": (64,)}
    shapes |= {"embedding.weight": (300, 64), "head.weight": (10, 64)}
    arrays = {n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()}
    numpy_files.save_file(arrays, model)
    printed = run_example("checkpoint.py", model, chains, "--share", "0.4")
    assert printed.count("done ") == 2 and printed.count("passed over") == 3
    made, read = danaus.load_chains(chains), numpy_files.load_file(chains)
    assert set(made) == {"fc1.weight", "fc2.weight"}
    for name, chain in made.items():
        assert chain.shape == arrays[name].shape
        assert chain.parameters <= 0.4 * arrays[name].size
        for number, w in enumerate(chain.weights):
            assert np.array_equal(read[f"{name}.factor.{number}"], w)
    again = run_example("checkpoint.py", model, chains, "--share", "0.4")
    assert again.count("kept") == 2


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebooks_run_and_are_kept_without_outputs(path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in cells:
        assert cell.outputs == [] and cell.execution_count is None
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    client.execute()  # raises what a cell raises
    shown = [output for cell in cells for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in shown) >= 3


def test_a_long_convolution_learns_to_copy():
    pytest.importorskip("torch")
    printed = run_example("long_conv.py")
    assert "as a whole and token by token: equal" in printed
    assert float(printed.split("\n")[-2].split("%")[0]) > 99


def test_a_network_is_trained(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    printed = run_example("train.py", "4", tmp_path)
    shares = [float(s.split("%")[0].split()[-1]) for s in printed.split("\n")[:2]]
    assert min(shares) > 85, printed
    assert danaus.Chain.load(tmp_path / "layer0.safetensors").shape == (512, 64)


SMALL = {
    "train_causal.py": {"model_type": "hyena", "d_model": 16, "filter_order": 8},
    "train_m2_bert.py": {
        "hidden_size": 16, "intermediate_size": 32, "hyena_filter_order": 8,
    },
    "train_vit.py": {
        "model_type": "vit", "hidden_size": 16, "intermediate_size": 32,
        "patch_size": 4, "num_attention_heads": 2,
    },
}  # fmt: skip
LAYERS = {"train_causal.py": "n_layer"}


@pytest.mark.parametrize("name", SMALL)
def test_models_train_and_run_in_c(name, rng, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "book.txt").write_text("It rained, and then it rained again.\n" * 40)
    images = rng.integers(0, 256, (40, 8, 8), "u1")
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", rng.integers(0, 2, 40))
    data = {"data": str(tmp_path / "book.txt"), "length": 32}
    if name == "train_vit.py":
        data = {n: str(tmp_path / f"{n}.npy") for n in ("images", "labels")}
        data["data"] = data.pop("images")
    model = SMALL[name] | {LAYERS.get(name, "num_hidden_layers"): 2}
    settings = data | {"model": model, "batch": 4, "steps": 9, "device": "cpu"}
    (tmp_path / "small.json").write_text(json.dumps(settings))
    out = tmp_path / "out"
    printed = run_example(name, tmp_path / "small.json", f"out={out}", "log_every=3")
    assert "step 9 of 9: loss" in printed and "held out" in printed
    trained = danaus.Model(str(out / "checkpoint-9"))
    if name == "train_causal.py":
        assert np.isfinite(
            trained.score_tokens([np.arange(7, 20, dtype="i4")])[0][1:]
        ).all()
    if name == "train_m2_bert.py":
        assert trained.embed_tokens([np.arange(7, 20, dtype="i4")]).shape == (1, 16)
    if name == "train_vit.py":
        assert trained.classify(images[:3, None] / np.float32(255)).shape == (3, 2)


def test_matched_filters_find_templates():
    printed = run_example("matched_filters.py")
    assert "begin at [ 2000 11000 20000 29000 38000]" in printed
    assert "the wave begins at" in printed


def test_matched_filters_are_those_of_pycbc(rng):
    pytest.importorskip("pycbc")
    from pycbc.filter import matchedfilter
    from pycbc.types import FrequencySeries, TimeSeries

    spec = importlib.util.spec_from_file_location("f", EXAMPLES / "matched_filters.py")
    ours = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ours)
    for dtype in (np.float32, np.float64):
        n, low, high = 2 * int(rng.integers(40, 900)), 3.0, 15.0
        h, s = (
            TimeSeries(rng.standard_normal(n).astype(dtype), delta_t=1 / 64)
            for _ in range(2)
        )
        psd = FrequencySeries(rng.uniform(0.5, 2, n // 2 + 1).astype(dtype), 64 / n)
        for options in ({}, {"psd": psd}, {"psd": psd, "low": low, "high": high}):
            named = {"psd": options.get("psd")}
            named["low_frequency_cutoff"] = options.get("low")
            named["high_frequency_cutoff"] = options.get("high")
            found = ours.danaus_matched_filter_core(h, s, **named)
            wanted = matchedfilter.matched_filter_core(h, s, **named)
            unit = float(np.finfo(dtype).eps) * 64
            for a, b in zip(found[:2], wanted[:2]):
                assert a.dtype == b.dtype and len(a) == len(b)
                error = np.abs(a.numpy() - b.numpy()).max()
                assert error <= unit * np.abs(b.numpy()).max()
            assert float(found[2]) == pytest.approx(float(wanted[2]), rel=float(unit))
    with pytest.raises(ValueError, match="must match"):
        ours.danaus_matched_filter_core(h, s[:10])
    with pytest.raises(TypeError, match="PSD"):
        ours.danaus_matched_filter_core(h, s, psd=h)
