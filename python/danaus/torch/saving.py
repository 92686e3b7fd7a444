"""Folders of compressed models: saving and loading.

A folder has the weights as safetensors, in one file or several with an index, and the
structure of the layers: for models of transformers in config.json, else in
danaus.json. danaus.Model and the program write and read the same.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Union

import torch
from torch import Tensor, nn

from danaus._files import read_text, regular, write_whole
from danaus.torch.int8 import narrowed, widened
from danaus.torch.structure import (
    apply_structure,
    built_for,
    emptied,
    from_entry,
    placeholders,
    structure_of,
    to_entry,
)

STRUCTURE = "danaus.json"
WEIGHTS = "model.safetensors"
INDEX = WEIGHTS + ".index.json"
# Files that torch.save() wrote; they are read with weights_only=True.
PICKLED = "pytorch_model.bin", "model.pt"

Folder = Union[str, os.PathLike]
Made = Union[nn.Module, type, Callable[[], nn.Module]]


def _class_of(module: str, name: str) -> type:
    """A class of a package that is loaded already; else one that nothing is."""
    return getattr(sys.modules.get(module), name, type("Absent", (), {}))


def is_sentence_encoder(kind: type) -> bool:
    """True for SentenceTransformer, whose one argument is a mapping."""
    return issubclass(kind, _class_of("sentence_transformers", "SentenceTransformer"))


def _reads_folders(kind: type) -> bool:
    """True for model classes of transformers and sentence-transformers."""
    if kind.__module__.startswith("transformers.") and kind.__name__.startswith("Auto"):
        return True
    pretrained = _class_of("transformers.modeling_utils", "PreTrainedModel")
    return is_sentence_encoder(kind) or issubclass(kind, pretrained)


# ---- writing ----


def save_compressed(model: nn.Module, folder: Folder) -> None:
    """Writes a model with layers of danaus into a folder, which is made if needed.

    `load_compressed` reads it. Models of transformers and sentence-transformers are
    written by their own save_pretrained(). Others get model.safetensors and
    danaus.json. Programs that do not know danaus refuse both: beside the layers'
    tensors the weights hold an empty NAME.weight for each.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, not a torch.nn.Module")
    if _reads_folders(type(model)):
        model.save_pretrained(os.fspath(folder))
        return
    from safetensors.torch import save

    tensors, tied = _untied(model.state_dict())
    entry = to_entry(structure_of(model)) | ({"tied": tied} if tied else {})
    tensors = narrowed(model, tensors) | placeholders(model)
    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    if (path / WEIGHTS).exists() and not (path / STRUCTURE).exists():
        raise FileExistsError(
            f"{path} holds a {WEIGHTS} and no {STRUCTURE}: danaus did not write it; "
            "name another folder"
        )
    write_whole(path / WEIGHTS, save(tensors, {"format": "pt"}))
    write_whole(path / STRUCTURE, (json.dumps(entry, indent=1) + "\n").encode())


def _untied(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors, each once and contiguous, and which others are the same as which."""
    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    known: dict[tuple, str] = {}
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"the state has {name}, a {type(value).__name__}: tensors alone can be "
                "written"
            )
        if value.is_meta:
            raise ValueError(f"{name} has no numbers: it is on the device meta")
        key = (value.device, value.data_ptr(), value.shape, value.stride(), value.dtype)
        if value.numel() and key in known:
            tied[name] = known[key]
            continue
        known[key] = name
        tensors[name] = value.detach().contiguous().clone()
    return tensors, tied


# ---- reading ----


def load_compressed(
    model: Made, folder: Folder, *, device: Any = None, **options: Any
) -> nn.Module:
    """A model with the layers and weights of a folder, in evaluation mode.

    Weights come from safetensors, or from a pickled state dict that is read with
    weights_only=True.

    Parameters
    ----------
    model : a dense or compressed module, which is changed in place; or a class or
        function without arguments that makes a dense one (tensors of the folder are
        not allocated twice); or a class of transformers or sentence-transformers.
    folder : written by `save_compressed`, save_pretrained(), `danaus.Model.save` or the
        program's compress.
    device : device of the model; None: where it is, for a new one the CPU.
    options : passed to from_pretrained() or SentenceTransformer(), for such classes.
    """
    path = pathlib.Path(folder)
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder")
    if isinstance(model, type) and _reads_folders(model):
        return _pretrained(model, path, device, options)
    if options:
        name = next(iter(options))
        raise TypeError(f"load_compressed() has no option {name!r} for such a model")
    if not isinstance(model, nn.Module):
        made = _made_of(model)
        if _reads_folders(type(made)):
            return _pretrained(type(made), path, device, {})
        _fill_new(made, model, *_read(path))
    elif _reads_folders(type(model)):
        source = _pretrained(type(model), path, None, {})
        made = model
        _fill(made, structure_of(source), source.state_dict(), path)
    else:
        made = model
        _fill(made, *_read(path))
    return (made if device is None else made.to(device)).eval()


def _read(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, Tensor], pathlib.Path]:
    """Structure and tensors of a folder."""
    structure, tied = _read_structure(path)
    tensors = read_tensors(path)
    for name in structure:
        tensors.pop(f"{name}.weight", None)
    tensors = widened(tensors)
    tensors |= {name: tensors[of] for name, of in tied.items() if of in tensors}
    return structure, tensors, path


def _made_of(make: Any) -> nn.Module:
    """The module that a class or function makes, with no memory for its tensors."""
    if not callable(make):
        raise TypeError(
            f"model is a {type(make).__name__}; a torch.nn.Module, or a class or "
            "function that makes one, is needed"
        )
    with torch.device("meta"):
        made = make()
    if not isinstance(made, nn.Module):
        raise TypeError(f"{make!r:.60} makes a {type(made).__name__}, not a module")
    return made


def _pretrained(
    kind: type, path: pathlib.Path, device: Any, options: dict[str, Any]
) -> nn.Module:
    if hasattr(kind, "from_pretrained"):
        made = kind.from_pretrained(str(path), **options)
    else:
        made = kind(str(path), **options)
    return made if device is None else made.to(device)


def _fill(
    model: nn.Module,
    structure: Mapping[str, Any],
    tensors: dict[str, Tensor],
    path: pathlib.Path,
) -> None:
    """Layers and numbers for a model that has memory; nothing changes on failure."""
    layers = built_for(model, structure)
    check_fits(model, layers, tensors, path)
    for name, layer in layers.items():
        like = next(model.get_submodule(name).parameters())
        layers[name] = emptied(layer, like.device, like.dtype)
    for name, layer in layers.items():
        model.set_submodule(name, layer)
    model.load_state_dict(tensors)


def _fill_new(
    model: nn.Module,
    make: Callable[[], nn.Module],
    structure: Mapping[str, Any],
    tensors: dict[str, Tensor],
    path: pathlib.Path,
) -> None:
    """The same for a model without memory, which takes the tensors as they are."""
    check_fits(model, built_for(model, structure), tensors, path)
    apply_structure(model, structure, "meta")
    shared = _shared(model)
    model.load_state_dict(tensors, assign=True)
    for owners in shared:
        parameter = getattr(*owners[0])
        for module, name in owners[1:]:
            setattr(module, name, parameter)
    _fill_buffers(model, make)


def _shared(model: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    """Where parameters stand that several modules have."""
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            owners.setdefault(id(parameter), []).append((module, name))
    return [places for places in owners.values() if len(places) > 1]


def _fill_buffers(model: nn.Module, make: Callable[[], nn.Module]) -> None:
    """Takes buffers that state dicts leave out from a model made with memory."""
    lacking = [name for name, buffer in model.named_buffers() if buffer.is_meta]
    if not lacking:
        return
    source = make()
    for name in lacking:
        parent, _, last = name.rpartition(".")
        module = model.get_submodule(parent)
        module._buffers[last] = source.get_buffer(name)


def check_fits(
    model: nn.Module,
    layers: Mapping[str, nn.Module],
    tensors: Mapping[str, Tensor],
    path: pathlib.Path,
) -> None:
    """All that the model with these layers needs is there, and nothing else."""
    begins = tuple(f"{name}." for name in layers)
    wanted = {
        name: tuple(tensor.shape)
        for name, tensor in model.state_dict().items()
        if not name.startswith(begins)
    }
    for name, layer in layers.items():
        for part, tensor in layer.state_dict().items():
            wanted[f"{name}.{part}"] = tuple(tensor.shape)
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    wrong = [f"{n} is missing" for n in wanted if n not in found]
    wrong += [f"{n} has no place" for n in found if n not in wanted]
    wrong += [
        f"{n} is {list(found[n])}, not {list(shape)}"
        for n, shape in wanted.items()
        if found.get(n, shape) != shape
    ]
    if wrong:
        more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise ValueError(f"{path}: {'; '.join(wrong[:5])}{more}")


def _read_json(path: pathlib.Path) -> Any:
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise ValueError(f"{path}: no proper JSON: {error}") from None


def _read_structure(folder: pathlib.Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The structure, and which tensors are the same as which others."""
    path = folder / STRUCTURE
    if path.exists():
        entry = _read_json(path)
        structure = from_entry(entry, str(path))
        return structure, dict(entry.get("tied", {}))
    path = folder / "config.json"
    config = _read_json(path) if path.exists() else None
    entry = config.get("quantization_config") if isinstance(config, dict) else None
    if entry is None:
        raise ValueError(
            f"{folder} holds no compressed model: it has no {STRUCTURE}, and no "
            "config.json with a quantization_config"
        )
    return from_entry(entry, str(path)), {}


def read_tensors(folder: pathlib.Path) -> dict[str, Tensor]:
    """All tensors of a folder, on the CPU."""
    if (folder / WEIGHTS).exists():
        return _read_file(folder / WEIGHTS)
    if (folder / INDEX).exists():
        places = _read_json(folder / INDEX).get("weight_map")
        if not isinstance(places, dict) or any(
            not isinstance(name, str) or pathlib.Path(name).name != name
            for name in places.values()
        ):
            raise ValueError(
                f'{folder / INDEX}: "weight_map" has no names of files beside it'
            )
        found: dict[str, Tensor] = {}
        for name in sorted(set(places.values())):
            found |= _read_file(folder / name)
        return found
    for name in PICKLED:
        if (folder / name).exists():
            return torch.load(
                regular(folder / name), map_location="cpu", weights_only=True
            )
    raise FileNotFoundError(f"{folder} has no {WEIGHTS}, {INDEX} or {PICKLED[0]}")


def _read_file(path: pathlib.Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(regular(path))
