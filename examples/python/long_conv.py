"""Learns to remember: the copying task, with a GatedLongConv.

Ten symbols come first, then a pause, then a sign to repeat them. A model has to carry
them across the pause: recurrent networks find that hard, one long convolution does it.
After training, the same layers run token by token, as a language model generates text.

    python3 examples/python/long_conv.py [steps]
"""

# SPDX-License-Identifier: Apache-2.0
import sys

import torch

from danaus.torch import GatedLongConv

SYMBOLS, COUNT, PAUSE = 8, 10, 80
BLANK, REPEAT = SYMBOLS, SYMBOLS + 1
LENGTH = 2 * COUNT + PAUSE


def draw(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token sequences [batch, LENGTH] and the symbols [batch, COUNT] to repeat."""
    symbols = torch.randint(SYMBOLS, (batch, COUNT))
    tokens = torch.full((batch, LENGTH), BLANK)
    tokens[:, :COUNT] = symbols
    tokens[:, COUNT + PAUSE] = REPEAT
    return tokens, symbols


class Copier(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.embed = torch.nn.Embedding(SYMBOLS + 2, width)
        self.norm = torch.nn.LayerNorm(width)
        self.mix = GatedLongConv(width, LENGTH)
        self.head = torch.nn.Linear(width, SYMBOLS)

    def forward(self, tokens: torch.Tensor, mix=None) -> torch.Tensor:
        """Scores of symbols [batch, length, SYMBOLS]; mix: the layer's stream."""
        x = self.embed(tokens)
        return self.head(x + (mix or self.mix)(self.norm(x)))


def train(model: Copier, steps: int) -> float:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        tokens, symbols = draw(32)
        scores = model(tokens)[:, -COUNT:]
        loss = torch.nn.functional.cross_entropy(
            scores.flatten(0, 1), symbols.flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    return loss.item()


@torch.no_grad()
def main(steps: int = 100) -> float:
    """Trains, and returns the share of symbols repeated rightly, token by token."""
    torch.manual_seed(0)
    model = Copier(64)
    with torch.enable_grad():
        train(model, steps)
    tokens, symbols = draw(16)
    whole = model(tokens)[:, -COUNT:].argmax(-1)
    stream = model.mix.stream(batch=16)
    stepped = torch.cat([model(t, stream) for t in tokens.split(1, dim=1)], dim=1)
    stepped = stepped[:, -COUNT:].argmax(-1)
    print(
        "as a whole and token by token:", "equal" if whole.equal(stepped) else "unequal"
    )
    right = (stepped == symbols).float().mean().item()
    print(f"{right:.1%} of the symbols were repeated rightly")
    return right


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
