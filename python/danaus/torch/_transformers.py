"""from_pretrained() and save_pretrained() of transformers for compressed models.

config.json of a compressed model has a "quantization_config" whose "quant_method" is
"danaus": a quantizer of that name puts layers in place before weights are loaded.
Nothing is imported: what transformers needs is added when its module has been loaded.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from danaus.torch._later import when_loaded
from danaus.torch.int8 import expect_scales, narrowed, take_scales
from danaus.torch.structure import (
    METHOD,
    apply_structure,
    from_entry,
    layers_of,
    placeholders,
    structure_of,
    to_entry,
)


def install() -> None:
    """Extends transformers now, where it is loaded, or as soon as it is."""
    when_loaded("transformers.modeling_utils", extend)


def extend(module: Any) -> None:
    """Registers the quantizer; save_pretrained() writes the structure of layers."""
    from transformers.quantizers import auto

    if METHOD in auto.AUTO_QUANTIZER_MAPPING:
        return
    config, quantizer = _classes()
    auto.AUTO_QUANTIZATION_CONFIG_MAPPING[METHOD] = config
    auto.AUTO_QUANTIZER_MAPPING[METHOD] = quantizer
    kind = module.PreTrainedModel
    kind.save_pretrained = _saving(kind.save_pretrained, config, quantizer)


@functools.cache
def _classes() -> tuple[type, type]:
    """The configuration and the quantizer, whose bases are transformers'."""
    from transformers.quantizers.base import HfQuantizer
    from transformers.utils.quantization_config import QuantizationConfigMixin

    class DanausConfig(QuantizationConfigMixin):
        def __init__(self, layers: Mapping[str, Any] | None = None, **rest: Any):
            entry = {"quant_method": METHOD, "layers": layers} | rest
            self.quant_method = METHOD
            self.layers = from_entry(entry, "config.json: quantization_config")

        def to_dict(self) -> dict[str, Any]:
            return to_entry(self.layers)

    class DanausQuantizer(HfQuantizer):
        """Loads and saves layers of danaus."""

        requires_calibration = True
        is_trainable = True
        state_dict = None  # what save_pretrained() was given

        def is_serializable(self, *args: Any, **keywords: Any) -> bool:
            return True

        def _process_model_before_weight_loading(self, model, **keywords):
            names = _names_in(model, self.quantization_config.layers)
            structure = {
                names[name]: layer
                for name, layer in self.quantization_config.layers.items()
                if name in names
            }
            apply_structure(model, structure, "meta")
            for name in structure:
                _disguise(model.get_submodule(name))
                expect_scales(model.get_submodule(name))
            empty = {name for pair in names.items() for name in pair}
            model._keys_to_ignore_on_load_unexpected = {
                *(model._keys_to_ignore_on_load_unexpected or ()),
                *(rf"(^|\.){re.escape(name)}\.weight$" for name in empty),
            }
            return model

        def _process_model_after_weight_loading(self, model, **keywords):
            """The model is as if it had just been compressed: any method works."""
            for _, layer in layers_of(model):
                take_scales(layer)
                for name in "weight", "bias":
                    layer.__dict__.pop(name, None)
            for name in "hf_quantizer", "is_quantized", "quantization_method":
                model.__dict__.pop(name, None)
            for module in model.modules():
                config = getattr(module, "config", None)
                for name in "quantization_config", "_is_quantized":
                    getattr(config, "__dict__", {}).pop(name, None)
            return model

        def get_state_dict_and_metadata(self, model):
            state = self.state_dict
            state = model.state_dict() if state is None else state
            return {**narrowed(model, state), **placeholders(model)}, {}

    return DanausConfig, DanausQuantizer


def _disguise(layer: nn.Module) -> None:
    """Gives a layer the weight and bias that functions of models initialise.

    They count as initialised, so that nothing is written to them.
    """
    for name, shape in (
        ("weight", (layer.out_features, layer.in_features)),
        ("bias", (layer.out_features,)),
    ):
        if not hasattr(layer, name):
            tensor = torch.empty(shape, device="meta")
            tensor._is_hf_initialized = True
            layer.__dict__[name] = tensor


# ---- names in files and in models ----


def _transforms(model: nn.Module, reverse: bool) -> tuple[list, list] | None:
    """Renamings and converters between names of a file and of a model."""
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import (
            PrefixChange,
            WeightConverter,
            WeightRenaming,
        )
    except ImportError:  # of a version that renames nothing
        return None
    found = getattr(model, "_weight_conversions", None) if reverse else None
    if found is None:
        found = get_model_conversion_mapping(model, add_legacy=not reverse)
        if reverse:
            found = [one for one in found if not isinstance(one, PrefixChange)]
    if reverse:
        found = [one.reverse_transform() for one in found[::-1]]
    renamings = [one for one in found if isinstance(one, WeightRenaming)]
    return renamings, [one for one in found if isinstance(one, WeightConverter)]


def _renamed(
    model: nn.Module, names: list[str], reverse: bool
) -> dict[str, tuple[str, bool]]:
    """The name of each layer on the other side, and True if its numbers change, too."""
    transforms = _transforms(model, reverse)
    if transforms is None:
        return {name: (name, False) for name in names}
    from transformers.core_model_loading import rename_source_key

    found = {}
    for name in names:
        key = f"{name}.weight"
        key, converter = rename_source_key(key, *transforms, reverse=reverse)
        found[name] = key.removesuffix(".weight"), converter is not None
    return found


def _names_in(model: nn.Module, layers: Mapping[str, Any]) -> dict[str, str]:
    """The model's name for each layer of a file.

    Layers of a head that this model has not are left out, as transformers does it. So
    are others with a warning, such as a pooler, if the module around is not there.
    """
    known = {name for name, _ in model.named_modules()}
    prefix = getattr(model, "base_model_prefix", "")
    found: dict[str, str] = {}
    lacking, alien = [], False
    for name, (other, _) in _renamed(model, list(layers), reverse=False).items():
        choices = other, f"{prefix}.{other}", other.removeprefix(f"{prefix}."), name
        place = next((choice for choice in choices if choice in known), None)
        if place is None:
            lacking.append(name)
            parents = {choice.rpartition(".")[0] for choice in choices}
            alien = alien or not parents.isdisjoint(known)
        else:
            found[name] = place
    begins = f"{prefix}."
    bare = not any(name.startswith(begins) for name in layers)
    lacking = [name for name in lacking if bare or name.startswith(begins)]
    if lacking:
        sentence = (
            f"config.json: quantization_config has a layer {lacking[0]}, which a "
            f"{type(model).__name__} has not"
        )
        if alien or not found:
            raise ValueError(sentence)
        warnings.warn(f"{sentence}: it is left out", stacklevel=2)
    return found


# ---- saving ----


def _saving(plain: Any, config: type, quantizer: type) -> Any:
    @functools.wraps(plain)
    def save_pretrained(self, *args, **keywords):
        entry = getattr(self.config, "quantization_config", None)
        structure = structure_of(self)
        if getattr(self, "_hf_peft_config_loaded", False) or not (
            structure or isinstance(entry, config)
        ):
            return plain(self, *args, **keywords)
        if structure and getattr(self, "hf_quantizer", None) is not None:
            raise ValueError(
                f"the model is quantised ({type(self.hf_quantizer).__name__}) and has "
                "layers of danaus: no folder of transformers holds both"
            )
        names = _renamed(self, list(structure), reverse=True)
        if any(changes for _, changes in names.values()):
            keywords["save_original_format"] = False
            names = {name: (name, False) for name in structure}
        layers = {names[name][0]: layer for name, layer in structure.items()}
        with _marked(self, layers, config, quantizer) as mark:
            mark.state_dict = keywords.get("state_dict")
            return plain(self, *args, **keywords)

    return save_pretrained


@contextmanager
def _marked(
    model: nn.Module, layers: Mapping[str, Any], config: type, quantizer: type
) -> Iterator[Any]:
    """The model with the marks of a compressed one, or without any."""
    places = (model.config, "quantization_config"), (model, "hf_quantizer")
    before = [(to, name, to.__dict__.get(name)) for to, name in places]
    mark = quantizer(config(layers), pre_quantized=True)
    try:
        for (to, name), value in zip(places, (mark.quantization_config, mark)):
            if layers:
                to.__dict__[name] = value
            else:
                to.__dict__.pop(name, None)
        yield mark
    finally:
        for to, name, value in before:
            if value is None:
                to.__dict__.pop(name, None)
            else:
                to.__dict__[name] = value
