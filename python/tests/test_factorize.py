"""Factorization through Python: every option, certified errors, progress."""
# SPDX-License-Identifier: Apache-2.0
import _thread
import signal
import threading

import numpy as np
import pytest

import danaus
from conftest import dense_chain, random_array

MONARCH = "1,8,4,4 4,4,8,1"  # 32 x 32


def relative(matrix, wanted):
    return np.linalg.norm(matrix - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize("dtype", ["f4", "f8", "F", "D"])
def test_a_product_of_factors_is_found_again(rng, dtype):
    patterns = danaus.patterns.parse(MONARCH)
    dense = dense_chain([random_array(rng, p, dtype) for p in patterns])
    found = danaus.factorize(dense.astype(dtype), patterns)
    tolerance = 1e-5 if dtype in "f4F" else 1e-12
    assert relative(dense_chain(found.chain.weights), dense) <= tolerance
    assert found.error <= tolerance and found.parameters == found.chain.parameters
    assert found.chain.dtype == np.dtype(dtype) and found.seconds > 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order": "left"},
        {"order": "right"},
        {"order": "balanced"},
        {"fast": True},
        {"refine": 3},
        {"square_roots": True},
        {"threads": 1},
    ],
)
def test_errors_are_those_of_the_chain(rng, options):
    dense = rng.standard_normal((32, 32))
    found = danaus.factorize(dense, MONARCH, **options)
    error = relative(dense_chain(found.chain.weights), dense)
    assert found.error == pytest.approx(error, rel=1e-9)
    assert found.dense_error == pytest.approx(error, rel=1e-9)
    assert found.off_support <= error <= found.upper_bound * (1 + 1e-9)
    if "fast" in options or "square_roots" in options:
        assert found.lower_bound is None
    else:
        assert 0 < found.lower_bound <= error * (1 + 1e-9)


def layer(rng):
    """A dense layer, inputs that lie near a few directions, and noisy targets."""
    dense = rng.standard_normal((32, 32))
    inputs = rng.standard_normal((200, 6)) @ rng.standard_normal((6, 32))
    inputs += 0.1 * rng.standard_normal((200, 32)) + 1
    targets = inputs @ dense.T + 0.3 + 0.1 * rng.standard_normal((200, 32))
    return dense, inputs, targets


def test_calibration_serves_the_inputs_better(rng):
    dense, inputs, _ = layer(rng)
    plain = danaus.factorize(dense, MONARCH)
    found = danaus.factorize(dense, MONARCH, inputs=inputs)
    wanted = inputs @ dense.T
    assert found.error == pytest.approx(relative((found.chain @ inputs.T).T, wanted))
    assert found.error < 0.7 * relative((plain.chain @ inputs.T).T, wanted)


def test_targets_are_fitted_with_a_bias(rng):
    dense, inputs, targets = layer(rng)
    fitted = danaus.factorize(
        dense, MONARCH, inputs=inputs, targets=targets, bias=True, ridge=1e-3
    )
    error = relative(danaus.apply(fitted.chain, inputs), targets)
    assert fitted.error == pytest.approx(error)
    without = danaus.factorize(dense, MONARCH, inputs=inputs, targets=targets)
    assert without.chain.bias is None and fitted.error < without.error
    residual = (targets - danaus.apply(fitted.chain, inputs)).mean(0)
    assert np.abs(residual).max() < 1e-9


@pytest.mark.parametrize("kind", ["f8", "D"])
def test_sums_stand_for_inputs_and_targets(rng, kind):
    dense = random_array(rng, (32, 32), kind)
    inputs = random_array(rng, (90, 32), kind)
    targets = random_array(rng, (90, 32), kind) + inputs @ dense.T
    halves = [
        danaus.Calibration.of(inputs[s], targets[s])
        for s in (slice(0, 40), slice(40, 90))
    ]
    a = danaus.factorize(dense, MONARCH, calibration=sum(halves[1:], halves[0]))
    b = danaus.factorize(dense, MONARCH, inputs=inputs, targets=targets)
    assert a.error == pytest.approx(b.error, rel=1e-6)
    assert relative(a.chain.to_dense(), b.chain.to_dense()) < 1e-5


def test_progress_grows_to_one(rng):
    shares = []
    danaus.factorize(rng.standard_normal((32, 32)), MONARCH, progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == 1


def test_a_bar_is_drawn(rng, capfd):
    danaus.factorize(rng.standard_normal((32, 32)), MONARCH, progress=True)
    assert "100%" in capfd.readouterr().err


class Stop(Exception):
    pass


@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt, SystemExit, RuntimeError])
def test_what_progress_raises_is_raised(rng, error):
    def stop(done):
        raise error("enough")

    with pytest.raises(error, match="enough"):
        danaus.factorize(rng.standard_normal((32, 32)), MONARCH, progress=stop)


def test_ctrl_c_gives_up(rng):
    dense = rng.standard_normal((32, 32))
    # A shell starts what runs beside it with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):  # without it: hours
        danaus.factorize(dense, MONARCH, refine=2**31 - 1)
    timer.join()
    signal.signal(signal.SIGINT, before)


def test_nan_is_named(rng):
    dense = rng.standard_normal((32, 32))
    dense[3, 5] = np.nan
    with pytest.raises(ValueError, match="row 3|\\[3\\]|3, 5"):
        danaus.factorize(dense, MONARCH)


def test_other_layouts_and_types_of_a_matrix_are_converted(rng):
    dense = np.round(10 * rng.standard_normal((32, 32)))
    wanted = danaus.factorize(dense, MONARCH).chain.weights
    for form in (np.asfortranarray(dense), dense.astype(int), dense.astype(">f8")):
        got = danaus.factorize(form, MONARCH).chain.weights
        assert all((a == b).all() for a, b in zip(got, wanted))
