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
