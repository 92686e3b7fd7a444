"""Times of calls that take turns, so that a machine that slows down does so for all."""

# SPDX-License-Identifier: Apache-2.0
import statistics
import time


def time_all(runs: dict, rounds: int) -> dict[str, float]:
    """Median seconds of each, after a round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in times.items()}
