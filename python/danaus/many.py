"""Factorises all matrices of a checkpoint, file to file, in parallel, restartable."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import os
import queue
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Union

import numpy as np
from numpy.typing import ArrayLike

from danaus import records
from danaus._arrays import (
    INT,
    INT64,
    ElementType,
    convert,
    element_code,
    numpy_dtype,
    short_name,
    whole,
)
from danaus._chain_files import (
    ChainFile,
    ChainFolder,
    Source,
    check_report,
    save_chain,
)
from danaus._files import Tensors
from danaus._library import known_options, path_of, version
from danaus.compress import compress
from danaus.factorize import Factorization, factorize, fit_desc
from danaus.patterns import Pattern, Patterns, as_patterns, fit, share_of

#: Matrices by name: a mapping, pairs, a .safetensors, .npz or .npy file, or a folder of
#: .safetensors files.
Matrices = Union[
    Mapping[str, ArrayLike], Iterable["tuple[str, ArrayLike]"], str, os.PathLike
]
#: Patterns for all, a share of the parameters (float) or their number (int), or a
#: function of name and shape that returns one of these, or None to pass a matrix over.
Rule = Union[Patterns, float, int, Callable[[str, "tuple[int, int]"], Any]]

_MEASURES = (
    "parameters error lower_bound upper_bound off_support dense_error seconds".split()
)


# ---- where matrices come from ----


@dataclass(frozen=True)
class _InFile:
    """A matrix of a .npy or safetensors file, which the worker reads for itself."""

    path: str
    key: str
    shape: tuple[int, ...]

    def read(self) -> tuple[np.ndarray, str]:
        """The matrix and its element type."""
        tensors = Tensors(self.path)
        return tensors[self.key], tensors.element_type(self.key)


class _InMemory:
    """A matrix that travels to the worker."""

    def __init__(self, array: ArrayLike):
        array = np.asarray(array)
        if array.dtype.kind in "biu":
            array = array.astype(np.float64)
        self.array, self.shape = array, array.shape

    def read(self) -> tuple[np.ndarray, str]:
        code = element_code(self.array.dtype)
        return self.array.astype(numpy_dtype(code), copy=False), short_name(code)


def _in_files(path: Path) -> list[_InFile]:
    """The arrays of a file, or of a checkpoint's parts in a folder."""
    parts = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not parts:
        raise ValueError(f"there is no .safetensors file in {path}")
    found = []
    for part in parts:
        tensors = Tensors(part)
        found += [_InFile(str(part), key, tensors[key].shape) for key in tensors]
    return found


def _sources(
    matrices: Matrices,
) -> tuple[Iterator[tuple[str, Callable[[], Any]]], int | None]:
    """Names with functions that return each matrix or its place in a file, and how many
    there are if that is known."""
    if isinstance(matrices, (str, bytes, os.PathLike)):
        path = path_of(matrices).absolute()
        if path.suffix == ".npz":
            matrices = np.load(path, allow_pickle=False)
        elif path.is_dir() or path.suffix in (".npy", ".safetensors"):
            files = _in_files(path)
            return ((f.key or path.stem, lambda f=f: f) for f in files), len(files)
        else:
            raise ValueError(
                f"{path} has to be a folder or a .safetensors, .npz or .npy file; "
                "pickled checkpoints are not read, as they can run any program: "
                "convert them"
            )
    count = len(matrices) if hasattr(matrices, "__len__") else None
    if isinstance(matrices, Mapping):
        return ((n, lambda n=n: _InMemory(matrices[n])) for n in matrices), count
    pairs = _pairs(matrices)
    return ((n, lambda array=array: _InMemory(array)) for n, array in pairs), count


def _pairs(matrices: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Names and arrays; TypeError for items of another kind."""
    if isinstance(matrices, np.ndarray) or not hasattr(matrices, "__iter__"):
        matrices = [matrices]
    for item in matrices:
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise TypeError(
                "matrices are a mapping of names to arrays, pairs of a name and an "
                f"array, or a file: an item is a {type(item).__name__}"
            )
        yield item[0], item[1]


# ---- the work on one matrix, in any process ----


@dataclass(frozen=True)
class _Task:
    name: str
    source: _InFile | _InMemory
    chosen: tuple[Pattern, ...] | int  # patterns, or a number of parameters to search
    dtype: str | None
    options: dict[str, Any]
    target: str  # the chain file to write
    known: Source | None  # of the chain that is there


def _fingerprint(matrix: np.ndarray, task: _Task) -> str:
    """Tells chains apart that were made of other matrices or in other ways."""
    told = hashlib.sha256(repr((version(), task.chosen, task.dtype)).encode())

    def tell(name: str, value: Any) -> None:
        if is_dataclass(value):  # a Calibration
            for part in fields(value):
                tell(part.name, getattr(value, part.name))
        elif hasattr(value, "__array__"):
            array = np.ascontiguousarray(value)
            told.update(f"{name} {array.dtype} {array.shape};".encode())
            told.update(array.reshape(-1).view(np.uint8))
        else:
            told.update(f"{name} {value!r};".encode())

    for name, value in sorted({"matrix": matrix, **task.options}.items()):
        if name != "threads":  # results do not depend on it
            tell(name, value)
    return told.hexdigest()


def _work(task: _Task) -> Source:
    """Makes one chain file; the record says what went wrong, if anything did."""
    record: dict[str, Any] = {"name": task.name, "status": "failed"}
    fingerprint = ""
    try:
        matrix, kind = task.source.read()
        rows, cols = matrix.shape
        record |= {"rows": rows, "cols": cols, "dtype": kind}
        if kind in ("f16", "bf16"):
            matrix = convert(matrix, "f32", kind)
        fingerprint = _fingerprint(matrix, task)
        if task.known and task.known.fingerprint == fingerprint:
            return Source(fingerprint, task.known.record | {"status": "kept"})
        found = _factorized(matrix, task)
        chain = found.chain if task.dtype is None else found.chain.astype(task.dtype)
        done = {"status": "done", "patterns": " ".join(map(str, chain.patterns))}
        done["share"] = found.parameters / matrix.size
        done |= {measure: getattr(found, measure) for measure in _MEASURES}
        save_chain(chain, task.target, Source(fingerprint, record | done))
        record |= done
    except Exception as error:
        record["message"] = f"{type(error).__name__}: {error}"
    return Source(fingerprint, record)


def _factorized(matrix: np.ndarray, task: _Task) -> Factorization:
    if not isinstance(task.chosen, int):
        return factorize(matrix, task.chosen, **task.options)
    found = compress(matrix, task.chosen, **task.options)
    if found.second is not None:
        raise ValueError("a sum of two chains has no place in a chain file")
    return found


# ---- all of them ----


def _run(
    tasks: Iterable[_Task | Source], executor: Any, in_flight: int
) -> Iterator[tuple[int, Source]]:
    """Numbers and results as they come, of at most `in_flight` tasks at a time."""
    finished: queue.SimpleQueue[int] = queue.SimpleQueue()
    pending: dict[int, tuple[_Task, Any]] = {}

    def take() -> tuple[int, Source]:
        number = finished.get()
        task, future = pending.pop(number)
        return number, _result(task, future.result)

    try:
        for number, task in enumerate(tasks):
            if isinstance(task, Source):
                yield number, task
            elif executor is None:
                yield number, _work(task)
            else:
                while len(pending) >= in_flight:
                    yield take()
                future = _result(task, lambda task=task: executor.submit(_work, task))
                if isinstance(future, Source):
                    yield number, future
                    continue
                pending[number] = task, future
                future.add_done_callback(lambda _, n=number: finished.put(n))
        while pending:
            yield take()
    finally:
        for _, future in pending.values():
            future.cancel()


def _result(task: _Task, call: Callable[[], Any]) -> Any:
    """What the call returns, or the record of a matrix that the executor lost."""
    try:
        return call()
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        record = {"name": task.name, "status": "failed", "message": message}
        return Source("", record)


def _chosen(rule: Rule, name: str, shape: tuple[int, int], search: bool) -> Any:
    """Patterns or a number of parameters that the rule says, or None."""
    if callable(rule):
        rule = rule(name, shape)
    if isinstance(rule, np.number):
        rule = rule.item()
    if isinstance(rule, (float, int)):
        return share_of(rule, *shape) if search else fit(*shape, rule)
    return None if rule is None else as_patterns(rule)


@dataclass
class _Planner:
    """Makes tasks of sources; what there is nothing to do for becomes a result."""

    rule: Rule
    dtype: str | None
    each: Mapping[str, Mapping[str, Any]]
    options: dict[str, Any]
    output: ChainFolder | ChainFile
    overwrite: bool
    search: bool
    seen: set[str] = field(default_factory=set)

    def plan(self, name: Any, source: Callable[[], Any]) -> _Task | Source:
        try:
            if not isinstance(name, str):
                raise TypeError(f"a name is a string, not {type(name).__name__}")
            if name in self.seen:
                raise ValueError("this name comes twice")
            self.seen.add(name)
            return self._plan(name, source())
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            record = {"name": str(name), "status": "failed", "message": message}
            return Source("", record)

    def _plan(self, name: str, source: _InFile | _InMemory) -> _Task | Source:
        message, chosen = f"of shape {source.shape}", None
        if len(source.shape) == 2 and 0 not in source.shape:
            message = "by the rule"
            chosen = _chosen(self.rule, name, source.shape, self.search)
        if chosen is None:
            passed = {"name": name, "status": "passed over", "message": message}
            return Source("", passed)
        options = self.options | dict(self.each.get(name, {}))
        _check_options(options, isinstance(chosen, int))
        known = None if self.overwrite else self.output.known(name)
        target = str(self.output.claim(name))
        return _Task(name, source, chosen, self.dtype, options, target, known)


@contextmanager
def _shown(
    progress: Any, count: int | None
) -> Iterator[Callable[[dict[str, Any]], Any]]:
    """A function that is called with every record."""
    if not progress:
        yield lambda record: None
    elif callable(progress):
        yield progress
    else:
        from tqdm.auto import tqdm

        with tqdm(total=count, desc="factorize_many", unit="matrix") as bar:
            failed = 0

            def show(record: dict[str, Any]) -> None:
                nonlocal failed
                failed += record["status"] == "failed"
                bar.set_postfix(failed=failed, refresh=False)
                bar.update()

            yield show


def factorize_many(
    matrices: Matrices,
    out: str | os.PathLike,
    rule: Rule,
    *,
    executor: Any = None,
    in_flight: int | None = None,
    dtype: ElementType | None = None,
    each: Mapping[str, Mapping[str, Any]] | None = None,
    search: bool = False,
    overwrite: bool = False,
    progress: bool | Callable[[dict[str, Any]], object] | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Factorises matrices into chain files; a second call makes those still missing.

    A chain that was made from the same values with the same options is kept. A matrix
    that fails is reported and does not stop the others. Files appear complete or not at
    all, so the call may be interrupted at any time and repeated.

    Parameters
    ----------
    matrices : {name: matrix}, such pairs, a .safetensors, .npz or .npy file, or a
        folder of .safetensors files. Workers read safetensors and .npy for themselves.
        f16 and bf16 are factorised in f32. Arrays that are not matrices are skipped.
    out : a folder, which gets a chain file for each matrix, or one .safetensors file,
        with tensors NAME.factor.0, ...; `load_chains` reads both.
    rule : patterns for all; a share (float) or number (int) of parameters; or a
        function of (name, shape) that returns one of these, or None to skip it.
    search : for a share or number of parameters, try many chains and take the best
        (`danaus.compress`), not the one that is expected to be best
        (`danaus.patterns.fit`); it takes up to a hundred times as long.
    executor : anything with ``submit`` of concurrent.futures: a ProcessPoolExecutor,
        Dask's client. Each factorization then has one thread unless ``threads`` says
        otherwise. None: one after the other, here.
    in_flight : matrices that are submitted at a time; None: two for each worker.
    dtype : element type of the chains; None: the matrix's, or f32 for f16 and bf16.
    each : options of `danaus.factorize` for some names, such as {"fc1": {"inputs": x}}.
    overwrite : make all chains again.
    progress : True for a bar of tqdm, or a function that is called with every record;
        an exception that it raises ends the call.
    options : passed to `danaus.factorize` or `compress`: order, fast, refine, ...

    Returns
    -------
    list of dict
        A record for each matrix, in order: name; status ("done", "kept", "passed over"
        or "failed"); rows, cols, dtype, patterns, share of the parameters, and what
        `danaus.factorize` found; message. Also written to report.csv in the folder, or
        beside the file, with the suffix .csv.
    """
    _check_options(options, search)
    if executor is not None and not hasattr(executor, "submit"):
        raise TypeError("an executor has a method submit, as in concurrent.futures")
    workers = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
    most = whole(2 * workers if in_flight is None else in_flight, "in_flight", 1, INT)
    options = ({} if executor is None else {"threads": 1}) | options
    code = None if dtype is None else short_name(element_code(dtype))
    sources, count = _sources(matrices)
    _check_rule(rule)
    _check_names(each or {}, matrices)
    path = path_of(out)
    output = (ChainFile if path.suffix == ".safetensors" else ChainFolder)(path)
    check_report(output.report)
    planner = _Planner(rule, code, each or {}, options, output, overwrite, search)
    tasks = (planner.plan(name, source) for name, source in sources)
    found: dict[int, Source] = {}
    try:
        with _shown(progress, count) as show:
            for number, result in _run(tasks, executor, most):
                found[number] = result
                show(result.record)
        output.finish(*_by_name(found.values()))
    finally:
        report = [found[number].record for number in sorted(found)]
        if report:
            records.write(output.report, report)
    return report


def _check_rule(rule: Rule) -> None:
    """Raises for a rule that fits no matrix at all."""
    if isinstance(rule, np.number):
        rule = rule.item()
    if isinstance(rule, float):
        share_of(rule, 1, 1)
    elif isinstance(rule, int):
        whole(share_of(rule, 1, 1), "the rule's number of parameters", 1, INT64)
    elif rule is not None and not callable(rule):
        as_patterns(rule)


def _check_names(each: Mapping[str, Any], matrices: Matrices) -> None:
    """Raises for options of a name that a mapping of matrices has not."""
    unknown = [n for n in each if isinstance(matrices, Mapping) and n not in matrices]
    if unknown:
        raise ValueError(f"each has options for {unknown[0]!r}, which is no matrix")


def _check_options(options: Iterable[str], search: bool) -> None:
    more = "candidates reduced" if search else ""
    known_options(options, fit_desc, "a factorization", more)


def _by_name(found: Iterable[Source]) -> tuple[dict[str, Source], set[str]]:
    """Results with a chain, and the names of those without one."""
    there, failed = {}, set()
    for source in found:
        if source.record["status"] in ("done", "kept"):
            there[source.record["name"]] = source
        else:
            failed.add(source.record["name"])
    return there, failed - set(there)
