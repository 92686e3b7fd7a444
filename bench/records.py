"""Records of `danaus-bench ks --csv` and of baselines/torch_ks.py, for the programs that
draw them and sum them up."""
# SPDX-License-Identifier: Apache-2.0
import csv

ENERGY = ("bmm", "einsum", "bsr")
METHODS = ("bmm", "bmm_compiled", "einsum", "dense", "csr", "bsr")


def number(text):
    """A field's number; None where the field is empty."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


class Record:
    """A product with one factor: times in seconds, None where there are none."""

    def __init__(self, row):
        self.row = row
        self.a, self.b, self.c, self.d = map(int, row["problem"].split(","))
        self.dtype, self.layout, self.batch = row["dtype"], row["layout"], row["batch"]
        self.h = (self.b + self.c) / (self.b * self.c)  # bytes over operations
        self.density = 1 / (self.a * self.d)
        self.size = self.a * self.d * max(self.b, self.c)  # the longer side
        self.seconds = self.time("median")
        self.methods = {m: self.time(m) for m in METHODS}
        self.ratio = number(row.get("ratio"))

    def time(self, name):
        """From nanoseconds, or from microseconds as some older records have them."""
        for unit, scale in (("ns", 1e-9), ("us", 1e-6)):
            value = number(self.row.get(f"{name}_{unit}"))
            if value is not None:
                return value * scale
        return None

    def field(self, name):
        return number(self.row.get(name))

    def speed_over(self, method):
        """How many times faster ours is than a method; "best": than the fastest one."""
        known = [t for t in self.methods.values() if t is not None]
        other = (min(known) if known else None) if method == "best" else self.methods[method]
        return other / self.seconds if other and self.seconds else None

    def energy_ratio(self):
        """Ours over the least energy of other methods; None where it was not measured."""
        found = [self.field(f"{method}_joules") for method in ENERGY]
        known = [joules for joules in found if joules]
        ours = self.field("joules")
        return ours / min(known) if ours and known else None


def read(paths):
    """Records of single factors that were timed. Chains are left out."""
    found = []
    for path in paths:
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                if "problem" not in row:
                    raise SystemExit(f"{path} holds no records of products")
                if " " not in row["problem"] and (row.get("median_ns") or row.get("median_us")):
                    found.append(Record(row))
    if not found:
        raise SystemExit("there is no single factor in " + ", ".join(paths))
    return found


def groups(records):
    """(dtype, layout): records, in the order in which they come."""
    found = {}
    for record in records:
        found.setdefault((record.dtype, record.layout), []).append(record)
    return found
