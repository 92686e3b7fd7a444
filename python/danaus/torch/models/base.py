"""What all models share: configurations, and folders that hold a model.

With transformers installed models are its PreTrainedModel, so that Trainer, AutoModel
and accelerate know them; without it they are modules with the same two methods.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import pathlib
import warnings
from typing import Any, ClassVar

import torch
from torch import Tensor

from danaus._files import read_text, write_whole
from danaus.torch._conv_functions import fail
from danaus.torch.functional import activation_name
from danaus.torch.implicit import HyenaFilter
from danaus.torch.saving import WEIGHTS, Folder, check_fits, read_tensors
from danaus.torch.structure import (
    apply_structure,
    built_for,
    from_entry,
    placeholders,
    structure_of,
    to_entry,
)

try:
    from transformers import GenerationMixin as Generates
    from transformers import PretrainedConfig as _Config
    from transformers import PreTrainedModel as _Module
    from transformers.utils import ModelOutput as Output
except ImportError:

    class Generates:  # type: ignore[no-redef]
        """Models that generate do so with transformers."""

    class Output(dict):  # type: ignore[no-redef]
        """Results by their names, also as attributes; None is left out."""

        def __post_init__(self):
            names = self.__dataclass_fields__
            self.update({n: v for n in names if (v := self.__dict__[n]) is not None})

    class _Config:  # type: ignore[no-redef]
        """Numbers of a model by their names, as attributes."""

        model_type = ""

        def __init__(self, **more: Any):
            self.__dict__.update(more)

        def to_dict(self) -> dict[str, Any]:
            return {**self.__dict__, "model_type": self.model_type}

        def save_pretrained(self, folder: Folder) -> None:
            text = json.dumps(self.to_dict(), indent=2) + "\n"
            write_whole(pathlib.Path(folder) / "config.json", text.encode())

    class _Module(torch.nn.Module):  # type: ignore[no-redef]
        def __init__(self, config: Config):
            super().__init__()
            self.config = config

        def post_init(self) -> None:
            """Each module begins once, by the innermost model that it is in."""
            self.apply(self._begin)

        def _begin(self, module: torch.nn.Module) -> None:
            if not getattr(module, "_has_begun", False):
                self._init_weights(module)
                module._has_begun = True

        @property
        def device(self) -> torch.device:
            return next(self.parameters()).device

        def save_pretrained(self, folder: Folder) -> None:
            from safetensors.torch import save

            path = pathlib.Path(folder)
            path.mkdir(parents=True, exist_ok=True)
            state = {**self.state_dict(), **placeholders(self)}
            state = {n: x.detach().contiguous() for n, x in state.items()}
            write_whole(path / WEIGHTS, save(state, {"format": "pt"}))
            config = type(self.config)(**self.config.__dict__)
            if structure := structure_of(self):
                config.quantization_config = to_entry(structure)
            config.save_pretrained(path)


_ACTIVATIONS = {
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "swish": "silu",
}  # fmt: skip


class Config(_Config):
    """config.json of a model: `defaults` by their names, and what else it holds."""

    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, **given: Any):
        own = {name: given.pop(name, usual) for name, usual in self.defaults.items()}
        super().__init__(**given)
        for name, value in own.items():
            setattr(self, name, value)

    @classmethod
    def read(cls, folder: Folder) -> Config:
        """The configuration of a folder."""
        path = pathlib.Path(folder) / "config.json"
        try:
            found = json.loads(read_text(path))
        except ValueError as error:
            raise ValueError(f"{path}: no proper JSON: {error}") from None
        if not isinstance(found, dict) or not cls.recognizes(found):
            said = found.get("model_type") if isinstance(found, dict) else None
            fail(f"{path}: the model_type is {said!r}, not {cls.model_type!r}")
        return cls(**{n: v for n, v in found.items() if n != "model_type"})

    @classmethod
    def recognizes(cls, found: dict[str, Any]) -> bool:
        """True for the content of a config.json that is of this class."""
        return found.get("model_type") == cls.model_type


def need_sizes(config: Config, *names: str) -> None:
    """These numbers of a configuration are whole and at least 1."""
    for name in names:
        size = getattr(config, name)
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            fail(f"{name} is {size!r}; a whole number from 1 on is needed")


def classes_of(config: Config) -> int:
    """num_labels, or as many as have a name; 2 where neither says it."""
    named = getattr(config, "id2label", None)
    return getattr(config, "num_labels", None) or (len(named) if named else 2)


def activation_of(config: Config) -> str:
    """hidden_act by the name that layers know."""
    name = config.hidden_act
    return activation_name(_ACTIVATIONS.get(name, name))


@torch.no_grad()
def init_usual(module: torch.nn.Module, std: float) -> None:
    """Normal weights of linear layers and embeddings, biases of zero, norms that scale
    by 1; row padding_idx of an embedding is zero."""
    if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
        torch.nn.init.normal_(module.weight, std=std)
    if isinstance(module, torch.nn.Linear) and module.bias is not None:
        torch.nn.init.zeros_(module.bias)
    if getattr(module, "padding_idx", None) is not None:
        module.weight[module.padding_idx].zero_()
    if isinstance(module, torch.nn.LayerNorm):
        module.reset_parameters()


class Pretrained(_Module):
    """A model with a folder: `from_pretrained` and `save_pretrained`."""

    config_class = Config
    base_model_prefix = ""
    accepts_loss_kwargs = False  # a loss is the mean of its call; Trainer weighs it
    heads: ClassVar[tuple[str, ...]] = ()  # how names of parts begin that not all have

    @staticmethod
    def own_name(name: str) -> str | None:
        """The model's name of a file's tensor; None for one that is left out."""
        return name

    @classmethod
    def from_pretrained(
        cls,
        folder: Folder,
        *,
        config: Config | None = None,
        dtype: torch.dtype | None = None,
        device_map: Any = None,
        **ignored: Any,
    ):
        """The model of a folder, in evaluation mode.

        A folder is what save_pretrained() or the program's compress wrote, or a
        converted checkpoint (docs/models.md). It may be of a model with another head:
        that is left out, and the own one begins anew, with a warning.

        Raises
        ------
        FileNotFoundError, ValueError
            A folder without these files, of another architecture, or with tensors that
            lack, are too many or have other sizes than config.json says.
        """
        path = pathlib.Path(folder)
        if not path.is_dir():
            raise FileNotFoundError(f"{os.fspath(folder)} is not a folder")
        config = cls.config_class.read(path) if config is None else config
        model = cls(config)
        tensors = read_tensors(path)
        layers = cls._layers(config, path)
        for name in layers:
            tensors.pop(f"{name}.weight", None)
        found = {cls.own_name(name): x for name, x in tensors.items()}
        found.pop(None, None)
        tensors = model._own(found)
        layers = model._own(layers)
        model._begin_heads(tensors, layers)
        for name, module in model.named_modules():
            if isinstance(module, HyenaFilter):
                module.complete(tensors, f"{name}.")
        check_fits(model, built_for(model, layers), tensors, path)
        apply_structure(model, layers)
        model.load_state_dict(tensors)
        model = model if dtype is None else model.to(dtype)
        return (model if device_map is None else model.to(device_map)).eval()

    @staticmethod
    def _layers(config: Config, path: pathlib.Path) -> dict[str, Any]:
        """Descriptions of layers that are not dense."""
        entry = getattr(config, "quantization_config", None)
        if entry is None:
            return {}
        entry = entry if isinstance(entry, dict) else entry.to_dict()
        return from_entry(entry, str(path / "config.json"))

    def _head_of(self, name: str) -> str | None:
        """The head that a parameter is a part of."""
        rest = name.removeprefix(f"{self.base_model_prefix}.")
        before = name.removesuffix(rest)
        return before + rest.split(".")[0] if rest.startswith(self.heads) else None

    def _own(self, found: dict[str, Any]) -> dict[str, Any]:
        """What belongs to this model, by its own names: an encoder is found with and
        without its prefix, heads of other models are left out."""
        prefix = f"{self.base_model_prefix}."
        modules = dict(self.named_modules())
        own = {}
        for name, value in found.items():
            if self.base_model_prefix not in modules:
                name = name.removeprefix(prefix)
            elif name.split(".")[0] not in modules:
                name = prefix + name
            if self._head_of(name) in {None, *modules}:
                own[name] = value
        return own

    def _begin_heads(self, tensors: dict[str, Tensor], layers: dict[str, Any]) -> None:
        """Heads that a folder has not keep the numbers that they begin with."""
        known = {None, *map(self._head_of, (*tensors, *layers))}
        missing = [n for n in self.state_dict() if self._head_of(n) not in known]
        for name in dict.fromkeys(map(self._head_of, missing)):
            warnings.warn(f"{name} is not in the folder: it begins anew", stacklevel=3)
        tensors.update((n, self.state_dict()[n]) for n in missing)
