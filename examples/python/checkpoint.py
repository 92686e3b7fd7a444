"""Factorises all matrices of a checkpoint, in several processes, file to file.

    checkpoint.py MODEL.safetensors CHAINS.safetensors [--share 0.3] [--workers 2]

CHAINS may be a folder too. The call may be interrupted and made again: what is there
already is kept. A table of errors is written beside the chains.
"""

# SPDX-License-Identifier: Apache-2.0
import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import danaus


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("chains")
    parser.add_argument("--share", type=float, default=0.3, help="of the parameters")
    parser.add_argument("--smallest", type=int, default=64, help="side of a matrix")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()

    def rule(name, shape):
        """Embeddings are looked up, not multiplied by; small matrices stay."""
        if "embedding" in name or min(shape) < options.smallest:
            return None
        return options.share

    # A process that is spawned shares no threads with this one, as one forked might.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        report = danaus.factorize_many(
            options.model, options.chains, rule, executor=pool, progress=True
        )
    for record in report:
        if record["status"] in ("done", "kept"):
            share, error = record["share"], record["error"]
            note = f"{share:6.1%} of the parameters, error {error:.3f}"
        else:
            note = record["message"]
        print(f"{record['status']:12} {record['name']:40} {note}")
    failed = [record for record in report if record["status"] == "failed"]
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
