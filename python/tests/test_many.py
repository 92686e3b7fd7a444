"""A checkpoint's matrices become chain files, whatever happens on the way."""

# SPDX-License-Identifier: Apache-2.0
import json
import multiprocessing
import threading
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies

import danaus
from danaus import factorize_many, load_chains, records
from danaus._files import Tensors, write_tensors

PATTERNS = "1,4,3,3 3,3,5,1"  # 12 x 15


def checkpoint(rng, count=5):
    """Matrices of 12 x 15 with names of all kinds, and things that are none."""
    names = [f"layers.{i}/w" for i in range(count - 2)] + ["../up", "ü %2F"]
    matrices = {name: rng.standard_normal((12, 15)).astype("f4") for name in names}
    return matrices | {"norm": np.ones(15, "f4"), "empty": np.ones((0, 3), "f4")}


def statuses(found):
    return [record["status"] for record in found]


def expect_chains(chains, matrices, patterns=PATTERNS):
    """Each chain is what `factorize` makes of its matrix."""
    wanted = {n: m for n, m in matrices.items() if m.ndim == 2 and m.size}
    assert set(chains) == set(wanted)
    for name, matrix in wanted.items():
        should = danaus.factorize(matrix.astype("f4"), patterns, threads=1).chain
        for one, other in zip(chains[name].weights, should.weights):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("out", ["chains", "chains.safetensors"])
def test_every_matrix_gets_its_chain_and_a_record(rng, tmp_path, out):
    matrices = checkpoint(rng)
    found = factorize_many(matrices, tmp_path / out, PATTERNS)
    assert [record["name"] for record in found] == list(matrices)
    assert statuses(found) == ["done"] * 5 + ["passed over"] * 2
    expect_chains(load_chains(tmp_path / out), matrices)
    for record in found[:5]:
        one = danaus.factorize(matrices[record["name"]], PATTERNS)
        assert record["error"] == pytest.approx(one.error, rel=1e-6)
        assert record["lower_bound"] <= record["error"] <= record["upper_bound"]
        assert record["parameters"] == one.parameters
        assert record["share"] == one.parameters / 180
        assert record["patterns"] == PATTERNS and record["seconds"] > 0
    report = tmp_path / ("chains/report.csv" if out == "chains" else "chains.csv")
    read = records.read(report)
    assert [r["status"] for r in read] == statuses(found)
    assert read[0]["error"] == found[0]["error"]
    assert {p.name for p in tmp_path.iterdir()} <= {out, "chains.csv"}


@pytest.mark.parametrize("out", ["chains", "chains.safetensors"])
def test_a_second_call_does_only_what_is_missing(rng, tmp_path, out):
    matrices, made = checkpoint(rng), []
    first = factorize_many(matrices, tmp_path / out, PATTERNS)
    changed = matrices | {"../up": matrices["../up"] + 1, "new": matrices["../up"]}
    again = factorize_many(changed, tmp_path / out, PATTERNS, progress=made.append)
    assert statuses(again) == ["kept"] * 3 + ["done", "kept"] + ["passed over"] * 2 + [
        "done"
    ]
    assert [r["name"] for r in made] == list(changed)
    assert again[0]["error"] == first[0]["error"]
    expect_chains(load_chains(tmp_path / out), changed)
    for options in ({"refine": 1}, {"dtype": "f16"}, {"overwrite": True}):
        found = factorize_many(changed, tmp_path / out, PATTERNS, **options)
        assert "kept" not in statuses(found)
    once = factorize_many(changed, tmp_path / out, PATTERNS, threads=2)
    assert statuses(once).count("kept") == 6  # what the last call made


@pytest.mark.parametrize("out", ["chains", "chains.safetensors"])
@pytest.mark.parametrize("after", [1, 3])
def test_a_call_that_was_interrupted_goes_on_where_it_was(rng, tmp_path, out, after):
    matrices, seen = checkpoint(rng), []

    def stop(record):
        seen.append(record)
        if len(seen) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        factorize_many(matrices, tmp_path / out, PATTERNS, progress=stop)
    report = tmp_path / ("chains/report.csv" if out == "chains" else "chains.csv")
    assert len(records.read(report)) == after
    found = factorize_many(matrices, tmp_path / out, PATTERNS)
    assert statuses(found)[:5] == ["kept"] * after + ["done"] * (5 - after)
    expect_chains(load_chains(tmp_path / out), matrices)


def test_damaged_and_foreign_files_are_made_again(rng, tmp_path):
    matrices, out = checkpoint(rng), tmp_path / "chains"
    factorize_many(matrices, out, PATTERNS)
    files = sorted(out.glob("*.safetensors"))
    files[0].write_bytes(files[0].read_bytes()[:-1])
    files[1].write_bytes(b"")
    chain = danaus.Chain.load(files[2])
    chain.save(files[2])  # the same chain, but nothing says of what
    found = factorize_many(matrices, out, PATTERNS)
    assert statuses(found).count("done") == 3 and statuses(found).count("kept") == 2
    expect_chains(load_chains(out), matrices)
    one = tmp_path / "chains.safetensors"
    for content in (b"", b"{}", files[2].read_bytes()):
        one.write_bytes(content)
        assert statuses(factorize_many(matrices, one, PATTERNS)).count("done") == 5
    expect_chains(load_chains(one), matrices)


def test_one_failing_matrix_does_not_stop_the_others(rng, tmp_path):
    matrices = checkpoint(rng)
    matrices["layers.1/w"][3, 4] = np.nan
    matrices["../up"] = np.ones((12, 16), "f4")
    matrices["words"] = np.full((12, 15), "word")
    found = factorize_many(matrices, tmp_path / "chains", PATTERNS)
    by_name = {record["name"]: record for record in found}
    assert statuses(found).count("failed") == 3 and statuses(found).count("done") == 3
    assert by_name["layers.1/w"]["message"].startswith("ValueError: ")
    assert "12 x 16" in by_name["../up"]["message"]
    assert "TypeError" in by_name["words"]["message"]
    assert by_name["layers.1/w"]["rows"] == 12
    pairs = [("a", matrices["layers.0/w"]), ("a", matrices["layers.2/w"]), (3, [[1.0]])]
    found = factorize_many(iter(pairs), tmp_path / "pairs.safetensors", PATTERNS)
    assert statuses(found) == ["done", "failed", "failed"]
    assert "twice" in found[1]["message"] and "string" in found[2]["message"]
    expect_chains(load_chains(tmp_path / "pairs.safetensors"), dict(pairs[:1]))


def test_a_failure_does_not_leave_the_old_chain_in_the_file(rng, tmp_path):
    matrices, out = checkpoint(rng), tmp_path / "chains.safetensors"
    factorize_many(matrices, out, PATTERNS)
    matrices["../up"] = np.full((12, 15), np.inf)
    factorize_many({"../up": matrices["../up"]}, out, PATTERNS)
    del matrices["../up"]
    expect_chains(load_chains(out), matrices)  # others are as they were


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_pool_of_processes_makes_the_same_files(rng, tmp_path, method):
    matrices = checkpoint(rng, 8)
    factorize_many(matrices, tmp_path / "here", PATTERNS)
    matrices["layers.3/w"][0, 0] = np.inf
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        found = factorize_many(matrices, tmp_path / "pool", PATTERNS, executor=pool)
    assert (
        statuses(found)
        == ["done"] * 3 + ["failed"] + ["done"] * 4 + ["passed over"] * 2
    )
    for path in (tmp_path / "pool").glob("*.safetensors"):
        one, other = Tensors(path), Tensors(tmp_path / "here" / path.name)
        assert all(np.array_equal(one[key], other[key]) for key in one)
    assert len(load_chains(tmp_path / "pool")) == 7


def test_matrices_of_a_pool_that_broke_are_reported(rng, tmp_path):
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        pool.submit(int).result()
        for process in pool._processes.values():
            process.kill()
        matrices = checkpoint(rng)
        found = factorize_many(matrices, tmp_path / "chains", PATTERNS, executor=pool)
    assert statuses(found)[:5] == ["failed"] * 5
    assert "BrokenProcessPool" in found[0]["message"]


class Client:
    """No concurrent.futures.Executor, but with what Dask's client has of one."""

    def __init__(self):
        self.most = self.running = 0
        self.waiting = []

    def submit(self, function, task):
        future = Future()
        self.running += 1
        self.most = max(self.most, self.running)
        thread = threading.Thread(target=self.work, args=(future, function, task))
        thread.start()
        return future

    def work(self, future, function, task):
        result = function(task)
        self.running -= 1
        future.set_result(result)


def test_anything_with_submit_is_an_executor_and_few_matrices_wait(rng, tmp_path):
    matrices, client = checkpoint(rng, 20), Client()
    options = {"executor": client, "in_flight": 3}
    found = factorize_many(matrices, tmp_path / "chains", PATTERNS, **options)
    assert statuses(found).count("done") == 20 and client.most <= 3
    expect_chains(load_chains(tmp_path / "chains"), matrices)


@pytest.mark.parametrize("kind", ["safetensors", "npz", "npy"])
def test_files_of_matrices_are_read_by_the_workers(rng, tmp_path, kind):
    matrices = checkpoint(rng)
    path = tmp_path / f"model.{kind}"
    if kind == "safetensors":
        write_tensors(path, {n: (m, "f32") for n, m in matrices.items()}, {})
    elif kind == "npz":
        matrices = {n.replace("/", ":"): m for n, m in matrices.items()}
        np.savez(path, **matrices)
    else:
        matrices = {"model": matrices["../up"]}
        np.save(path, matrices["model"])
    with ThreadPoolExecutor(2) as pool:
        factorize_many(path, tmp_path / "chains", PATTERNS, executor=pool)
    expect_chains(load_chains(tmp_path / "chains"), matrices)


def test_a_checkpoint_in_parts_is_read(rng, tmp_path):
    matrices = checkpoint(rng)
    for part, name in enumerate(matrices):
        path = tmp_path / f"model-{part}.safetensors"
        write_tensors(path, {name: (matrices[name], "f32")}, {})
    factorize_many(tmp_path, tmp_path / "chains", PATTERNS)
    expect_chains(load_chains(tmp_path / "chains"), matrices)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no .safetensors file in"):
        factorize_many(tmp_path / "empty", tmp_path / "chains", PATTERNS)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_precision_is_factorised_in_f32(rng, tmp_path, dtype):
    matrix = danaus.convert(rng.standard_normal((12, 15)), dtype)
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"w": (matrix, dtype)}, {})
    wide = danaus.convert(matrix, "f32", dtype)
    found = factorize_many(path, tmp_path / "wide", PATTERNS)
    assert found[0]["dtype"] == dtype
    expect_chains(load_chains(tmp_path / "wide"), {"w": wide})
    factorize_many(path, tmp_path / "out.safetensors", PATTERNS, dtype=dtype)
    chain = load_chains(tmp_path / "out.safetensors")["w"]
    should = danaus.factorize(wide, PATTERNS).chain.astype(dtype)
    assert chain.element_type == dtype
    assert all(np.array_equal(a, b) for a, b in zip(chain.weights, should.weights))


def test_rules_choose_patterns(rng, tmp_path):
    matrices = {"a": rng.standard_normal((16, 16)), "b": rng.standard_normal((16, 24))}

    def rule(name, shape):
        return None if name == "b" else danaus.patterns.make("dyadic", *shape)

    found = factorize_many(matrices, tmp_path / "rule", rule)
    assert statuses(found) == ["done", "passed over"]
    assert found[0]["patterns"] == "1,2,2,8 2,2,2,4 4,2,2,2 8,2,2,1"
    for size in (0.5, 100):
        found = factorize_many(matrices, tmp_path / "share", size)
        for record, matrix in zip(found, matrices.values()):
            most = size * matrix.size if size == 0.5 else size
            should = danaus.patterns.fit(*matrix.shape, size)
            assert record["parameters"] <= most
            assert record["patterns"] == " ".join(map(str, should))

    def fails(name, shape):
        raise LookupError(f"no rule for {name}")

    found = factorize_many(matrices, tmp_path / "fails", fails)
    assert found[0]["message"] == "LookupError: no rule for a"


def test_the_best_of_many_chains_is_searched(rng, tmp_path):
    low = rng.standard_normal((24, 2)) @ rng.standard_normal((2, 32))
    matrices = {"low": low, "other": rng.standard_normal((24, 32))}
    options = {"search": True, "candidates": ["low-rank", "monarch"]}
    found = factorize_many(matrices, tmp_path / "chains", 0.4, **options)
    for record, (name, matrix) in zip(found, matrices.items()):
        should = danaus.compress(matrix, 0.4, candidates=options["candidates"])
        assert record["patterns"] == " ".join(map(str, should.chain.patterns))
        assert record["error"] == pytest.approx(should.error, rel=1e-6, abs=1e-12)
        assert record["share"] <= 0.4
        assert load_chains(tmp_path / "chains")[name].patterns == should.chain.patterns
    assert found[0]["error"] < 1e-10
    again = factorize_many(matrices, tmp_path / "chains", 0.4, **options)
    assert statuses(again) == ["kept", "kept"]
    again = factorize_many(matrices, tmp_path / "chains", 0.5, **options)
    assert statuses(again) == ["done", "done"]
    sums = {"search": True, "candidates": ["sum"]}
    found = factorize_many(matrices, tmp_path / "chains", 0.5, **sums)
    assert "sum of two chains has no place" in found[1]["message"]


def test_some_matrices_have_options_of_their_own(rng, tmp_path):
    matrices = {name: rng.standard_normal((12, 15)) for name in "abc"}
    inputs = rng.standard_normal((40, 15)) * np.linspace(0.01, 10, 15)
    sums = danaus.Calibration.of(inputs)
    each = {"a": {"inputs": inputs, "bias": True}, "b": {"calibration": sums}}
    for out in ("chains", "chains.safetensors"):
        found = factorize_many(matrices, tmp_path / out, PATTERNS, each=each)
        chains = load_chains(tmp_path / out)
        for record, (name, matrix) in zip(found, matrices.items()):
            should = danaus.factorize(matrix, PATTERNS, **each.get(name, {}))
            assert record["error"] == pytest.approx(should.error, rel=1e-9)
            bias, known = chains[name].bias, should.chain.bias
            assert (bias is None) == (known is None) == (name != "a")
            assert bias is None or np.allclose(bias, known)
        assert set(statuses(found)) == {"done"}
        found = factorize_many(matrices, tmp_path / out, PATTERNS, each=each)
        assert set(statuses(found)) == {"kept"}
        other = each | {"b": {"calibration": sums + sums}, "c": {"inputs": inputs}}
        found = factorize_many(matrices, tmp_path / out, PATTERNS, each=other)
        assert statuses(found) == ["kept", "done", "done"]
    wrong = factorize_many(matrices, tmp_path / "w", PATTERNS, each={"a": {"rank": 3}})
    assert statuses(wrong) == ["failed", "done", "done"]
    assert "has no option 'rank'" in wrong[0]["message"]


def test_a_bar_is_drawn(rng, tmp_path, capsys):
    pytest.importorskip("tqdm")
    factorize_many(checkpoint(rng), tmp_path / "chains", PATTERNS, progress=True)
    assert "7/7" in capsys.readouterr().err


def test_what_the_caller_raises_ends_the_call(rng, tmp_path):
    def pairs():
        yield "a", rng.standard_normal((12, 15))
        raise LookupError("no more")

    with ThreadPoolExecutor(1) as pool, pytest.raises(LookupError, match="no more"):
        factorize_many(pairs(), tmp_path / "chains", PATTERNS, executor=pool)


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"executor": 3}, TypeError, "method submit"),
        ({"in_flight": 0}, ValueError, "in_flight"),
        ({"rank": 3}, TypeError, "has no option 'rank'"),
        ({"reduced": True}, TypeError, "has no option 'reduced'"),
        ({"matrices": "model.bin"}, ValueError, "pickled checkpoints are not read"),
        ({"matrices": "missing.npz"}, FileNotFoundError, "missing"),
        ({"matrices": "missing.safetensors"}, OSError, "missing"),
        ({"dtype": "i8"}, TypeError, "not an element type"),
        ({"matrices": np.eye(8)}, TypeError, "an item is a ndarray"),
        ({"matrices": [np.eye(8)]}, TypeError, "an item is a ndarray"),
        ({"each": {"fc": {"refine": 2}}}, ValueError, "'fc', which is no matrix"),
        ({"rule": "half"}, ValueError, '"half" is not a pattern'),
        ({"rule": 0}, ValueError, "parameters has to be from 1"),
        ({"rule": 1.5}, ValueError, "a share of parameters"),
        ({"rule": True}, TypeError, "parameters are a number or a share"),
    ],
)
def test_bad_arguments_are_named(tmp_path, change, error, sentence):
    arguments = {"matrices": {}, "out": tmp_path / "out", "rule": 0.5} | change
    with pytest.raises(error, match=sentence):
        factorize_many(**arguments)


def test_pickles_in_npz_files_are_not_read(tmp_path):
    np.savez(tmp_path / "model.npz", w=np.array([[{}]], object))
    found = factorize_many(tmp_path / "model.npz", tmp_path / "out", 0.5)
    assert statuses(found) == ["failed"] and "allow_pickle" in found[0]["message"]


JSON = strategies.recursive(
    strategies.none() | strategies.integers() | strategies.text(max_size=5),
    lambda inner: (
        strategies.dictionaries(
            strategies.sampled_from(["a", "record", "fingerprint", "name"]), inner
        )
        | strategies.lists(inner, max_size=3)
    ),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON)
def test_no_metadata_crashes(tmp_path, value):
    matrix = np.ones((12, 15))
    chain = danaus.factorize(matrix, PATTERNS).chain
    arrays = {f"factor.{i}": (w, "f64") for i, w in enumerate(chain.weights)}
    data = {"danaus source": json.dumps(value), "danaus sources": json.dumps(value)}
    (tmp_path / "out").mkdir(exist_ok=True)
    write_tensors(tmp_path / "out" / "a.safetensors", arrays, data)
    arrays = {f"a.{key}": array for key, array in arrays.items()}
    write_tensors(tmp_path / "out.safetensors", arrays, data)
    for out in ("out", "out.safetensors"):
        assert statuses(factorize_many({"a": matrix}, tmp_path / out, PATTERNS)) == [
            "done"
        ]
