"""A metric's values on resamples of the test images, for paired comparisons of two scores.

A metric that is not a mean over images cannot be kept as one right or wrong answer per image. Instead every score on
the same test images is computed on the same resamples of these images (or of their groups). The spread over resamples
of the difference between two scores is then the error of this difference. The `detail` of a score keeps the values
under "resampled": `content_hash` as in `bench.store.prediction_bits`, and `packed`, base64 of float32.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.core.metrics import RESAMPLED

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class MetricResamples:
    """A metric's values on the resamples, for one score.

    Attributes:
        content_hash: hash of the test images and labels.
        packed: the values as little-endian float32; a record holds these bytes in base64.
    """

    content_hash: str
    packed: bytes

    @property
    def values_B(self) -> np.ndarray:
        """The metric's value on each resample, (B,) float32."""
        import numpy as np

        return np.frombuffer(self.packed, dtype="<f4")


def to_detail(values_B: np.ndarray, *, content_hash: str) -> tuple[str, dict[str, Any]]:
    """Return (key, entry) to add to the `detail` of a score, which state the metric's values on resamples.

    Args:
        values_B: the metric's value on each resample of the test images, (B,).
        content_hash: hash of the test images and labels.
    """
    packed = base64.b64encode(values_B.astype("<f4").tobytes()).decode()
    return RESAMPLED, {"content_hash": content_hash, "packed": packed}


def from_detail(detail: Mapping[str, Any] | None) -> MetricResamples | None:
    """Return a metric's values on resamples, as the entry by `to_detail` in the `detail` of a score states them; None
    if that entry is missing or malformed."""
    match detail.get(RESAMPLED) if detail else None:
        case {"content_hash": str(content_hash), "packed": str(text)}:
            try:
                packed = base64.b64decode(text, validate=True)
            except ValueError:
                return None
            return MetricResamples(content_hash=content_hash, packed=packed) if len(packed) % 4 == 0 else None
    return None
