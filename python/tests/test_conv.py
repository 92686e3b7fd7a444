"""Long convolutions, few taps and streams against their definitions."""

# SPDX-License-Identifier: Apache-2.0
import gc
import threading

import numpy as np
import pytest
from conv_oracle import UNITS, Direct, random_case, stored, wide
from hypothesis import given, settings, strategies

import danaus
from danaus import ConvPlan, Stream, convolve, short_conv, short_conv_gradient
from danaus._library import ffi
from danaus.stream import run_in_place

KINDS = ("causal", "circular", "bidirectional")
DTYPES = ("f32", "f16", "bf16", "f64")


def expect_close(found, should, what, fast=False):
    """Within bounds; fast convolutions multiply in 16 bits."""
    value, bound = should
    if fast:
        bound = bound + 1e-2 * np.sqrt(np.mean(value**2))
    off = np.abs(wide(found) - value) - bound
    assert found.shape == value.shape, what
    assert np.all(off <= 0), f"{what} is off by {off.max():.3g} more than its bound"


def plan_of(case, **options) -> ConvPlan:
    filters, taps = case.k.shape
    return ConvPlan(
        *case.u.shape[-2:],
        taps=taps,
        filters=filters,
        kind=case.kind,
        dtype=case.dtype,
        **options,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_convolutions_and_gradients_are_their_definition(rng, device, kind, dtype):
    for _ in range(15 if device == "cpu" else 2):  # GPUs compile for each length
        case = random_case(rng, kind, dtype)
        direct = Direct(case)
        fast = device != "cpu" and dtype in ("f16", "bf16")
        spectrum = plan_of(case, device=device).spectrum(
            case.k, k_reverse=case.k_reverse, skip=case.skip
        )
        gates = {"gate_in": case.gate_in, "gate_out": case.gate_out}
        should = direct.results()
        y = spectrum(case.u, **gates)
        assert y.dtype == case.u.dtype
        expect_close(y, should["y"], "y", fast)
        gradients = spectrum.gradient(case.u, case.dy, **gates)._asdict()
        should |= direct.filter_gradients()
        for name in ("gate_in", "gate_out", "k_reverse", "skip"):
            given = getattr(case, name) is not None
            assert (gradients["d" + name] is not None) == given, name
        for name, array in gradients.items():
            if array is not None:
                expect_close(array, should[name], name, fast)


class Guarded:
    """NumPy, but arrays of `empty` lie between bytes that nobody may write to."""

    def __init__(self):
        self.blocks = []

    def __getattr__(self, name):
        return getattr(np, name)

    def empty(self, shape, dtype):
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self.blocks.append((np.full(size + 256, 0xA5, np.uint8), size))
        return self.blocks[-1][0][128 : 128 + size].view(dtype).reshape(shape)

    def expect_untouched(self):
        assert self.blocks
        for block, size in self.blocks:
            assert np.all(block[:128] == 0xA5) and np.all(block[128 + size :] == 0xA5)
        self.blocks.clear()


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_is_written_beside_the_results(rng, monkeypatch, dtype):
    guarded = Guarded()
    monkeypatch.setattr("danaus.conv.np", guarded)
    monkeypatch.setattr("danaus._conv_arguments.np", guarded)
    monkeypatch.setattr("danaus._exchange.np", guarded)
    monkeypatch.setattr("danaus.short.np", guarded)
    monkeypatch.setattr("danaus.stream.np", guarded)
    for kind in KINDS * 3:
        case = random_case(rng, kind, dtype)
        spectrum = plan_of(case).spectrum(
            case.k, k_reverse=case.k_reverse, skip=case.skip
        )
        gates = {"gate_in": case.gate_in, "gate_out": case.gate_out}
        spectrum(case.u, **gates)
        guarded.expect_untouched()
        spectrum.gradient(case.u, case.dy, **gates)
        guarded.expect_untouched()
        taps = np.ones((case.u.shape[-2], int(rng.integers(1, 9))))
        short_conv(case.u, taps, taps[:, 0], dtype=dtype)
        short_conv_gradient(case.u, taps, case.dy, dtype=dtype)
        guarded.expect_untouched()
        if dtype in ("f32", "f64"):
            stream = Stream(case.k, dtype=dtype)
            stream.run(np.ones((len(case.k), 200), case.u.dtype))
            guarded.expect_untouched()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_call_gives_the_bits_of_a_plan(rng, device, kind, dtype):
    case = random_case(rng, kind, dtype)
    options = {"k_reverse": case.k_reverse, "skip": case.skip}
    gates = {"gate_in": case.gate_in, "gate_out": case.gate_out}
    batch = int(np.prod(case.u.shape[:-2]))
    spectrum = plan_of(case, batch=batch, device=device).spectrum(case.k, **options)
    options |= {"kind": kind, "dtype": dtype, "device": device}
    y = convolve(case.u, case.k, **options, **gates)
    assert np.array_equal(y.view(np.uint8), spectrum(case.u, **gates).view(np.uint8))


def test_one_row_with_one_filter_needs_no_axes(rng):
    u, k = rng.standard_normal(40), rng.standard_normal(7)
    y = convolve(u, k, skip=0.5)
    assert np.allclose(y, np.convolve(u, k)[:40] + 0.5 * u, atol=1e-12)


def test_results_go_where_they_are_wanted(rng, device):
    u, k = rng.standard_normal((2, 3, 30)), rng.standard_normal((3, 30))
    spectrum = ConvPlan(3, 30, dtype="f64", device=device).spectrum(k)
    out = np.empty_like(u)
    assert spectrum(u, out=out) is out
    assert np.array_equal(out, spectrum(u))
    with pytest.raises(ValueError, match="out overlaps"):
        spectrum(u, out=u)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="writ"):
        spectrum(u, out=out)


def test_signals_in_mapped_files_and_of_no_rows_are_signals(rng, device, tmp_path):
    np.save(tmp_path / "u.npy", rng.standard_normal((2, 3, 30)))
    mapped = np.load(tmp_path / "u.npy", mmap_mode="r")
    plan = ConvPlan(3, 30, dtype="f64", device=device)
    spectrum = plan.spectrum(rng.standard_normal((3, 30)))
    y, gradients = spectrum(mapped), spectrum.gradient(mapped, mapped)
    assert type(y) is np.ndarray is type(gradients.du)
    assert np.array_equal(y, spectrum(np.array(mapped)))
    assert spectrum(mapped[:0]).shape == (0, 3, 30)
    with pytest.raises(ValueError, match="batch of at least 1"):
        spectrum.gradient(mapped[:0], mapped[:0])


def test_other_filters_take_effect_and_gradients_can_be_chosen(rng, device):
    u, k = rng.standard_normal((3, 30)), rng.standard_normal((2, 3, 30))
    spectrum = ConvPlan(3, 30, dtype="f64", device=device).spectrum(k[0])
    first = spectrum(u)
    spectrum.update(k[1])
    assert np.array_equal(spectrum(u), convolve(u, k[1], device=device))
    spectrum.update(k[0])
    assert np.array_equal(spectrum(u), first)
    some = spectrum.gradient(u, u, wrt=["k", "skip"])
    assert some.du is None and some.dk.shape == (3, 30) and some.dskip.shape == (3,)
    with pytest.raises(ValueError, match="wrt has gate_in, k_reverse; there are"):
        spectrum.gradient(u, u, wrt=["gate_in", "k_reverse"])


def sparse_oracle(k, k_reverse, u, axes, keep, n):
    """The filter's values at (f + 1/4) / n, without those outside of the box."""
    length, taps = u.shape[-1], k.shape[-1]
    window = np.zeros(2 * n)
    window[:taps] += k[:length]
    if k_reverse is not None:  # negative lags: Z^2n = -1
        window[2 * n - 1 - np.arange(taps)] -= k_reverse[:length]
    turn = np.exp(0.5j * np.pi * np.arange(n) / n)
    values = n * np.fft.ifft(turn * (window[:n] + 1j * window[n:]))
    rest = np.arange(n)
    for size, most in zip(axes, keep):
        values[rest % size >= most] = 0
        rest //= size
    row = np.zeros(2 * n)
    row[:length] = u
    product = values * (n * np.fft.ifft(turn * (row[:n] + 1j * row[n:])))
    return (np.fft.fft(product) / n / turn).real[:length]


@pytest.mark.parametrize("kind", ["causal", "bidirectional"])
def test_sparse_spectra_keep_a_box_of_the_frequencies(rng, device, kind):
    n, length, taps = 4096, 300, 40
    axes, keep = (4, 8, 2, 16), (2, 5, 2, 9)
    u, k = rng.standard_normal((1, length)), rng.standard_normal((1, taps))
    back = rng.standard_normal((1, taps)) if kind == "bidirectional" else None
    options = {"taps": taps, "kind": kind, "dtype": "f64", "device": device}
    plan = ConvPlan(1, length, axes=axes, keep=keep, **options)
    y = plan.spectrum(k, k_reverse=back)(u)
    filters = [k[0], None if back is None else back[0]]
    should = sparse_oracle(*filters, u[0], axes, keep, n)
    one = sum(np.abs(f).sum() for f in filters if f is not None)
    # Both sides err as a whole filter's transforms do (docs/conv.md, "Errors").
    bound = 2 * 3 * 5 * UNITS["f64"][0] * np.log2(n) * one * np.linalg.norm(u)
    assert np.abs(y[0] - should).max() <= bound
    whole = ConvPlan(1, length, **options)
    assert np.abs(whole.spectrum(k, k_reverse=back)(u)[0] - should).max() > 0.1


@pytest.mark.parametrize("kind", ["causal", "bidirectional"])
def test_gradients_of_sparse_spectra_move_across_the_dot_product(rng, device, kind):
    """<dy, k (*) u> is <du, u>, and <dk, k> + <dk_reverse, k_reverse>."""
    u, dy = rng.standard_normal((2, 3, 2, 500))
    k, back = rng.standard_normal((2, 2, 60))
    options = {"taps": 60, "axes": (4, 8), "keep": (3, 2), "device": device}
    plan = ConvPlan(2, 500, kind=kind, dtype="f64", **options)
    both = {"k_reverse": back} if kind == "bidirectional" else {}
    spectrum = plan.spectrum(k, **both)
    gradients = spectrum.gradient(u, dy)
    found = np.vdot(dy, spectrum(u))
    other = np.vdot(gradients.dk, k)
    if both:
        other += np.vdot(gradients.dk_reverse, back)
    # Both sides err as three transforms do, in each of six rows (docs/conv.md).
    sizes = np.abs(k).sum(axis=1).max() + np.abs(back).sum(axis=1).max()
    bound = (
        6 * 30 * UNITS["f64"][0] * 12 * sizes * np.linalg.norm(u) * np.linalg.norm(dy)
    )
    assert abs(found - np.vdot(gradients.du, u)) <= bound
    assert abs(found - other) <= bound
    assert abs(found) > 1e6 * bound


def test_plans_say_what_they_do():
    plan = ConvPlan(6, 1000, filters=2, taps=64, dtype="f16", batch=3)
    assert plan.describe().startswith("conv.fft.f16")
    assert "6 channels of 1000, 2 filters of 64, f16" in repr(plan)
    forward, gradient = plan.scratch_bytes(3)
    assert 0 < forward <= gradient
    longer = ConvPlan(6, 100000, dtype="f16")
    assert longer.scratch_bytes(3).gradient > gradient
    with pytest.raises(NotImplementedError):
        ConvPlan(6, 1000, effort="table", device="cpu:scalar")


def test_accurate_and_fast_plans(rng, device):
    """Fast ones where a device has them; all are right."""
    u, k = rng.standard_normal((2, 512)), rng.standard_normal((2, 512))
    u, exact = u.astype("f4"), None
    for accuracy in (None, "accurate", "by_type", "fast"):
        most = 2e-3 if accuracy == "fast" else 1e-6
        plan = ConvPlan(2, 512, accuracy=accuracy, device=device)
        y = plan.spectrum(k)(u)
        exact = convolve(u.astype("f8"), k) if exact is None else exact
        assert np.linalg.norm(y - exact) <= most * np.linalg.norm(exact)
    with pytest.raises(ValueError, match="accuracy has to be 'by_type'"):
        ConvPlan(2, 512, accuracy="exact")


def test_windows_beyond_a_block_of_threads(rng, device):
    """Columns and rows of a matrix on GPUs: every kind, with gates and gradients."""
    for number, kind in enumerate(KINDS):
        u, dy, gate_in, gate_out = rng.standard_normal((4, 1, 2, 9000 + 500 * number))
        k = rng.standard_normal((2, u.shape[-1])) / 100
        filters = {"skip": rng.standard_normal(2)}
        if kind == "bidirectional":
            filters["k_reverse"] = rng.standard_normal(k.shape) / 100
        gates = {"gate_in": gate_in, "gate_out": gate_out}
        found = []
        for place in ("cpu", device):
            plan = ConvPlan(*u.shape[-2:], kind=kind, dtype="f64", device=place)
            spectrum = plan.spectrum(k, **filters)
            found.append((spectrum(u, **gates), *spectrum.gradient(u, dy, **gates)))
        for a, b in zip(*found):
            assert (a is None) == (b is None)
            if a is not None:
                assert np.abs(a - b).max() <= 1e-12 * np.linalg.norm(a)


def test_measured_plans_give_results(rng, device):
    u, k = rng.standard_normal((4, 500)), rng.standard_normal((4, 500))
    plan = ConvPlan(4, 500, dtype="f64", effort="measure", device=device)
    assert "as measured" in plan.describe()
    assert np.allclose(plan.spectrum(k)(u), convolve(u, k), atol=1e-11)


def test_a_plan_outlives_the_thread_that_made_it(rng):
    made, u = [], rng.standard_normal((2, 64))
    k = rng.standard_normal((2, 64))

    def make():
        made.append(ConvPlan(2, 64, dtype="f64").spectrum(k))
        made.append(Stream(k))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    gc.collect()
    assert np.array_equal(made[0](u), convolve(u, k))
    assert np.allclose(made[1].run(u), convolve(u, k), atol=1e-12)


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"u": ["a", "b"]}, TypeError, "not an element type"),
        ({"u": np.zeros((3, 4), "g")}, TypeError, "not an element type"),
        ({"u": np.zeros((3, 4), "O")}, TypeError, "object is not an element type"),
        ({"u": np.float64(1)}, ValueError, r"u has the shape \(\)"),
        ({"k": np.zeros((0, 3))}, ValueError, "k is not empty"),
        ({"k": np.zeros((2, 4))}, ValueError, "filters"),
        ({"k": np.zeros((2, 2, 3))}, ValueError, r"\[filters, taps\]"),
        ({"k": np.zeros((3, 4), "c8")}, TypeError, "complex numbers"),
        ({"k_reverse": np.zeros((3, 4))}, ValueError, "take no k_reverse"),
        ({"kind": "bidirectional"}, ValueError, "need k_reverse"),
        ({"kind": "linear"}, ValueError, "kind has to be 'causal'"),
        ({"skip": np.zeros(4)}, ValueError, r"skip has shape \(4,\)"),
        ({"gate_in": np.zeros((3, 5))}, ValueError, "gate_in"),
        ({"gate_out": np.zeros((3, 4), "f4")}, TypeError, "gate_out has dtype"),
        ({"device": "gpu"}, ValueError, "gpu"),
    ],
)
def test_bad_arguments_are_named(change, error, sentence):
    arguments = {"u": np.zeros((3, 4)), "k": np.zeros((3, 4))} | change
    with pytest.raises(error, match=sentence):
        convolve(**arguments)


SIZE = strategies.one_of(
    strategies.integers(-3, 40),
    strategies.sampled_from([2**31, 2**63 - 1, 2**63, 2**70, 1.5, None, "x"]),
)
SIZES = strategies.one_of(strategies.none(), strategies.lists(SIZE, max_size=5))
WORD = strategies.sampled_from([*KINDS, *DTYPES, "measure", "c64", "", None, 3])


@settings(deadline=None, max_examples=150)
@given(SIZE, SIZE, SIZE, SIZE, WORD, WORD, WORD, SIZE, SIZES, SIZES)
def test_no_argument_of_a_plan_crashes(
    channels, length, taps, filters, kind, dtype, effort, batch, axes, keep
):
    options = {"kind": kind, "dtype": dtype, "effort": effort, "batch": batch}
    try:
        plan = ConvPlan(
            channels,
            length,
            taps=taps,
            filters=filters,
            axes=axes,
            keep=keep,
            **options,
        )
        plan.scratch_bytes(batch)
    except (ValueError, TypeError, NotImplementedError, MemoryError) as error:
        assert str(error)


ARRAY = strategies.builds(
    lambda shape, dtype, order: np.zeros(shape, dtype, order),
    strategies.lists(strategies.integers(0, 3), max_size=4),
    strategies.sampled_from("f2 f4 f8 >f4 c8 i8 u2 ? O U1".split()),
    strategies.sampled_from("CF"),
)
ANY = strategies.one_of(ARRAY, strategies.none(), strategies.just([1, [2]]), SIZE)


@settings(deadline=None, max_examples=300)
@given(ANY, ANY, ANY, ANY, ANY, strategies.booleans())
def test_no_array_crashes(u, k, other, gate, dy, last):
    plan = ConvPlan(2, 3, taps=3, dtype="f32")
    spectrum = plan.spectrum(np.zeros((2, 3)))
    calls = [
        lambda: spectrum(u, gate_in=gate, out=dy),
        lambda: spectrum.gradient(u, dy, gate_out=gate),
        lambda: spectrum.update(k, skip=other),
        lambda: convolve(u, k, k_reverse=other, gate_in=gate),
        lambda: short_conv(u, k, other, channels_last=last, out=dy),
        lambda: short_conv_gradient(u, k, dy, channels_last=last),
        lambda: Stream(k, channels=2).run(u),
    ]
    for call in calls:
        try:
            call()
        except (ValueError, TypeError, NotImplementedError, MemoryError) as error:
            assert str(error)


# ---- few taps ----


def short_direct(u, k, bias, centred):
    """y[t] = bias + sum over s of k[s] u[t + shift - s], and the sum of magnitudes."""
    length, taps = u.shape[-1], k.shape[-1]
    shift = (taps - 1) // 2 if centred else 0
    t, s = np.ogrid[:length, :length]
    lag = t + shift - s
    inside = (lag >= 0) & (lag < taps)
    g = np.where(inside, k[:, np.clip(lag, 0, taps - 1)], 0)
    y = np.einsum("hts,...hs->...ht", g, u) + bias[:, None]
    sizes = np.einsum("hts,...hs->...ht", np.abs(g), np.abs(u)) + np.abs(bias)[:, None]
    return y, sizes, g, np.where(inside, lag, -1)


def last(array, wanted):
    return np.ascontiguousarray(np.swapaxes(array, -1, -2)) if wanted else array


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_few_taps_are_their_definition(rng, device, dtype, channels_last):
    unit, storage, tiny = UNITS[dtype]
    sums = "f64" if dtype == "f64" else "f32"
    for _ in range(15 if device == "cpu" else 4):  # GPUs compile for many taps
        channels, length, taps = (int(n) for n in rng.integers(1, (6, 50, 12)))
        shape = (*rng.integers(1, 3, rng.integers(0, 3)), channels, length)
        u, dy = (stored(rng.uniform(-1, 1, shape), dtype) for _ in range(2))
        k = stored(rng.uniform(-1, 1, (channels, taps)), sums)
        bias = stored(rng.uniform(-1, 1, channels), sums)
        options = {"centred": bool(rng.integers(2)), "channels_last": channels_last}
        options |= {"dtype": dtype, "device": device}
        numbers = [wide(x) for x in (u, k, bias)]
        y, sizes, g, lag = short_direct(*numbers, options["centred"])
        bound = 2 * (taps + 2) * unit * sizes + storage * np.abs(y) + tiny
        found = short_conv(last(u, channels_last), k, bias, **options)
        expect_close(last(found, channels_last), (y, bound), "y")
        du, dk, dbias = short_conv_gradient(
            last(u, channels_last), k, last(dy, channels_last), **options
        )
        should = np.einsum("hts,...ht->...hs", g, wide(dy))
        sizes = np.einsum("hts,...ht->...hs", np.abs(g), np.abs(wide(dy)))
        bound = 2 * (taps + 2) * unit * sizes
        bound += storage * np.abs(should) + tiny
        expect_close(last(du, channels_last), (should, bound), "du")
        rows = [wide(x).reshape(-1, channels, length) for x in (dy, u)]
        pairs = np.einsum("bht,bhs->hts", *rows)
        should = np.stack([pairs[:, lag == s].sum(-1) for s in range(taps)], -1)
        terms = 2 * (np.prod(shape) + 2) * unit
        most = np.einsum("bht,bhs->hts", *map(np.abs, rows))
        bound = terms * np.stack([most[:, lag == s].sum(-1) for s in range(taps)], -1)
        expect_close(dk, (should, bound + tiny), "dk")
        axes = tuple(i for i in range(len(shape)) if i != len(shape) - 2)
        should = wide(dy).sum(axis=axes)
        expect_close(dbias, (should, terms * np.abs(wide(dy)).sum(axis=axes)), "dbias")


def test_few_taps_make_only_the_gradients_that_are_wanted(rng):
    u, k = rng.standard_normal((3, 20)), rng.standard_normal((3, 4))
    found = short_conv_gradient(u, k, u, wrt="bias")
    assert found.du is None and found.dk is None
    assert np.allclose(found.dbias, u.sum(axis=1))
    with pytest.raises(ValueError, match='wrt holds names among "u"'):
        short_conv_gradient(u, k, u, wrt=["taps"])
    with pytest.raises(ValueError, match="129"):
        short_conv(u, np.zeros((3, 129)))


# ---- streams ----


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_streams_give_the_same_bits_in_any_blocks(rng, device, dtype):
    channels, filters, taps, length = 4, 2, 900, 3000
    k = stored(rng.uniform(-1, 1, (filters, taps)), dtype)
    u = stored(rng.uniform(-1, 1, (channels, length)), dtype)
    stream = Stream(k, channels=channels, device=device)
    once = stream.run(u)
    for _ in range(3):
        stream.reset()
        cuts = np.sort(rng.integers(0, length + 1, 40))
        blocks = np.split(u, cuts, axis=1)
        parts = [stream.run(np.ascontiguousarray(block)) for block in blocks]
        assert np.array_equal(np.concatenate(parts, axis=1), once)
    row_k = np.repeat(wide(k), channels // filters, axis=0)
    should = np.stack([np.convolve(a, b)[:length] for a, b in zip(wide(u), row_k)])
    t = 5 * UNITS[dtype][0] * 16
    norm = np.sqrt(length)
    bound = (3 * t * taps**0.5 + 2 * t * taps) * norm
    expect_close(once, (should, np.full_like(should, bound)), "y")
    assert np.abs(wide(once) - should).max() < 1e-6 * np.abs(should).max() * norm


def test_blocks_may_lie_in_memory_of_the_device(rng, device):
    k, u = rng.standard_normal((2, 300)), rng.standard_normal((4, 500))
    stream, y = Stream(k, channels=4, device=device), np.empty_like(u)
    once = stream.run(u)
    stream.reset()
    with danaus.Device(device).operands([u], [y]) as (_, (source,), (target,)):
        places = (int(ffi.cast("uintptr_t", place)) for place in (source, target))
        run_in_place(stream, u.shape[1], *places)
    assert np.array_equal(y, once)


def test_filters_of_a_stream_are_replaced_without_a_click(rng):
    u, k, other = (rng.standard_normal(size) for size in (300, 30, 50))
    stream = Stream(k)
    parts = [stream.run(u[:100].copy())]
    stream.replace(other, fade=49)
    parts.append(stream.run(u[100:].copy()))
    share = np.clip((np.arange(300) - 99) / 50, 0, 1)
    wanted = np.convolve((1 - share) * u, k)[:300] + np.convolve(share * u, other)[:300]
    assert np.allclose(np.concatenate(parts), wanted, atol=1e-12)
    for wrong, sentence in (((np.ones((2, 3)),), "2 filters"), ((k, -1), "fade")):
        with pytest.raises(ValueError, match=sentence):
            stream.replace(*wrong)


def test_a_stream_of_one_channel_takes_plain_rows(rng):
    u, k = rng.standard_normal(100), rng.standard_normal(30)
    stream = Stream(k)
    parts = [stream.run(u[:64].copy()), stream.run(u[64:64]), stream.run(u[64:].copy())]
    assert np.allclose(np.concatenate(parts), np.convolve(u, k)[:100], atol=1e-12)
    stream.reset()
    out = np.empty(100)
    assert stream.run(u, out) is out and np.array_equal(out[:64], parts[0])
    with pytest.raises(ValueError, match="out overlaps"):
        stream.run(u, u)
    with pytest.raises(ValueError, match=r"\[1\]\[count\]"):
        stream.run(np.zeros((2, 5)))
    with pytest.raises(TypeError, match="u has dtype float32"):
        stream.run(np.zeros(5, "f4"))


def test_a_stream_may_be_shared_by_threads(rng):
    k = rng.standard_normal((1, 300))
    stream, u = Stream(k), np.ones((1, 50))
    threads = [threading.Thread(target=stream.run, args=(u,)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = np.ones((1, 2050))
    should = convolve(again, k)[:, 2000:]
    assert np.allclose(stream.run(u), should, atol=1e-10)
