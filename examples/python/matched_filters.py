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
`danaus_matched_filter_core` has the arguments and results of PyCBC's function.
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


def correlated(template, data, weight, n):
    """The sum over f of conj(template) data weight e^(2 pi i f t / n) at times t < n.

    Spectra begin at f = 0. This is a circular correlation of n complex numbers.
    """
    filters = np.zeros((2, n), np.complex128)  # as analytic signals
    filters[:, : len(template)] = np.stack([template, data]) * np.sqrt(weight)
    k, u = np.fft.ifft(filters)
    plan = danaus.ConvPlan(1, n, kind="circular", correlate=True, dtype="c128")
    return n * plan.spectrum(k[None])(u[None])[0]


def snr(template: np.ndarray, data: np.ndarray, psd: np.ndarray, delta_f: float):
    """The complex signal to noise ratio at every time, as PyCBC has it.

    template, data : spectra [n / 2 + 1] of the template and of n numbers of data.
    psd : the noise's power at these frequencies; where it is 0 there is no signal.
    """
    n = 2 * (data.size - 1)
    weight = np.divide(1, psd, out=np.zeros(psd.size), where=psd > 0)
    weight[[0, -1]] = 0  # frequencies above 0 alone
    sigma = 4 * delta_f * np.sum(np.abs(template) ** 2 * weight)
    return 4 * delta_f / np.sqrt(sigma) * correlated(template, data, weight, n)


def danaus_matched_filter_core(
    template,
    data,
    psd=None,
    low_frequency_cutoff=None,
    high_frequency_cutoff=None,
    h_norm=None,
    out=None,
    corr_out=None,
):
    """pycbc.filter.matched_filter_core, which may be replaced by it:

    pycbc.filter.matchedfilter.matched_filter_core = danaus_matched_filter_core
    """
    from pycbc.filter import matchedfilter as theirs
    from pycbc.types import FrequencySeries, TimeSeries, complex_same_precision_as

    h, s = (theirs.make_frequency_series(x) for x in (template, data))
    if len(h) != len(s):
        raise ValueError("Length of template and data must match")
    if psd is not None and not isinstance(psd, FrequencySeries):
        raise TypeError("PSD must be a FrequencySeries")
    if psd is not None and not np.isclose(psd.delta_f, s.delta_f):
        raise ValueError("PSD delta_f does not match data")
    n, cutoffs = 2 * (len(s) - 1), (low_frequency_cutoff, high_frequency_cutoff)
    low, high = theirs.get_cutoff_indices(*cutoffs, s.delta_f, n)
    weight = np.zeros(len(s))
    weight[low:high] = 1 if psd is None else 1 / psd.numpy()[low:high]
    kind = complex_same_precision_as(data)
    found = correlated(h.numpy(), s.numpy(), weight, n).astype(kind)
    product = np.zeros(n, kind)
    product[: len(s)] = h.numpy().conj() * s.numpy() * weight
    for to, made in ((out, found), (corr_out, product)):
        if to is not None:
            to.data[:] = made
    if h_norm is None:
        h_norm = theirs.sigmasq(h, psd, *cutoffs)
    return (
        TimeSeries(found, delta_t=s.delta_t, epoch=s._epoch),
        FrequencySeries(product, delta_f=s.delta_f, epoch=s._epoch),
        4 * s.delta_f / np.sqrt(h_norm),
    )


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
