"""Draws chains, spectra of filters, and how error falls with parameters.

pictures.py [FOLDER]
"""

# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import numpy as np

import danaus
from danaus import plot, transforms


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)

    fourier = transforms.dft(16).chain
    plot.chain(fourier).savefig(folder / "fourier.png", dpi=150)

    time = np.arange(400)
    low_pass = 0.2 * np.sinc((time - 200) / 5) * np.hanning(400)
    decay = 0.05 * np.exp(-time / 20)
    ax = plot.spectrum([low_pass, decay], labels=["low pass", "decay"])
    ax.figure.savefig(folder / "filters.png", dpi=150)
    ax = plot.spectrum(decay, axes=(8, 8), keep=(4, 4))
    ax.figure.savefig(folder / "sparse_spectrum.png", dpi=150)

    line = np.linspace(0, 1, 64)
    distance = np.hypot(0.5, line[:, None] - line)
    field = (np.cos(200 * distance) / distance)[np.arange(64).reshape(8, 8).T.ravel()]
    ax = plot.error_against_parameters(field, ["low-rank", "monarch"])
    ax.figure.savefig(folder / "errors.png", dpi=150)

    found = danaus.factorize(field, danaus.patterns.make("monarch", 64, 64))
    plot.chain(found.chain).savefig(folder / "monarch.png", dpi=150)
    print("drawn:", ", ".join(sorted(path.name for path in folder.glob("*.png"))))


if __name__ == "__main__":
    main()
