"""Trains a small network on handwritten digits, dense and with Monarch matrices.

The digits, 1,797 pictures of 8 x 8, ship with scikit-learn. Both networks have the same
widths; that of Monarch matrices has a ninth of the weights. Its trained layers are
saved as a state dict, and as chain files, which the C library reads (danaus apply).

    python3 examples/python/train.py [epochs] [folder]
"""

# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from danaus.torch import MonarchLinear, freeze

WIDTH, BLOCKS = 512, 16


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures [n, 64] with pixels in [0, 1], and what they show."""
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return x[order], torch.tensor(data.target)[order]


def network(structured: bool) -> torch.nn.Sequential:
    """Three layers: 64 to WIDTH, WIDTH to WIDTH, WIDTH to 10 classes."""
    torch.manual_seed(0)
    if structured:
        hidden = [
            MonarchLinear(64, WIDTH, BLOCKS, activation="relu"),
            MonarchLinear(WIDTH, WIDTH, BLOCKS, activation="relu"),
        ]
    else:
        hidden = [torch.nn.Linear(64, WIDTH), torch.nn.ReLU()]
        hidden += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    return torch.nn.Sequential(*hidden, torch.nn.Linear(WIDTH, 10))


def train(model: torch.nn.Module, x, labels, epochs: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            loss = torch.nn.functional.cross_entropy(model(x[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main() -> None:
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    x, labels = digits()
    held_out = 500
    for name, structured in ("dense", False), ("Monarch", True):
        model = network(structured)
        train(model, x[held_out:], labels[held_out:], epochs)
        with torch.no_grad():
            right = model(x[:held_out]).argmax(1) == labels[:held_out]
        weights = sum(p.numel() for p in model.parameters())
        share = float(right.float().mean())
        print(f"{name}: {weights} parameters, {share:.1%} of held-out digits right")
    if len(sys.argv) > 2:
        folder = Path(sys.argv[2])
        torch.save(model.state_dict(), folder / "digits.pt")
        for n in 0, 1:
            model[n].to_chain().save(folder / f"layer{n}.safetensors")
        print(f"saved in {folder}")
    # For serving: packed once, planned for one picture at a time.
    freeze(model, batch=1)
    print(f"the first digit is a {int(model(x[:1]).argmax())}, label {int(labels[0])}")


if __name__ == "__main__":
    main()
