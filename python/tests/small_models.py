"""Small models of transformers, with the same weights on every call."""

# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

transformers = pytest.importorskip("transformers")
IDS = torch.arange(64).reshape(4, 16) % 50
SIZES = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


def gpt2(kind=transformers.GPT2LMHeadModel):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=50, n_positions=16,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return kind(config).eval()


def bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=16, **SIZES)
    return transformers.BertModel(config).eval()


def vit(**options):
    torch.manual_seed(0)
    config = transformers.ViTConfig(image_size=16, patch_size=4, **SIZES)
    return transformers.ViTModel(config, **options).eval()


# ---- ten families, as functions that make a model and what it is called with ----

WIDE = {"vocab_size": 50, **SIZES}
SPEECH = {
    "vocab_size": 50, "d_model": 32, "num_mel_bins": 8, "max_source_positions": 12,
    "max_target_positions": 16, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
SIDES = {"layers": 2, "attention_heads": 2, "ffn_dim": 64}
for _side in ("encoder", "decoder"):
    SPEECH |= {f"{_side}_{name}": size for name, size in SIDES.items()}
VISION = {"image_size": 16, "patch_size": 4, **SIZES}
PIXELS = torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16).sin()


def _of(model: str, config: str, inputs: dict, **options):
    def make():
        torch.manual_seed(0)
        made = getattr(transformers, model)(getattr(transformers, config)(**options))
        return made.eval(), inputs

    return make


_IDS = {"input_ids": IDS}
_BOTH = {"input_ids": IDS, "decoder_input_ids": IDS.flip(1)}
_T5 = {"vocab_size": 50, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2}
_T5 |= {"num_heads": 2, "decoder_start_token_id": 0}
_LLAMA = {"num_key_value_heads": 1, **WIDE}
FAMILIES = {
    "BERT": _of(
        "BertForSequenceClassification", "BertConfig", _IDS,
        max_position_embeddings=16, **WIDE),
    "RoBERTa": _of(
        "RobertaForMaskedLM", "RobertaConfig", _IDS, max_position_embeddings=32,
        **WIDE),
    "GPT-2": lambda: (gpt2(), _IDS),
    "Llama": _of("LlamaForCausalLM", "LlamaConfig", _IDS, **_LLAMA),
    "Qwen2": _of(
        "Qwen2ForCausalLM", "Qwen2Config", _IDS, tie_word_embeddings=True, **_LLAMA),
    "ViT": _of(
        "ViTForImageClassification", "ViTConfig", {"pixel_values": PIXELS}, **VISION),
    "Whisper": _of(
        "WhisperForConditionalGeneration", "WhisperConfig",
        {"input_features": PIXELS.reshape(8, 8, 24)[:4], "decoder_input_ids": IDS},
        **SPEECH),
    "T5": _of("T5ForConditionalGeneration", "T5Config", _BOTH, **_T5),
    "Mamba": _of(
        "MambaForCausalLM", "MambaConfig", _IDS, vocab_size=50, hidden_size=32,
        state_size=8, num_hidden_layers=2),
    "CLIP": _of(
        "CLIPModel", "CLIPConfig", {"input_ids": IDS[:2], "pixel_values": PIXELS},
        projection_dim=16, vision_config=VISION,
        text_config={"max_position_embeddings": 16, "eos_token_id": 2, **WIDE}),
}  # fmt: skip
