"""danaus as a repository of Hugging Face's kernels, loaded by that package itself."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import json
import os
import pathlib
import subprocess
import sys

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
kernels = pytest.importorskip("kernels")

from compiling import compiled  # noqa: E402
from plain_cases import (  # noqa: E402
    EVERY,
    exact_product,
    expect_near,
    expect_within,
    random_layer,
    shaped,
)
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import danaus  # noqa: E402
from conftest import run_program  # noqa: E402
from danaus.torch import (  # noqa: E402
    GatedLongConv,
    HyenaOperator,
    KSLinear,
    LongConv,
    ShortConv,
    hf_kernels,
    replace_linear,
    to_plain,
)

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "hf_kernels.py"
PACKAGES = pathlib.Path(danaus.__file__).parents[1]
MAPPED = GatedLongConv, HyenaOperator, KSLinear, LongConv, ShortConv
CASES = [name for name, make in EVERY.items() if type(make()) in MAPPED]
INFERENCE, TRAINING = kernels.Mode.INFERENCE, kernels.Mode.TRAINING


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> pathlib.Path:
    """What the script lays out of the package that is tested."""
    folder = tmp_path_factory.mktemp("hf") / "danaus"
    done = run_program(SCRIPT, PACKAGES, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{folder}: danaus {danaus.__version__}\n"
    return folder


@pytest.fixture(params=["repository", "this process"])
def registered(request, repository) -> None:
    """Layers of the repository for kernelize, or those that are imported."""
    hf_kernels.register(repository if request.param == "repository" else None)


class Seen(TorchDispatchMode):
    """Names of the operators that run."""

    def __init__(self):
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(str(function))
        return function(*args, **(kwargs or {}))


def runs_danaus(model, *inputs) -> bool:
    """True if a call runs an operator of danaus."""
    with Seen() as seen, torch.no_grad():
        model(*inputs)
    return any(name.startswith("danaus.") for name in seen.names)


def kernelized(model, mode=INFERENCE, device="cpu"):
    """The model, in which all named layers have to be found."""
    return kernels.kernelize(model, mode=mode, device=device, use_fallback=False)


# ---- the repository ----

ALONE = """
import pathlib, sys
import kernels, torch

folder, shapes, out = pathlib.Path(sys.argv[1]), eval(sys.argv[2]), sys.argv[3]
kernel = kernels.get_local_kernel(folder)
assert folder in pathlib.Path(sys.modules["danaus"].__file__).parents
torch.manual_seed(0)
model = torch.nn.ModuleList(torch.nn.Linear(n, m) for n, m in shapes)
kernel.replace_linear(model, 0.5)
from danaus.torch import hf_kernels

hf_kernels.register(folder)
plain = kernel.to_plain(model)
kernels.kernelize(plain, mode=kernels.Mode.INFERENCE, device="cpu", use_fallback=False)
found = []
for layer, named in zip(model, plain):
    assert isinstance(layer, kernel.KSLinear)
    assert named.forward.__func__ is kernel.layers.KSLinear.forward
    x = torch.randn(7, layer.in_features)
    patterns = " ".join(map(str, layer.patterns))
    found.append((patterns, layer.state_dict(), x, layer(x), named(x)))
torch.save(found, out)
"""


def test_compressed_models_run_where_danaus_is_not_installed(rng, repository, tmp_path):
    shapes = [tuple(int(n) for n in rng.integers(16, 60, 2)) for _ in range(3)]
    out = tmp_path / "found.pt"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-c", ALONE, repository, repr(shapes), out]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = torch.load(out)
    assert len(found) == len(shapes)
    for (n, m), (patterns, state, x, y, named) in zip(shapes, found):
        layer = KSLinear(n, m, patterns)
        layer.load_state_dict(state)
        expect_within(y, *exact_product(layer, x))
        expect_within(named, *exact_product(layer, x))


def variant_of(repository: pathlib.Path, **options) -> str:
    """The backend of the variant that kernels loads."""
    kernel = kernels.get_local_kernel(repository, **options)
    assert kernel.KSLinear is KSLinear  # a process has one danaus
    return kernel.__name__.rpartition("_")[2]


def test_one_build_is_for_all_backends_and_versions(repository, monkeypatch):
    for cuda, backend in {"12.6": "cu120", "13.2": "cu130", None: "cpu"}.items():
        monkeypatch.setattr(torch.version, "cuda", cuda)
        for version in "2.10.0", "2.15.0+cu132", "2.31.1":
            monkeypatch.setattr(torch, "__version__", version)
            assert variant_of(repository) == backend
            assert variant_of(repository, backend="cpu") == "cpu"
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    with pytest.raises(OSError):
        kernels.get_local_kernel(repository)


def test_variants_share_their_files(repository):
    variants = sorted((repository / "build").iterdir())
    assert len(variants) == 3
    ids = set()
    for variant in variants:
        made = json.loads((variant / "metadata.json").read_text())
        ids.add(made["id"])
        assert made["backend"]["type"] in variant.name.replace("-cu1", "-cuda")
        library = variant / "danaus" / "libdanaus.so"
        assert os.path.samefile(library, variants[0] / "danaus" / "libdanaus.so")
    assert len(ids) == len(variants)
    assert not list(repository.rglob("__pycache__"))


def test_another_danaus_is_refused_in_one_sentence(tmp_path, monkeypatch):
    folder = tmp_path / "danaus"
    assert run_program(SCRIPT, PACKAGES, folder).returncode == 0
    monkeypatch.setattr(danaus, "__version__", "9.8.7")
    with pytest.raises(ImportError, match=r"beside danaus 9\.8\.7, which this process"):
        kernels.get_local_kernel(folder)
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install cffi numpy scipy"):
        kernels.get_local_kernel(folder)
    monkeypatch.undo()
    kernels.get_local_kernel(folder)


def test_the_script_says_what_is_wrong(tmp_path, repository):
    (tmp_path / "text.whl").write_text("no wheel")
    empty = tmp_path / "empty"
    empty.mkdir()
    for packages, out, said in (
        (empty, "a", f"hf_kernels: {empty} has no danaus: is it a built package?"),
        (tmp_path / "text.whl", "b", "hf_kernels: File is not a zip file"),
        (tmp_path / "none", "c", "hf_kernels: "),
        (PACKAGES, "empty", "File exists"),
    ):
        done = run_program(SCRIPT, packages, tmp_path / out)
        assert done.returncode != 0 and said in done.stderr


# ---- kernelize ----


@pytest.mark.parametrize("seed", range(6))
def test_chains_of_random_shapes(rng, registered, seed):
    layer = random_layer(rng, seed % 3 + 1, bias=bool(seed % 2))
    plain = to_plain(layer)
    x = torch.from_numpy(rng.standard_normal((seed + 1, layer.in_features))).float()
    residual = torch.from_numpy(rng.standard_normal((seed + 1, layer.out_features)))
    assert not runs_danaus(plain, x)
    y = kernelized(plain)(x)
    assert runs_danaus(plain, x)
    expect_within(y, *exact_product(layer, x))
    with torch.no_grad():
        assert torch.equal(plain(x, residual.float()), residual.float() + y)


def test_chains_of_columns(rng, registered):
    layer = random_layer(rng, 2, layout="batch_last", activation="relu")
    x = torch.from_numpy(rng.standard_normal((6, layer.in_features))).float()
    y = kernelized(to_plain(layer))(x.mT).mT
    exact, bound = exact_product(layer, x)
    expect_within(y, exact.clip(0), bound)


@pytest.mark.parametrize("name", CASES)
def test_every_layer_has_the_same_numbers(registered, name):
    torch.manual_seed(0)
    plain = to_plain(EVERY[name]())
    wide = copy.deepcopy(plain).double()  # PyTorch's own operators, in f64
    x = shaped(name, torch.randn(2, 12, 8))
    y = kernelized(plain, TRAINING)(x)
    assert runs_danaus(plain, x)
    expect_near(y, wide(x.double()), 64, transforms=True)
    plain.double()
    exact = wide(x.double())
    loss = torch.randn_like(exact)
    (plain(x.double()) * loss).sum().backward()
    (exact * loss).sum().backward()
    for found, needed in zip(plain.parameters(), wide.parameters()):
        torch.testing.assert_close(found.grad, needed.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", CASES)
def test_every_layer_runs_on_a_gpu(registered, name):
    torch.manual_seed(0)
    plain = to_plain(EVERY[name]())
    exact = copy.deepcopy(plain).double()
    x = shaped(name, torch.randn(2, 12, 8))
    y = kernelized(plain.cuda(), TRAINING, "cuda")(x.cuda())
    assert runs_danaus(plain, x.cuda())
    expect_near(y.cpu(), exact(x.double()), 64, transforms=True)


def test_compressed_models(registered):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(48, 64), torch.nn.GELU(), torch.nn.Linear(64, 48)
    )
    replace_linear(model, 0.5)
    plain = to_plain(model)
    x = torch.randn(5, 48)
    exact = copy.deepcopy(plain).double()(x.double())
    kernelized(plain, INFERENCE | kernels.Mode.TORCH_COMPILE)
    expect_near(plain(x), exact, 256, transforms=False)
    with torch.no_grad():
        torch.testing.assert_close(compiled(plain)(x), plain(x))
        assert torch.equal(plain(x), model(x))


@pytest.mark.parametrize("name", ["order 3", "gated heads", "bidirectional"])
def test_kernelized_layers_are_one_graph(registered, name):
    plain = to_plain(EVERY[name]())
    kernelized(plain, TRAINING | kernels.Mode.TORCH_COMPILE)
    x = shaped(name, torch.randn(2, 12, 8))
    y = compiled(plain)(x)
    torch.testing.assert_close(y, plain(x))
    y.sum().backward()
    assert all(p.grad is not None for p in plain.parameters())


@kernels.use_kernel_forward_from_hub("DanausMonarchLinear")
class Monarch(torch.nn.Module):
    """Someone's own layer of a Monarch matrix."""

    def __init__(self, blocks: int, size: int):
        super().__init__()
        self.weights = torch.nn.ParameterList(
            [torch.randn(1, size, size, blocks), torch.randn(size, blocks, blocks, 1)]
        )
        self.bias, self.activation, self.layout = None, None, "batch_first"

    def forward(self, input, residual=None):
        left, right = self.weights[0].squeeze(0), self.weights[1].squeeze(-1)
        v = torch.einsum("nik,irk->nir", input.unflatten(-1, right.shape[::2]), right)
        y = torch.einsum("nkj,rkj->nrj", v, left).flatten(1)
        return y if residual is None else residual + y


def test_layers_of_others(registered):
    layer = Monarch(3, 5)
    x = torch.randn(4, 15)
    exact = copy.deepcopy(layer).double()(x.double())
    assert not runs_danaus(layer, x)
    kernelized(layer)
    assert runs_danaus(layer, x)
    expect_near(layer(x), exact, 8 * 8, transforms=False)


def test_the_mapping_can_be_for_a_while(rng, repository):
    layer = to_plain(random_layer(rng, 2))
    hf_kernels.register()
    with kernels.use_kernel_mapping({}, inherit_mapping=False):
        with pytest.raises(ValueError, match="No layer mapping for `DanausKSLinear`"):
            kernelized(layer)
        with kernels.use_kernel_mapping(hf_kernels.mapping(repository)):
            kernelized(layer)
    assert runs_danaus(layer, torch.randn(2, layer.in_features))


# ---- versions ----


@pytest.mark.parametrize("version", ["0.14.1", "0.18.0", "1.0.0"])
def test_other_versions_are_refused_in_one_sentence(monkeypatch, version):
    monkeypatch.setattr(kernels, "__version__", version)
    said = f"not know kernels {version}: 0.15.1 to 0.17.2 have been tried"
    for call in hf_kernels.mapping, hf_kernels.register:
        with pytest.raises(ImportError, match=said):
            call()


def test_without_kernels_it_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "kernels", None)
    said = r"pip install kernels \(0.15.1 to 0.17.2 have been tried\)"
    with pytest.raises(ImportError, match=said):
        hf_kernels.register()
