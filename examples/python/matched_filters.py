"""danaus as the correlations of EQcorrscan, and of PyCBC's matched filter.

    python examples/python/matched_filters.py

Seismologists look for earthquakes that are like known ones: EQcorrscan correlates
templates with the records of many stations. `danaus_normxcorr` has the arguments and
results of its functions, which makes it one of them:

    eqcorrscan.utils.correlate.register_array_xcorr("danaus")(danaus_normxcorr)
    party = tribe.detect(stream, ..., xcorr_func="danaus")

Gravitational waves are looked for with templates in frequency, weighted by the noise of
the detector. `snr` is the complex series of pycbc.filter.matched_filter: a circular
correlation of the whitened data with the template as an analytic signal.
"""

# SPDX-License-Identifier: Apache-2.0
import numpy as np

import danaus


def danaus_normxcorr(templates, stream, pads, cc_squared=False, *args, **kwargs):
    """Coefficients [templates][length - taps + 1] of a station, moved by pads, and
    which templates have the station: as EQcorrscan's numpy_normxcorr makes them."""
    used = ~np.isnan(templates).any(axis=1)
    known = np.nan_to_num(templates).astype(np.float32)
    found = danaus.match_templates(
        np.asarray(stream, np.float32), known, subtract_mean=True
    )
    made = np.zeros(found.shape, np.float32)
    for to, row, pad in zip(made, found, pads):
        to[: row.size - pad] = row[pad:]
    if cc_squared:
        made *= np.abs(made)
    return made, used


def snr(template: np.ndarray, data: np.ndarray, psd: np.ndarray, delta_f: float):
    """The complex signal to noise ratio at every time, as PyCBC has it.

    template, data : spectra [n / 2 + 1] of the template and of n numbers of data.
    psd : the noise's power at these frequencies; where it is 0 there is no signal.
    """
    n = 2 * (data.size - 1)
    weight = np.divide(1, psd, out=np.zeros(psd.size), where=psd > 0)
    sigma = 4 * delta_f * np.sum(np.abs(template[:-1]) ** 2 * weight[:-1])
    filters = np.zeros((2, n), np.complex128)  # frequencies above 0 alone
    filters[0, 1 : n // 2] = (template * np.sqrt(weight))[1:-1]
    filters[1, 1 : n // 2] = (data * np.sqrt(weight))[1:-1]
    k, u = np.fft.ifft(filters)
    plan = danaus.ConvPlan(1, n, kind="circular", correlate=True, dtype="c128")
    series = plan.spectrum(k[None])(u[None])[0]
    return 4 * delta_f * n * series / np.sqrt(sigma)


def main() -> None:
    rng = np.random.default_rng(1)
    stream = rng.standard_normal(100 * 600).astype(np.float32)
    templates = rng.standard_normal((5, 1500)).astype(np.float32)
    for i, template in enumerate(templates):
        stream[9000 * i + 2000 :][:1500] += 2 * template
    found, _ = danaus_normxcorr(templates, stream, [0] * 5)
    print("templates begin at", found.argmax(1), "with", found.max(1).round(2))
    n, at = 4096, 1000
    wave = np.sin(np.cumsum(np.linspace(0.02, 0.9, 400))) * np.hanning(400)
    data = rng.standard_normal(n)
    data[at : at + 400] += 2 * wave
    spectra = np.fft.rfft(wave, n) / n, np.fft.rfft(data) / n
    series = np.abs(snr(*spectra, np.ones(n // 2 + 1), 1.0))
    print("the wave begins at", series.argmax())
    assert found.argmax(1).tolist() == [9000 * i + 2000 for i in range(5)]
    assert abs(int(series.argmax()) - at) <= 2


if __name__ == "__main__":
    main()
