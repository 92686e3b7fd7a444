"""Trains a vision transformer on images of classes: ViT, HyenaViT or M2-ViT.

    train_vit.py CONFIG.json [KEY=VALUE ...] [--resume]
    train_vit.py data=images.npy labels=labels.npy model.model_type=m2_vit out=vit
    torchrun --nproc-per-node 2 train_vit.py CONFIG.json

docs/training.md says what CONFIG.json may hold. Checkpoints are folders that PyTorch,
danaus.Model and the program read. "monarch_blocks" gives "vit" Monarch matrices.
"""

# SPDX-License-Identifier: Apache-2.0
from danaus.torch import models, training

KINDS = {
    "vit": (models.MonarchViTConfig, models.MonarchViTForImageClassification),
    "hyena_vit": (models.HyenaViTConfig, models.HyenaViTForImageClassification),
    "m2_vit": (models.M2ViTConfig, models.M2ViTForImageClassification),
}

if __name__ == "__main__":
    raise SystemExit(training.main(__doc__, KINDS, training.Images))
