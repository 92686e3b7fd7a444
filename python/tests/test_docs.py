"""The code of docs/python.md runs, in the order of the page."""
# SPDX-License-Identifier: Apache-2.0
import importlib.util
import pathlib
import re

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "python.md"
# What code of a package has, where it is not only the package's name.
SIGNS = {"matplotlib": "danaus.plot", "kernels": "import kernels"}


def test_the_code_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, names = PAGE.read_text(), {"__name__": "guide"}
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S))
    assert len(blocks) > 4
    for block in blocks:
        code = block.group(1)
        optionals = "torch", "matplotlib", "lazylinop", "peft", "sklearn", "kernels"
        for optional in optionals:
            needed = SIGNS.get(optional, optional)
            if needed in code and importlib.util.find_spec(optional) is None:
                break
        else:
            line = text[: block.start()].count("\n") + 1
            exec(compile("\n" * line + code, str(PAGE), "exec"), names)
