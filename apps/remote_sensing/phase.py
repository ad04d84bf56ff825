"""By how much two images are shifted against each other, to a fraction of a pixel.

The whole pixels from the peak of the phase correlation, the rest from the slope of the phase of the
cross-power spectrum (Stone et al. 2001, doi:10.1109/36.957286) at frequencies below aliasing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

HIGHEST = 0.25  # cycles a pixel; beyond, an image is mostly aliased
ROUNDS = 3
LEAST = 8  # rows and columns below which nothing can be said


def shift_between(
    one_HW: NDArray[np.floating], other_HW: NDArray[np.floating]
) -> tuple[float, float]:
    """Rows and columns d such that ``one(x) = other(x - d)``, 0 for images without content.

    Args:
        one_HW: Any float type, NaN where there is nothing.
        other_HW: The same of the other; their means and contrasts may differ.
    """
    if min(one_HW.shape) < LEAST:
        return 0.0, 0.0
    shift = np.zeros(2)
    spectra = [np.fft.fft2(_windowed(it)) for it in (one_HW, other_HW)]
    cross = spectra[0] * spectra[1].conj()
    strength = np.abs(cross)
    if not strength.max() > 1e-12 * one_HW.size:
        return 0.0, 0.0
    peak = np.fft.ifft2(cross / np.maximum(strength, 1e-12 * strength.max())).real
    found = np.unravel_index(peak.argmax(), peak.shape)
    shift += [
        it if it <= size // 2 else it - size for it, size in zip(found, peak.shape, strict=True)
    ]
    row_H, column_W = np.fft.fftfreq(peak.shape[0])[:, None], np.fft.fftfreq(peak.shape[1])[None]
    low = (np.hypot(row_H, column_W) < HIGHEST) & (np.hypot(row_H, column_W) > 0)
    waves = np.stack([np.broadcast_to(it, peak.shape)[low] for it in (row_H, column_W)], 1)
    weight = np.sqrt(strength[low])[:, None]
    for _ in range(ROUNDS):
        turned = cross[low] * np.exp(2j * np.pi * waves @ shift)
        slope, *_ = np.linalg.lstsq(waves * weight, np.angle(turned) * weight[:, 0], rcond=None)
        shift -= slope / (2 * np.pi)
    return float(shift[0]), float(shift[1])


def _windowed(image_HW: NDArray[np.floating]) -> NDArray[np.float64]:
    """Without its mean, fading out towards the edges and 0 where there is nothing."""
    there_HW = np.isfinite(image_HW)
    mean = image_HW[there_HW].mean() if there_HW.any() else 0.0
    fade_HW = np.outer(*(np.hanning(size + 2)[1:-1] for size in image_HW.shape))
    return np.where(there_HW, image_HW - mean, 0.0).astype(np.float64) * fade_HW
