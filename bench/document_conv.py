"""Tables of convolutions, for document.py."""
# SPDX-License-Identifier: Apache-2.0
import statistics

from document_ks import median, numbers, over, records

SHOWN = ("256", "1024", "4096", "16384", "65536", "65537", "262144", "1048576",
         "4194304")
PEERS = ("scipy", "ducc0", "torch")


def peers(length, rows):
    """FFTW's, pocketfft's, ducc0's and PyTorch's time over ours; None if not measured."""
    plain = [r for r in records("conv", length=length, kind="causal", extras="plain")
             if r["taps"] == length and int(r["batch"]) * int(r["channels"]) == rows]
    other = [r for r in records("conv_peers", length=length)
             if int(r["batch"]) * int(r["channels"]) == rows]
    if not plain:
        return None
    of = [plain[0]["fftw_ratio"], *[other[0][f"{p}_ratio"] if other else "" for p in PEERS]]
    return [float(x) if x else None for x in of]


def lengths():
    return sorted({r["length"] for r in records("conv", kind="causal", extras="plain")}, key=int)


def cells(found):
    return [f"{x:.1f}" if x else "-" for x in found] if found else ["-"] * 4


def conv():
    rows = [("length", "FFTW", "pocketfft", "ducc0", "PyTorch",
             "4,096 rows: FFTW", "pocketfft", "ducc0", "PyTorch")]
    for length in lengths():
        if length not in SHOWN:
            continue
        rows.append((f"{int(length):,}", *cells(peers(length, 64)), *cells(peers(length, 4096))))
    return rows


def conv_all():
    rows = [("length", "rows", "FFTW", "pocketfft", "ducc0", "PyTorch")]
    for count in (64, 4096):
        for length in lengths():
            found = peers(length, count)
            if found:
                rows.append((f"{int(length):,}", f"{count:,}", *cells(found)))
    return rows


def conv_best():
    """Over the fastest of all four."""
    best = [min(x for x in found if x) for count in (64, 4096) for length in lengths()
            if (found := peers(length, count))]
    return [("problems", "speed over the fastest: median", "least", "greatest"),
            (len(best), median(best), f"{min(best):.2f}", f"{max(best):.2f}")]


def forms():
    rows = [("form", "length", "filter", "time over the plain form's")]
    for r in records("conv"):
        if r["plain_ratio"]:
            words = [r["kind"], r["extras"] if r["extras"] != "plain" else ""]
            rows.append((" ".join(filter(None, words)), f"{int(r['length']):,}",
                         f"{int(r['taps']):,}", f"{float(r['plain_ratio']):.2f}"))
    return rows


def few_taps():
    rows = [("taps", "rows x channels x length", "layout", "forward / limit",
             "gradient / limit", "PyTorch / danaus: forward", "gradient")]
    for r in records("short"):
        peer = [f"{x[0]:.0f}" if (x := over([r], f"torch_{n}", n)) else "-"
                for n in ("forward", "gradient")]
        rows.append((r["taps"], f"{r['batch']} x {r['channels']} x {int(r['length']):,}",
                     r["layout"], *[f"{over([r], n, n + '_limit')[0]:.1f}"
                                    for n in ("forward", "gradient")], *peer))
    return rows


def torch_conv():
    rows = [("length", *[f"{form}, batch {batch}" for batch in (1, 8)
                         for form in ("forward", "cached", "train")])]
    found = records("torch_conv")
    for length in ("256", "1024", "4096", "16384", "65536", "1048576"):
        line = []
        for batch in ("1", "8"):
            for form in ("forward", "cached", "train"):
                some = [r for r in found if (r["length"], r["batch"], r["form"])
                        == (length, batch, form)]
                line.append(f"{float(some[0]['ratio']):.1f}" if some else "-")
        rows.append((f"{int(length):,}", *line))
    return rows


def gpu_conv():
    rows = [("length", "circular, ms", "time / floor", "torch.fft / danaus", "causal, ms",
             "time / floor", "torch.fft / danaus")]
    found = records("h100_conv", dtype="f16", form="forward")
    for length in ("256", "4096", "32768", "65536", "1048576", "4194304"):
        line = []
        for kind in ("circular", "causal"):
            r, = [r for r in found if (r["length"], r["kind"]) == (length, kind)]
            line += [f"{float(r['seconds']) * 1e3:.3g}", f"{float(r['over_floor']):.1f}",
                     f"{float(r['ratio']):.1f}"]
        rows.append((f"{int(length):,}", *line))
    return rows


def gpu_conv_more():
    """Gates, gradients, and f32 in accurate plans: time / floor and torch.fft / danaus."""
    rows = [("length", "kind", *(f"{form}: {what}" for form in ("gated", "backward", "f32")
                                 for what in ("time / floor", "torch.fft / danaus")))]
    found = records("h100_conv", dtype="f16") + [
        r | {"form": "f32"} for r in records("h200_conv_accurate", form="forward")]
    for length in ("4096", "65536", "1048576"):
        for kind in ("circular", "causal"):
            line = []
            for form in ("gated", "backward", "f32"):
                r, = [r for r in found if (r["length"], r["kind"], r["form"])
                      == (length, kind, form)]
                line += [f"{float(r['over_floor']):.1f}", f"{float(r['ratio']):.1f}"]
            rows.append((f"{int(length):,}", kind, *line))
    return rows


def gpu_few_rows():
    """Calls with filters of their own, and steps: time / floor and torch.fft / danaus."""
    rows = [("length", "kind", *(f"{batch} x {what}" for batch in (1, 2, 8)
                                 for what in ("fresh / ready", "step / floor",
                                              "torch.fft / danaus")))]
    found = records("h200_few_rows")
    for length in ("8192", "32768", "131072", "1048576"):
        for kind in ("causal", "circular"):
            line = []
            for batch in ("1", "2", "8"):
                r, = [r for r in found if (r["length"], r["kind"], r["batch"])
                      == (length, kind, batch)]
                line += [f"{float(r[n]):.1f}" for n in
                         ("filter", "step_over_floor", "step_ratio")]
            rows.append((f"{int(length):,}", kind, *line))
    return rows


def gpu_planes():
    """Calls with ready spectra, and steps."""
    forms = [(dtype, call) for dtype in ("f32", "f16") for call in ("ready", "step")]
    rows = [("planes", "kind", "taps", *(f"{dtype}, {call}: {what}" for dtype, call in forms
                                         for what in ("floors", "torch.fft / danaus")))]
    found = {}
    for r in records("h200_planes") + records("h200_planes_f16"):
        key = int(r["size"]), r["kind"], int(r["taps"])
        for call in ("ready", "step"):
            times = [f"{float(r[f'{call}_{n}']):.1f}" for n in ("over_floor", "ratio")]
            found.setdefault(key, {})[r["dtype"], call] = times
    for (size, kind, taps), values in found.items():
        line = [number for form in forms for number in values.get(form, ("", ""))]
        rows.append((f"{size} x {size}", kind, f"{taps} x {taps}", *line))
    return rows


def matches():
    rows = [("templates x taps", "length", "danaus, s", "EQcorrscan / danaus",
             "greatest difference")]
    for r in records("cpu_match"):
        rows.append((f"{r['templates']} x {int(r['taps']):,}", f"{int(r['length']):,}",
                     f"{float(r['seconds']):.2f}", f"{float(r['ratio']):.1f}", r["difference"]))
    return rows


def conv_model():
    """The model's choice over the measured one."""
    ratio = numbers(records("conv_model"), "model_ratio")
    return [("problems", "time over the measured plan's: median", "greatest"),
            (len(ratio), f"{statistics.median(ratio):.2f}", f"{max(ratio):.2f}")]


TABLES = {f.__name__: f for f in (
    conv, conv_all, conv_best, forms, few_taps, torch_conv, gpu_conv, gpu_conv_more,
    gpu_few_rows, gpu_planes, matches, conv_model)}
