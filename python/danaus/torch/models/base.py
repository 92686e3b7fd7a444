"""What all models share: configurations, and folders that hold a model.

With transformers installed models are its PreTrainedModel, so that Trainer, AutoModel
and accelerate know them; without it they are modules with the same two methods.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import pathlib
from typing import Any, ClassVar

import torch
from torch import Tensor

from danaus._files import read_text, write_whole
from danaus.torch._conv_functions import fail
from danaus.torch.implicit import HyenaFilter
from danaus.torch.saving import WEIGHTS, Folder, check_fits, read_tensors
from danaus.torch.structure import apply_structure, built_for, from_entry

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
            self.apply(self._init_weights)

        @property
        def device(self) -> torch.device:
            return next(self.parameters()).device

        def save_pretrained(self, folder: Folder) -> None:
            from safetensors.torch import save

            path = pathlib.Path(folder)
            path.mkdir(parents=True, exist_ok=True)
            state = {n: x.detach().contiguous() for n, x in self.state_dict().items()}
            write_whole(path / WEIGHTS, save(state, {"format": "pt"}))
            self.config.save_pretrained(path)


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

    @staticmethod
    def rename(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of a file by the names that the model has."""
        return tensors

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
        converted checkpoint (docs/models.md).

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
        entry = getattr(config, "quantization_config", None)
        layers: dict[str, Any] = {}
        tensors = read_tensors(path)
        if entry is not None:
            entry = entry if isinstance(entry, dict) else entry.to_dict()
            layers = from_entry(entry, str(path / "config.json"))
            for name in layers:
                tensors.pop(f"{name}.weight", None)
        tensors = model.rename(tensors)
        for name, module in model.named_modules():
            if isinstance(module, HyenaFilter):
                module.complete(tensors, f"{name}.")
        check_fits(model, built_for(model, layers), tensors, path)
        apply_structure(model, layers)
        model.load_state_dict(tensors)
        model = model if dtype is None else model.to(dtype)
        return (model if device_map is None else model.to(device_map)).eval()
