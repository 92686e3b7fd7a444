"""The C library: loads it, tells it where its helpers are, raises its errors.

Importing this module loads ``libdanaus.so`` from the same folder, and nothing of
PyTorch. cffi calls release the interpreter lock while the library runs.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import os
import pathlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Callable, NoReturn, Union

import danaus_program
from danaus._danaus_abi import ffi

# What is called with the share of work done; True draws a bar.
Progress = Union[bool, Callable[[float], object], None]

FOLDER = pathlib.Path(__file__).parent

# Its threads may outlive the interpreter: the library is never unloaded.
lib = ffi.dlopen(str(FOLDER / "libdanaus.so"), ffi.RTLD_NOW | ffi.RTLD_NODELETE)

_EXCEPTIONS = {
    lib.DANAUS_ERR_ARGUMENT: ValueError,
    lib.DANAUS_ERR_SHAPE: ValueError,
    lib.DANAUS_ERR_UNSUPPORTED: NotImplementedError,
    lib.DANAUS_ERR_MEMORY: MemoryError,
    lib.DANAUS_ERR_IO: OSError,
    lib.DANAUS_ERR_FORMAT: ValueError,
    lib.DANAUS_ERR_DEVICE: RuntimeError,
    lib.DANAUS_ERR_CANCELLED: RuntimeError,
}


def check(status: int) -> None:
    """Raises what a status stands for, with the library's sentence."""
    if status:
        raise _EXCEPTIONS.get(status, RuntimeError)(text(lib.danaus_error_detail()))


def text(pointer: Any) -> str:
    """A string of the library's; "" for NULL."""
    return ffi.string(pointer).decode(errors="replace") if pointer else ""


def path_bytes(path: str | bytes | os.PathLike) -> bytes:
    """A path as the library takes it."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError("a path cannot contain a null character")
    return encoded


def path_of(path: str | bytes | os.PathLike) -> pathlib.Path:
    """A path of any form."""
    return pathlib.Path(os.fsdecode(path))


def known_options(
    given: Iterable[str], function: Callable[..., Any], what: str, more: str = ""
) -> None:
    """TypeError for names that are no options of a function, and none of `more`."""
    known = inspect.signature(function).parameters.values()
    names = [p.name for p in known if p.kind is p.KEYWORD_ONLY] + more.split()
    for name in given:
        if name in names:
            continue
        near = difflib.get_close_matches(str(name), names, 1, 0.5)
        hint = f"there are {', '.join(names)}"
        if near:
            hint = f"the nearest is {near[0]!r}"
        raise TypeError(f"{what} has no option {name!r}: {hint}")


def version() -> str:
    """The version of the library that runs: "MAJOR.MINOR.PATCH"."""
    return text(lib.danaus_version())


class _Life:
    """An object of the library and the ones it needs, which are destroyed after it."""

    def __init__(self, destroy: Callable[[Any], None], needs: list[_Life]):
        self.destroy, self.needs, self.users = destroy, needs, 0
        self.handle: Any = None  # once nothing refers to it
        self.key = 0
        for life in needs:
            life.users += 1

    def end(self) -> None:
        if self.handle is None or self.users:
            return
        self.destroy(self.handle)
        for life in self.needs:
            life.users -= 1
            life.end()


_lives: dict[int, _Life] = {}  # by the identity of owned pointers


def own(pointer: Any, destroy: Callable[[Any], None], *keep: object) -> Any:
    """The pointer, destroyed once nothing refers to it; `keep` lives as long.

    Owned pointers among `keep` are destroyed later, even if all become garbage at once.
    A forked process does not destroy pointers of its parent: the threads and GPU
    contexts that they refer to do not exist there.
    """
    needs = [_lives[id(thing)] for thing in keep if id(thing) in _lives]
    life = _Life(destroy, needs)
    owned = ffi.gc(pointer, functools.partial(_release, life, os.getpid(), keep))
    life.key = id(owned)
    _lives[life.key] = life
    return owned


def _release(life, pid, keep, handle, getpid=os.getpid, lives=_lives) -> None:
    del lives[life.key]
    if getpid() == pid:
        life.handle = handle
        life.end()


def handle_of(thing: object, ctype: str, what: str) -> Any:
    """The pointer that an object of this package stands for; TypeError for others."""
    handle = getattr(thing, "_handle", None)
    if isinstance(handle, ffi.CData) and ffi.typeof(handle) is ffi.typeof(ctype):
        return handle
    raise TypeError(f"{what} is needed here, not {type(thing).__name__}")


# ---- functions that the library calls ----


class _Listener:
    def __init__(self, function: Callable[[Any], object]):
        self.function = function
        self.error: BaseException | None = None


def _failed(kind, error, traceback) -> None:
    ffi.from_handle(traceback.tb_frame.f_locals["user"]).error = error


# Also without a listener it is called: Python looks for Ctrl-C when its code runs.
@ffi.callback("int (void *, double)", error=1, onerror=_failed)
def _report(user, done):
    ffi.from_handle(user).function(done)
    return 0


@contextlib.contextmanager
def _bar(description: str) -> Iterator[Callable[[float], object]]:
    from tqdm.auto import tqdm

    form = "{l_bar}{bar}| [{elapsed}<{remaining}]"
    with tqdm(total=1.0, desc=description, bar_format=form) as bar:
        yield lambda done: bar.update(done - bar.n)


def _refuse(progress: object) -> NoReturn:
    raise TypeError(
        "progress has to be True, False or a function of the share done, not "
        f"{progress!r}"
    )


@contextlib.contextmanager
def listening(progress: Progress, description: str) -> Iterator[tuple[Any, Any]]:
    """A danaus_progress_fn and its `user`, which call `progress`.

    What `progress` raises makes the library give up, and is raised here instead of the
    library's "cancelled". True stands for a bar of tqdm.auto.
    """
    if progress is True:
        with _bar(description) as function, listening(function, "") as pair:
            yield pair
        return
    if progress not in (None, False) and not callable(progress):
        _refuse(progress)
    listener = _Listener(progress or (lambda done: None))
    user = ffi.new_handle(listener)
    try:
        yield _report, user
    except RuntimeError:
        if listener.error is None:
            raise
    if listener.error is not None:
        raise listener.error


@contextlib.contextmanager
def share_teller(
    progress: Progress, description: str
) -> Iterator[Callable[[float], object]]:
    """A function of the share done, for work that Python does itself."""
    if progress is True:
        with _bar(description) as function:
            yield function
    elif progress in (None, False):
        yield lambda done: None
    elif callable(progress):
        yield progress
    else:
        _refuse(progress)


@ffi.callback("int (void *, int32_t)", error=1, onerror=_failed)
def _take(user, token):
    return bool(ffi.from_handle(user).function(token))


@contextlib.contextmanager
def reading(function: Callable[[int], object]) -> Iterator[tuple[Any, Any]]:
    """A danaus_token_fn and its `user`, which call `function`; a true result stops.

    An exception of `function` stops, too, and is raised here.
    """
    listener = _Listener(function)
    user = ffi.new_handle(listener)
    yield _take, user
    if listener.error is not None:
        raise listener.error


# ---- what lies in other packages ----


def _locate_nvidia() -> None:
    """Tells where the wheels that PyTorch requires keep NVRTC and cuBLAS."""
    for name, folder in danaus_program.helpers().items():
        lib.danaus_library_locate(name.encode(), path_bytes(folder))


def _use_kernels() -> None:
    """GPU kernels that came with the package, compiled before."""
    folder = FOLDER / "kernels"
    if not any(folder.glob("*.kernels")):
        return
    status = lib.danaus_kernels_use(path_bytes(folder))
    if status and status != lib.DANAUS_ERR_UNSUPPORTED:
        sentence = text(lib.danaus_error_detail())
        warnings.warn(f"GPU kernels are compiled anew: {sentence}", stacklevel=2)


_locate_nvidia()
_use_kernels()
