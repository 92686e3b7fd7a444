#!/usr/bin/python3
"""bench/thin_tuning.py: what plans choose anyway goes, what they would not choose stays,
and with what stays they choose what the whole table says."""
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import subprocess
import sys
import tempfile

BENCH = pathlib.Path("bench").resolve()
LIBRARY = pathlib.Path(os.environ["DANAUS_BUILD"]) / "libdanaus.so"
SIZES = [(1, 96, 96, 1), (4, 48, 48, 4), (4, 48, 64, 4), (2, 128, 128, 1)]

sys.path.insert(0, str(BENCH / "baselines"))
import capi  # noqa: E402


def choices(table):
    """The kernel for each size, batch-last and first, with a table."""
    library = capi.Library(str(LIBRARY), "cpu")
    if table:
        library("danaus_device_load_tuning", library.device, str(table).encode())
    found = []
    for size in SIZES:
        for last in (False, True):
            plan = library.plan([size], 1, 0, last, 1024)
            found.append(library.describe("danaus_ks_plan_describe", plan)[0].split()[-1])
            library.free_plan(plan)
    library.close()
    return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        empty, table, out = (folder / name for name in ("empty", "table.csv", "out.csv"))
        library = capi.Library(str(LIBRARY), "cpu")
        library("danaus_device_save_tuning", library.device, str(empty).encode())
        place = subprocess.run(
            [pathlib.Path(os.environ["DANAUS_BUILD"]) / "danaus", "tune", "--suite",
             "bench/suites/vit.csv", "--seconds", "0.001", "--batch", "1", "-o", table],
            check=True, capture_output=True) and table.read_text().splitlines()[2]
        place = ",".join(place.split(",")[:4])
        lines, chosen = empty.read_text().splitlines()[:2], choices(None)
        for i, size in enumerate(SIZES):
            for last in range(2):
                kernel = chosen[2 * i + last]
                if i % 2:  # another one that serves
                    kernel = "ks.lanes.f32" if "panel" in kernel else "ks.panel.f32"
                lines.append(f"{place},{','.join(map(str, size))},f32,"
                             f"{'last' if last else 'first'},1024,{kernel},1e-6")
        table.write_text("\n".join(lines) + "\n")
        subprocess.run([sys.executable, BENCH / "thin_tuning.py", LIBRARY, table, out,
                        "--device", "cpu"], check=True, stdout=subprocess.DEVNULL)
        kept = [line for line in out.read_text().splitlines() if line.startswith("cpu")]
        assert all(line in lines for line in kept), kept
        assert 4 <= len(kept) < 2 * len(SIZES), kept
        assert choices(out) == choices(table) != chosen


if __name__ == "__main__":
    main()
