"""Planes, centres, modes and filters for each sample, against SciPy in f64."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from scipy import ndimage, signal

from danaus import ConvPlan, convolve

EPS = {"f4": 2.0**-24, "f8": 2.0**-53}


def expect_close(y, wanted, u, k, dtype):
    """The bound of a transform (docs/conv.md, "Errors"), for whole arrays at once."""
    assert y.shape == wanted.shape and y.dtype == dtype
    log = np.log2(16 * (np.prod(u.shape) + np.prod(k.shape)) + 1024)
    bound = 20 * EPS[dtype] * log * np.abs(k).sum() * np.linalg.norm(u) + 1e-30
    assert np.abs(y - wanted).max(initial=0) <= bound


def arrays(rng, dtype, *shapes):
    return [rng.uniform(-1, 1, shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("mode", ("full", "same", "valid"))
@pytest.mark.parametrize("axes", (1, 2))
def test_modes_are_those_of_scipy(rng, axes, mode, dtype):
    for _ in range(20):
        row, taps = rng.integers(1, 30, axes), rng.integers(1, 30, axes)
        if mode == "valid" and rng.random() < 0.5:
            row, taps = np.maximum(row, taps), np.minimum(row, taps)
        u, k = arrays(rng, dtype, row, taps)
        order = np.sign(row - taps)
        if mode == "valid" and -1 in order and 1 in order:
            with pytest.raises(ValueError, match="no valid results"):
                convolve(u, k, axes=axes, mode=mode)
            continue
        y = convolve(u, k, axes=axes, mode=mode)
        wanted = signal.convolve(u.astype("f8"), k.astype("f8"), mode)
        expect_close(y, wanted, u, k, dtype)


@pytest.mark.parametrize("dtype", EPS)
def test_planes_of_channels_with_any_centre(rng, dtype):
    for _ in range(20):
        filters, share = rng.integers(1, 4, 2)
        row, taps = rng.integers(1, 20, 2), rng.integers(1, 25, 2)
        centre = tuple(int(rng.integers(0, size)) for size in taps)
        u, k = arrays(rng, dtype, (2, filters * share, *row), (filters, *taps))
        for kind, exact in (("centred", centred), ("circular", circular)):
            y = convolve(u, k, axes=2, kind=kind, centre=centre)
            expect_close(y, exact(u, k, centre), u, k, dtype)


def centred(u, k, centre):
    """Every plane, cut out of its full convolution."""
    share = u.shape[1] // k.shape[0]
    y = np.empty(u.shape)
    for index in np.ndindex(u.shape[:2]):
        all_of_it = signal.convolve(u[index].astype("f8"), k[index[1] // share], "full")
        down, across = (slice(c, c + n) for c, n in zip(centre, u.shape[2:]))
        y[index] = all_of_it[down, across]
    return y


def circular(u, k, centre):
    """By transforms of NumPy, with filters wrapped onto the plane."""
    height, width = u.shape[2:]
    wrapped = np.zeros((k.shape[0], height, width))
    for down, across in np.ndindex(k.shape[1:]):
        row, column = (down - centre[0]) % height, (across - centre[1]) % width
        wrapped[:, row, column] += k[:, down, across]
    share = u.shape[1] // k.shape[0]
    spectrum = np.fft.fft2(np.repeat(wrapped, share, 0))
    return np.fft.ifft2(np.fft.fft2(u) * spectrum).real


def test_small_filters_are_those_of_ndimage(rng):
    u, k = arrays(rng, "f8", (33, 47), (3, 5))
    for kind, mode in (("centred", "constant"), ("circular", "wrap")):
        y = convolve(u, k, axes=2, kind=kind, centre=(1, 2))
        assert np.allclose(y, ndimage.convolve(u, k, mode=mode), atol=1e-12)


def test_rows_take_a_centre(rng):
    u, k = arrays(rng, "f8", (2, 50), (2, 9))
    for centre in range(9):
        y = convolve(u, k, kind="centred", centre=centre)
        wanted = [np.convolve(a, b)[centre : centre + 50] for a, b in zip(u, k)]
        assert np.allclose(y, wanted, atol=1e-12)
        y = convolve(u, k, kind="circular", centre=centre)
        turned = np.roll(convolve(u, k, kind="circular"), -centre, -1)
        assert np.allclose(y, turned, atol=1e-12)


@pytest.mark.parametrize("axes", (1, 2))
@pytest.mark.parametrize(
    "batch, filters", [((3,), (3,)), ((2, 3), (2, 1)), ((), (4,)), ((2, 1), (3,))]
)
def test_samples_have_filters_of_their_own(rng, axes, batch, filters):
    row, taps = (13, 11)[:axes], (4, 6)[:axes]
    u, gate = arrays(rng, "f8", (*batch, 4, *row), (*batch, 4, *row))
    k, skip = arrays(rng, "f8", (*filters, 2, *taps), (*filters, 2))
    y = convolve(u, k, axes=axes, batched=True, skip=skip, gate_in=gate)
    every = np.broadcast_shapes(batch, filters)
    assert y.shape == (*every, 4, *row)
    spread = [
        np.broadcast_to(x, every + x.shape[x.ndim - own :])
        for x, own in ((u, 1 + axes), (gate, 1 + axes), (k, 1 + axes), (skip, 1))
    ]
    for at in np.ndindex(every):
        own, gate_in, taps_of, skip_of = (x[at] for x in spread)
        options = {"axes": axes, "skip": skip_of, "gate_in": gate_in}
        assert np.allclose(y[at], convolve(own, taps_of, **options), atol=1e-12)


def test_one_channel_meets_every_filter(rng):
    u, k = arrays(rng, "f8", (5, 1, 40), (5, 3, 7))
    y = convolve(u, k, batched=True, mode="full")
    assert y.shape == (5, 3, 46)
    for sample, filter in np.ndindex(5, 3):
        wanted = np.convolve(u[sample, 0], k[sample, filter])
        assert np.allclose(y[sample, filter], wanted, atol=1e-12)


def test_gradients_of_planes_are_adjoint(rng):
    plan = ConvPlan(
        4, (9, 14), taps=(5, 20), filters=2, kind="centred", centre=(2, 9), dtype="f64"
    )
    u, dy, k = arrays(rng, "f8", (3, 4, 9, 14), (3, 4, 9, 14), (2, 5, 20))
    spectrum = plan.spectrum(k)
    g = spectrum.gradient(u, dy)
    assert g.du.shape == u.shape and g.dk.shape == k.shape
    product = np.vdot(spectrum(u), dy)
    assert np.isclose(np.vdot(u, g.du), product)
    assert np.isclose(np.vdot(k, g.dk), product)
    assert "4 channels of 9 x 14, 2 filters of 5 x 20" in repr(plan)
    assert plan.length == (9, 14) and plan.taps == (5, 20)


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"axes": 3}, "axes has to be 1"),
        ({"axes": 2, "k": np.ones(3)}, "height, width"),
        ({"axes": 2, "k": np.ones((0, 3))}, "not empty"),
        ({"mode": "some"}, "mode"),
        ({"mode": "same", "kind": "circular"}, "takes the place of kind"),
        ({"mode": "full", "skip": 1.0}, "not like u"),
        ({"axes": 2, "kind": "centred", "centre": (3, 0)}, "no place of a filter"),
        ({"axes": 2, "kind": "centred", "centre": 1}, "down, across"),
        ({"axes": 2, "centre": (1, 1)}, "only centred and circular"),
        ({"kind": "centred", "centre": -1}, "centre has to be"),
        ({"axes": 2, "kind": "bidirectional", "k_reverse": np.ones((3, 3))}, "planes"),
        ({"batched": True, "k": np.ones((2, 1, 3)), "u": np.ones((3, 1, 8))}, "broad"),
    ],
)
def test_bad_arguments_are_named(change, sentence):
    arguments = {"u": np.ones((8, 8)), "k": np.ones((3, 3))} | change
    with pytest.raises((ValueError, RuntimeError), match=sentence):
        convolve(**arguments)


def test_planes_that_are_too_large_are_refused():
    with pytest.raises(ValueError, match="planes of 40000 x 40000"):
        ConvPlan(1, (40000, 40000))
    assert convolve(np.ones((3, 0, 5)), np.ones((3, 2, 2)), axes=2).shape == (3, 0, 5)
