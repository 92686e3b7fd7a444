"""Trains Monarch Mixer BERT on text, to tell words that are masked.

    train_m2_bert.py CONFIG.json [KEY=VALUE ...] [--resume]
    train_m2_bert.py data=book.txt length=128 model.hidden_size=256 out=bert
    torchrun --nproc-per-node 2 train_m2_bert.py CONFIG.json

docs/training.md says what CONFIG.json may hold. Checkpoints are folders that PyTorch,
danaus.Model and the program read.
"""

# SPDX-License-Identifier: Apache-2.0
from danaus.torch import models, training

KINDS = {"m2_bert": (models.M2BertConfig, models.M2BertForMaskedLM)}

if __name__ == "__main__":
    raise SystemExit(training.main(__doc__, KINDS, training.MaskedTokens))
