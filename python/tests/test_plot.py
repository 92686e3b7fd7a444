"""Pictures show what they say, without a display and without global state."""

# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import numpy as np
import pytest

import danaus
from conftest import dense_chain, dense_factor, random_array, random_patterns

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("matplotlib.figure")
from danaus import plot  # noqa: E402


def images(figure):
    return [ax.images[0].get_array() for ax in figure.axes]


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
def test_a_chain_is_drawn_as_its_factors_and_their_product(rng, dtype):
    weights = [random_array(rng, p, dtype) for p in random_patterns(rng, 3)]
    chain = danaus.Chain.from_weights(weights)
    figure = plot.chain(chain)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["$K_{1}$", "$K_{2}$", "$K_{3}$", "$W$"]
    for w, picture in zip(weights, images(figure)):
        support = dense_factor(np.ones(w.shape)) != 0
        assert np.array_equal(picture[..., 3] > 0, support)
        assert picture.shape[:2] == support.shape
        if w.dtype.kind == "f":
            matrix, most = dense_factor(w), np.quantile(np.abs(w), 0.99)
            red, blue = picture[..., 0], picture[..., 2]
            assert np.all(red[matrix > most / 2] > blue[matrix > most / 2])
            assert np.all(red[matrix < -most / 2] < blue[matrix < -most / 2])
    assert images(figure)[-1].shape[:2] == dense_chain(weights).shape
    assert len(plot.chain(chain, product=False).axes) == 3


def test_large_matrices_show_the_largest_number_of_each_pixel(rng):
    matrix = rng.standard_normal((600, 130)) * (rng.random((600, 130)) < 0.1)
    picture = plot._matrix_picture(matrix)
    assert picture.shape == (256, 130)
    rows = np.arange(600) * 256 // 600
    for row in range(256):
        block = matrix[rows == row]
        largest = np.abs(block).argmax(axis=0)
        assert np.array_equal(picture[row], block[largest, np.arange(130)])


def test_pictures_go_where_they_are_wanted(tmp_path):
    chain = danaus.Chain.create("1,2,2,2 2,2,2,1", "bf16")
    own = matplotlib.figure.Figure()
    assert plot.chain(chain, figure=own) is own
    own.savefig(tmp_path / "chain.png")
    assert (tmp_path / "chain.png").stat().st_size > 1000
    ax = matplotlib.figure.Figure().add_subplot()
    assert plot.spectrum([1.0, 2.0], ax=ax) is ax


def test_no_global_state_of_matplotlib_changes():
    code = """if True:
        import sys, numpy, matplotlib
        before = matplotlib.rcParams.copy()
        import danaus.plot
        danaus.plot.chain(danaus.Chain.create("1,2,2,1"))
        danaus.plot.spectrum(numpy.ones(4))
        danaus.plot.training([{"step": 1, "loss": 2.0}])
        danaus.plot.error_against_parameters(numpy.eye(4))
        assert repr(matplotlib.rcParams.copy()) == repr(before)
        assert "matplotlib.pyplot" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_spectrum_is_the_transform_of_the_filter(rng):
    k = rng.standard_normal((2, 100))
    ax = plot.spectrum(k, labels=["one", "two"])
    for line, taps in zip(ax.lines, k):
        x, y = line.get_data()
        phases = np.exp(-2j * np.pi * np.outer(x, np.arange(100)))
        assert np.allclose(10 ** (y / 20), np.abs(phases @ taps), atol=1e-9)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["one", "two"]


def test_what_a_sparse_spectrum_leaves_out_is_grey(rng):
    ax = plot.spectrum(rng.standard_normal(300), axes=(4, 8), keep=(1, 2))
    grey, kept = (np.isfinite(line.get_ydata()) for line in ax.lines)
    assert grey.all() and kept.sum() / kept.size == 1 / 4 * 2 / 8
    assert ax.get_title() == "6.2% of the spectrum kept"


def test_errors_are_those_of_the_factorization(rng):
    matrix = rng.standard_normal((12, 18))
    ax = plot.error_against_parameters(matrix, ranks=[1, 2])
    lines = {line.get_label(): line for line in ax.lines if line.get_marker() == "o"}
    for kind in ("low-rank", "monarch"):
        share, error = lines[kind].get_data()
        for rank, x, y in zip((1, 2), share, error):
            patterns = danaus.patterns.make(kind, 12, 18, rank=rank)
            one = danaus.factorize(matrix, patterns)
            assert (x, y) == (one.parameters / matrix.size, one.error)
    tried = {"mine": ["1,12,2,1 1,2,18,1"]}
    assert plot.error_against_parameters(matrix, tried).lines[0].get_label() == "mine"


LOG = """step,loss,rate,gradient,seconds,held_out_loss,perplexity,right
2,3.5,0.1,1.0,0.25,,,
3,,,,0.5,3.25,25.79,
4,3.0,0.2,1.0,0.75,2.75,15.6,
"""


def test_a_training_is_drawn_from_its_log(tmp_path):
    (tmp_path / "log.csv").write_text(LOG)
    ax = plot.training(tmp_path / "log.csv")
    drawn = [tuple(map(list, line.get_data())) for line in ax.lines]
    assert drawn == [([2, 4], [3.5, 3.0]), ([3, 4], [3.25, 2.75])]
    rows = danaus.records.read(tmp_path / "log.csv")
    own = matplotlib.figure.Figure().add_subplot()
    assert plot.training(rows, rows[:1], labels="ab", x="seconds", ax=own) is own
    assert list(own.lines[0].get_xdata()) == [0.25, 0.75]
    names = [t.get_text() for t in own.get_legend().get_texts()]
    assert names == ["a", "a, held out", "b"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: plot.spectrum(np.zeros((2, 2, 2))), "finite numbers"),
        (lambda: plot.spectrum([np.nan]), "finite numbers"),
        (lambda: plot.training(), "0 logs"),
        (lambda: plot.training([{}], labels="ab"), "1 logs are there, and 2 labels"),
        (lambda: plot.training([{"step": 1}]), "log 0 has no losses"),
        (lambda: plot.training([{}], x="days"), "'step' or 'seconds'"),
        (lambda: plot.spectrum([1.0], keep=[1] * 5), "at most 4"),
        (lambda: plot.error_against_parameters(np.zeros(3)), "1 dimensions"),
        (lambda: plot.error_against_parameters(np.eye(6), ["dyadic"]), "dyadic|power"),
        (lambda: plot.error_against_parameters(np.eye(4), ranks=[]), "no rank"),
    ],
)
def test_bad_arguments_are_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_the_command_writes_a_picture(rng, tmp_path, capsys):
    from danaus.__main__ import main

    weights = [random_array(rng, p, "f4") for p in random_patterns(rng, 2)]
    path, picture = tmp_path / "chain.safetensors", tmp_path / "chain.png"
    danaus.Chain.from_weights(weights).save(path)
    assert main(["plot", str(path), "-o", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "2 factors" in capsys.readouterr().out
    assert main(["plot", str(path), "-o", str(tmp_path / "chain.what")]) == 1
    assert main(["plot", str(tmp_path / "none"), "-o", str(picture)]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err
    weights = [random_array(rng, p, "f4") for p in ((1, 6, 8, 1), (2, 3, 4, 1))]
    terms = [danaus.Chain.from_weights([w]) for w in weights]
    danaus.Operator.sum(terms).save(tmp_path / "sum.safetensors")
    assert main(["plot", str(tmp_path / "sum.safetensors"), "-o", str(picture)]) == 0
    assert (tmp_path / "chain-2.png").read_bytes().startswith(b"\x89PNG")
    command = [sys.executable, "-m", "danaus", "plot", str(path), "-o", str(picture)]
    assert subprocess.run([*command, "--factors"]).returncode == 0
