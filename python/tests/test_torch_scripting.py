"""TorchScript: every module can be traced, and says so where it is scripted."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

import pytest

torch = pytest.importorskip("torch")

from every_module import CAST, KEPT, ROWS, given, learned  # noqa: E402

from danaus.torch import HyenaFilter  # noqa: E402

MAKE = {**CAST, **KEPT}
LAYERS = [kind for kind in MAKE if kind is not HyenaFilter]  # which takes a length
pytestmark = pytest.mark.filterwarnings("ignore::Warning")  # PyTorch's, of sizes


@pytest.mark.parametrize("gradients", [True, False], ids=["gradients", "inference"])
@pytest.mark.parametrize("frozen", [False, True], ids=["weights", "packed"])
@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_traced_modules_are_saved_and_loaded(kind, frozen, gradients, device):
    module = learned(MAKE[kind], device).eval()
    x = torch.randn(2, *ROWS, device=device)
    x = given(kind, x)
    if frozen and hasattr(module, "freeze"):
        module.freeze()
    with torch.set_grad_enabled(gradients):
        traced, file = torch.jit.trace(module, x[0]), io.BytesIO()
        torch.jit.save(traced, file)
        file.seek(0)
        loaded = torch.jit.load(file)
        for found in traced, loaded:
            torch.testing.assert_close(found(x[1]), module(x[1]))


@pytest.mark.parametrize("kind", MAKE, ids=lambda kind: kind.__name__)
def test_scripting_is_refused_in_one_sentence(kind):
    model = torch.nn.Sequential(learned(MAKE[kind], "cpu"))
    with pytest.raises(NotImplementedError, match="cannot be scripted: use"):
        torch.jit.script(model)
