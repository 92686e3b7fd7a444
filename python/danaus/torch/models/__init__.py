"""Models that train in PyTorch and run from the same folder in C: docs/models.md."""

# SPDX-License-Identifier: Apache-2.0
from danaus.torch.models import auto
from danaus.torch.models.hyena import (
    HyenaConfig,
    HyenaDNAConfig,
    HyenaDNAForCausalLM,
    HyenaDNAModel,
    HyenaForCausalLM,
    HyenaModel,
)
from danaus.torch.models.m2_bert import (
    M2BertConfig,
    M2BertForMaskedLM,
    M2BertForSequenceClassification,
    M2BertModel,
)
from danaus.torch.models.mixer_vit import (
    HyenaViTConfig,
    HyenaViTForImageClassification,
    HyenaViTModel,
    M2ViTConfig,
    M2ViTForImageClassification,
    M2ViTModel,
)
from danaus.torch.models.vit import (
    MonarchViTConfig,
    MonarchViTForImageClassification,
    MonarchViTModel,
)

# fmt: off
__all__ = [
    "HyenaConfig", "HyenaForCausalLM", "HyenaModel",
    "HyenaDNAConfig", "HyenaDNAForCausalLM", "HyenaDNAModel",
    "M2BertConfig", "M2BertForMaskedLM", "M2BertForSequenceClassification",
    "M2BertModel",
    "HyenaViTConfig", "HyenaViTForImageClassification", "HyenaViTModel",
    "M2ViTConfig", "M2ViTForImageClassification", "M2ViTModel",
    "MonarchViTConfig", "MonarchViTForImageClassification", "MonarchViTModel",
]
# fmt: on
auto.register()
