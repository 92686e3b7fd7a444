"""Sentence encoders in C for sentence-transformers."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from danaus._arrays import ElementType, whole
from danaus.device import Device
from danaus.model import Model
from danaus.torch._errors import fail

try:
    from sentence_transformers.base.modules import InputModule
except ImportError as error:
    raise ImportError(
        "danaus.torch.sentence_encoder needs sentence-transformers 6: pip install "
        "sentence-transformers (6.2.0 has been tried)"
    ) from error

__all__ = ["SentenceEncoder"]


class SentenceEncoder(InputModule):
    """A model folder's encoder (docs/models.md), also a compressed one, as the only
    module of a ``SentenceTransformer``: ``encode`` and what is built on it run in C, on
    all cores.

        model = SentenceTransformer(modules=[SentenceEncoder("folder")])

    It has the folder's tokenizer, pooling and normalisation, and gives sentence
    embeddings without gradients: it is not for training. `save` copies the folder.

    Parameters
    ----------
    path : the folder.
    device, dtype : where the encoder runs and in which type, as for `danaus.Model`:
        whatever the device of the SentenceTransformer is.
    max_seq_length : tokens of a text at most; None: as many as the model takes.
    """

    save_in_root = False
    config_file_name = "sentence_encoder.json"
    config_keys = ["max_seq_length"]

    def __init__(
        self,
        path: str | os.PathLike,
        device: Device | str | None = None,
        dtype: ElementType | None = None,
        max_seq_length: int | None = None,
    ):
        super().__init__()
        self._how = os.fspath(path), device, dtype
        self.model = Model(*self._how)
        self.max_seq_length = max_seq_length

    @property
    def max_seq_length(self) -> int:
        """Tokens of a text at most; sentence-transformers sets it, too."""
        return self._most

    @max_seq_length.setter
    def max_seq_length(self, value: int | None) -> None:
        most = self.model.describe().max_length
        given = most if value is None else value
        self._most = whole(given, "max_seq_length", 1, most)

    def __reduce__(self):
        """Copies and other processes load the folder again."""
        return type(self), (*self._how, self.max_seq_length)

    @property
    def tokenizer(self):
        """The folder's `danaus.Tokenizer`."""
        return self.model.tokenizer

    def get_embedding_dimension(self) -> int:
        return self.model.describe().embedding

    def preprocess(
        self, inputs: Sequence[str], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor]:
        """Ids of tokens, padded with 0 to the longest text, and which of them count."""
        texts = [prompt + text for text in inputs] if prompt else inputs
        found = self.tokenizer.encode_batch(texts, self.max_seq_length)
        longest = max(map(len, found), default=0)
        ids = torch.zeros(len(found), longest, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, kept, tokens in zip(ids, mask, found):
            row[: len(tokens)] = torch.as_tensor(tokens)
            kept[: len(tokens)] = 1
        return {"input_ids": ids, "attention_mask": mask}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Adds the "sentence_embedding" [texts, embedding], f32, on the device of the
        ids."""
        ids, mask = features["input_ids"], features["attention_mask"]
        lengths = mask.sum(1).tolist()
        rows = ids.cpu().numpy()
        found = self.model.embed_tokens([x[:n] for x, n in zip(rows, lengths)])
        features["sentence_embedding"] = torch.from_numpy(found).to(ids.device)
        return features

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        shutil.copytree(self._how[0], output_path, dirs_exist_ok=True)
        self.save_config(output_path)

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        **kwargs: Any,
    ) -> SentenceEncoder:
        """Reads what `save` wrote, or any folder that `danaus.Model` reads."""
        at = subfolder, token, cache_folder, revision, local_files_only
        folder = cls.load_dir_path(model_name_or_path, *at)
        if folder is None:
            fail(f"{model_name_or_path} has no folder {subfolder!r}")
        return cls(folder, **cls.load_config(folder))
