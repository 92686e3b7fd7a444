"""AutoConfig, AutoModel and the like of transformers know the models.

Its own ViT has the name "vit": AutoModel gives that one, which reads the same folders
but those with Monarch layers.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations


def register() -> None:
    """Nothing without transformers."""
    try:
        import transformers as hub
    except ImportError:
        return
    from danaus.torch.models import hyena, m2_bert, mixer_vit

    kinds = {
        m2_bert.M2BertConfig: {
            hub.AutoModel: m2_bert.M2BertModel,
            hub.AutoModelForMaskedLM: m2_bert.M2BertForMaskedLM,
            hub.AutoModelForSequenceClassification: (
                m2_bert.M2BertForSequenceClassification
            ),
        },
        hyena.HyenaConfig: {
            hub.AutoModel: hyena.HyenaModel,
            hub.AutoModelForCausalLM: hyena.HyenaForCausalLM,
        },
        hyena.HyenaDNAConfig: {
            hub.AutoModel: hyena.HyenaDNAModel,
            hub.AutoModelForCausalLM: hyena.HyenaDNAForCausalLM,
        },
        mixer_vit.HyenaViTConfig: {
            hub.AutoModel: mixer_vit.HyenaViTModel,
            hub.AutoModelForImageClassification: (
                mixer_vit.HyenaViTForImageClassification
            ),
        },
        mixer_vit.M2ViTConfig: {
            hub.AutoModel: mixer_vit.M2ViTModel,
            hub.AutoModelForImageClassification: mixer_vit.M2ViTForImageClassification,
        },
    }
    for config, models in kinds.items():
        hub.AutoConfig.register(config.model_type, config, exist_ok=True)
        for kind, model in models.items():
            kind.register(config, model, exist_ok=True)
