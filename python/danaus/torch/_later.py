"""What waits until a module is imported that danaus does without."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType


class _Finder(importlib.abc.MetaPathFinder):
    """Calls a function with the module once that has been loaded."""

    def __init__(self, name: str, extend: Callable[[ModuleType], object]):
        self.name, self.extend = name, extend

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                self.extend(module)

            spec.loader.exec_module = exec_module
        return spec


def when_loaded(name: str, extend: Callable[[ModuleType], object]) -> None:
    """Calls extend(module) now, where the module is loaded, or as soon as it is."""
    module = sys.modules.get(name)
    if module is not None:
        extend(module)
    else:
        sys.meta_path.insert(0, _Finder(name, extend))
