"""Sentence encoders by ONNX Runtime and fastembed, with the weights of PyTorch's model.

ONNX Runtime runs the graph that PyTorch exports, in f32, and with the weights of its
products in 8 bits as its own `quantize_dynamic` makes them. fastembed runs the graph in
f32, from texts. Means over tokens and their norms are made by NumPy.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pathlib
import shutil

import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic

FILES = "config.json tokenizer.json tokenizer_config.json special_tokens_map.json"


class Hidden(torch.nn.Module):
    """The last hidden states of a model alone."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.model(input_ids, attention_mask, token_type_ids).last_hidden_state


def export(model: torch.nn.Module, path: pathlib.Path) -> None:
    ids = torch.arange(18).view(2, 9)
    given = ids, torch.ones_like(ids), torch.zeros_like(ids)  # no two are the same one
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=512)
    names = "input_ids", "attention_mask", "token_type_ids"
    torch.onnx.export(
        Hidden(model).eval(),
        given,
        path,
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_shapes=dict.fromkeys(names, {0: batch, 1: length}),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def to_8_bits(path: pathlib.Path, out: pathlib.Path) -> None:
    quantize_dynamic(path, out, weight_type=QuantType.QInt8)


def encoder(path: pathlib.Path, threads: int):
    """A function of batches of ids and masks, which returns embeddings."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])

    def encode(batches: list[tuple[torch.Tensor, torch.Tensor]]) -> np.ndarray:
        found = []
        for ids, mask in batches:
            ids, mask = ids.numpy(), mask.numpy()
            inputs = {"input_ids": ids, "attention_mask": mask}
            inputs["token_type_ids"] = np.zeros_like(ids)
            (h,) = session.run(None, inputs)
            mean = np.einsum("bth,bt->bh", h, mask.astype(h.dtype))
            found.append(mean / np.linalg.norm(mean, axis=1, keepdims=True))
        return np.concatenate(found)

    return encode


def fastembed(model: pathlib.Path, graph: pathlib.Path, width: int, threads: int):
    """A function of texts, by fastembed; `model` has the tokenizer's files."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    folder = graph.parent / "fastembed"
    folder.mkdir()
    shutil.copy(graph, folder / "model.onnx")
    for name in FILES.split():
        shutil.copy(model / name, folder)
    TextEmbedding.add_custom_model(
        model="danaus/bench",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="danaus/bench"),
        dim=width,
        model_file="model.onnx",
    )
    made = TextEmbedding(
        "danaus/bench", specific_model_path=str(folder), threads=threads
    )
    return lambda texts: np.stack(list(made.embed(texts, batch_size=64)))
