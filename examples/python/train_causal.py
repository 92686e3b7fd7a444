"""Trains a model of the next token on text or DNA: Hyena, M2-GPT or HyenaDNA.

    train_causal.py CONFIG.json [KEY=VALUE ...] [--resume]
    train_causal.py data=genome.fa length=1024 model.model_type=hyenadna out=dna
    torchrun --nproc-per-node 2 train_causal.py CONFIG.json

docs/training.md says what CONFIG.json may hold. Checkpoints are folders that PyTorch,
danaus.Model and the program read. M2-GPT is "hyena" with "head_dim" and without
"d_inner".
"""

# SPDX-License-Identifier: Apache-2.0
from danaus.torch import models, training

KINDS = {
    "hyena": (models.HyenaConfig, models.HyenaForCausalLM),
    "hyenadna": (models.HyenaDNAConfig, models.HyenaDNAForCausalLM),
}

if __name__ == "__main__":
    raise SystemExit(training.main(__doc__, KINDS, training.NextTokens))
