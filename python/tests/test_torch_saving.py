"""Folders of compressed models: what is written is what is loaded, or nothing is."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from safetensors.torch import load_file, save_file  # noqa: E402

from danaus.torch import (  # noqa: E402
    KSLinear,
    MonarchLinear,
    apply_structure,
    compress,
    load_compressed,
    save_compressed,
    structure_of,
)

nn = torch.nn


class Net(nn.Module):
    """Layers of every kind fit here; two share a weight, one buffer is not written."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(16, 24)
        self.up, self.down = nn.Linear(24, 32), nn.Linear(32, 24, bias=False)
        self.norm, self.out = nn.BatchNorm1d(24), nn.Linear(24, 16, bias=False)
        self.out.weight = self.words.weight
        self.register_buffer("share", torch.tensor(0.5), persistent=False)

    def forward(self, ids):
        x = self.words(ids)
        x = x + self.share * self.down(torch.relu(self.up(x)))
        return self.out(self.norm(x))


IDS = torch.arange(64) % 16


def compressed(kind="interpolated"):
    model = Net()
    compress(model, [IDS], 0.6, kinds=kind, budgets="uniform")
    return model.eval()


KINDS = "interpolated", "low_rank", "monarch", "sum"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_is_loaded_into_classes_and_modules(kind, tmp_path):
    model = compressed(kind)
    save_compressed(model, tmp_path / "folder")
    with torch.no_grad():
        other = Net().double()
        for made in (Net, Net(), other, compressed("monarch")):
            found = load_compressed(made, tmp_path / "folder")
            assert found is made or made is Net
            assert found.out.weight is found.words.weight
            assert structure_of(found) == structure_of(model)
            assert not found.training and float(found.share) == 0.5
            wide = found(IDS).to(torch.float32)
            assert torch.allclose(wide, model(IDS), atol=1e-5)
    assert other.up(torch.ones(24, dtype=torch.float64)).dtype == torch.float64


def test_nothing_but_danaus_takes_the_weights(tmp_path):
    save_compressed(compressed(), tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    for strict in (False, True):
        with pytest.raises(RuntimeError, match="size mismatch for up.weight"):
            Net().load_state_dict(state, strict=strict)
    assert json.loads((tmp_path / "danaus.json").read_text())["layers"].keys() == {
        "up",
        "down",
    }


def test_a_structure_keeps_activations_and_layouts():
    first = nn.Sequential(
        MonarchLinear(16, 16, 4, activation="gelu", bias=False, tf32=True),
        KSLinear(16, 8, "1,8,2,1 1,2,16,1", layout="batch_first"),
    )
    second = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 8))
    structure = json.loads(json.dumps(structure_of(first)))
    assert apply_structure(second, structure) is second
    second.load_state_dict(first.state_dict())
    x = torch.randn(3, 16)
    assert torch.equal(second(x), first(x))
    assert structure_of(second) == structure and second[0].tf32 is True


def test_a_pickled_state_dict_is_read_without_running_anything(tmp_path):
    model = compressed()
    save_compressed(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    assert torch.equal(load_compressed(Net, tmp_path)(IDS), model(IDS))

    class Evil:
        def __reduce__(self):
            return print, ("run",)

    torch.save({"up": Evil()}, tmp_path / "model.pt")
    with pytest.raises(Exception, match="[Ww]eights.only"):
        load_compressed(Net, tmp_path)


def change_tensors(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def change_json(folder, change):
    path = folder / "danaus.json"
    entry = json.loads(path.read_text())
    change(entry)
    path.write_text(json.dumps(entry))


@pytest.mark.parametrize(
    ("damage", "error", "sentence"),
    [
        (lambda d: change_tensors(d, lambda t: t.pop("up.basis.bias")),
         ValueError, "up.basis.bias is missing"),
        (lambda d: change_tensors(d, lambda t: t.update(more=torch.ones(1))),
         ValueError, "more has no place"),
        (lambda d: change_tensors(d, lambda t: t.update({"norm.bias": torch.ones(3)})),
         ValueError, r"norm.bias is \[3\], not \[24\]"),
        (lambda d: (d / "danaus.json").unlink(), ValueError, "no compressed model"),
        (lambda d: (d / "danaus.json").write_text("{"), ValueError, "no proper JSON"),
        (lambda d: change_json(d, lambda e: e.update(version=2)),
         ValueError, "version 2; this danaus reads up to 1"),
        (lambda d: change_json(d, lambda e: e["layers"].update(more={"kind": "x"})),
         ValueError, "the layer more: the kind of a layer is 'x'"),
        (lambda d: change_json(d, lambda e: e["layers"].update(a=e["layers"]["up"])),
         ValueError, "a layer a, which a Net has not"),
        (lambda d: change_json(d, lambda e: e["layers"].update(down=e["layers"]["up"])),
         ValueError, "down of 32 x 24; that of a Net is 24 x 32"),
        (lambda d: change_json(d, lambda e: e["layers"]["up"]["basis"].update(
            patterns=[[1, 2]])), ValueError, "up: the patterns of a chain are"),
        (lambda d: (d / "model.safetensors").unlink(), FileNotFoundError,
         "has no model.safetensors"),
    ],
)  # fmt: skip
def test_a_folder_that_does_not_fit_changes_nothing(damage, error, sentence, tmp_path):
    save_compressed(compressed(), tmp_path)
    damage(tmp_path)
    model = Net()
    before = dict(model.named_modules()), {
        name: tensor.clone() for name, tensor in model.state_dict().items()
    }
    for made in (model, Net):
        with pytest.raises(error, match=sentence):
            load_compressed(made, tmp_path)
    assert dict(model.named_modules()) == before[0]
    assert all(torch.equal(t, before[1][n]) for n, t in model.state_dict().items())


def test_wrong_arguments_have_sentences(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        load_compressed(Net, tmp_path / "nowhere")
    save_compressed(compressed(), tmp_path)
    with pytest.raises(TypeError, match="model is a str"):
        load_compressed("Net", tmp_path)
    with pytest.raises(TypeError, match="no option 'dtype'"):
        load_compressed(Net, tmp_path, dtype=torch.float16)
    with pytest.raises(TypeError, match="model is a dict"):
        save_compressed({}, tmp_path)
    with pytest.raises(ValueError, match="device meta"):
        save_compressed(Net().to("meta"), tmp_path)
