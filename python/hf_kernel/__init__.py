"""danaus as a kernel that Hugging Face's package ``kernels`` loads: all of
``danaus.torch``, and ``layers`` for ``kernelize``.

A process has one danaus, since PyTorch has one namespace of operators: the one that was
imported first, or else the one beside this file. ``import danaus`` finds it from then
on.
"""

# SPDX-License-Identifier: Apache-2.0
import importlib.util
import pathlib
import sys

from ._version import VERSION

_FOLDER = str(pathlib.Path(__file__).parent)


def _load() -> None:
    """Imports danaus, or raises ImportError with a sentence."""
    needed = "cffi", "numpy", "scipy"
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        names = " ".join(missing)
        raise ImportError(f"the kernel danaus needs {names}: pip install {names}")
    sys.path.insert(0, _FOLDER)
    try:
        import danaus
    finally:
        sys.path.remove(_FOLDER)
    if danaus.__version__ != VERSION:
        raise ImportError(
            f"the kernel danaus {VERSION} cannot be loaded beside danaus "
            f"{danaus.__version__}, which this process has imported"
        )


_load()

from danaus.torch import *  # noqa: E402, F403

from . import layers  # noqa: E402, F401
